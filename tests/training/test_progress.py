"""Progress of an epoch or a probe: few reports, the last one of all rows."""

from prime_bench.training import progress


def test_it_reports_twice_a_second_and_at_the_end(monkeypatch):
    clock = iter([100.0, *(100 + 0.1 * step for step in range(1, 13))])
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))
    reports = []
    counted = progress.ProgressMeter(reports.append, rows_total=36)

    for _ in range(12):
        counted.add(3)

    assert [report.rows for report in reports] == [15, 30, 36]
    assert {(report.epoch, report.rows_total) for report in reports} == {(1, 36)}
    assert abs(reports[0].rows_per_s - 30) < 1e-6
