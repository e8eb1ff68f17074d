from prime_bench.cli.prepare_output import progress_bars
from prime_bench.data.stages import StageProgress


def test_without_a_terminal_a_line_a_minute_says_how_far_it_is(monkeypatch, capsys):
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    with progress_bars() as move:
        for rows in range(0, 1000, 10):
            now_s += 3.0
            move("mylog", StageProgress(stage="reading", done=rows * 7, total=7000, rows=rows))
    out, err = capsys.readouterr()

    assert out == ""
    assert err.splitlines() == [
        "mylog: reading, 19%, 3 rows/s",
        "mylog: reading, 39%, 3 rows/s",
        "mylog: reading, 59%, 3 rows/s",
        "mylog: reading, 79%, 3 rows/s",
        "mylog: reading, 99%, 3 rows/s",
    ]
