"""A data set repository of the Hugging Face hub: read at one commit, written by one commit.

Token, proxy, certificates and offline mode are those of `huggingface_hub`: `hf auth login` or
HF_TOKEN, HTTPS_PROXY, HF_HUB_OFFLINE; HF_ENDPOINT names another hub.
"""

import contextlib
import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prime_bench.base.errors import DataError, EnvironmentFault, UsageError
from prime_bench.base.files import environment_fault
from prime_bench.base.hub import check_variables, http_library, hub_address, reason_of, status_of

SCHEME = "hf:"
"""What begins the name of a repository where a path may stand, too."""
EMPTY = frozenset({".gitattributes"})
"""Files that a hub puts into a new repository."""
_KIND = "dataset"
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN (https://huggingface.co/settings/tokens)"
_MAY_WRITE = (
    "ask for the right to write there, or name a repository of your own; the token has to allow "
    "writing"
)
_NO_NAMESPACE = "make the organisation on the hub, or name one that there is"
_AGAIN = "try again later; what was published before is as it was"
_CHANGED = "somebody else has written to it in the meantime: look at it, and try again"
_ADVICE: dict[int, tuple[str, str]] = {
    401: ("the hub does not accept the token", _LOG_IN),
    403: ("no permission", _MAY_WRITE),
    404: (
        "there is no such organisation or repository, or the token may not see it",
        _NO_NAMESPACE,
    ),
    408: ("no answer in time", _AGAIN),
    409: ("it has changed", _CHANGED),
    412: ("it has changed", _CHANGED),
    413: ("the hub takes no file of this size", "publish to a folder"),
    429: ("the hub asks to wait", _AGAIN),
}


@dataclass(frozen=True, kw_only=True)
class Head:
    """The newest commit of a repository."""

    commit: str | None
    """None where it has none yet."""
    files: frozenset[str]
    private: bool


class HubRepository:
    """A data set repository, which need not exist yet."""

    def __init__(self, name: str) -> None:
        """`name` is `org/name`. Raises UsageError for a name that no repository can have, and for
        a faulty variable of the session.
        """
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HFValidationError

        tools: Any = importlib.import_module("huggingface_hub.utils")
        hint = f"{SCHEME}org/name, such as {SCHEME}my-lab/prime-on-avazu"
        if name.count("/") != 1:
            raise UsageError(f"{SCHEME}{name}: not the name of a repository", hint=hint)
        try:
            tools.validate_repo_id(name)
        except HFValidationError as error:
            raise UsageError(f"{SCHEME}{name}: {error}", hint=hint) from error
        check_variables()
        self.name = name
        self._api = HfApi(endpoint=hub_address(), library_name="prime-bench")

    def __str__(self) -> str:
        return f"{SCHEME}{self.name}"

    @property
    def address(self) -> str:
        """The page of the repository."""
        return f"{hub_address()}/datasets/{self.name}"

    def check_token(self) -> None:
        """Raise EnvironmentFault where there is no token, without which nothing can be written."""
        from huggingface_hub import get_token

        with self._explained():
            token = get_token()
        if not token:
            raise EnvironmentFault(f"{self}: the hub asks for a token to write", hint=_LOG_IN)

    def head(self) -> Head | None:
        """Return the newest commit; None where there is no such repository.

        A private one that the token may not see counts as none. Raises EnvironmentFault where the
        hub cannot be reached or refuses to answer.
        """
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        with self._explained():
            try:
                found = self._api.dataset_info(self.name)
            except GatedRepoError:
                raise
            except RepositoryNotFoundError:
                return None
        files = frozenset(file.rfilename for file in found.siblings or ())
        return Head(commit=found.sha, files=files, private=bool(found.private))

    def read(self, file: str, *, commit: str | None, most_bytes: int) -> bytes:
        """Return the content of a file at a commit.

        Raises DataError where it is longer than `most_bytes`, and EnvironmentFault as `head`.
        """
        from huggingface_hub import constants, get_session, hf_hub_url

        tools: Any = importlib.import_module("huggingface_hub.utils")
        url = hf_hub_url(self.name, file, repo_type=_KIND, revision=commit, endpoint=hub_address())
        content = bytearray()
        with (
            self._explained(),
            get_session().stream(
                "GET",
                url,
                headers=tools.build_hf_headers(library_name="prime-bench"),
                timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            ) as answer,
        ):
            tools.hf_raise_for_status(answer)
            for piece in answer.iter_bytes():
                content += piece
                if len(content) > most_bytes:
                    raise DataError(f"{self}: {file} has more than {most_bytes:,} bytes")
        return bytes(content)

    def commit(
        self,
        files: Mapping[str, bytes],
        *,
        delete: Iterable[str],
        head: Head | None,
        private: bool,
        message: str,
    ) -> str:
        """Write and delete files by one commit on `head`; return the commit.

        Without a head the repository is made before, empty, and `private` or as the hub makes it.
        Raises EnvironmentFault; the repository is then as it was.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        if head is None:
            with self._explained():
                self._api.create_repo(
                    self.name, repo_type=_KIND, private=private or None, exist_ok=True
                )
            head = self.head()
            if head is None or head.files - EMPTY:
                raise EnvironmentFault(f"{self}: it has changed", hint=_CHANGED)
        with self._explained():
            made = self._api.create_commit(
                self.name,
                [
                    *(
                        CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)
                        for name, content in files.items()
                    ),
                    *(CommitOperationDelete(path_in_repo=name) for name in delete),
                ],
                repo_type=_KIND,
                commit_message=message,
                parent_commit=head.commit,
            )
        return str(made.oid)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what the library raises into one message."""
        http: Any = http_library()
        try:
            yield
        except (http.HTTPError, OSError, ValueError, RuntimeError) as error:
            # The library wraps what goes wrong while it sends a large file.
            cause = error.__cause__ if isinstance(error, RuntimeError) else error
            raise self._fault(cause if isinstance(cause, Exception) else error) from error

    def _fault(self, error: Exception) -> EnvironmentFault:
        status = status_of(error)
        if status is None:
            fault = environment_fault(error)
            if fault is not None:
                return fault
            return EnvironmentFault(
                f"{self}: {hub_address()} cannot be reached: {reason_of(error)}",
                hint="look at the network, the proxy (HTTPS_PROXY) and HF_ENDPOINT, and try again",
            )
        what, hint = _ADVICE.get(status, ("the hub has refused the request", _AGAIN))
        said = " ".join(str(getattr(error, "server_message", None) or reason_of(error)).split())
        return EnvironmentFault(f"{self}: {what} ({status}: {said})", hint=hint)
