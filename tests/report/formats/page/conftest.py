"""A page of made-up records, and a real browser to look at it with."""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prime_bench.findings import Validation
from prime_bench.report.document import make_report
from prime_bench.report.formats.render import render
from prime_bench.report.quantities.records import gather
from prime_bench.report.tables.kinds import load_definition
from prime_bench.store.record import RunRecord

PATIENCE_S = 60.0
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def with_history(record: RunRecord) -> RunRecord:
    """Three validations, the first of a degenerate run without an AUC."""
    lost = record.result.degenerate is not None
    history = [
        Validation(
            epoch=epoch,
            step=10 * epoch,
            learning_rate=1e-3,
            train_loss=0.4,
            valid_auc=None if lost and epoch == 1 else 0.75 + 0.001 * epoch,
            valid_logloss=None if lost and epoch == 1 else 0.4,
            improved=epoch == 2,
            wall_s=1.0 * epoch,
        )
        for epoch in (1, 2, 3)
    ]
    return record.model_copy(update={"history": history})


@pytest.fixture
def page_file(full_set: list[RunRecord], tmp_path: Path) -> Path:
    """A page of the main table in a file."""
    records = gather([with_history(record) for record in full_set])
    report = make_report(records, definitions={"main": load_definition("main")})
    path = tmp_path / "page.html"
    path.write_text(render(report, "html"), encoding="utf-8")
    return path


class Browser:
    """Chromium without a window, spoken to through its debugging pipe: no port, no package."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._ids = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        self.errors: list[str] = []
        """What the page's console called an error, and uncaught exceptions."""

    def attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result; what else the browser says meanwhile is looked at."""
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self._note(answer)
        assert "error" not in answer, answer
        return dict(answer["result"])

    def open(self, path: Path, *, width: int, height: int = 900) -> None:
        """Show a file in a window of this size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Page.navigate", url=path.as_uri())
        self.until("document.querySelector('#theme')?.hidden === false")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until it is true."""
        end = time.monotonic() + PATIENCE_S
        while not self.run(expression):
            assert time.monotonic() < end, expression
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """A key, down and up."""
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowRight": 39}
        typed = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes[key],
                **typed,
            )

    def screenshot(self, path: Path) -> None:
        """What the window shows, as PNG."""
        shot = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], PATIENCE_S)
            assert ready, "the browser does not answer"
            block = os.read(self._read, 1 << 16)
            assert block, "the browser has ended"
            self._buffer += block
        text, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(text))

    def _note(self, event: dict[str, Any]) -> None:
        method, said = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(said["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
            self.errors.append(str(said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.errors.append(said["entry"]["text"])


@contextlib.contextmanager
def started(program: str, profile: Path) -> Iterator[Browser]:
    to_browser, from_browser = os.pipe(), os.pipe()
    # Chromium reads commands from file 3 and writes answers to file 4. Copies with high numbers
    # first: the pipe's own ends may be 3 and 4, the other way round.
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser[0], from_browser[1])]
    process = subprocess.Popen(
        [
            program,
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
            # Without them Chromium looks up hosts of its own at every start.
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--disable-quic", "--no-first-run"),
            f"--user-data-dir={profile}",
            "about:blank",
        ],
        pass_fds=(3, 4),
        preexec_fn=lambda: [os.dup2(end, 3 + place) for place, end in enumerate(ends)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for end in ends:
        os.close(end)
    os.close(to_browser[0])
    os.close(from_browser[1])
    try:
        browser = Browser(from_browser[0], to_browser[1])
        browser.attach()
        yield browser
    finally:
        os.close(to_browser[1])
        os.close(from_browser[0])
        process.terminate()
        process.wait(timeout=PATIENCE_S)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no Chromium here (looked for {', '.join(NAMES)})")
    with started(program, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browse(chromium: Browser) -> Callable[..., Browser]:
    """Open a file; the errors are the new page's."""

    def opened(path: Path, *, width: int = 1280) -> Browser:
        chromium.errors.clear()
        chromium.open(path, width=width)
        return chromium

    return opened
