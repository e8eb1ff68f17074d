"""The variables of the hub's session, and its errors; tests/data/raw and tests/report/sharing ask
a hub.
"""

import importlib.util
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from huggingface_hub.errors import OfflineModeIsEnabled

from prime_bench.base import hub
from prime_bench.base.errors import EnvironmentFault, UsageError
from prime_bench.base.hub import check_variables, hub_address, proxy_variable, reason_of, status_of

Set = Callable[..., None]


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> Set:
    """Sets these variables and no other of a proxy or of the hub; no session is opened."""

    def put(**values: str) -> None:
        for kind in ("http", "https", "all", "no"):
            for name in (f"{kind}_proxy", f"{kind}_proxy".upper()):
                monkeypatch.delenv(name, raising=False)
        for name in ("HF_ENDPOINT", *hub._TIMEOUTS, *hub._CERTIFICATES):
            monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    monkeypatch.setattr(hub, "open_session", lambda: None)
    return put


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ({}, "https://huggingface.co"),
        ({"HF_ENDPOINT": ""}, "https://huggingface.co"),
        ({"HF_ENDPOINT": "http://mine:80//"}, "http://mine:80"),
    ],
)
def test_the_hub_is_that_of_the_variable(
    variables: Set, endpoint: dict[str, str], address: str
) -> None:
    variables(**endpoint)
    assert hub_address() == address


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, None),
        ({"HTTP_PROXY": "http://a:1"}, None),
        ({"HTTPS_PROXY": "http://a:1", "ALL_PROXY": "http://b:1"}, "HTTPS_PROXY"),
        ({"all_proxy": "http://b:1", "http_proxy": "http://a:1"}, "all_proxy"),
    ],
)
def test_the_proxy_is_that_for_https_or_for_everything(
    variables: Set, values: dict[str, str], name: str | None
) -> None:
    variables(**values)
    assert proxy_variable() == name


@pytest.mark.parametrize("installed", [True, False])
def test_a_socks_proxy_needs_its_package(
    variables: Set, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    asked: list[str] = []
    spec = object() if installed else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: asked.append(name) or spec)
    variables(ALL_PROXY="socks5://a:1")

    if installed:
        check_variables()
    else:
        with pytest.raises(EnvironmentFault, match="ALL_PROXY: a SOCKS proxy needs the package"):
            check_variables()
    assert asked == ["socksio"]


def test_values_that_are_right_are_left_alone(
    variables: Set, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    variables(
        HF_ENDPOINT="http://mine",
        HF_HUB_DOWNLOAD_TIMEOUT=" 10 ",
        HF_HUB_ETAG_TIMEOUT="",
        SSL_CERT_FILE=__file__,
        HTTPS_PROXY="https://a:1",
        NO_PROXY="localhost",
    )
    monkeypatch.setattr(hub, "open_session", lambda: opened.append(1))

    check_variables()

    assert opened == [1]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("HF_HUB_DOWNLOAD_TIMEOUT", "-1"), ("HF_HUB_ETAG_TIMEOUT", "1.5")),
        *(("HF_HUB_ETAG_TIMEOUT", "\u0661"), ("HF_ENDPOINT", "mine"), ("HF_ENDPOINT", "https:///")),
        ("HTTPS_PROXY", "ftp://a:1"),
    ],
)
def test_values_that_cannot_be_right_are_named(variables: Set, name: str, value: str) -> None:
    variables(**{name: value})
    with pytest.raises(UsageError, match=f"^{name}: "):
        check_variables()


def test_an_error_is_told_in_a_few_words() -> None:
    answer = SimpleNamespace(status_code=503, reason_phrase="Too busy")
    error = OSError("a long\nstory")
    assert (status_of(error), reason_of(error)) == (None, "a long")
    error.response = answer  # type: ignore[attr-defined]
    assert (status_of(error), reason_of(error)) == (503, "503 Too busy")
    answer.reason_phrase = ""
    assert reason_of(error) == "503"
    assert reason_of(ValueError()) == "ValueError"
    assert reason_of(OfflineModeIsEnabled("x")) == "not asked, since HF_HUB_OFFLINE is set"
