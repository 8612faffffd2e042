"""``hushtable sim inference``: private inference under load."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushtable.cli.output import Json, command, note, print_json, print_table, progress_bar
from hushtable.errors import ConfigError

from ..measure.records import bench_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..sim.figure import Figure
    from ..sim.inference.arrivals import Arrivals
    from ..sim.inference.deployment import Deployment
    from ..sim.inference.profile import Profile
    from ..sim.inference.sweep import Point


@command(
    "hushtable sim inference --rate 1/60min --rate 1/20min --runs 10",
    "hushtable sim inference --garbler server --client-storage-gb 128 --rate 1/60min",
    "hushtable sim inference --network resnet32 --size 32 --profile measured --rate 2",
    "hushtable sim inference --profile costs/ --server 2x:16 --rate 1 --json",
    "hushtable sim inference --figure table-1 --figure 14 -o figures",
    "hushtable sim inference --check --json",
    more={
        "Link and storage": (
            *("client_storage_gb", "server_storage_gb", "up_mbps", "down_mbps", "slots_mbps"),
        ),
        "Requests": ("arrivals", "burst", "burst_minutes", "trace"),
        "Simulation": ("hours", "runs", "seed", "jobs"),
        "The paper": ("compat", "figure", "output", "check"),
    },
)
def inference(
    network: Annotated[
        str, typer.Option(help="resnet18, resnet32, vgg16, or another of the profile.")
    ] = "resnet18",
    size: Annotated[
        int | None,
        typer.Option(
            help="Rows and columns of an image: 64 where the profile has it.", show_default=False
        ),
    ] = None,
    garbler: Annotated[str, typer.Option(help="Who garbles: client or server.")] = "client",
    parallel: Annotated[
        str | None,
        typer.Option(
            help="How layers are encrypted: layer (all at once), sequential, or request (a "
            "precompute on each core). By default layer where the client garbles, sequential "
            "where the server does.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str,
        typer.Option(
            help="Costs: paper, measured, a TOML file, or what `bench hybrid --cost` wrote "
            "(file or folder)."
        ),
    ] = "paper",
    client: Annotated[
        str | None,
        typer.Option(
            help="The client's device: atom, i5, i5x2 of the paper; 0.5x, 2x:8 are other speeds "
            "and cores of the profile's first.",
            show_default=False,
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(help="The server's: epyc, epyc2, epyc4, or as above.", show_default=False),
    ] = None,
    client_storage_gb: Annotated[
        float, typer.Option(help="For precomputes, at each client.")
    ] = 16.0,
    server_storage_gb: Annotated[float, typer.Option(help="For those of all clients.")] = 10_000.0,
    up_mbps: Annotated[
        float | None,
        typer.Option(
            help="Mbit/s to the server. By default 835, and 500 where the server garbles.",
            show_default=False,
        ),
    ] = None,
    down_mbps: Annotated[
        float | None,
        typer.Option(
            help="Mbit/s back. By default 165, and 500 where the server garbles.",
            show_default=False,
        ),
    ] = None,
    slots_mbps: Annotated[
        float | None,
        typer.Option(
            help="Of a link of so many Mbit/s the best shares for up and down.", show_default=False
        ),
    ] = None,
    clients: Annotated[int, typer.Option(help="Who share the server, each with its own link.")] = 1,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            help="Requests of each client: 0.05 (a minute), 1/17min, 2/h; may be repeated. By "
            "default six from a tenth of what a client can keep up with to beyond it.",
            show_default=False,
        ),
    ] = None,
    arrivals: Annotated[
        str, typer.Option(help="How requests come: poisson, bursty or trace.")
    ] = "poisson",
    burst: Annotated[
        float, typer.Option(help="bursty: how many times the mean rate a burst has.")
    ] = 8.0,
    burst_minutes: Annotated[float, typer.Option(help="bursty: how long one lasts, mean.")] = 10.0,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="trace: a file with the seconds of each request, one a line.", show_default=False
        ),
    ] = None,
    hours: Annotated[float, typer.Option(help="Simulated, of each run.")] = 24.0,
    runs: Annotated[
        int | None,
        typer.Option(
            help="Of each rate, with seeds of their own: 50, and for figures as many as the paper.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same results.")] = 1,
    jobs: Annotated[int, typer.Option(help="Processes; 0 is one a core.")] = 0,
    compat: Annotated[
        str | None,
        typer.Option(
            help="paper: as the published simulator, in which phases do not compete for links and "
            "cores.",
            show_default=False,
        ),
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            help="Make a table or figure of the paper: table-1, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, "
            "14, text or all; may be repeated.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the figures.")] = Path(
        "figures"
    ),
    check: Annotated[
        bool, typer.Option("--check", help="Compare every published number with ours.")
    ] = False,
    json: Json = False,
) -> None:
    """Simulate private inference under load: latency and the rate that is sustained.

    Clients ask for predictions and keep precomputes, which take minutes to make and gigabytes to
    store. Prints for each rate the mean latency with its percentiles, what of it was waiting behind
    other requests, waiting for a precompute (offline) and the prediction itself (online), and
    whether the rate is sustained. A rate that is not has no mean: its queue grows for as long as it
    is simulated.
    """
    if runs is not None and not 1 <= runs <= 100_000:
        raise ConfigError(f"--runs is {runs}, but must be 1 to 100000")
    if jobs < 0:
        raise ConfigError(f"--jobs is {jobs}, but must be 0 (one a core) or more")
    if check:
        _check(runs, seed, jobs, json)
        return
    if figure:
        _figures(figure, output, runs, seed, jobs, json)
        return
    if compat not in (None, "paper"):
        raise ConfigError(f"--compat is {compat!r}, but must be paper")
    if not (math.isfinite(hours) and 0 < hours <= 100_000):
        raise ConfigError(f"--hours is {hours:g}, but must be above 0, and at most 100,000")
    # They bring numpy, which other commands may do without.
    from ..sim.inference.profile import profile as read_profile

    costs = read_profile(profile)
    deployment = _deployment(
        costs,
        network,
        size,
        garbler,
        parallel,
        client=client,
        server=server,
        client_storage_gb=client_storage_gb,
        server_storage_gb=server_storage_gb,
        up_mbps=up_mbps,
        down_mbps=down_mbps,
        slots_mbps=slots_mbps,
        clients=clients,
        is_as_published=compat == "paper",
    )
    from ..sim.inference.closed import breakdown
    from ..sim.inference.sweep import saturation_rate, sweep

    offline, online = breakdown(deployment)
    online_only = too_small(deployment)
    draws, rates = _requests(arrivals, burst, burst_minutes, trace, rate or [])
    most = saturation_rate(deployment)
    rates = rates or [most * share for share in _SHARES]
    with progress_bar("runs", shown=True) as progress:
        points = sweep(
            deployment,
            rates,
            runs=runs or 50,
            seconds=hours * 3600,
            seed=seed,
            jobs=jobs,
            progress=progress,
            arrivals=draws,
        )
    shown = {
        "network": network,
        "size": int(deployment.costs.network.split()[-1].split("x")[0]),
        "garbler": garbler,
        "profile": profile,
        "client_storage_gb": client_storage_gb,
        "up_mbps": deployment.up_mbps,
        "down_mbps": deployment.down_mbps,
        "clients": clients,
        "arrivals": arrivals,
        "hours": hours,
        "runs": runs or 50,
        "seed": seed,
        "compat": compat,
    }
    alone_s = offline.total, online.total
    if json:
        for point in points:
            print_json(_record(point, shown, alone_s, most))
        return
    _print(points, costs, deployment, alone_s, online_only, most)


#: Of the rate at which a client's queue is never empty, those that are simulated by default.
_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9, 1.2)
#: Requests a second that a trace is said to have whose requests all come at once.
_RATE_MAX = 1e6
_RATE = re.compile(r"([0-9.]+)(?:/([0-9.]*) ?(s|sec|min|m|h|d)?)?")
_SECONDS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_rate(text: str) -> float:
    """Requests a second of "0.05" (a minute), "1/17min", "2/h", "1/40s".

    Raises:
        ConfigError: that is no rate above 0.
    """
    found = _RATE.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError
        every = float(found[2] or 1.0)
        rate = float(found[1]) / (every * _SECONDS[found[3] or "min"])
        if not (math.isfinite(rate) and rate > 0):
            raise ValueError
    except (ValueError, ZeroDivisionError) as error:
        raise ConfigError(
            f"--rate is {text!r}, but must be requests a minute above 0, as 0.05, or as 1/17min, "
            "2/h, 1/40s"
        ) from error
    return rate


def _deployment(
    costs: Profile,
    network: str,
    size: int | None,
    garbler: str,
    parallel: str | None,
    *,
    up_mbps: float | None,
    down_mbps: float | None,
    slots_mbps: float | None,
    **others: Any,
) -> Deployment:
    if slots_mbps is not None:
        if up_mbps is not None or down_mbps is not None:
            raise ConfigError("--slots-mbps finds both rates: leave --up-mbps and --down-mbps out")
        if not (math.isfinite(slots_mbps) and slots_mbps > 0):
            raise ConfigError(f"--slots-mbps is {slots_mbps:g}, but must be above 0")
    if size is None:
        sizes = [rows for name, rows in costs.networks if name == network]
        size = max(sizes, default=64)

    def made(up: float | None, down: float | None) -> Deployment:
        return costs.deployment(
            network,
            size,
            garbler,  # type: ignore[arg-type]
            parallel,  # type: ignore[arg-type]
            up_mbps=up,
            down_mbps=down,
            **others,
        )

    found = made(up_mbps, down_mbps)
    if slots_mbps is None:
        return found
    from ..sim.inference.closed import best_split

    return made(*best_split(found.costs, slots_mbps))


def too_small(deployment: Deployment) -> str | None:
    """Which store has no room for one precompute, in words; None where both have."""
    costs, strict = deployment.costs, deployment.is_as_published
    for who, kept, room in (
        ("client", costs.client_bytes, deployment.client_storage_bytes),
        ("server", costs.server_bytes, deployment.server_storage_bytes),
    ):
        if kept > room or (strict and kept == room):
            return f"a precompute takes {kept / 1e9:.3g} GB at the {who}, which has {room / 1e9:g}"
    return None


def _requests(
    kind: str, burst: float, burst_minutes: float, trace: Path | None, texts: list[str]
) -> tuple[Callable[[float], Arrivals], list[float]]:
    """What draws requests of a rate, and the rates; none where none were given."""
    from ..sim.inference.arrivals import Trace, arrivals_of

    if kind not in ("poisson", "bursty", "trace"):
        raise ConfigError(f"--arrivals is {kind!r}, but must be poisson, bursty or trace")
    if (kind == "trace") != (trace is not None):
        raise ConfigError("--arrivals trace and --trace FILE go together")
    draws = arrivals_of(kind, factor=burst, burst_seconds=60 * burst_minutes, trace=trace)
    if trace is None:
        return draws, [parse_rate(text) for text in texts]
    if texts:
        raise ConfigError("a trace has a rate of its own: leave --rate out")
    return draws, [min(Trace(trace).rate, _RATE_MAX)]


def _figures(
    asked: list[str], output: Path, runs: int | None, seed: int, jobs: int, json: bool
) -> None:
    from ..sim.figure import has_matplotlib
    from ..sim.inference.figures import figure, numbers

    for number in numbers(asked):
        with progress_bar(f"figure {number}", shown=True) as progress:
            made = figure(number, runs=runs, seed=seed, jobs=jobs, progress=progress)
        written = made.write(output, "inference")
        if json:
            print_json(
                {
                    "figure": made.number,
                    "title": made.title,
                    "written": [str(path) for path in written],
                    "comparisons": [one.as_record() for one in made.comparisons],
                    "notes": list(made.notes),
                }
            )
            continue
        _print_figure(made)
        print("".join(f"wrote {path}\n" for path in written))
        if made.draw is not None and not has_matplotlib():
            print("no picture: pip install 'hushtable-lab[plot]'")


_COMPARED = ("where", "what", "ours", "paper", "difference", "within", "")


def _print_figure(made: Figure) -> None:
    from ..sim.published import comparison_rows

    print(f"{made.number}: {made.title}\n")
    print_table(_COMPARED, comparison_rows(made.comparisons))
    for line in made.notes:
        print(f"- {line}")


def _check(runs: int | None, seed: int, jobs: int, json: bool) -> None:
    from ..sim.inference.check import check, record

    with progress_bar("runs", shown=True) as progress:
        made = check(say=note, runs=runs, seed=seed, jobs=jobs, progress=progress)
    found = record(made, {"runs": runs, "seed": seed})
    if json:
        print_json(found)
        return
    for one in made:
        _print_figure(one)
        print()
    detail = found["detail"]
    print(
        f"{detail['compared']} numbers compared, {detail['off']} off; the worst is "
        f"{found['value']:.2%} ({detail['worst']})"
    )


_COLUMNS = ("rate", "mean", "±", "p50", "p95", "p99", "wait", "offline", "online", "left")


def _print(
    points: list[Point],
    costs: Profile,
    deployment: Deployment,
    alone_s: tuple[float, float],
    online_only: str | None,
    most: float,
) -> None:
    from ..sim.inference.sweep import sustained_rate

    of = deployment.costs
    print(f"{of.network}, the {of.garbler} garbles; {costs.about}")
    print(
        f"alone: {_duration(alone_s[0])} offline, {_duration(alone_s[1])} online; a precompute is "
        f"{of.client_bytes / 1e9:.3g} GB at the client, {of.server_bytes / 1e9:.3g} at the server"
    )
    if online_only is not None:
        print(f"online only: {online_only} GB. Each request runs both phases.")
    print()
    # One unit for all, so that a row fits a terminal.
    longest = max((p.p99 for p in points if p.is_sustained), default=0.0)
    unit, seconds = (
        ("min", 60.0) if longest >= 120 else ("s", 1.0) if longest >= 2 else ("ms", 1e-3)
    )
    print_table(
        (*_COLUMNS, "sustained"),
        [[*_cells(point, seconds), "yes" if point.is_sustained else "no"] for point in points],
    )
    print(f"\nA client's queue is never empty from {rate_text(most)} on: no higher rate can last.")
    best = sustained_rate(points)
    if best <= 0:
        print("None of these rates is sustained: give lower ones.")
    elif not all(point.is_sustained for point in points):
        print(
            f"The highest of these rates that is sustained is {rate_text(best)}. Others are "
            "unsustainable: the queue grows\nfor as long as is simulated, and a mean would say how "
            "long that was."
        )
    print(
        f"Latencies are in {unit}. ±: 95 % of the mean, over runs; left: requests in the queue at "
        "the end, mean."
    )


def _cells(point: Point, seconds: float) -> list[str]:
    times = (point.mean, point.interval, point.p50, point.p95, point.p99)
    parts = (point.waiting, point.offline, point.online)
    cells = [
        f"{one / seconds:.3g}" if point.is_sustained and math.isfinite(one) else "-"
        for one in (*times, *parts)
    ]
    return [rate_text(point.rate), *cells, f"{point.left:.3g}"]


def rate_text(rate: float) -> str:
    """Requests a second, for people: 1/17.0min, 2.5/min, 3/s."""
    if rate >= 1:
        return f"{rate:.3g}/s"
    if rate >= 1 / 60:
        return f"{rate * 60:.3g}/min"
    return f"1/{1 / rate / 60:.3g}min"


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "-"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g}ms"
    return f"{seconds:.3g}s" if seconds < 119.5 else f"{seconds / 60:.3g}min"


def _record(
    point: Point, params: dict[str, Any], alone_s: tuple[float, float], most: float
) -> dict[str, Any]:
    """One line of ``--json``: value is None where the rate is not sustained."""

    def said(value: float) -> float | None:
        return float(value) if point.is_sustained and math.isfinite(value) else None

    found = bench_record(
        "sim inference",
        {**params, "rate_per_min": point.rate * 60},
        math.nan,
        "s",
        None,
        None,
        1,
        "model",
        is_sustained=bool(point.is_sustained),
        is_online_only=bool(point.is_online_only),
        saturation_per_min=most * 60,
        p50_s=said(point.p50),
        p95_s=said(point.p95),
        p99_s=said(point.p99),
        waiting_s=said(point.waiting),
        offline_s=said(point.offline),
        online_s=said(point.online),
        interval_s=said(point.interval),
        left=float(point.left),
        alone_offline_s=alone_s[0],
        alone_online_s=alone_s[1],
    )
    found["value"] = said(point.mean)
    return found
