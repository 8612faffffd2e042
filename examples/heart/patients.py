"""UCI's patients: who is learned from, who is held out, and what a model reads of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushtable.data import HEART_SPARSE, Heart
from hushtable.nn.encrypted import Activation, Description, Feature, Preprocess

#: Parts of the patients; each is held out once.
FOLDS = 5
#: Deviations from the mean that a measured value is clipped to.
BOUND = 3.0

Ints = npt.NDArray[np.int64]


def describe(activation: Activation) -> Description:
    """The model that HE-LRM measures (section 6.3): 5-16-4, eight tables of 4 values, 36-16-1."""
    return Description(
        dense=5,
        bottom=(16, 4),
        top=(16, 1),
        dim=4,
        features=tuple(Feature(name, len(values)) for name, values in HEART_SPARSE.items()),
        activation=activation,
    )


@dataclass(frozen=True)
class Split:
    """Numbers of patients. No patient is in two parts.

    Attributes:
        learning: weights and the constants of the inputs come from these.
        validation: say when to stop.
        test: decide nothing.
    """

    learning: Ints
    validation: Ints
    test: Ints


def split(ill: npt.NDArray[np.bool_], fold: int, *, seed: int) -> Split:
    """Holds out one of :data:`FOLDS` parts, and of the rest a fifth for validation.

    Every part has the ill and the well in the proportion of all.
    """
    held = _dealt(ill, np.random.default_rng(seed)) == fold
    rest = np.flatnonzero(~held)
    is_validation = _dealt(ill[rest], np.random.default_rng((seed, fold))) == 0
    return Split(rest[~is_validation], rest[is_validation], np.flatnonzero(held))


def _dealt(ill: npt.NDArray[np.bool_], random: np.random.Generator) -> Ints:
    parts = np.empty(len(ill), np.int64)
    for kind in (False, True):
        of_kind = random.permutation(np.flatnonzero(ill == kind))
        parts[of_kind] = np.arange(len(of_kind)) % FOLDS
    return parts


def measure(heart: Heart, learning: Ints) -> Preprocess:
    """Constants of the inputs, from the patients that are learned from and no others.

    Six values of the data are missing; the most frequent one of their column stands in.
    """
    dense, indices = heart.dense[learning].astype(np.float64), heart.indices[learning]
    common = (np.bincount(column[column >= 0]).argmax() for column in indices.T)
    return Preprocess(
        mean=tuple(map(float, dense.mean(0))),
        deviation=tuple(map(float, dense.std(0))),
        bound=BOUND,
        missing=tuple(map(int, common)),
    )
