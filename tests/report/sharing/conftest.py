"""Records of a recipe to share, and a server on this machine that stands in for the hub."""

import base64
import hashlib
import http.server
import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from prime_bench.data.manifest import resolve
from prime_bench.recipe.file import load_recipe
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import Runs

MakeRecord = Callable[..., RunRecord]
TOKEN = "hf_of_the_test"
RECIPE = """
schema = 1
title = "Two | seeds"
seeds = [1, 2]
arms = ["dense", "prime"]
[dataset.synthetic]
[backbone.DNN]
hidden_units = [8]
"""


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the fixture `hub` no request leaves, and there is no token."""
    from huggingface_hub import constants

    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
    # Its transfers of large files would need a server of their own; the other way is HTTP.
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    # Its handler keeps the stderr of the test that imported it.
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "handlers", [])


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


@pytest.fixture
def put_runs(recipe: Path, make_record: MakeRecord) -> Callable[..., Runs]:
    """Write records of the recipe's jobs, with the files that a run leaves beside them."""

    def put(folder: Path, *, only: tuple[str, ...] = (), home: str = "", **given: Any) -> Runs:
        runs = Runs(folder)
        for job_spec in load_recipe(recipe).job_specs(only=only):
            record = make_record(
                dataset="synthetic",
                backbone=job_spec.backbone,
                variant=resolve("synthetic", {}).digest,
                arm=job_spec.arm.name,
                seed=job_spec.seed,
                backbone_settings=job_spec.backbone_settings.plain(),
                plugin_settings=job_spec.arm.settings.plain(),
                training=job_spec.training,
                numerics=2,
                **given,
            )
            beside = runs.path(record.job_id)
            beside.mkdir(parents=True)
            config = {
                "job_id": record.job_id,
                "job": record.job.plain(),
                "dataset": record.dataset,
                "arm": record.arm,
                "table": f"{home}data/synthetic-12345678",
                "runs": f"{home}runs",
            }
            (beside / "config.json").write_text(json.dumps(config))
            environment = record.environment.plain()
            (beside / "environment.json").write_text(json.dumps(environment))
            runs.put(runs.sealed(record))
        return runs

    return put


class Hub:
    """Repositories by name: whether they are private, and the files of each commit."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, Any]] = {}
        self.blobs: dict[str, bytes] = {}
        self.answers: dict[str, list[int | str]] = {}
        """Part of a path -> what comes of the next requests of it: a status, `drop` or `gated`."""
        self.seen: list[tuple[str, str]] = []
        self.organisations = {"lab"}
        handler = type("Handler", (_Handler,), {"hub": self})
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def create(self, name: str, *, private: bool = False) -> None:
        self.repositories[name] = {"private": private, "commits": []}
        self.commit(name, {".gitattributes": b"*.zip filter=lfs\n"})

    def commit(self, name: str, files: dict[str, bytes]) -> str:
        commits = self.repositories[name]["commits"]
        commits.append(files)
        return self.sha(name)

    def sha(self, name: str) -> str:
        return f"{len(self.repositories[name]['commits']):040x}"

    def files(self, name: str = "lab/two") -> dict[str, bytes]:
        """The files of the newest commit."""
        found: dict[str, bytes] = self.repositories[name]["commits"][-1]
        return found

    def requests(self, part: str) -> int:
        return sum(part in path for _, path in self.seen)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.serve("GET")

    def do_POST(self) -> None:
        self.serve("POST")

    def do_PUT(self) -> None:
        self.serve("PUT")

    def serve(self, method: str) -> None:
        path = unquote(self.path.partition("?")[0])
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.seen.append((method, path))
        for part, answers in self.hub.answers.items():
            if part in path and answers:
                answer = answers.pop(0)
                if answer == "drop":
                    self.close_connection = True
                    return
                gated = answer == "gated"
                code = "GatedRepo" if gated else ""
                self.reply({}, status=403 if gated else int(answer), code=code)
                return
        known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if self.headers.get("Authorization") and not known:
            self.reply({}, status=401, said="Invalid credentials in Authorization header")
        elif method == "GET" and path.startswith("/api/datasets/"):
            self.tell("/".join(path.split("/")[3:5]), known=known)
        elif method == "GET" and "/resolve/" in path:
            self.resolve(path, known=known)
        elif method == "GET" and path.startswith("/blob/"):
            self.reply(self.hub.blobs[path.removeprefix("/blob/")])
        elif method == "PUT":
            content = body
            assert hashlib.sha256(content).hexdigest() == path.removeprefix("/lfs/")
            self.hub.blobs[path.removeprefix("/lfs/")] = content
            self.reply({})
        elif not known:
            self.reply({}, status=401)
        else:
            self.write(path, body)

    def tell(self, name: str, *, known: bool) -> None:
        found = self.hub.repositories.get(name)
        if found is None or (found["private"] and not known):
            self.reply({}, status=404, code="RepoNotFound")
            return
        files = [{"rfilename": file} for file in self.hub.files(name)]
        told = {"id": name, "sha": self.hub.sha(name), "private": found["private"]}
        self.reply({**told, "siblings": files})

    def resolve(self, path: str, *, known: bool) -> None:
        _, _, org, name, _, sha, file = path.split("/", 6)
        found = self.hub.repositories.get(f"{org}/{name}")
        if found is None or (found["private"] and not known):
            self.reply({}, status=404, code="RepoNotFound")
            return
        files = found["commits"][int(sha, 16) - 1]
        if file not in files:
            self.reply({}, status=404, code="EntryNotFound")
        elif file.endswith(".zip"):
            # As the hub answers for large files: another address.
            digest = hashlib.sha256(files[file]).hexdigest()
            self.hub.blobs.setdefault(digest, files[file])
            self.send_response(302)
            self.send_header("Location", f"/blob/{digest}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.reply(files[file])

    def write(self, path: str, body: bytes) -> None:
        hub, parts = self.hub, path.split("/")
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            assert asked["type"] == "dataset"
            if asked["organization"] not in hub.organisations:
                self.reply({}, status=403, said="You don't have the rights to create it there")
            elif name in hub.repositories:
                self.reply({"url": f"{hub.url}/datasets/{name}"}, status=409)
            else:
                private = asked.get("visibility") == "private" or asked.get("private") is True
                hub.create(name, private=private)
                self.reply({"url": f"{hub.url}/datasets/{name}", "id": name, "name": name})
        elif path == "/api/validate-yaml":
            assert json.loads(body)["content"].startswith("---\n")
            self.reply({})
        elif "/preupload/" in path:
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".zip") else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            self.reply({"files": files})
        elif path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                {**wanted, "actions": {"upload": {"href": f"{hub.url}/lfs/{wanted['oid']}"}}}
                for wanted in json.loads(body)["objects"]
            ]
            self.reply({"transfer": "basic", "objects": objects})
        else:
            assert parts[5] == "commit"
            self.commit("/".join(parts[3:5]), body)

    def commit(self, name: str, body: bytes) -> None:
        lines = [json.loads(line) for line in body.splitlines()]
        (header,) = [line["value"] for line in lines if line["key"] == "header"]
        if header.get("parentCommit") not in (None, self.hub.sha(name)):
            self.reply({}, status=412)
            return
        files = dict(self.hub.files(name))
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        sha = self.hub.commit(name, files)
        self.hub.repositories[name]["message"] = header["summary"]
        url = f"{self.hub.url}/datasets/{name}/commit/{sha}"
        self.reply({"commitUrl": url, "commitOid": sha})

    def reply(
        self, content: dict[str, Any] | bytes, *, status: int = 200, code: str = "", said: str = ""
    ) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for header, value in (("X-Error-Code", code), ("X-Error-Message", said)):
            if value:
                self.send_header(header, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def hub(_no_hub: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    served = Hub()
    thread = threading.Thread(target=served.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", served.url)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("time.sleep", lambda _: None)
    yield served
    served.http.shutdown()
    thread.join()
    served.http.server_close()
