"""Clients of predictions on the shares of two servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .. import _native
from ..client.reach import BaseClient, Kind, Movable, Reach, Unmovable, awaited
from ..errors import BadFeatures
from ._shares import Sparse, describe_shares, plain, sample_arrays
from ._types import Computing, FloatArray, sigmoid

#: Users' sparse features: by name, a column of indices each (of a feature with a bag, of lists of
#: ids); or as :func:`hushtable.infer.compile_shares` takes them.
Ids = Mapping[str, npt.ArrayLike | Sequence[Any]] | Sparse


@dataclass(frozen=True, slots=True)
class SharesInfo:
    """What two servers compute on shares, as they announced it and this client checked it.

    Attributes:
        name: the model's name.
        version: BLAKE3 of its manifest, in hex.
        plan: BLAKE3 of the plan, in hex.
        side: which of the two servers this is; left of a client's.
        dense: numbers that the model takes of each user.
        features: names of its sparse features, in their order.
        rows: rows of each of them, whose ids run from 0 to one less.
        bags: how many ids of each a user has at most.
        dealer: who deals what a prediction takes, ``client`` or ``servers``.
        up_bytes: bytes that a client sends to both servers for one user, beside lookup keys.
        down_bytes: bytes of both shares of a logit.
        peer_bytes: bytes that each server sends the other for one user.
        rounds: messages that each sends the other, each after one of the other's.
    """

    name: str
    version: str
    plan: str
    side: str
    dense: int
    features: tuple[str, ...]
    rows: tuple[int, ...]
    bags: tuple[int, ...]
    dealer: str
    up_bytes: int
    down_bytes: int
    peer_bytes: int
    rounds: int

    @classmethod
    def of_facts(cls, facts: _native.SharesFacts) -> Self:
        """From what the native module says."""
        return cls(
            facts.name,
            facts.version,
            facts.plan,
            facts.side,
            facts.dense,
            tuple(name for name, _, _ in facts.features),
            tuple(rows for _, rows, _ in facts.features),
            tuple(bag for _, _, bag in facts.features),
            facts.dealer,
            facts.up_bytes,
            facts.down_bytes,
            facts.peer_bytes,
            facts.rounds,
        )

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """From a line of JSON."""
        listed = {name: tuple(record[name]) for name in ("features", "rows", "bags")}
        return cls(**{**record, **listed})


@dataclass(frozen=True, slots=True)
class SharesStats:
    """What predictions on shares cost.

    Attributes:
        key_bytes: bytes of lookup keys sent to both servers.
        dealt_bytes: bytes of what was dealt to both servers; where the servers deal, of shares of
            dense features.
        bytes_down: bytes of shares received.
        seconds: from the call to the logits.
        client_seconds: what dealing took, keys included, summed over users.
        queue_seconds: how long parts waited at the slower server, summed over users.
        answer_seconds: how long the slower server took from then on, summed over users.
        retries: times that a user's inference was dealt anew.
    """

    key_bytes: int
    dealt_bytes: int
    bytes_down: int
    seconds: float
    client_seconds: float
    queue_seconds: float
    answer_seconds: float
    retries: int


@dataclass(frozen=True, slots=True)
class SharesPredictions:
    """What a model says of some users.

    Attributes:
        logits: float64 ``[users]``.
        stats: what they cost.
    """

    logits: FloatArray
    stats: SharesStats

    @property
    def probabilities(self) -> FloatArray:
        """The sigmoid of each logit, float64 ``[users]``, taken here."""
        return sigmoid(self.logits)

    def __len__(self) -> int:
        return len(self.logits)

    @classmethod
    def of_facts(cls, facts: _native.SharesPredictionFacts) -> Self:
        """From what the native module says."""
        stats = SharesStats(
            facts.key_bytes,
            facts.dealt_bytes,
            facts.bytes_down,
            facts.seconds,
            facts.client_seconds,
            facts.queue_seconds,
            facts.answer_seconds,
            facts.retries,
        )
        return cls(facts.logits, stats)


class _SharesClient(BaseClient):
    """What both clients know."""

    def __init__(self, native: _native.Client, reach: Reach) -> None:
        super().__init__(native, reach)
        self._info = SharesInfo.of_facts(native.info())

    @property
    def info(self) -> SharesInfo:
        """What the servers compute, and what a prediction takes."""
        return self._info

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._reach.urls}: model {self._info.name!r})"


class SharesClient(_SharesClient, Movable):
    """Connections to two servers of predictions on shares; made by :func:`hushtable.connect`.

    Threads may share a client. After ``os.fork`` both processes may go on using it: the child
    connects anew, at its first prediction. Copied or pickled, it connects anew by its URLs and what
    it was told to check.
    """

    def predict(
        self,
        ids: Ids | None = None,
        dense: npt.ArrayLike | None = None,
        *,
        timeout: float | None = None,
    ) -> SharesPredictions:
        """Has the model computed for some users.

        Neither server learns ids, features, rows or predictions, as long as the two do not pool
        what they see; this client learns the logits, and no row (docs/security/shares.md).

        Args:
            ids: by feature, ``{"user": [3, 17], "films": [[1, 2], [5]]}``: a whole number for each
                user, of a feature with a bag a list of up to so many. Or indices ``[users,
                features]`` in the model's order.
            dense: numbers ``[users, info.dense]``; none of a model that takes none.
            timeout: seconds that this call may take with all that is done for it, in the place of
                the client's own.

        Raises:
            BadFeatures: another count of features, or of users in them; NaN, or numbers that are
                too large; nothing was sent.
            IdOutOfRange: an id that is no row of its table; nothing was sent.
            PlanMismatch: the servers compute by another plan by now: connect again.
            ServerBusy, ServerUnavailable, ServerTimeout, ServerError: a server that did not answer,
                or one that has no connection to the other.
        """
        given = _features(ids, dense, self._info)
        return SharesPredictions.of_facts(self._native.ask("predict", *given, timeout=timeout))


class AsyncSharesClient(_SharesClient, Unmovable):
    """:class:`SharesClient` for asyncio; made by :func:`hushtable.connect_async`."""

    async def predict(
        self,
        ids: Ids | None = None,
        dense: npt.ArrayLike | None = None,
        *,
        timeout: float | None = None,
    ) -> SharesPredictions:
        """As :meth:`SharesClient.predict`."""
        given = _features(ids, dense, self._info)
        found = await awaited(self._native, "predict", *given, timeout=timeout)
        return SharesPredictions.of_facts(found)


def _features(
    ids: Ids | None, dense: npt.ArrayLike | None, info: SharesInfo
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint64]]:
    """Users' features as the native module takes them.

    Raises:
        BadFeatures: other features than the model's, or not as many of each.
    """
    sparse: Sparse | None = _rows(ids, info) if isinstance(ids, Mapping) else ids
    if dense is None:
        if info.dense:
            raise BadFeatures(f"no dense features: the model takes {info.dense} numbers a user")
        users = len(sparse) if isinstance(sparse, Sized) else 0
        dense = np.empty((users, 0), np.float32)
    return sample_arrays(dense, sparse, info.dense, info.bags)


def _rows(ids: Mapping[str, Any], info: SharesInfo) -> list[list[Any]]:
    """Columns by name, as rows in the model's order."""
    if missing := [name for name in info.features if name not in ids]:
        raise BadFeatures(f"no ids of {', '.join(missing)}: the model takes {_listed(info)}")
    if unknown := [name for name in ids if name not in info.features]:
        raise BadFeatures(
            f"{', '.join(map(repr, unknown))} is no feature of the model: it takes {_listed(info)}"
        )
    columns = [_column(name, ids[name]) for name in info.features]
    counts = {name: len(column) for name, column in zip(info.features, columns, strict=True)}
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise BadFeatures(f"ids of different counts of users: {found}")
    # As lists where there are bags, so that an entry of one id is told from a list of one.
    own = [
        [_history(entry) if bag > 1 else entry for entry in column]
        for column, bag in zip(columns, info.bags, strict=True)
    ]
    return [list(entries) for entries in zip(*own, strict=True)]


def _column(name: str, ids: Any) -> list[Any]:
    given = plain(ids)
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadFeatures(
            f"ids of {name} are {given!r}: it takes one for each user, or a list each"
        )
    return list(given)


def _history(entry: Any) -> Any:
    """A user's ids of a feature with a bag: none of one without a history."""
    if entry is None:
        return []
    given = plain(entry)
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else given


def _listed(info: SharesInfo) -> str:
    return ", ".join(info.features) or "none"


SHARES = Computing(
    Kind("shares", SharesClient, AsyncSharesClient),
    SharesInfo,
    lambda model, plan: describe_shares(model, plan=plan),
    "on shares",
)
