"""One table's prepared file, made in ranges by several processes, of which any may die."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from waiting import COMMAND_HUNG_S, until

from hushtable import Model, PreparedError, Table, TableError, _native, verify_prepared
from hushtable.scale import WorkerLost, prepare_model, prepare_table, preparing
from hushtable.scale.pool import Pool, ProcessPool, SerialPool

ROWS, DIM = 40_000, 64
BYTES = 4 * ROWS * DIM


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that are large here would take minutes."""
    monkeypatch.setattr(preparing, "_TASK_BYTES_LEAST", 1 << 20)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, and what one process prepares of it: ``items`` and ``items.prepared``."""
    folder = tmp_path_factory.mktemp("alone")
    weight = np.random.default_rng(2).normal(size=(ROWS, DIM)).astype(np.float32)
    Table.from_weight(weight, name="items").save(folder / "items")
    Table.open(folder / "items").prepare(folder / "items.prepared")
    return folder


def same(place: Path, alone: Path) -> bool:
    return place.read_bytes() == (alone / "items.prepared").read_bytes()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_table_is_prepared_in_ranges(tmp_path: Path, alone: Path) -> None:
    place, steps = tmp_path / "made", list[tuple[int, int]]()
    with ProcessPool(2) as pool:
        made = prepare_table(
            alone / "items", place, pool=pool, progress=lambda *step: steps.append(step)
        )
        assert (made.path, made.reused, made.resumed_units) == (place, False, 0)
        assert same(place, alone)
        assert names(tmp_path) == ["made"]
        again = prepare_table(alone / "items", place, pool=pool)
        assert again.reused and again.prepared_bytes == made.prepared_bytes
        # A damaged one is not left, and is made in ranges too.
        with place.open("r+b") as file:
            file.seek(8192)
            file.write(b"damaged")
        repaired = prepare_table(alone / "items", place, pool=pool)
        assert not repaired.reused and same(place, alone)
    assert len(steps) > 3 and steps[-1] == (BYTES, BYTES)
    assert [step for step, _ in steps] == sorted({step for step, _ in steps})


def test_a_model_of_large_and_small_tables(tmp_path: Path, alone: Path) -> None:
    small = Table.from_weight(np.ones((50, DIM), np.float32), name="tags")
    Model.of_table(Table.open(alone / "items"), tmp_path / "items", max_ids=4)
    Model.of_table(small, tmp_path / "tags", max_ids=4)
    for name, units in (("items", 2), ("tags", 1)):
        model = Model.open(tmp_path / name)
        with ProcessPool(2) as pool:
            made = prepare_model(model, pool=pool)[name]
        assert made.path == model.prepared_path(name) and made.units >= units
        verify_prepared(model.table(name), made.path)
        assert names(made.path.parent) == [made.path.name]
    assert same(Model.open(tmp_path / "items").prepared_path("items"), alone)


def test_a_worker_that_is_killed_costs_what_it_was_at(tmp_path: Path, alone: Path) -> None:
    place = tmp_path / "made"
    with ProcessPool(2) as pool:

        def kill(done: int, of: int) -> None:
            # It is told of further ranges after the worker's end, which is noticed later.
            workers: list[int] = list(pool._pool._processes or {})
            for worker in workers[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)

        with pytest.raises(WorkerLost, match="a worker process died"):
            prepare_table(alone / "items", place, pool=pool, progress=kill)
    assert not place.exists() and "made.partial" in names(tmp_path)
    with ProcessPool(3) as pool:  # which cuts it otherwise
        made = prepare_table(alone / "items", place, pool=pool)
    assert 0 < made.resumed_units < made.units
    assert same(place, alone)
    assert names(tmp_path) == ["made"]


_KILLED = """
import os, signal, sys
from hushtable.scale import prepare_table, preparing
from hushtable.scale.pool import ProcessPool

def kill(done, of):
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    preparing._TASK_BYTES_LEAST = 1 << 20
    with ProcessPool(2) as pool:
        prepare_table(sys.argv[1], sys.argv[2], pool=pool, progress=kill)
"""


def test_who_shares_the_work_is_killed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, alone: Path
) -> None:
    # What a process that is killed cannot take away is in there.
    env = {**os.environ, "TMPDIR": str(tmp_path_factory.mktemp("left"))}
    script, place = tmp_path / "killed.py", tmp_path / "made"
    script.write_text(_KILLED)
    done = subprocess.run(
        [sys.executable, script, alone / "items", place], env=env, timeout=COMMAND_HUNG_S
    )
    assert done.returncode == -signal.SIGKILL
    # Its workers end with it; until they have, they are at their ranges.
    ended = _retried(lambda: Table.open(alone / "items").prepare(place, threads=1))
    assert 0 < ended.resumed_units < ended.units
    assert same(place, alone)
    assert names(tmp_path) == ["killed.py", "made"]


def _retried(work: Callable[[], preparing.PreparedInfo]) -> preparing.PreparedInfo:
    def is_done() -> preparing.PreparedInfo | None:
        try:
            return work()
        except PreparedError as error:
            assert "is being prepared by another process" in str(error)
            return None

    done = until(is_done, "the end of those at work")
    assert done is not None
    return done


def test_two_never_prepare_the_same(tmp_path: Path, alone: Path) -> None:
    table, place = Table.open(alone / "items"), tmp_path / "made"
    held = _native.Preparation(table._native, place, parameters="n4096_128")
    pool: Pool
    with ProcessPool(2) as pool, pytest.raises(PreparedError, match="by another process"):
        prepare_table(alone / "items", place, pool=pool)
    with pytest.raises(PreparedError, match="by another process"):
        table.prepare(place)
    with pytest.raises(PreparedError, match="0 of [0-9]+ blocks are done"):
        held.finish()
    # A range of what nobody has begun.
    other = tmp_path / "other"
    with pytest.raises(PreparedError, match="no writer has begun"):
        _native.prepare_range(table._native, other, 0, 1, parameters="n4096_128", threads=1)
    held.close()
    with SerialPool() as pool:  # one worker: nothing to cut for
        assert prepare_table(alone / "items", place, pool=pool).reused is False
    assert same(place, alone)


def test_a_damaged_row_is_found_by_the_range_that_has_it(tmp_path: Path, alone: Path) -> None:
    Table.open(alone / "items").save(tmp_path / "items")
    rows = tmp_path / "items" / "rows.safetensors"
    with rows.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"abcd")
    with ProcessPool(2) as pool, pytest.raises(TableError, match="row 39936"):
        prepare_table(tmp_path / "items", tmp_path / "made", pool=pool)
    assert not (tmp_path / "made").exists()


def test_the_command_takes_workers(tmp_path: Path, alone: Path) -> None:
    place = tmp_path / "made"
    command = [sys.executable, "-m", "hushtable", "table", "prepare", str(alone / "items")]
    done = subprocess.run(
        [*command, "--out", str(place), "--workers", "2", "--json"],
        capture_output=True,
        timeout=COMMAND_HUNG_S,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["path"] == str(place) and not told["reused"]  # one task: it is not that large
    assert same(place, alone)
