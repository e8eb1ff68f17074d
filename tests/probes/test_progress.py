"""Events of a measurement: few, the last one whole."""

from prime_bench.probes import progress


def test_it_tells_twice_a_second_and_at_the_end(monkeypatch):
    clock = iter([100.0, *(100 + 0.1 * step for step in range(1, 13))])
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))
    told = []
    counted = progress.ProbeProgress(told.append, "j", rows_total=36)

    for _ in range(12):
        counted.add(3)

    assert [event["rows"] for event in told] == [15, 30, 36]
    assert {(e["event"], e["job_id"], e["rows_total"]) for e in told} == {("progress", "j", 36)}
    assert abs(told[0]["rows_per_s"] - 30) < 1e-6
