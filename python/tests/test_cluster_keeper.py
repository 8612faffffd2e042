"""What keeps one server: copies, starts, versions, ends. The server is a stand-in, Ray is away."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import waiting
from waiting import is_alive

from hushtable.cluster import Cluster
from hushtable.cluster.child import Child, Queue, samples, whole_command
from hushtable.cluster.keeper import Keeper, Role
from hushtable.cluster.source import Source
from hushtable.cluster.wanted import Report, Wanted, shards_text

DOUBLE = [sys.executable, str(Path(__file__).with_name("cluster_double.py"))]


def write_model(folder: Path, letter: str, shards: int = 2) -> Source:
    """Of a model, what the stand-in reads: the map."""
    folder.mkdir(parents=True, exist_ok=True)
    map_ = {"format": "hushtable-shards", "format_version": 1, "name": "clicks"}
    parts = [{"bytes": 1, "parts": []}] * shards
    version = (letter * 64)[:64]
    text = json.dumps({**map_, "model": version, "tables": [], "shards": parts})
    (folder / "shards.json").write_text(text)
    return Source(str(folder), str(folder), "clicks", version, shards)


class Kept:
    """A keeper and what it is told by."""

    def __init__(self, folder: Path, told: Path) -> None:
        self.folder, self.told = folder, told
        self.record = {
            "side": "left",
            "source": str(folder / "a"),
            "folder": str(folder / "copies"),
            "command": DOUBLE,
            "shards": {"replicas_min": 1, "host": "127.0.0.1"},
            "fronts": {"count": 1, "port": 0, "metrics_port": 0, "host": "127.0.0.1"},
        }
        self.keepers: list[Keeper] = []

    def wanted(self, *letters: str, id: str = "one", generation: int = 1) -> Wanted:
        versions = tuple(write_model(self.folder / letter, letter) for letter in letters)
        return Wanted(id, generation, self.record, versions, (1, 1), time.time())

    def start(self, wanted: Wanted, shard: int | None = 0) -> Keeper:
        keeper = Keeper(Role(shard, 0), wanted.record(), "node", "127.0.0.1")
        keeper.start()
        self.keepers.append(keeper)
        return keeper


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    told = tmp_path / "told"
    told.mkdir()
    monkeypatch.setenv("HUSHTABLE_TEST_CLUSTER", str(told))
    found = Kept(tmp_path, told)
    yield found
    for keeper in found.keepers:
        keeper.drain(1)
    for keeper in found.keepers:
        until(keeper, lambda report: report.state == "stopped")


def until(keeper: Keeper, holds: Callable[[Report], bool]) -> Report:
    def look() -> Report | None:
        return report if holds(report := keeper.report()) else None

    found = waiting.until(look, keeper.report)
    assert found is not None
    return found


@contextlib.contextmanager
def real_side(source: Source, folder: Path, **scheme: str) -> Iterator[tuple[list[Keeper], Report]]:
    """Two shards and a front as actors have them, and what the front says once it is ready."""
    part = {"host": "127.0.0.1", "settings": {"threads": 1}}
    cluster = {
        **{"source": source.place, "folder": str(folder)},
        **scheme,
        "shards": {"replicas_min": 1, **part},
        "fronts": {"count": 1, "port": 0, "metrics_port": 0, **part},
    }
    wanted = Wanted("one", 1, cluster, (source,), (1, 1), time.time())
    keepers = [Keeper(Role(k, 0), wanted.record(), "node", "127.0.0.1") for k in (0, 1, None)]
    try:
        for keeper in keepers:
            keeper.start()
        urls = [until(keeper, lambda report: report.state == "ready").url for keeper in keepers[:2]]
        text = shards_text(Cluster.of_record(cluster), [[str(url)] for url in urls])
        keepers[2].tell(wanted.record(), text)
        yield keepers, until(keepers[2], lambda report: report.holds(source.version))
    finally:
        for keeper in keepers:
            keeper.drain(60)
        for keeper in keepers:
            assert until(keeper, lambda report: report.state == "stopped").restarts == 0


def is_ready(*letters: str) -> Callable[[Report], bool]:
    return lambda report: (
        report.state == "ready" and set(report.versions) >= {letter * 64 for letter in letters}
    )


def test_a_server_is_fetched_started_and_started_again(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The pause before it is started again lasts until what is to be seen before is seen.
    monkeypatch.setattr("hushtable.cluster.keeper._PAUSE_S_LEAST", 600.0)
    monkeypatch.setattr("hushtable.cluster.keeper._PAUSE_S_MOST", 600.0)
    keeper = kept.start(kept.wanted("a"))
    report = until(keeper, is_ready("a"))
    assert report.url is not None
    assert (report.restarts, report.reason, report.copies) == (0, "", ("a" * 64,))
    assert report.pid is not None
    os.kill(report.pid, signal.SIGKILL)
    lost = until(keeper, lambda report: report.restarts == 1)
    assert lost.state == "failing"
    assert lost.url is None
    assert "the server ended with -9" in lost.reason
    assert not keeper._server_pause.is_over
    keeper._server_pause._until = time.monotonic() + 0.5
    back = until(keeper, is_ready("a"))
    assert back.pid != report.pid
    assert back.reason == ""


def test_the_next_version_beside_the_last(kept: Kept) -> None:
    keeper = kept.start(kept.wanted("a"))
    until(keeper, is_ready("a"))
    (kept.told / "hold-fetch").touch()
    keeper.tell(kept.wanted("a", "b", generation=2).record(), None)
    waiting.until((kept.told / "held-fetch").exists, "a fetch that is held")
    assert keeper.report().copies == ("a" * 64,)
    (kept.told / "hold-load").touch()
    (kept.told / "hold-fetch").unlink()
    until(keeper, lambda report: report.copies == ("a" * 64, "b" * 64))
    waiting.until((kept.told / "held-load").exists, "a load that is held")
    assert keeper.report().versions == ("a" * 64,)
    (kept.told / "hold-load").unlink()
    report = until(keeper, is_ready("a", "b"))
    assert (report.held, report.restarts) == (2, 0)
    # What it is told late, and from another cluster, changes nothing.
    keeper.tell(kept.wanted("c", generation=1).record(), None)
    keeper.tell(kept.wanted("c", id="two", generation=9).record(), None)
    assert keeper.wanted.newest.version == "b" * 64
    # A third: of copies that nobody wants the last stays.
    keeper.tell(kept.wanted("b", "c", generation=3).record(), None)
    until(keeper, is_ready("c"))
    keeper.tell(kept.wanted("c", "d", generation=4).record(), None)
    until(keeper, is_ready("d"))
    models = {path.name[:8] for path in (kept.folder / "copies").glob("*/models/*")}
    assert models == {"clicks-b", "clicks-c", "clicks-d"}
    # Back to one that the server has dropped, and whose copy is older than the last one's.
    assert keeper.report().versions == ("c" * 64, "d" * 64)
    keeper.tell(kept.wanted("d", "b", generation=5).record(), None)
    until(keeper, is_ready("b"))
    # And to one that it holds.
    keeper.tell(kept.wanted("b", "d", generation=6).record(), None)
    until(keeper, lambda report: report.versions == ("b" * 64, "d" * 64))


def test_a_source_that_has_gone(kept: Kept) -> None:
    keeper = kept.start(kept.wanted("a"))
    until(keeper, is_ready("a"))
    next_ = kept.wanted("a", "b", generation=2)
    (kept.folder / "b" / "shards.json").unlink()
    keeper.tell(next_.record(), None)
    report = until(keeper, lambda report: "shard fetch" in report.reason)
    assert report.state == "ready"
    assert "No such file" in report.reason
    # It is changed under way: what comes is not what was asked for.
    write_model(kept.folder / "b", "c")
    report = until(keeper, lambda report: "the source has changed" in report.reason)
    assert report.versions[0] == "a" * 64


def test_a_front_waits_for_shards(kept: Kept) -> None:
    wanted = kept.wanted("a")
    front = kept.start(wanted, shard=None)
    report = until(front, lambda report: report.state == "waiting" and bool(report.copies))
    assert report.reason == "no shard has a server yet"
    shard = until(kept.start(wanted), is_ready("a"))
    text = f"[[shard]]\nreplicas = [{json.dumps(shard.url)}]\n"
    front.tell(wanted.record(), text)
    assert until(front, is_ready("a")).shards_text == text


def test_drained_it_stays_down(kept: Kept) -> None:
    keeper = kept.start(kept.wanted("a"))
    pid = until(keeper, is_ready("a")).pid
    keeper.drain(5)
    until(keeper, lambda report: report.state == "stopped")
    assert (kept.told / f"drained-{pid}").exists()
    # Whatever it does in turn, it has done again and again since.
    steps, step = [], keeper._step
    keeper._step = lambda: steps.append(step())  # type: ignore[method-assign]
    waiting.until(lambda: len(steps) >= 3, "three more steps")
    assert keeper.report().pid is None


def test_an_actor_that_starts_again_knows_what_it_was_told(kept: Kept) -> None:
    first = kept.wanted("a")
    keeper = kept.start(first)
    until(keeper, is_ready("a"))
    keeper.tell(kept.wanted("b", generation=7).record(), None)
    assert kept.start(first).wanted.generation == 7
    # Of a cluster that was taken down nothing is left to know.
    other = kept.wanted("a", id="two")
    assert kept.start(other).wanted == other


def test_what_cannot_be_started_says_why(kept: Kept) -> None:
    kept.record["command"] = [sys.executable, "-c", "raise SystemExit('no such thing')"]
    keeper = kept.start(kept.wanted("a"))
    report = until(keeper, lambda report: "no such thing" in report.reason)
    assert (report.state, report.restarts) == ("fetching", 0)
    kept.record["command"] = ["/nonexistent/hushtable"]
    other = kept.start(kept.wanted("a"), shard=1)
    report = until(other, lambda report: "nonexistent" in report.reason)
    assert "/nonexistent/hushtable" in report.reason


def test_a_command_that_is_bound_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import sys, time; from hushtable.cluster.child import Child\n"
        "child = Child(['sleep', '600'], bound=True); print(child.process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = Child([sys.executable, "-c", code])
    pid = int(waiting.until(lambda: parent.last_line, "the child's number"))
    command = Path(f"/proc/{pid}/cmdline")
    waiting.until(lambda: b"sleep" in command.read_bytes().split(b"\0")[0], "the child's command")
    parent.kill()
    waiting.until(lambda: not is_alive(pid), "the end of the child")


def test_the_mean_wait_of_half_a_minute() -> None:
    queue = Queue()
    assert queue.mean_s() is None
    for second in range(100):
        queue.look(float(second), 2.0 * min(second, 50), float(second))
    # Over the last 30 s: nothing was added to the sum.
    assert queue.mean_s() == 0.0
    queue.look(100.0, 100.0 + 30.0, 100.0 + 29)
    assert queue.mean_s() == pytest.approx(30 / 59)
    # A server that was started anew counts from nothing.
    queue.look(101.0, 1.0, 10.0)
    assert queue.mean_s() is None


def test_samples_of_metrics() -> None:
    text = 'hushtable_a_total{x="1"} 3\nhushtable_b_bucket{le="1"} 9\n# HELP\nhushtable_c 1.5e-3\n'
    found: dict[Any, float] = samples(text)
    assert found == {("hushtable_a_total", '{x="1"}'): 3.0, ("hushtable_c", ""): 0.0015}


def test_the_command_where_it_is_on_no_path() -> None:
    mine = [sys.executable, "-m", "hushtable"]
    assert whole_command(("hushtable",), {"PATH": "/nonexistent"}) == mine
    assert whole_command(("/opt/hushtable",), {"PATH": "/nonexistent"}) == ["/opt/hushtable"]
