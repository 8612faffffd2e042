"""Preparing tables for a single server, several at once, and ranges of large ones side by side."""

from __future__ import annotations

import dataclasses
import mmap
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import _native
from .._types import PreparedInfo
from ..errors import ConfigError, TableError
from ..model import Model
from ..table import PARAMETERS, Table, place_to_prepare, prepared_path
from .pool import Pool, ProcessPool, SerialPool, Stage

__all__ = ["prepare_model", "prepare_table"]

#: Tasks for each worker: as many as even out that one takes longer than another.
_TASKS_A_WORKER = 3
#: Bytes of rows of a task, at least: a smaller one takes less time than to share it.
_TASK_BYTES_LEAST = 64 << 20
#: The pages that ranges for several machines fit: see ``Cut::Pages`` of the native code.
_PAGE_BYTES = 4096


def prepare_model(
    model: Model | str | os.PathLike[str],
    *,
    tables: Sequence[str] | None = None,
    parameters: str = PARAMETERS,
    threads: int = 0,
    pool: Pool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, PreparedInfo]:
    """Makes the files that a single server answers a model from.

    As :meth:`hushtable.Table.prepare` for each: what is there is left, what was interrupted goes
    on, and the files are the same byte for byte. With a pool, large tables are cut into ranges that
    its workers prepare side by side, and small ones are a task each. On several machines the model
    is on a disk that they share. The longest tables begin first.

    Args:
        model: the bundle.
        tables: which; all by default.
        parameters: of the encryption.
        threads: threads of each table or range; 0 for one a core, or with a pool one.
        pool: workers that prepare beside each other; one table after the other by default.
        progress: called with (bytes of the tables done, bytes of the tables).

    Raises:
        ConfigError: an unknown parameter set, a table that is named twice.
        ModelError: a table that the model does not have.
        PreparedError: a file that is being made by another process, or something else is there.
        WorkerLost: a worker died: what it had done is kept.
    """
    bundle = model if isinstance(model, Model) else Model.open(Path(model))
    sizes = {t.name: bundle.table(t.name).info.table_bytes for t in bundle.tables}
    names = list(sizes) if tables is None else list(tables)
    if len(set(names)) != len(names):
        raise ConfigError("a table is named twice: name each once")
    for name in names:
        bundle.table_path(name)
    ordered = sorted(names, key=lambda name: -sizes[name])
    if pool is not None:
        files = []
        for name in ordered:
            folder = bundle.table_path(name)
            # Named outright, for a table that several models share by links stands in each.
            place = prepared_path(folder, parameters)
            place.parent.mkdir(exist_ok=True)
            files.append(_File.of(bundle.table(name), folder, place))
        by_place = _Run(files, parameters, threads or 1, pool, progress).made()
        made = {name: by_place[file.place] for name, file in zip(ordered, files, strict=True)}
        return {name: made[name] for name in names}
    total, done = sum(sizes[name] for name in names), 0
    made = {}

    def told(own: int, _: int) -> None:
        if progress is not None:
            progress(done + own, total)

    for name in ordered:
        made[name] = bundle.table(name).prepare(
            parameters=parameters, threads=threads, progress=told
        )
        done += sizes[name]
    return {name: made[name] for name in names}


def prepare_table(
    bundle: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    parameters: str = PARAMETERS,
    threads: int = 0,
    pool: Pool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PreparedInfo:
    """Makes the file that a single server answers one table from, by several workers.

    As :func:`prepare_model` with a pool does for each table; without one,
    :meth:`hushtable.Table.prepare`.

    Args:
        bundle: the table's folder; on several machines, on a disk that they share.
        out: the file to make, on such a disk too; by default beside the bundle, see
            :func:`hushtable.prepared_path`.
        parameters: of the encryption.
        threads: threads of each range; 0 for one a core, or with a pool one.
        pool: workers.
        progress: called with (bytes of the table done, bytes of the table).

    Raises:
        ConfigError: an unknown parameter set.
        TableError: no table there, or one that cannot be read.
        PreparedError: the file is being made by another process, or something else is there.
        WorkerLost: a worker died: what it had done is kept.
    """
    folder = Path(bundle)
    table = Table.open(folder)
    if pool is None:
        return table.prepare(out, parameters=parameters, threads=threads, progress=progress)
    place = place_to_prepare(folder, out, parameters)
    file = _File.of(table, folder, place)
    made = _Run([file], parameters, threads or 1, pool, progress).made()[file.place]
    return dataclasses.replace(made, path=place)


@dataclass(frozen=True)
class _File:
    """A file to make, and the bundle that it is made from."""

    bundle: str
    version: str
    place: Path
    table_bytes: int

    @classmethod
    def of(cls, table: Table, folder: Path, place: Path) -> _File:
        info = table.info
        return cls(str(folder.resolve()), info.version, place.absolute(), info.table_bytes)


@dataclass(frozen=True)
class _Task:
    """What a worker does: a range of a file's units, or all of it by itself."""

    file: _File
    units: tuple[int, int] | None
    parameters: str
    threads: int


@dataclass
class _Cut:
    """A file whose ranges are being prepared, and which is locked meanwhile."""

    preparation: _native.Preparation
    ranges_left: int
    started: float


class _Run:
    """The making of some files by the workers of a pool."""

    def __init__(
        self,
        files: Sequence[_File],
        parameters: str,
        threads: int,
        pool: Pool,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._files = files
        self._parameters = parameters
        self._threads = threads
        self._pool = pool
        self._progress = progress
        self._cut: dict[Path, _Cut] = {}
        self._made: dict[Path, PreparedInfo] = {}
        self._done_bytes = {file.place: 0 for file in files}

    def made(self) -> dict[Path, PreparedInfo]:
        """Makes them; by their places."""
        sent: deque[_Task] = deque()
        try:
            build = _tables_of_child if isinstance(self._pool, ProcessPool) else dict
            with self._pool.stage(build) as stage:
                self._look(stage)
                for info in stage.map(_prepare, self._tasks(sent), threads=self._threads):
                    self._take(sent.popleft(), info)
        finally:
            for cut in self._cut.values():
                cut.preparation.close()
        return self._made

    def _look(self, stage: Stage) -> None:
        """Leaves large files that are there already; small ones are looked at as they come."""
        there = [file for file in self._files if self._may_cut(file) and file.place.exists()]
        tasks = [self._task(file) for file in there]
        found = stage.map(_standing, tasks, threads=self._threads)
        for file, info in zip(there, found, strict=True):
            if info is not None:
                self._finish(file, info)

    def _tasks(self, sent: deque[_Task]) -> Iterator[_Task]:
        """The tasks, as they are asked for: a file is begun with its first range."""
        left = [file for file in self._files if file.place not in self._made]
        even = sum(file.table_bytes for file in left) // (self._pool.size * _TASKS_A_WORKER)
        for file in left:
            ranges = self._begin(file, max(even, _TASK_BYTES_LEAST))
            for units in [None] if ranges is None else ranges:
                sent.append(self._task(file, units))
                yield sent[-1]

    def _may_cut(self, file: _File) -> bool:
        return self._pool.size > 1 and file.table_bytes >= 2 * _TASK_BYTES_LEAST

    def _begin(self, file: _File, table_bytes: int) -> list[tuple[int, int]] | None:
        """Begins a file that is made in ranges, and what these are; None for one task."""
        # Pools of others than ours may have several machines too.
        by_machines = not isinstance(self._pool, SerialPool | ProcessPool)
        if not self._may_cut(file) or (by_machines and mmap.PAGESIZE > _PAGE_BYTES):
            return None
        table = _open({}, file)._native
        ranges = _native.prepare_ranges(
            table, parameters=self._parameters, table_bytes=table_bytes, pages=by_machines
        )
        if len(ranges) < 2:
            return None
        started = time.perf_counter()
        preparation = _native.Preparation(table, file.place, parameters=self._parameters)
        self._cut[file.place] = _Cut(preparation, len(ranges), started)
        if preparation.done < preparation.units:
            return ranges
        # An earlier run did all but give the file its name.
        self._end(file)
        return []

    def _task(self, file: _File, units: tuple[int, int] | None = None) -> _Task:
        return _Task(file, units, self._parameters, self._threads)

    def _take(self, task: _Task, info: PreparedInfo | None) -> None:
        file = task.file
        if task.units is None:
            assert info is not None
            self._finish(file, info)
            return
        cut, (first, end) = self._cut[file.place], task.units
        cut.preparation.take(first, end)
        cut.ranges_left -= 1
        if cut.ranges_left:
            self._tell(file, file.table_bytes * (end - first) // cut.preparation.units)
        else:
            self._end(file)

    def _end(self, file: _File) -> None:
        cut = self._cut.pop(file.place)
        facts = cut.preparation.finish()
        self._finish(file, _info(facts, file, self._parameters, cut.started))

    def _finish(self, file: _File, info: PreparedInfo) -> None:
        self._made[file.place] = info
        self._tell(file, file.table_bytes - self._done_bytes[file.place])

    def _tell(self, file: _File, own_bytes: int) -> None:
        self._done_bytes[file.place] += own_bytes
        if self._progress is not None:
            all_bytes = sum(file.table_bytes for file in self._files)
            self._progress(sum(self._done_bytes.values()), all_bytes)


def _info(
    facts: _native.PreparedFacts, file: _File, parameters: str, started: float
) -> PreparedInfo:
    return PreparedInfo(
        file.place,
        parameters,
        facts.payload_bytes,
        facts.units,
        facts.resumed_units,
        facts.is_reused,
        time.perf_counter() - started,
    )


# --- in the workers -----------------------------------------------------------------------------


def _tables_of_child() -> dict[str, Table]:
    """No tables yet, in a process that ends with the one that started it: what it has locked is
    then free for the next run. What it had done is kept."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    return {}


def _open(tables: dict[str, Table], file: _File) -> Table:
    """The table of a file; ``tables`` has the last one that was opened."""
    table = tables.get(file.bundle)
    if table is None:
        tables.clear()
        table = tables[file.bundle] = Table.open(file.bundle)
    if table.info.version != file.version:
        raise TableError(
            f"{file.bundle} holds version {table.info.version[:16]} of the table on one of the"
            f" workers, but {file.version[:16]} is prepared: give all of them the same bundle, on a"
            " disk they share"
        )
    return table


def _standing(tables: dict[str, Table], task: _Task) -> PreparedInfo | None:
    """The file that is there, if it is whole and the table's."""
    table, started = _open(tables, task.file), time.perf_counter()
    facts = _native.standing_prepared(
        table._native, task.file.place, parameters=task.parameters, threads=task.threads
    )
    return None if facts is None else _info(facts, task.file, task.parameters, started)


def _prepare(tables: dict[str, Table], task: _Task) -> PreparedInfo | None:
    """Makes a whole file, or some units of a file that the caller has begun."""
    table, place = _open(tables, task.file), task.file.place
    if task.units is None:
        return table.prepare(place, parameters=task.parameters, threads=task.threads)
    first, end = task.units
    _native.prepare_range(
        table._native, place, first, end, parameters=task.parameters, threads=task.threads
    )
    return None
