"""Fetching a shard from a source that means no good, or that somebody stands before."""

from __future__ import annotations

import base64
import contextlib
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run

import hushtable
from hushtable import Model, _native
from hushtable._fetch import source as fetch_source
from hushtable._fetch import web as fetch_web
from hushtable._fetch.source import open_source, without_secrets
from hushtable.shards import fetch_shard, plan_shards, read_shards

SPEC = """
[tables.items]
key = "items.embedding.weight"

[[feature]]
name = "items"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one table, with a dense file and a map of two shards."""
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(5)
    weights = {
        "items.embedding.weight": rng.normal(size=(20_000, 4)).astype(np.float32),
        "top.weight": rng.normal(size=(4, 4)).astype(np.float32),
    }
    np.savez(folder / "weights.npz", **weights)
    (folder / "spec.toml").write_text(SPEC)
    Model.build(folder / "weights.npz", folder / "clicks", spec=folder / "spec.toml")
    plan_shards(folder / "clicks", shards=2)
    return folder / "clicks"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_source, "WAITS_S", (0.01, 0.01))


class Handler(BaseHTTPRequestHandler):
    """Answers by a function; notes what was asked, and how many bytes went out."""

    seen: list[tuple[str, str, str | None]]
    sent: list[int]
    answer: Any

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._handle()

    def do_GET(self) -> None:
        self._handle()

    def _handle(self) -> None:
        self.seen.append((self.command, self.path, self.headers.get("Authorization")))
        type(self).answer(self)

    def file(self, path: Path) -> None:
        """A file, or a range of it."""
        path = Path(str(path).partition("?")[0])
        content = path.read_bytes() if path.is_file() else None
        if content is None:
            self.send_error(404)
            return
        if wanted := self.headers.get("Range"):
            first, last = (int(one) for one in wanted.removeprefix("bytes=").split("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
            content = content[first : last + 1]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


@contextlib.contextmanager
def server(answer: Any, host: str = "127.0.0.1") -> Iterator[tuple[str, type[Handler]]]:
    """A server that answers by ``answer``."""
    members = {"seen": [], "sent": [], "answer": staticmethod(answer)}
    handler: type[Handler] = type("Answering", (Handler,), members)
    running = ThreadingHTTPServer((host, 0), handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{running.server_address[1]}", handler
    finally:
        running.shutdown()
        running.server_close()
        thread.join()


def test_no_more_is_read_than_was_asked_for(tmp_path: Path) -> None:
    def flood(handler: Handler) -> None:
        handler.send_response(206 if handler.headers.get("Range") else 200)
        if handler.command == "HEAD":
            handler.send_header("Content-Length", "500")
        else:
            handler.send_header("Content-Range", "bytes 0-499/500")
        handler.end_headers()
        with contextlib.suppress(ConnectionError):
            while handler.command == "GET" and sum(handler.sent) < 600 << 20:
                handler.sent.append(handler.wfile.write(bytes(1 << 20)))

    with server(flood) as (url, handler):
        with pytest.raises(hushtable.FetchError, match="in one piece alone"):
            fetch_shard(f"{url}/clicks", tmp_path, shard=0)
        assert [method for method, *_ in handler.seen] == ["HEAD", "GET"], "it is not asked again"
    # What the system holds on the way, at both ends.
    assert sum(handler.sent) < 64 << 20


@pytest.mark.parametrize("status", [401, 403, 418])
def test_a_refusal_is_not_asked_again(tmp_path: Path, status: int) -> None:
    with server(lambda handler: handler.send_error(status)) as (url, handler):
        with pytest.raises(hushtable.FetchError, match=str(status)):
            fetch_shard(f"{url}/clicks", tmp_path, shard=0)
        # To a server that answers no HEAD, 403 among others, the question is put otherwise, once.
        assert len(handler.seen) == (2 if status == 403 else 1)


def test_a_failure_is_asked_again(tmp_path: Path) -> None:
    with server(lambda handler: handler.send_error(503)) as (url, handler):
        with pytest.raises(hushtable.FetchError, match="503"):
            fetch_shard(f"{url}/clicks", tmp_path, shard=0)
        assert len(handler.seen) == 3


def test_nobody_is_sent_to_another_host_unasked(made: Path, tmp_path: Path) -> None:
    def serve(handler: Handler) -> None:
        handler.file(made.parent / handler.path.lstrip("/"))

    with server(serve, "127.0.0.2") as (elsewhere, other):

        def send_on(handler: Handler) -> None:
            handler.send_response(302)
            handler.send_header("Location", elsewhere + handler.path)
            handler.end_headers()

        with server(send_on) as (url, _):
            secret = url.replace("//", "//me:P@SS@")
            with pytest.raises(hushtable.FetchError, match="sends elsewhere") as error:
                fetch_shard(f"{secret}/clicks", tmp_path, shard=0)
            assert elsewhere in str(error.value)
            assert "--follow-redirects" in str(error.value)
            assert other.seen == []
            said = run("shard", "fetch", f"{url}/clicks", "-o", str(tmp_path), "--shard", "0")
            assert said.returncode == 2
            assert "sends elsewhere" in said.stderr
            fetched = fetch_shard(f"{secret}/clicks", tmp_path, shard=0, follow_redirects=True)
            assert fetched.name == "clicks"
            assert {who for *_, who in other.seen} == {None}, "it was told the password"
    moved = [f"{scheme}://127.0.0.1/x" for scheme in ("file", "ftp", "https")]
    for place in moved:

        def send_there(handler: Handler, place: str = place) -> None:
            handler.send_response(301)
            handler.send_header("Location", place)
            handler.end_headers()

        with server(send_there) as (url, _), pytest.raises(hushtable.FetchError):
            fetch_shard(f"{url}/clicks", tmp_path / "f", shard=0)


def test_within_a_server_files_may_have_moved(made: Path, tmp_path: Path) -> None:
    def serve(handler: Handler) -> None:
        if handler.path.startswith("/moved/"):
            handler.file(made.parent / handler.path.removeprefix("/moved/"))
            return
        handler.send_response(307)
        handler.send_header("Location", f"/moved{handler.path}")
        handler.end_headers()

    with server(serve) as (url, handler):
        fetched = fetch_shard(url.replace("//", "//me:pass@") + "/clicks", tmp_path, shard=1)
    assert read_shards(fetched.path) == read_shards(made)
    assert None not in {who for *_, who in handler.seen}, "a file was asked for without a password"


def test_a_user_and_password_go_where_they_belong(made: Path, tmp_path: Path) -> None:
    def serve(handler: Handler) -> None:
        handler.file(made.parent / handler.path.lstrip("/"))

    with server(serve) as (url, handler):
        fetch_shard(url.replace("//", "//me:P@S%2FS@") + "/clicks", tmp_path, shard=0)
    expected = "Basic " + base64.b64encode(b"me:P@S/S").decode()
    assert {who for *_, who in handler.seen} == {expected}


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("http://myself:P@SS@127.0.0.1:9/m", "http://127.0.0.1:9/m"),
        ("http://myself:P/SS@127.0.0.1:9/m", "http://127.0.0.1:9/m"),
        ("http://myself:P?S#S@127.0.0.1:9/m", "http://127.0.0.1:9/m"),
        ("s3://KEY:SEC/RET@bucket/m", "s3://bucket/m"),
        ("https://127.0.0.1:9/m?X-Amz-Signature=SECRET", "https://127.0.0.1:9/m"),
        ("s3://bucket/m", "s3://bucket/m"),
    ],
)
def test_no_error_shows_a_secret(place: str, shown: str) -> None:
    assert without_secrets(place) == shown
    said = without_secrets(f"cannot open {place}: gone")
    assert said.startswith(f"cannot open {shown}")
    with pytest.raises(hushtable.Error) as error:
        source = open_source(place.replace("s3://", "nonsense://"))
        source.read("model.json", 0, 1)
    for secret in ("myself", "P@SS", "SS@", "SEC", "RET", "KEY", "SECRET"):
        assert secret not in str(error.value)


@pytest.mark.parametrize(
    "place",
    [
        "http://user:SECRET/x@127.0.0.1:9/m",
        "http://user:SECRET?x@127.0.0.1:9/m",
        "http://user:SEC[RET@127.0.0.1:9/m",
        "http://user:SECRET@a..b/m",
        "http://user:SECRET@/m",
        "http://user:SECRET@127.0.0.1:port/m",
        "http://127.0.0.1:9/my model?sig=SECRET",
        "https://127.0.0.1:9/modèle?sig=SECRET",
    ],
)
def test_a_url_that_is_none_is_one_line_without_secrets(tmp_path: Path, place: str) -> None:
    with pytest.raises((hushtable.ConfigError, hushtable.FetchError)) as error:
        fetch_shard(place, tmp_path, shard=0)
    assert "SEC" not in str(error.value)
    assert error.value.__cause__ is None
    if not isinstance(error.value, hushtable.ConfigError):
        return
    said = run("shard", "fetch", place, "-o", str(tmp_path), "--shard", "0")
    assert said.returncode == 2
    assert "SEC" not in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    "headers",
    [
        {"Location": "http://[evil/"},
        {"Location": "http://a..b/"},
        {"Location": ""},
        {"Location": "//user:pass@127.0.0.1:9/x@y"},
    ],
)
def test_a_redirect_to_nowhere_is_one_line(tmp_path: Path, headers: dict[str, str]) -> None:
    def answer(handler: Handler) -> None:
        handler.send_response(302)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()

    with server(answer) as (url, _), pytest.raises(hushtable.FetchError, match="sends"):
        fetch_shard(f"{url}/clicks", tmp_path, shard=0, follow_redirects=True)


@pytest.mark.parametrize("length", ["9" * 5000, "9" * 19, "-5", "x", "4 4"])
def test_a_length_that_is_none(tmp_path: Path, length: str) -> None:
    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", length)
        handler.end_headers()

    with server(answer) as (url, _), pytest.raises(hushtable.FetchError):
        fetch_shard(f"{url}/clicks", tmp_path, shard=0)


def test_what_comes_with_a_redirect_is_not_read(made: Path, tmp_path: Path) -> None:
    def serve(handler: Handler) -> None:
        if handler.path.startswith("/moved/"):
            handler.file(made.parent / handler.path.removeprefix("/moved/"))
            return
        handler.send_response(302)
        handler.send_header("Location", f"/moved{handler.path}")
        handler.end_headers()
        with contextlib.suppress(ConnectionError):
            while handler.command == "GET" and sum(handler.sent) < 600 << 20:
                handler.sent.append(handler.wfile.write(bytes(1 << 20)))

    with server(serve) as (url, handler):
        open_source(f"{url}/clicks").read("model.json", 0, 10)
    assert sum(handler.sent) < 64 << 20


def test_no_room_is_taken_for_what_is_only_announced(made: Path, tmp_path: Path) -> None:
    def serve(handler: Handler) -> None:
        if handler.command == "HEAD" and handler.path.endswith("manifest.json"):
            handler.send_response(200)
            handler.send_header("Content-Length", str(1 << 58))
            handler.end_headers()
            return
        handler.file(made.parent / handler.path.lstrip("/"))

    with server(serve) as (url, _), pytest.raises(hushtable.NoRoom):
        fetch_shard(f"{url}/clicks", tmp_path, shard=0)


def test_a_body_that_is_cut_short_is_asked_for_again(made: Path, tmp_path: Path) -> None:
    cut: set[str] = set()

    def serve(handler: Handler) -> None:
        wanted = f"{handler.path} {handler.headers.get('Range')}"
        if handler.command == "GET" and wanted not in cut:
            cut.add(wanted)
            handler.send_response(206)
            first = int(handler.headers["Range"].removeprefix("bytes=").split("-")[0])
            handler.send_header("Content-Range", f"bytes {first}-{first}/9999999")
            handler.end_headers()
            handler.wfile.write(b"{")
            return
        handler.file(made.parent / handler.path.lstrip("/"))

    with server(serve) as (url, _):
        fetched = fetch_shard(f"{url}/clicks", tmp_path, shard=0)
    assert fetched.copied_bytes == fetched.bytes
    assert cut


@pytest.mark.parametrize("status", [403, 405, 501])
def test_a_server_without_head_is_asked_otherwise(made: Path, tmp_path: Path, status: int) -> None:
    def serve(handler: Handler) -> None:
        if handler.command == "HEAD":
            handler.send_error(status)
            return
        handler.file(made.parent / handler.path.lstrip("/"))

    with server(serve) as (url, _):
        fetched = fetch_shard(f"{url}/clicks?sig=a%2Fb", tmp_path, shard=0)
    assert read_shards(fetched.path) == read_shards(made)


def test_a_server_that_drips_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_web, "_SILENCE_S", 0.5)
    ended = threading.Event()

    def drip(handler: Handler) -> None:
        handler.send_response(206)
        handler.send_header("Content-Range", "bytes 0-99999/100000")
        handler.end_headers()
        with contextlib.suppress(ConnectionError):
            while not ended.wait(0.1):
                handler.wfile.write(b"x")

    with server(drip) as (url, handler):
        try:
            with pytest.raises(hushtable.FetchError):
                open_source(f"{url}/clicks").read("rows", 0, 1000)
        finally:
            ended.set()
    assert len(handler.seen) == 3


def test_a_fetch_that_is_given_up_waits_for_nobody(made: Path, tmp_path: Path) -> None:
    ended = threading.Event()

    def serve(handler: Handler) -> None:
        if handler.path.endswith("rows.safetensors") and handler.command == "GET":
            ended.wait(60)
            return
        handler.file(made.parent / handler.path.lstrip("/"))

    class GivenUp(Exception):
        pass

    def give_up(done: int, of: int) -> None:
        if done > 100:
            raise GivenUp

    with server(serve) as (url, _):
        try:
            with pytest.raises(GivenUp):
                fetch_shard(f"{url}/clicks", tmp_path, shard=0, progress=give_up)
        finally:
            ended.set()


def test_proxies_of_the_environment_are_passed_over(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    def serve(handler: Handler) -> None:
        handler.file(made.parent / handler.path.lstrip("/"))

    with server(serve) as (url, _):
        fetch_shard(f"{url}/clicks", tmp_path, shard=0)


def test_what_a_source_says_cannot_write_to_a_terminal(tmp_path: Path) -> None:
    def shout(handler: Handler) -> None:
        handler.send_response(403, "\x1b[2Jgone\x07")
        handler.end_headers()

    with server(shout) as (url, _), pytest.raises(hushtable.FetchError) as error:
        fetch_shard(f"{url}/clicks\x1b[2J", tmp_path, shard=0)
    assert str(error.value).isprintable()


def test_a_version_is_pinned(made: Path, tmp_path: Path) -> None:
    version = Model.open(made).version
    other = "0" * 64
    with pytest.raises(hushtable.VersionMismatch, match="nothing was fetched") as error:
        fetch_shard(made, tmp_path, shard=0, version=other)
    assert (error.value.expected, error.value.found) == (other, version)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(hushtable.ConfigError, match="64 hexadecimal digits"):
        fetch_shard(made, tmp_path, shard=0, version=version[:16])
    assert fetch_shard(made, tmp_path, shard=0, version=version).version == version


def test_a_flip_in_any_piece_is_noticed(made: Path, tmp_path: Path) -> None:
    pieces = _native.shard_pieces(made, 1, "pair")
    flips = [(path, at) for path, _, first, count in pieces for at in {first, first + count - 1}]
    assert len(flips) > 15
    for number, (path, at) in enumerate(flips):
        source = Path(shutil.copytree(made, tmp_path / f"source-{number}" / "clicks"))
        with (source / path).open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))
        with pytest.raises(hushtable.TableError):
            fetch_shard(source, tmp_path / "fetched", shard=1)
        kept = [one.name for one in (tmp_path / "fetched").glob("[!.]*")]
        assert kept == [], f"byte {at} of {path}"
        shutil.rmtree(source)
