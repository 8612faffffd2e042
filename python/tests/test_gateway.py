"""The gateway: a real one, over real sockets, in front of real servers."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DIM, ROWS, Deployment
from test_model_client import MAX_IDS, build, weights
from waiting import COMMAND_HUNG_S, HUNG_S, until, until_waiting

import hushtable
from hushtable.errors import ConfigError
from hushtable.gateway import STATUSES, GatewayOptions, run_gateway, status_of
from hushtable.gateway.listening import _bound

JSON = {"content-type": "application/json"}
TOKEN = "0123456789abcdef0123"


@dataclass
class Gateway:
    """A gateway's process, and where it listens."""

    process: subprocess.Popen[str]
    url: str
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """A request over a connection of its own: status, headers, body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HUNG_S)
        with contextlib.closing(connection):
            sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            connection.request(method, path, sent, JSON if headers is None else headers)
            reply = connection.getresponse()
            return reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()

    def post(self, path: str, body: object, **headers: str) -> tuple[int, Any]:
        status, _, found = self.ask("POST", path, body, {**JSON, **headers})
        return status, json.loads(found)


@contextlib.contextmanager
def run(folder: Path, *options: str, addr: str = "127.0.0.1:0") -> Iterator[Gateway]:
    """A gateway of these options; what it logs, at the lowest level, is kept."""
    log = folder / f"gateway-{time.monotonic_ns()}.log"
    command = [sys.executable, "-m", "hushtable", "gateway", "--json", "--log", "debug"]
    with log.open("w") as said:
        process = subprocess.Popen(
            [*command, "--addr", addr, *options],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env={k: v for k, v in os.environ.items() if not k.startswith("HUSHTABLE_")},
        )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            ready = json.loads(line)
            assert ready.get("event") == "ready", ready
            yield Gateway(process, ready["url"], log)
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(HUNG_S)
            process.kill()


def servers_of(deployment: Deployment, left: hushtable.ServerProcess | None = None) -> list[str]:
    left = left or deployment.left
    ca = str(deployment.certificates.ca)
    return ["--left", left.url, "--right", deployment.right.url, "--ca", ca]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gateway")


@pytest.fixture(scope="module")
def gateway(deployment: Deployment, folder: Path) -> Iterator[Gateway]:
    limits = ["--body-bytes-max", "2000", "--ids-max", "16"]
    with run(folder, *servers_of(deployment), *limits) as gateway:
        yield gateway


def test_rows_come_as_numbers_and_as_base64(gateway: Gateway, deployment: Deployment) -> None:
    status, found = gateway.post("/v1/lookup", {"ids": [7, 2999, 7], "max_ids": 4})
    assert status == 200, found
    assert np.array_equal(np.array(found["rows"], np.float32), deployment.weight[[7, 2999, 7]])
    assert (found["table"], found["dim"]) == ("films", DIM)
    with deployment.connect() as client:
        assert found["version"] == client.info.version
    status, found = gateway.post("/v1/lookup", {"table": "films", "ids": 3, "timeout": HUNG_S})
    assert np.array_equal(np.array(found["rows"], np.float32), deployment.weight[[3]])
    status, found = gateway.post("/v1/lookup", {"ids": ["5"], "encoding_format": "base64"})
    row = np.frombuffer(base64.b64decode(found["rows"][0]), "<f4")
    assert np.array_equal(row, deployment.weight[5])
    assert gateway.post("/v1/lookup", {"ids": []})[1]["rows"] == []


def test_embeddings_are_what_clients_of_openai_read(
    gateway: Gateway, deployment: Deployment
) -> None:
    asked = {"model": "films", "input": [1, "2"], "encoding_format": "float", "dimensions": DIM}
    status, found = gateway.post("/v1/embeddings", {**asked, "user": "somebody"})
    assert status == 200, found
    assert found["object"] == "list" and found["model"] == "films"
    assert found["usage"] == {"prompt_tokens": 2, "total_tokens": 2}
    assert [one["index"] for one in found["data"]] == [0, 1]
    assert all(one["object"] == "embedding" for one in found["data"])
    rows = np.array([one["embedding"] for one in found["data"]], np.float32)
    assert np.array_equal(rows, deployment.weight[[1, 2]])
    asked = {"model": "films", "input": "2", "encoding_format": "base64"}
    status, found = gateway.post("/v1/embeddings", asked)
    row = np.frombuffer(base64.b64decode(found["data"][0]["embedding"]), "<f4")
    assert np.array_equal(row, deployment.weight[2])
    status, _, listed = gateway.ask("GET", "/v1/models")
    assert [one["id"] for one in json.loads(listed)["data"]] == ["films"]
    status, _, listed = gateway.ask("GET", "/v1/tables")
    (table,) = json.loads(listed)["data"]
    assert (table["id"], table["rows"], table["dim"]) == ("films", ROWS, DIM)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/lookup", b"{", 400, "invalid_json"),
        ("/v1/lookup", b"[" * 1900, 400, "invalid_json"),
        ("/v1/lookup", b"\xff", 400, "invalid_json"),
        ("/v1/lookup", [1], 400, "invalid_json"),
        ("/v1/lookup", {}, 400, "invalid_value"),
        ("/v1/lookup", {"ids": 1.0}, 400, "invalid_value"),
        ("/v1/lookup", {"ids": True}, 400, "invalid_value"),
        ("/v1/lookup", {"ids": [[1]]}, 400, "invalid_value"),
        ("/v1/lookup", {"ids": [-1]}, 400, "invalid_value"),
        ("/v1/lookup", {"ids": 1 << 64}, 400, "invalid_value"),
        ("/v1/lookup", {"ids": 1, "max_ids": 0}, 400, "invalid_value"),
        ("/v1/lookup", {"ids": 1, "max_ids": 1 << 70}, 400, "invalid_value"),
        ("/v1/lookup", {"ids": 1, "timeout": "2"}, 400, "invalid_value"),
        ("/v1/lookup", {"ids": 1, "timeout": 1e-9}, 400, "invalid_value"),
        ("/v1/lookup", b'{"ids": [], "ids": [1]}', 400, "invalid_json"),
        ("/v1/lookup", {"ids": 1, "idz": 2}, 400, "invalid_value"),
        ("/v1/lookup", {"ids": 1, "encoding_format": "hex"}, 400, "invalid_value"),
        ("/v1/lookup", {"ids": 1, "table": "other"}, 404, "model_not_found"),
        ("/v1/lookup", {"ids": ROWS}, 400, "IdOutOfRange"),
        ("/v1/lookup", {"ids": [1, 2], "max_ids": 1}, 400, "TooManyIds"),
        ("/v1/lookup", {"ids": list(range(17))}, 400, "too_many_ids"),
        ("/v1/lookup", b" " * 2001, 413, "body_too_large"),
        ("/v1/embeddings", {"input": 1}, 400, "invalid_value"),
        ("/v1/embeddings", {"model": "films", "input": "a film"}, 400, "invalid_value"),
        ("/v1/embeddings", {"model": "films", "input": 1, "dimensions": 3}, 400, "invalid_value"),
        ("/v1/features", {"inputs": {"films": 1}}, 404, "model_not_found"),
        ("/v1/nothing", {}, 404, "not_found"),
        ("/healthz", {}, 405, "method"),
    ],
)
def test_what_is_wrong_is_said(
    gateway: Gateway, path: str, body: object, status: int, code: str
) -> None:
    found, said = gateway.post(path, body)
    error = said["error"]
    assert (found, error["code"]) == (status, code), error
    assert error["type"] == "invalid_request_error" and error["message"] and error["param"] is None


def test_what_a_page_of_another_site_can_send_is_refused(gateway: Gateway) -> None:
    body = json.dumps({"ids": [1]}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        headers = {"content-type": kind} if kind else {}
        assert gateway.ask("POST", "/v1/lookup", body, headers)[0] == 415
    status, headers, _ = gateway.ask("OPTIONS", "/v1/lookup", None, {"origin": "http://evil.test"})
    assert status == 405
    _, more, _ = gateway.ask("GET", "/v1/tables", None, {"origin": "http://evil.test"})
    assert not any(name.startswith("access-control") for name in (*headers, *more))
    # A name of theirs that points to this machine.
    for host in ("evil.test", f"evil.test:{gateway.port}", "127.0.0.1.evil.test", ""):
        status, _, said = gateway.ask("POST", "/v1/lookup", body, {**JSON, "host": host})
        assert status == 421 and json.loads(said)["error"]["code"] == "host", host
    for host in ("localhost", f"LOCALHOST:{gateway.port}", "[::1]:80"):
        assert gateway.ask("POST", "/v1/lookup", body, {**JSON, "host": host})[0] == 200


def test_a_body_that_does_not_come_is_not_waited_for_and_others_are_answered(
    gateway: Gateway,
) -> None:
    with (
        socket.create_connection(("127.0.0.1", gateway.port), HUNG_S) as silent,
        socket.create_connection(("127.0.0.1", gateway.port), HUNG_S) as halting,
        socket.create_connection(("127.0.0.1", gateway.port), HUNG_S) as slow,
    ):
        halting.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        # To its end: the head and the body are two segments, now and then.
        with http.client.HTTPResponse(halting) as answer:
            answer.begin()
            assert (answer.status, answer.read()) == (200, b"ok\n")
        halting.sendall(b"GET /hea")
        head = "POST /v1/lookup HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        slow.sendall(f"{head}content-length: 12\r\n\r\n".encode())
        assert gateway.post("/v1/lookup", {"ids": 1})[0] == 200
        assert slow.recv(12) == b"HTTP/1.1 408"
        assert silent.recv(1) == halting.recv(1) == b""
    with socket.create_connection(("127.0.0.1", gateway.port), HUNG_S) as rough:
        rough.sendall(b"\x16\x03\x01\x02\x00 this is no HTTP\r\n\r\n")
        assert rough.recv(12).startswith(b"HTTP/1.1 400")
    # Whatever parsers are installed, and before any token.
    with socket.create_connection(("127.0.0.1", gateway.port), HUNG_S) as long:
        long.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 100_000)
        assert long.recv(12) == b"HTTP/1.1 400"


def test_sixty_four_at_once(gateway: Gateway, deployment: Deployment) -> None:
    barrier = threading.Barrier(64)

    def one(number: int) -> np.ndarray:
        barrier.wait(HUNG_S)
        status, found = gateway.post("/v1/lookup", {"ids": [number, number + 1]})
        assert status == 200, found
        return np.array(found["rows"], np.float32)

    with ThreadPoolExecutor(64) as pool:
        for number, rows in enumerate(pool.map(one, range(64))):
            assert np.array_equal(rows, deployment.weight[[number, number + 1]])


def test_metrics_count_by_route_alone_and_pages_load_nothing(gateway: Gateway) -> None:
    gateway.post("/v1/lookup", {"ids": [1]})
    gateway.ask("GET", "/secret-2713")
    _, headers, text = gateway.ask("GET", "/metrics")
    found = text.decode()
    assert 'hushtable_gateway_requests_total{route="/v1/lookup",status="200"}' in found
    assert 'hushtable_gateway_requests_total{route="other",status="404"}' in found
    assert 'hushtable_gateway_refused_total{reason="not_found"}' in found
    assert 'hushtable_gateway_request_seconds_bucket{route="/v1/lookup",le="+Inf"}' in found
    assert "2713" not in found
    document = json.loads(gateway.ask("GET", "/openapi.json")[2])
    routes = {(verb, path) for path, of in document["paths"].items() for verb in of}
    # Each that it lists is there, and by its verb alone.
    for verb, path in routes:
        other = "POST" if verb == "get" else "GET"
        assert gateway.ask(other, path, b"{}")[0] == 405, path
        said = gateway.ask(verb.upper(), path, b"{}" if verb == "post" else None)
        assert said[0] in (200, 400) or path == "/v1/features", path
    status, headers, page = gateway.ask("GET", "/docs")
    assert status == 200 and headers["content-security-policy"].startswith("default-src 'none'")
    assert not re.search(rb"<script|<link|src=|https?://", page)
    for _, path in routes:
        assert path.encode() in page
    assert gateway.ask("HEAD", "/docs")[2] == b""
    assert gateway.ask("GET", "/healthz")[0] == gateway.ask("GET", "/readyz")[0] == 200


def test_no_id_is_logged(deployment: Deployment, folder: Path) -> None:
    with run(folder, *servers_of(deployment)) as gateway:
        assert gateway.post("/v1/lookup", {"ids": [2713]})[0] == 200
        assert gateway.post("/v1/lookup", {"ids": [992713]})[0] == 400
        assert gateway.post("/v1/lookup", {"ids": [[2713]]})[0] == 400
        assert gateway.post("/v1/embeddings", {"model": "2713", "input": "2713"})[0] == 404
        assert gateway.ask("GET", "/v1/lookup/2713?id=2713")[0] == 404
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(HUNG_S) == 0
        said = gateway.log.read_text()
    assert "/v1/lookup 200" in said and "connected to" in said, "the log is on"
    assert not re.search(r"(?<![0-9a-f:])(99)?2713", said), said


def test_a_token_is_asked_for(deployment: Deployment, folder: Path) -> None:
    file = folder / "token"
    file.write_text(f"{TOKEN}\n")
    with run(folder, *servers_of(deployment), "--token-file", str(file)) as gateway:
        for given in ("", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer "):
            status, headers, _ = gateway.ask(
                "POST", "/v1/lookup", {"ids": 1}, {**JSON, "authorization": given}
            )
            assert status == 401 and headers["www-authenticate"] == "Bearer", given
        for path in ("/metrics", "/docs", "/v1/tables", "/openapi.json", "/nothing"):
            assert gateway.ask("GET", path)[0] == 401, path
        assert gateway.ask("GET", "/readyz")[0] == gateway.ask("GET", "/healthz")[0] == 200
        right = {"authorization": f"Bearer {TOKEN}"}
        assert gateway.post("/v1/lookup", {"ids": 1}, **right)[0] == 200
        document = json.loads(gateway.ask("GET", "/openapi.json", None, right)[2])
        assert document["paths"]["/v1/lookup"]["post"]["security"] == [{"token": []}]
        assert TOKEN not in gateway.log.read_text()


def test_other_machines_are_let_in_by_token_and_tls_alone(
    deployment: Deployment, folder: Path, certificates: hushtable.Certificates
) -> None:
    file = folder / "token-of-all"
    file.write_text(TOKEN)
    with pytest.raises(ConfigError, match="give --token-file"):
        GatewayOptions(addr="0.0.0.0:0")
    with pytest.raises(ConfigError, match="there is no TLS"):
        GatewayOptions(addr="[::]:0", token_file=file)
    with pytest.raises(ConfigError, match="give --token-file"):
        GatewayOptions(addr="gateway.example:80", plain_http=True)
    assert GatewayOptions(addr="0.0.0.0:0", token_file=file, plain_http=True).hosts is None
    for addr in ("127.0.0.1:0", "localhost:80", "[::1]:80"):
        assert GatewayOptions(addr=addr).hosts == ["localhost", "127.0.0.1", "[::1]"]
    assert "127.9.9.9" in (GatewayOptions(addr="127.9.9.9:1").hosts or ())
    for addr in ("127.0.0.1", ":80", "127.0.0.1:65536", "127.0.0.1:x"):
        with pytest.raises(ConfigError, match="an address and a port"):
            GatewayOptions(addr=addr)
    for given in (
        {"addr": "127.0.0.1:\u00b2"},
        {"drain_seconds": float("inf")},
        {"max_ids": 0},
        {"requests_max": 0},
    ):
        with pytest.raises(ConfigError, match=r"must be"):
            GatewayOptions(**given)
    short = folder / "short"
    for text in ("short", "with some spaces in it", "", "über" * 8):
        short.write_text(text)
        with pytest.raises(ConfigError, match="has no token"):
            _ = GatewayOptions(token_file=short).token
    tls = certificates.server
    options = ["--token-file", str(file)]
    options += ["--tls-cert", str(tls.certificate), "--tls-key", str(tls.key)]
    with run(folder, *servers_of(deployment), *options, addr="0.0.0.0:0") as gateway:
        assert gateway.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificates.ca))
        connection = http.client.HTTPSConnection("localhost", gateway.port, context=context)
        with contextlib.closing(connection):
            right = {**JSON, "authorization": f"Bearer {TOKEN}"}
            connection.request("POST", "/v1/lookup", b'{"ids": 1}', right)
            assert connection.getresponse().status == 200


def test_a_socket_of_unix_is_its_users_alone(deployment: Deployment, folder: Path) -> None:
    path = folder / "g.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))  # left by a gateway that was killed
    with run(folder, *servers_of(deployment), "--unix", str(path)) as gateway:
        assert gateway.url == f"unix:{path}"
        assert path.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(str(path))
            head = "POST /v1/lookup HTTP/1.1\r\nhost: any\r\ncontent-type: application/json\r\n"
            asked.sendall(f'{head}content-length: 10\r\n\r\n{{"ids": 1}}'.encode())
            assert asked.recv(12) == b"HTTP/1.1 200"
    assert not path.exists()


def test_a_socket_of_unix_that_another_took_over_stays(tmp_path: Path) -> None:
    path = tmp_path / "g.sock"
    with _bound(GatewayOptions(unix=path)) as (first, _):
        first.close()  # it ends, and answers what is under way
        second = _bound(GatewayOptions(unix=path))
        second.__enter__()
    assert path.is_socket()
    second.__exit__(None, None, None)
    assert not path.exists()


def test_localhost_is_loopback_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def found_as(address: str, family: int) -> None:
        found = [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, 0))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    found_as("0.0.0.0", socket.AF_INET)
    with (
        pytest.raises(ConfigError, match="which other machines reach"),
        _bound(GatewayOptions(addr="localhost:0")),
    ):
        pass
    found_as("::1", socket.AF_INET6)
    with _bound(GatewayOptions(addr="localhost:0")) as (_, url):
        assert url.startswith("http://localhost:")
    with _bound(GatewayOptions(addr="[::1]:0")) as (_, url):
        assert url.startswith("http://[::1]:")
    monkeypatch.undo()
    options = GatewayOptions(addr=f"{'a' * 70}:0", token_file="t", plain_http=True)
    with pytest.raises(ConfigError, match="cannot listen"), _bound(options):
        pass


def test_a_busy_gateway_says_so_and_ends_with_what_is_under_way(
    deployment: Deployment, folder: Path
) -> None:
    with (
        deployment.waiting(batch_keys_max=3) as left,
        deployment_client(deployment, left) as client,
        run(folder, *servers_of(deployment, left), "--requests-max", "2") as gateway,
        ThreadPoolExecutor(2) as pool,
    ):
        waits = [pool.submit(gateway.post, "/v1/lookup", {"ids": n}) for n in (1, 2)]
        until_waiting(left, 2)
        status, headers, said = gateway.ask("POST", "/v1/lookup", {"ids": 3})
        assert status == 503 and json.loads(said)["error"]["code"] == "busy"
        assert headers["retry-after"] == "1"
        assert gateway.ask("GET", "/healthz")[0] == 200, "probes are answered all the same"
        gateway.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(gateway.port), "a gateway that takes no connections")
        assert not any(wait.done() for wait in waits)
        client.lookup([9])  # the third: the pass is full
        for wait, number in zip(waits, (1, 2), strict=True):
            status, found = wait.result(HUNG_S)
            rows = np.array(found["rows"], np.float32)
            assert status == 200 and np.array_equal(rows, deployment.weight[[number]])
        assert gateway.process.wait(HUNG_S) == 0
        assert gateway.process.stdout is not None
        assert json.loads(gateway.process.stdout.readline()) == {"event": "stopped"}


@contextlib.contextmanager
def deployment_client(
    deployment: Deployment, left: hushtable.ServerProcess
) -> Iterator[hushtable.Client]:
    urls = (left.url, deployment.right.url)
    with hushtable.connect(*urls, tls=deployment.certificates.ca) as client:
        yield client


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return True
    return False


def test_servers_that_fail_are_said_by_their_status(deployment: Deployment, folder: Path) -> None:
    with (
        hushtable.ServerProcess(
            deployment.bundle, "left", tls=deployment.certificates.server, threads=1
        ) as left,
        run(folder, *servers_of(deployment, left)) as gateway,
    ):
        left.process.send_signal(signal.SIGSTOP)
        status, said = gateway.post("/v1/lookup", {"ids": 1, "timeout": 0.3})
        left.process.send_signal(signal.SIGCONT)
        assert (status, said["error"]["code"]) == (504, "ServerTimeout")
        assert said["error"]["type"] == "server_error"
        assert gateway.post("/v1/lookup", {"ids": 1})[0] == 200
        left.kill()
        status, said = gateway.post("/v1/lookup", {"ids": 1})
        assert (status, said["error"]["code"]) == (502, "ServerUnavailable")


def test_who_goes_away_is_not_answered(deployment: Deployment, folder: Path) -> None:
    with (
        deployment.waiting() as left,
        run(folder, *servers_of(deployment, left)) as gateway,
    ):
        with socket.create_connection(("127.0.0.1", gateway.port), HUNG_S) as asked:
            head = "POST /v1/lookup HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json"
            asked.sendall(f'{head}\r\ncontent-length: 10\r\n\r\n{{"ids": 1}}'.encode())
            until_waiting(left, 1)
            assert b"hushtable_gateway_under_way 1\n" in gateway.ask("GET", "/metrics")[2]
        until(
            lambda: b"hushtable_gateway_under_way 0\n" in gateway.ask("GET", "/metrics")[2],
            "a lookup that is given up",
        )
        gone = b'hushtable_gateway_requests_total{route="/v1/lookup",status="499"} 1\n'
        assert gone in gateway.ask("GET", "/metrics")[2]


def test_a_single_server_is_asked_too(deployment: Deployment, folder: Path) -> None:
    weight = deployment.weight[:64]
    hushtable.Table.from_weight(weight, name="few").save(folder / "few")
    with (
        hushtable.ServerProcess(folder / "few", scheme="onion", threads=1) as server,
        run(folder, "--server", server.url, "--max-ids", "2") as gateway,
    ):
        status, found = gateway.post("/v1/lookup", {"ids": [63, 5]})
        assert status == 200, found
        assert np.array_equal(np.array(found["rows"], np.float32), weight[[63, 5]])
        status, said = gateway.post("/v1/lookup", {"ids": [1, 2, 3]})
        assert (status, said["error"]["code"]) == (400, "TooManyIds"), "as --max-ids says"


def test_all_features_of_a_model_are_asked_at_once(folder: Path) -> None:
    model = build(folder / "clicks", 1)
    with (
        hushtable.ServerProcess(model, "left", threads=1) as left,
        hushtable.ServerProcess(model, "right", threads=1) as right,
        run(folder, "--left", left.url, "--right", right.url, "--model", "clicks") as gateway,
    ):
        status, found = gateway.post("/v1/features", {"inputs": {"user": 3, "item": [1, "4"]}})
        assert status == 200, found
        tables = weights(1)
        for name, (table, ids) in {"user": ("users", [3]), "item": ("items", [1, 4])}.items():
            rows = np.array(found["features"][name]["rows"], np.float32)
            assert np.array_equal(rows, tables[table][ids])
            assert found["features"][name]["kept"] == [True] * len(ids)
        assert found["model"] == "clicks" and len(found["version"]) == 64
        asked = {"model": "item", "input": [5]}
        status, one = gateway.post("/v1/embeddings", asked)
        assert np.array_equal(np.float32(one["data"][0]["embedding"]), tables["items"][5])
        listed = json.loads(gateway.ask("GET", "/v1/models")[2])
        assert {one["id"] for one in listed["data"]} == set(MAX_IDS)
        for inputs, code, status in (
            ({"other": 1}, "UnknownFeature", 404),
            ({"item": list(range(MAX_IDS["item"] + 1))}, "TooManyIds", 400),
            ([1], "invalid_value", 400),
        ):
            found = gateway.post("/v1/features", {"inputs": inputs})
            assert (found[0], found[1]["error"]["code"]) == (status, code)


def test_every_error_has_a_status_and_none_hides_another() -> None:
    kinds = [kind for kind, _ in STATUSES]
    for later, kind in enumerate(kinds):
        assert not any(issubclass(kind, earlier) for earlier in kinds[:later]), kind
    busy = hushtable.ServerBusy("full", retry_after=2.6)
    assert status_of(busy) == (503, {"retry-after": "3"})
    assert status_of(ConfigError("no")) == (500, {}) == status_of(KeyError("no"))


def test_replies_do_not_wait_for_acknowledgements() -> None:
    # asyncio turns Nagle's algorithm off on sockets that say that they are TCP's: 40 ms a request.
    with _bound(GatewayOptions(addr="127.0.0.1:0")) as (bound, _):
        assert bound.proto == socket.IPPROTO_TCP


def test_without_uvicorn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)

    async def connect() -> hushtable.AsyncClient:
        raise AssertionError("nobody is asked")

    with pytest.raises(ConfigError, match=r"pip install 'hushtable\[gateway\]'"):
        run_gateway(connect, GatewayOptions())


def test_the_command_says_what_is_wrong(deployment: Deployment) -> None:
    for options, said in (
        (["--addr", "0.0.0.0:8600"], "--token-file"),
        (["--log", "loud"], "--log"),
        (["--tls-cert", "x.pem"], "--tls-key"),
        (["--server", "http://127.0.0.1:1", "--model", "x"], "two servers"),
    ):
        command = [sys.executable, "-m", "hushtable", "gateway", *options]
        found = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_HUNG_S)
        assert found.returncode == 2 and said in found.stderr, found.stderr
