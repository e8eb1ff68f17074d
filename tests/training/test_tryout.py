import json
import time

import pytest
import torch

from prime_bench.training import tryout
from prime_bench.training.tryout import main, step_ms, tried


def test_a_step_takes_time() -> None:
    assert step_ms(torch.device("cpu"), seconds=0.0) > 0


def test_what_goes_wrong_on_a_device_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_device: torch.device) -> float:
        raise RuntimeError("no kernel image\nmore of it")

    monkeypatch.setattr("prime_bench.training.tryout.step_ms", broken)
    assert tried(torch.device("cpu")) == {"device": "cpu", "fault": "no kernel image"}


def test_the_first_steps_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    takes_s = iter([9.0, 7.0, 0.25, 0.5, 0.125, 99.0])

    def step(_batch: object) -> None:
        now_s[0] += next(takes_s)

    monkeypatch.setattr(tryout, "GraphedStep", lambda *_, **__: step)
    monkeypatch.setattr(time, "perf_counter", lambda: now_s[0])

    assert step_ms(torch.device("cpu"), seconds=16.8) == 250
    assert next(takes_s) == 99


def test_every_device_is_tried_and_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tryout, "cuda_devices", lambda: (2, "an old driver"))
    monkeypatch.setattr(tryout, "device_name", lambda device: f"A {device.type}")
    monkeypatch.setattr(tryout, "step_ms", lambda device: 2.5 + (device.index or 0))
    fixed: list[int] = []
    monkeypatch.setattr(tryout, "fix_arithmetic", lambda *, threads: fixed.append(threads))

    main()

    assert fixed == [torch.get_num_threads()]

    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "warning": "an old driver",
        "devices": [
            {"device": "cpu", "name": "A cpu", "step_ms": 2.5},
            {"device": "cuda:0", "name": "A cuda", "step_ms": 2.5},
            {"device": "cuda:1", "name": "A cuda", "step_ms": 3.5},
        ],
    }
