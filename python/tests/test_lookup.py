"""Private lookups over two real server processes and TLS."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest
from conftest import DIM, ROWS, Deployment
from waiting import LONG_WINDOW_US, until_waiting

import hushtable
from hushtable.nn import PrivateEmbedding, PrivateEmbeddingBag


@pytest.mark.parametrize(
    "ids",
    [
        0,
        ROWS - 1,
        [5],
        [7, 7, 7],
        [[1, 2, 3], [2999, 0, 511]],
        (10, 20),
        range(40),
        np.arange(100, dtype=np.int16).reshape(4, 25),
        np.array([[[512]]], dtype=np.uint64),
        np.arange(64)[::3],
        [],
        np.zeros((2, 0), dtype=np.int64),
    ],
)
def test_rows_come_back_in_the_shape_of_the_ids(
    client: hushtable.Client, weight: np.ndarray, ids: Any
) -> None:
    rows = client.lookup(ids)
    expected = weight[np.asarray(ids, dtype=np.int64)]
    assert rows.dtype == np.float32
    assert rows.shape == expected.shape
    assert np.array_equal(rows, expected)


def test_random_ids(client: hushtable.Client, weight: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 63, 64, 65, 300):
        ids = rng.integers(ROWS, size=count)
        assert np.array_equal(client.lookup(ids, max_ids=512), weight[ids])


def test_a_tensor_is_taken_for_ids(client: hushtable.Client, weight: np.ndarray) -> None:
    class Tensor:
        """What the package asks of a tensor, wherever it lies."""

        def detach(self) -> Tensor:
            return self

        def cpu(self) -> Tensor:
            return self

        def numpy(self) -> np.ndarray:
            return np.array([[3, 4]])

    assert np.array_equal(client.lookup(Tensor()), weight[[[3, 4]]])


def test_info_is_the_tables(client: hushtable.Client, deployment: Deployment) -> None:
    assert client.info == hushtable.Table.open(deployment.bundle).info
    assert client.keys_per_request_max >= 512
    assert "'films', 3000 rows x 24 f32" in repr(client)


def test_what_a_server_sees_depends_on_max_ids_alone(client: hushtable.Client) -> None:
    seen = []
    for ids in ([1], [1, 2, 3, 4, 5], [9, 9], []):
        _, stats = client.lookup_with_stats(ids, max_ids=8)
        assert (stats.ids, stats.keys) == (len(ids), 8)
        seen.append((stats.bytes_up, stats.bytes_down))
    assert len(set(seen)) == 1
    assert seen[0][1] == 2 * 8 * DIM * 4


def test_without_max_ids_the_next_power_of_two_is_sent(client: hushtable.Client) -> None:
    keys = [client.lookup_with_stats(range(count))[1].keys for count in (0, 1, 2, 3, 4, 5, 33)]
    assert keys == [1, 1, 2, 4, 4, 8, 64]


def test_max_ids_of_the_connection(deployment: Deployment) -> None:
    with deployment.connect(max_ids=16) as client:
        assert client.lookup_with_stats([1])[1].keys == 16
        assert client.lookup_with_stats([1], max_ids=4)[1].keys == 4


def test_stats_are_of_this_threads_last_lookup(client: hushtable.Client) -> None:
    _, stats = client.lookup_with_stats([1, 2], max_ids=4)
    assert client.last_stats == stats
    assert 0 < stats.answer_seconds < stats.seconds
    assert stats.retries == 0
    seen = []
    thread = threading.Thread(target=lambda: seen.append(client.last_stats))
    thread.start()
    thread.join()
    assert seen == [None]


def test_threads_share_a_client(client: hushtable.Client, weight: np.ndarray) -> None:
    def run(seed: int) -> bool:
        ids = np.random.default_rng(seed).integers(ROWS, size=(4, 5))
        return bool(np.array_equal(client.lookup(ids), weight[ids]))

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(run, range(100)))


@contextlib.contextmanager
def waiting_servers(
    deployment: Deployment, **options: Any
) -> Iterator[tuple[hushtable.ServerProcess, hushtable.ServerProcess]]:
    """Two that wait for company for longer than any test takes."""
    tls = deployment.certificates.server
    options = {"tls": tls, "threads": 1, "window_us": LONG_WINDOW_US, **options}
    with (
        hushtable.ServerProcess(deployment.bundle, "left", **options) as left,
        hushtable.ServerProcess(deployment.bundle, "right", **options) as right,
    ):
        yield left, right


def test_a_lookup_lets_other_threads_run(deployment: Deployment, weight: np.ndarray) -> None:
    # Servers that wait a minute for company: meanwhile this thread must count on.
    with waiting_servers(deployment, batch_keys_max=2) as (left, right):
        ca = deployment.certificates.ca
        with (
            hushtable.connect(
                left.url, right.url, tls=ca, options=hushtable.ClientOptions(timeout=600)
            ) as client,
            ThreadPoolExecutor(1) as pool,
        ):
            found = pool.submit(client.lookup, [1])
            for server in (left, right):
                until_waiting(server, 1)
            for _ in range(20):
                time.sleep(0.01)
            assert not found.done()
            # Company: the pass is full.
            assert np.array_equal(client.lookup([2]), weight[[2]])
            assert np.array_equal(found.result(), weight[[1]])


@pytest.mark.parametrize("name", ["once", "pool"])
def test_fork_leaves_both_processes_with_a_working_client(
    deployment: Deployment, weight: np.ndarray, tmp_path: Path, name: str
) -> None:
    servers = (deployment.left.url, deployment.right.url)
    forked.run(name, weight, tmp_path, *servers, tls=deployment.certificates.ca)


def test_a_closed_client_says_so(deployment: Deployment) -> None:
    client = deployment.connect()
    client.close()
    client.close()
    assert client.info.rows == ROWS
    with pytest.raises(hushtable.ConfigError, match="closed: connect again"):
        client.lookup([1])


@pytest.mark.parametrize("prg", ["aes128", "chacha20", "chacha12"])
def test_generators(deployment: Deployment, weight: np.ndarray, prg: str) -> None:
    with deployment.connect(prg=prg) as client:
        assert np.array_equal(client.lookup([1, 2999]), weight[[1, 2999]])


@pytest.mark.parametrize("dtype", ["f16", "bf16", "int8", "int4", "int2/32", "fp8_e4m3"])
def test_rows_of_each_dtype_are_those_of_the_table(
    tmp_path: Any, weight: np.ndarray, dtype: str
) -> None:
    table = hushtable.Table.from_weight(weight[:700], name="films", dtype=dtype)
    table.save(tmp_path / "films")
    with (
        hushtable.ServerProcess(tmp_path / "films", "left", threads=1) as left,
        hushtable.ServerProcess(tmp_path / "films", "right", threads=1) as right,
        hushtable.connect(left.url, right.url) as client,
    ):
        assert client.info == table.info
        ids = [[0, 699], [350, 1]]
        assert np.array_equal(client.lookup(ids), table.rows(ids))


def test_layers_over_servers(client: hushtable.Client, weight: np.ndarray) -> None:
    ids = np.array([[1, 2, 0], [2999, 0, 0]])
    clear = hushtable.Table.from_weight(weight)
    for source in (client, clear):
        rows = np.asarray(PrivateEmbedding(source, padding_idx=0, max_ids=8)(ids))
        assert np.array_equal(rows, weight[ids] * (ids != 0)[..., None])
    bags = [
        np.asarray(PrivateEmbeddingBag(source, "mean", padding_idx=0)(ids))
        for source in (client, clear)
    ]
    assert np.array_equal(bags[0], bags[1])


def test_asyncio_lookups_run_side_by_side(deployment: Deployment, weight: np.ndarray) -> None:
    async def run() -> None:
        client = await hushtable.connect_async(
            deployment.left.url, deployment.right.url, tls=deployment.certificates.ca
        )
        async with client:
            assert client.info.dim == DIM
            found = await asyncio.gather(*(client.lookup([[i], [i + 9]]) for i in range(50)))
            for i, rows in enumerate(found):
                assert np.array_equal(rows, weight[[[i], [i + 9]]])
            rows, stats = await client.lookup_with_stats([], max_ids=4)
            assert (rows.shape, stats.keys) == ((0, DIM), 4)
            with pytest.raises(hushtable.IdOutOfRange):
                await client.lookup([ROWS])

    asyncio.run(run())


def test_an_asyncio_lookup_can_be_cancelled(deployment: Deployment, weight: np.ndarray) -> None:
    async def run() -> None:
        ca = deployment.certificates.ca
        with waiting_servers(deployment, batch_keys_max=2) as (left, right):
            client = await hushtable.connect_async(
                left.url, right.url, tls=ca, options=hushtable.ClientOptions(timeout=600)
            )
            async with client:
                started = time.perf_counter()
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(client.lookup([1]), 0.2)
                # It would have had its answer after a minute.
                assert time.perf_counter() - started < 30
                assert np.array_equal(await client.lookup([2, 3]), weight[[2, 3]])

    asyncio.run(run())


@pytest.mark.parametrize("isa", ["portable", "avx2"])
def test_every_instruction_set_gives_the_same_rows(
    deployment: Deployment, client: hushtable.Client, isa: str
) -> None:
    tls = deployment.certificates
    options: dict[str, Any] = {"tls": tls.server, "threads": 1, "env": {"HUSHTABLE_ISA": isa}}
    ids = np.random.default_rng(5).integers(ROWS, size=40)
    with (
        hushtable.ServerProcess(deployment.bundle, "left", **options) as left,
        hushtable.connect(left.url, deployment.right.url, tls=tls.ca) as mixed,
    ):
        # Left on this tier, right on the machine's best: their shares must fit together.
        assert np.array_equal(mixed.lookup(ids), client.lookup(ids))
        assert np.array_equal(mixed.lookup(5), client.lookup(5))
