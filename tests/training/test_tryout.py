import pytest
import torch

from prime_bench.training.tryout import step_ms, tried


def test_a_step_takes_time() -> None:
    assert step_ms(torch.device("cpu"), seconds=0.0) > 0


def test_what_goes_wrong_on_a_device_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_device: torch.device) -> float:
        raise RuntimeError("no kernel image\nmore of it")

    monkeypatch.setattr("prime_bench.training.tryout.step_ms", broken)
    assert tried(torch.device("cpu")) == {"device": "cpu", "fault": "no kernel image"}
