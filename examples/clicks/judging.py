"""How well a model tells the candidates that were clicked from the others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from examples.movielens.model import auc

from .pages import ABSENT, Bools, Floats, Pages
from .scoring import Inputs, Score
from .table import write_out

if TYPE_CHECKING:
    from .training import Lessons, Weights

#: Inferences that are scored at once.
JUDGED_BATCH = 512


@cache
def _compiled(score: Score) -> Any:
    return jax.jit(lambda device, inputs: score(device, inputs, None))


@dataclass(frozen=True)
class Judge:
    """Held-out inferences."""

    pages: Pages

    def scores(self, score: Score, device: Any, rows: Floats, kept: Bools | None = None) -> Floats:
        """A score for each candidate, float32 [inferences, page length].

        Args:
            score: the model.
            device: its weights.
            rows: float32 [accesses, dim], of the bags' items: bag after bag, oldest first.
            kept: bool [accesses], False where a row is missing; None where none is.
        """
        present = self.pages.present
        spread = np.zeros((*present.shape, rows.shape[1]), np.float32)
        spread[present] = rows
        mask = present.copy()
        if kept is not None:
            mask[present] = kept
        compiled = _compiled(score)
        scores = [
            compiled(device, self._inputs(spread, mask, first))
            for first in range(0, len(present), JUDGED_BATCH)
        ]
        return np.concatenate(scores)[: len(present)]

    def _inputs(self, rows: Floats, kept: Bools, first: int) -> Inputs:
        """One batch, of which the last is padded: then all have one shape, compiled once."""

        def cut(values: Any) -> Any:
            chosen = values[first : first + JUDGED_BATCH]
            short = JUDGED_BATCH - len(chosen)
            return np.pad(chosen, ((0, short), *((0, 0),) * (values.ndim - 1)))

        return Inputs(
            rows=cut(rows),
            kept=cut(kept),
            candidates=cut(np.maximum(self.pages.candidates, 0)),
            features=cut(self.pages.features),
        )

    def auc_of(self, scores: Floats) -> float:
        """The chance that a clicked candidate of any inference scores above one that was not."""
        shown = self.pages.candidates != ABSENT
        return auc(scores[shown], self.pages.clicked[shown])

    def auc(self, score: Score, weights: Weights, lessons: Lessons) -> float:
        """The AUC with weights that are still learned, nothing dropped."""
        items, place = np.unique(self.pages.items, return_inverse=True)
        _, at, owners = np.intersect1d(lessons.seen, items, assume_unique=True, return_indices=True)
        summands = weights.table._replace(own=weights.table.own[at])
        rows = write_out(summands, lessons.parts[items], owners.astype(np.int32))
        return self.auc_of(self.scores(score, weights.device, rows[place]))
