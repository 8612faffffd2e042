"""What private features are worth in federated training, and what hiding them costs. See README.md.

python -m examples.fedrec [--quick] [--data DIR] [--out FILE] [--plot FILE]
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path

from examples.clicks.ratings import load_movielens_20m
from examples.histories.taobao import load_taobao

from hushtable import data

from .fedrec import synthetic
from .fedrec.displays import Displays
from .fedrec.ratings import Behaviour, Ratings
from .fedrec.report import draw, lines
from .fedrec.study import EVERY, ROUNDS, SEEDS, SETTINGS, Kept, Say, study


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m examples.fedrec", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, few rounds, few settings")
    parser.add_argument("--synthetic", action="store_true", help="made-up ratings: no download")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="ratings.csv and movies.csv of MovieLens-20M, or raw_sample.csv, behavior_log.csv and"
        " user_profile.csv of Taobao, not MovieLens-1M",
    )
    parser.add_argument(
        "--users", type=int, default=20_000, help="of Taobao's users at most (default 20,000)"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many")
    parser.add_argument(
        "--kept", type=Path, metavar="FILE", help="of runs that are over: goes on from them"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="writes JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draws, as SVG")
    chosen = parser.parse_args()
    if chosen.rounds < 1 or chosen.seeds < 1 or chosen.users < 1:
        parser.error("--rounds, --seeds and --users are at least 1")
    if chosen.synthetic and chosen.data is not None:
        parser.error("--synthetic is no --data: give one of them")

    def say(line: str) -> None:
        print(line, flush=True)

    try:
        name, behaviour = _load(chosen, say)
    except data.DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    document = study(
        behaviour,
        say=say,
        settings=SETTINGS[:3] if chosen.quick else SETTINGS,
        seeds=range(1, 2 if chosen.quick else chosen.seeds + 1),
        rounds=min(chosen.rounds, 40) if chosen.quick else chosen.rounds,
        every=20 if chosen.quick else EVERY,
        kept=None if chosen.kept is None else Kept(chosen.kept),
    )
    document["data"] = name
    # Of all runs, those that were kept too.
    document["seconds"] = sum(
        outcome["seconds"] for entry in document["settings"] for outcome in entry["runs"]
    )
    document["machine"] = {"cpu": _cpu(), "system": platform.platform()}
    for line in lines(document):
        say(line)
    if chosen.out:
        chosen.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        say(f"written to {chosen.out}")
    if chosen.plot:
        draw(document, chosen.plot)
        say(f"drawn to {chosen.plot}")
    return 0


def _load(chosen: argparse.Namespace, say: Say) -> tuple[str, Behaviour]:
    """The data's name, and the data."""
    if chosen.synthetic:
        return "made up", Ratings.of(synthetic.ratings())
    if chosen.data is None:
        return "ml-1m", Ratings.of(data.load_movielens(data.fetch("ml-1m", say=say)))
    if (chosen.data / "raw_sample.csv").exists():
        return "taobao", Displays.of(load_taobao(chosen.data, users_max=chosen.users, say=say))
    return "ml-20m", Ratings.of(load_movielens_20m(chosen.data))


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    sys.exit(main())
