"""The page in a real browser: no console error, sorting, opening, keys, themes, a phone's width."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Browse = Callable[..., Any]

TABLE = "document.querySelectorAll('main table')[0]"
ROWS = f"[...{TABLE}.tBodies[0].rows]"
FIRST_COLUMN = f"{ROWS}.map(row => row.cells[0].textContent.trim())"
DELTAS = f"{ROWS}.map(row => row.cells[3].dataset.value ?? null)"
DIALOG = "document.querySelector('#job-dialog')"


def header(column: int) -> str:
    return f"[...{TABLE}.tHead.rows].at(-1).cells[{column}]"


def test_no_console_error_and_nothing_is_fetched(browse: Browse, page_file: Path) -> None:
    browser = browse(page_file)

    assert browser.errors == []
    assert browser.run("performance.getEntriesByType('resource').length") == 0


def test_sorting_by_number_leaves_the_summary_below(browse: Browse, page_file: Path) -> None:
    browser = browse(page_file)
    as_made = browser.run(FIRST_COLUMN)
    n_backbones = as_made.index("Mean")

    browser.run(f"{header(3)}.querySelector('.sort').click()")
    falling = browser.run(DELTAS)[:n_backbones]
    state = browser.run(f"{header(3)}.getAttribute('aria-sort')")
    summary = browser.run(FIRST_COLUMN)[n_backbones:]
    ruled = browser.run(
        f"[...{TABLE}.querySelectorAll('tr.ruled')].map(row => row.cells[0].textContent.trim())"
    )
    browser.run(f"{header(3)}.querySelector('.sort').click()")
    rising = browser.run(DELTAS)[:n_backbones]
    browser.run(f"{header(3)}.querySelector('.sort').click()")

    assert state == "descending"
    assert falling == sorted(falling, key=float, reverse=True)
    assert rising == falling[::-1]
    assert summary == as_made[n_backbones:]
    assert ruled == ["Mean"]
    assert browser.run(FIRST_COLUMN) == as_made


def test_missing_cells_stay_last_either_way(browse: Browse, page_file: Path) -> None:
    browser = browse(page_file)
    table = "document.querySelectorAll('main table')[1]"
    column = browser.run(
        f"[...[...{table}.tHead.rows].at(-1).cells]"
        ".findIndex(h => h.dataset.head === 'AUC Residual (params)')"
    )
    rows = f"[...{table}.tBodies[0].rows].filter(row => !row.matches('.ruled, .ruled ~ *'))"
    last = f"{rows}.at(-1).cells[{column}].textContent.trim()"

    for _ in range(2):
        browser.run(
            f"[...{table}.tHead.rows].at(-1).cells[{column}].querySelector('.sort').click()"
        )

        assert browser.run(last) == "--"


def test_a_cell_opens_the_jobs_behind_it(browse: Browse, page_file: Path) -> None:
    browser = browse(page_file)
    cell = "document.querySelector('main td[data-jobs]')"
    jobs = browser.run(f"{cell}.dataset.jobs.split(' ')")

    browser.run(f"{cell}.querySelector('.open').click()")
    shown = browser.run(
        "[...document.querySelectorAll('#job-dialog tbody code')].map(c => c.textContent)"
    )
    text = browser.run(f"{DIALOG}.textContent")

    assert browser.run(f"{DIALOG}.open") is True
    assert sorted(shown) == sorted(jobs)
    assert browser.run("document.querySelector('#job-title').textContent").startswith("DNN, AUC")
    assert browser.run(
        "document.querySelectorAll('#job-dialog .curves polyline').length"
    ) == 2 * len(jobs)
    for words in ("Configuration", "Environment", "torch", "training.batch_size", "190034"):
        assert words in text
    assert browser.errors == []


def test_a_degenerate_run_says_why(browse: Browse, page_file: Path) -> None:
    browser = browse(page_file)

    flagged = "[...document.querySelectorAll('main .open')].find(b => b.textContent.includes('†'))"
    browser.run(f"{flagged}.click()")

    assert "constant output" in browser.run(f"{DIALOG}.textContent")


def test_by_keyboard_alone(browse: Browse, page_file: Path) -> None:
    browser = browse(page_file)
    where = "document.activeElement.closest('td')?.cellIndex"
    browser.run("document.querySelector('main .open').focus()")
    at = browser.run(where)

    browser.press("ArrowRight")
    browser.press("ArrowDown")
    moved = browser.run(where)
    row = browser.run("document.activeElement.closest('tr').rowIndex")
    stops = browser.run(
        "document.querySelectorAll('main table:first-of-type .open[tabindex=\"0\"]').length"
    )
    browser.press("Enter")
    browser.until(f"{DIALOG}.open")
    browser.press("Escape")
    browser.until(f"!{DIALOG}.open")

    assert moved == at + 1
    assert row == browser.run("document.querySelector('main .open').closest('tr').rowIndex") + 1
    assert stops == browser.run("document.querySelectorAll('main table:first-of-type').length")
    assert browser.run(where) == moved, "the focus comes back to the cell"
    assert browser.errors == []


def test_theme_goes_round_and_dark_is_dark(browse: Browse, page_file: Path) -> None:
    browser = browse(page_file)
    paper = "getComputedStyle(document.body).backgroundColor"
    colours = []

    for _ in range(3):
        colours.append(browser.run(paper))
        browser.run("document.querySelector('#theme').click()")

    system, light, dark = colours
    assert light == "rgb(255, 255, 255)"
    assert dark == "rgb(21, 23, 27)"
    assert system in (light, dark)
    assert browser.run("document.documentElement.dataset.theme ?? 'system'") == "system"


@pytest.mark.parametrize("width", [1280, 390])
def test_no_width_makes_the_page_itself_scroll(browse: Browse, page_file: Path, width: int) -> None:
    browser = browse(page_file, width=width)
    browser.run("document.querySelector('main .open').click()")

    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(f"{DIALOG}.getBoundingClientRect().width") <= width
    assert browser.run(f"{DIALOG}.scrollWidth <= {DIALOG}.clientWidth")
