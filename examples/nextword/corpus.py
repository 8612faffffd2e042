"""Which documents the model learns from, what a row is, and what an inference reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .text import Document, count_words

#: Tokens that one inference reads: its bag has this many ids.
WINDOW = 64
#: The row of words that training never saw, and of rows that a lookup dropped.
UNKNOWN = "<unk>"
UNKNOWN_ID = 0

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Corpus:
    """Documents in three groups that never mix, as row numbers.

    Attributes:
        words: the words of the training documents, the most frequent first, after
            :data:`UNKNOWN`: a word's row is its place here.
        counts: int64 [words], how often each occurs in training; 0 for :data:`UNKNOWN`, unless
            the text itself has it.
        training: int64 [tokens] for each document the model learns from.
        validation: those that settings are chosen on.
        test: those that the final figures are of.
    """

    words: tuple[str, ...]
    counts: Ints
    training: tuple[Ints, ...]
    validation: tuple[Ints, ...]
    test: tuple[Ints, ...]


def number(
    training: Sequence[Document], validation: Sequence[Document], test: Sequence[Document]
) -> Corpus:
    """A corpus whose rows are the words of ``training``."""
    counts = count_words(training)
    # WikiText has words it left out under that name: they and ours are one row.
    unknown_count = counts.pop(UNKNOWN, 0)
    words = (UNKNOWN, *counts)
    place = {word: row for row, word in enumerate(words)}

    def rows(documents: Iterable[Document]) -> tuple[Ints, ...]:
        return tuple(
            np.array([place.get(word, UNKNOWN_ID) for word in document.tokens], np.int64)
            for document in documents
        )

    return Corpus(
        words=words,
        counts=np.array([unknown_count, *counts.values()], np.int64),
        training=rows(training),
        validation=rows(validation),
        test=rows(test),
    )


def deal(documents: Sequence[Document], *, seed: int = 1) -> Corpus:
    """Deals one document of every ten to validation and one to test.

    Neighbours in ``documents`` are of one category, so every category is in every group.
    """
    random = np.random.default_rng(seed)
    groups: tuple[list[Document], ...] = ([], [], [])
    for start in range(0, len(documents), 10):
        ten = documents[start : start + 10]
        for turn, place in enumerate(random.permutation(len(ten))):
            groups[(1, 2)[turn] if turn < 2 else 0].append(ten[place])
    return number(*groups)


def windows(documents: Iterable[Ints], *, skip: int = 0) -> Ints:
    """Every inference of these documents: int64 [windows, WINDOW + 1].

    The first :data:`WINDOW` of a line are the ids it reads, the last :data:`WINDOW` are what
    follows each of them, to be predicted. Windows of a document do not overlap, begin at token
    ``skip`` and leave out a rest that fills no window.
    """
    cut = [
        np.lib.stride_tricks.sliding_window_view(document, WINDOW + 1)[skip::WINDOW]
        for document in documents
        if len(document) > WINDOW + skip
    ]
    return np.concatenate(cut) if cut else np.empty((0, WINDOW + 1), np.int64)
