"""``hushtable bench``: figures beside the floor that this machine sets."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hushtable import _native
from hushtable.cli.output import Json, command, note, print_bench, print_json, print_table
from hushtable.errors import ConfigError, Error
from hushtable.server import ServerProcess, _affinity, make_certificates
from hushtable.table import Table

from .. import native
from ..measure.floors import Floor, answer_floor, expand_floor
from ..measure.layout import DEFAULT_LAYOUT
from ..measure.records import bench_record
from ._bench_bags import bench_bags
from ._bench_fixed import bench_fixed
from ._bench_load import SCHEMES, Load, read_modes, read_rates
from ._bench_load import figure as load_figure
from ._bench_load import measure as measure_load
from ._server_cpu import a_request, spending, usable_cpus

Rows = Annotated[int, typer.Option(help="Rows of the table.")]
RowBytes = Annotated[int, typer.Option(help="Bytes of a row.")]
Isa = Annotated[
    str | None, typer.Option(help="portable, avx2, avx512 or neon; the best by default.")
]
PrgName = Annotated[str, typer.Option(help="Generator: see `bench paper prg` for their names.")]
Seconds = Annotated[float, typer.Option(help="How long to measure.")]

#: Table V of Lam et al., "GPU-based Private Information Retrieval for On-Device Machine Learning
#: Inference": queries/s on a V100, 2^20 rows, batches of 512.
V100_QUERIES_PER_S = {
    "aes128": 965,
    "salsa20": 3640,
    "salsa12": 5598,
    "sha256": 921,
    "siphash24": 7447,
    "highwayhash": 1973,
}


def _isa(isa: str | None) -> str:
    return isa or _native.platforms().chosen


@command(
    "hushtable bench dpf --rows 1048576 --row-bytes 256 --batch 256 --threads 1",
    "hushtable bench dpf --batch 1 --isa avx2 --json",
)
def dpf(
    rows: Rows = 1 << 20,
    row_bytes: RowBytes = 256,
    batch: Annotated[int, typer.Option(help="Keys answered at once.")] = 256,
    threads: Annotated[int, typer.Option(help="Threads; 0 for one a core.")] = 1,
    isa: Isa = None,
    prg: PrgName = "aes128",
    seconds: Seconds = 3.0,
    json: Json = False,
) -> None:
    """Answer keys from a random table: queries a second of one server's engine.

    Before the clock starts, both servers' answers are added up and compared with the rows.
    """
    note(f"filling {rows:,} x {row_bytes} B")
    engine = native.Bench(rows, row_bytes, threads=threads, isa=isa)
    note("checking, then measuring")
    times = engine.answer_seconds(batch, prg=prg, seconds=seconds)
    note("measuring the floor")
    floor = answer_floor(rows, row_bytes, batch, engine.threads, engine.batch_keys_best)
    params = {"rows": rows, "row_bytes": row_bytes, "batch": batch, "prg": prg}
    print_bench(_rate_record("dpf", params, batch, times, floor, engine.threads, _isa(isa)), json)


def _rate_record(
    bench: str,
    params: dict[str, Any],
    batch: int,
    times: list[float],
    floor: Floor,
    threads: int,
    isa: str,
    **detail: Any,
) -> dict[str, Any]:
    rate = batch / statistics.median(times)
    best = batch / floor.seconds
    return bench_record(
        bench,
        params,
        rate,
        "queries/s",
        best,
        rate / best,
        threads,
        isa,
        bound=floor.bound,
        ms_per_batch=statistics.median(times) * 1e3,
        repeats=len(times),
        read_gb_per_s=floor.gb_per_s,
        affine_ns=floor.instruction_ns,
        **detail,
    )


@command("hushtable bench expand --rows 1048576", "hushtable bench expand --group z32")
def expand(
    rows: Rows = 1 << 20,
    group: Annotated[str, typer.Option(help="Output group: bits, z8 or z32.")] = "bits",
    isa: Isa = None,
    prg: PrgName = "aes128",
    seconds: Seconds = 2.0,
    json: Json = False,
) -> None:
    """Expand one key alone, on one thread: nanoseconds a row."""
    times = native.expand_seconds(rows, group=group, prg=prg, isa=isa, seconds=seconds)
    ns_per_row = statistics.median(times) * 1e9 / rows
    floor = expand_floor(rows, group) if prg == "aes128" else None
    best = None if floor is None else floor.seconds * 1e9 / rows
    record = bench_record(
        "expand",
        {"rows": rows, "group": group, "prg": prg},
        ns_per_row,
        "ns/row",
        best,
        None if best is None else best / ns_per_row,
        1,
        _isa(isa),
        bound=None if floor is None else floor.bound,
        us_per_key=statistics.median(times) * 1e6,
        repeats=len(times),
        aes_round_ns=None if floor is None else floor.instruction_ns,
    )
    print_bench(record, json)


@command("hushtable bench paper prg", "hushtable bench paper prg --batch 512 --threads 1 --json")
def prg(
    rows: Rows = 1 << 20,
    row_bytes: RowBytes = 256,
    batch: Annotated[int, typer.Option(help="Keys answered at once; the paper's are 512.")] = 512,
    threads: Annotated[int, typer.Option(help="Threads; 0 for one a core.")] = 1,
    isa: Isa = None,
    seconds: Annotated[float, typer.Option(help="How long to measure each generator.")] = 1.0,
    json: Json = False,
) -> None:
    """Answer keys of each generator: Table V of the GPU-PIR paper, repeated on this processor.

    With --json, one line a generator. The paper's rows are 256 bytes, its GPU a V100.
    """
    note(f"filling {rows:,} x {row_bytes} B")
    engine = native.Bench(rows, row_bytes, threads=threads, isa=isa)
    floor = answer_floor(rows, row_bytes, batch, engine.threads, engine.batch_keys_best)
    lines = []
    for name in _native.prg_names():
        note(f"measuring {name}")
        times = engine.answer_seconds(batch, prg=name, seconds=seconds)
        # The paper's figures are for its one shape.
        is_paper_shape = (rows, row_bytes) == (1 << 20, 256)
        paper = V100_QUERIES_PER_S.get(name) if is_paper_shape else None
        params = {"rows": rows, "row_bytes": row_bytes, "batch": batch, "prg": name}
        record = _rate_record(
            "prg", params, batch, times, floor, engine.threads, _isa(isa), v100_queries_per_s=paper
        )
        if json:
            print_json(record)
        ratio = "" if paper is None else f"{record['value'] / paper:.2f}"
        latency = f"{record['detail']['ms_per_batch']:,.1f}"
        v100 = "-" if paper is None else f"{paper:,}"
        lines.append([name, f"{record['value']:,.0f}", latency, v100, ratio])
    if not json:
        print_table(["prg", "queries/s", "ms a batch", "V100 queries/s", "ratio"], lines)
        on = f"{engine.threads} thread(s), {_isa(isa)}"
        print(f"{rows:,} rows x {row_bytes} B, batches of {batch}, {on}")


@command(
    "hushtable bench serve --clients 64",
    "hushtable bench serve --rows 65536 --seconds 3 --json",
    "hushtable bench serve --fixed --json",
    "hushtable bench serve --bags --bundle bundles/items",
    "hushtable bench serve --bags --rows 50000 --row-bytes 128",
    "hushtable bench serve --scheme onion --rows 65536 --rates 5,10,20 --plots figures",
    "hushtable bench serve --scheme pair --rates auto --modes window,one --json",
    more={
        "Random arrivals": ("rate", "rates", "modes", "connections", "seed", "plots"),
        "What is served": ("bundle", "layout", "parameters"),
    },
)
def serve(
    clients: Annotated[
        int | None,
        typer.Option(help="Clients, each with its own connection: 64, or 1 with --fixed."),
    ] = None,
    keys_per_request: Annotated[int, typer.Option(help="Keys in each request.")] = 1,
    rows: Rows = 1 << 20,
    row_bytes: Annotated[int, typer.Option(help="Bytes of a row: a multiple of 4.")] = 256,
    bags: Annotated[
        bool, typer.Option("--bags", help="Load both servers with whole inferences.")
    ] = False,
    fixed: Annotated[
        bool,
        typer.Option(
            "--fixed", help="Measure what a request costs beside its scan, over one connection."
        ),
    ] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(help="With --bags: a table with a layout, instead of random rows."),
    ] = None,
    layout: Annotated[
        str, typer.Option(help="With --bags: the parts of the random table's layout, as JSON.")
    ] = DEFAULT_LAYOUT,
    tls: Annotated[bool, typer.Option(help="Encrypt what goes over the wire.")] = True,
    scheme: Annotated[
        str, typer.Option(help="With --rate: pair, or onion for a server that is asked alone.")
    ] = "pair",
    rate: Annotated[
        float | None,
        typer.Option(help="Queries a second that arrive by themselves (Poisson): an open loop."),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(help="As --rate, several with commas between; auto for the engine's own."),
    ] = None,
    modes: Annotated[
        str,
        typer.Option(
            help="With --rate: window (the server's own), no-window (batches of what waits while "
            "a pass runs), one (no batches); several with commas between."
        ),
    ] = "window,no-window,one",
    parameters: Annotated[
        str, typer.Option(help="With --scheme onion: the parameter set.")
    ] = "n4096_128",
    connections: Annotated[
        int | None,
        typer.Option(help="With --rate: 128 by default, 32 of onion, whose clients have keys."),
    ] = None,
    seed: Annotated[int, typer.Option(help="With --rate: of the arrivals.")] = 1,
    plots: Annotated[
        Path | None, typer.Option(help="With --rate: a folder for the curve and its points.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long to load the server.")] = 10.0,
    warmup: Annotated[float, typer.Option(help="Seconds before the clock starts.")] = 2.0,
    json: Json = False,
) -> None:
    """Load one real server over TLS: one process on one core, the clients on another.

    The floor is the engine's own rate on one thread, measured in the same run on the same core:
    for passes as large as it likes, and in the detail also for passes of what these clients can
    have open at a time.

    With --bags, both servers are loaded with whole inferences by a layout: left and right have a
    core each, which they share with the clients. The floor is the engine's rate without clients
    and network.

    With --fixed, a table of 1,024 rows is asked for one key a request over one connection that is
    kept open, or over as many as --clients says: the processor time that the server process takes
    a request, in the kernel too. The floor is the scan alone.

    With --rate or --rates, queries arrive by themselves and wait for no answer. Latency counts from
    when a query was to arrive; what was refused, failed or given up is later than all others. A
    line for each rate and each way of batching, then one that sums the curve up (with --json, a
    record a line); the load's own lag is among the figures.
    """
    if rate is not None or rates is not None:
        arriving = Load(
            scheme,
            read_rates(rate, rates),
            read_modes(modes),
            rows,
            row_bytes,
            parameters,
            connections or (32 if scheme == "onion" else 128),
            seconds,
            warmup,
            seed,
        )
        _open_loop(arriving, plots, json)
        return
    if fixed:
        if bags or bundle is not None or layout != DEFAULT_LAYOUT or keys_per_request != 1:
            raise ConfigError(
                "--fixed asks for single keys of a table of its own: leave out the rest"
            )
        _check_row_bytes(row_bytes)
        print_bench(bench_fixed(row_bytes, clients or 1, tls, warmup, seconds), json)
        return
    clients = 64 if clients is None else clients
    if scheme != "pair" or plots is not None:
        raise ConfigError("--scheme and --plots are for queries that arrive: give --rate too")
    if bags:
        record = bench_bags(bundle, rows, row_bytes, layout, clients, tls, warmup, seconds)
        print_bench(record, json)
        return
    if bundle is not None or layout != DEFAULT_LAYOUT or not tls:
        raise ConfigError("--bundle, --layout and --no-tls are for whole inferences: give --bags")
    _check_row_bytes(row_bytes)
    native.require()
    server_cpu, client_cpu = usable_cpus()
    with tempfile.TemporaryDirectory(prefix="hushtable-bench-") as folder:
        bundle = Path(folder, "bundle")
        note(f"building {rows:,} x {row_bytes} B")
        weight = np.random.default_rng(1).standard_normal((rows, row_bytes // 4), np.float32)
        Table.from_weight(weight, name="bench").save(bundle)
        del weight
        certificates = make_certificates(Path(folder, "certificates"))
        note("measuring the engine alone")
        engine_rates = _engine_rates(rows, row_bytes, clients * keys_per_request, server_cpu)
        note("starting the servers")
        with ServerProcess(
            bundle,
            "left",
            device="cpu",
            tls=certificates.server,
            cpus=server_cpu,
            threads=1,
            # All clients are this machine's, so one peer's.
            connections_per_peer_max=4096,
            requests_per_s_per_peer_max=10_000_000,
        ) as left:
            with ServerProcess(
                bundle,
                "right",
                device="cpu",
                tls=certificates.server,
                cpus=client_cpu,
                threads=1,
            ) as right:
                _load(left.url, right.url, certificates.ca, 1, keys_per_request, 0.0, 0.1)
            note(f"loading it with {clients} clients for {warmup + seconds:g} s")
            with _affinity(client_cpu), spending(left.process.pid, warmup, seconds) as spent:
                load = _load(
                    left.url, None, certificates.ca, clients, keys_per_request, warmup, seconds
                )
    if load["errors"]:
        raise Error(f"{load['errors']} of {load['requests']} requests failed: see the server's log")
    engine_rate, same_batch_rate = engine_rates
    record = bench_record(
        "serve",
        {
            "rows": rows,
            "row_bytes": row_bytes,
            "clients": clients,
            "keys_per_request": keys_per_request,
        },
        load["queries_per_s"],
        "queries/s",
        engine_rate,
        load["queries_per_s"] / engine_rate,
        1,
        _isa(None),
        bound="engine, one thread, full passes",
        engine_at_this_load=same_batch_rate,
        of_engine_at_this_load=load["queries_per_s"] / same_batch_rate,
        p50_ms=load["p50_ms"],
        p99_ms=load["p99_ms"],
        max_ms=load["max_ms"],
        window_ms=load["window_ms"],
        answer_ms_mean=load["answer_ms_mean"],
        requests=load["requests"],
        rejected=load["rejected"],
        **a_request(spent, load["queries_per_s"] / keys_per_request),
    )
    print_bench(record, json)


def _check_row_bytes(row_bytes: int) -> None:
    if row_bytes % 4 or row_bytes < 4:
        raise ConfigError(f"row_bytes is {row_bytes}, but must be a multiple of 4: rows are f32")


def _open_loop(load: Load, plots: Path | None, json: bool) -> None:
    if load.scheme not in SCHEMES:
        raise ConfigError(f"--scheme is {load.scheme!r}, but must be pair or onion")
    if load.row_bytes % 4 or load.row_bytes < 4:
        raise ConfigError(f"row_bytes is {load.row_bytes}, but must be a multiple of 4")
    if load.connections < 1 or load.seconds <= 0 or load.warmup < 0:
        raise ConfigError("--connections and --seconds must be above 0, --warmup at least 0")
    records, lines = [], []
    for record in measure_load(load):
        records.append(record)
        if json:
            print_json(record)
        elif record["bench"] == "load":
            detail = record["detail"]
            cells = [detail[name] for name in ("mean_ms", *_PERCENTILES, "lag_p99_ms")]
            lost = detail["arrived"] - detail["answered"]
            shown = ["-" if cell is None else f"{cell:,.2f}" for cell in cells]
            rate = f"{record['params']['rate']:,.4g}"
            lines.append([record["params"]["mode"], rate, *shown, f"{lost:,}"])
    if not json:
        heads = ["mode", "queries/s", "mean ms", "p50", "p90", "p99", "p99.9", "lag p99", "lost"]
        print_table(heads, lines)
        print_bench(records[-1], json)
    if plots is not None:
        for path in load_figure(records).write(plots, "load"):
            note(f"wrote {path}")


_PERCENTILES = ("p50_ms", "p90_ms", "p99_ms", "p999_ms")


def _engine_rates(rows: int, row_bytes: int, open_keys: int, cpus: set[int]) -> tuple[float, float]:
    """Queries a second of the engine alone: in full passes, and in passes of ``open_keys``."""
    with _affinity(cpus):
        engine = native.Bench(rows, row_bytes, threads=1, isa=None)
        full = engine.batch_keys_best
        rates = []
        for batch in (full, min(open_keys, full)):
            times = engine.answer_seconds(batch, prg="aes128", seconds=2.0)
            rates.append(batch / statistics.median(times))
    return rates[0], rates[1]


def _load(
    url: str,
    partner: str | None,
    ca: Path,
    clients: int,
    keys_per_request: int,
    warmup: float,
    seconds: float,
) -> dict[str, Any]:
    return native.load_server(
        url,
        partner=partner,
        ca=ca,
        clients=clients,
        keys_per_request=keys_per_request,
        warmup=warmup,
        seconds=seconds,
    )
