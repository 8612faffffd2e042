"""Clicks from behaviour histories that stay private: the model in the clear. See README.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from examples.clicks import report
from examples.clicks.__main__ import share

from . import model
from .app import App


def _load(chosen: argparse.Namespace, say: Callable[[str], None]) -> App:
    recipe = model.RECIPE
    if chosen.lookup_dropout is not None:
        recipe = replace(recipe, lookup_dropout=chosen.lookup_dropout)
    if chosen.data:
        return App.load_taobao(chosen.data, users_max=chosen.users, recipe=recipe, progress=say)
    return App.load(recipe=recipe, progress=say)


def _count(text: str) -> int:
    """A number of at least one, from the command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def main() -> int:
    """Trains or loads, and prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m examples.histories", description=__doc__)
    parser.add_argument(
        "--data",
        "--taobao",
        type=Path,
        metavar="DIR",
        help="raw_sample.csv, behavior_log.csv and user_profile.csv, not the stand-in",
    )
    parser.add_argument(
        "--users", type=_count, default=20_000, help="of Taobao's users at most (default 20,000)"
    )
    parser.add_argument(
        "--lookup-dropout", type=share, metavar="SHARE", help="train with up to another share"
    )
    return report.run(
        _load,
        parser,
        stand_in="MovieLens-1M as histories",
        published="Ad Display/Click Data on Taobao.com",
    )


if __name__ == "__main__":
    sys.exit(main())
