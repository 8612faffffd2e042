"""``hushtable bench model``: whole inferences of a model of many tables."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from hushtable import _native
from hushtable._machine import cores, instruction_ns, read_gb_per_s
from hushtable.cli.output import Json, command, note, print_bench
from hushtable.client import Client, connect
from hushtable.data import CRITEO_ROWS
from hushtable.errors import ConfigError
from hushtable.model import Model
from hushtable.server import ServerProcess, make_certificates
from hushtable.table import Table

from .. import native
from ..measure.floors import Floor
from ..measure.records import bench_record

#: Processes that are started at a time.
_STARTED_AT_ONCE = 4
#: More than any cache has, and little enough to be taken in every turn.
_READ_AT_ONCE_BYTES = 1 << 30

_Side = Literal["left", "right"]


@command(
    "hushtable bench model --tables criteo --scale 0.1 --batch 64 --threads 1 --json",
    "hushtable bench model --tables 100000,5000,30 --no-latency",
)
def model(
    tables: Annotated[
        str, typer.Option(help="criteo (26 tables), or the rows of each, as 100000,5000,30.")
    ] = "criteo",
    scale: Annotated[float, typer.Option(help="Of those rows; three at least.")] = 0.1,
    dim: Annotated[int, typer.Option(help="float32 values of a row.")] = 16,
    batch: Annotated[int, typer.Option(help="Inferences answered at once.")] = 64,
    threads: Annotated[int, typer.Option(help="Threads; 0 for one a core.")] = 1,
    seconds: Annotated[float, typer.Option(help="How long to measure the engine.")] = 3.0,
    latency: Annotated[
        bool, typer.Option(help="Also measure one inference through real servers.")
    ] = True,
    rounds: Annotated[int, typer.Option(help="Inferences to measure, of each kind.")] = 15,
    json: Json = False,
) -> None:
    """Answer whole inferences, one row of every table each: inferences a second of one server.

    The floor is what reading all tables once a batch takes, or the affine instructions of all keys.
    Before the clock starts, both servers' answers are added up and compared with the rows.

    Then one inference goes through real servers over TLS, in turns: one process a side that holds
    the model; a process a side for each table, asked one after the other; and these asked all at
    once. Both sides are on this machine and share its memory, as others may: the floor of that
    latency is what reading both sides' tables at once takes, measured in the same turns.
    """
    rows = _rows(tables, scale)
    if dim < 1 or rounds < 3:
        raise ConfigError("--dim must be at least 1 and --rounds at least 3")
    note(f"filling {len(rows)} tables, {sum(rows):,} x {4 * dim} B in all")
    engine = native.ModelBench(rows, 4 * dim, threads=threads)
    note("checking, then measuring")
    times = engine.answer_seconds(batch, prg="aes128", seconds=seconds)
    note("measuring the floor")
    floor = _floor(engine, batch)
    detail = _latencies(rows, dim, engine, rounds) if latency else {}
    print_bench(_record(tables, scale, rows, dim, batch, times, floor, engine, detail), json)


def _rows(tables: str, scale: float) -> list[int]:
    try:
        rows = CRITEO_ROWS if tables == "criteo" else tuple(map(int, tables.split(",")))
    except ValueError:
        raise ConfigError(
            f"--tables is {tables!r}, but must be criteo or numbers of rows, as 100000,5000,30"
        ) from None
    if not 0 < scale <= 100:
        raise ConfigError(f"--scale is {scale:g}, but must be above 0 and at most 100")
    return [max(3, math.ceil(count * scale)) for count in rows]


def _floor(engine: native.ModelBench, batch: int) -> Floor:
    """The least time of a batch: of all tables (:func:`hushtable._measure.floors.answer_floor`)."""
    gb_per_s = read_gb_per_s(engine.read_bytes, engine.threads)
    memory = engine.read_bytes / (gb_per_s * 1e9)
    affine_ns = instruction_ns()[0]
    if batch > 1 and affine_ns is not None:
        instructions = engine.product_bytes * batch / 512
        product = instructions * affine_ns * 1e-9 / min(engine.threads, cores())
        if product > memory:
            return Floor(product, "gfni", gb_per_s, affine_ns)
    return Floor(memory, "memory", gb_per_s, affine_ns)


def _record(
    tables: str,
    scale: float,
    rows: list[int],
    dim: int,
    batch: int,
    times: list[float],
    floor: Floor,
    engine: native.ModelBench,
    detail: dict[str, Any],
) -> dict[str, Any]:
    took = statistics.median(times)
    return bench_record(
        "model",
        {"tables": tables, "scale": scale, "dim": dim, "batch": batch},
        batch / took,
        "inferences/s",
        batch / floor.seconds,
        floor.seconds / took,
        engine.threads,
        _native.platforms().chosen,
        bound=floor.bound,
        table_count=len(rows),
        rows=sum(rows),
        read_bytes=engine.read_bytes,
        ms_per_batch=took * 1e3,
        # On a machine that others use too, the median is mostly theirs.
        best_ms_per_batch=min(times) * 1e3,
        best_of_floor=floor.seconds / min(times),
        repeats=len(times),
        read_gb_per_s=floor.gb_per_s,
        affine_ns=floor.instruction_ns,
        **detail,
    )


def _sides_read_seconds(read_bytes: int, threads: int) -> float:
    """Seconds that reading ``read_bytes`` twice takes the cores of both sides: best of several."""
    both = min(2 * read_bytes, _READ_AT_ONCE_BYTES)
    gb_per_s = _native.read_gb_per_s(both, min(2 * threads, cores()))
    return 2 * read_bytes / (gb_per_s * 1e9)


def _latencies(rows: list[int], dim: int, engine: native.ModelBench, rounds: int) -> dict[str, Any]:
    """Of one inference, three ways, and what bounds it."""
    threads = engine.threads
    with tempfile.TemporaryDirectory(prefix="hushtable-bench-") as folder:
        note("building the model bundle")
        bundle = _build(Path(folder), rows, dim)
        certificates = make_certificates(Path(folder, "certificates"))
        names = [f"t{number}" for number in range(len(rows))]
        bundles = [bundle, *(bundle / "tables" / name for name in names)]
        note(f"starting 2 servers of the model, and {2 * len(rows)} of a table each")
        with (
            _pairs(bundles, certificates.server, threads) as pairs,
            contextlib.ExitStack() as open_,
        ):
            urls = [(pair["left"].url, pair["right"].url) for pair in pairs]
            whole = open_.enter_context(connect(*urls[0], tls=certificates.ca, model=bundle))
            each = [open_.enter_context(connect(*one, tls=certificates.ca)) for one in urls[1:]]
            pool = open_.enter_context(ThreadPoolExecutor(len(rows)))
            note(f"measuring {rounds} inferences of each kind")
            random = np.random.default_rng(1)
            times: dict[str, list[float]] = {"one": [], "each": [], "at_once": [], "floor": []}
            for turn in range(rounds + 1):
                ids = [int(random.integers(count)) for count in rows]
                asked = dict(zip(names, ([one] for one in ids), strict=True))

                def ask(client: Client, one: int) -> object:
                    return client.lookup([one], max_ids=1)

                took = {
                    "one": _seconds(lambda: whole.lookup(asked)),  # noqa: B023 - called at once
                    "each": _seconds(lambda: list(map(ask, each, ids))),  # noqa: B023
                    "at_once": _seconds(lambda: list(pool.map(ask, each, ids))),  # noqa: B023
                    "floor": _sides_read_seconds(engine.read_bytes, threads),
                }
                if turn:  # the first is cold
                    for name, one in took.items():
                        times[name].append(one)
            stats = whole.last_stats
            assert stats is not None
    medians = {name: statistics.median(all_of) for name, all_of in times.items()}
    return {
        "latency_ms": medians["one"] * 1e3,
        "latency_ratio": medians["each"] / medians["one"],
        "latency_ratio_concurrent": medians["at_once"] / medians["one"],
        "a_process_a_table_ms": medians["each"] * 1e3,
        "a_process_a_table_concurrent_ms": medians["at_once"] * 1e3,
        # Others on the machine only add to it.
        "latency_floor_ms": min(times["floor"]) * 1e3,
        "latency_of_floor": min(times["floor"]) / medians["one"],
        "best_ms": min(times["one"]) * 1e3,
        "best_latency_of_floor": min(times["floor"]) / min(times["one"]),
        "best_ratio": min(times["each"]) / min(times["one"]),
        "best_ratio_concurrent": min(times["at_once"]) / min(times["one"]),
        "answer_ms": stats.answer_seconds * 1e3,
        "queue_ms": stats.queue_seconds * 1e3,
        "bytes_up": stats.bytes_up,
        "bytes_down": stats.bytes_down,
        "rounds": rounds,
    }


def _build(folder: Path, rows: list[int], dim: int) -> Path:
    """A model bundle of random tables."""
    random = np.random.default_rng(1)
    (folder / "tables").mkdir()
    for number, count in enumerate(rows):
        weight = random.standard_normal((count, dim), np.float32)
        Table.from_weight(weight, name=f"t{number}").save(folder / "tables" / f"t{number}")
    Model.build(folder / "tables", folder / "model", name="bench")
    shutil.rmtree(folder / "tables")
    return folder / "model"


@contextlib.contextmanager
def _pairs(
    bundles: list[Path], tls: Any, threads: int
) -> Iterator[list[dict[_Side, ServerProcess]]]:
    """A left and a right server of each bundle: all left ones on one core, the right on another."""
    usable = sorted(os.sched_getaffinity(0))
    # With threads of their own, all share all cores.
    cpus: dict[_Side, set[int] | None] = {"left": None, "right": None}
    if threads == 1:
        cpus = {"left": {usable[0]}, "right": {usable[-1]}}
    wanted: list[tuple[Path, _Side]] = []
    for bundle in bundles:
        wanted += [(bundle, "left"), (bundle, "right")]

    def start(one: tuple[Path, _Side]) -> ServerProcess:
        bundle, side = one
        server = ServerProcess(
            bundle, side, device="cpu", tls=tls, cpus=cpus[side], threads=threads
        )
        return stack.enter_context(server)

    with contextlib.ExitStack() as stack, ThreadPoolExecutor(_STARTED_AT_ONCE) as pool:
        started = list(pool.map(start, wanted))
        lefts, rights = started[::2], started[1::2]
        yield [{"left": left, "right": right} for left, right in zip(lefts, rights, strict=True)]


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
