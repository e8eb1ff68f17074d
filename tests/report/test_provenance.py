"""What a table says of the runs behind it: commits, tables, versions, devices and days."""

from collections.abc import Callable
from dataclasses import replace

from prime_bench import __version__
from prime_bench.report.document import make_report
from prime_bench.report.provenance import merged_provenance, provenance_of
from prime_bench.report.quantities.records import gather
from prime_bench.report.tables.kinds import load_definition
from prime_bench.store.record import RunRecord

MakeRecord = Callable[..., RunRecord]


def test_provenance_has_each_fact_of_the_records_once_and_in_order(
    make_record: MakeRecord,
) -> None:
    records = [
        make_record(seed=1, device="B", torch="2.13.0", commit="b" * 40, dirty=True, numerics=2),
        make_record(seed=2, device="A", torch="2.9.0", commit="a" * 40, dirty=False, numerics=1),
        make_record(seed=3, device="B", torch="2.13.0", commit=None, dirty=None, numerics=2),
        make_record(seed=4, dataset="criteo", commit="a" * 40, dirty=None, fingerprint="2" * 64),
        make_record(seed=5, dataset="criteo", commit="a" * 40, fingerprint="1" * 64),
    ]
    days = ("2026-01-03", "2026-01-01", "2026-02-01", "2026-01-02", "2026-01-02")
    records = [
        record.model_copy(
            update={
                "environment": record.environment.model_copy(update={"started": f"{day}T23:59:59Z"})
            }
        )
        for record, day in zip(records, days, strict=True)
    ]

    found = provenance_of(records, recipe="mine")

    assert found.recipe == "mine"
    # With a plus where there were changes that no commit has.
    assert found.commits == ("a" * 12, "b" * 12 + "+", "unknown")
    assert list(found.fingerprints) == ["avazu", "criteo"]
    assert found.fingerprints["criteo"] == ("1" * 64, "2" * 64)
    assert found.versions == {"torch": ("2.13.0", "2.9.0")}
    assert found.devices == ("A", "B", "a CPU")
    assert found.numerics == (1, 2)
    assert found.started == ("2026-01-01", "2026-02-01")
    assert found.package_version == __version__


def test_nothing_has_no_days() -> None:
    assert provenance_of([], recipe="").started is None


def test_tables_of_several_recipes_name_each_once(make_record: MakeRecord) -> None:
    record = make_record()
    report = make_report(gather([record]), definitions={"main": load_definition("main")})
    (table,) = report.tables
    tables = tuple(
        replace(table, provenance=replace(table.provenance, recipe=name))
        for name in ("one", "", "two", "one")
    )

    found = merged_provenance(replace(report, tables=tables), [record])

    assert found.recipe == "one and two"
    assert found.devices == ("a CPU",)
