"""What goes wrong is a typed error that names the fix; nothing hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROWS, Deployment
from waiting import HUNG_S, LONG_WINDOW_US, held_port, until_waiting

import hushtable


def counted(server: hushtable.ServerProcess) -> str:
    """The server's count of requests for answers, as its metrics have it."""
    with urllib.request.urlopen(str(server.metrics_url), timeout=HUNG_S) as reply:
        lines = reply.read().decode().splitlines()
    return "\n".join(line for line in lines if "requests_total" in line and "Answer" in line)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda c: c.lookup([ROWS]), hushtable.IdOutOfRange, "id 3000 is out of range.*0 to 2999"),
        (lambda c: c.lookup([-1]), hushtable.IdOutOfRange, "id -1 is out of range"),
        (lambda c: c.lookup([2**63]), hushtable.IdOutOfRange, "9223372036854775808"),
        (lambda c: c.lookup([1, 2, 3], max_ids=2), hushtable.TooManyIds, "3 ids .*max_ids is 2"),
        (
            lambda c: c.lookup([1], max_ids=10**6),
            hushtable.TooManyIds,
            "1 to [0-9]+ are taken",
        ),
        (lambda c: c.lookup([1], max_ids=0), hushtable.ConfigError, "max_ids must be at least 1"),
        (lambda c: c.lookup([1], max_ids=2.5), hushtable.ConfigError, "a whole number, not 2.5"),
        (lambda c: c.lookup([1], max_ids=True), hushtable.ConfigError, "a whole number, not True"),
        (lambda c: c.lookup([2**64]), hushtable.IdOutOfRange, "id 18446744073709551616 is out of"),
        (lambda c: c.lookup([1.5]), hushtable.BadIds, "ids must be integers, not float64"),
        (lambda c: c.lookup(["7"]), hushtable.BadIds, "ids must be integers, not <U1"),
        (lambda c: c.lookup([True]), hushtable.BadIds, "ids must be integers, not bool"),
        (lambda c: c.lookup(None), hushtable.BadIds, "ids must be integers, not NoneType"),
        (lambda c: c.lookup([1, None]), hushtable.BadIds, "ids must be integers, not object"),
        (lambda c: c.lookup("7"), hushtable.BadIds, "ids must be integers, not str"),
        (lambda c: c.lookup([[1], [2, 3]]), hushtable.BadIds, "ragged"),
    ],
)
def test_bad_ids_are_refused_before_anything_is_sent(
    client: hushtable.Client,
    deployment: Deployment,
    call: Callable[[hushtable.Client], Any],
    error: type[Exception],
    text: str,
) -> None:
    before = counted(deployment.left), counted(deployment.right)
    with pytest.raises(error, match=text):
        call(client)
    assert (counted(deployment.left), counted(deployment.right)) == before
    client.lookup([0])
    assert counted(deployment.left) != before[0]


def test_an_id_out_of_range_carries_the_facts(client: hushtable.Client) -> None:
    with pytest.raises(IndexError) as caught:
        client.lookup([1, ROWS + 5])
    assert isinstance(caught.value, hushtable.IdOutOfRange)
    assert (caught.value.id, caught.value.rows) == (ROWS + 5, ROWS)


def test_swapped_servers(deployment: Deployment) -> None:
    left, right, ca = deployment.left.url, deployment.right.url, deployment.certificates.ca
    with pytest.raises(hushtable.SwappedServers, match="swap the two addresses"):
        hushtable.connect(right, left, tls=ca)
    with pytest.raises(hushtable.SwappedServers, match="both say they are the left server"):
        hushtable.connect(left, left, tls=ca)


def test_servers_with_different_versions(deployment: Deployment, other_bundle: Path) -> None:
    tls = deployment.certificates
    with (
        hushtable.ServerProcess(other_bundle, "right", tls=tls.server, threads=1) as right,
        pytest.raises(hushtable.VersionMismatch, match="serve the same bundle") as caught,
    ):
        hushtable.connect(deployment.left.url, right.url, tls=tls.ca)
    assert caught.value.left == hushtable.Table.open(deployment.bundle).info.version
    assert caught.value.right == hushtable.Table.open(other_bundle).info.version


def test_a_table_that_changes_under_a_client(
    deployment: Deployment, other_bundle: Path, weight: np.ndarray
) -> None:
    tls = deployment.certificates

    with contextlib.ExitStack() as stack:
        ports = {side: stack.enter_context(held_port()) for side in ("left", "right")}

        def start(bundle: Path, side: Any) -> hushtable.ServerProcess:
            options: dict[str, Any] = {"tls": tls.server, "threads": 1}
            addr = f"127.0.0.1:{ports[side]}"
            server = hushtable.ServerProcess(bundle, side, addr=addr, **options).start()
            stack.callback(server.kill)
            return server

        left, right = start(deployment.bundle, "left"), start(deployment.bundle, "right")
        with hushtable.connect(left.url, right.url, tls=tls.ca) as client:
            assert np.array_equal(client.lookup([1]), weight[[1]])
            right.stop()
            start(other_bundle, "right")
            with pytest.raises(hushtable.VersionMismatch, match="serve the same bundle"):
                client.lookup([1])
            left.stop()
            start(other_bundle, "left")
            assert np.array_equal(client.lookup([1]), weight[[1]] + 1)
            assert client.info == hushtable.Table.open(other_bundle).info


def test_a_server_killed_mid_lookup(deployment: Deployment) -> None:
    # It waits a minute for company, and is killed while the lookup waits with it.
    options: dict[str, Any] = {"tls": deployment.certificates.server, "window_us": LONG_WINDOW_US}
    with (
        held_port() as port,
        hushtable.ServerProcess(
            deployment.bundle, "left", threads=1, addr=f"127.0.0.1:{port}", **options
        ) as left,
        hushtable.connect(
            left.url,
            deployment.right.url,
            tls=deployment.certificates.ca,
            options=hushtable.ClientOptions(timeout=600),
        ) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        found = pool.submit(client.lookup, [1])
        until_waiting(left, 1)
        left.kill()
        # Neither the window is waited for nor the timeout.
        with pytest.raises(hushtable.ServerUnavailable, match=left.url):
            found.result(timeout=30)
        with pytest.raises(hushtable.ServerUnavailable, match="refused"):
            client.lookup([1])


def test_a_busy_server(deployment: Deployment) -> None:
    tls = deployment.certificates
    with (
        deployment.waiting(keys_per_request_max=4, queue_keys_max=6, batch_keys_max=6) as left,
        hushtable.connect(
            left.url, deployment.right.url, tls=tls.ca, options=hushtable.ClientOptions(timeout=600)
        ) as first,
        hushtable.connect(
            left.url, deployment.right.url, tls=tls.ca, options=hushtable.ClientOptions(timeout=3)
        ) as second,
        ThreadPoolExecutor(1) as pool,
    ):
        waits = pool.submit(first.lookup, [1, 2, 3, 4])
        until_waiting(left, 4)
        started = time.perf_counter()
        with pytest.raises(hushtable.ServerBusy, match="retry in") as caught:
            second.lookup([1, 2, 3, 4])
        assert caught.value.retry_after > 0
        # The others' window is not waited for.
        assert time.perf_counter() - started < 30
        assert not waits.done()
        # Two more are a full pass.
        assert second.lookup([5, 6]).shape == waits.result()[:2].shape


def test_a_server_that_is_too_slow(deployment: Deployment) -> None:
    options: dict[str, Any] = {"tls": deployment.certificates.server, "window_us": LONG_WINDOW_US}
    with (
        hushtable.ServerProcess(deployment.bundle, "left", threads=1, **options) as left,
        hushtable.connect(
            left.url,
            deployment.right.url,
            tls=deployment.certificates.ca,
            options=hushtable.ClientOptions(timeout=2),
        ) as client,
    ):
        started = time.perf_counter()
        with pytest.raises(hushtable.ServerTimeout, match="raise the timeout") as caught:
            client.lookup([1])
        assert isinstance(caught.value, TimeoutError)
        # Its own timeout it is, and not the server's minute.
        assert time.perf_counter() - started < 30


def test_a_port_that_never_answers(deployment: Deployment) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        started = time.perf_counter()
        with pytest.raises((hushtable.ServerUnavailable, hushtable.ServerTimeout), match=url):
            hushtable.connect(
                url,
                deployment.right.url,
                tls=deployment.certificates.ca,
                options=hushtable.ClientOptions(timeout=0.5, connect_timeout=600),
            )
        assert time.perf_counter() - started < 60


def test_a_port_that_nobody_has(deployment: Deployment) -> None:
    refused = pytest.raises(hushtable.ServerUnavailable, match="Is the server running")
    with held_port() as port, refused as caught:
        hushtable.connect(
            f"https://127.0.0.1:{port}", deployment.right.url, tls=deployment.certificates.ca
        )
    assert isinstance(caught.value, ConnectionError)


def test_the_wrong_authority(deployment: Deployment, tmp_path: Path) -> None:
    other = hushtable.make_certificates(tmp_path)
    with pytest.raises(hushtable.TlsError, match="UnknownIssuer"):
        deployment.connect(tls=other.ca)


def test_a_name_that_the_certificate_is_not_for(deployment: Deployment) -> None:
    tls = hushtable.TlsConfig(deployment.certificates.ca, left_name="left.example")
    with pytest.raises(hushtable.TlsError, match="not valid for name"):
        deployment.connect(tls=tls)


def test_plain_http_to_a_tls_port(deployment: Deployment) -> None:
    plain = deployment.left.url.replace("https:", "http:")
    with pytest.raises(hushtable.TlsError, match="speaks TLS.*write https://"):
        hushtable.connect(plain, deployment.right.url, tls=deployment.certificates.ca)


def test_tls_to_a_plain_port(deployment: Deployment) -> None:
    with (
        hushtable.ServerProcess(deployment.bundle, "left", threads=1) as left,
        pytest.raises(hushtable.TlsError),
    ):
        hushtable.connect(
            left.url.replace("http:", "https:"),
            deployment.right.url,
            tls=deployment.certificates.ca,
        )


def test_a_server_that_asks_for_a_certificate(deployment: Deployment, tmp_path: Path) -> None:
    files = deployment.certificates
    tls = hushtable.ServerTls(files.certificate, files.key, client_ca=files.ca)
    with hushtable.ServerProcess(deployment.bundle, "left", threads=1, tls=tls) as left:
        with pytest.raises(hushtable.ServerUnavailable, match="certificate|CertificateRequired"):
            hushtable.connect(left.url, deployment.right.url, tls=files.ca)
        shown = hushtable.TlsConfig(files.ca, files.client_certificate, files.client_key)
        with hushtable.connect(left.url, deployment.right.url, tls=shown) as client:
            assert client.lookup([1]).shape == (1, 24)


@pytest.mark.parametrize(
    ("left", "options", "text"),
    [
        ("https://127.0.0.1:1", {"tls": None}, "no CA certificate was given"),
        ("http://203.0.113.9:1", {}, "not on this machine and not https"),
        ("127.0.0.1:1", {}, "no server address"),
        ("ftp://127.0.0.1:1", {}, "neither https nor http"),
        ("https://127.0.0.1:1/path", {}, "it has a path"),
        ("https://127.0.0.1:1", {"tls": "/nowhere.pem"}, "cannot read /nowhere.pem"),
        ("https://127.0.0.1:1", {"tls": __file__}, "PEM"),
        ("https://127.0.0.1:1", {"prg": "rot13"}, "rot13.*choose one of aes128"),
        ("https://127.0.0.1:1", {"timeout": 0}, "timeout is 0"),
        ("https://127.0.0.1:1", {"timeout": float("nan")}, "timeout is NaN"),
        ("https://127.0.0.1:1", {"connect_timeout": -1}, "connect_timeout is -1"),
        ("https://127.0.0.1:1", {"timeout": 1e300}, "0.001 to 86,400"),
    ],
)
def test_bad_connections_are_refused(
    deployment: Deployment, left: str, options: dict[str, Any], text: str
) -> None:
    tls = options.get("tls", deployment.certificates.ca)
    own = {name: value for name, value in options.items() if name != "tls"}
    with pytest.raises(hushtable.ConfigError, match=text):
        hushtable.connect(
            left, deployment.right.url, tls=tls, options=hushtable.ClientOptions(**own)
        )


def test_a_generator_that_the_servers_do_not_take(deployment: Deployment) -> None:
    with pytest.raises(hushtable.ConfigError, match="accepts keys of"):
        deployment.connect(prg="sha256")


def test_half_a_client_certificate(deployment: Deployment) -> None:
    with pytest.raises(hushtable.ConfigError, match="needs both"):
        hushtable.TlsConfig(deployment.certificates.ca, certificate="cert.pem")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"addr": "0.0.0.0:0"}, hushtable.ConfigError, "reachable from other machines"),
        ({"addr": "localhost"}, hushtable.ConfigError, "it has no port"),
        ({"threads": 10**6}, hushtable.ConfigError, "threads is 1000000, but must be"),
        ({"window_us": -5}, hushtable.ConfigError, "-5"),
        ({"prgs": ["rot13"]}, hushtable.ConfigError, "rot13"),
        ({"colour": "red"}, hushtable.ConfigError, "no setting .colour."),
        (
            {"tls": hushtable.ServerTls("/no.pem", "/no.key")},
            hushtable.Error,
            "/no.pem",
        ),
    ],
)
def test_bad_servers_do_not_start(
    bundle: Path, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        hushtable.serve(bundle, "left", **{"addr": "127.0.0.1:0", "metrics_addr": None, **options})


def test_other_bad_servers(bundle: Path, tmp_path: Path) -> None:
    side: Any = "up"
    with pytest.raises(hushtable.ConfigError, match="left or right"):
        hushtable.serve(bundle, side)
    with pytest.raises(hushtable.TableError, match="not a table bundle"):
        hushtable.ServerProcess(tmp_path, "left").start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        addr = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(hushtable.Error, match=f"listen on {addr}.*in use"):
            hushtable.ServerProcess(bundle, "left", addr=addr).start()
    with pytest.raises(hushtable.Error, match="not started"):
        _ = hushtable.ServerProcess(bundle, "left").url


def test_certificates_for_no_name(tmp_path: Path) -> None:
    with pytest.raises(hushtable.ConfigError, match="no certificate could be made"):
        hushtable.make_certificates(tmp_path, ["ÿ"])


def test_ctrl_c_ends_a_lookup(deployment: Deployment) -> None:
    files = deployment.certificates
    code = f"""
import sys, hushtable
client = hushtable.connect(
    sys.argv[1], {deployment.right.url!r}, tls={str(files.ca)!r},
        options=hushtable.ClientOptions(timeout=600),
)
print("looking", flush=True)
try:
    client.lookup([1])
except KeyboardInterrupt:
    print("interrupted")
"""
    with (
        hushtable.ServerProcess(
            deployment.bundle, "left", tls=files.server, threads=1, window_us=LONG_WINDOW_US
        ) as left,
        subprocess.Popen(
            [sys.executable, "-c", code, left.url], stdout=subprocess.PIPE, text=True
        ) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == "looking\n"
        until_waiting(left, 1)
        started = time.perf_counter()
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        assert child.wait(HUNG_S) == 0
        # The minute that the server waits has not passed.
        assert time.perf_counter() - started < 30
        os.kill(left.process.pid, 0)  # the server lives on
