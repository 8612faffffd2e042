"""``hushtable bench patch``: changing rows of a table, against building and loading it again."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hushtable import _native
from hushtable.cli.output import Json, command, note, print_bench
from hushtable.errors import ConfigError, Error
from hushtable.server import _settings, _spec
from hushtable.table import Table

from ..measure.records import bench_record

#: Longest time in which a server takes a version before it is given up.
_SECONDS_MAX = 300.0


@command(
    "hushtable bench patch --rows 4194304 --row-bytes 64 --share 0.001",
    "hushtable bench patch --rows 100000 --rounds 2 --json",
)
def patch(
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = 1 << 22,
    row_bytes: Annotated[int, typer.Option(help="Bytes of a row, a multiple of 4.")] = 64,
    share: Annotated[float, typer.Option(help="Share of the rows that change, at random.")] = 0.001,
    rounds: Annotated[int, typer.Option(help="Rounds to measure; the medians count.")] = 5,
    threads: Annotated[int, typer.Option(help="Threads of the server; 0 for one a core.")] = 0,
    json: Json = False,
) -> None:
    """Make a patched bundle, and have a server take it, against the same with a whole bundle.

    The value is the ratio of the times of the server: from being told of it until it
    is announced, its own check included. Whole and patched versions take turns.
    """
    if row_bytes < 4 or row_bytes % 4:
        raise ConfigError(f"row_bytes is {row_bytes}, but must be a multiple of 4, 4 or more")
    changed = max(round(rows * share), 1)
    if not 0 < share <= 1 / 16:
        raise ConfigError(f"share is {share:g}, but a patch holds a sixteenth of the rows at most")
    if rounds < 1:
        raise ConfigError("rounds must be 1 or more")
    with tempfile.TemporaryDirectory(prefix="hushtable-bench-patch-") as folder:
        times = _measure(Path(folder), rows, row_bytes, changed, rounds, threads)
    medians = {name: statistics.median(found) for name, found in times.items()}
    record = bench_record(
        "patch",
        {"rows": rows, "row_bytes": row_bytes, "changed": changed},
        medians["take_whole"] / medians["take_patched"],
        "x",
        None,
        None,
        threads or os.cpu_count() or 1,
        _native.platforms().chosen,
        make_ratio=medians["make_whole"] / medians["make_patched"],
        **{f"{name}_ms": 1e3 * median for name, median in medians.items()},
        rounds=rounds,
    )
    print_bench(record, json)


def _measure(
    folder: Path, rows: int, row_bytes: int, changed: int, rounds: int, threads: int
) -> dict[str, list[float]]:
    """Seconds of each step of each round."""
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((rows, row_bytes // 4), np.float32)
    times: dict[str, list[float]] = {
        name: [] for name in ("make_whole", "make_patched", "take_whole", "take_patched")
    }

    def made(name: str, make: Any) -> None:
        started = time.perf_counter()
        make()
        times[name].append(time.perf_counter() - started)

    link = folder / "served"
    first = folder / "first"
    Table.from_weight(weight, name="bench").save(first)
    link.symlink_to(first)
    options = {"threads": threads, "keep_old_s": 0, "keep_old_s_max": 3600}
    with _serving(link, options) as server:
        for turn in range(rounds):
            note(f"round {turn + 1} of {rounds}")
            weight[turn] += 1.0
            table = Table.from_weight(weight, name="bench")
            whole, patched = folder / f"whole-{turn}", folder / f"patched-{turn}"
            made("make_whole", lambda table=table, whole=whole: table.save(whole))
            opened = Table.open(whole)
            ids = np.sort(rng.choice(rows, changed, replace=False))
            values = rng.standard_normal((changed, row_bytes // 4), np.float32)

            def make_patched(
                opened: Table = opened,
                ids: Any = ids,
                values: Any = values,
                patched: Path = patched,
            ) -> None:
                opened.patch(ids, values, patched)

            made("make_patched", make_patched)
            for name, bundle in (("take_whole", whole), ("take_patched", patched)):
                times[name].append(_take(server, link, bundle))
    return times


@contextlib.contextmanager
def _serving(bundle: Path, options: dict[str, Any]) -> Iterator[_native.Server]:
    """A left server in this process: one of its own looks for signals ten times a second only."""
    anywhere = "127.0.0.1:0"
    settings = _settings(bundle, "left", "pair", "cpu", anywhere, anywhere, None, options)
    server = _native.Server("pair", _spec(settings))
    try:
        while server.wait(1.0) != "ready":
            pass
        yield server
    finally:
        server.stop()


def _take(server: _native.Server, link: Path, bundle: Path) -> float:
    """Seconds until a server that is told of a bundle has taken it."""
    new = link.with_name("next")
    new.symlink_to(bundle)
    new.rename(link)
    before = _taken(server)
    started = time.perf_counter()
    server.reload()
    while _taken(server) == before:
        if time.perf_counter() - started > _SECONDS_MAX:
            raise Error("the server did not take the next version: see its log")
        time.sleep(0.001)
    return time.perf_counter() - started


def _taken(server: _native.Server) -> float:
    url = f"http://{server.metrics_addr}/metrics"
    with urllib.request.urlopen(url, timeout=30) as page:
        lines = page.read().decode().splitlines()
    name = 'hushtable_reloads_total{outcome="taken"}'
    found = [line.removeprefix(name) for line in lines if line.startswith(name)]
    return float(found[0]) if found else 0.0
