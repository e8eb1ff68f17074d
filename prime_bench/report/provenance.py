"""What a table was made from: recipe, code, data, versions, devices and dates of its records."""

from collections.abc import Sequence

from prime_bench import __version__
from prime_bench.report.tables.model import Provenance, Report, Table, series
from prime_bench.store.record import Environment, ProbeRecord, RunRecord

SHOWN_DIGITS = 12


def provenance_of(records: Sequence[RunRecord | ProbeRecord], *, recipe: str) -> Provenance:
    """Gather it from the records that a table shows."""
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
    """Of these records, under the recipes of all the report's tables."""
    recipes = dict.fromkeys(table.provenance.recipe for table in report.tables)
    return provenance_of(records, recipe=series([name for name in recipes if name]))


def provenance_line(table: Table) -> str:
    """The last note under a table, without a full stop."""
    found = table.provenance
    source = f"recipe {found.recipe}" if found.recipe else "every record"
    if found.started is None:
        return f"Made by prime-bench {found.package_version} from {source}: no record behind it"
    first, last = found.started
    data = [
        f"{name} {', '.join(print_[:SHOWN_DIGITS] for print_ in prints)}"
        for name, prints in found.fingerprints.items()
    ]
    parts = [
        f"{len(table.jobs)} records, {first if first == last else f'{first} to {last}'}",
        f"code {series(list(found.commits))}",
        f"data {'; '.join(data)}",
        f"torch {series(list(found.versions.get('torch', ('unknown',))))}",
        f"on {series(list(found.devices))}",
    ]
    return f"Made by prime-bench {found.package_version} from {source}: {', '.join(parts)}"


def _revision(environment: Environment) -> str:
    """The first digits of the commit; `+` marks changes that are in no commit."""
    if environment.commit is None:
        return "unknown"
    return environment.commit[:SHOWN_DIGITS] + "+" * bool(environment.dirty)
