"""One side's cluster on real raylets: up, status, down, and what is killed comes back.

The servers are stand-ins (``cluster_double.py``): this is about who starts them where, and what
happens when that is killed. One Ray cluster with a token serves the whole file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_cluster_keeper import DOUBLE, write_model
from waiting import COMMAND_HUNG_S, HUNG_S, is_alive, until

# A cluster of real raylets, whose servers are killed.
pytestmark = pytest.mark.rest
HERE = Path(__file__).parent
#: What Ray and several servers take longer for hangs.
CLUSTER_HUNG_S = 300.0
LONG = pytest.mark.skipif(
    os.environ.get("HUSHTABLE_SCALE_LONG") != "1",
    reason="Ray takes seconds to see each loss: HUSHTABLE_SCALE_LONG=1 runs it",
)


class Refused(Exception):
    """What the driver's client was told: ``TYPE: text``."""


class Ray:
    """A Ray cluster in a process of its own, and the files of a cluster on it."""

    def __init__(self, folder: Path, cpus: list[float], token: str | None) -> None:
        self.folder, self.told = folder, folder / "told"
        self.told.mkdir()
        self.versions = 0
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        self.env["HUSHTABLE_TEST_CLUSTER"] = str(self.told)
        # Where a cluster is written down that `ray.init()` of others, as Flower's, would join:
        # short, as the path of a socket is.
        self.temporary = tempfile.TemporaryDirectory(prefix="ht-", ignore_cleanup_errors=True)
        self.env["RAY_TMPDIR"] = self.temporary.name
        if token is not None:
            self.env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
        self.log = (folder / "driver.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "cluster_driver.py"), json.dumps({"cpus": cpus})],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.address = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        # Ray prints lines of its own at its start.
        for line in self.process.stdout:
            if line.startswith("{"):
                answer = json.loads(line)
                if "error" in answer:
                    raise Refused(f"{answer['error']}: {answer['message']}")
                return answer["value"]
        raise AssertionError((self.folder / "driver.log").read_text()[-4000:])

    def ask(self, name: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, arguments]) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(HUNG_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        # Of a cluster whose head was killed nobody else ends the rest.
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                kill(pid)
        self.process.stdout.close()
        self.log.close()
        self.temporary.cleanup()

    def up(self, record: dict[str, Any], wait_s: float) -> Any:
        """Brings up what stands for a model."""
        place = Path(record["source"])
        source = write_model(place, place.name)
        return self.ask("up", record, dataclasses.astuple(source), wait_s)

    def record(self, letter: str = "a", **changes: Any) -> dict[str, Any]:
        """What cluster.toml holds."""
        write_model(self.folder / letter, letter)
        part = {"num_cpus": 0.5, "settings": {"insecure": True}}
        return {
            "side": "left",
            "source": str(self.folder / letter),
            "folder": str(self.folder / "copies"),
            "address": self.address,
            "command": DOUBLE,
            "drain_s": 5,
            "targets_file": str(self.folder / "targets.json"),
            "shards": {"replicas_min": 2, **part},
            "fronts": {"count": 1, "port": 0, "metrics_port": 0, **part},
            **changes,
        }

    def command(self, *arguments: str, code: int = 0) -> str:
        """What the command prints."""
        command = [sys.executable, "-m", "hushtable", "cluster", *arguments]
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=COMMAND_HUNG_S
        )
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout

    def until(self, holds: Callable[[Any], bool]) -> Any:
        """The state, as soon as ``holds`` of it."""

        def look() -> Any:
            found = self.ask("look")
            return found if found is not None and holds(found) else None

        return until(look, lambda: json.dumps(self.ask("look"), indent=1), CLUSTER_HUNG_S)

    def steady(self, letter: str) -> Any:
        version = (letter * 64)[:64]
        return self.until(
            lambda found: (
                found["phase"] == "steady"
                and found["version"] == version
                # Of the one before nobody knows any more.
                and found["versions"] == [version]
            )
        )

    def at(self, letter: str) -> Any:
        """The state once it has this version, which it may have already."""
        found = self.ask("look")
        if found is None or found["version"] != (letter * 64)[:64]:
            self.up(self.record(letter), CLUSTER_HUNG_S)
        return self.steady(letter)

    def new_version(self) -> str:
        """Of a model that no test has used yet."""
        self.versions += 1
        return f"{self.versions:04x}"

    def front_knows(self, found: Any) -> bool:
        """Whether the front's file has every shard's servers."""
        text = next(self.folder.glob("copies/left-front-0/shards.toml")).read_text()
        return all(one["url"] in text for one in found["servers"] if one["shard"] is not None)

    def processes(self, name: bytes = b"") -> list[int]:
        """Those of this Ray cluster, and of its actors, with ``name`` in their command."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_it = name in (path / "cmdline").read_bytes()
                if is_it and str(self.told).encode() in (path / "environ").read_bytes():
                    found.append(int(path.name))
        return found

    def coordinator_pid(self) -> int:
        """The actor's process, by the name that Ray gives it."""
        # It has another while it begins.
        return until(lambda: self.processes(b"ray::CoordinatorActor"), "the coordinator")[0]


def server(found: Any, name: str) -> Any:
    return next(one for one in found["servers"] if one["name"] == name)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ray]:
    found = Ray(tmp_path_factory.mktemp("ray"), [2, 2], secrets.token_hex(32))
    try:
        found.ask("connect", "left")
        yield found
    finally:
        found.close()


@pytest.fixture
def up(ray: Ray) -> Ray:
    """The same, with a cluster of two shards, two replicas each, and a front, of any version."""
    if ray.ask("look") is None:
        ray.up(ray.record(), CLUSTER_HUNG_S)
    return ray


@pytest.fixture(autouse=True)
def freed(ray: Ray) -> Iterator[None]:
    """What one test holds up is no other's."""
    yield
    for name in ("hold-fetch", "hold-load"):
        (ray.told / name).unlink(missing_ok=True)


def toml(ray: Ray, **changes: Any) -> Path:
    """The record as a file: its tables hold plain values only."""
    record = ray.record(**changes)
    lines = [f"{k} = {json.dumps(v)}" for k, v in record.items() if not isinstance(v, dict)]
    for name, table in record.items():
        if isinstance(table, dict):
            values = {k: v for k, v in table.items() if k != "settings"}
            lines += [f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in values.items())]
            lines += [f"[{name}.settings]", "insecure = true"]
    path = ray.folder / "cluster.toml"
    path.write_text("\n".join(lines))
    return path


def test_no_room_starts_nothing(ray: Ray) -> None:
    if ray.ask("look") is not None:
        ray.ask("down", ray.record())
    secure = ray.record(fronts={"settings": {"insecure": True}}, shards={"replicas_min": 2})
    with pytest.raises(Refused, match="ConfigError: shards would answer at .*without TLS"):
        ray.up(secure, 10)
    insecure = {"settings": {"insecure": True}}
    shards = {"replicas_min": 2, "num_cpus": 64, **insecure}
    with pytest.raises(Refused, match=r"NodesFull: no room for the 2 replica\(s\) of shard .*CPU"):
        ray.up(ray.record(shards=shards), 10)
    with pytest.raises(Refused, match="NodesFull: .*no two may be on one of the 2 node"):
        ray.up(ray.record(shards={"replicas_min": 3, **insecure}), 10)
    assert ray.ask("actors") == {"actors": [], "groups": []}


def test_up_places_replicas_apart(up: Ray) -> None:
    found = up.at("a")
    assert (found["ready"], found["all"], found["replicas"]) == (5, 5, [2, 2])
    for shard in range(2):
        nodes = {one["node"] for one in found["servers"] if one["shard"] == shard}
        assert len(nodes) == 2
    groups = ["hushtable-left-fronts", "hushtable-left-shard-0", "hushtable-left-shard-1"]
    assert sorted(up.ask("actors")["groups"]) == groups
    up.until(up.front_knows)
    file = json.loads((up.folder / "targets.json").read_text())
    assert {one["labels"]["role"] for one in file} == {"shard", "front"}
    assert len(file) == 5


def test_status_and_the_other_side(up: Ray) -> None:
    up.at("a")
    path = str(toml(up))
    shown = up.command("status", path)
    assert "steady: 5 of 5 servers are ready" in shown
    assert shown.count("shard 1/") == 2
    found = up.ask("status", up.record())
    assert found["phase"] == "steady"
    assert len(found["targets"]) == 5
    with pytest.raises(Refused, match="OtherSide: this Ray cluster serves the left side"):
        up.up(up.record(side="right"), 10)


def test_a_killed_server_comes_back(up: Ray) -> None:
    before = server(up.at("a"), "shard-0-replica-0")
    worker = parent_of(before["pid"])
    kill(before["pid"])
    after = server(up.until(lambda f: is_back(f, before)), "shard-0-replica-0")
    # The actor was not started again for it.
    assert parent_of(after["pid"]) == worker
    assert after["restarts"] == before["restarts"] + 1


def is_back(found: Any, before: Any) -> bool:
    after = server(found, before["name"])
    return bool(after["pid"] not in (None, before["pid"]) and after["state"] == "ready")


def test_a_server_dies_with_its_actor_while_versions_change(up: Ray) -> None:
    before = server(up.at("a"), "shard-1-replica-1")
    (up.told / "hold-fetch").touch()
    up.up(up.record("b"), 0)
    up.until(lambda f: f["phase"] == "fetching")
    kill(parent_of(before["pid"]))
    until(lambda: not is_alive(before["pid"]), "the end of the old server, with its actor")
    # It serves the version that is announced, at a new address, while the next one is fetched.
    after = server(up.until(lambda f: is_back(f, before)), before["name"])
    assert after["versions"] == ["a" * 64]
    coordinator = up.coordinator_pid()
    kill(coordinator)
    (up.told / "hold-fetch").unlink()
    found = up.steady("b")
    assert up.coordinator_pid() != coordinator
    assert found["replicas"] == [2, 2]


@LONG
@pytest.mark.parametrize("hold", [None, "hold-fetch", "hold-load"])
@pytest.mark.parametrize("what", ["worker", "child", "front", "coordinator", "all of a shard"])
def test_kills_in_every_phase(up: Ray, what: str, hold: str | None) -> None:
    """Servers come back, none outlives its actor, and the version changes in the end."""
    first, next_ = up.new_version(), up.new_version()
    up.up(up.record(first), CLUSTER_HUNG_S)
    before = up.steady(first)
    if hold:
        (up.told / hold).touch()
    up.up(up.record(next_), 0)
    if hold:
        phase = {"hold-fetch": "fetching", "hold-load": "loading"}[hold]
        up.until(lambda found: found["phase"] == phase)
    names = {
        "worker": ["shard-0-replica-1"],
        "child": ["shard-0-replica-0"],
        "front": ["front-0"],
        "coordinator": [],
        "all of a shard": ["shard-1-replica-0", "shard-1-replica-1"],
    }[what]
    olds = [server(before, name)["pid"] for name in names]
    if what == "coordinator":
        kill(up.coordinator_pid())
    for pid in olds:
        kill(pid if what == "child" else parent_of(pid))
    until(lambda: not any(map(is_alive, olds)), "the end of the old servers, with their actors")
    if hold:
        found = up.until(
            lambda f: (
                all(one["url"] and one["pid"] not in olds for one in f["servers"])
                and len(f["servers"]) == 5
            )
        )
        # Nobody announces what not everybody has.
        assert server(found, "front-0")["versions"][-1] == (first * 64)[:64]
        (up.told / hold).unlink()
    up.steady(next_)
    up.until(up.front_knows)


@LONG
def test_a_killed_raylet_and_a_node_that_takes_its_place(up: Ray) -> None:
    first, next_ = up.new_version(), up.new_version()
    up.up(up.record(first), CLUSTER_HUNG_S)
    found = up.steady(first)
    # A worker node of its own first, so that the head stays.
    lost = up.ask("node_ids")[1]
    olds = [one["pid"] for one in found["servers"] if one["node"] == lost]
    assert olds
    (up.told / "hold-load").touch()
    up.up(up.record(next_), 0)
    up.until(lambda f: f["phase"] == "loading")
    up.ask("kill_raylet", 1)
    until(lambda: not any(map(is_alive, olds)), "the end of the servers, with their raylet")
    up.until(lambda f: f["phase"] == "placing")
    new = up.ask("add", 2)
    (up.told / "hold-load").unlink()
    found = up.steady(next_)
    assert {one["node"] for one in found["servers"]} == {up.ask("node_ids")[0], new}


@LONG
def test_replicas_come_and_go_with_the_queue(up: Ray) -> None:
    up.ask("add", 2)
    scale = {"up_after_s": 1, "down_after_s": 1, "cooldown_s": 1}
    shards = {**up.record()["shards"], "replicas_max": 3}
    (up.told / "queue-seconds").write_text("0.2")
    up.up(up.record(up.new_version(), scale=scale, shards=shards), 0)
    found = up.until(lambda f: f["replicas"] == [3, 3] and f["phase"] == "steady")
    assert len({one["node"] for one in found["servers"] if one["shard"] == 0}) == 3
    # Those beyond what is reserved are bound to a node: without it they are placed anew.
    extra = server(found, "shard-0-replica-2")
    up.ask("kill_raylet", up.ask("node_ids").index(extra["node"]))
    found = up.until(lambda f: any("no node has room for replica 2" in r for r in f["reasons"]))
    up.ask("add", 2)
    found = up.until(lambda f: f["replicas"] == [3, 3] and f["phase"] == "steady")
    assert server(found, "shard-0-replica-2")["node"] != extra["node"]
    leaving = server(found, "shard-0-replica-2")["pid"]
    (up.told / "queue-seconds").write_text("0.0")
    # The mean is of half a minute.
    up.until(lambda f: f["replicas"] == [2, 2] and len(f["servers"]) == 5)
    assert (up.told / f"drained-{leaving}").exists()


@LONG
@pytest.mark.skipif(
    importlib.util.find_spec("prometheus_client") is None,
    reason="a node exports metrics with what ray[default] brings",
)
def test_ray_exports_the_gauges(up: Ray) -> None:
    """Every ten seconds, by Ray's own way."""

    def exported() -> str:
        text = str(up.ask("metrics"))
        return text if "ray_hushtable_cluster_phase" in text else ""

    text = until(exported, "the phase among the metrics", CLUSTER_HUNG_S)
    lines = [line for line in text.splitlines() if line.startswith("ray_hushtable_cluster")]
    ready = [line for line in lines if line.startswith("ray_hushtable_cluster_replicas_ready")]
    assert sorted(line.rpartition(" ")[2] for line in ready) == ["2.0", "2.0"], lines
    assert all('side="left"' in line for line in ready)
    assert any('phase="steady"' in line and line.endswith(" 1.0") for line in lines)


def test_down_drains_and_leaves_nothing(up: Ray) -> None:
    pids = [one["pid"] for one in up.until(lambda f: f["phase"] == "steady")["servers"]]
    shown = up.command("down", str(toml(up)))
    assert "removed 6 actors and 3 placement groups" in shown
    assert all((up.told / f"drained-{pid}").exists() for pid in pids)
    assert not any(is_alive(pid) for pid in pids)
    assert up.ask("actors") == {"actors": [], "groups": []}
    with pytest.raises(Refused, match="ClusterError: nothing of the left side runs"):
        up.ask("status", up.record())


def test_a_client_without_the_token(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "env", {**ray.env, "RAY_AUTH_TOKEN": secrets.token_hex(32)})
    refused = json.loads(ray.command("status", str(toml(ray)), "--json", code=1))["error"]
    assert refused["type"] == "RayAbsent"
    assert "does not let this client in" in refused["message"]


@LONG
def test_a_cluster_without_a_token_is_refused(tmp_path: Path) -> None:
    found = Ray(tmp_path, [1], None)
    try:
        with pytest.raises(Refused, match="RayOpen: .*whoever reaches its ports runs code"):
            found.up(found.record(), 10)
    finally:
        found.close()


@LONG
def test_servers_go_on_without_rays_control_service(tmp_path: Path) -> None:
    found = Ray(tmp_path, [2, 2], secrets.token_hex(32))
    try:
        found.ask("connect", "left")
        before = found.up(found.record(), CLUSTER_HUNG_S)
        (gcs,) = found.processes(b"/gcs_server")
        kill(gcs)
        pids = [one["pid"] for one in before["servers"]]
        workers = {pid: parent_of(pid) for pid in pids}
        time.sleep(5)
        assert all(map(is_alive, pids))
        # What keeps a server needs nobody to start it again.
        lost = server(before, "shard-1-replica-0")["pid"]
        kill(lost)
        doubles = until(
            lambda: set(found.processes(b"cluster_double.py")) - set(pids), "another server"
        )
        assert [parent_of(pid) for pid in doubles] == [workers[lost]]
    finally:
        found.close()
