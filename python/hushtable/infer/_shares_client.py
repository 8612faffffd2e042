"""Clients of predictions on the shares of two servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

import numpy as np
import numpy.typing as npt

from .. import _native
from .._closing import AsyncClosing, Closing
from ..client import Servers, Tls, TlsConfig
from ..client.table import Done, awaited, connected_again, copied, unmovable, urls_of
from ..errors import BadFeatures, ConfigError
from ._shares import Sparse, plain, sample_arrays
from ._types import FloatArray, sigmoid

#: Predictions under way at once, at most: as many as a server may be told to take.
INFERENCES_MAX = 1 << 16
#: Who deals what a prediction takes.
Dealer = Literal["client", "servers"]
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


class _SharesClient:
    """What both clients know."""

    def __init__(self, native: _native.SharesClient, urls: tuple[str, str]) -> None:
        self._native = native
        self._urls = urls
        self._is_closed = False
        self._info = SharesInfo.of_facts(native.info())

    @property
    def info(self) -> SharesInfo:
        """What the servers compute, and what a prediction takes."""
        return self._info

    def close(self) -> None:
        """Closes the connections. Predictions that are under way finish; new ones are refused."""
        self._is_closed = True
        self._native.close()

    def __repr__(self) -> str:
        left, right = self._urls
        return f"{type(self).__name__}({left} and {right}: model {self._info.name!r})"


class SharesClient(_SharesClient, Closing):
    """Connections to two servers of predictions on shares; made by :func:`connect_shares`.

    Threads may share a client. After ``os.fork`` both processes may go on using it: the child
    connects anew, at its first prediction. Copied or pickled, it connects anew by its URLs and what
    it was told to check.
    """

    def __init__(
        self,
        native: _native.SharesClient,
        urls: tuple[str, str],
        again: Callable[[], SharesClient] | None = None,
    ) -> None:
        super().__init__(native, urls)
        self._again = again

    def __reduce__(self) -> tuple[Callable[..., SharesClient], tuple[Any, ...]]:
        return connected_again, (copied(self, self._again, self._is_closed),)

    def predict(
        self, ids: Ids | None = None, dense: npt.ArrayLike | None = None
    ) -> SharesPredictions:
        """Has the model computed for some users.

        Neither server learns ids, features, rows or predictions, as long as the two do not pool
        what they see; this client learns the logits, and no row (docs/security/shares.md).

        Args:
            ids: by feature, ``{"user": [3, 17], "films": [[1, 2], [5]]}``: a whole number for each
                user, of a feature with a bag a list of up to so many. Or indices ``[users,
                features]`` in the model's order.
            dense: numbers ``[users, info.dense]``; none of a model that takes none.

        Raises:
            BadFeatures: another count of features, or of users in them; NaN, or numbers that are
                too large; nothing was sent.
            IdOutOfRange: an id that is no row of its table; nothing was sent.
            PlanMismatch: the servers compute by another plan by now: connect again.
            ServerBusy, ServerUnavailable, ServerTimeout, ServerError: a server that did not answer,
                or one that has no connection to the other.
        """
        return SharesPredictions.of_facts(self._native.predict(*_features(ids, dense, self._info)))


class AsyncSharesClient(_SharesClient, AsyncClosing):
    """:class:`SharesClient` for asyncio; made by :func:`connect_shares_async`."""

    def __reduce__(self) -> NoReturn:
        raise unmovable(self, "hushtable.infer.connect_shares_async()")

    async def predict(
        self, ids: Ids | None = None, dense: npt.ArrayLike | None = None
    ) -> SharesPredictions:
        """As :meth:`SharesClient.predict`."""
        numbers, indices = _features(ids, dense, self._info)

        def start(done: Done[_native.SharesPredictionFacts]) -> _native.Call:
            return self._native.start_predict(numbers, indices, done)

        return SharesPredictions.of_facts(await awaited(start))


def connect_shares(
    left: Servers,
    right: Servers,
    *,
    tls: Tls | None = None,
    version: str | None = None,
    timeout: float = 30.0,
    connect_timeout: float = 5.0,
    insecure: bool = False,
    dealer: Dealer | None = None,
    inferences: int = 32,
) -> SharesClient:
    """Connects to the two servers that compute a model on shares, and checks what they announce.

    Args:
        left: URL of the left server, ``https://host:port``; ``http://`` only on this machine.
        right: URL of the right one, of an operator who does not collude with left's.
        tls: the authority's PEM file, True for the authorities that this machine trusts, or a
            :class:`hushtable.TlsConfig` with an authority for each side; needed for ``https://``.
        version: the only version of the model to ask, in hex.
        timeout: seconds that one user's prediction may take, those dealt anew included.
        connect_timeout: seconds that one connection may take.
        insecure: allow ``http://`` to other machines, where something else encrypts the way.
        dealer: the only one to accept: ``client``, who then may read more of the model than
            predictions say, or ``servers``, which deal beforehand; whichever the servers announce
            by default.
        inferences: how many users' predictions are under way at once, 1 to 65536.

    Raises:
        ConfigError: a URL, file or option that cannot work.
        SwappedServers: left and right the other way round, or the same server twice.
        VersionMismatch: servers of different models or plans, or another version than asked for.
        ProtocolError: a server of another kind, or one that announces what cannot be.
        TlsError, ServerUnavailable, ServerTimeout: a server that cannot be reached.
    """
    given = locals()
    return SharesClient(*_connected(given), again=partial(connect_shares, **given))


async def connect_shares_async(
    left: Servers,
    right: Servers,
    *,
    tls: Tls | None = None,
    version: str | None = None,
    timeout: float = 30.0,
    connect_timeout: float = 5.0,
    insecure: bool = False,
    dealer: Dealer | None = None,
    inferences: int = 32,
) -> AsyncSharesClient:
    """:func:`connect_shares` for asyncio; arguments and errors are the same."""
    given = locals()
    return AsyncSharesClient(*await asyncio.to_thread(_connected, given))


def _connected(given: dict[str, Any]) -> tuple[_native.SharesClient, tuple[str, str]]:
    inferences = given["inferences"]
    if not 1 <= inferences <= INFERENCES_MAX:
        raise ConfigError(f"inferences is {inferences}, but must be 1 to {INFERENCES_MAX}")
    left, right = urls_of("left", given["left"]), urls_of("right", given["right"])
    tls = TlsConfig.of(given["tls"])
    certificate = None
    if tls is not None and tls.certificate is not None and tls.key is not None:
        certificate = (Path(tls.certificate), Path(tls.key))
    native = _native.SharesClient(
        left,
        right,
        cas=(None, None) if tls is None else tls.authorities_by_side,
        certificate=certificate,
        names=(None, None) if tls is None else (tls.left_name, tls.right_name),
        insecure=given["insecure"],
        connect_seconds=given["connect_timeout"],
        seconds=given["timeout"],
        version=given["version"],
        dealer=given["dealer"],
        inferences_max=inferences,
    )
    return native, (" or ".join(left), " or ".join(right))


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
