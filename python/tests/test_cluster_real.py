"""A side's cluster with the real command: lookups through its front, while servers are killed.

Left's servers are placed by Ray, on raylets of this machine; right is one server of the model.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from test_cluster_keeper import real_side, until
from test_cluster_ray import CLUSTER_HUNG_S, Ray, is_back, kill, parent_of, server

import hushtable
from hushtable import _native
from hushtable.cli import app
from hushtable.cluster import read_source
from hushtable.shards import plan_shards

ROWS, DIM = 3000, 8


def takes(*path: str, option: str) -> bool:
    """Whether the command has an option."""
    command: Any = typer.main.get_command(app)
    for name in path:
        command = getattr(command, "commands", {}).get(name)
    return any(option in parameter.opts for parameter in getattr(command, "params", ()))


NEEDED = [
    (("serve",), "--shard"),
    (("serve",), "--shards-file"),
    (("serve",), "--exit-with-parent"),
    (("shard", "fetch"), "--shard"),
    (("shard", "plan"), "--shards"),
]
# The module that they need, too: sources may be ahead of what was built.
BUILT = all(hasattr(_native, name) for name in ("shard_heads", "exit_with_parent"))
MISSING = [" ".join((*path, option)) for path, option in NEEDED if not takes(*path, option=option)]
pytestmark = pytest.mark.skipif(
    bool(MISSING) or not BUILT, reason=f"the command has no {MISSING or 'native part of it'}"
)


def make_model(folder: Path, values: np.ndarray) -> Path:
    tables = folder / "tables"
    tables.mkdir(parents=True)
    np.save(tables / "items.npy", values)
    hushtable.Model.build(tables, folder / "clicks", max_ids=4)
    plan_shards(folder / "clicks", shards=2, replicas=2)
    return folder / "clicks"


@pytest.fixture(scope="module")
def values() -> list[np.ndarray]:
    made = np.random.default_rng(7).normal(size=(2, ROWS, DIM)).astype(np.float32)
    return [made[0], made[1]]


@pytest.fixture(scope="module")
def models(values: list[np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    return [make_model(folder / str(index), one) for index, one in enumerate(values)]


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ray]:
    found = Ray(tmp_path_factory.mktemp("ray"), [2, 2], secrets.token_hex(32))
    try:
        found.ask("connect", "left")
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def certificates(ray: Ray) -> hushtable.Certificates:
    return hushtable.make_certificates(ray.folder / "certificates", side="left")


def record(ray: Ray, files: hushtable.Certificates, model: Path) -> dict[str, Any]:
    part = {"num_cpus": 0.5, "host": "127.0.0.1", "settings": {"threads": 1, "keep_old_s": 15}}
    shard = {"cert": str(files.shard_certificate), "key": str(files.shard_key)}
    front = {"cert": str(files.front_certificate), "key": str(files.front_key)}
    return {
        **ray.record(),
        "source": str(model),
        "command": ["hushtable"],
        "watch": {"every_s": 1},
        "shards": {"replicas_min": 2, **part, "tls": {**shard, "client_ca": str(files.ca)}},
        "fronts": {
            **{"count": 1, "port": 0, "metrics_port": 0, **part},
            "tls": {"cert": str(files.certificate), "key": str(files.key)},
            "to_shards": {**front, "ca": str(files.ca)},
        },
    }


def test_keepers_of_real_servers(
    models: list[Path], values: list[np.ndarray], tmp_path: Path
) -> None:
    """Without Ray, and without TLS: what starts, watches and drains is what an actor has."""
    source = read_source(str(models[0]))
    with (
        real_side(source, tmp_path / "copies", side="left") as (keepers, front),
        hushtable.ServerProcess(models[0], "right", threads=1) as right,
        hushtable.connect(str(front.url), right.url, model="clicks") as client,
    ):
        rows = client.lookup({"items": [3, ROWS - 1]})["items"]
        assert np.array_equal(np.asarray(rows), values[0][[3, ROWS - 1]])
        shard = until(keepers[0], lambda report: report.queue_s is not None)
        assert shard.versions == (source.version,)


@pytest.mark.skipif(
    os.environ.get("HUSHTABLE_SCALE_LONG") != "1",
    reason="a Ray cluster and six servers, for half a minute: HUSHTABLE_SCALE_LONG=1 runs it",
)
def test_lookups_through_kills_and_a_change_of_versions(
    ray: Ray,
    certificates: hushtable.Certificates,
    models: list[Path],
    values: list[np.ndarray],
    tmp_path: Path,
) -> None:
    wanted = record(ray, certificates, models[0])
    found = ray.ask("up", wanted, None, CLUSTER_HUNG_S)
    front = server(found, "front-0")
    version = json.loads((models[1] / "shards.json").read_text())["model"]
    watched = tmp_path / "watched"
    watched.mkdir()
    tls, ca = certificates.server, certificates.ca
    right = hushtable.ServerProcess(models[0], "right", tls=tls, threads=1, watch=watched)
    with right, hushtable.connect(front["url"], right.url, tls=ca, model="clicks") as client:
        asked = np.random.default_rng(3)

        def look_up(of: list[np.ndarray]) -> int:
            """A lookup of rows of both shards is of one version; returns which."""
            ids = [int(asked.integers(0, 512)), int(asked.integers(ROWS - 512, ROWS))]
            rows = np.asarray(client.lookup({"items": ids})["items"])
            for index, one in enumerate(of):
                if np.array_equal(rows, one[ids]):
                    return index
            raise AssertionError(f"rows {ids} are of no version: {rows}")

        assert look_up(values[:1]) == 0
        for name, is_worker in (("shard-0-replica-0", False), ("shard-1-replica-1", True)):
            before = server(ray.ask("look"), name)
            kill(parent_of(before["pid"]) if is_worker else before["pid"])
            # At least one while it is gone, however soon it is back.
            assert look_up(values[:1]) == 0
            while not ((state := ray.ask("look")) and is_back(state, before)):
                assert look_up(values[:1]) == 0
        ray.ask("up", {**wanted, "source": str(models[1])}, None, 0)
        kill(ray.coordinator_pid())
        by = time.monotonic() + CLUSTER_HUNG_S
        while True:
            assert look_up(values[:1]) == 0
            state = ray.ask("look")
            if state and state["phase"] == "steady" and state["version"] == version:
                break
            assert time.monotonic() < by, state
        # Right has the old version alone, so that clients stay with it until right has the next.
        shutil.copytree(models[1], watched / ".clicks")
        (watched / ".clicks").rename(watched / "clicks")
        while look_up(values) == 0:
            assert time.monotonic() < by
            time.sleep(0.1)
        # Nobody asks for the old version any more. Wanted again, it is loaded from the copies.
        state = ray.until(lambda found: all(one["held"] == 1 for one in found["servers"]))
        assert {one["versions"][-1] for one in state["servers"]} == {version}
        ray.ask("up", wanted, None, CLUSTER_HUNG_S)
        # The other one stays beside it for as long as it is asked for.
        state = ray.until(
            lambda found: (
                look_up(values) in (0, 1) and all(one["held"] == 2 for one in found["servers"])
            )
        )
        assert version not in {one["versions"][-1] for one in state["servers"]}
        assert look_up(values) in (0, 1)
    ray.ask("down", wanted)
    assert ray.ask("actors") == {"actors": [], "groups": []}
