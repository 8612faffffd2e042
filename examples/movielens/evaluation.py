"""How well a ranking of the shortlist guesses what a held-out user went on to watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .model import DeviceModel, Floats, Ints, auc
from .split import Person

#: Film numbers [films] to rows, float32 [films, DIM]: a private lookup, or a read in the clear.
Rows = Callable[[Ints], Floats]


@dataclass(frozen=True)
class Ranking:
    """One user's candidates: the shortlist without what she has seen.

    Attributes:
        films: film numbers, best first.
        hit: bool [films], which of them she went on to watch.
        auc: of this ranking; None where her future has no candidate in it.
    """

    films: Ints
    hit: npt.NDArray[np.bool_]
    auc: float | None


def rank(person: Person, shortlist: Ints, scores: Floats) -> Ranking:
    """The shortlist by ``scores`` [shortlist], without what the person has seen."""
    new = ~np.isin(shortlist, person.seen)
    films, scores = shortlist[new], scores[new]
    hit = np.isin(films, person.future)
    order = np.argsort(-scores, kind="stable")
    judged = bool(hit.any()) and not bool(hit.all())
    return Ranking(films[order], hit[order], auc(scores, hit) if judged else None)


def mean_auc(rankings: Sequence[Ranking]) -> float:
    """The mean over the users who can be judged."""
    return float(np.mean(judged_aucs(rankings)))


def judged_aucs(rankings: Sequence[Ranking]) -> npt.NDArray[np.float64]:
    """The AUC of each user who can be judged."""
    return np.array([one.auc for one in rankings if one.auc is not None])


def mean_hits(rankings: Sequence[Ranking], first: int = 10) -> float:
    """How many of the ``first`` films a user went on to watch, on average."""
    return float(np.mean([ranking.hit[:first].sum() for ranking in rankings]))


def rank_all(model: DeviceModel, people: Sequence[Person], rows: Rows) -> list[Ranking]:
    """Each person's ranking, the history's rows read by ``rows``."""
    return [rank(person, model.shortlist, model.scores(rows(person.history))) for person in people]
