"""Provenance of a table: recipe, commits, tables, versions, devices and dates of its records."""

from collections.abc import Sequence

from prime_bench import __version__
from prime_bench.report.tables.model import Provenance, Report, series
from prime_bench.store.record import Environment, ProbeRecord, RunRecord

COMMIT_DIGITS = 12


def provenance_of(records: Sequence[RunRecord | ProbeRecord], *, recipe: str) -> Provenance:
    """Return the provenance of a table that shows these records of a recipe."""
    environments = [record.environment for record in records]
    fingerprints: dict[str, set[str]] = {}
    for record in records:
        fingerprints.setdefault(record.dataset, set()).add(record.job.fingerprint)
    versions: dict[str, set[str]] = {}
    for environment in environments:
        for package, version in environment.versions.items():
            versions.setdefault(package, set()).add(version)
    days = sorted(environment.started[:10] for environment in environments)
    return Provenance(
        recipe=recipe,
        commits=tuple(sorted({_revision(environment) for environment in environments})),
        fingerprints={name: tuple(sorted(found)) for name, found in sorted(fingerprints.items())},
        versions={name: tuple(sorted(found)) for name, found in sorted(versions.items())},
        devices=tuple(sorted({environment.device for environment in environments})),
        numerics=tuple(sorted({record.job.numerics for record in records})),
        started=(days[0], days[-1]) if days else None,
        package_version=__version__,
    )


def merged_provenance(report: Report, records: Sequence[RunRecord | ProbeRecord]) -> Provenance:
    """Return the provenance of records that several tables of a report show."""
    recipes = dict.fromkeys(table.provenance.recipe for table in report.tables)
    return provenance_of(records, recipe=series([name for name in recipes if name]))


def _revision(environment: Environment) -> str:
    """The first digits of the commit, with a `+` where there were uncommitted changes."""
    if environment.commit is None:
        return "unknown"
    return environment.commit[:COMMIT_DIGITS] + "+" * bool(environment.dirty)
