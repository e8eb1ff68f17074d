"""The Hugging Face hub: its address, the variables and the HTTP library of its session, its errors.

`huggingface_hub` provides the HTTP session, which honours the user's proxy and the variables of the
hub (HF_ENDPOINT names another hub, HF_HUB_OFFLINE=1 forbids requests). It is imported when it is
needed.
"""

import importlib
import importlib.util
import os
import re
import urllib.request
from pathlib import Path
from typing import Any

from prime_bench.base.errors import EnvironmentFault, UsageError

_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
_TIMEOUTS = ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def hub_address() -> str:
    """Return the URL of the hub, without a slash at its end."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def check_variables() -> None:
    """Check the environment variables that the HTTP session reads. The session itself would report
    a mistake without the name of the variable, and some mistakes only after all its attempts.

    Raises UsageError for a value that cannot be right, EnvironmentFault for something missing.
    """
    for name in _TIMEOUTS:
        value = os.environ.get(name, "").strip()
        if value and not (value.isascii() and value.isdigit()):
            raise UsageError(f"{name}: a whole number of seconds is wanted, got `{value}`")
    endpoint = os.environ.get("HF_ENDPOINT")
    if endpoint and not re.match("https?://[^/]", endpoint):
        raise UsageError(
            f"HF_ENDPOINT: `{endpoint}` is not the address of a host",
            hint="write it with its scheme: https://huggingface.co",
        )
    for name in _CERTIFICATES:
        if (path := os.environ.get(name)) and not Path(path).exists():
            raise EnvironmentFault(f"{name}: {path} is not there", hint=f"correct or unset {name}")
    for kind, proxy in urllib.request.getproxies().items():
        scheme, colon, _ = proxy.partition("://")
        name = next((n for n in os.environ if n.lower() == f"{kind}_proxy"), f"proxy for {kind}")
        if kind not in ("http", "https", "all") or not colon:
            continue
        if scheme not in _PROXY_SCHEMES:
            raise UsageError(
                f"{name}: `{scheme}` is not a kind of proxy",
                hint=f"known: {', '.join(_PROXY_SCHEMES)}",
            )
        if scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
            raise EnvironmentFault(
                f"{name}: a SOCKS proxy needs the package socksio, which is not installed",
                hint="run `pip install socksio`, or name an http:// proxy",
            )
    open_session()


def proxy_variable() -> str | None:
    """The variable that names the proxy for https, or for everything; None without one. Its value
    may have a password, and is not shown.
    """
    for kind in ("https", "all"):
        if kind in urllib.request.getproxies():
            return next((name for name in os.environ if name.lower() == f"{kind}_proxy"), None)
    return None


def open_session() -> None:
    """Open the session, which is kept. Raises EnvironmentFault."""
    from huggingface_hub import get_session

    try:
        get_session()
    except (ImportError, http_library().InvalidURL, OSError, ValueError) as error:
        proxies = [name for name in os.environ if name.lower().endswith("_proxy")]
        read = [*proxies, *(name for name in _CERTIFICATES if name in os.environ)]
        raise EnvironmentFault(
            f"no HTTP session can be opened: {error}",
            hint=f"correct or unset what it reads: {', '.join(read)}" if read else "",
        ) from error


def http_library() -> Any:
    """The HTTP library of the hub's session: httpx before huggingface_hub 2, then httpx2."""
    from huggingface_hub.errors import HfHubHTTPError

    return importlib.import_module(HfHubHTTPError.__bases__[0].__module__.partition(".")[0])


def status_of(error: BaseException) -> int | None:
    """The HTTP status of an error; None if there was no response."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def reason_of(error: Exception) -> str:
    """What an error of a request says, in a few words."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    if isinstance(error, OfflineModeIsEnabled):
        return "not asked, since HF_HUB_OFFLINE is set"
    response = getattr(error, "response", None)
    status = status_of(error)
    if response is not None and status is not None:
        return f"{status} {response.reason_phrase}".strip()
    text = str(error).splitlines()[0] if str(error) else ""
    return text or type(error).__name__
