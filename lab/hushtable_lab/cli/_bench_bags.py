"""``hushtable bench serve --bags``: whole inferences a second, end to end."""

from __future__ import annotations

import contextlib
import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hushtable import _native
from hushtable._types import LayoutInfo
from hushtable.cli.output import note
from hushtable.errors import Error, NoLayout
from hushtable.server import ServerProcess, _affinity, make_certificates
from hushtable.table import Table

from ..measure.layout import random_layout

#: Inferences of a pass, for the engine's own rate: what the server's scheduler takes at most.
_PASS = 64


def bench_bags(
    bundle: Path | None,
    rows: int,
    row_bytes: int,
    parts: str,
    clients: int,
    tls: bool,
    warmup: float,
    seconds: float,
) -> dict[str, Any]:
    """The record of one measurement."""
    usable = sorted(os.sched_getaffinity(0))
    cpus = {"left": {usable[0]}, "right": {usable[-1]}}
    with tempfile.TemporaryDirectory(prefix="hushtable-bench-") as folder:
        if bundle is None:
            bundle = Path(folder, "bundle")
            note(f"building {rows:,} x {row_bytes} B")
            _build(bundle, rows, row_bytes, parts)
        table = Table.open(bundle).info
        layout, native = _layout(bundle)
        note("measuring the engine alone")
        with _affinity(cpus["left"]):
            engine_rate = _PASS / native.measure(_PASS, 2.0)
        made = make_certificates(Path(folder, "certificates")) if tls else None
        server_tls, ca = (None, None) if made is None else (made.server, made.ca)
        note("starting the servers")
        with contextlib.ExitStack() as stack:
            left, right = (
                stack.enter_context(
                    ServerProcess(
                        bundle,
                        side,
                        device="cpu",
                        tls=server_tls,
                        cpus=cpus[side],
                        threads=1,
                    )
                )
                for side in ("left", "right")
            )
            note(f"loading them with {clients} clients for {warmup + seconds:g} s")
            with _cpu_seconds(left, right) as spent:
                load = _native.load_bags(
                    left.url, right.url, ca=ca, clients=clients, warmup=warmup, seconds=seconds
                )
    if load["errors"]:
        raise Error(f"{load['errors']} of {load['requests']} inferences failed")
    rate, measured = load["queries_per_s"], seconds / (warmup + seconds)
    return {
        "bench": "serve-bags",
        "params": {
            "rows": table.rows,
            "row_bytes": table.row_bytes,
            "clients": clients,
            "tls": tls,
        },
        "value": rate,
        "unit": "inferences/s",
        "floor": engine_rate,
        "of_floor": rate / engine_rate,
        "threads": 1,
        "isa": _native.platforms().chosen,
        "detail": {
            "bound": "engine, one thread a server, full passes",
            "cores": len(usable),
            "keys": layout.keys,
            "comm_bytes": layout.comm_bytes,
            "map_bytes": layout.map_bytes,
            "stored_bytes": layout.stored_bytes,
            "p50_ms": load["p50_ms"],
            "p99_ms": load["p99_ms"],
            "max_ms": load["max_ms"],
            "window_ms": load["window_ms"],
            "answer_ms_mean": load["answer_ms_mean"],
            "requests": load["requests"],
            "rejected": load["rejected"],
            # Warm-up included at both: what one inference takes of each process.
            **{
                f"{name}_cpu_us": cpu * measured / max(load["requests"], 1) * 1e6
                for name, cpu in spent.items()
            },
        },
    }


def _build(bundle: Path, rows: int, row_bytes: int, parts: str) -> None:
    table, layout = random_layout(rows, row_bytes, parts)
    table.with_layout(layout).save(bundle)


def _layout(bundle: Path) -> tuple[LayoutInfo, _native.Layout]:
    info, native = Table.open(bundle).layout, _native.Layout.of_bundle(bundle)
    if info is None or native is None:
        raise NoLayout(f"{bundle} has no layout: make one with `hushtable tune --apply`")
    return info, native


@contextlib.contextmanager
def _cpu_seconds(left: ServerProcess, right: ServerProcess) -> Iterator[dict[str, float]]:
    """Processor time that both servers and this process take within."""

    def now() -> dict[str, float]:
        own = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "left": _process_seconds(left.process.pid),
            "right": _process_seconds(right.process.pid),
            "clients": own.ru_utime + own.ru_stime,
        }

    spent: dict[str, float] = {}
    before = now()
    yield spent
    spent.update({name: seconds - before[name] for name, seconds in now().items()})


def _process_seconds(pid: int) -> float:
    # After the name, which may hold anything: fields 14 and 15 are user and system time (proc(5)).
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
