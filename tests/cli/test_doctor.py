"""`prime-bench doctor`: what it prints of each check, and its exit code."""

import json

import pytest

from prime_bench.cli.main import exit_code
from prime_bench.schedule.doctor import HealthCheck

OK = HealthCheck(topic="Python", state="ok", found="3.11")
NOTE = HealthCheck(topic="compiler", state="note", found="none", advice="install one")
FAULT = HealthCheck(topic="runs", state="fault", found="not writable", advice="name another")


@pytest.mark.parametrize(("checks", "code"), [([OK, NOTE], 0), ([OK, FAULT, NOTE], 4), ([], 0)])
def test_a_fault_alone_is_a_code(
    checks: list[HealthCheck],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def doctor(*, on_check, **_):  # type: ignore[no-untyped-def]
        for check in checks if on_check else ():
            on_check(check)
        return checks

    monkeypatch.setattr("prime_bench.api.doctor", doctor)

    assert exit_code(["doctor"]) == code
    text = {
        OK.topic: "ok    Python           3.11",
        NOTE.topic: "note  compiler         none -> install one",
        FAULT.topic: "FAULT runs             not writable -> name another",
    }
    assert capsys.readouterr().out.splitlines() == [text[check.topic] for check in checks]
    assert exit_code(["doctor", "--json"]) == code
    found = json.loads(capsys.readouterr().out)["findings"]
    assert found == [check.plain() for check in checks]
