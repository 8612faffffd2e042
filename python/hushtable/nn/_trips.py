"""The round trips of a forward: calls of several layers that are answered by one.

A forward that :mod:`._gather` has looked ahead in knows the ids of its layers' calls before they
are made. Calls whose ids do not depend on each other's rows go in one trip: the first of them that
is made sends the ids of all. A call whose ids are others than were foreseen is answered by itself.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from .._bags import FloatArray, IntArray
from .._ids import Ids, default_max_ids
from .._types import LookupStats
from ..errors import TooManyIds
from ._sources import ModelSource

__all__ = [
    "Asked",
    "Coming",
    "DistinctIds",
    "Forward",
    "ForwardStats",
    "Found",
    "Trip",
    "ask_many",
    "foreseen",
    "note",
    "of_this_thread",
]

IdArray = npt.NDArray[np.uint64]


class Found(NamedTuple):
    """Rows of some ids.

    Attributes:
        rows: float32 [ids, dim].
        whole: False where a table's layout left some out, whose rows are zeros.
    """

    rows: FloatArray
    whole: bool


@dataclass(frozen=True, slots=True)
class ForwardStats:
    """What one forward of a model cost, of all its private layers together.

    Attributes:
        trips: round trips, one after the other.
        requests: messages to each server.
        bytes_up: payload bytes sent, to both servers together; 0 of tables in the clear.
        bytes_down: payload bytes received, from both servers together.
        seconds: spent waiting for rows.
    """

    trips: int = 0
    requests: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0

    def plus(self, stats: LookupStats | None, requests: int) -> Self:
        """After one more trip."""
        more = replace(self, trips=self.trips + 1, requests=self.requests + requests)
        if stats is None:
            return more
        return replace(
            more,
            bytes_up=self.bytes_up + stats.bytes_up,
            bytes_down=self.bytes_down + stats.bytes_down,
            seconds=self.seconds + stats.seconds,
        )


class Asked(Protocol):
    """What one call of a layer asks for."""

    def same(self, other: Any) -> bool:
        """Whether another call asks for the same ids, in the same order."""
        ...

    def parts(self) -> Mapping[str, Sequence[IdArray]]:
        """By feature the ids of each of some inferences. How many follows from shapes alone."""
        ...

    def answered(self, found: Mapping[str, Sequence[Found]]) -> Any:
        """What the layer makes of its parts' rows; None where it cannot do without some."""
        ...


@dataclass(frozen=True, eq=False)
class DistinctIds:
    """A call of a layer of one table, which looks up each of its ids once.

    Attributes:
        ids: uint64 [ids], as they were given.
        padding_idx: the id that is not fetched, whose row is zero.
        feature: the feature of a model that is asked, and the most ids of one inference.
    """

    ids: IdArray
    padding_idx: int | None = None
    feature: tuple[str, int] | None = None

    @property
    def wanted(self) -> IdArray:
        """The distinct ids that are fetched, in order; without padding."""
        return self._found[0]

    @functools.cached_property
    def _found(self) -> tuple[IdArray, IntArray]:
        """:attr:`wanted`, and where among their rows each id's is: past them, that of padding."""
        wanted, places = np.unique(self.ids, return_inverse=True)
        places = places.reshape(-1)
        if self.padding_idx is None:
            return wanted, places
        is_padding = wanted == self.padding_idx
        order = np.where(is_padding, len(wanted) - 1, np.cumsum(~is_padding) - 1)
        return wanted[~is_padding], order[places]

    def spread(self, rows: FloatArray) -> FloatArray:
        """The row of each id, float32 [ids, dim], of those of ``wanted``; zero for padding."""
        _, places = self._found
        if self.padding_idx is not None:
            rows = np.concatenate([rows, np.zeros((1, rows.shape[1]), dtype=np.float32)])
        return rows[places]

    def same(self, other: Any) -> bool:
        """Whether another call has the same ids."""
        return isinstance(other, DistinctIds) and np.array_equal(self.ids, other.ids)

    def parts(self) -> dict[str, list[IdArray]]:
        """As many as hold the call's ids if none of them repeats, rounded up to a power of two."""
        assert self.feature is not None
        name, most = self.feature
        count = default_max_ids(-(-self.ids.size // most))
        return {name: [self.wanted[at * most : (at + 1) * most] for at in range(count)]}

    def whole(self) -> tuple[str, IdArray, int]:
        """All in one message: the feature, the ids, and how many keys to send for them."""
        assert self.feature is not None
        return self.feature[0], self.wanted, default_max_ids(self.ids.size)

    def answered(self, found: Mapping[str, Sequence[Found]]) -> FloatArray | None:
        """The row of each id."""
        (parts,) = found.values()
        if not all(part.whole for part in parts):
            return None
        return self.spread(np.concatenate([part.rows for part in parts]))


class Trip:
    """One round trip: the calls that it answers, all of one model.

    Args:
        source: the model.
        calls: by some key, what each asks for.
        dims: by feature, the values of a row.
    """

    def __init__(self, source: ModelSource, calls: dict[Any, Asked], dims: dict[str, int]) -> None:
        self._source = source
        self._calls = calls
        self._dims = dims
        self._found: dict[Any, dict[str, list[Found]]] | None = None
        self._stats: LookupStats | None = None

    def answer(self, key: Any) -> tuple[Any, LookupStats | None]:
        """The answer to one of the calls, and what the trip cost.

        The first that asks for one sends the ids of all.

        Returns:
            None in place of an answer where a table's layout left some of the call's ids out.
        """
        if self._found is None:
            self._found = self._make()
        # Made anew each time: who gets it may write into it.
        return self._calls[key].answered(self._found[key]), self._stats

    def _make(self) -> dict[Any, dict[str, list[Found]]]:
        """Asks by whatever takes fewer messages, which follows from shapes alone."""
        inferences: list[dict[str, Ids]] = []
        taken: dict[str, int] = {}
        places: dict[Any, dict[str, range]] = {}
        for key, call in self._calls.items():
            places[key] = {}
            for name, parts in call.parts().items():
                first = taken.get(name, 0)
                taken[name] = first + len(parts)
                places[key][name] = range(first, taken[name])
                inferences += [{} for _ in range(taken[name] - len(inferences))]
                for at, ids in enumerate(parts, first):
                    if len(ids):
                        inferences[at][name] = ids
        if len(inferences) > len(self._calls):
            found = self._one_by_one()
            if found is not None:
                return found
        answers, self._stats = ask_many(self._source, inferences)
        note(self._stats, len(inferences))
        return {
            key: {name: [self._rows(answers[at], name) for at in own] for name, own in used.items()}
            for key, used in places.items()
        }

    def _one_by_one(self) -> dict[Any, dict[str, list[Found]]] | None:
        """Each call by a message of its own, all at once; None where the source cannot, or where a
        server takes fewer keys in one.
        """
        ask: Callable[..., Any] | None = getattr(self._source, "lookup_features", None)
        calls = list(self._calls.values())
        if ask is None or not all(isinstance(call, DistinctIds) for call in calls):
            return None
        asked = [call.whole() for call in calls if isinstance(call, DistinctIds)]
        try:
            rows = ask(asked)
        except TooManyIds:
            return None
        self._stats = getattr(self._source, "last_stats", None)
        note(self._stats, len(calls))
        return {
            key: {name: [Found(one, True)]}
            for key, (name, _, _), one in zip(self._calls, asked, rows, strict=True)
        }

    def _rows(self, answer: Mapping[str, Found], name: str) -> Found:
        if name in answer:
            return answer[name]
        return Found(np.zeros((0, self._dims[name]), dtype=np.float32), True)


def ask_many(
    source: ModelSource, inferences: Sequence[Mapping[str, Ids]]
) -> tuple[list[dict[str, Found]], LookupStats | None]:
    """The rows of several inferences at once, and what all of them cost together."""
    ask: Callable[..., Any] | None = getattr(source, "lookup_many_bags", None)
    if ask is None:
        rows = source.lookup_many(inferences)
        answers = [
            {name: Found(np.asarray(found), True) for name, found in one.items()} for one in rows
        ]
        return answers, None
    answers = [
        {name: Found(bag.rows, bool(bag.kept.all())) for name, bag in one.items()}
        for one in ask(inferences)
    ]
    return answers, getattr(source, "last_stats", None)


class Coming(Protocol):
    """A call that was foreseen."""

    def asked(self) -> Asked | None:
        """What it asks for; None where that is not known after all."""
        ...

    def answer(self) -> tuple[Any, LookupStats | None]:
        """The rows, or None where some are missing, and what their trip cost."""
        ...

    @property
    def failed(self) -> bool:
        """Whether what leads to its ids failed, where the forward itself went on."""
        ...


class Forward:
    """One forward of a model, while it runs.

    Args:
        owner: whoever looked ahead.
    """

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.stats = ForwardStats()
        #: Of each layer, by its handle, the calls that are still to come.
        self.coming: dict[str, list[Coming]] = {}
        #: Set while a layer is called ahead of the forward: that call.
        self.ahead: Coming | None = None
        #: Calls that came otherwise than foreseen.
        self.missed: list[Coming] = []

    def end(self) -> None:
        """Lets go of inputs and rows, which what is still to come and this hold in a circle."""
        self.coming.clear()
        self.missed.clear()

    def note(self, stats: LookupStats | None, requests: int) -> None:
        """Counts a trip."""
        self.stats = self.stats.plus(stats, requests)

    def take(self, handle: str, asked: Asked) -> tuple[Any, LookupStats | None] | None:
        """The answer to a call that was foreseen, and what its trip cost; None of any other."""
        if self.ahead is not None:
            return self.ahead.answer()
        coming, others = self.coming.get(handle, []), []
        for place, call in enumerate(coming):
            foreseen = call.asked()
            if foreseen is None or not foreseen.same(asked):
                if foreseen is not None or call.failed:
                    others.append(call)
                continue
            del coming[place]
            found = call.answer()
            if found[0] is None:
                self.missed.append(call)
                return None
            return found
        self.missed += others
        return None


class _Running(threading.local):
    def __init__(self) -> None:
        self.forwards: list[Forward] = []
        #: Whether a model's code is followed.
        self.following = False


_RUNNING = _Running()


def of_this_thread() -> _Running:
    """What runs in this thread: forwards, the innermost last."""
    return _RUNNING


def foreseen(handle: str, asked: Asked) -> tuple[Any, LookupStats | None] | None:
    """The answer to a layer's call where a forward around it has one, and what it cost."""
    for forward in reversed(_RUNNING.forwards):
        found = forward.take(handle, asked)
        if found is not None:
            return found
    return None


def note(stats: LookupStats | None, requests: int = 1) -> None:
    """Counts a trip that a layer made by itself."""
    for forward in _RUNNING.forwards:
        forward.note(stats, requests)
