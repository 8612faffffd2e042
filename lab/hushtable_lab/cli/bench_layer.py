"""``hushtable bench layer``: one call of a private layer beside the engine's own time."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hushtable import _native
from hushtable.cli.output import Json, command, note, print_bench
from hushtable.client import Client, connect
from hushtable.errors import ConfigError
from hushtable.nn import PrivateEmbedding, PrivateEmbeddingBag
from hushtable.server import ServerProcess, _affinity, make_certificates
from hushtable.table import Table

from .. import native
from ..measure.records import bench_record

#: Ids of a bag.
_BAG_IDS = 16


@command("hushtable bench layer", "hushtable bench layer --ids 32 --row-bytes 64 --json")
def layer(
    ids: Annotated[
        list[int] | None, typer.Option(help="Ids of one call; may be given again. [32, 256]")
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows of the table.")] = 1 << 20,
    row_bytes: Annotated[int, typer.Option(help="Bytes of a row: a multiple of 4.")] = 64,
    rounds: Annotated[int, typer.Option(help="Calls to measure, of each kind.")] = 25,
    json: Json = False,
) -> None:
    """Call private layers of one lone client, and real servers over TLS: milliseconds a call.

    The floor is the time of the engines of both servers for as many keys, measured between the
    calls: both at once, on the two cores where the servers are. With --json, one line for each
    number of ids.
    """
    if row_bytes % 4 or row_bytes < 4:
        raise ConfigError(f"row_bytes is {row_bytes}, but must be a multiple of 4: rows are f32")
    if rounds < 3:
        raise ConfigError(f"rounds is {rounds}, but must be at least 3")
    usable = sorted(os.sched_getaffinity(0))
    cpus = {"left": {usable[0]}, "right": {usable[-1]}}
    with tempfile.TemporaryDirectory(prefix="hushtable-bench-") as folder:
        bundle = Path(folder, "bundle")
        note(f"building {rows:,} x {row_bytes} B")
        weight = np.random.default_rng(1).standard_normal((rows, row_bytes // 4), np.float32)
        Table.from_weight(weight, name="bench").save(bundle)
        del weight
        engines = [_engine(rows, row_bytes, own) for own in cpus.values()]
        made = make_certificates(Path(folder, "certificates"))
        with contextlib.ExitStack() as stack:
            left, right = (
                stack.enter_context(
                    ServerProcess(
                        bundle, side, device="cpu", tls=made.server, cpus=cpus[side], threads=1
                    )
                )
                for side in ("left", "right")
            )
            client = stack.enter_context(connect(left.url, right.url, tls=made.ca))
            for count in ids or [32, 256]:
                note(f"calling with {count} ids")
                print_bench(_measure(client, engines, count, rows, row_bytes, rounds), json)


def _engine(rows: int, row_bytes: int, cpus: set[int]) -> native.Bench:
    with _affinity(cpus):
        return native.Bench(rows, row_bytes, threads=1, isa=None)


def _measure(
    client: Client,
    engines: list[native.Bench],
    count: int,
    rows: int,
    row_bytes: int,
    rounds: int,
) -> dict[str, Any]:
    random = np.random.default_rng(count)
    embedding = PrivateEmbedding(client)
    bag = PrivateEmbeddingBag(client, mode="sum")
    offsets = np.arange(0, count, _BAG_IDS)
    scales = random.random(count, np.float32)
    # As many keys as the layers send.
    keys = 1 << (count - 1).bit_length()
    times: dict[str, list[float]] = {
        name: [] for name in ("alone", "both", "embedding", "bag", "queue", "answer")
    }
    for turn in range(rounds + 1):
        asked = random.integers(0, rows, count)
        one = {
            "alone": min(_answer(engines[0], keys)),
            "both": _both(engines, keys),
            "embedding": _seconds(lambda: embedding(asked)),  # noqa: B023 - called at once
        }
        stats = client.last_stats
        assert stats is not None
        one |= {"queue": stats.queue_seconds, "answer": stats.answer_seconds}
        one["bag"] = _seconds(lambda: bag(asked, offsets, scales))  # noqa: B023 - as above
        if turn:  # the first is cold
            for name, seconds in one.items():
                times[name].append(seconds)
    medians = {name: statistics.median(all_of) for name, all_of in times.items()}
    floor = medians["both"]
    return bench_record(
        "layer",
        {"rows": rows, "row_bytes": row_bytes, "ids": count, "keys": keys},
        medians["embedding"] * 1e3,
        "ms/call",
        floor * 1e3,
        floor / medians["embedding"],
        1,
        _native.platforms().chosen,
        bound="both engines at once, one thread each",
        ratio=medians["embedding"] / floor,
        bag_ms=medians["bag"] * 1e3,
        bag_ratio=medians["bag"] / floor,
        engine_alone_ms=medians["alone"] * 1e3,
        ratio_to_one_alone=medians["embedding"] / medians["alone"],
        best_ms=min(times["embedding"]) * 1e3,
        best_ratio=min(times["embedding"]) / min(times["both"]),
        queue_ms=medians["queue"] * 1e3,
        answer_ms=medians["answer"] * 1e3,
        repeats=rounds,
    )


def _answer(engine: native.Bench, keys: int) -> list[float]:
    return engine.answer_seconds(keys, prg="aes128", seconds=0.0)


def _both(engines: list[native.Bench], keys: int) -> float:
    """Seconds of a pass while the other engine has one too: the slower of the two."""
    times: list[float] = []

    def answer(engine: native.Bench) -> None:
        times.append(statistics.median(_answer(engine, keys)))

    threads = [threading.Thread(target=answer, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(times)


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
