"""Next words from rows that stay private: the model in the clear. See README.md."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import hushtable

from . import baseline
from .app import App, Split
from .corpus import UNKNOWN_ID, windows
from .model import Classes, Recipe

#: Shares of the lookups that are dropped.
DROPPED = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
DTYPES = ("f32", "f16", "int8", "fp8_e4m3", "fp8_e5m2", "int4", "int4/32", "int2", "int2/32")


def measure(app: App, split: Split) -> dict[str, Any]:
    """Quality in the clear, under drops and by how the table is stored."""
    ids = getattr(app, split).ids
    chance = np.random.default_rng(1).random(len(ids))
    # Rows are in order of frequency, the unknown word's first: it has nothing to lose.
    rarity = np.where(ids == UNKNOWN_ID, 0, ids)
    rarest = np.argsort(np.argsort(-rarity, kind="stable"), kind="stable") / len(ids)
    began = time.perf_counter()
    clear = app.quality(split)
    return {
        "perplexity": clear,
        "seconds": time.perf_counter() - began,
        "random_drops": {share: app.quality(split, kept=chance >= share) for share in DROPPED},
        "rarest_drops": {share: app.quality(split, kept=rarest >= share) for share in DROPPED},
        "dtypes": {dtype: app.stored_as(dtype).quality(split) for dtype in DTYPES},
    }


def count_baselines(app: App, split: Split) -> dict[str, float]:
    """What counting alone comes to, on the same windows and classes."""
    classes = Classes.of(app.corpus, app.recipe)
    training = [classes.of_rows(document) for document in app.corpus.training]
    cut = classes.of_rows(windows(getattr(app.corpus, split)))
    return {
        "unigram": baseline.unigram_perplexity(training, cut, classes.count),
        **{
            f"Kneser-Ney {name}": baseline.kneser_ney_perplexity(
                training, cut, classes.count, order=order
            )
            for order, name in ((2, "bigram"), (3, "trigram"))
        },
    }


def describe(app: App) -> dict[str, Any]:
    """The table and its accesses."""
    reads = np.sort(np.bincount(app.test.ids, minlength=len(app.weight)))[::-1]
    distinct = np.array(
        [len(np.unique(bag)) for bag in np.split(app.test.ids, app.test.offsets[1:-1])]
    )
    shares = np.cumsum(reads) / reads.sum()
    return {
        "rows": app.weight.shape[0],
        "dim": app.weight.shape[1],
        "dtype": app.dtype,
        "row_bytes": app.row_bytes,
        "bags": {
            split: len(getattr(app, split).offsets) - 1 for split in ("train", "validation", "test")
        },
        "distinct_mean": float(distinct.mean()),
        "distinct_p50": float(np.quantile(distinct, 0.5)),
        "distinct_p99": float(np.quantile(distinct, 0.99)),
        "distinct_max": int(distinct.max()),
        "share_of_top_percent": float(shares[len(reads) // 100 - 1]),
        "share_of_top_tenth": float(shares[len(reads) // 10 - 1]),
        "share_of_unknown": float((app.test.ids == UNKNOWN_ID).mean()),
    }


def main() -> int:
    """Trains or loads, and prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m examples.nextword", description=__doc__)
    parser.add_argument(
        "--data",
        "--wikitext",
        type=Path,
        metavar="DIR",
        help="WikiText-2's three .tokens files, not Brown",
    )
    parser.add_argument(
        "--lookup-dropout", type=float, metavar="SHARE", help="train with another share of drops"
    )
    parser.add_argument("--json", action="store_true", help="print the figures, as JSON")
    chosen = parser.parse_args()
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    recipe = Recipe()
    if chosen.lookup_dropout is not None:
        if not 0 <= chosen.lookup_dropout < 1:
            parser.error("--lookup-dropout must be at least 0 and below 1")
        recipe = replace(recipe, lookup_dropout=chosen.lookup_dropout)

    def say(line: str) -> None:
        errors.print(line, markup=False)

    try:
        if chosen.data:
            app = App.load_wikitext(chosen.data, recipe=recipe, progress=say)
        else:
            app = App.load(recipe=recipe, progress=say)
        figures = {
            "data": "WikiText-2" if chosen.data else "Brown corpus",
            "table": describe(app),
            "baselines": count_baselines(app, "test"),
            "quality": measure(app, "test"),
        }
    except hushtable.Error as error:
        errors.print(f"error: {error}", style="red", markup=False)
        return 1
    if chosen.json:
        print(json.dumps(figures))
    else:
        show(Console(), figures)
    return 0


def show(console: Console, figures: dict[str, Any]) -> None:
    """Prints the figures as tables."""
    table, quality = figures["table"], figures["quality"]
    console.print(
        f"{table['rows']:,} rows x {table['dim']} {table['dtype']} = {table['row_bytes']} bytes a"
        f" row; {table['bags']['test']:,} test inferences of 64 ids,"
        f" {table['distinct_mean']:.1f} of them distinct (p99 {table['distinct_p99']:.0f})"
    )
    console.print(
        f"of all accesses, the top 1 % of rows take {table['share_of_top_percent']:.1%},"
        f" the top 10 % {table['share_of_top_tenth']:.1%}\n"
    )
    models = Table("test perplexity", "", box=None)
    for name, value in {**figures["baselines"], "this model": quality["perplexity"]}.items():
        models.add_row(name, f"{value:.1f}")
    for dtype, value in quality["dtypes"].items():
        models.add_row(f"  stored as {dtype}", f"{value:.2f}")
    drops = Table("dropped", "at random", "the rarest words", box=None)
    for share in DROPPED:
        drops.add_row(
            f"{share:.1%}",
            f"{quality['random_drops'][share]:.2f}",
            f"{quality['rarest_drops'][share]:.2f}",
        )
    console.print(models)
    console.print()
    console.print(drops)


if __name__ == "__main__":
    sys.exit(main())
