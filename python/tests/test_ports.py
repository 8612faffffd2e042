"""Ports: both sides start on one machine as they are, and one that is taken is told of."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import COMMAND_HUNG_S, HUNG_S, held_port

import hushtable
from hushtable import _ports
from hushtable._ports import AUTO, LEFT, RIGHT, chosen, said_of_ports
from hushtable.cli import _servers
from hushtable.server import _settings


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ports") / "films"
    hushtable.Table.from_weight(np.eye(8, dtype=np.float32)).save(folder)
    return folder


def test_the_sides_have_ports_of_their_own() -> None:
    used = {*LEFT.values(), *RIGHT.values()}
    assert len(used) == 4
    assert LEFT.keys() == RIGHT.keys()
    # What clients ask by default.
    asked = (_servers.LEFT, _servers.RIGHT)
    assert asked == tuple(f"http://{side['addr']}" for side in (LEFT, RIGHT))
    for name in LEFT:
        assert chosen(name, AUTO, "left") == chosen(name, AUTO, None) == LEFT[name]
        assert chosen(name, AUTO, "right") == RIGHT[name]
        assert chosen(name, "10.0.0.1:7", "right") == "10.0.0.1:7"
    assert chosen("metrics_addr", None, "right") is None


def test_the_right_server_is_told_its_own(bundle: Path) -> None:
    def told(side: str | None, scheme: str = "pair", **given: Any) -> tuple[str, str | None]:
        addresses = {"addr": AUTO, "metrics_addr": AUTO, **given}
        found = _settings(bundle, side, scheme, None, tls=None, options={}, **addresses)
        return found["addr"], found["metrics_addr"]

    assert told("left") == ("127.0.0.1:4000", "127.0.0.1:4001")
    assert told("right") == ("127.0.0.1:5000", "127.0.0.1:5001")
    assert told(None, "onion") == ("127.0.0.1:4000", "127.0.0.1:4001")
    assert told("right", addr="127.0.0.1:4000") == ("127.0.0.1:4000", "127.0.0.1:5001")
    assert told("right", metrics_addr=None) == ("127.0.0.1:5000", None)


@contextlib.contextmanager
def serving(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    command = [sys.executable, "-m", "hushtable", "serve", *map(str, arguments), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server, json.loads(server.stdout.readline())
        finally:
            server.terminate()
            server.wait(HUNG_S)


def refused(*arguments: object) -> str:
    command = [sys.executable, "-m", "hushtable", "serve", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_HUNG_S)
    assert done.returncode == 1
    return done.stderr


def test_what_is_taken_is_named_with_who_has_it(bundle: Path) -> None:
    with serving(bundle, "--side", "left", "--addr", "127.0.0.1:0", "--metrics-addr", "none") as (
        server,
        ready,
    ):
        address = ready["url"].partition("//")[2]
        port = address.rpartition(":")[2]
        common = (bundle, "--side", "right")
        for options, name in (
            (("--addr", address, "--metrics-addr", "none"), "--addr"),
            (("--port", port, "--metrics-addr", "none"), "--port"),
            (("--addr", "127.0.0.1:0", "--metrics-addr", address), "--metrics-addr"),
        ):
            said = refused(*common, *options)
            assert (
                f"could not listen on {address} ({name}): it is in use by process {server.pid} ("
                in said
            )
            assert f"hushtable serve {bundle} --side left" in said
            assert "give another port, 0 for any" in said


def test_one_port_for_both_is_said_so(bundle: Path) -> None:
    with held_port() as port:
        pass
    address = f"127.0.0.1:{port}"
    said = refused(bundle, "--side", "left", "--addr", address, "--metrics-addr", address)
    assert "--addr and --metrics-addr have the same port" in said


def test_the_error_of_a_child_says_it_too(bundle: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        server = hushtable.ServerProcess(bundle, "left", addr=address)
        with pytest.raises(
            hushtable.Error, match=rf"\(--addr\): it is in use by process {os.getpid()} "
        ):
            server.start()


def test_this_process_is_seen_too() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        found = _ports._holder(taken.getsockname()[1])
    assert found is not None
    assert found[0] == os.getpid()


def test_who_cannot_be_seen_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ports, "_holder", lambda port: None)
    text = "could not listen on 127.0.0.1:4000: Address already in use (os error 98)"
    with (
        pytest.raises(hushtable.Error, match=r"\(--addr\): it is in use by another process;"),
        said_of_ports({"addr": "127.0.0.1:4000", "metrics_addr": None}),
    ):
        raise hushtable.Error(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "could not listen on 10.9.9.9:80: Permission denied (os error 13)",
            "could not listen on 10.9.9.9:80 (--addr): Permission denied (os error 13)",
        ),
        ("the table is damaged", "the table is damaged"),
    ],
)
def test_other_errors_stay_what_they_are(text: str, said: str) -> None:
    with (
        pytest.raises(hushtable.TableError) as error,
        said_of_ports({"addr": "10.9.9.9:80", "metrics_addr": "127.0.0.1:4001"}),
    ):
        raise hushtable.TableError(text)
    assert str(error.value) == said


def test_the_page_of_metrics_is_what_is_named(bundle: Path) -> None:
    import urllib.request

    with hushtable.ServerProcess(bundle, "right") as server:
        assert server.metrics_url is not None
        assert server.metrics_url.endswith("/metrics")
        with urllib.request.urlopen(server.metrics_url, timeout=HUNG_S) as page:
            assert "hushtable_build_info" in page.read().decode()
