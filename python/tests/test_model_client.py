"""Clients of models, against real servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import hushtable
from hushtable.model import Model

USERS, ITEMS, DIM = 300, 1200, 8
MAX_IDS = {"user": 1, "item": 6, "seen": 6}


def weights(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "users": random.normal(size=(USERS, DIM)).astype(np.float32),
        "items": random.normal(size=(ITEMS, 2 * DIM)).astype(np.float32),
    }


def build(out: Path, seed: int, name: str = "clicks") -> Path:
    checkpoint = out.with_suffix(".npz")
    np.savez(checkpoint, **weights(seed))
    features = {"user": "users", "item": "items", "seen": "items"}
    spec = out.with_suffix(".toml")
    spec.write_text(
        "".join(
            f'[[feature]]\nname = "{feature}"\ntable = "{table}"\nmax_ids = {MAX_IDS[feature]}\n'
            for feature, table in features.items()
        )
        + '[tables.users]\nkey = "users"\n[tables.items]\nkey = "items"\n'
    )
    Model.build(checkpoint, out, name=name, spec=spec)
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    return build(folder / "clicks", 1)


@pytest.fixture(scope="module")
def newer(folder: Path) -> Path:
    return build(folder / "newer", 2)


Urls = tuple[str, str]


@contextmanager
def served(
    left: Path, right: Path, addrs: Urls = ("127.0.0.1:0",) * 2, **options: object
) -> Iterator[Urls]:
    with (
        hushtable.ServerProcess(left, "left", threads=1, addr=addrs[0], **options) as one,
        hushtable.ServerProcess(right, "right", threads=1, addr=addrs[1], **options) as other,
    ):
        yield one.url, other.url


def addresses(urls: Urls) -> Urls:
    return urls[0].removeprefix("http://"), urls[1].removeprefix("http://")


@pytest.fixture(scope="module")
def urls(model: Path) -> Iterator[Urls]:
    with served(model, model) as urls:
        yield urls


def test_one_call_fetches_every_feature_in_the_ids_shapes(model: Path, urls: Urls) -> None:
    table = weights(1)
    with hushtable.connect(*urls, model="clicks") as client:
        asked = {"item": [[3, 14], [1199, 3]], "user": 7, "seen": np.arange(6)}
        rows = client.lookup(asked)
        assert list(rows) == ["item", "user", "seen"]
        assert np.array_equal(rows["item"], table["items"][asked["item"]])
        assert np.array_equal(rows["user"], table["users"][7])
        assert np.array_equal(rows["seen"], table["items"][:6])
        version = Model.open(model).version
        assert client.info.version == version
        stats = client.last_stats
        assert stats is not None
        assert (stats.version, stats.ids, stats.keys) == (version, 11, 13)


def test_what_is_sent_says_nothing_of_what_was_asked(urls: Urls) -> None:
    with hushtable.connect(*urls, model=True) as client:
        sizes = set()
        for asked in ({}, {"user": []}, {"item": [1] * 6, "user": [2], "seen": [3]}):
            _, stats = client.lookup_with_stats(asked)
            sizes.add((stats.bytes_up, stats.bytes_down, stats.keys))
        assert len(sizes) == 1


def test_what_the_model_says_of_its_features(urls: Urls) -> None:
    with hushtable.connect(*urls, model="clicks") as client:
        assert {name: one.max_ids for name, one in client.features.items()} == MAX_IDS
        assert [one.table for one in client.features.values()] == ["users", "items", "items"]
        assert client["seen"].info.rows == ITEMS
        assert client["user"].max_ids == 1
        assert "3 features of 2 tables" in repr(client)


def test_a_feature_is_a_client_of_its_table(urls: Urls) -> None:
    with hushtable.connect(*urls, model="clicks") as client:
        rows, stats = client["item"].lookup_with_stats([[5], [6]])
        assert np.array_equal(rows, weights(1)["items"][[[5], [6]]])
        assert stats.keys == MAX_IDS["item"]
        assert np.array_equal(client["user"].lookup([9], max_ids=4), weights(1)["users"][[9]])


def test_many_inferences_at_once(urls: Urls) -> None:
    inferences = [{"user": [n], "item": [n, n + 1]} for n in range(40)]
    with hushtable.connect(*urls, model="clicks") as client:
        for n, rows in enumerate(client.lookup_many(inferences)):
            assert np.array_equal(rows["item"], weights(1)["items"][[n, n + 1]])
            assert np.array_equal(rows["user"], weights(1)["users"][[n]])
        assert client.lookup_many([]) == []
        with pytest.raises(hushtable.IdOutOfRange):
            client.lookup_many([*inferences, {"user": [USERS]}])


def test_asyncio(urls: Urls) -> None:
    async def look_up() -> None:
        async with await hushtable.connect_async(*urls, model="clicks") as client:
            rows = await client.lookup({"user": [4], "item": [8]})
            assert np.array_equal(rows["item"], weights(1)["items"][[8]])
            many = await client.lookup_many([{"user": [n]} for n in range(5)])
            assert [tuple(rows) for rows in many] == [("user",)] * 5
            assert np.array_equal(await client["seen"].lookup(3), weights(1)["items"][3])
            with pytest.raises(hushtable.UnknownFeature):
                await client.lookup({"cart": [1]})

    asyncio.run(look_up())


def test_what_cannot_be_asked_names_the_feature_and_the_remedy(urls: Urls) -> None:
    with hushtable.connect(*urls, model="clicks") as client:
        with pytest.raises(hushtable.UnknownFeature, match="user") as unknown:
            client.lookup({"cart": [1]})
        assert unknown.value.feature == "cart"
        with pytest.raises(hushtable.UnknownFeature):
            client["cart"]
        with pytest.raises(hushtable.TooManyIds, match="max_ids") as many:
            client.lookup({"item": range(7)})
        assert (many.value.feature, many.value.ids, many.value.max_ids) == ("item", 7, 6)
        with pytest.raises(hushtable.IdOutOfRange) as range_:
            client.lookup({"user": [USERS]})
        assert (range_.value.feature, range_.value.id, range_.value.rows) == ("user", USERS, USERS)
        with pytest.raises(hushtable.BadIds):
            client.lookup({"user": [0.5]})
        for asked in ([1, 2], ["user"], 3, None):
            with pytest.raises(hushtable.BadIds, match="ids by its features' names"):
                client.lookup(asked)
        with pytest.raises(hushtable.BadIds, match="ids by its features' names"):
            client.lookup_many({"user": [1]})


def test_models_that_are_not_there_and_options_that_do_not_fit(
    urls: Urls, model: Path, newer: Path
) -> None:
    with pytest.raises(hushtable.UnknownModel, match="clicks"):
        hushtable.connect(*urls, model="films")
    with pytest.raises(hushtable.UnknownModel):
        hushtable.connect(*urls)  # several tables, and nothing named
    with pytest.raises(hushtable.ConfigError, match="leave max_ids out"):
        hushtable.connect(*urls, model="clicks", options=hushtable.ClientOptions(max_ids=3))
    with pytest.raises(hushtable.ConfigError, match="two servers"):
        hushtable.connect(server=urls[0], model="clicks")  # type: ignore[call-overload]
    with pytest.raises(hushtable.ConfigError, match="version"):
        hushtable.connect(*urls, model="clicks", version="xyz")
    with pytest.raises(hushtable.ConfigError, match="leave version out"):
        hushtable.connect(*urls, model=model, version=Model.open(newer).version)


def test_left_and_right_with_different_models(model: Path, newer: Path) -> None:
    with (
        served(model, newer) as urls,
        pytest.raises(hushtable.VersionMismatch, match="clicks") as differ,
    ):
        hushtable.connect(*urls, model="clicks")
    expected = (Model.open(model).version, Model.open(newer).version)
    assert (differ.value.left, differ.value.right) == expected


def test_a_pin_holds_through_a_restart_and_without_one_the_version_is_said(
    model: Path, newer: Path
) -> None:
    old, new = Model.open(model).version, Model.open(newer).version
    with served(model, model) as urls:
        pinned = hushtable.connect(*urls, model=model)
        by_manifest = hushtable.connect(*urls, model=model / "model.json")
        by_version = hushtable.connect(*urls, model="clicks", version=old)
        free = hushtable.connect(*urls, model="clicks")
        clients = (pinned, by_manifest, by_version, free)
        for client in clients:
            assert np.array_equal(client.lookup({"user": [1]})["user"], weights(1)["users"][[1]])
            assert client.last_stats is not None
            assert client.last_stats.version == old
        with pytest.raises(hushtable.VersionMismatch) as other:
            hushtable.connect(*urls, model=newer)
        assert (other.value.expected, other.value.found) == (new, old)
    with served(newer, newer, addresses(urls)):
        for client in (pinned, by_manifest, by_version):
            for _ in range(2):
                with pytest.raises(hushtable.VersionMismatch) as moved:
                    client.lookup({"user": [1]})
                assert moved.value.expected == old
        assert np.array_equal(free.lookup({"user": [1]})["user"], weights(2)["users"][[1]])
        assert free.last_stats is not None
        assert (free.last_stats.version, free.info.version) == (new, new)
    for client in clients:
        client.close()


def test_a_pin_of_a_table(bundle: Path, other_bundle: Path, weight: np.ndarray) -> None:
    version = hushtable.Table.open(bundle).info.version
    with served(bundle, bundle) as urls:
        pinned = hushtable.connect(*urls, version=version)
        free = hushtable.connect(*urls)
        assert np.array_equal(pinned.lookup([1]), weight[[1]])
        with pytest.raises(hushtable.VersionMismatch):
            hushtable.connect(*urls, version="0" * 64)
    with served(other_bundle, other_bundle, addresses(urls)), pinned, free:
        with pytest.raises(hushtable.VersionMismatch) as moved:
            pinned.lookup([1])
        assert moved.value.expected == version
        rows, stats = free.lookup_with_stats([1])
        assert np.array_equal(rows, weight[[1]] + 1)
        assert stats.version == hushtable.Table.open(other_bundle).info.version


def test_several_bundles_at_one_address(model: Path, bundle: Path, weight: np.ndarray) -> None:
    with served(model, model, tables=[bundle]) as urls:
        with hushtable.connect(*urls, model="clicks") as client:
            assert np.array_equal(client.lookup({"user": [3]})["user"], weights(1)["users"][[3]])
        version = hushtable.Table.open(bundle).info.version
        with hushtable.connect(*urls, version=version) as alone:
            assert alone.info.name == "films"
            assert np.array_equal(alone.lookup([2999]), weight[[2999]])


def test_tables_beyond_the_budget_are_refused_by_name(model: Path) -> None:
    with pytest.raises(hushtable.ConfigError, match="tables_bytes_max") as refused:
        hushtable.ServerProcess(model, "left", tables_bytes_max=1000).start()
    assert "feature" in str(refused.value)
