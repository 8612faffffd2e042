"""What a cluster's file may say, where servers have room, how many there are, what is done next."""

from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushtable
from hushtable import _native
from hushtable.cluster import NodesFull, OtherSide, RayMissing, RayOpen, read_cluster
from hushtable.cluster.connection import check_hosts, import_ray
from hushtable.cluster.coordinator import _with_version, targets
from hushtable.cluster.operate import _check_change, check_tls
from hushtable.cluster.room import Group, Node, check_room
from hushtable.cluster.scaling import Autoscaler
from hushtable.cluster.source import Source, check_sides, read_source
from hushtable.cluster.spec import Cluster, Scaling, setting_flags
from hushtable.cluster.steps import (
    LEAVE_S,
    Drain,
    Observed,
    Place,
    PlaceGroup,
    Remove,
    registry,
    steps,
    switch,
)
from hushtable.cluster.wanted import (
    Report,
    Wanted,
    front_name,
    parse_name,
    shard_name,
    shards_text,
)
from hushtable.errors import ConfigError, FetchError, ShardMapError
from hushtable.shards import plan_shards

GIB = float(1 << 30)
RECORD: dict[str, Any] = {
    "side": "left",
    "source": "/models/clicks",
    "folder": "/var/lib/hushtable",
    "shards": {"replicas_min": 2, "replicas_max": 3, "num_cpus": 4, "memory": "16GiB"},
    "fronts": {"count": 1, "num_cpus": 1},
}


def cluster(**changes: Any) -> Cluster:
    return Cluster.of_record({**RECORD, **changes})


def source(letter: str, shards: int = 2) -> Source:
    return Source(f"/models/{letter}", f"/models/{letter}", "clicks", letter * 64, shards)


def wanted(*versions: Source, replicas: tuple[int, ...] = (2, 2)) -> Wanted:
    return Wanted("id", 1, RECORD, versions or (source("a"),), replicas, 0.0)


def report(name: str, *versions: str, state: str = "ready", **more: Any) -> Report:
    held = tuple(v * 64 for v in versions)
    facts = {"versions": held, "copies": held, "node": f"node-{name}", "url": f"http://{name}:1"}
    return Report(name, state, **{**facts, **more})


def all_ready(*versions: str) -> dict[str, Report | None]:
    names = [shard_name(s, r) for s in range(2) for r in range(2)] + [front_name(0)]
    return {name: report(name, *versions) for name in names}


# The file.


def test_a_file_with_everything(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text("""
        side = "right"
        source = "models/clicks"
        folder = "/data"
        autoscaler = true
        drain_s = 12
        [shards]
        replicas_min = 3
        num_cpus = 8
        memory = "1.5GiB"
        resources = { hush_shard = 1 }
        tls = { cert = "/tls/s.pem", key = "/tls/s.key", client_ca = "/tls/ca.pem" }
        settings = { threads = 8, insecure = false, prgs = ["aes128"] }
        [fronts]
        count = 4
        to_shards = { cert = "/tls/f.pem", key = "/tls/f.key", ca = "/tls/ca.pem" }
        [watch]
        every_s = 30
        [scale]
        queue_s_high = 0.1
    """)
    found = read_cluster(path)
    assert found.source == str(tmp_path / "models" / "clicks")
    assert (found.shards.replicas_min, found.shards.replicas_max) == (3, 3)
    assert found.shards.needs.bundle() == {"CPU": 8.0, "memory": 1.5 * GIB, "hush_shard": 1.0}
    assert found.shards.placement == "strict_spread"
    assert found.namespace == "hushtable-right"
    assert found == Cluster.of_record(json.loads(json.dumps(found.record)))
    flags = ["--threads", "8", "--no-insecure", "--prgs", "aes128"]
    assert setting_flags(found.shards.settings) == flags


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"side": None}, "side must be left or right, not None"),
        ({"source": 3}, "source must be text"),
        ({"folder": "here"}, "folder must be an absolute path"),
        ({"sorce": "x"}, "there is no entry 'sorce': did you mean source?"),
        ({"command": []}, "command must be a list of words"),
        ({"shards": {"replicas_min": 0}}, "shards.replicas_min must be 1 to 64, not 0"),
        ({"shards": {"replicas_min": True}}, "shards.replicas_min must be 1 to 64"),
        ({"shards": {"replicas_min": 3, "replicas_max": 2}}, "below replicas_min, which is 3"),
        ({"shards": {"memory": "64 parsecs"}}, "shards.memory must be bytes, 64GiB say"),
        ({"shards": {"num_cpus": 0}}, "shards: a server needs something of a node"),
        ({"shards": {"num_cpus": -1}}, "shards.num_cpus must be 0 to"),
        ({"shards": {"placement": "near"}}, "strict_spread or spread or pack, not 'near'"),
        ({"shards": {"replicas": 2}}, "there is no entry 'shards.replicas'"),
        ({"shards": {"tls": {"cert": "/a"}}}, "shards.tls.key is missing"),
        ({"shards": {"tls": {"cert": "a", "key": "/b"}}}, "a must be an absolute path"),
        ({"shards": {"tls": {"cert": "/a", "key": "/b"}}}, "give fronts.to_shards too"),
        ({"fronts": {"to_shards": {"cert": "/a", "key": "/b"}}}, "fronts.to_shards.ca is missing"),
        ({"shards": {"settings": {"addr": "x:1"}}}, "shards.settings.addr is not to be set"),
        ({"shards": {"settings": {"tls": {"cert": "/a"}}}}, "settings.tls.cert is not to be set"),
        ({"fronts": {"settings": {"thread": 1}}}, "there is no setting 'thread': did you mean"),
        ({"fronts": {"port": 4000, "metrics_port": 4000}}, "are both 4000"),
        ({"fronts": 3}, "fronts must be a table of entries"),
        ({"scale": {"queue_s_low": 1, "queue_s_high": 0.5}}, "between the two nothing changes"),
        ({"drain_s": "long"}, "drain_s must be 0 to 3600"),
    ],
)
def test_what_a_file_cannot_say(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        cluster(**changes)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "changes", [{"side": ["left", "right"]}, {"side": "both"}, {"left": {}, "right": {}}]
)
def test_a_file_of_both_sides(changes: dict[str, Any]) -> None:
    with pytest.raises(OtherSide, match="names both sides: left and right are two operators"):
        cluster(**changes)


def test_a_file_that_is_not_there_or_no_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not there"):
        read_cluster(tmp_path / "cluster.toml")
    (tmp_path / "cluster.toml").write_text("side = ")
    with pytest.raises(ConfigError, match="cluster.toml: "):
        read_cluster(tmp_path / "cluster.toml")


# The source.


@pytest.mark.parametrize(
    ("map_", "says"),
    [
        ({"sides": ["left", "right"]}, "names left and right"),
        ({"shards": [{"side": "right"}]}, "names right"),
        ({"right": {"shards": []}}, "names right"),
    ],
)
def test_a_map_of_sides(map_: dict[str, Any], says: str) -> None:
    with pytest.raises(OtherSide, match=says):
        check_sides(json.dumps(map_).encode(), "models/clicks")


def test_a_map_of_tables_that_are_called_so() -> None:
    check_sides(json.dumps({"tables": [{"name": "left"}, {"name": "side"}]}).encode(), "x")
    check_sides(b"{", "x")


def make_model(folder: Path, seed: int) -> Path:
    (folder / "tables").mkdir(parents=True)
    values = np.random.default_rng(seed).normal(size=(3000, 4)).astype(np.float32)
    np.save(folder / "tables" / "items.npy", values)
    hushtable.Model.build(folder / "tables", folder / "clicks", max_ids=2)
    return folder / "clicks"


@pytest.mark.skipif(not hasattr(_native, "shard_heads"), reason="the native module is older")
def test_a_source(tmp_path: Path) -> None:
    place = make_model(tmp_path / "a", 1)
    with pytest.raises(FetchError, match="has no map of shards: make one with"):
        read_source(str(place))
    made = plan_shards(place, shards=2)
    found = read_source(str(place))
    assert found == Source(str(place), str(place), "clicks", made.model, 2)
    # The map of another version, and one that was cut off.
    other = make_model(tmp_path / "b", 2)
    (other / "shards.json").write_bytes((place / "shards.json").read_bytes())
    with pytest.raises(ShardMapError, match="map is of version"):
        read_source(str(other))
    (other / "shards.json").write_text("{")
    with pytest.raises(ShardMapError, match="malformed"):
        read_source(str(other))
    with pytest.raises(FetchError, match="no model.json"):
        read_source(str(tmp_path))


# Ray.


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    load = importlib.import_module

    def missing(name: str, package: str | None = None) -> Any:
        if name == "ray":
            raise ImportError(name)
        return load(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(RayMissing, match=r"pip install 'hushtable\[ray\]'"):
        import_ray()


def test_nothing_imports_ray_before_it_is_needed() -> None:
    """Whoever has no Ray has the rest of the command, and waits for no import of it."""
    code = "import sys, hushtable.cli, hushtable.cluster; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_cluster_that_others_reach_needs_a_token() -> None:
    check_hosts(["127.0.0.1", "::1"], is_open=True)
    check_hosts(["127.0.0.1", "10.0.0.3"], is_open=False)
    with pytest.raises(RayOpen, match="its node 10.0.0.3.*RAY_AUTH_MODE=token"):
        check_hosts(["127.0.0.1", "10.0.0.3"], is_open=True)


def test_servers_that_others_reach_need_tls() -> None:
    check_tls(cluster(), ["127.0.0.1"])
    with pytest.raises(ConfigError, match="shards would answer at 10.0.0.3.*without TLS"):
        check_tls(cluster(), ["127.0.0.1", "10.0.0.3"])
    files = {"cert": "/a.pem", "key": "/a.key"}
    shards = {"tls": files}
    fronts: dict[str, Any] = {"to_shards": {**files, "ca": "/ca.pem"}}
    with pytest.raises(ConfigError, match="fronts would answer"):
        check_tls(cluster(shards=shards, fronts=fronts), ["10.0.0.3"])
    for more in ({"tls": files}, {"settings": {"insecure": True}}, {"host": "127.0.0.1"}):
        check_tls(cluster(shards=shards, fronts={**fronts, **more}), ["10.0.0.3"])


# Room.


def nodes(*free: dict[str, float]) -> list[Node]:
    return [Node(f"{index}" * 8, f"10.0.0.{index}", one) for index, one in enumerate(free)]


def test_room_for_all() -> None:
    bundle = {"CPU": 4.0, "memory": 16 * GIB}
    each = {"CPU": 9.0, "memory": 40 * GIB}
    groups = [Group(shard, 2, bundle, "strict_spread") for shard in range(2)]
    check_room(nodes(each, each), [*groups, Group(None, 2, {"CPU": 1.0}, "strict_spread")])
    # The same on one node, where the file says so.
    check_room(
        nodes({"CPU": 16.0, "memory": 64 * GIB}), [replace(g, placement="pack") for g in groups]
    )


def test_no_room_says_what_is_missing_where() -> None:
    bundle = {"CPU": 4.0, "memory": 16 * GIB, "hush_shard": 1.0}
    found = nodes(
        {"CPU": 8.0, "memory": 32 * GIB, "hush_shard": 2.0},
        {"CPU": 8.0, "memory": 12 * GIB, "hush_shard": 2.0},
        {"CPU": 1.0, "memory": 2 * GIB},
    )
    with pytest.raises(NodesFull) as refused:
        check_room(found, [Group(7, 2, bundle, "strict_spread")])
    assert (refused.value.shard, refused.value.resource) == (7, "memory")
    assert refused.value.node == "11111111"
    text = str(refused.value)
    assert "no room for the 2 replica(s) of shard 7" in text
    assert "1 of 2 have a place" in text
    assert "node 11111111 (10.0.0.1), lacks memory (12 GiB memory free of 16 GiB memory" in text


def test_no_room_for_want_of_nodes() -> None:
    with pytest.raises(
        NodesFull, match="no two may be on one of the 1 node.*add 1 node"
    ) as refused:
        check_room(nodes({"CPU": 64.0}), [Group(0, 2, {"CPU": 1.0}, "strict_spread")])
    assert refused.value.resource == "node"
    with pytest.raises(NodesFull, match="front"):
        check_room(nodes({"CPU": 1.0}), [Group(None, 1, {"CPU": 2.0}, "pack")])


# Replica counts.

SCALING = Scaling(queue_s_low=0.01, queue_s_high=0.1, up_after_s=10, down_after_s=30, cooldown_s=20)


def run(waits: list[float | None], start: int = 2) -> list[int]:
    """Counts of one shard, one wait a second."""
    scaler, count, found = Autoscaler(SCALING, 2, 4), start, []
    for second, wait in enumerate(waits):
        count = scaler.count(0, count, wait, float(second))
        found.append(count)
    return found


def test_a_long_queue_adds_replicas_one_at_a_time() -> None:
    found = run([0.5] * 60)
    assert found[9] == 2
    assert found[10] == 3
    # The cooldown: no other for 20 s, however long the queue.
    assert found[29] == 3
    assert found[31] == 4
    assert max(found) == 4


def test_an_empty_queue_removes_them_later() -> None:
    found = run([0.0] * 100, start=4)
    assert found[29] == 4
    assert found[30] == 3
    assert min(found) == 2


def test_between_the_bounds_nothing_changes() -> None:
    assert set(run([0.05] * 200, start=3)) == {3}
    # Nor by peaks and by dips that do not last, nor while nothing is known.
    assert set(run([0.5] * 9 + [0.05] + [0.5] * 9 + [0.0] * 29 + [0.05] * 9, start=3)) == {3}
    assert set(run([None] * 100, start=3)) == {3}


def test_counts_come_back_between_their_bounds() -> None:
    assert run([None], start=1) == [2]
    assert run([None], start=9) == [4]


# Steps.


def observed(reports: dict[str, Report | None], **more: Any) -> Observed:
    facts: dict[str, Any] = {"groups": {0: 2, 1: 2, None: 1}, "nodes": (), "leaving_s": {}}
    return Observed(reports, **{**facts, **more})


def test_steps_of_a_new_cluster() -> None:
    todo, wants = steps(wanted(), cluster(), observed({}, groups={}))
    assert [s for s in todo if isinstance(s, PlaceGroup)] == [
        PlaceGroup(0, 2),
        PlaceGroup(1, 2),
        PlaceGroup(None, 1),
    ]
    placed = [s for s in todo if isinstance(s, Place)]
    assert [(p.name, p.bundle) for p in placed] == [
        ("shard-0-replica-0", 0),
        ("shard-0-replica-1", 1),
        ("shard-1-replica-0", 0),
        ("shard-1-replica-1", 1),
        ("front-0", 0),
    ]
    assert wants == []


def test_nothing_is_done_where_all_is_there() -> None:
    reports = all_ready("a")
    assert steps(wanted(), cluster(), observed(reports)) == ([], [])
    # One that does not answer is there: Ray starts it again.
    reports["shard-0-replica-0"] = None
    assert steps(wanted(), cluster(), observed(reports)) == ([], [])


def test_steps_go_on_wherever_they_were_cut_off() -> None:
    """A coordinator that ends after any of its steps leaves nothing undone, and nothing twice."""
    random_ = random.Random(5)
    for _ in range(50):
        reports: dict[str, Report | None] = {}
        groups: dict[int | None, int] = {}
        while True:
            todo, _ = steps(wanted(), cluster(), observed(reports, groups=groups))
            if not todo:
                break
            for step in todo[: random_.randrange(len(todo) + 1)]:
                if isinstance(step, PlaceGroup):
                    assert step.shard not in groups
                    groups[step.shard] = step.count
                else:
                    assert isinstance(step, Place)
                    assert step.name not in reports
                    reports[step.name] = report(step.name, "a")
        assert set(reports) == set(all_ready("a"))


def test_a_replica_beyond_the_group_gets_a_node_of_its_own() -> None:
    more = wanted(replicas=(3, 2))
    reports = all_ready("a")
    free = {"CPU": 8.0, "memory": 64 * GIB}
    taken = Node("node-shard-0-replica-1", "10.0.0.1", free)
    todo, wants = steps(more, cluster(), observed(reports, nodes=[taken]))
    assert todo == []
    assert wants == ["no node has room for replica 2 of shard 0 beyond what is reserved"]
    other = Node("node-free", "10.0.0.9", free)
    todo, wants = steps(more, cluster(), observed(reports, nodes=[taken, other]))
    assert todo == [Place("shard-0-replica-2", 0, 2, None, "node-free")]
    assert wants == []


def test_a_replica_that_leaves_is_drained_and_then_removed() -> None:
    reports = all_ready("a")
    name = "shard-0-replica-2"

    def at(seconds: float, state: str) -> list[Any]:
        reports[name] = report(name, "a", state=state)
        return steps(wanted(), cluster(), observed(reports, leaving_s={name: seconds}))[0]

    # Not before fronts have read that it goes.
    assert at(LEAVE_S - 1, "ready") == []
    assert at(LEAVE_S, "ready") == [Drain(name)]
    assert at(LEAVE_S + 1, "draining") == []
    assert at(LEAVE_S + 1, "stopped") == [Remove(name)]
    # One that does not stop in its time, and one that does not answer.
    assert at(1000, "draining") == [Remove(name)]
    reports[name] = None
    assert steps(wanted(), cluster(), observed(reports, leaving_s={name: 1000}))[0] == [
        Remove(name)
    ]


def test_the_registry_keeps_what_was_known_last() -> None:
    reports = all_ready("a")
    first = registry(wanted(), reports, [])
    assert first == [
        ["http://shard-0-replica-0:1", "http://shard-0-replica-1:1"],
        ["http://shard-1-replica-0:1", "http://shard-1-replica-1:1"],
    ]
    reports["shard-0-replica-0"] = report("shard-0-replica-0", state="failing", url=None)
    assert registry(wanted(), reports, first)[0] == ["http://shard-0-replica-1:1"]
    # All of a shard are away: an empty list would help nobody.
    reports["shard-0-replica-1"] = None
    assert registry(wanted(), reports, first) == first
    text = shards_text(cluster(), first)
    assert text.count("[[shard]]") == 2
    assert "ca =" not in text


def test_phases_of_a_version() -> None:
    next_ = wanted(source("a"), source("b"))
    reports = all_ready("a")
    assert switch(wanted(), cluster(), reports).phase == "steady"
    assert switch(next_, cluster(), reports).phase == "fetching"
    for name in reports:
        reports[name] = report(name, "a", copies=("a" * 64, "b" * 64))
    assert switch(next_, cluster(), reports).phase == "loading"
    for name in list(reports)[:3]:
        reports[name] = report(name, "a", "b")
    at = switch(next_, cluster(), reports)
    assert (at.phase, at.behind[0][0], at.ready) == ("loading", "shard-1-replica-1", 3)
    reports["shard-1-replica-1"] = report("shard-1-replica-1", "a", "b")
    assert switch(next_, cluster(), reports).phase == "announcing"
    reports["front-0"] = report("front-0", "a", "b")
    assert switch(next_, cluster(), reports).phase == "steady"
    reports["shard-0-replica-0"] = None
    assert switch(next_, cluster(), reports).phase == "placing"


def test_the_version_that_is_announced_stays_until_the_next_is() -> None:
    a, b, c = source("a"), source("b"), source("c")
    both = _with_version(wanted(a), b)
    assert both.versions == (a, b)
    # One that no front has announced gives way to one that is newer still, or to the old one.
    assert _with_version(both, c).versions == (a, c)
    assert _with_version(both, a).versions == (a,)
    assert _with_version(both, b) == both
    moved = replace(b, place="/elsewhere")
    assert _with_version(both, moved).versions == (a, moved)


def test_messages_travel() -> None:
    both = wanted(source("a"), source("b"), replicas=(2, 3))
    assert Wanted.of_record(json.loads(json.dumps(both.record()))) == both
    one = report("front-0", "a", shards_text="x")
    assert Report.of_record(json.loads(json.dumps(one.record()))) == one


def test_names_of_actors() -> None:
    assert parse_name(shard_name(3, 1)) == (3, 1)
    assert parse_name(front_name(2)) == (None, 2)
    for other in ("coordinator", "front-x", "shard-1", "shard-1-copy-2", "front-1-2"):
        assert parse_name(other) is None


def test_what_a_running_cluster_cannot_change() -> None:
    before = wanted()
    for changes in (
        {"drain_s": 3},
        {"watch": {"every_s": 1}},
        {"fronts": {**RECORD["fronts"], "count": 2}},
    ):
        changed = cluster(**changes)
        _check_change(changed, before, replace(before, cluster=changed.record))
    moved = cluster(shards={**RECORD["shards"], "num_cpus": 5})
    with pytest.raises(ConfigError, match=r"cannot change shards.num_cpus: take it down first"):
        _check_change(moved, before, replace(before, cluster=moved.record))
    with pytest.raises(ConfigError, match="a map of 3 shards, and 2 run"):
        _check_change(cluster(), before, wanted(source("b", 3), replicas=(2, 2, 2)))
    with pytest.raises(ConfigError, match="has the name of the one that it follows"):
        other = replace(source("b"), name="films")
        _check_change(cluster(), before, wanted(other))


def test_targets_for_prometheus() -> None:
    reports = {
        "front-0": report("front-0", "a", metrics_url="http://10.0.0.1:4001/metrics"),
        "shard-1-replica-0": report("shard-1-replica-0", metrics_url="http://10.0.0.2:5/metrics"),
        "shard-0-replica-0": None,
    }
    assert targets("left", reports) == [
        {
            "targets": ["10.0.0.2:5"],
            "labels": {"side": "left", "role": "shard", "shard": "1", "replica": "0"},
        },
        {"targets": ["10.0.0.1:4001"], "labels": {"side": "left", "role": "front", "replica": "0"}},
    ]
