"""Halves of pairs that cannot meet: records that stand on another kind of device, or that an older
version made.
"""

from collections import defaultdict
from collections.abc import Iterable

from prime_bench.recipe.job import Job
from prime_bench.store.record import DeviceKind, RunRecord
from prime_bench.store.runs import Runs


def stale_halves(
    records: Iterable[RunRecord], to_run: Iterable[Job], *, here: DeviceKind
) -> dict[str, str]:
    """Ids of done jobs whose pairs stand, or will stand, on another kind of device, and why.

    `here` is the kind that `to_run` will run on. Of a pair on both kinds the half elsewhere is the
    stale one, since this machine can do it again.
    """
    groups: dict[str, list[RunRecord]] = defaultdict(list)
    for record in records:
        groups[_group_of(record.job)].append(record)
    will_run = {_group_of(job) for job in to_run}
    stale = {}
    for group, members in groups.items():
        kinds = {record.environment.device_kind for record in members}
        if here not in kinds and group not in will_run:
            continue
        other = f"its pair is on {here}" if here in kinds else f"its pair would be done on {here}"
        for record in members:
            kind = record.environment.device_kind
            if kind != here:
                stale[record.job_id] = f"its record is on {kind}, {other}"
    return stale


def outdated(job: Job, runs: Runs) -> int | None:
    """The latest `numerics` before the job's own under which it has a record; None: there is none.

    Such a record cannot pair with any that this version makes.
    """
    for numerics in range(job.numerics - 1, 0, -1):
        if runs.done(job.model_copy(update={"numerics": numerics}).id):
            return numerics
    return None


def _group_of(job: Job) -> str:
    """What the arms of one data set, backbone and seed share."""
    own = {name: code for name, code in job.code.items() if name == job.backbone}
    return job.model_copy(update={"plugin": "", "plugin_settings": {}, "code": own}).id
