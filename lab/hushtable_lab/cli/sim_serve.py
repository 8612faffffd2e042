"""``hushtable sim serve``: tables on many machines, what they cost and how fast they answer."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushtable.cli.output import Json, command, note, print_json, print_table, progress_bar
from hushtable.errors import ConfigError

from ..measure.records import bench_record

if TYPE_CHECKING:
    from ..sim.serve import Answer, Instance, Need, Prices, Profile, TableSize


@command(
    "hushtable sim serve --rows 1000000000 --row-bytes 128 --rate 2000 --p99-ms 500",
    "hushtable sim serve --rows 67108864 --row-bytes 256 --rate 500 --shards 4 --shards 8",
    "hushtable sim serve --model models/clicks --rate 200 --p99-ms 300 --provider gcp",
    "hushtable sim serve --machine this --rows 4194304 --row-bytes 256 --rate 50 --json",
    "hushtable sim serve --check",
    more={
        "Machines": ("provider", "instance", "front_instance", "prices", "zones"),
        "Passes": (
            *("machine", "measured", "threads", "read_gb_per_s", "hop_ms", "window_us"),
            *("batch_keys_max", "jitter", "stalls", "stall_ms", "hedge"),
        ),
        "Simulation": ("busy", "lookups", "seed", "check"),
    },
)
def serve(
    rows: Annotated[int | None, typer.Option(help="Rows of the table.", show_default=False)] = None,
    row_bytes: Annotated[
        int | None, typer.Option(help="Bytes of a row of it, as stored.", show_default=False)
    ] = None,
    keys: Annotated[int, typer.Option(help="Rows of it that a lookup asks for, padding too.")] = 1,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A model bundle: each lookup asks all of its features, max_ids rows each.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        list[float] | None,
        typer.Option(help="Lookups a second; may be repeated.", show_default=False),
    ] = None,
    p99_ms: Annotated[
        float | None,
        typer.Option(help="Milliseconds within which 99 % are to be answered.", show_default=False),
    ] = None,
    shards: Annotated[
        list[int] | None,
        typer.Option(help="Of a side; may be repeated. By default chosen.", show_default=False),
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(help="Of each shard. By default chosen, 2 at least.")
    ] = None,
    fronts: Annotated[
        int | None, typer.Option(help="Of a side. By default chosen, 2 at least.")
    ] = None,
    memory_gib: Annotated[
        float | None,
        typer.Option(
            help="Most of a shard's host; as much as it has by default.", show_default=False
        ),
    ] = None,
    versions: Annotated[
        int, typer.Option(help="Of the tables that a host holds while they change.")
    ] = 2,
    provider: Annotated[
        str, typer.Option(help="Whose machines: aws, gcp, azure, or one of --prices; or any.")
    ] = "aws",
    instance: Annotated[
        str | None, typer.Option(help="Of shards. By default the cheapest that does.")
    ] = None,
    front_instance: Annotated[
        str | None, typer.Option(help="Of fronts. By default the cheapest with 4 vCPUs.")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="Your price list (docs/sim-serve.md).", show_default=False)
    ] = None,
    zones: Annotated[
        int, typer.Option(help="Over which a side is spread: bytes between them cost.")
    ] = 1,
    machine: Annotated[
        str,
        typer.Option(
            help="What passes take: sapphire-rapids, epyc, this (measured now), or a FILE.toml."
        ),
    ] = "sapphire-rapids",
    measured: Annotated[
        list[Path] | None,
        typer.Option(
            help="What `hushtable bench dpf --json` and `bench shards --json` printed, in place of "
            "the machine's; may be repeated.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Of a shard. By default the instance's cores.")
    ] = None,
    read_gb_per_s: Annotated[
        float | None,
        typer.Option(
            help="That all cores of a host read from memory. By default the measured machine's.",
            show_default=False,
        ),
    ] = None,
    hop_ms: Annotated[float, typer.Option(help="To a shard and back, of the network alone.")] = 1.0,
    window_us: Annotated[
        int | None,
        typer.Option(
            help="A front's, as `hushtable serve` takes it. By default a pass of one lookup.",
            show_default=False,
        ),
    ] = None,
    batch_keys_max: Annotated[
        int | None, typer.Option(help="Of a pass. By default the engine's.", show_default=False)
    ] = None,
    jitter: Annotated[
        float | None,
        typer.Option(help="Spread of passes alike: 0.1 is 10 %. By default as measured."),
    ] = None,
    stalls: Annotated[
        float | None, typer.Option(help="Share of passes that stall. By default as measured.")
    ] = None,
    stall_ms: Annotated[
        float | None, typer.Option(help="How long one lasts, mean. By default as measured.")
    ] = None,
    hedge: Annotated[
        bool, typer.Option("--hedge/--no-hedge", help="Ask a second replica for what is late.")
    ] = True,
    busy: Annotated[
        float, typer.Option(help="Of what a deployment carries, the part that is used.")
    ] = 0.7,
    lookups: Annotated[
        int | None, typer.Option(help="Simulated. By default as many as tell p99.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same results.")] = 1,
    check: Annotated[
        bool, typer.Option("--check", help="Compare the simulation with what is known of it.")
    ] = False,
    json: Json = False,
) -> None:
    """Size shards, replicas and fronts: hosts, latency, the rate they carry, bytes and money.

    Two sides that do not collude, alike: on each, all shards answer every lookup, from as many
    replicas as the rate takes, behind fronts that batch. Passes are measured ones, of one shard;
    queues, the slowest of the shards and hedging are simulated. With --p99-ms, or without --shards,
    the cheapest deployment that does is looked for.
    """
    # They bring numpy, which other commands may do without.
    from ..sim.serve import Need, answer, choose, read_prices
    from ..sim.serve.plan import deployments, remedy
    from ..sim.serve.prices import LISTED

    if check:
        _check(seed, json)
        return
    tables = _tables(rows, row_bytes, keys, model)
    rates = rate or []
    if not rates:
        raise ConfigError("--rate is missing: give lookups a second, such as --rate 100")
    for name, value, least, most in (
        ("--p99-ms", p99_ms, 0.0, 1e9),
        ("--memory-gib", memory_gib, 0.0, 1e6),
        ("--hop-ms", hop_ms, -1e-9, 1e5),
        ("--busy", busy, 0.0, 1.0),
        *(("--rate", one, 0.0, 1e9) for one in rates),
    ):
        if value is not None and not (math.isfinite(value) and least < value <= most):
            raise ConfigError(
                f"{name} is {value:g}, but must be above {max(least, 0):g}, up to {most:g}"
            )
    for name, count, most_count in (
        ("--versions", versions, 16), ("--zones", zones, 100), ("--threads", threads, 1024),
        ("--batch-keys-max", batch_keys_max, 1 << 20), ("--window-us", window_us, 60_000_000),
    ):  # fmt: skip
        least_count = 0 if name == "--window-us" else 1
        if count is not None and not least_count <= count <= most_count:
            raise ConfigError(f"{name} is {count}, but must be {least_count} to {most_count:,}")
    listed = read_prices(LISTED if prices is None else prices)
    profile = _profile(machine, measured or [], tables, shards, json).reads(read_gb_per_s)
    stalled = replace(
        profile.stalls,
        **{
            name: value
            for name, value in (
                ("spread", jitter),
                ("share", stalls),
                ("seconds", None if stall_ms is None else stall_ms / 1e3),
            )
            if value is not None
        },
    )
    need = Need(
        tables=tables,
        rate=rates[0],
        prices=listed,
        profile=profile,
        p99_s=None if p99_ms is None else p99_ms / 1e3,
        memory_bytes=None if memory_gib is None else memory_gib * 2**30,
        versions=versions,
        replicas=replicas,
        fronts=fronts,
        instances=_instances(listed, provider, instance),
        front_instance=None if front_instance is None else listed.instance(front_instance),
        threads=threads,
        busy_max=busy,
        zones=zones,
        settings=_settings(hop_ms, window_us, batch_keys_max, stalled, hedge),
        seed=seed,
        lookups=lookups,
    )
    found: list[Answer] = []
    counts: list[int | None] = [*shards] if shards else [None]
    for one_rate in rates:
        for count in counts:
            one = replace(need, rate=one_rate, shards=count)
            if p99_ms is not None or not (count and replicas and fronts):
                with progress_bar("deployments", shown=True) as progress:
                    found.append(choose(one, progress))
                continue
            # All is set but the host: the cheapest with room.
            hosts = sorted(one.instances, key=lambda host: host.dollars_per_hour)
            fitting = ((host, each) for host in hosts for each in deployments(one, host))
            host, deployment = next(fitting, (None, None))
            if host is None or deployment is None:
                choose(one)  # says what has no room
                raise ConfigError("no instance has room for a shard")
            note(f"simulating {deployment.shards} shards")
            found.append(answer(one, deployment, host))
            if found[-1].run is None and len(rates) * len(counts) == 1:
                raise ConfigError(remedy(one, deployment, host))
    if json:
        for each in found:
            print_json(_record(each, need))
        return
    _print(found, need)


def _tables(
    rows: int | None, row_bytes: int | None, keys: int, model: Path | None
) -> tuple[TableSize, ...]:
    from hushtable.model import Model

    from ..sim.serve import TableSize

    if model is None:
        if rows is None or row_bytes is None:
            raise ConfigError("give a table, --rows and --row-bytes, or a --model")
        return (TableSize("the table", rows, row_bytes, keys),)
    if rows is not None or row_bytes is not None or keys != 1:
        raise ConfigError(
            "--model has rows and keys of its own: leave --rows, --row-bytes, --keys out"
        )
    opened = Model.open(model)
    asked: dict[str, int] = {}
    for feature in opened.features:
        asked[feature.table] = asked.get(feature.table, 0) + feature.max_ids
    return tuple(
        TableSize(one.name, one.rows, one.dim * _BYTES[one.dtype], asked[one.name])
        for one in opened.tables
        if one.name in asked
    )


_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1}


def _profile(
    machine: str,
    paths: list[Path],
    tables: tuple[TableSize, ...],
    shards: list[int] | None,
    json: bool,
) -> Profile:
    from ..sim.serve.measured import measure
    from ..sim.serve.passes import read_measured, read_profile

    if machine != "this":
        base = read_profile(machine)
        return read_measured(paths, base) if paths else base
    if paths:
        raise ConfigError("--machine this measures passes: leave --measured out")
    note("measuring this machine")
    shapes = sorted({
        (max(1, table.rows // count), table.row_bytes)
        for table in tables for count in (min(shards or [8]), max(shards or [8]))
    })  # fmt: skip
    # A model may have many tables: the largest say most.
    shapes = sorted(shapes, key=lambda shape: -shape[0] * shape[1])[:4]
    with progress_bar("tables", shown=not json) as progress:
        return measure(shapes, read_profile("epyc").front, progress=progress)


def _instances(listed: Prices, provider: str, instance: str | None) -> tuple[Instance, ...]:
    if instance is not None:
        return (listed.instance(instance),)
    if provider == "aws" and provider not in listed.providers:
        # The default is of the list that comes with the package.
        return listed.instances
    return listed.of(None if provider == "any" else provider)


def _settings(
    hop_ms: float, window_us: int | None, batch_keys_max: int | None, stalls: Any, hedge: bool
) -> dict[str, object]:
    from ..sim.serve import Hedging

    return {
        "hop": hop_ms / 1e3,
        "window": None if window_us is None else window_us / 1e6,
        "batch_keys_max": batch_keys_max,
        "stalls": stalls,
        "hedging": Hedging() if hedge else Hedging(quantile=None),
    }


_COLUMNS = ("shards x replicas + fronts", "hosts", "p50 ms", "p99 ms", "carried", "busy", "$/month")


def _print(found: list[Answer], need: Need) -> None:
    stored = sum(table.stored_bytes for table in need.tables)
    what = ", ".join(
        f"{one.rows:,} x {one.row_bytes} B ({one.keys} a lookup)" for one in need.tables[:3]
    )
    more = f" and {len(need.tables) - 3} more" if len(need.tables) > 3 else ""
    print(f"{what}{more}: {stored / 2**30:,.3g} GiB")
    print(f"passes: {need.profile.measured}")
    print(f"prices: {need.prices.date}, {need.prices.note}")
    for rate in dict.fromkeys(one.rate for one in found):
        print(f"\n{rate:,.6g} lookups a second\n")
        here = [one for one in found if one.rate == rate]
        print_table(_COLUMNS, [_cells(one) for one in here])
        for one in here:
            print(_words(one))
    if any(one.deployment.shards == 1 for one in found):
        print("\nOne shard is a whole table: ordinary servers do without fronts.")
    print(
        "\nhosts and $ are of both sides; ms until both have answered; carried: lookups a second "
        "at which\nsomething never rests; busy: of that. $ are on demand, without discounts."
    )


def _cells(one: Answer) -> list[str]:
    side = one.deployment
    name = f"{side.shards} x {side.replicas} {one.instance.name} + {side.fronts}"
    if one.run is None:
        return [
            name,
            f"{one.hosts}",
            "beyond",
            "",
            f"{one.carried.per_s:,.4g}",
            "",
            f"{one.dollars:,.0f}",
        ]
    is_steady = one.is_sustained
    return [
        name,
        f"{one.hosts}",
        f"{1e3 * one.run.quantile(0.5):,.4g}" if is_steady else "grows",
        f"{1e3 * one.p99_s:,.4g}" if is_steady else "",
        f"{one.carried.per_s:,.4g}",
        f"{one.rate / one.carried.per_s:.0%}",
        f"{one.dollars:,.0f}",
    ]


def _words(one: Answer) -> str:
    up, down = one.client_bytes_per_s
    hedged = _hedged(one)
    twice = "" if not hedged else f"; {hedged:.1%} of parts asked twice"
    return (
        f"- {one.front_instance.name} fronts; a shard has {one.memory_bytes / 2**30:,.3g} of "
        f"{one.instance.memory_gib:g} GiB; {one.carried.limit} are the limit{twice};\n"
        f"  clients send {up / 1e6:,.3g} MB/s and get {down / 1e6:,.3g}, shards' links have "
        f"{one.inner_bytes_per_s / 1e6:,.4g}; ${one.hosts_dollars:,.0f} hosts + "
        f"${one.bytes_dollars:,.0f} bytes"
    )


def _hedged(one: Answer) -> float | None:
    """The share of parts that a second replica was asked for."""
    sides = () if one.run is None else one.run.sides
    parts = sum(side.parts for side in sides)
    return sum(side.hedges for side in sides) / parts if parts else None


def _record(one: Answer, need: Need) -> dict[str, Any]:
    side, run = one.deployment, one.run
    measured = one.is_sustained and run is not None
    sides = () if run is None else run.sides
    return bench_record(
        "sim serve",
        {
            "tables": [
                {"rows": table.rows, "row_bytes": table.row_bytes, "keys": table.keys}
                for table in need.tables
            ],
            "rate": one.rate,
            "p99_ms_max": None if need.p99_s is None else 1e3 * need.p99_s,
            "shards": side.shards,
            "replicas": side.replicas,
            "fronts": side.fronts,
            "instance": one.instance.name,
            "front_instance": one.front_instance.name,
            "threads": side.threads,
            "hop_ms": 1e3 * side.hop_seconds,
            "window_ms": 1e3 * side.window_seconds,
            "versions": need.versions,
            "zones": need.zones,
            "seed": need.seed,
        },
        one.dollars,
        "dollars a month",
        None,
        None,
        side.threads,
        "model",
        measured=need.profile.measured,
        prices_date=need.prices.date.isoformat(),
        prices_note=need.prices.note,
        hosts=one.hosts,
        hosts_dollars=one.hosts_dollars,
        bytes_dollars=one.bytes_dollars,
        is_sustained=measured,
        p50_ms=1e3 * run.quantile(0.5) if measured and run else None,
        p99_ms=1e3 * one.p99_s if measured else None,
        answered_per_s=run.per_s if run else None,
        carried_per_s=one.carried.per_s,
        carried_by=one.carried.by,
        limit=one.carried.limit,
        pass_ms_one=1e3 * side.pass_seconds(1),
        pass_ms_full=1e3 * side.pass_seconds(side.lookups_max),
        lookups_a_pass=sides[0].lookups_mean if sides else None,
        shard_busy=sides[0].shard_busy if sides else None,
        front_busy=sides[0].front_busy if sides else None,
        hedged=_hedged(one),
        memory_bytes=one.memory_bytes,
        client_up_bytes_per_s=one.client_bytes_per_s[0],
        client_down_bytes_per_s=one.client_bytes_per_s[1],
        inner_bytes_per_s=one.inner_bytes_per_s,
        is_carried_over=max(table.rows for table in need.tables) / side.shards
        > need.profile.rows_max,
    )


def _check(seed: int, json: bool) -> None:
    from ..sim.published import comparison_rows
    from ..sim.serve.check import compare_all, record

    with progress_bar("points", shown=True) as progress:
        found = compare_all(seed, progress)
    if json:
        print_json(record(found))
        return
    print_table(
        ("where", "what", "ours", "known", "difference", "tolerance", ""), comparison_rows(found)
    )
