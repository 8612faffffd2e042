"""Searches and preparations shared by workers: the same results, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scale_rounds import SHAPES, build_model
from test_tune import MODEL, ROWS, search, skewed_trace
from waiting import COMMAND_HUNG_S

from hushtable import ConfigError, Error, Model, Table, _native, verify_prepared
from hushtable.scale import WorkerLost, open_pool, prepare_model
from hushtable.scale._ray import check_guarded
from hushtable.scale.pool import ProcessPool, SerialPool
from hushtable.scale.tuning import PooledSimulator, bag_ranges
from hushtable.tune import LayoutSpec, PartSpec, costs, save_costs
from hushtable.tune.report import to_json
from hushtable.tune.search import Simulator, native_arrays
from hushtable.tune.spec import seed_text


def small_table() -> Table:
    weight = np.random.default_rng(1).normal(size=(ROWS, 16)).astype(np.float32)
    return Table.from_weight(weight, name="items")


def told(result: Any) -> dict[str, Any]:
    """All that was found, without how long it took."""
    return {**to_json(result), "seconds": 0.0}


def test_ranges_begin_where_their_seeds_fit() -> None:
    assert bag_ranges(0, 8) == []
    assert bag_ranges(20, 8) == [range(0, 8), range(8, 16), range(16, 20)]
    assert bag_ranges(16, 16) == [range(0, 16)]
    for part in bag_ranges(1000, 64):
        assert all(part.start ^ i == bag for i, bag in enumerate(part))
    for wrong in (0, -4, 3, 48):
        with pytest.raises(ConfigError, match="power of two"):
            bag_ranges(10, wrong)


def test_ranges_of_a_trace_are_simulated_as_the_whole() -> None:
    table, trace = small_table(), skewed_trace(300, seed=5)
    profile = _native.Profile(*native_arrays(trace), ROWS)
    # Rules that draw at random show a bag that has another's seed.
    specs = [
        LayoutSpec(hot, PartSpec(ROWS, bins), 64, rule, seed_text(3))
        for hot in (None, PartSpec(100, 6))
        for bins in (4, 9)
        for rule in ("random", "most-frequent")
    ]
    whole = Simulator(table._native, profile, MODEL, seed=9)
    expected = [whole.run(spec, trace) for spec in specs]
    assert any(not kept.all() for _, kept in expected)
    for range_bags in (1, 32, 1024):
        with (
            SerialPool() as pool,
            PooledSimulator(
                table, trace, profile, [trace], MODEL, 9, pool, range_bags=range_bags
            ) as pooled,
        ):
            found = list(pooled.run_all(specs, trace))
        assert [point for point, _ in found] == [point for point, _ in expected]
        for (_, kept), (_, alone) in zip(found, expected, strict=True):
            assert kept.dtype == bool and np.array_equal(kept, alone)
    # A trace that the workers were not given is worked on here.
    other = trace.take(np.arange(10, 40))
    with SerialPool() as pool:
        few = PooledSimulator(table, trace, profile, [trace], MODEL, 9, pool)
        assert [p for p, _ in few.run_all(specs[:2], other)] == [
            whole.run(spec, other)[0] for spec in specs[:2]
        ]


def test_processes_find_what_threads_find(tmp_path: Path) -> None:
    trace = skewed_trace(400, seed=5)
    small_table().save(tmp_path / "items")
    table = Table.open(tmp_path / "items")
    expected = search(table, trace, evaluations=40)
    with ProcessPool(2) as pool:
        found = search(table, trace, evaluations=40, pool=pool)
        # Of a table in memory, and again with the same workers.
        again = search(small_table(), trace, evaluations=40, pool=pool)
    assert told(found) == told(expected) == told(again)
    assert found.layout().to_bytes() == expected.layout().to_bytes()
    assert np.array_equal(found.kept(), expected.kept())


def _die(_: None, part: int) -> int:
    if part == 2:
        os._exit(9)
    return part


def _refuse(_: None, part: int) -> int:
    raise ConfigError(f"part {part} is refused")


def _nothing() -> None:
    return None


def _state(number: int) -> list[int]:
    return [number]


def _count(state: list[int], part: int) -> tuple[int, int]:
    state[0] += 1
    return state[0], part


def test_a_pool_keeps_order_builds_once_and_says_what_went_wrong() -> None:
    with SerialPool() as pool, pool.stage(_state, 100) as stage:
        assert list(stage.map(_count, range(3))) == [(101, 0), (102, 1), (103, 2)]
    with ProcessPool(2) as processes:
        with processes.stage(_state, 5) as stage:
            found = list(stage.map(_count, range(40)))
        assert [part for _, part in found] == list(range(40))
        assert max(count for count, _ in found) <= 45  # built once in each process
        with processes.stage(_nothing) as stage:
            with pytest.raises(ConfigError, match="part 0 is refused"):
                list(stage.map(_refuse, range(3)))
            with pytest.raises(WorkerLost, match="a worker process died"):
                list(stage.map(_die, range(6)))
            with pytest.raises(WorkerLost):
                list(stage.map(_count, range(2)))
    with pytest.raises(ConfigError, match="workers is 0"):
        open_pool(0)


def test_a_cluster_that_anybody_may_use_is_refused() -> None:
    two = [{"NodeManagerAddress": "10.0.0.1"}, {"NodeManagerAddress": "10.0.0.2", "Alive": True}]
    gone = [two[0], {**two[1], "Alive": False}]
    check_guarded(gone, {}, insecure=False)
    check_guarded([two[0], two[0]], {}, insecure=False)
    check_guarded(two, {"RAY_AUTH_MODE": "token"}, insecure=False)
    check_guarded(two, {}, insecure=True)
    with pytest.raises(ConfigError, match="2 machines without authentication"):
        check_guarded(two, {"RAY_AUTH_MODE": "disabled"}, insecure=False)


def test_without_ray_the_error_says_how_to_install_it(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['ray'] = None\n"
        "from hushtable.cli import main\n"
        f"main(['tune', {str(tmp_path)!r}, 'trace.npz', '--max-drop', '0.1', '--ray', 'auto',"
        " '--json'])"
    )
    # A table that is opened before the workers are.
    small_table().save(tmp_path)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["type"] == "MissingExtra"
    assert "pip install 'hushtable[ray]'" in error["message"]


def test_the_command_takes_workers(tmp_path: Path) -> None:
    small_table().save(tmp_path / "items")
    trace = skewed_trace(200, seed=2)
    np.savez(tmp_path / "trace.npz", ids=trace.ids, offsets=trace.offsets)
    # As if this machine had been measured.
    cpu, isa, version = costs._machine()
    model = replace(MODEL, cpu=cpu, isa=isa, version=version)
    save_costs(model, tmp_path / "hushtable" / "layout-costs.json")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    found = []
    for options in ([], ["--workers", "2"]):
        command = [
            sys.executable, "-m", "hushtable", "tune", "items", "trace.npz", "--max-comm-kb", "60",
            "--max-drop", "0.05", "--evaluations", "30", "--json", *options,
        ]  # fmt: skip
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            timeout=COMMAND_HUNG_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found.append({**json.loads(done.stdout), "seconds": 0})
    assert found[0] == found[1]


def test_a_models_tables_are_prepared_side_by_side(tmp_path: Path) -> None:
    model = Model.open(build_model(tmp_path))
    steps: list[tuple[int, int]] = []
    one = prepare_model(
        model, tables=["shops"], threads=1, progress=lambda done, of: steps.append((done, of))
    )
    assert list(one) == ["shops"] and not one["shops"].reused
    assert steps[-1] == (320, 320)
    with ProcessPool(2) as pool:
        made = prepare_model(model, pool=pool)
    assert list(made) == list(SHAPES)
    assert {name: info.reused for name, info in made.items()} == {
        "items": False, "shops": True, "tags": False,
    }  # fmt: skip
    for name, info in made.items():
        assert info.path == model.prepared_path(name)
        verify_prepared(model.table(name), info.path)
    # Byte for byte what one process makes.
    alone = model.table("items").prepare(tmp_path / "alone.prepared", threads=1)
    assert alone.path.read_bytes() == made["items"].path.read_bytes()
    with pytest.raises(ConfigError, match="twice"):
        prepare_model(model, tables=["items", "items"])
    with pytest.raises(Error, match="cart"):
        prepare_model(model, tables=["cart"])
