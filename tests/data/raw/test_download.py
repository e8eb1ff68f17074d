"""Downloads from a server on this machine that stands in for the hub and the mirrors."""

import contextlib
import email.utils
import hashlib
import http.server
import io
import json
import shutil
import threading
import zipfile
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import huggingface_hub
import pytest

from prime_bench.base.errors import DataError, EnvironmentFault, UsageError
from prime_bench.cli.main import exit_code
from prime_bench.data.card import CardArchive, load_card
from prime_bench.data.prepare import prepare
from prime_bench.data.raw.download import address

HUB_PATH = "/datasets/reczoo/Avazu_x1/resolve/main/Avazu_x1.zip"
MIRROR_PATH = "/afn.zip"
AFN = (
    "https://worksheets.codalab.org/rest/bundles/0xf5ab597052744680b1a55986557472c7/contents/blob/"
)


class Server:
    """Files by path; `script` has what happens to the first requests of a method and path."""

    def __init__(self):
        self.files = {}
        self.etags = {}
        self.script = defaultdict(list)
        self.headers = {}
        self.seen = []
        handler = type("Handler", (_Handler,), {"server_of_test": self})
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def requests(self, method, path=HUB_PATH):
        """Range headers of the requests, None where there was none."""
        return [wanted for *what, wanted in self.seen if what == [method, path]]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer("HEAD")

    def do_GET(self):
        self.answer("GET")

    def answer(self, method):
        server = self.server_of_test
        wanted = self.headers.get("Range")
        server.seen.append((method, self.path, wanted))
        script = server.script[method, self.path]
        act = script.pop(0) if script else None
        content = server.files.get(self.path)
        if isinstance(act, int) or content is None:
            self.send_response(act or 404)
            for name, value in server.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = 0
        if wanted and act != "no ranges":
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            part = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.send_header(
                "Content-Range", act if isinstance(act, str) and "bytes" in act else part
            )
        elif act == "unasked":
            self.send_response(206)
            self.send_header("Content-Range", f"bytes 7-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        if self.path in server.etags:
            self.send_header("ETag", f'"{server.etags[self.path]}"')
            self.send_header("X-Repo-Commit", "0" * 40)
        if act == "endless" and method == "GET":
            self.send_header("Connection", "close")
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(content)
                while True:
                    self.wfile.write(bytes(1 << 16))
            self.close_connection = True
            return
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if method == "GET" and act == "a byte":
            self.wfile.write(content[start : start + 1])
            self.close_connection = True
        elif method == "GET":
            end = (start + len(content)) // 2 if act == "cut" else len(content)
            self.wfile.write(content[start:end])
            if act == "cut":
                self.close_connection = True


@pytest.fixture
def server(monkeypatch):
    served = Server()
    thread = threading.Thread(target=served.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", served.url)
    monkeypatch.setattr("prime_bench.data.raw.download.WAITS_S", (0, 0))
    monkeypatch.setattr("time.sleep", lambda _: None)
    yield served
    served.http.shutdown()
    thread.join()
    served.http.server_close()


def packed(folder, *, libsvm=False):
    """A .zip, as bytes, of a folder's csv files, or of the same rows as libsvm."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.glob("*.csv")):
            if not libsvm:
                archive.write(path, path.name)
                continue
            rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
            lines = [" ".join([row[0], *(f"{id_}:1" for id_ in row[1:])]) + "\n" for row in rows]
            archive.writestr(f"{path.stem}.libsvm", "".join(lines))
    return buffer.getvalue()


@pytest.fixture
def spec(server, avazu_folder, published_as):
    """Avazu_x1 as if a small folder were it, on the hub; a mirror that has nothing yet."""
    server.files[HUB_PATH] = packed(avazu_folder)
    server.etags[HUB_PATH] = hashlib.sha256(server.files[HUB_PATH]).hexdigest()
    archives = [
        CardArchive(repository="reczoo/Avazu_x1", file="Avazu_x1.zip", size=10_000),
        CardArchive(url=server.url + MIRROR_PATH, file="afn.zip", size=10_000),
    ]
    return published_as(avazu_folder, wrong={"archives": archives})


@pytest.fixture
def make(tmp_path, spec):
    """Prepare into tmp_path/data; messages are kept in `make.messages`."""

    def run(**keys):
        run.messages = []
        return prepare(spec, data_dir=tmp_path / "data", log=run.messages.append, **keys)

    return run


def test_full_download(tmp_path, server, spec, make, names_in, avazu_folder):
    told = []
    manifest = make(on_progress=told.append)
    assert manifest.verified
    from_files = prepare(spec, data_dir=tmp_path / "b", source=avazu_folder)
    assert manifest.fingerprint == from_files.fingerprint
    assert names_in(tmp_path / "data") == [spec.folder(tmp_path).name]
    assert server.requests("GET") == [None]
    size = len(server.files[HUB_PATH])
    assert [(p.done, p.total) for p in told if p.stage == "downloading"][-1] == (size, size)
    assert any(
        "of disk (download 0.00 GB, table 0.00 GB, working" in line for line in make.messages
    )
    assert any(line.startswith(f"downloading {server.url}{HUB_PATH}") for line in make.messages)
    # With the table there, nobody is asked.
    server.seen.clear()
    assert make() == manifest
    assert server.seen == []


def test_kept_download(tmp_path, server, spec, make):
    make(keep_download=True)
    kept = tmp_path / "data" / ".downloads" / "avazu" / "Avazu_x1.zip"
    assert kept.read_bytes() == server.files[HUB_PATH]
    shutil.rmtree(spec.folder(tmp_path / "data"))
    server.seen.clear()
    assert make().verified
    assert server.seen == []
    assert any("using the earlier download" in line for line in make.messages)
    assert not kept.exists()


def test_broken_off_and_resumed_in_one_run(server, make):
    server.script["GET", HUB_PATH] = ["cut"]
    assert make().verified
    size = len(server.files[HUB_PATH])
    assert server.requests("GET") == [None, f"bytes={size // 2}-"]


def test_broken_off_and_resumed_by_the_next_run(tmp_path, server, make, names_in):
    """The first run ends as one that was killed does: what it has stays."""

    def stop(progress):
        if progress.stage == "downloading":
            raise KeyboardInterrupt

    server.script["GET", HUB_PATH] = ["cut"]
    with pytest.raises(KeyboardInterrupt):
        make(on_progress=stop)
    folder = tmp_path / "data" / ".downloads" / "avazu"
    (part,) = folder.iterdir()
    there = part.stat().st_size
    assert 0 < there <= len(server.files[HUB_PATH]) // 2
    assert part.read_bytes() == server.files[HUB_PATH][:there]
    server.seen.clear()
    assert make().verified
    assert server.requests("GET") == [f"bytes={there}-"]
    assert any("from 0.00 GB on" in line for line in make.messages)
    assert ".downloads" not in names_in(tmp_path / "data")


def test_a_part_of_another_version_is_not_gone_on_with(server, make):
    def stop(progress):
        if progress.stage == "downloading":
            raise KeyboardInterrupt

    old = server.files[HUB_PATH]
    server.files[HUB_PATH] = old[::-1]
    server.etags[HUB_PATH] = "old"
    server.script["GET", HUB_PATH] = ["cut"]
    with pytest.raises(KeyboardInterrupt):
        make(on_progress=stop)
    server.files[HUB_PATH], server.etags[HUB_PATH] = old, "new"
    server.seen.clear()
    assert make().verified
    assert server.requests("GET") == [None]


def test_a_try_with_progress_is_not_counted(server, make):
    """More breaks than tries, each with some bytes more."""
    server.script["GET", HUB_PATH] = ["cut"] * 5
    assert make().verified
    assert len(server.requests("GET")) == 6


def test_a_server_that_sends_a_byte_a_try_is_left(server, make):
    server.script["GET", HUB_PATH] = ["a byte"] * 1000
    with pytest.raises(EnvironmentFault, match="could not be downloaded"):
        make()
    # Of a file of 10,000 bytes by its card; 3 attempts without a gain end it.
    assert len(server.requests("GET")) < 20


def test_a_body_longer_than_announced_is_not_read(server, make):
    server.script["GET", HUB_PATH] = ["endless"]
    size, told = len(server.files[HUB_PATH]), []
    assert make(on_progress=told.append).verified
    assert max(p.done for p in told if p.stage == "downloading") == size
    assert any(f"more than the {size:,} bytes that it announced" in m for m in make.messages)
    assert len(server.requests("GET")) == 1


@pytest.mark.parametrize(
    "part", ["bytes 0-99/{n}", "bytes {half}-{last}/{more}", "bytes */{n}", "bytes {last}-0/*"]
)
def test_another_part_than_asked_for_is_not_appended(server, make, part):
    size = len(server.files[HUB_PATH])
    wrong = part.format(n=size, half=size // 2, last=size - 1, more=size + 1)
    server.script["GET", HUB_PATH] = ["cut", wrong]
    assert make().verified, "the digests hold"
    assert server.requests("GET") == [None, f"bytes={size // 2}-", None]
    assert any(f"from {size // 2:,} on, got {wrong}" in message for message in make.messages)


def test_a_part_that_nobody_asked_for_is_not_taken(server, make):
    server.script["GET", HUB_PATH] = ["unasked"]
    assert make().verified
    assert len(server.requests("GET")) == 2


def test_starting_over_does_not_begin_waiting_anew(server, make):
    """Half of the file, then another part: as often as one likes."""
    server.script["GET", HUB_PATH] = ["cut", "bytes 0-1/2"] * 50
    with pytest.raises(EnvironmentFault, match="could not be downloaded"):
        make()
    assert len(server.requests("GET")) < 10


def test_a_trickle_is_a_broken_connection(server, make, monkeypatch):
    """The parts of a second that each piece takes are longer than the time that it may take."""
    monkeypatch.setattr("prime_bench.data.raw.download._SLOW_S", 0)
    server.script["GET", HUB_PATH] = ["cut"]
    assert make().verified
    assert any(" bytes in 0 s; next attempt" in message for message in make.messages)


@pytest.mark.parametrize(("status", "method"), [(429, "HEAD"), (503, "HEAD"), (429, "GET")])
@pytest.mark.parametrize("form", ["seconds", "date", "date in the past", "nonsense"])
def test_retry_after_is_obeyed(server, make, monkeypatch, status, method, form):
    slept = []
    monkeypatch.setattr("time.sleep", slept.append)
    date = datetime.now(UTC) + timedelta(seconds=90 if form == "date" else -90)
    header = {"seconds": "70", "nonsense": "soon"}.get(form, email.utils.format_datetime(date))
    server.headers["Retry-After"] = header
    server.script[method, HUB_PATH] = [status]
    assert make().verified
    (wait_s,) = slept
    if form == "seconds":
        assert wait_s == 70
    else:
        assert (80 < wait_s <= 90) if form == "date" else wait_s == 0
    asked = [m for m in make.messages if "next attempt in" in m and ", as it asks for" in m]
    assert len(asked) == (form in ("seconds", "date"))


def test_a_server_that_asks_for_too_long_a_wait_is_left(server, make, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("waited"))
    server.headers["Retry-After"] = "86400"
    server.script["HEAD", HUB_PATH] = [429]
    with pytest.raises(EnvironmentFault, match=r"429 .*, and it asks for 86,400 s until"):
        make()


@pytest.mark.parametrize(
    ("name", "value", "code", "said"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:9", 4, "needs the package socksio"),
        ("https_proxy", "socks5h://127.0.0.1:9", 4, "needs the package socksio"),
        ("HTTPS_PROXY", "socks4://127.0.0.1:9", 2, "`socks4` is not a kind of proxy"),
        ("HTTP_PROXY", "ftp://127.0.0.1:9", 2, "`ftp` is not a kind of proxy"),
        ("HTTP_PROXY", "http://[::1", 4, "no HTTP session can be opened"),
        ("HF_ENDPOINT", "hf-mirror.com", 2, "`hf-mirror.com` is not the address of a host"),
        ("HF_ENDPOINT", "http://", 2, "is not the address of a host"),
        ("SSL_CERT_FILE", "/nowhere/ca.pem", 4, "/nowhere/ca.pem is not there"),
        ("SSL_CERT_FILE", __file__, 4, "no HTTP session can be opened"),
        ("SSL_CERT_DIR", "/nowhere", 4, "/nowhere is not there"),
        ("HF_HUB_DOWNLOAD_TIMEOUT", "10s", 2, "a whole number of seconds is wanted, got `10s`"),
        ("HF_HUB_ETAG_TIMEOUT", "-1", 2, "a whole number of seconds is wanted, got `-1`"),
    ],
)
def test_a_wrong_variable_is_named_before_anything_is_asked(
    server, make, monkeypatch, name, value, code, said
):
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("tried again"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv(name, value)
    huggingface_hub.close_session()
    try:
        with pytest.raises((UsageError, EnvironmentFault)) as error:
            make()
    finally:
        huggingface_hub.close_session()
    assert error.value.exit_code == code
    assert said in error.value.message
    assert name in str(error.value)
    assert server.seen == []


def test_a_failure_names_the_variable_of_the_proxy_and_no_password(server, make, monkeypatch):
    server.files.clear()
    monkeypatch.setenv("https_proxy", "http://me:secret@127.0.0.1:9")
    huggingface_hub.close_session()
    try:
        with pytest.raises(EnvironmentFault, match="through the proxy of https_proxy") as error:
            make()
    finally:
        huggingface_hub.close_session()
    assert "secret" not in str(error.value)


def test_a_loop_of_redirects_is_not_tried_again(server, make, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("tried again"))
    server.headers["Location"] = HUB_PATH
    server.script["HEAD", HUB_PATH] = [302] * 100
    with pytest.raises(EnvironmentFault, match="redirect"):
        make()


def test_a_server_that_resumes_nothing(server, make):
    server.script["GET", HUB_PATH] = ["cut", "no ranges"]
    assert make().verified
    assert len(server.requests("GET")) == 2


def test_500_then_retry(server, make):
    server.script["HEAD", HUB_PATH] = [500, 503]
    assert make().verified
    assert sum("500 Internal Server Error; next attempt in" in line for line in make.messages) == 1
    server.files.clear()


def test_500_on_get_then_retry(server, make):
    server.script["GET", HUB_PATH] = [500, 502]
    assert make().verified
    assert len(server.requests("GET")) == 3


def test_no_head(server, make):
    server.script["HEAD", HUB_PATH] = [405]
    assert make().verified


@pytest.mark.parametrize("status", [403, 404, 410])
def test_missing_then_mirror(tmp_path, server, make, spec, avazu_folder, status):
    server.script["HEAD", HUB_PATH] = [status]
    server.files[MIRROR_PATH] = packed(avazu_folder, libsvm=True)
    manifest = make()
    assert manifest.verified
    assert manifest.inputs[0].path.endswith("avazu/afn.zip/train.libsvm")
    assert any(f"; trying {server.url}{MIRROR_PATH}" in line for line in make.messages)
    from_files = prepare(spec, data_dir=tmp_path / "b", source=avazu_folder)
    assert manifest.fingerprint == from_files.fingerprint
    assert server.requests("GET") == []


def test_addresses_of_the_cards(server, monkeypatch):
    hub = "datasets/reczoo/{0}/resolve/main/{0}.zip"
    archives = [*load_card("avazu").archives, *load_card("criteo").archives]
    places = [hub.format("Avazu_x1"), AFN, hub.format("Criteo_x4")]
    for endpoint, where in ((server.url, server.url), (None, "https://huggingface.co")):
        if endpoint is None:
            monkeypatch.delenv("HF_ENDPOINT")
        found = [address(archive) for archive in archives]
        assert found == [p if p == AFN else f"{where}/{p}" for p in places]


@pytest.mark.parametrize("where", [{}, {"repository": "a/b", "url": "http://c"}])
def test_an_archive_has_one_address(where):
    with pytest.raises(UsageError, match="either a repository or a url"):
        CardArchive.parse({"file": "a.zip", "size": 1, **where}, where="card")


def test_500_for_good_then_mirror(server, make, avazu_folder):
    server.script["HEAD", HUB_PATH] = [500] * 9
    server.files[MIRROR_PATH] = packed(avazu_folder, libsvm=True)
    assert make().verified
    assert len(server.requests("HEAD")) == 3


def test_wrong_content_is_not_taken(tmp_path, server, make, avazu_folder):
    """A file that is not what the card says: refused with digests, and not kept for next time."""
    good = server.files[HUB_PATH]
    path = avazu_folder / "train.csv"
    path.write_text(path.read_text().replace("\n0,", "\n1,", 1))
    server.files[HUB_PATH] = packed(avazu_folder)
    server.etags[HUB_PATH] = "x"
    with pytest.raises(DataError, match=r"train\.csv: expected md5 \w{32}, found \w{32}") as error:
        make()
    assert "likely cause" in error.value.hint
    assert "the download was deleted" in error.value.hint
    assert not (tmp_path / "data").exists()
    assert not make(allow_unverified=True).verified
    assert any("kept the download" in line for line in make.messages)
    shutil.rmtree(tmp_path / "data")
    server.files[HUB_PATH] = good
    assert make().verified


def test_content_that_the_hub_itself_calls_wrong(tmp_path, server, make, avazu_folder):
    server.etags[HUB_PATH] = "0" * 64
    with pytest.raises(DataError, match=r"expected sha256 0{64}, got ") as error:
        make()
    assert "could not be downloaded" in error.value.message
    assert not (tmp_path / "data").exists()
    server.files[MIRROR_PATH] = packed(avazu_folder, libsvm=True)
    assert make().verified


def test_damaged_archive(tmp_path, server, make):
    server.files[HUB_PATH] = server.files[HUB_PATH][:-40]
    server.etags[HUB_PATH] = "x"
    with pytest.raises(DataError, match="is damaged or not what its name says") as error:
        make()
    assert "the download was deleted" in error.value.hint
    assert not (tmp_path / "data").exists()


def test_nothing_to_be_had(tmp_path, server, make, spec):
    server.files.clear()
    with pytest.raises(EnvironmentFault) as error:
        make()
    message = error.value.message
    assert f"{server.url}{HUB_PATH}: 404 Not Found" in message
    assert f"{server.url}{MIRROR_PATH}: 404 Not Found" in message
    for split, file in spec.card.files.items():
        assert f"{split}.csv  md5 {file.md5}  {file.rows:,} rows" in message
    assert "prime-bench prepare avazu --from PATH" in error.value.hint
    assert not (tmp_path / "data").exists()


def test_no_network(tmp_path, server, make, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    server.files.clear()
    with pytest.raises(EnvironmentFault, match=r"http://127\.0\.0\.1:9/datasets/.*: .*refused"):
        make()
    assert not (tmp_path / "data").exists()


def test_offline(server, make, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EnvironmentFault, match="HF_HUB_OFFLINE"):
        make()
    assert server.seen == []


def test_too_little_disk(tmp_path, server, make, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(9e9, 9e9, 1000))
    with pytest.raises(EnvironmentFault, match=r"needs about 0.00 GB of disk \(download"):
        make()
    assert server.requests("GET") == []
    assert not (tmp_path / "data").exists()


def test_disk_that_fills_up(server, make, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("prime_bench.data.raw.download.StageProgress", full)
    with pytest.raises(EnvironmentFault, match="the disk is full"):
        make()
    assert len(server.requests("GET")) == 1


COMMANDS = {
    "json": (["avazu", "--allow-unverified", "--json"], 0, ""),
    "not the published": (["avazu"], 3, "these are not the published files of Avazu_x1"),
    "keep with from": (["avazu", "--from", "x", "--keep-download"], 2, "nothing is downloaded"),
    "keep synthetic": (["synthetic", "--keep-download"], 2, "nothing is downloaded"),
    "no archive": (["avazu-raw", "--keep-download"], 2, "nothing is downloaded"),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("spec")
def test_command(tmp_path, capsys, name):
    """The real card, by the endpoint variable."""
    arguments, code, expected = COMMANDS[name]
    assert exit_code(["prepare", *arguments, "--data-dir", str(tmp_path / "data")]) == code
    out, err = capsys.readouterr()
    assert expected in err
    if code == 0:
        assert json.loads(out)["rows"] == {"train": 300, "valid": 40, "test": 60}
    else:
        assert out == ""
        assert not (tmp_path / "data").exists()
