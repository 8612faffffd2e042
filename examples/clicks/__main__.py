"""Clicks from ratings that stay private: the model in the clear. See README.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from . import model, report
from .app import App


def _load(chosen: argparse.Namespace, say: Callable[[str], None]) -> App:
    recipe = model.RECIPE
    if chosen.lookup_dropout is not None:
        recipe = replace(recipe, lookup_dropout=chosen.lookup_dropout)
    if chosen.data:
        return App.load_20m(chosen.data, recipe=recipe, progress=say)
    return App.load(recipe=recipe, progress=say)


def share(text: str) -> float:
    """A share of all, at least 0 and at most 1, from the command line."""
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not within 0 and 1")
    return value


def main() -> int:
    """Trains or loads, and prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m examples.clicks", description=__doc__)
    parser.add_argument(
        "--data",
        "--movielens-20m",
        type=Path,
        metavar="DIR",
        help="ratings.csv and movies.csv of MovieLens-20M, not MovieLens-1M",
    )
    parser.add_argument(
        "--lookup-dropout", type=share, metavar="SHARE", help="train with up to another share"
    )
    return report.run(_load, parser, stand_in="MovieLens-1M", published="MovieLens-20M")


if __name__ == "__main__":
    sys.exit(main())
