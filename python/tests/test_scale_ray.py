"""The same on Ray, on this machine: training, searches and preparations, and what dies in them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="the extra hushtable[ray] is not installed")

import ray
from scale_rounds import SETTINGS, SHAPES, ask, build_model, serve, train
from test_scale_training import rows_of
from test_tune import ROWS, search, skewed_trace

from hushtable import ConfigError, Model, Table
from hushtable.scale import (
    ModelController,
    RayHosts,
    TableFailed,
    TablePlace,
    join,
    open_pool,
    prepare_model,
    prepare_table,
)
from hushtable.scale._ray import _check_reachable
from hushtable.tune.report import to_json

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("HUSHTABLE_SCALE_LONG"),
        reason="HUSHTABLE_SCALE_LONG=1: Ray in this process, whose forks and files others meet",
    ),
    # Ray's own: sockets and log files that it leaves to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray.init(
        address="local",  # whatever other cluster this machine is in
        num_cpus=2,
        include_dashboard=False,
        namespace="hushtable",
        log_to_driver=False,
        logging_level="warning",
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model"))


def small(place: TablePlace) -> TablePlace:
    """Three tables beside each other on two processors, and room for a task."""
    return dataclasses.replace(place, cpus=0.25, memory_bytes=64 << 20)


def create(folder: Path, model: Path, **options: Any) -> ModelController:
    options = {"hosts": RayHosts("auto"), "place": small, **options}
    return ModelController.create(folder, model, key_beside=True, **SETTINGS, **options)


def undisturbed(folder: Path, model: Path, rounds: int) -> dict[str, bytes]:
    """The rows after so many rounds in this process."""
    with ModelController.create(folder, model, key_beside=True, **SETTINGS) as controller:
        train(controller, rounds)
        return rows_of(controller)


def kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # its actor was restarted meanwhile
        os.kill(process, signal.SIGKILL)


def process_of(controller: ModelController, table: str) -> int:
    return controller.facts[table].process


def test_actors_train_what_threads_train_and_outlive_one_that_is_killed(
    tmp_path: Path, model: Path
) -> None:
    expected = undisturbed(tmp_path / "threads", model, 3)
    with create(tmp_path / "actors", model) as controller:
        processes = {process_of(controller, name) for name in SHAPES}
        assert len(processes) == 3 and os.getpid() not in processes
        train(controller, 1)
        # Killed while users ask: the round is over in all tables.
        sessions = ask(controller, 2)
        os.kill(process_of(controller, "shops"), signal.SIGKILL)
        with pytest.raises(TableFailed, match="table 'shops', reading rows") as caught:
            serve(controller, sessions, 2)
        assert set(caught.value.outcomes.values()) == {"abandoned"}
        train(controller, 1, first=2)
        assert process_of(controller, "shops") not in processes
        # Killed before it commits: the others' round stands, and its own rows are as they were.
        serve(controller, ask(controller, 3), 3)
        os.kill(process_of(controller, "tags"), signal.SIGKILL)
        with pytest.raises(TableFailed, match="not committed in 1 of 3") as caught:
            controller.commit()
        assert caught.value.table == "tags"
        assert caught.value.outcomes == {
            "items": "committed", "shops": "committed", "tags": "failed",
        }  # fmt: skip
        rows = rows_of(controller)
        assert {name: rows[name] == expected[name] for name in SHAPES} == {
            "items": True, "shops": True, "tags": False,
        }  # fmt: skip
        made = controller.export_into(model, tmp_path / "trained")
        assert made.table("items").rows(np.arange(60)).tobytes() == expected["items"]


def test_a_table_without_a_place_to_run_says_what_it_asks_for(tmp_path: Path, model: Path) -> None:
    def elsewhere(place: TablePlace) -> TablePlace:
        return dataclasses.replace(small(place), resources={"disk-9": 1})

    with pytest.raises(TableFailed, match=r"0.25 CPU, 6.71089e\+07 memory, 1 disk-9"):
        create(tmp_path / "c", model, place=elsewhere, start_seconds=0.5)


def test_tasks_find_what_threads_find(tmp_path: Path) -> None:
    weight = np.random.default_rng(1).normal(size=(ROWS, 16)).astype(np.float32)
    Table.from_weight(weight, name="items").save(tmp_path / "items")
    table, trace = Table.open(tmp_path / "items"), skewed_trace(400, seed=5)
    expected = search(table, trace, evaluations=40)
    with open_pool(address="auto") as pool:
        assert pool.size == 2
        found = search(table, trace, evaluations=40, pool=pool)
        (tmp_path / "items" / "manifest.json").write_text("{}")
        with pytest.raises(Exception, match="manifest"):
            search(table, trace, evaluations=40, pool=pool)
    assert {**to_json(found), "seconds": 0} == {**to_json(expected), "seconds": 0}


def test_tables_are_prepared_by_tasks(model: Path) -> None:
    bundle = Model.open(model)
    with open_pool(address="auto") as pool:
        made = prepare_model(bundle, pool=pool)
    assert [info.reused for info in made.values()] == [False] * 3
    assert all(info.path == bundle.prepared_path(name) for name, info in made.items())
    assert [info.reused for info in prepare_model(bundle).values()] == [True] * 3


def test_a_large_table_is_prepared_by_tasks_in_ranges(tmp_path: Path) -> None:
    # Ranges of machines end between blocks of 64 columns, of which this table has three.
    weight = np.random.default_rng(4).normal(size=(360_000, 96)).astype(np.float32)
    Table.from_weight(weight, name="items").save(tmp_path / "items")
    alone = Table.open(tmp_path / "items").prepare(tmp_path / "alone")
    steps: list[int] = []
    with open_pool(address="auto") as pool:
        made = prepare_table(
            tmp_path / "items",
            tmp_path / "made",
            pool=pool,
            progress=lambda done, _: steps.append(done),
        )
    assert len(steps) == 2 and steps[-1] == weight.nbytes  # ranges of 64 MiB or more
    assert made.units == alone.units and not made.reused
    assert made.path.read_bytes() == alone.path.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "items", "made"]


def test_a_process_that_is_killed_at_any_time(tmp_path: Path, model: Path) -> None:
    """Whenever a table's process is killed, a round is in all of its rows or in none.

    Twice the time is chosen, so that both ends are met: before the rows are read, and after all is
    committed. Otherwise it is any, of as long as a round takes here.
    """
    random = np.random.default_rng(3)
    states: dict[str, list[bytes]] = {name: [] for name in SHAPES}
    with ModelController.create(
        tmp_path / "single", model, key_beside=True, **SETTINGS
    ) as controller:
        # What each table comes to when it takes part in any subset of rounds is too much: rounds
        # are all alike, so that its rows say how many it has had.
        for _ in range(41):
            for name, rows in rows_of(controller).items():
                states[name].append(rows)
            serve(controller, ask(controller, 1), 1)
            controller.commit()
    committed = dict.fromkeys(SHAPES, 0)
    outcomes = []
    with create(tmp_path / "actors", model) as controller:
        began = time.monotonic()
        train(controller, 1)
        round_s = time.monotonic() - began
        for name in SHAPES:
            committed[name] += 1
        for number in range(39):
            victim = str(random.choice(list(SHAPES)))
            process = process_of(controller, victim)
            killer = threading.Timer(random.uniform(0, round_s), kill, (process,))
            try:
                sessions = ask(controller, 1)
                if number == 0:
                    kill(process)
                elif number > 1:
                    killer.start()
                serve(controller, sessions, 1)
                outcomes.append(dict.fromkeys(controller.commit().tables, "committed"))
            except TableFailed as error:
                outcomes.append(error.outcomes)
            if number == 1:
                kill(process)
            elif number > 1:
                killer.join()
            for name, word in outcomes[-1].items():
                committed[name] += word == "committed"
            for name in SHAPES:
                try:
                    rows = controller.export(name).tobytes()
                except TableFailed:  # killed behind its last answer
                    continue
                assert rows == states[name][committed[name]], (name, outcomes[-1])
    assert any("abandoned" in ended.values() for ended in outcomes)
    assert any(set(ended.values()) == {"committed"} for ended in outcomes)


def test_a_cluster_that_is_not_there() -> None:
    assert join("127.0.0.1:1") is ray  # this process is in one, whatever is asked for
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999"):
        with pytest.raises(ConfigError, match=f"no Ray cluster at '{address}'"):
            _check_reachable(address)
    for address in ("auto", "local"):
        _check_reachable(address)
