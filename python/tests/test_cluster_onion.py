"""A cluster of a server that is asked alone: its file, its servers, on a Ray cluster too."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cluster_keeper import real_side, until
from test_cluster_ray import CLUSTER_HUNG_S, Ray, is_back, kill, parent_of, server

import hushtable
from hushtable.cluster import Cluster, OtherSide, read_cluster, read_source
from hushtable.cluster.connection import check_other_side
from hushtable.cluster.spec import setting_flags
from hushtable.errors import ConfigError, FetchError, ShardMapError
from hushtable.shards import plan_shards, read_shards

ROWS, DIM = 50_000, 16
RECORD: dict[str, Any] = {
    "scheme": "onion",
    "source": "/models/clicks",
    "folder": "/var/lib/hushtable",
    "shards": {"settings": {"threads": 1, "keep_old_s": 3, "parameters": "n4096_128"}},
    "fronts": {"port": 0, "metrics_port": 0},
}


def make_model(folder: Path, seed: int) -> Path:
    values = np.random.default_rng(seed).normal(size=(ROWS, DIM)).astype(np.float32)
    folder.mkdir()
    items = hushtable.Table.from_weight(values, name="items")
    hushtable.Model.of_table(items, folder / "clicks", max_ids=4)
    plan_shards(folder / "clicks", scheme="onion", shards=2)
    return folder / "clicks"


# The file and the source.


def test_a_file_of_a_server_that_is_asked_alone(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text("""
        scheme = "onion"
        source = "models/clicks"
        folder = "/data"
        [shards]
        settings = { mapped = true, keys_memory_bytes_max = "2GiB" }
        [fronts]
        count = 3
    """)
    found = read_cluster(tmp_path / "cluster.toml")
    assert (found.scheme, found.side, found.namespace) == ("onion", "single", "hushtable-single")
    assert found == Cluster.of_record(json.loads(json.dumps(found.record)))
    flags = setting_flags(found.shards.settings, found.scheme)
    assert flags == ["--mapped", "--keys-memory-bytes-max", "2GiB"]
    # A pair's has no such setting, and neither has the other's.
    pair = Cluster.of_record({"side": "left", "source": "/m", "folder": "/f"})
    assert pair.scheme == "pair"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scheme": "single"}, "scheme must be pair or onion"),
        ({"side": "left"}, "side is 'left'.*one server alone: leave it out"),
        ({"scheme": "pair"}, "side must be left or right, not None"),
        ({"shards": {"settings": {"prgs": ["aes128"]}}}, "prgs"),
        ({"shards": {"settings": {"shards": 2}}}, "shards.settings.shards is not to be set"),
        ({"fronts": {"settings": {"keys_folder": "/k"}}}, "keys_folder is not to be set"),
        ({"shards": {"settings": {"prepared": "/k"}}}, "prepared is not to be set"),
    ],
)
def test_a_file_that_makes_no_sense(changes: dict[str, Any], says: str) -> None:
    Cluster.of_record(RECORD)
    with pytest.raises(ConfigError, match=says):
        Cluster.of_record({**RECORD, **changes})


def test_a_file_of_both_sides_is_refused_here_too() -> None:
    with pytest.raises(OtherSide):
        Cluster.of_record({**RECORD, "side": ["left", "right"]})


def test_a_source_has_a_map_of_the_scheme(tmp_path: Path) -> None:
    model = make_model(tmp_path / "a", 1)
    found = read_source(str(model), "onion")
    assert (found.name, found.shards) == ("clicks", 2)
    assert found.version == read_shards(model, scheme="onion").model
    with pytest.raises(FetchError, match="hushtable shard plan`"):
        read_source(str(model))
    plan_shards(model, shards=3)
    assert read_source(str(model)).shards == 3
    assert read_source(str(model), "onion") == found
    shutil.copy(model / "shards.json", model / "shards.onion.json")
    with pytest.raises(ShardMapError, match="for pair, not for onion"):
        read_source(str(model), "onion")


class _Ray:
    """Ray, as far as it says which actors there are."""

    def __init__(self, *namespaces: str) -> None:
        self.util, self._namespaces = self, namespaces

    def list_named_actors(self, *, all_namespaces: bool) -> list[dict[str, str]]:
        assert all_namespaces
        return [{"namespace": one, "name": "coordinator"} for one in self._namespaces]


def test_it_has_no_other_side() -> None:
    check_other_side(_Ray("hushtable-left", "hushtable-right"), "single")
    check_other_side(_Ray("hushtable-single"), "left")
    with pytest.raises(OtherSide):
        check_other_side(_Ray("hushtable-left", "hushtable-single"), "right")


# Its servers.


def check_rows(url: str, tls: Any, seeds: tuple[int, ...]) -> int:
    """That a new client gets rows of one of these models; which."""
    ids = [0, ROWS // 2 - 1, ROWS // 2, ROWS - 1]
    with hushtable.connect(
        server=url, tls=tls, options=hushtable.ClientOptions(max_ids=4)
    ) as client:
        rows = np.asarray(client.lookup(ids))
    for seed in seeds:
        values = np.random.default_rng(seed).normal(size=(ROWS, DIM)).astype(np.float32)
        if np.array_equal(rows, values[ids]):
            return seed
    raise AssertionError(f"rows of no version: {rows}")


def test_keepers_of_real_servers(tmp_path: Path) -> None:
    """Without Ray, and without TLS: shards serve what they fetched, a front serves by them."""
    model = make_model(tmp_path / "model", 1)
    source = read_source(str(model), "onion")
    copies = tmp_path / "copies"
    with real_side(source, copies, scheme="onion") as (keepers, front):
        assert check_rows(str(front.url), None, (1,)) == 1
        shard = until(keepers[0], lambda report: report.queue_s is not None)
        assert shard.versions == (source.version,)
        # Each has its own part of the model, and no other's.
        for shard_number in (0, 1):
            folder = copies / f"single-shard-{shard_number}-replica-0"
            (copy,) = (folder / "models").glob("clicks-*")
            rows = copy / "tables" / "items" / "rows.safetensors"
            assert rows.stat().st_blocks * 512 < rows.stat().st_size * 0.6
        assert (copies / "single-front-0" / "keys").is_dir()


@pytest.mark.skipif(
    os.environ.get("HUSHTABLE_SCALE_LONG") != "1",
    reason="a Ray cluster and five servers, for a minute: HUSHTABLE_SCALE_LONG=1 runs it",
)
def test_lookups_through_kills_and_a_change_of_versions(tmp_path: Path) -> None:
    models = [make_model(tmp_path / str(seed), seed) for seed in (1, 2)]
    files = hushtable.make_certificates(tmp_path / "certificates", side="single")
    (tmp_path / "ray").mkdir()
    ray = Ray(tmp_path / "ray", [2, 2], secrets.token_hex(32))
    try:
        ray.ask("connect", "single")
        part = {"num_cpus": 0.5, "host": "127.0.0.1", "settings": {"threads": 1, "keep_old_s": 3}}
        shard = {"cert": str(files.shard_certificate), "key": str(files.shard_key)}
        front = {"cert": str(files.front_certificate), "key": str(files.front_key)}
        base = {name: value for name, value in ray.record().items() if name != "side"}
        wanted = {
            **base,
            "scheme": "onion",
            "source": str(models[0]),
            "command": ["hushtable"],
            "watch": {"every_s": 1},
            "shards": {"replicas_min": 2, **part, "tls": {**shard, "client_ca": str(files.ca)}},
            "fronts": {
                **{"count": 1, "port": 0, "metrics_port": 0, **part},
                "tls": {"cert": str(files.certificate), "key": str(files.key)},
                "to_shards": {**front, "ca": str(files.ca)},
            },
        }
        found = ray.ask("up", wanted, None, CLUSTER_HUNG_S)
        assert found["side"] == "single"
        url = server(found, "front-0")["url"]

        def look_up() -> int:
            return check_rows(url, files.ca, (1, 2))

        assert look_up() == 1
        for name, is_worker in (("shard-0-replica-0", False), ("shard-1-replica-1", True)):
            before = server(ray.ask("look"), name)
            kill(parent_of(before["pid"]) if is_worker else before["pid"])
            # At least one while it is gone, however soon it is back.
            assert look_up() == 1
            while not ((state := ray.ask("look")) and is_back(state, before)):
                assert look_up() == 1
        version = read_shards(models[1], scheme="onion").model
        ray.ask("up", {**wanted, "source": str(models[1])}, None, 0)
        kill(ray.coordinator_pid())
        by = time.monotonic() + CLUSTER_HUNG_S
        while True:
            look_up()
            state = ray.ask("look")
            if state and state["phase"] == "steady" and state["version"] == version:
                break
            assert time.monotonic() < by, state
        while look_up() != 2:
            assert time.monotonic() < by
        state = ray.until(lambda found: all(one["held"] == 1 for one in found["servers"]))
        assert {one["versions"][-1] for one in state["servers"]} == {version}
        ray.ask("down", wanted)
        assert ray.ask("actors") == {"actors": [], "groups": []}
    finally:
        ray.close()
