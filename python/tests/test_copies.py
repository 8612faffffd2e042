"""Copies of clients and tables: by pickle, by copy, in processes of their own."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Deployment

import hushtable
from hushtable.nn import PrivateEmbedding, PrivateEmbeddingBag


@pytest.mark.parametrize("again", [copy.deepcopy, copy.copy])
def test_a_copied_client_connects_by_itself(
    deployment: Deployment, weight: np.ndarray, again: Any
) -> None:
    client = deployment.connect(
        max_ids=4, version=hushtable.Table.open(deployment.bundle).info.version
    )
    other = again(client)
    client.close()
    assert np.array_equal(other.lookup([1, 2999]), weight[[1, 2999]])
    assert other.last_stats.keys == 4, "the padding came along"
    other.close()
    with pytest.raises(hushtable.ConfigError, match="cannot be copied or pickled: it is closed"):
        again(client)


def test_a_pickled_client_holds_its_servers_to_the_same(
    deployment: Deployment, weight: np.ndarray, other_bundle: Path
) -> None:
    pinned = hushtable.Table.open(deployment.bundle).info.version
    with deployment.connect(version=pinned) as client:
        bytes_of = pickle.dumps(client)
    assert b"PRIVATE KEY" not in bytes_of
    with pickle.loads(bytes_of) as other:
        assert np.array_equal(other.lookup([7]), weight[[7]])
    # The same URLs, by now of another table: the pin holds.
    elsewhere = hushtable.Table.open(other_bundle).info.version
    assert elsewhere != pinned
    changed = bytes_of.replace(pinned.encode(), elsewhere.encode())
    assert changed != bytes_of
    with pytest.raises(hushtable.VersionMismatch):
        pickle.loads(changed)


def _look_up(client: hushtable.Client, ids: list[int]) -> np.ndarray:
    with client:
        return client.lookup(ids)


def test_a_client_goes_to_a_spawned_process(deployment: Deployment, weight: np.ndarray) -> None:
    with (
        deployment.connect() as client,
        multiprocessing.get_context("spawn").Pool(1) as pool,
    ):
        rows = pool.apply(_look_up, (client, [5, 6]))
        assert np.array_equal(rows, weight[[5, 6]])
        assert np.array_equal(client.lookup([5]), weight[[5]]), "the first is still open"


def test_a_single_servers_client_makes_keys_of_its_own(
    bundle: Path, certificates: hushtable.Certificates, weight: np.ndarray
) -> None:
    with (
        hushtable.ServerProcess(
            bundle, scheme="onion", tls=certificates.server, threads=1
        ) as server,
        hushtable.connect(server=server.url, tls=certificates.ca) as client,
        copy.deepcopy(client) as other,
    ):
        assert np.array_equal(client.lookup([9]), weight[[9]])
        before = client.last_stats.bytes_up
        assert np.array_equal(other.lookup([9]), weight[[9]])
        # An upload that found its keys there would have been cheaper.
        assert other.last_stats.bytes_up == before


def test_a_client_of_asyncio_stays_where_it_is(deployment: Deployment) -> None:
    async def copied() -> None:
        async with await hushtable.connect_async(
            deployment.left.url, deployment.right.url, tls=deployment.certificates.ca
        ) as client:
            with pytest.raises(hushtable.ConfigError, match="connect_async"):
                copy.deepcopy(client)
            for layer in (PrivateEmbedding, PrivateEmbeddingBag):
                with pytest.raises(hushtable.ConfigError, match="cannot wait for a AsyncClient"):
                    layer(client)  # type: ignore[arg-type]

    asyncio.run(copied())


def test_a_table_is_opened_again_or_goes_along(
    bundle: Path, other_bundle: Path, weight: np.ndarray
) -> None:
    opened = pickle.loads(pickle.dumps(hushtable.Table.open(bundle)))
    assert np.array_equal(opened.rows([4]), weight[[4]])
    for dtype in ("f32", "f16", "bf16", "int8", "int4", "int2/32", "fp8_e4m3"):
        table = hushtable.Table.from_weight(weight[:9], dtype=dtype)
        same = pickle.loads(pickle.dumps(table))
        assert same.info == table.info
    pickled = pickle.dumps(hushtable.Table.open(bundle))
    version = hushtable.Table.open(bundle).info.version
    other = hushtable.Table.open(other_bundle).info.version
    with pytest.raises(hushtable.TableError, match=f"is of version {version} by now"):
        pickle.loads(pickled.replace(version.encode(), other.encode()))


def test_a_layer_without_torch_is_copied_too(weight: np.ndarray) -> None:
    layer = PrivateEmbedding(hushtable.Table.from_weight(weight[:20]), padding_idx=0)
    other = copy.deepcopy(layer)
    assert other.handle != layer.handle
    assert np.array_equal(np.asarray(other(np.array([3, 0]))), np.asarray(layer(np.array([3, 0]))))
