"""The page in a real browser: no console error, sorting, opening, keys, themes, a phone's width."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prime_bench.report.document import make_report
from prime_bench.report.formats.render import render
from prime_bench.report.quantities.records import gather
from prime_bench.report.tables.kinds import load_definition
from prime_bench.report.tables.model import Picture
from prime_bench.store.record import RunRecord

Browse = Callable[..., Any]
ARMS = ("dense", "prime", "residual_parameters", "apg")

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
    table = "document.querySelectorAll('main table')[2]"  # Criteo's AUC
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


def test_a_laptop_shows_a_table_of_four_arms_whole(
    browse: Browse, make_record: Callable[..., RunRecord], tmp_path: Path
) -> None:
    """AUC and LogLoss are a table each; a table of two arms is not divided."""
    for arms, n_tables in ((ARMS, 2), (ARMS[:2], 1)):
        records = [make_record(arm=arm, seed=seed) for arm in arms for seed in (1, 2)]
        report = make_report(gather(records), definitions={"main": load_definition("main")})
        path = tmp_path / "page.html"
        path.write_text(render(report, "html"), encoding="utf-8")
        browser = browse(path)

        wide = "[...document.querySelectorAll('.scroll')].map(e => e.scrollWidth > e.clientWidth)"
        assert browser.run(wide) == [False] * n_tables
        heads = "[...document.querySelectorAll('main table thead tr:first-child')]"
        shown = browser.run(f"{heads}.map(row => row.textContent.trim().split(/\\s+/).join(' '))")
        assert shown == (["AUC", "LogLoss"] if n_tables == 2 else ["AUC LogLoss"])


@pytest.mark.parametrize("width", [1280, 390])
def test_a_figure_has_the_width_that_it_is_given(
    browse: Browse, full_set: list[RunRecord], tmp_path: Path, width: int
) -> None:
    records = gather(full_set)
    report = make_report(records, definitions={"main": load_definition("main")})
    drawn = '<svg width="504pt" height="216pt" viewBox="0 0 504 216"><path d="M0 0h9"/></svg>'
    figures = tuple(
        Picture(name=name, title=name, data="Avazu", svg=drawn, width_share=share)
        for name, share in (("whole", 1.0), ("half", 0.5))
    )
    path = tmp_path / "page.html"
    path.write_text(render(replace(report, figures=figures), "html"), encoding="utf-8")
    browser = browse(path, width=width)

    text, whole, half = browser.run(
        "[document.querySelector('main .hint'), ...document.querySelectorAll('.figure svg')]"
        ".map(e => e.getBoundingClientRect().width)"
    )
    if width == 1280:
        assert (whole, half) == pytest.approx((text, text / 2))
    else:
        assert half == pytest.approx(text)
        assert 1.4 * text < whole < 1.7 * text  # its letters would be too small
    assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1280, 390])
def test_no_width_makes_the_page_itself_scroll(browse: Browse, page_file: Path, width: int) -> None:
    browser = browse(page_file, width=width)
    browser.run("document.querySelector('main .open').click()")

    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(f"{DIALOG}.getBoundingClientRect().width") <= width
    assert browser.run(f"{DIALOG}.scrollWidth <= {DIALOG}.clientWidth")
