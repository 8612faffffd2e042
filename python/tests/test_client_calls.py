"""Calls as services make them: a time for each, calls that are given up, what the log says."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DIM, ROWS, Deployment
from waiting import HUNG_S, LONG_WINDOW_US, held_port, metric, until, until_waiting

import hushtable
from hushtable.client import logs
from hushtable.errors import ConfigError, ServerTimeout

#: A pass of the slow server.
FULL = 6


@pytest.fixture
def slow(deployment: Deployment) -> Iterator[hushtable.ServerProcess]:
    """A left server that waits for a full pass."""
    with deployment.waiting(batch_keys_max=FULL) as server:
        yield server


def connected(slow: hushtable.ServerProcess, deployment: Deployment, seconds: float) -> dict:
    return {
        "left": slow.url,
        "right": deployment.right.url,
        "tls": deployment.certificates.ca,
        "options": hushtable.ClientOptions(timeout=seconds),
    }


def test_a_call_has_less_time_than_its_client(
    slow: hushtable.ServerProcess, deployment: Deployment
) -> None:
    with hushtable.connect(**connected(slow, deployment, HUNG_S)) as client:
        started = time.monotonic()
        with pytest.raises(ServerTimeout, match=rf"{slow.url} did not answer within \d+ ms"):
            client.lookup([1], max_ids=2, timeout=0.4)
        assert 0.4 <= time.monotonic() - started < HUNG_S / 2
        # The connection is as it was.
        rows = client.lookup(range(FULL), max_ids=FULL)
        assert np.array_equal(rows, deployment.weight[:FULL])


def test_a_call_has_more_time_than_its_client(
    slow: hushtable.ServerProcess, deployment: Deployment
) -> None:
    with (
        hushtable.connect(**connected(slow, deployment, 0.5)) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        waits = pool.submit(client.lookup, [3], max_ids=2, timeout=HUNG_S)
        until_waiting(slow, 2)
        with pytest.raises(ServerTimeout):
            client.lookup([1], max_ids=1)
        assert not waits.done()
        client.lookup([1], max_ids=FULL - 2, timeout=HUNG_S)
        assert np.array_equal(waits.result(), deployment.weight[[3]])


def test_a_cancelled_call_leaves_the_others(deployment: Deployment) -> None:
    tls, count = deployment.certificates, 8

    async def run(right: hushtable.ServerProcess) -> None:
        reached = await hushtable.connect_async(deployment.left.url, right.url, tls=tls.ca)
        async with reached as client:
            with stopped(right):
                with pytest.raises(ServerTimeout, match=right.url):
                    await client.lookup([1], timeout=0.2)
                before = metric(deployment.left.metrics_url, "hushtable_answered_keys_total")
                tasks = [asyncio.create_task(client.lookup([n])) for n in range(count)]
                answered = functools.partial(
                    until,
                    lambda: (
                        metric(deployment.left.metrics_url, "hushtable_answered_keys_total")
                        == before + count
                    ),
                    "answers by left",
                )
                await asyncio.to_thread(answered)
                for task in tasks[::2]:
                    task.cancel()
                assert not any(task.done() for task in tasks[1::2])
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in found[::2])
            assert np.array_equal(np.concatenate(found[1::2]), deployment.weight[1:count:2])
            assert np.array_equal(await client.lookup([9]), deployment.weight[[9]])

    with hushtable.ServerProcess(deployment.bundle, "right", tls=tls.server, threads=1) as right:
        asyncio.run(run(right))


@contextlib.contextmanager
def stopped(server: hushtable.ServerProcess) -> Iterator[None]:
    """The server stands still."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_a_time_that_is_none_is_refused(client: hushtable.Client) -> None:
    for seconds in (0.0, -1.0, float("nan"), float("inf"), 1e9):
        with pytest.raises(ConfigError, match="timeout is .* seconds, but must be 0.001 to 86,400"):
            client.lookup([1], timeout=seconds)
    with pytest.raises(TypeError):
        client.lookup([1], timeout="2")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "shop"
    rng = np.random.default_rng(5)
    weights = {name: rng.normal(size=(64, 8)).astype(np.float32) for name in ("user", "item")}
    np.savez(path.with_suffix(".npz"), **weights)
    spec = path.with_suffix(".toml")
    spec.write_text(
        "".join(
            f'[[feature]]\nname = "{name}"\ntable = "{name}s"\nmax_ids = 2\n'
            f'[tables.{name}s]\nkey = "{name}"\n'
            for name in weights
        )
    )
    hushtable.Model.build(path.with_suffix(".npz"), path, name="shop", spec=spec)
    return path


def test_a_models_calls_have_times_too(model: Path) -> None:
    with (
        hushtable.ServerProcess(model, "left", threads=1, window_us=LONG_WINDOW_US) as left,
        hushtable.ServerProcess(model, "right", threads=1) as right,
        hushtable.connect(left.url, right.url, model=True) as client,
    ):
        for call in (
            lambda: client.lookup({"user": [1]}, timeout=0.2),
            lambda: client.lookup_many([{"user": [1]}, {"item": [2]}], timeout=0.2),
            lambda: client["item"].lookup([1], timeout=0.2),
        ):
            with pytest.raises(ServerTimeout, match="did not answer within"):
                call()

        async def twins() -> None:
            async with await hushtable.connect_async(left.url, right.url, model=True) as twin:
                with pytest.raises(ServerTimeout):
                    await twin.lookup({"user": [1]}, timeout=0.2)
                with pytest.raises(ServerTimeout):
                    await twin["item"].lookup([1], timeout=0.2)
                # The error of one, as without asyncio.
                with pytest.raises(ServerTimeout):
                    await twin.lookup_many([{"user": [1]}] * 3, timeout=0.2)
                with pytest.raises(hushtable.IdOutOfRange):
                    await twin.lookup_many([{"user": [64]}] * 3)

        asyncio.run(twins())


def test_many_messages_have_one_time(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[float] = []

    class Slow:
        """Each message takes a while to begin."""

        def __init__(self, native: Any) -> None:
            self.native = native

        def __getattr__(self, name: str) -> Any:
            return getattr(self.native, name)

        def ask(self, *given: Any, timeout: float, **named: Any) -> Any:
            times.append(timeout)
            time.sleep(0.02)
            return self.native.ask(*given, timeout=timeout, **named)

    with (
        hushtable.ServerProcess(model, "left", threads=1) as left,
        hushtable.ServerProcess(model, "right", threads=1) as right,
        hushtable.connect(left.url, right.url, model=True) as client,
        stopped(right),
    ):
        monkeypatch.setattr(client, "_native", Slow(client._native))
        with pytest.raises(ServerTimeout):
            client.lookup_many([{"user": [1]}] * 100, timeout=0.3)
    assert times[0] == 0.3
    assert times[1] <= 0.28
    assert times == sorted(times, reverse=True)
    assert len(times) < 50, "none is begun after the end"


def test_an_upload_of_keys_is_in_the_calls_time(deployment: Deployment, tmp_path: Path) -> None:
    hushtable.Table.from_weight(deployment.weight[:64], name="few").save(tmp_path / "few")
    with (
        hushtable.ServerProcess(tmp_path / "few", scheme="onion", threads=1) as server,
        hushtable.connect(server=server.url, scheme="onion") as client,
    ):
        with pytest.raises(ServerTimeout):
            client.lookup([1], timeout=0.001)
        assert np.array_equal(client.lookup([1], timeout=HUNG_S), deployment.weight[[1]])


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    logs.drain()
    return [record.getMessage() for record in caplog.records if record.name == "hushtable.client"]


def test_the_log_says_who_is_connected_and_what_is_tried_again(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with deployment.connect() as client:
        version, urls = client.info.version[:16], (deployment.left.url, deployment.right.url)
        client.lookup([1])
    said = f"connected to {urls[0]}, {urls[1]} by pair: 'films', version {version}"
    assert messages(caplog) == [said], "what goes well is no event"
    caplog.clear()
    with held_port() as port:
        gone = f"https://127.0.0.1:{port}"
        tls = deployment.certificates.ca
        hushtable.connect([gone, urls[0]], urls[1], tls=tls).close()
    *tried, last = messages(caplog)
    assert (
        last == f"connected to {gone} or {urls[0]}, {urls[1]} by pair: 'films', version {version}"
    )
    # Once over a new connection, then the next of the list.
    assert tried[0] == f"{gone} is asked after UNREACHABLE: attempt 2"
    assert f"{urls[0]} is asked after UNREACHABLE: attempt 3" in tried


def test_the_log_says_that_a_version_has_changed(
    deployment: Deployment, other_bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hushtable.client")
    with held_port() as first, held_port() as second:
        sides = (("left", first), ("right", second))
        client = None
        for bundle in (deployment.bundle, other_bundle):
            left, right = (
                hushtable.ServerProcess(bundle, side, threads=1, port=port, addr="127.0.0.1:1")
                for side, port in sides
            )
            with left, right:
                client = client or hushtable.connect(left.url, right.url)
                known = client.info.version
                client.lookup([1])
        assert client is not None
        client.close()
    new = client.info.version
    assert new != known
    assert any(
        text.endswith(f"'films' has changed from version {known[:16]} to {new[:16]}")
        for text in messages(caplog)
    ), messages(caplog)


def test_the_log_says_a_refusals_code_and_no_id(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ids = [2713, 1999, 2467, 1877]
    tls = deployment.certificates
    with (
        deployment.waiting(keys_per_request_max=4, queue_keys_max=6, batch_keys_max=6) as left,
        hushtable.connect(left.url, deployment.right.url, tls=tls.ca) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        waits = pool.submit(client.lookup, ids, max_ids=4, timeout=HUNG_S)
        until_waiting(left, 4)
        with pytest.raises(hushtable.ServerBusy):
            client.lookup(ids, max_ids=4, timeout=1.0)
        with pytest.raises(hushtable.IdOutOfRange):
            client.lookup([ROWS + 2713])
        with pytest.raises(hushtable.TooManyIds):
            client.lookup(ids, max_ids=2)
        client.lookup(ids[:2], max_ids=2)
        rows = waits.result()
    said = messages(caplog)
    assert f"{left.url} refused a request: BUSY" in said, said
    assert any(f"{left.url} is asked after BUSY: attempt " in text for text in said), said
    everything = "\n".join(
        " ".join([record.getMessage(), repr(record.args), record.exc_text or ""])
        for record in caplog.records
    )
    # A version's digits may hold any number: an id stands alone.
    for secret in [*map(str, ids), str(ROWS + 2713), *(f"{number:.4f}" for number in rows[0])]:
        assert not re.search(rf"(?<![0-9a-z.]){re.escape(secret)}", everything), secret
    assert rows.shape == (4, DIM)


def test_a_handler_that_waits_or_asks_itself_holds_up_no_call(deployment: Deployment) -> None:
    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            rows.append(client.lookup([5]))
            time.sleep(1.0)

    rows: list[np.ndarray] = []
    handler, logger = Handler(), logging.getLogger("hushtable.client")
    tls = deployment.certificates
    with hushtable.ServerProcess(deployment.bundle, "right", tls=tls.server, threads=1) as right:
        urls = [right.url, deployment.right.url]
        client = hushtable.connect(deployment.left.url, urls, tls=tls.ca)
        client.lookup([1])
    logs.drain()
    logger.addHandler(handler)
    try:
        started = time.monotonic()
        assert np.array_equal(client.lookup([1]), deployment.weight[[1]])
        assert time.monotonic() - started < 0.9
        logs.drain()
    finally:
        logger.removeHandler(handler)
        client.close()
    assert rows
    assert np.array_equal(rows[0], deployment.weight[[5]])


def test_a_program_that_sets_no_log_up_sees_none_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("hushtable.client")
    assert any(isinstance(handler, logging.NullHandler) for handler in logger.handlers)
    with pytest.raises(hushtable.Error):
        hushtable.connect("http://127.0.0.1:1", "http://127.0.0.1:2")
    assert capfd.readouterr().err == ""
