"""`prime-bench publish --to hf:org/name`, against a server on this machine."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prime_bench.base.errors import DataError, EnvironmentFault
from prime_bench.cli.main import exit_code
from prime_bench.report.bundle import read_bundle
from prime_bench.report.hub import HubRepository
from prime_bench.report.publication import PublicationManifest, parse_manifest
from prime_bench.store.runs import Runs

PutRuns = Callable[..., Runs]
# huggingface_hub hands a file to its HTTP library in a way that this one has given up.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without figures, which take seconds to draw."""
    monkeypatch.setattr("prime_bench.report.figures.gallery.figures_of", lambda *_, **__: [])


@pytest.fixture
def publish(recipe: Path, put_runs: PutRuns, tmp_path: Path) -> Iterator[Callable[..., int]]:
    runs = put_runs(tmp_path / "runs").folder

    def call(*options: object, to: str = "hf:lab/two", runs: Path = runs) -> int:
        arguments = ["publish", recipe, "--runs-dir", runs, "--to", to, *options]
        return exit_code([str(argument) for argument in arguments])

    return call


def manifest_on(hub: Any) -> PublicationManifest:
    return parse_manifest(hub.files()["publication.json"], where="")


def test_all_files_are_one_commit(
    hub: Any, publish: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish("--by", "A", "--message", "First of it", "--private") == 0

    manifest = manifest_on(hub)
    assert sorted(hub.files()) == sorted(
        [".gitattributes", "README.md", "publication.json", manifest.bundle, manifest.page]
    )
    assert len(hub.repositories["lab/two"]["commits"]) == 2  # that of the hub, and ours
    assert hub.repositories["lab/two"]["private"]
    assert hub.repositories["lab/two"]["message"] == "First of it"
    packed = read_bundle(Path(manifest.bundle), hub.files()[manifest.bundle])
    assert packed.digests == manifest.records
    err = capsys.readouterr().err
    assert f"published {hub.url}/datasets/lab/two: 4 records" in err
    assert "commit 000000000000" in err


def test_the_same_again_makes_no_commit(
    hub: Any, publish: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish() == 0
    hub.seen.clear()

    assert publish() == 0

    assert [method for method, _ in hub.seen if method != "GET"] == []
    assert "unchanged " in capsys.readouterr().err


def test_another_is_refused_and_replaces_in_one_commit(
    hub: Any,
    publish: Callable[..., int],
    put_runs: PutRuns,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert publish() == 0
    old = hub.files()
    other = put_runs(tmp_path / "other", auc=0.6).folder

    assert publish(runs=other) == 2
    assert hub.files() == old
    assert "hf:lab/two: has another publication, `Two | seeds`: of its records 4 changed" in (
        capsys.readouterr().err
    )

    assert publish("--replace", runs=other) == 0
    assert len(hub.files()) == 5
    assert manifest_on(hub).bundle not in old
    assert len(hub.repositories["lab/two"]["commits"]) == 3
    assert hub.repositories["lab/two"]["commits"][1] == old


def test_a_file_that_is_gone_comes_back(
    hub: Any, publish: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish() == 0
    whole = hub.files()
    hub.commit("lab/two", {name: whole[name] for name in whole if name != "README.md"})

    capsys.readouterr()

    assert publish() == 0
    assert hub.files() == whole
    assert capsys.readouterr().err.startswith("completed ")


@pytest.mark.parametrize(
    ("part", "is_there"),
    [("create", False), ("preupload", True), ("/lfs/", True), ("/commit/", True)],
)
def test_a_connection_that_breaks_leaves_what_was_there(
    part: str,
    is_there: bool,
    hub: Any,
    publish: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    hub.answers[part] = ["drop"] * 9

    assert publish() == 4

    err = capsys.readouterr().err
    assert f"hf:lab/two: {hub.url} cannot be reached" in err
    assert "Traceback" not in err
    assert ("lab/two" in hub.repositories) == is_there
    assert not is_there or set(hub.files()) == {".gitattributes"}
    hub.answers.clear()
    assert publish() == 0
    assert len(hub.files()) == 5


@pytest.mark.parametrize(
    ("part", "status", "said"),
    [
        ("create", 429, "asks to wait (429"),
        ("/api/datasets/", 503, "has refused the request (503"),
        ("/commit/", 412, "it has changed (412"),
        ("/commit/", 413, "takes no file of this size (413"),
        ("/commit/", 403, "no permission (403"),
    ],
)
def test_refusals_of_the_hub_are_one_message(
    part: str,
    status: int,
    said: str,
    hub: Any,
    publish: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    hub.answers[part] = [status] * 9

    assert publish() == 4

    err = capsys.readouterr().err
    assert err.startswith("error: hf:lab/two: ")
    assert said in err


@pytest.mark.parametrize(
    ("status", "said", "hint"),
    [
        (403, "no permission (403: ", "ask for the right to write there"),
        (404, "there is no such organisation or repository", "make the organisation on the hub"),
        (408, "no answer in time (408: ", "try again later"),
        (409, "it has changed (409: ", "somebody else has written to it"),
        (413, "the hub takes no file of this size", "publish to a folder"),
        (429, "the hub asks to wait (429: ", "try again later"),
        (500, "the hub has refused the request (500: ", "try again later"),
    ],
)
def test_a_refusal_comes_with_what_can_be_done(status: int, said: str, hint: str, hub: Any) -> None:
    hub.create("lab/two")
    hub.answers["/api/datasets/"] = [status] * 9

    with pytest.raises(EnvironmentFault, match=re.escape(said)) as caught:
        HubRepository("lab/two").head()

    assert caught.value.hint.startswith(hint)


def test_a_repository_that_asks_for_leave_is_not_taken_for_none(hub: Any) -> None:
    repository = HubRepository("lab/two")
    assert repository.head() is None
    hub.answers["/api/datasets/"] = ["gated"]

    with pytest.raises(EnvironmentFault, match=r"hf:lab/two: no permission \(403: "):
        repository.head()


@pytest.mark.usefixtures("hub")
def test_no_organisation_of_that_name(
    publish: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(to="hf:nobody/two") == 4
    assert "no permission (403: You don't have the rights to create it there)" in (
        capsys.readouterr().err
    )


@pytest.mark.usefixtures("hub")
def test_a_token_that_the_hub_does_not_know(
    publish: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")

    assert publish() == 4

    err = capsys.readouterr().err
    assert "the hub does not accept the token (401" in err
    assert "hf_wrong" not in err
    assert "hf auth login" in err


def test_without_a_token_nothing_is_asked(
    hub: Any,
    publish: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("HF_TOKEN")

    assert publish() == 4

    assert "asks for a token" in capsys.readouterr().err
    assert hub.seen == []


def test_no_network(
    publish: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_any")

    assert publish() == 4

    err = capsys.readouterr().err
    assert "hf:lab/two: http://127.0.0.1:1 cannot be reached" in err
    assert "HTTPS_PROXY" in err


@pytest.mark.parametrize("name", ["two", "lab/two/three", "lab--x/two", "lab/", "lab/two.git"])
def test_names_that_no_repository_has(
    name: str, publish: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(to=f"hf:{name}") == 2
    assert f"hf:{name}: " in capsys.readouterr().err


def test_a_public_repository_does_not_become_private(
    hub: Any, publish: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    hub.create("lab/two")

    assert publish("--private") == 2
    err = capsys.readouterr().err
    assert "hf:lab/two: is public" in err
    assert f"{hub.url}/datasets/lab/two/settings" in err
    assert publish() == 0


def test_without_private_a_new_repository_is_public(hub: Any, publish: Callable[..., int]) -> None:
    assert publish() == 0

    assert not hub.repositories["lab/two"]["private"]
    # Without a message the commit has the title.
    assert hub.repositories["lab/two"]["message"] == "Two | seeds"


def test_a_repository_with_other_files_is_left_alone(
    hub: Any, publish: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    hub.create("lab/two")
    hub.commit("lab/two", {"train.csv": b"1"})

    assert publish("--replace") == 2

    assert "has other files, such as train.csv" in capsys.readouterr().err
    assert hub.files() == {"train.csv": b"1"}


def test_a_manifest_that_is_none_needs_replace(hub: Any, publish: Callable[..., int]) -> None:
    hub.create("lab/two")
    hub.commit("lab/two", {"publication.json": b'{"schema": 9}'})

    assert publish() == 3
    assert publish("--replace") == 0
    assert len(manifest_on(hub).records) == 4


def test_files_of_somebody_else_stay_beside_a_publication(
    hub: Any, publish: Callable[..., int]
) -> None:
    assert publish() == 0
    hub.commit("lab/two", {**hub.files(), "notes.txt": b"mine"})

    assert publish("--by", "B", "--replace") == 0

    assert hub.files()["notes.txt"] == b"mine"
    assert ".gitattributes" in hub.files()
    assert len(hub.files()) == 6


def test_a_repository_that_somebody_else_has_filled_in_the_meantime(hub: Any) -> None:
    hub.create("lab/two")
    hub.commit("lab/two", {"train.csv": b"1"})
    repository = HubRepository("lab/two")
    made = {"publication.json": b"{}"}

    with pytest.raises(EnvironmentFault, match="hf:lab/two: it has changed"):
        repository.commit(made, delete=(), head=None, private=False, message="m")
    assert hub.files() == {"train.csv": b"1"}


def test_a_commit_of_the_meantime_is_not_written_over(hub: Any) -> None:
    hub.create("lab/two")
    repository = HubRepository("lab/two")
    head = repository.head()
    hub.commit("lab/two", {"train.csv": b"1"})
    made = {"publication.json": b"{}"}

    with pytest.raises(EnvironmentFault, match=r"hf:lab/two: it has changed \(412: "):
        repository.commit(made, delete=(), head=head, private=False, message="m")
    assert hub.files() == {"train.csv": b"1"}


def test_an_empty_repository_of_the_meantime_is_taken(hub: Any) -> None:
    hub.create("lab/two")
    repository = HubRepository("lab/two")
    made = {"publication.json": b"{}"}

    commit = repository.commit(made, delete=(), head=None, private=False, message="m")

    assert commit == hub.sha("lab/two")
    assert hub.files()["publication.json"] == b"{}"


def test_a_file_is_read_at_the_commit_that_was_asked_for(hub: Any) -> None:
    hub.create("lab/two")
    for text in (b"old", b"new"):
        hub.commit("lab/two", {"a.txt": text})
    repository = HubRepository("lab/two")
    head = repository.head()
    assert head is not None
    assert (head.commit, head.files, head.private) == (hub.sha("lab/two"), {"a.txt"}, False)

    for commit, text in ((f"{2:040x}", b"old"), (head.commit, b"new")):
        assert repository.read("a.txt", commit=commit, most_bytes=3) == text


def test_a_file_that_is_too_long_is_not_read_whole(hub: Any) -> None:
    hub.create("lab/two")
    hub.commit("lab/two", {"publication.json": b" " * 100_000})
    repository = HubRepository("lab/two")
    head = repository.head()
    assert head is not None

    with pytest.raises(DataError, match="more than 10 bytes"):
        repository.read("publication.json", commit=head.commit, most_bytes=10)
