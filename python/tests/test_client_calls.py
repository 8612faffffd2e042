"""Calls as services make them: a time for each, calls that are given up."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import Deployment
from waiting import HUNG_S, LONG_WINDOW_US, metric, until, until_waiting

import hushtable
from hushtable.errors import ConfigError, ServerTimeout

#: A pass of the slow server.
FULL = 6


@pytest.fixture
def slow(deployment: Deployment) -> Iterator[hushtable.ServerProcess]:
    """A left server that waits for a full pass."""
    with hushtable.ServerProcess(
        deployment.bundle,
        "left",
        tls=deployment.certificates.server,
        threads=1,
        window_us=LONG_WINDOW_US,
        batch_keys_max=FULL,
    ) as server:
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

        asyncio.run(twins())


def test_an_upload_of_keys_is_in_the_calls_time(deployment: Deployment, tmp_path: Path) -> None:
    hushtable.Table.from_weight(deployment.weight[:64], name="few").save(tmp_path / "few")
    with (
        hushtable.ServerProcess(tmp_path / "few", scheme="onion", threads=1) as server,
        hushtable.connect(server=server.url, scheme="onion") as client,
    ):
        with pytest.raises(ServerTimeout):
            client.lookup([1], timeout=0.001)
        assert np.array_equal(client.lookup([1], timeout=HUNG_S), deployment.weight[[1]])
