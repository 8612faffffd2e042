"""Plans a deployment before anything is bought: private predictions and private lookups, for the
same clients. See README.md.

    python -m examples.plan
    python -m examples.plan --clients 100 --lookups 50 --table-gb 16 --machine ive --json
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from hushtable import ConfigError
from hushtable_lab.sim.inference.profile import profile

from .inference import Predictions, Way, best, ways
from .retrieval import Fleet, Lookups, accelerator, core, fleets

MACHINES = ("core", "ive")
_RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.plan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--clients", type=int, default=2, help="who ask (%(default)s)")
    add("--predictions", type=float, default=60, help="an hour, of each client (%(default)s)")
    add("--prediction-s", type=float, default=5, help="95 of 100 within (%(default)s s)")
    add("--network", default="resnet18", help="of the profile (%(default)s)")
    add("--size", type=int, default=32, help="rows and columns of an image (%(default)s)")
    add("--profile", default="measured", help="what inference costs: measured, paper or a file")
    add("--mbps", type=float, default=1000, help="of a client's link, both ways (%(default)s)")
    add(
        "--storage-gb",
        type=float,
        nargs="+",
        default=[0.1, 1],
        help="rooms that a client could be asked for (0.1 1)",
    )
    add("--lookups", type=float, default=10, help="a second, of all clients (%(default)s)")
    add("--lookup-ms", type=float, default=3000, help="95 of 100 within (%(default)s ms)")
    add("--table-gb", type=float, default=1, help="GB of rows (%(default)s)")
    add(
        "--machine",
        action="append",
        choices=MACHINES,
        help="for lookups; may be repeated. The first of which few are enough is taken (both)",
    )
    add(
        "--onion",
        type=Path,
        metavar="FILE",
        help="what a core takes: a file of bench/results (the newest onion-*.json)",
    )
    add("--machines-max", type=int, default=8, help="how many are few (%(default)s)")
    add("--hours", type=float, default=1, help="to simulate, each run (%(default)s)")
    add("--runs", type=int, default=2, help="of each rate (%(default)s)")
    add("--json", action="store_true", help="print JSON for machines")
    return parser


def newest() -> Path:
    """The newest measurement of lookups from one server that is kept; sweeps have other names."""
    return max(_RESULTS.glob("onion-[0-9]*.json"))


def decision(way: Way | None, taken: Fleet | None) -> list[str]:
    """What to do, in sentences."""
    if way is None:
        said = ["Inference: no way keeps up in time. Ask for less, or for faster links."]
    else:
        said = [
            f"Inference: the {way.garbler} garbles; {way.storage_gb:g} GB at each client "
            f"({way.stored} precomputes); {way.up_mbps:.0f} Mbit/s of a link for the way up. "
            f"It holds up to {3600 * way.sustained:.0f} predictions an hour of each client."
        ]
    if taken is None:
        said.append("Lookups: none of the machines answers in time with few.")
    else:
        said.append(
            f"Lookups: {taken.machines} x {taken.machine}, {taken.batch:.1f} lookups a batch, "
            f"95 of 100 within {1e3 * taken.p95_s:.0f} ms."
        )
    return said


def print_ways(found: Sequence[Way], wanted: Predictions) -> None:
    """The ways of inference, a line each."""
    print(
        f"{wanted.network}, {wanted.size} x {wanted.size}: {wanted.clients} clients, "
        f"{3600 * wanted.rate:g} predictions an hour each, within {wanted.latency_s:g} s\n"
    )
    print("garbler   room  stored  Mbit/s up      mean       p95  holds/hour")
    for way in found:
        print(
            f"{way.garbler:7} {way.storage_gb:4g} GB {way.stored:7} {way.up_mbps:10.0f}"
            f" {_seconds(way.mean_s):>9} {_seconds(way.p95_s):>9} {3600 * way.sustained:11,.0f}"
            f"{'  enough' if way.is_enough else ''}"
        )


def print_fleets(found: Sequence[Fleet], wanted: Lookups) -> None:
    """The machines, a line each."""
    print(
        f"\nA table of {wanted.table_gb:g} GB: {wanted.rate:g} lookups a second, "
        f"within {1e3 * wanted.latency_s:g} ms\n"
    )
    print("machine      alone    most/s  machines      mean       p95  batch")
    for one in found:
        print(
            f"{one.machine:7} {_seconds(one.alone_s):>10} {one.qps:9,.1f}"
            f" {one.machines or 'none':>9} {_seconds(one.mean_s):>9} {_seconds(one.p95_s):>9}"
            f" {'-' if math.isnan(one.batch) else f'{one.batch:.1f}':>6}"
        )


def _seconds(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def _finite(record: dict[str, object]) -> dict[str, object]:
    """JSON has no NaN."""
    return {
        key: None if isinstance(value, float) and math.isnan(value) else value
        for key, value in record.items()
    }


def main(argv: Sequence[str] | None = None) -> int:
    """The command; 1 where nothing that was asked for can be had."""
    parser = arguments()
    chosen = parser.parse_args(argv)
    for name in ("clients", "predictions", "prediction_s", "mbps", "lookups", "lookup_ms"):
        if not getattr(chosen, name) > 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0")
    predictions = Predictions(
        chosen.network,
        chosen.size,
        chosen.clients,
        chosen.predictions / 3600,
        chosen.prediction_s,
        chosen.mbps,
        tuple(chosen.storage_gb),
    )
    lookups = Lookups(chosen.table_gb, chosen.lookups, chosen.lookup_ms / 1e3)

    def say(line: str) -> None:
        if sys.stderr.isatty():
            print(f"simulated: {line}", file=sys.stderr, flush=True)

    try:
        found = ways(
            predictions,
            profile(chosen.profile),
            runs=chosen.runs,
            seconds=3600 * chosen.hours,
            say=say,
        )
        kinds = {
            one: accelerator() if one == "ive" else core(chosen.onion or newest())
            for one in chosen.machine or MACHINES
        }
        answering = fleets(lookups, kinds, say=say)
    except ConfigError as error:
        parser.error(str(error))
    way = best(found)
    few = [one for one in answering if one.machines and one.machines <= chosen.machines_max]
    taken = few[0] if few else None
    if chosen.json:
        print(
            json.dumps(
                {
                    "ways": [_finite(asdict(one)) for one in found],
                    "fleets": [_finite(asdict(one)) for one in answering],
                    "way": None if way is None else _finite(asdict(way)),
                    "fleet": None if taken is None else _finite(asdict(taken)),
                }
            )
        )
    else:
        print_ways(found, predictions)
        print_fleets(answering, lookups)
        print("", *decision(way, taken), sep="\n")
    return 0 if way is not None and taken is not None else 1


if __name__ == "__main__":
    sys.exit(main())
