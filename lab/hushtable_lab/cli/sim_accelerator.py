"""``hushtable sim accelerator``: single-server retrieval on hardware described as data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushtable.cli.output import (
    Json,
    command,
    note,
    print_facts,
    print_json,
    print_table,
    progress_bar,
)
from hushtable.errors import ConfigError

from ..measure.records import bench_record

if TYPE_CHECKING:
    from ..sim.accelerator.serving import Load
    from ..sim.figure import Figure

_WORKLOADS = ("onion", "simplepir", "kspir")
_SCHEDULES = ("breadth", "depth", "hierarchical", "hierarchical-breadth")


@command(
    "hushtable sim accelerator",
    "hushtable sim accelerator --table-gb 16 --batch 1 --schedule breadth --no-overlap",
    "hushtable sim accelerator --systems 16 --table-gb 1024 --batch 128",
    "hushtable sim accelerator --table-gb 16 --rate 10 --rate 400",
    "hushtable sim accelerator --machine mine.toml --workload simplepir --json",
    "hushtable sim accelerator --machine this --table-gb 0.25 --batch 4",
    "hushtable sim accelerator --figure 13b --figure 14b -o figures",
    "hushtable sim accelerator --check --json",
)
def accelerator(
    machine: Annotated[
        str,
        typer.Option(
            help="ive, ive-separate, ark, h200, or a FILE.toml; or a processor, of which the time "
            "of `bench onion` is predicted: this (measured now) or sapphire-rapids."
        ),
    ] = "ive",
    systems: Annotated[int, typer.Option(help="Machines, each with a part of the table.")] = 1,
    table_gb: Annotated[float, typer.Option(help="GB (2^30 B) of records.")] = 8,
    workload: Annotated[str, typer.Option(help="onion, simplepir or kspir.")] = "onion",
    batch: Annotated[int, typer.Option(help="Queries that are answered together.")] = 64,
    d0: Annotated[int, typer.Option(help="D0: records of the first dimension.")] = 256,
    schedule: Annotated[
        str,
        typer.Option(
            help="Order within ExpandQuery and ColTor: breadth, depth, hierarchical (subtrees, "
            "depth first inside) or hierarchical-breadth."
        ),
    ] = "hierarchical",
    subtree: Annotated[
        int | None,
        typer.Option(
            help="Levels of a subtree of the hierarchical orders. By default the most that fit.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[int, typer.Option(help="Of a processor.")] = 1,
    overlap: Annotated[
        bool,
        typer.Option(
            "--overlap/--no-overlap", help="Add up each digit as soon as it is transformed."
        ),
    ] = True,
    special_primes: Annotated[
        bool,
        typer.Option(
            "--special-primes/--no-special-primes",
            help="Primes of few ones, whose reductions are smaller circuits.",
        ),
    ] = True,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            help="Queries a second that arrive at random: their latency, in batches after a "
            "waiting window and one at a time; may be repeated.",
            show_default=False,
        ),
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            help="Repeat a figure or table of the paper: 4a, 4b, 6, 7d, 8a, 8b, 12, 13a to 13e, "
            "14a, 14b, table-2 to table-4, or all; may be repeated.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for what --figure writes.")
    ] = Path("figures"),
    check: Annotated[
        bool, typer.Option("--check", help="Compare every printed number with ours.")
    ] = False,
    json: Json = False,
) -> None:
    """Simulate single-server retrieval on an accelerator, a GPU or this processor."""
    if check or figure:
        knobs = (machine, systems, table_gb, workload, batch, d0, schedule, subtree, threads, rate)
        if knobs != ("ive", 1, 8, "onion", 64, 256, "hierarchical", None, 1, None):
            raise ConfigError(
                "--check and --figure repeat the paper's points: leave the options of a point out, "
                "or leave --check and --figure out"
            )
        if check:
            _check(json)
        if figure:
            _figures(figure, output, json)
        return
    from ..sim.accelerator.figures_points import PROCESSORS, Point, area_mm2, point, scheduler_of

    _one_of("workload", workload, _WORKLOADS)
    _one_of("schedule", schedule, _SCHEDULES)
    if machine in PROCESSORS:
        chosen_by_engine = (systems, workload, d0, schedule, subtree, rate)
        if chosen_by_engine != (1, "onion", 256, "hierarchical", None, None):
            raise ConfigError(
                f"{machine} is a processor, whose engine chooses D0 and schedule: give --table-gb, "
                "--batch and --threads alone"
            )
        _processor(machine, table_gb, batch, threads, json)
        return
    if threads != 1:
        raise ConfigError(f"--threads is for processors ({', '.join(PROCESSORS)}): leave it out")
    chosen = Point(
        machine=machine,
        systems=systems,
        table_gb=table_gb,
        workload=workload,
        batch=batch,
        d0=d0,
        schedule=schedule,
        subtree=subtree,
        overlap=overlap,
        special_primes=special_primes,
    )
    found = point(chosen)
    area = area_mm2(chosen)
    loads_found = _loads(scheduler_of=scheduler_of, chosen=chosen, rates=rate or [])
    if json:
        print_json(_point_record(chosen, found, area))
        for kind, one in loads_found:
            print_json(_load_record(chosen, kind, one))
        return
    _print_point(chosen, found, area)
    if loads_found:
        _print_loads(loads_found)


def _processor(machine: str, table_gb: float, batch: int, threads: int, json: bool) -> None:
    """Predicts what `hushtable bench onion` takes."""
    from ..sim.accelerator.figures_points import GB, STEPS, processor_pass

    if machine == "this":
        note("measuring this processor")
    found = processor_pass(machine, table_gb, batch, threads)
    gb_per_s = batch * table_gb * GB / found.total / 1e9
    if json:
        params = {"machine": machine, "table_gb": table_gb, "batch": batch}
        print_json(
            bench_record(
                "sim accelerator processor",
                params,
                gb_per_s,
                "GB/s",
                None,
                None,
                threads,
                "model",
                measured=found.processor,
                ms_per_pass=1e3 * found.total,
                ms_per_query=1e3 * found.total / batch,
                seconds=found.seconds,
                units=found.units,
            )
        )
        return
    print_facts(
        {
            "processor": found.processor,
            "table": f"{table_gb:g} GB of 256-byte rows, {batch} queries a pass, "
            f"{threads} thread(s)",
            "predicted": f"{1e3 * found.total:,.4g} ms a pass, {gb_per_s:.3g} GB/s a query",
        }
    )
    print()
    rows = [
        [STEPS[step], f"{1e3 * seconds:.4g}", f"{seconds / found.total:.1%}"]
        for step, seconds in found.seconds.items()
    ]
    print_table(("step", "ms", "share"), rows)
    top = sorted(found.units.items(), key=lambda unit: -unit[1])[:8]
    print("\nmost of it: " + ", ".join(f"{name} {1e3 * seconds:.3g} ms" for name, seconds in top))


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{name} is {value!r}, but must be one of {', '.join(known)}")


def _check(json: bool) -> None:
    from ..sim.accelerator.check import compare_all, record
    from ..sim.published import comparison_rows

    with progress_bar("figures", shown=True) as progress:
        found = compare_all(progress=progress)
    line = record(found)
    if json:
        print_json(line)
        return
    print_table(_COMPARED, comparison_rows(found))
    detail = line["detail"]
    print(
        f"\n{detail['compared']} numbers that fitted nothing, {detail['off']} off; worst "
        f"{line['value']:.1%}: {detail['worst']}. {detail['fitted']} fitted something."
    )


def _figures(numbers: list[str], output: Path, json: bool) -> None:
    from ..sim.accelerator.figures import chosen, figure
    from ..sim.figure import has_matplotlib

    names = chosen(numbers)
    with progress_bar("figures", shown=True) as progress:
        for done, number in enumerate(names, 1):
            made = figure(number)
            written = made.write(output, "accelerator")
            if progress is not None:
                progress(done, len(names))
            if json:
                print_json(_figure_record(made, written))
            else:
                _print_figure(made, written)
    if not has_matplotlib():
        note("pictures need matplotlib: pip install 'hushtable-lab[plot]'")


_COMPARED = ("where", "what", "ours", "paper", "difference", "tolerance", "")


def _print_figure(made: Figure, written: list[Path]) -> None:
    from ..sim.published import comparison_rows

    print(f"\n{made.number}: {made.title}\n")
    if made.comparisons:
        print_table(_COMPARED, comparison_rows(made.comparisons))
    for line in made.notes:
        print(f"- {line}")
    print(f"wrote {', '.join(map(str, written))}")


def _figure_record(made: Figure, written: list[Path]) -> dict[str, Any]:
    from ..sim.published import check_record

    line = check_record("sim accelerator figure", {"figure": made.number}, made.comparisons)
    line["detail"] |= {
        "title": made.title,
        "columns": list(made.columns),
        "rows": [list(row) for row in made.rows],
        "notes": list(made.notes),
        "files": [str(path) for path in written],
    }
    return line


def _loads(scheduler_of: Any, chosen: Any, rates: list[float]) -> list[tuple[str, Load]]:
    """Latencies in batches, then one at a time, at each rate."""
    from ..sim.accelerator.serving import loads

    if not rates:
        return []
    with progress_bar("batches", shown=True) as progress:
        batched = scheduler_of(chosen, progress=progress)
    found = []
    with progress_bar("rates", shown=True) as progress:
        for kind, one in (("batches", batched), ("one at a time", batched.alone())):
            found += [(kind, each) for each in loads(one, rates, progress=progress)]
    return found


def _print_loads(found: list[tuple[str, Load]]) -> None:
    def milliseconds(seconds: float) -> str:
        return f"{1e3 * seconds:,.4g}"

    print("\nlatency at random arrivals, ms\n")
    rows = []
    for kind, one in found:
        cells = [f"{one.rate:g}/s, {kind}"]
        if one.is_sustained:
            cells += [
                milliseconds(one.mean_s),
                f"{milliseconds(one.low_s)}-{milliseconds(one.high_s)}",
                *map(milliseconds, (one.p50_s, one.p95_s, one.p99_s)),
                f"{one.batch_mean:.3g}",
                f"{one.busy:.0%}",
            ]
        else:
            cells += ["beyond", "", "", "", "", "", ""]
        rows.append(cells)
    print_table(("", "mean", "95 %", "p50", "p95", "p99", "batch", "busy"), rows)
    if not all(one.is_sustained for _, one in found):
        print("\nbeyond: more than it sustains, so that latencies grow without end")


def _load_record(chosen: Any, kind: str, one: Load) -> dict[str, Any]:
    def known(value: float) -> float | None:
        # JSON has no NaN.
        return value if one.is_sustained else None

    return bench_record(
        "sim accelerator load",
        _params(chosen) | {"rate": one.rate, "served": kind},
        known(one.mean_s),  # type: ignore[arg-type]
        "s",
        None,
        None,
        1,
        "model",
        is_sustained=one.is_sustained,
        low_s=known(one.low_s),
        high_s=known(one.high_s),
        p50_s=known(one.p50_s),
        p95_s=known(one.p95_s),
        p99_s=known(one.p99_s),
        batch_mean=one.batch_mean,
        busy=one.busy,
    )


def _params(chosen: Any) -> dict[str, Any]:
    return dataclasses.asdict(chosen)


def _point_record(chosen: Any, found: Any, area: float | None) -> dict[str, Any]:
    return bench_record(
        "sim accelerator",
        _params(chosen),
        found.qps,
        "queries/s",
        None,
        None,
        1,
        "model",
        latency_s=found.latency_s,
        seconds=found.seconds,
        busy=found.busy,
        dram_bytes=found.dram_bytes,
        working_set_bytes=found.working_set_bytes,
        subtrees=found.subtrees,
        joules_per_query=sum(found.joules.values()),
        joules=found.joules,
        area_mm2=area,
    )


def _print_point(chosen: Any, found: Any, area: float | None) -> None:
    from ..sim.accelerator.figures_points import STEPS

    facts = {
        "machine": f"{chosen.systems} x {chosen.machine}",
        "table": f"{chosen.table_gb:g} GB, {chosen.workload}, D0 {chosen.d0}",
        "queries a second": f"{found.qps:,.4g}, in batches of {chosen.batch}",
        "latency": f"{1e3 * found.latency_s:,.4g} ms",
    }
    # Of a machine without powers or areas in its file nothing is known.
    if joules := sum(found.joules.values()):
        facts["energy"] = f"{joules:.3g} J a query"
    if area:
        facts["area"] = f"{area:,.4g} mm2 a machine"
    print_facts(facts)
    print()
    rows = []
    for key, seconds in found.seconds.items():
        if not seconds:
            continue
        moved = found.dram_bytes.get(key, {})
        kinds = [
            f"{moved[kind] / 1e9:.3g}" if moved.get(kind) else ""
            for kind in ("table", "ciphertexts", "keys")
        ]
        held = found.working_set_bytes.get(key)
        rows.append(
            [
                STEPS.get(key, key),
                f"{1e3 * seconds:.4g}",
                f"{seconds / found.latency_s:.1%}",
                "" if held is None else f"{held / 2**20:.3g}",
                f"{sum(moved.values()) / 1e9:.3g}" if moved else "",
                *kinds,
            ]
        )
    print_table(("step", "ms", "share", "held, MiB", "DRAM, GB", "table", "cts", "keys"), rows)
    print()
    busy = ", ".join(f"{name} {share:.0%}" for name, share in found.busy.items())
    print_facts({"busy": busy})
    if joules:
        parts = ", ".join(f"{name} {1e3 * value:.3g}" for name, value in found.joules.items())
        print_facts({"mJ a query": parts})
