"""A server's life: ready, watched, drained."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import numpy as np
import pytest
from conftest import ROWS, Deployment
from waiting import COMMAND_HUNG_S, HUNG_S, is_alive, until, until_waiting

import hushtable
from hushtable.push import push_bundle

SERVE = [sys.executable, "-m", "hushtable", "serve"]
FREE = ["--addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0"]


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=HUNG_S) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([*SERVE, *arguments], stdout=subprocess.PIPE, text=True, **options)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_probes_and_metrics(deployment: Deployment) -> None:
    url = deployment.left.metrics_url
    assert url is not None
    assert fetch(urljoin(url, "/livez"))[0] == 200
    assert fetch(urljoin(url, "/readyz"))[0] == 200
    status, metrics = fetch(url)
    assert status == 200
    assert 'hushtable_engine_info{table="films",description="' in metrics
    assert f'hushtable_table_rows{{table="films"}} {ROWS}' in metrics


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_readiness_line_and_a_clean_end(bundle: Path, number: signal.Signals) -> None:
    with start(str(bundle), "--side", "right", *FREE) as server:
        line = first_line(server)
        info = hushtable.Table.open(bundle).info
        assert line.startswith(
            f"ready: right server of 'films' version {info.version[:16]} at http://127.0.0.1:"
        )
        server.send_signal(number)
        assert server.wait(HUNG_S) == 0
        assert server.stdout is not None
        assert server.stdout.read() == ""


def test_sighup_brings_in_the_next_version(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    first, second = (rng.standard_normal((64, 8), dtype=np.float32) for _ in range(2))
    bundle = tmp_path / "films"
    hushtable.Table.from_weight(first, name="films").save(bundle)
    with (
        hushtable.ServerProcess(bundle, "left", threads=1) as left,
        hushtable.ServerProcess(bundle, "right", threads=1) as right,
        hushtable.connect(left.url, right.url) as client,
    ):
        version = client.info.version
        assert np.array_equal(client.lookup([5]), first[[5]])
        hushtable.Table.from_weight(second, name="films").save(bundle)
        for server in (left, right):
            server.process.send_signal(signal.SIGHUP)

        def is_new() -> bool:
            rows = client.lookup([5])
            assert np.array_equal(rows, first[[5]]) or np.array_equal(rows, second[[5]])
            return client.info.version != version

        until(is_new, "the next version")
        assert client.info.version == hushtable.Table.open(bundle).info.version
        assert np.array_equal(client.lookup([5]), second[[5]])


def test_push_brings_the_next_version_to_both(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    first, second = (rng.standard_normal((64, 8), dtype=np.float32) for _ in range(2))
    bundle, token = tmp_path / "films", tmp_path / "token"
    hushtable.Table.from_weight(first, name="films").save(bundle)
    hushtable.Table.from_weight(second, name="films").save(tmp_path / "next")
    token.write_text("0123456789abcdef0123\n")
    folders = [tmp_path / side for side in ("pushed-left", "pushed-right")]
    for folder in folders:
        folder.mkdir()
    options = [
        {"push_folder": str(folder), "push_token_file": str(token), "threads": 1}
        for folder in folders
    ]
    with (
        hushtable.ServerProcess(bundle, "left", **options[0]) as left,
        hushtable.ServerProcess(bundle, "right", **options[1]) as right,
    ):
        wrong = tmp_path / "wrong"
        wrong.write_text("another-token-of-length")
        with pytest.raises(hushtable.OperatorOnly, match="--push-token-file"):
            push_bundle(tmp_path / "next", left.url, token_file=wrong)
        hushtable.Table.from_weight(second, name="books").save(tmp_path / "books")
        refused = "PUSH_NOT_TAKEN", 'serves no table called "books"'
        (tmp_path / "cut").mkdir()
        (tmp_path / "cut" / "manifest.json").write_text("{")
        damaged = "PUSH_DAMAGED", "the bundle is damaged: .*; push it again"
        for name, (reason, text) in (("books", refused), ("cut", damaged)):
            with pytest.raises(hushtable.PushRefused, match=text) as caught:
                push_bundle(tmp_path / name, left.url, token_file=token)
            assert caught.value.reason == reason
        plain = hushtable.ServerProcess(bundle, "left", threads=1)
        with plain, pytest.raises(hushtable.ConfigError, match="takes no pushes"):
            push_bundle(tmp_path / "next", plain.url, token_file=token)
        command = [sys.executable, "-m", "hushtable", "table", "push", str(tmp_path / "next")]
        command += ["--token-file", str(token), "--to", left.url, "--to", right.url]
        pushed = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_HUNG_S, check=True
        )
        assert pushed.stdout.count("taken") == 2
        with hushtable.connect(left.url, right.url) as client:
            assert client.info.version == hushtable.Table.open(tmp_path / "next").info.version
            assert np.array_equal(client.lookup([5]), second[[5]])
        assert push_bundle(tmp_path / "next", left.url, token_file=token) is False


def test_json_lines(bundle: Path) -> None:
    with start(str(bundle), "--side", "left", "--json", *FREE) as server:
        ready = json.loads(first_line(server))
        assert ready == {
            "event": "ready",
            "side": "left",
            "table": "films",
            "version": hushtable.Table.open(bundle).info.version,
            "url": ready["url"],
            "metrics_url": ready["metrics_url"],
            "layout": None,
            "scheme": "pair",
            "onion": None,
            "engine": ready["engine"],
            "tables": [dataclasses.asdict(hushtable.Table.open(bundle).info)],
            "models": [],
            "shard": None,
            "is_front": False,
        }
        assert fetch(urljoin(ready["metrics_url"], "/readyz"))[0] == 200
        server.terminate()
        assert server.wait(HUNG_S) == 0
        assert json.loads(first_line(server)) == {"event": "stopped", "side": "left"}


def test_a_log_that_cannot_be_written_costs_no_answer(bundle: Path, weight: np.ndarray) -> None:
    with contextlib.ExitStack() as stack:
        urls: list[str] = []
        for side in ("left", "right"):
            full = stack.enter_context(Path("/dev/full").open("w"))
            options = ["--side", side, "--log", "trace", "--json", *FREE]
            server = stack.enter_context(start(str(bundle), *options, stderr=full))
            stack.callback(server.terminate)
            urls.append(json.loads(first_line(server))["url"])
        left, right = urls
        with hushtable.connect(left, right) as client:
            assert np.array_equal(client.lookup([5]), weight[[5]])


def test_sigterm_answers_what_is_under_way(deployment: Deployment, weight: np.ndarray) -> None:
    options: dict[str, Any] = {"tls": deployment.certificates.server, "window_us": 2_000_000}
    with (
        hushtable.ServerProcess(deployment.bundle, "left", threads=1, **options) as left,
        hushtable.connect(left.url, deployment.right.url, tls=deployment.certificates.ca) as client,
    ):
        found: list[np.ndarray] = []
        thread = threading.Thread(target=lambda: found.append(client.lookup([5])))
        thread.start()
        until_waiting(left, 1)
        assert left.stop(HUNG_S) == 0
        thread.join()
        assert np.array_equal(found[0], weight[[5]])


def test_options_come_from_variables_and_files(bundle: Path, tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text(
        f'table = "{bundle}"\nside = "left"\naddr = "127.0.0.1:0"\nthreads = 1\n'
        'metrics_addr = "127.0.0.1:1"\n'
    )
    env = {**os.environ, "HUSHTABLE_SIDE": "right", "HUSHTABLE_METRICS_ADDR": "none"}
    with start("--config", str(config), "--json", env=env) as server:
        ready = json.loads(first_line(server))
        # The variables win over the file.
        assert (ready["side"], ready["metrics_url"]) == ("right", None)
        server.terminate()
    with start("--config", str(config), "--json", "--side", "left", *FREE, env=env) as server:
        # A flag wins over both.
        assert json.loads(first_line(server))["side"] == "left"
        server.terminate()


#: Two servers in threads, and a client in the main one. They end with their process alone.
_THREADS = """
import sys, threading
import hushtable

ready = []
told = threading.Barrier(3)

def on_ready(serving):
    ready.append(serving)
    told.wait(60)

for side in ("left", "right"):
    options = {"addr": "127.0.0.1:0", "metrics_addr": None, "on_ready": on_ready, "threads": 1}
    threading.Thread(
        target=hushtable.serve, args=(sys.argv[1], side), kwargs=options, daemon=True
    ).start()
told.wait(60)
by_side = {serving.side: serving.url for serving in ready}
with hushtable.connect(**by_side) as client:
    print(client.lookup([1, 2]).tobytes().hex())
"""


def test_serve_in_a_thread_of_a_process(bundle: Path, weight: np.ndarray) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _THREADS, str(bundle)],
        capture_output=True,
        text=True,
        timeout=COMMAND_HUNG_S,
    )
    assert done.returncode == 0, done.stderr
    assert bytes.fromhex(done.stdout) == weight[[1, 2]].tobytes()


def test_a_server_goes_with_its_parent(bundle: Path) -> None:
    code = (
        "import os, sys, hushtable\n"
        "server = hushtable.ServerProcess(sys.argv[1], 'left', threads=1).start()\n"
        "print(server.process.pid, flush=True)\n"
        "os._exit(0)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(bundle)], capture_output=True, text=True, check=True
    )
    pid = int(out.stdout)
    until(lambda: not is_alive(pid), "the end of the server, with its parent")


def test_a_second_stop_and_a_kill_are_harmless(bundle: Path) -> None:
    server = hushtable.ServerProcess(bundle, "left", threads=1).start()
    assert server.stop() == 0
    assert server.stop() == 0
    server.kill()


def test_cpus(bundle: Path) -> None:
    one = {min(os.sched_getaffinity(0))}
    before = os.sched_getaffinity(0)
    with hushtable.ServerProcess(bundle, "left", threads=1, cpus=one) as server:
        assert os.sched_getaffinity(server.process.pid) == one
    assert os.sched_getaffinity(0) == before
    with pytest.raises(hushtable.ConfigError, match="cpus"):
        hushtable.ServerProcess(bundle, "left", cpus={100_000}).start()


def test_certificates_are_files_for_both_ends(tmp_path: Path) -> None:
    files = hushtable.make_certificates(tmp_path / "certs", ["left.internal"])
    assert files.ca.read_text().startswith("-----BEGIN CERTIFICATE-----")
    for key in (files.key, files.client_key):
        assert "PRIVATE KEY" in key.read_text()
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    again = hushtable.make_certificates(tmp_path / "certs", ["left.internal"])
    assert again == files
