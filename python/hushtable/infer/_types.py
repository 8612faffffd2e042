"""What is predicted, of what, and at which cost, as plain values."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .. import _native
from ..client.reach import Kind
from ..errors import BadFeatures

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Computing:
    """How one scheme has models computed.

    Attributes:
        kind: its clients.
        info: what its servers say of a model, made by ``of_facts`` and ``of_record``.
        describe: what a bundle's plan is: the one of this name, or the only one.
        how: a model is computed, in words.
    """

    kind: Kind
    info: Any
    describe: Callable[[str | os.PathLike[str], str | None], Any]
    how: str


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a server computes, as it announced it and this client checked it.

    Attributes:
        name: the model's name.
        version: BLAKE3 of its manifest, in hex.
        plan: BLAKE3 of what a client goes by, in hex: keys are made for it.
        dense: numbers that the model takes of each user.
        rows: rows of each of its sparse features, whose indices run from 0 to one less.
        features: names of these.
        users_per_query: users that one encrypted query carries; fewer cost the same.
        key_bytes: bytes of a client's keys, uploaded once.
        query_bytes: bytes of one query.
        answer_bytes: bytes of one answer.
    """

    name: str
    version: str
    plan: str
    dense: int
    rows: tuple[int, ...]
    features: tuple[str, ...]
    users_per_query: int
    key_bytes: int
    query_bytes: int
    answer_bytes: int

    @classmethod
    def of_facts(cls, facts: _native.CkksFacts) -> Self:
        """From what the native module says."""
        return cls(
            facts.name,
            facts.version,
            facts.plan,
            facts.dense,
            tuple(facts.rows),
            tuple(one["name"] for one in json.loads(facts.terms)["features"]),
            facts.users,
            facts.key_bytes,
            facts.query_bytes,
            facts.answer_bytes,
        )

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """From a line of JSON."""
        listed = {name: tuple(record[name]) for name in ("rows", "features")}
        return cls(**{**record, **listed})


@dataclass(frozen=True, slots=True)
class PredictionStats:
    """What a prediction cost.

    Attributes:
        queries: encrypted queries that were sent.
        bytes_up: bytes of queries sent, and of keys where this call uploaded them.
        bytes_down: bytes of answers received.
        seconds: from the call to the logits.
        client_seconds: what encrypting and decrypting took of it.
        queue_seconds: how long queries waited at the server.
        answer_seconds: how long they were computed on.
        retries: times that a busy server was asked again.
    """

    queries: int
    bytes_up: int
    bytes_down: int
    seconds: float
    client_seconds: float
    queue_seconds: float
    answer_seconds: float
    retries: int

    @classmethod
    def of_facts(cls, facts: _native.PredictionFacts) -> Self:
        """From what the native module says."""
        return cls(
            facts.queries,
            facts.bytes_up,
            facts.bytes_down,
            facts.seconds,
            facts.client_seconds,
            facts.queue_seconds,
            facts.answer_seconds,
            facts.retries,
        )


@dataclass(frozen=True, slots=True)
class Predictions:
    """What a model says of some users.

    Attributes:
        logits: float64 ``[users]``. Where they were decrypted, :meth:`shareable` before others see
            them.
        stats: what they cost; None for a model in this process.
    """

    logits: FloatArray
    stats: PredictionStats | None = None

    @property
    def probabilities(self) -> FloatArray:
        """The sigmoid of each logit, float64 ``[users]``."""
        return sigmoid(self.logits)

    def shareable(self) -> FloatArray:
        """The logits with fresh rounding to 1/64: what may be given away, float64 ``[users]``.

        A decrypted logit holds noise that depends on the client's secret, and who sees enough of it
        learns of the secret (Li and Micciancio, EUROCRYPT 2021). Keep :attr:`logits` to yourself; a
        score that goes elsewhere, to the server as well, is made of these. Each call rounds anew:
        share what one call gave.
        """
        return _native.infer_shareable(np.ascontiguousarray(self.logits))

    def __len__(self) -> int:
        return len(self.logits)

    @classmethod
    def of_facts(cls, facts: _native.PredictionFacts) -> Self:
        """From what the native module says."""
        return cls(facts.logits, PredictionStats.of_facts(facts))


def sigmoid(logits: FloatArray) -> FloatArray:
    """1 / (1 + e^-x) of each."""
    # By halves, so that no exponential overflows.
    half = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1 / (1 + half), half / (1 + half))


def _all_within(rows: npt.NDArray[Any]) -> bool:
    return all(0 <= index < 2**64 for index in rows.flat)


def _outside(rows: npt.NDArray[Any], info: ModelInfo) -> str:
    """Which of these, by user and feature, is the first that no row has."""
    users = rows.reshape(-1, rows.shape[-1]).tolist()
    user, at, index = next(
        (user, at, index)
        for user, given in enumerate(users)
        for at, index in enumerate(given)
        if not 0 <= index < 2**64
    )
    text = f"index {index} of user {user} is no row"
    if at >= len(info.rows):
        return f"{text}, and the model takes {len(info.rows)} of them, one a table"
    return f"{text} of feature {info.features[at]!r}, which has {info.rows[at]}, from 0"


def features(
    dense: npt.ArrayLike, sparse: npt.ArrayLike | None, info: ModelInfo
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint64]]:
    """One user's or several users' features as the native module takes them.

    Raises:
        BadFeatures: other shapes or types than the model's.
    """
    numbers = np.asarray(dense)
    if numbers.dtype.kind not in "fiu":
        raise BadFeatures(f"dense features are numbers, not {numbers.dtype}")
    if numbers.ndim == 1:
        numbers = numbers[None]
    if numbers.ndim != 2 or numbers.shape[1] != info.dense:
        raise BadFeatures(
            f"dense features of shape {list(np.shape(numbers))}: the model takes "
            f"[users, {info.dense}]"
        )
    users, tables = numbers.shape[0], len(info.rows)
    empty: npt.NDArray[np.int64] = np.empty((users, 0), np.int64)
    rows = empty if sparse is None else np.asarray(sparse)
    if rows.size == 0 and tables == 0:
        rows = empty
    if rows.dtype.kind == "O" and all(type(one) is int for one in rows.flat):
        # What 64 bits do not hold.
        if not _all_within(rows):
            raise BadFeatures(_outside(rows, info))
        rows = rows.astype(np.uint64)
    if rows.dtype.kind not in "iu":
        raise BadFeatures(f"sparse features are whole numbers, rows of tables, not {rows.dtype}")
    if rows.ndim == 1:
        rows = rows[None]
    if rows.shape != (users, tables):
        raise BadFeatures(
            f"sparse features of shape {list(rows.shape)} beside {users} users' dense ones: "
            f"the model takes [{users}, {tables}], one row a table"
        )
    if rows.dtype.kind == "i" and (rows < 0).any():
        raise BadFeatures(_outside(rows, info))
    with np.errstate(over="ignore"):
        # What does not fit becomes infinite, and is refused by name.
        numbers = np.ascontiguousarray(numbers, dtype=np.float32)
    return numbers, np.ascontiguousarray(rows, dtype=np.uint64)
