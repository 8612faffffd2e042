"""`make demo`: real recommendations computed on private history. See README.md beside this file."""

from __future__ import annotations

import os

# The model's matrices are small: threads would cost more than they bring, and the servers need
# the processors. Set before numpy is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

import hushtable
from hushtable import data

from . import films, words
from .alone import LoneStory
from .servers import Served, start_pair, start_single
from .split import HISTORY_MAX, deal
from .story import Story

SHOWN_COUNT = 3
#: Users judged by default with a single server, whose lookups are work.
LONE_USERS = 100


@contextlib.contextmanager
def served(story: Story, table: hushtable.Table, folder: Path, max_ids: int) -> Iterator[Served]:
    """The table's server, or its two, running."""
    tls = folder.with_name(f"{folder.name}-tls")
    if not isinstance(story, LoneStory):
        with story.wait("starting left and right"), start_pair(folder, tls) as pair:
            story.servers(pair.left.url, pair.right.url)
            yield pair
        return
    with story.wait("preparing the table"):
        made = table.prepare()
    with story.wait("starting the server"), start_single(folder, tls, max_ids) as single:
        costs = single.server.serving.onion
        assert costs is not None
        story.single(single.server.url, made, costs)
        yield single


def show_films(story: Story, folder: Path, users: int | None) -> dict[str, Any]:
    """Part one; returns its figures."""
    story.head("1  the model: MovieLens-1M")
    ratings = data.load_movielens(data.fetch("ml-1m", say=story.note))
    split = deal(ratings)
    started = time.perf_counter()
    with story.wait("learning"):
        training = films.train(split, len(ratings.titles))
    held_out = len(split.test)
    if users is not None:
        split = replace(split, test=split.test[:users])
    story.training(split, training, time.perf_counter() - started)

    is_lone = isinstance(story, LoneStory)
    story.head("2  one server, and a device" if is_lone else "2  two servers, and a device")
    table = films.build(training, folder / "films")
    story.table(table.info)
    with served(story, table, folder / "films", HISTORY_MAX) as running:
        if isinstance(story, LoneStory) and len(split.test) < held_out:
            story.sample(len(split.test), held_out)
        with (
            story.wait(f"ranking for {len(split.test)} held-out users, privately and in the clear"),
            running.connect(HISTORY_MAX) as client,
        ):
            judgement = films.judge(training, split, table, client)
        shown = films.pick(split, judgement, SHOWN_COUNT)
        story.recommendations(ratings, shown, len(split.test))
        story.head("3  the same answers, at a price")
        story.judgement(judgement, table.info)
        story.head("4  what the server saw" if is_lone else "4  what a server saw")
        history = shown[0][0].history
        overheard = films.overhear(running, int(history[-1]), int(history[-2]))
        story.overheard(ratings, overheard)
    figures = {name: value for name, value in asdict(judgement).items() if name != "rankings"}
    return {
        **figures,
        "validation_auc": training.validation_auc,
        "table_rows": table.info.rows,
        "row_bytes": table.info.row_bytes,
        "keys_seen": overheard.counts,
        "same_differ": overheard.same_differ,
        "other_differ": overheard.other_differ,
        "senders": len(overheard.senders),
    }


def show_words(story: Story, folder: Path) -> dict[str, Any]:
    """Part two; returns its figures."""
    story.head("5  a larger table: 400,000 words")
    vocabulary = data.load_words(data.fetch("glove-6b-50d", say=story.note))
    with story.wait("building the bundle"):
        table = words.build(vocabulary, folder / "words")
    story.table(table.info)
    with (
        served(story, table, folder / "words", words.MAX_IDS) as running,
        running.connect(words.MAX_IDS) as client,
    ):
        answers = words.ask(vocabulary, table, client)
    story.words(table.info, answers)
    return {
        "table_rows": table.info.rows,
        "row_bytes": table.info.row_bytes,
        "answers": [asdict(answer) for answer in answers],
    }


def main() -> int:
    """Runs both parts; the exit code is 1 where anything is not as in the clear."""
    parser = argparse.ArgumentParser(prog="python -m examples.movielens", description=__doc__)
    parser.add_argument(
        "--scheme",
        choices=("pair", "onion"),
        default="pair",
        help="two servers that do not collude (default), or a single one",
    )
    parser.add_argument(
        "--users",
        type=int,
        help=f"judge on this many held-out users; all by default, {LONE_USERS} with --scheme onion",
    )
    parser.add_argument("--json", action="store_true", help="print the figures, as JSON")
    chosen = parser.parse_args()
    if chosen.users is not None and chosen.users < SHOWN_COUNT:
        parser.error(f"--users must be at least {SHOWN_COUNT}, the users that are shown")
    console = Console(quiet=chosen.json)
    story = LoneStory(console) if chosen.scheme == "onion" else Story(console)
    users = chosen.users
    if users is None and chosen.scheme == "onion":
        users = LONE_USERS
    started = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="hushtable-demo-") as folder:
            story.opening()
            figures = {
                "scheme": chosen.scheme,
                "films": show_films(story, Path(folder), users),
                "words": show_words(story, Path(folder)),
            }
    except hushtable.Error as error:
        Console(stderr=True, soft_wrap=True).print(f"error: {error}", style="red", markup=False)
        return 1
    seconds = time.perf_counter() - started
    if chosen.json:
        print(json.dumps({**figures, "seconds": seconds}))
    else:
        story.ending(seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
