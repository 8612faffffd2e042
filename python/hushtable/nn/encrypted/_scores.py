"""How good predictions are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Scores", "area_under_curve", "score"]


@dataclass(frozen=True, slots=True)
class Scores:
    """What :func:`score` finds.

    Attributes:
        accuracy: the share of samples whose logit has its label's sign.
        auc: area under the curve of true against false positives; 0.5 where one label is absent.
        log_loss: mean negative log likelihood of the labels, in nats.
        samples: how many were judged.
    """

    accuracy: float
    auc: float
    log_loss: float
    samples: int


def area_under_curve(logits: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The chance that a positive sample is over a negative one; a tie counts a half.

    Args:
        logits: [samples]. One that is no number, as outside a polynomial's range, counts as the
            most wrong of all.
        labels: [samples], true or 1 for a positive one.
    """
    is_positive = np.asarray(labels, np.bool_)
    values = _numbers(np.asarray(logits, np.float64), is_positive)
    positives = int(is_positive.sum())
    negatives = is_positive.size - positives
    if positives == 0 or negatives == 0:
        return 0.5
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    # The mean rank, from 1, of each group of equal values.
    ranks = np.cumsum(counts) - (counts - 1) / 2
    total = float(ranks[place][is_positive].sum())
    return (total - positives * (positives + 1) / 2) / (positives * negatives)


def score(logits: npt.ArrayLike, labels: npt.ArrayLike) -> Scores:
    """Judges logits [samples] by labels [samples]; the log loss is infinite where one is no number.

    Raises:
        ValueError: no samples, or shapes that differ.
    """
    values: npt.NDArray[Any] = np.asarray(logits, np.float64)
    wanted = np.asarray(labels, np.bool_)
    if values.ndim != 1 or values.shape != wanted.shape or values.size == 0:
        raise ValueError(f"logits {values.shape} and labels {wanted.shape}: one of each a sample")
    values = _numbers(values, wanted)
    # log(1 + e^x) without overflow; the label's logit is taken off where the sample is positive.
    losses = np.logaddexp(0.0, values) - np.where(wanted, values, 0.0)
    return Scores(
        accuracy=float(((values > 0) == wanted).mean()),
        auc=area_under_curve(values, wanted),
        log_loss=float(losses.mean()),
        samples=values.size,
    )


def _numbers(
    values: npt.NDArray[np.float64], is_positive: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """The logits, with the farthest from its label in place of each that is no number."""
    return np.where(np.isnan(values), np.where(is_positive, -np.inf, np.inf), values)
