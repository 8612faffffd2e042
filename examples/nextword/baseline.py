"""What counting alone predicts, to judge the model's perplexity by.

Interpolated Kneser-Ney with one discount an order, as in Chen and Goodman, "An empirical study of
smoothing techniques for language modeling" (1998), section 3: an n-gram's probability is its
discounted count plus the mass so freed times the probability of the (n-1)-gram, whose own counts
are of distinct left neighbours. The classes are those of the model's output, in the context too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]


def unigram_perplexity(training: Sequence[Ints], windows: Ints, class_count: int) -> float:
    """Perplexity of predicting every class by its share of training, with one added to each."""
    counts = np.bincount(np.concatenate(training), minlength=class_count) + 1
    return _perplexity((counts / counts.sum())[windows[:, 1:]])


def kneser_ney_perplexity(
    training: Sequence[Ints], windows: Ints, class_count: int, *, order: int
) -> float:
    """Perplexity of an n-gram model over the last :data:`WINDOW` tokens of each window.

    Args:
        training: classes of each training document.
        windows: int64 [windows, WINDOW + 1] classes. The first token of a window is given; a
            context does not reach back before it, as the model's does not.
        class_count: classes there are.
        order: n, so that the context is the n - 1 tokens before; 2 is a bigram model.
    """
    probability = np.full(windows[:, 1:].shape, 1 / class_count)
    for length in range(1, order + 1):
        # The highest order counts n-grams themselves, the others their distinct left neighbours.
        level = _Level(training, class_count, length, distinct=length < order)
        # A context is there once length - 1 tokens were read.
        at = max(length - 2, 0)
        grams = np.lib.stride_tricks.sliding_window_view(
            windows[:, 1 + at - (length - 1) :], length, 1
        )
        probability[:, at:] = level.interpolate(grams, probability[:, at:])
    return _perplexity(probability)


class _Level:
    """The counts of one order, as sorted arrays."""

    def __init__(
        self, training: Sequence[Ints], class_count: int, length: int, *, distinct: bool
    ) -> None:
        self._class_count = class_count
        reach = length + distinct
        grams = np.concatenate(
            [
                np.lib.stride_tricks.sliding_window_view(document, reach)
                for document in training
                if len(document) >= reach
            ]
        )
        if distinct:
            grams = np.unique(grams, axis=0)[:, 1:]
        self._keys, self._counts = np.unique(self._key(grams), return_counts=True)
        once, twice = ((self._counts == times).sum() for times in (1, 2))
        # Where all is frequent, as the words of made-up text are, something is to be left over.
        self._discount = once / (once + 2 * twice) if once else 0.5
        starts = self._keys // class_count
        self._contexts, first = np.unique(starts, return_index=True)
        self._totals = np.add.reduceat(self._counts, first)
        self._followers = np.diff(np.append(first, len(starts)))

    def _key(self, grams: Ints) -> Ints:
        key = np.zeros(grams.shape[:-1], np.int64)
        for place in range(grams.shape[-1]):
            key = key * self._class_count + grams[..., place]
        return key

    def interpolate(self, grams: Ints, lower: Doubles) -> Doubles:
        key = self._key(grams)
        count = _look_up(self._keys, self._counts, key)
        context = key // self._class_count
        total = _look_up(self._contexts, self._totals, context)
        followers = _look_up(self._contexts, self._followers, context)
        held = np.maximum(count - self._discount, 0) + self._discount * followers * lower
        return np.where(total > 0, held / np.maximum(total, 1), lower)


def _look_up(keys: Ints, values: Ints, asked: Ints) -> Ints:
    place = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return np.where(keys[place] == asked, values[place], 0)


def _perplexity(probability: Doubles) -> float:
    return float(np.exp(-np.log(probability).mean()))
