"""Part two: a table too big for a device, and words that tell a lot about who asks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hushtable
from hushtable.data import Words

from .model import Floats
from .servers import assert_same_bits

#: What a device carries: the vectors of the most frequent words, the same for everyone.
KNOWN_COUNT = 20_000
#: Keys in each lookup, however many words it is for.
MAX_IDS = 4
NEAREST_COUNT = 5

#: Sums of words; each is one lookup.
QUESTIONS: tuple[tuple[tuple[int, str], ...], ...] = (
    ((1, "metformin"),),
    ((1, "whistleblower"),),
    ((1, "chanterelle"),),
    ((1, "king"), (-1, "man"), (1, "woman")),
)


@dataclass(frozen=True)
class Answer:
    """One question, answered on the device.

    Attributes:
        question: the words, with their signs.
        ids: their rows.
        nearest: the known words nearest by cosine, best first, those asked for left out.
        milliseconds: of the lookup.
    """

    question: str
    ids: tuple[int, ...]
    nearest: tuple[str, ...]
    milliseconds: float


def build(words: Words, out: Path) -> hushtable.Table:
    """The vectors as a bundle, opened as a server opens it."""
    hushtable.Table.from_weight(words.vectors, name="words").save(out)
    return hushtable.Table.open(out)


def ask(words: Words, table: hushtable.Table, client: hushtable.Client) -> list[Answer]:
    """Answers every question of :data:`QUESTIONS`.

    Raises:
        Mismatch: a private row that is not the table's.
    """
    place = {word: number for number, word in enumerate(words.words)}
    known = np.asarray(words.vectors[:KNOWN_COUNT])
    known = known / np.linalg.norm(known, axis=1, keepdims=True)
    client.lookup([0])  # the first lookup also warms the servers' caches
    answers = []
    for question in QUESTIONS:
        ids = np.array([place[word] for _sign, word in question])
        rows, stats = client.lookup_with_stats(ids)
        assert_same_bits(rows, table.rows(ids))
        signs = np.array([sign for sign, _word in question], dtype=np.float32)
        answers.append(
            Answer(
                question=" ".join(
                    word if number == 0 else f"{'+' if sign > 0 else '-'} {word}"
                    for number, (sign, word) in enumerate(question)
                ),
                ids=tuple(map(int, ids)),
                nearest=_nearest(signs @ rows, known, words, ids),
                milliseconds=stats.seconds * 1e3,
            )
        )
    return answers


def _nearest(
    vector: Floats, known: Floats, words: Words, asked: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[str, ...]:
    order = np.argsort(-(known @ vector), kind="stable")
    return tuple(words.words[place] for place in order if place not in asked)[:NEAREST_COUNT]
