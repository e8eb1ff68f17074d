"""Records of other versions of a user's own classes, and the jobs as which they count on request.

A digest of its source is part of the identity of a job whose backbone or plug-in is not ours. A
record whose job differs in nothing else from one that is asked for can stand in for it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prime_bench.store.record import Record


@dataclass(frozen=True, kw_only=True)
class OtherVersion:
    """A record of another version of the source, and the record as which it counts."""

    record: Record
    """As it was written."""
    counted: Record
    """The same, with the digests of the wanted version in `job.code`; `job_id` is that of the file.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The backbone or plug-in whose source differs; both where both do."""
        wanted = self.counted.job.code
        own = self.record.job.code
        return tuple(sorted(name for name in own if own[name] != wanted[name]))


def other_versions(records: Iterable[Record], codes: Mapping[str, str]) -> list[OtherVersion]:
    """Find the records that are of other versions of these classes.

    A job that has a record of the wanted version needs no other. Of several that could stand in for
    one job it is the one that was started last.

    Args:
        records: All records there are.
        codes: Digest of the wanted version of each class, by its name in recipes.
    """
    own = [record for record in records if record.job.code.keys() & codes.keys()]
    there = {record.job_id for record in own}
    found: dict[str, OtherVersion] = {}
    for record in sorted(own, key=lambda record: (record.environment.started, record.job_id)):
        code = {name: codes.get(name, digest) for name, digest in record.job.code.items()}
        job = record.job.model_copy(update={"code": code})
        if code != record.job.code and (wanted := job.id) not in there:
            counted = record.model_copy(update={"job": job})
            found[wanted] = OtherVersion(record=record, counted=counted)
    return list(found.values())


def latest_codes(records: Iterable[Record]) -> dict[str, str]:
    """The digest of each class, by its name, in the record that was started last."""
    codes: dict[str, str] = {}
    for record in sorted(records, key=lambda record: (record.environment.started, record.job_id)):
        codes |= record.job.code
    return codes


def counted_by_class(others: Iterable[OtherVersion]) -> dict[str, int]:
    """How many records are of another version, by the name of the class or of the classes."""
    return dict(Counter("` and `".join(other.names) for other in others))


def exist_text(counts: Mapping[str, int], *, then: str) -> list[str]:
    """A sentence for each class on the records that could stand in; `then` says what comes of it.

    `counts` is that of `counted_by_class`.
    """
    return [
        f"{n} record{'s' if n > 1 else ''} of an earlier version of `{name}` "
        f"exist{'' if n > 1 else 's'}; `--accept-source` {then}"
        for name, n in sorted(counts.items())
    ]
