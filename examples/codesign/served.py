"""Layouts through two real servers: are the rows right, how long does an inference take, how many
can be answered a second."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from examples.movielens.servers import start_pair

import hushtable
from hushtable import _native
from hushtable.tune.trace import Trace

from .compare import Application, Bools, Floats, simulate


class Mismatch(hushtable.Error):
    """What the servers gave is not what the simulation promised."""


@dataclass(frozen=True)
class Served:
    """What was measured on two servers of this machine, both over TLS.

    Attributes:
        checked: inferences whose rows and drops were compared with the table and the simulation.
        p50_ms, p99_ms: an inference alone, from the call to its rows, planning included.
        inferences_per_s: whole inferences, both servers on this machine's cores, under load.
        load_p50_ms, load_p99_ms: an inference's latency under that load.
        sent_bytes, received_bytes: of one inference, both servers together.
        quality: the model's figure over the checked inferences' rows; None where only some of the
            split were checked.
    """

    checked: int
    p50_ms: float
    p99_ms: float
    inferences_per_s: float
    load_p50_ms: float
    load_p99_ms: float
    sent_bytes: int
    received_bytes: int
    quality: float | None


def serve(
    app: Application,
    table: hushtable.Table,
    layout: Any,
    *,
    bags: int | None = None,
    seconds: float = 6.0,
    clients: int = 32,
) -> Served:
    """Serves ``table`` by ``layout`` and runs the test split's first ``bags`` inferences (all of
    them by default) through both servers, then loads them with made-up ones.

    Raises:
        Mismatch: a row that is not the table's, or another one dropped than was simulated.
    """
    with tempfile.TemporaryDirectory(prefix="hushtable-codesign-") as folder:
        bundle = Path(folder) / "table"
        table._native.with_layout(layout).save(bundle)
        with start_pair(bundle, Path(folder) / "tls") as pair:
            trace = app.test if bags is None else _first(app.test, bags)
            with pair.connect(max_ids=1) as client:
                kept, rows, times, sent, received = _run(client, trace)
            if not np.array_equal(kept, simulate(layout, trace)):
                raise Mismatch("the servers' client dropped other ids than the simulation")
            clear = table.rows(trace.ids)
            if not np.array_equal(rows[kept], clear[kept]):
                raise Mismatch("a row came back that is not the table's")
            load = _native.load_bags(
                pair.left.url,
                pair.right.url,
                ca=pair.certificates.ca,
                clients=clients,
                warmup=1.0,
                seconds=seconds,
            )
    quality = app.quality("test", kept, rows) if bags is None else None
    return Served(
        checked=len(trace.offsets) - 1,
        p50_ms=float(np.percentile(times, 50)) * 1e3,
        p99_ms=float(np.percentile(times, 99)) * 1e3,
        inferences_per_s=float(load["queries_per_s"]),
        load_p50_ms=float(load["p50_ms"]),
        load_p99_ms=float(load["p99_ms"]),
        sent_bytes=sent,
        received_bytes=received,
        quality=quality,
    )


def _first(trace: Trace, bags: int) -> Trace:
    bags = min(bags, len(trace.offsets) - 1)
    return Trace(trace.ids[: trace.offsets[bags]], trace.offsets[: bags + 1])


def _run(client: hushtable.Client, trace: Trace) -> tuple[Bools, Floats, list[float], int, int]:
    kept, rows, times = [], [], []
    sent = received = 0
    for start, end in zip(trace.offsets[:-1], trace.offsets[1:], strict=True):
        started = time.perf_counter()
        bag = client.lookup_bag(trace.ids[start:end])
        times.append(time.perf_counter() - started)
        kept.append(bag.kept)
        rows.append(bag.rows)
        sent, received = bag.stats.bytes_up, bag.stats.bytes_down
    return np.concatenate(kept), np.concatenate(rows), times, sent, received
