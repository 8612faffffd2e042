"""``hushtable bench onion`` and ``bench ntt``: lookups from one server, and what they rest on."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated, Any

import typer

from hushtable import _native
from hushtable.cli.output import Json, command, note, print_bench, print_json
from hushtable.errors import ConfigError

from .. import native
from ..measure.floors import multiply_ns, row_select_floor, transform_floor
from ..measure.records import bench_record
from ._onion_figures import figures
from ._onion_sweep import SELECTIONS, sweep


@command(
    "hushtable bench onion --table-mib 1024 --row-bytes 256 --batch 16 --threads 1",
    "hushtable bench onion --table-mib 64 --batch 1 --parameters ive_paper --json",
    "hushtable bench onion --sweep counts --plots figures",
)
def onion(
    table_mib: Annotated[int, typer.Option(help="MiB of the table.")] = 1024,
    row_bytes: Annotated[int, typer.Option(help="Bytes of a row.")] = 256,
    batch: Annotated[int, typer.Option(help="Clients that share a pass, one query each.")] = 16,
    threads: Annotated[int, typer.Option(help="Threads; 0 for one a core.")] = 1,
    parameters: Annotated[str, typer.Option(help="Parameter set.")] = "n4096_128",
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Order of both trees' steps: breadth, depth, hierarchical:DEPTH or "
            "hierarchical-breadth:DEPTH. What measured fastest by default."
        ),
    ] = None,
    levels: Annotated[
        int | None, typer.Option(help="Levels of ExpandQuery; the fastest by default.")
    ] = None,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Use up each digit of a key switch at once.")
    ] = False,
    sweep: Annotated[
        str | None,
        typer.Option(
            help="Instead of one shape, IVE's figures on this processor: counts (no clock), quick "
            "(small tables), evidence (9 minutes) or whole (45 minutes and more)."
        ),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(help="With --sweep: a folder for pictures and their points.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long to measure.")] = 5.0,
    json: Json = False,
) -> None:
    """Answer encrypted queries from a prepared table: GB of table a second and query.

    Each query is of another client, with keys of its own. Before the clock starts, every client's
    row is decoded and compared. The figure is of the best pass, the table being warm. The floor is
    RowSel's: reading the prepared table once, or multiplying it with every query.

    With --sweep, a line for each count and measurement: batches, sizes, schedules, D0, overlapping
    and a table that is not prepared, for both parameter sets (with --json, one record a line). What
    does not fit the free memory is left out, and a line says why.
    """
    if sweep is not None:
        _sweep(sweep, plots, threads, seconds, json)
        return
    if plots is not None:
        raise ConfigError("--plots draws what --sweep finds: give both")
    if not 1 <= table_mib <= 1 << 20:
        raise ConfigError(f"table_mib is {table_mib}, but must be 1 to {1 << 20}")
    if not 1 <= row_bytes <= table_mib << 20:
        raise ConfigError(f"row_bytes is {row_bytes}, but must be 1 to the table's bytes")
    rows = (table_mib << 20) // row_bytes
    note(f"preparing {rows:,} x {row_bytes} B")
    engine = native.OnionBench(
        rows,
        row_bytes,
        parameters=parameters,
        threads=threads,
        levels=levels,
        schedule=schedule,
        overlap=overlap,
    )
    note("checking, then measuring")
    passes, clients = engine.answer_seconds(batch, seconds=seconds)
    note("measuring the floor")
    facts, table_bytes = engine.facts, rows * row_bytes
    floor = row_select_floor(
        facts["resident_bytes"],
        facts["vectors"],
        batch,
        engine.threads,
        facts["modulus_bits"],
    )
    total, expand, row_select, tournament = min(passes)
    value, best = (batch * table_bytes / time / 1e9 for time in (total, floor.seconds))
    keys_s, query_s, decode_s = (statistics.median(times) for times in zip(*clients, strict=True))
    record = bench_record(
        "onion",
        {
            "table_mib": table_mib,
            "row_bytes": row_bytes,
            "batch": batch,
            "parameters": parameters,
            "schedule": schedule or "default",
            "overlap": overlap,
            "levels": facts["levels"],
        },
        value,
        "GB/s",
        best,
        value / best,
        engine.threads,
        _native.platforms().chosen,
        bound=floor.bound,
        ms_per_query=total * 1e3 / batch,
        ms_per_pass=total * 1e3,
        ms_per_pass_median=statistics.median(times[0] for times in passes) * 1e3,
        expand_share=expand / total,
        row_select_share=row_select / total,
        tournament_share=tournament / total,
        waiting_share=1 - (expand + row_select + tournament) / total,
        row_select_of_floor=floor.seconds / row_select,
        key_bytes=facts["key_bytes"],
        query_bytes=facts["query_bytes"],
        response_bytes=facts["response_bytes"],
        keys_ms=keys_s * 1e3,
        query_ms=query_s * 1e3,
        decode_ms=decode_s * 1e3,
        prepare_gb_per_s=table_bytes / facts["prepare_seconds"] / 1e9,
        resident_bytes_per_table_byte=facts["resident_bytes"] / table_bytes,
        noise_budget_bits=facts["noise_budget_bits"],
        failure_log2=facts["failure_log2"],
        matrix_rows=facts["matrix_rows"],
        matrix_columns=facts["matrix_columns"],
        games=facts["games"],
        repeats=len(passes),
        read_gb_per_s=floor.gb_per_s,
        multiply_ns=floor.instruction_ns,
        ring_kernel=facts["ring_kernel"],
        engine=engine.description,
    )
    print_bench(record, json)


def _sweep(name: str, plots: Path | None, threads: int, seconds: float, json: bool) -> None:
    if name not in SELECTIONS:
        expected = ", ".join(SELECTIONS)
        raise ConfigError(f"--sweep is {name!r}, but must be one of {expected}")
    selection = SELECTIONS[name]
    if selection is not None:
        note(f"about {selection.minutes:g} minutes")
    records = []
    # As long as three passes take, if that is more than a second.
    for record in sweep(name, threads, min(seconds, 1.0)):
        records.append(record)
        if json:
            print_json(record)
        else:
            detail = record["detail"].get("why", "")
            params = ", ".join(f"{name} {value}" for name, value in record["params"].items())
            print(f"{record['bench']}: {params}: {record['value']:.4g} {record['unit']} {detail}")
    if plots is not None:
        for figure in figures(records):
            for path in figure.write(plots, "onion"):
                note(f"wrote {path}")


@command("hushtable bench ntt", "hushtable bench ntt --degree 8192 --modulus-bits 51 --inverse")
def ntt(
    degree: Annotated[int, typer.Option(help="N: coefficients, a power of two.")] = 4096,
    modulus_bits: Annotated[int, typer.Option(help="Bits of the prime, 27 to 51.")] = 50,
    inverse: Annotated[
        bool, typer.Option("--inverse", help="Evaluations to coefficients.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="How long to measure.")] = 1.0,
    json: Json = False,
) -> None:
    """Transform one polynomial modulo one prime, on one thread: microseconds, the best of many.

    The floor is the butterflies' multiplications alone, three 52-bit ones for eight of them.
    """
    times, kernel = native.ntt_seconds(degree, modulus_bits, is_inverse=inverse, seconds=seconds)
    floor = transform_floor(degree)
    value = min(times) * 1e6
    best = None if floor is None else floor.seconds * 1e6
    params: dict[str, Any] = {
        "degree": degree,
        "modulus_bits": modulus_bits,
        "direction": "inverse" if inverse else "forward",
    }
    record = bench_record(
        "ntt",
        params,
        value,
        "us",
        best,
        None if best is None else best / value,
        1,
        kernel,
        bound=None if floor is None else floor.bound,
        median_us=statistics.median(times) * 1e6,
        repeats=len(times),
        multiply_ns=multiply_ns(),
    )
    print_bench(record, json)
