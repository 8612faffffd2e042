"""``hushtable bench serve --fixed``: what a request costs a server beside its scan."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from hushtable import _native
from hushtable.cli.output import note
from hushtable.errors import Error
from hushtable.server import ServerProcess, _affinity, make_certificates
from hushtable.table import Table

from .. import native
from ..measure.records import bench_record
from ._server_cpu import a_request, spending, usable_cpus

#: Rows of a table that is scanned in next to no time.
ROWS = 1 << 10


def bench_fixed(
    row_bytes: int, connections: int, tls: bool, warmup: float, seconds: float
) -> dict[str, Any]:
    """The record of one measurement: microseconds of the server's processor time a request."""
    server_cpu, client_cpu = usable_cpus()
    with tempfile.TemporaryDirectory(prefix="hushtable-bench-") as folder:
        bundle = Path(folder, "bundle")
        weight = np.random.default_rng(1).standard_normal((ROWS, row_bytes // 4), np.float32)
        Table.from_weight(weight, name="bench").save(bundle)
        with _affinity(server_cpu):
            engine = native.Bench(ROWS, row_bytes, threads=1, isa=None)
            engine_s = statistics.median(engine.answer_seconds(1, prg="aes128", seconds=0.5))
        made = make_certificates(Path(folder, "certificates")) if tls else None
        with ServerProcess(
            bundle,
            "left",
            device="cpu",
            tls=None if made is None else made.server,
            cpus=server_cpu,
            threads=1,
            # All clients are this machine's, so one peer's.
            connections_per_peer_max=4096,
            requests_per_s_per_peer_max=10_000_000,
        ) as server:
            note(f"asking it over {connections} connection(s) for {warmup + seconds:g} s")
            with _affinity(client_cpu), spending(server.process.pid, warmup, seconds) as spent:
                load = native.load_server(
                    server.url,
                    partner=None,
                    ca=None if made is None else made.ca,
                    clients=connections,
                    keys_per_request=1,
                    warmup=warmup,
                    seconds=seconds,
                )
    if load["errors"] or not load["requests"]:
        raise Error(f"{load['errors']} of {load['requests']} requests failed: see the server's log")
    costs = a_request(spent, load["queries_per_s"])
    value = costs.pop("server_cpu_us")
    return bench_record(
        "serve-fixed",
        {"rows": ROWS, "row_bytes": row_bytes, "connections": connections, "tls": tls},
        value,
        "us of server CPU a request",
        engine_s * 1e6,
        engine_s * 1e6 / value,
        1,
        _native.platforms().chosen,
        # What is in the value: all that the process does for a request, in the kernel too.
        holds=[
            "socket calls and epoll",
            "TLS records" if tls else "no TLS",
            "HTTP/2 frames and headers",
            "gRPC and protobuf",
            "limits and metrics",
            "the key's checks",
            "the scheduler",
            "the scan, which is the floor",
        ],
        beside_scan_us=value - engine_s * 1e6,
        **costs,
        requests_per_s=load["queries_per_s"],
        p50_ms=load["p50_ms"],
        p99_ms=load["p99_ms"],
        requests=load["requests"],
    )
