"""The page of `browse` in a real browser: filters, sorting, the jobs of a row, a phone's width."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prime_bench import api
from prime_bench.settings.plugins import PrimeConfig
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import Runs

Browse = Callable[..., Any]
SHOWN = "[...document.querySelectorAll('#rows tbody tr')].filter(row => !row.hidden)"
ARMS = f"{SHOWN}.map(row => row.cells[2].textContent.trim())"


@pytest.fixture
def overview_file(tmp_path: Path, make_record: Callable[..., RunRecord]) -> Path:
    """Two sources: Dense and PRIME of two ranks, and Dense alone, with other scores."""
    for number, arms in enumerate((("dense", "prime4", "prime8"), ("dense",))):
        runs = Runs(tmp_path / f"lab{number}")
        for index, arm in enumerate(arms):
            settings = PrimeConfig(rank=int(arm[5:])).plain() if arm != "dense" else {}
            plugin = "prime" if settings else "dense"
            for seed in (1, 2):
                runs.put(
                    make_record(
                        arm=arm,
                        plugin=plugin,
                        plugin_settings=settings,
                        seed=seed,
                        auc=0.7 + 0.01 * index + 0.001 * seed + 0.1 * number,
                    )
                )
    path = tmp_path / "page.html"
    api.browse(tmp_path / "lab0", tmp_path / "lab1", output=path)
    return path


def choose(browser: Any, name: str, value: str) -> None:
    field = f"document.querySelector('#filters [name={name}]')"
    browser.run(f"{field}.value = '{value}'")
    browser.run(f"{field}.dispatchEvent(new Event('input', {{bubbles: true}}))")


def test_filters_narrow_and_are_taken_back(browse: Browse, overview_file: Path) -> None:
    browser = browse(overview_file)
    every = browser.run(ARMS)

    choose(browser, "words", "arm.rank = 8, dnn")
    by_words = browser.run(ARMS)
    choose(browser, "words", "")
    choose(browser, "source", "2")
    by_source = browser.run(ARMS)
    choose(browser, "source", "")
    choose(browser, "low", "0.715")
    choose(browser, "high", "0.75")
    by_number = browser.run(ARMS)
    told = browser.run("document.getElementById('shown').textContent")
    choose(browser, "metric", "logloss")
    heads = browser.run(
        "[...document.querySelectorAll('#rows thead th')].filter(h => h.offsetWidth)"
        ".map(h => h.dataset.head)"
    )

    assert every == ["Dense", "Dense", "prime4", "prime8"]
    assert by_words == ["prime8"]
    assert by_source == ["Dense"]
    assert by_number == ["prime8"]
    assert told == "1 of 4 rows"
    assert "LogLoss" in heads
    assert "AUC" not in heads
    assert browser.errors == []


def test_rows_sort_by_number_and_open_their_jobs(browse: Browse, overview_file: Path) -> None:
    browser = browse(overview_file)

    browser.run("document.querySelector('#rows th[data-head=AUC] .sort').click()")
    falling = browser.run(ARMS)
    browser.run("document.querySelector('#rows tbody td.metric-auc').click()")
    title = browser.run("document.getElementById('job-title').textContent")
    jobs = browser.run(
        "[...document.querySelectorAll('#job-dialog tbody tr')].map(r => r.cells[2].textContent)"
    )

    assert falling == ["Dense", "prime8", "prime4", "Dense"]  # that of the second source first
    assert title == "Avazu, DNN, Dense"
    assert jobs == ["0.801000", "0.802000"]
    assert browser.errors == []
    assert browser.run("performance.getEntriesByType('resource').length") == 0


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_as_wide_as_the_window(width: int, browse: Browse, overview_file: Path) -> None:
    browser = browse(overview_file, width=width)

    tables = "[...document.querySelectorAll('.scroll')]"
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(f"{tables}.map(one => one.scrollWidth <= one.clientWidth)") == [True] * 2
