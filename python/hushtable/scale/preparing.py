"""Preparing a model's tables for a single server, several at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from .._types import PreparedInfo
from ..errors import ConfigError, TableError
from ..model import Model
from ..table import PARAMETERS, prepared_path
from .pool import Pool

__all__ = ["prepare_model"]


def prepare_model(
    model: Model | str | os.PathLike[str],
    *,
    tables: Sequence[str] | None = None,
    parameters: str = PARAMETERS,
    threads: int = 0,
    pool: Pool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, PreparedInfo]:
    """Makes the files that a single server answers a model from, one task a table.

    As :meth:`hushtable.Table.prepare` for each: what is there is left, what was interrupted goes
    on. On several machines the model is on a disk that they share. The longest tables begin first.

    Args:
        model: the bundle.
        tables: which; all by default.
        parameters: of the encryption.
        threads: threads of each table; 0 for one a core, or with a pool one.
        pool: workers that prepare tables beside each other; one after the other by default.
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
    total = sum(sizes[name] for name in names)
    made: dict[str, PreparedInfo] = {}
    done = 0

    def told(own: int, _: int) -> None:
        if progress is not None:
            progress(done + own, total)

    if pool is None:
        for name in ordered:
            made[name] = bundle.table(name).prepare(
                parameters=parameters, threads=threads, progress=told
            )
            done += sizes[name]
    else:
        count = threads or 1
        with pool.stage(_opened, str(bundle.path.resolve()), bundle.version) as stage:
            parts = [(name, parameters, count) for name in ordered]
            for name, info in zip(ordered, stage.map(_prepare, parts, threads=count), strict=True):
                made[name] = info
                done += sizes[name]
                told(0, 0)
    return {name: made[name] for name in names}


def _opened(path: str, version: str) -> Model:
    model = Model.open(Path(path))
    if model.version != version:
        raise TableError(
            f"{path} holds version {model.version[:16]} of the model on one of the workers, but"
            f" {version[:16]} is prepared: give all of them the same bundle, on a disk they share"
        )
    return model


def _prepare(model: Model, part: tuple[str, str, int]) -> PreparedInfo:
    name, parameters, threads = part
    table = model.table(name)
    # Named outright, for a table that several models share by links stands in each.
    place = prepared_path(model.table_path(name), parameters)
    place.parent.mkdir(exist_ok=True)
    return table.prepare(place, parameters=parameters, threads=threads)
