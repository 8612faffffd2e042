"""Clients of a model that is computed on encrypted features."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import numpy.typing as npt

from .. import _native
from ..client.reach import BaseClient, Kind, Movable, Reach, Unmovable, awaited
from ._plan import PlanInfo
from ._types import Computing, ModelInfo, Predictions, features


class _Client(BaseClient):
    """What both clients know."""

    def __init__(self, native: _native.Client, reach: Reach) -> None:
        super().__init__(native, reach)
        self._info = ModelInfo.of_facts(native.info())

    @property
    def info(self) -> ModelInfo:
        """What the server computes, and what it costs: bytes of keys before any is sent."""
        return self._info

    def __repr__(self) -> str:
        info = self._info
        return (
            f"{type(self).__name__}({self._reach.urls}: model {info.name!r}, keys of "
            f"{info.key_bytes:,} B)"
        )


class CkksClient(_Client, Movable):
    """A connection to a server of encrypted inference; made by :func:`hushtable.connect`.

    Threads may share a client. After ``os.fork`` both processes may go on using it: the child
    connects anew, with keys of its own, at its first prediction; so does a copy.
    """

    def upload(self, *, timeout: float | None = None) -> int:
        """Brings the keys to the server, where they are not there yet; the bytes sent.

        :meth:`predict` does so by itself. Called before, the first prediction is as fast as others.

        Raises:
            ServerError: a server without room for the keys.
            ServerBusy, ServerUnavailable, ServerTimeout: a server that does not take them.
        """
        sent: int = self._native.ask("upload", timeout=timeout)
        return sent

    def predict(
        self,
        dense: npt.ArrayLike,
        sparse: npt.ArrayLike | None = None,
        *,
        timeout: float | None = None,
    ) -> Predictions:
        """Has the model computed for some users; the server learns neither features nor answers.

        Args:
            dense: numbers ``[users, info.dense]``, or ``[info.dense]`` of one user.
            sparse: rows of the model's tables, ``[users, len(info.rows)]``; none without tables.
            timeout: seconds that this call may take with all that is done for it, an upload of keys
                too, in the place of the client's own.

        Raises:
            BadFeatures: other shapes, NaN or infinity; nothing of that user was sent.
            IdOutOfRange: an index that is no row of its table; nothing of that user was sent.
            PlanMismatch: the server computes by another plan by now: connect again.
            ServerBusy, ServerUnavailable, ServerTimeout, ServerError: a server that did not answer.
        """
        given = features(dense, sparse, self._info)
        return Predictions.of_facts(self._native.ask("predict", *given, timeout=timeout))


class AsyncCkksClient(_Client, Unmovable):
    """:class:`CkksClient` for asyncio; made by :func:`hushtable.connect_async`."""

    async def upload(self, *, timeout: float | None = None) -> int:
        """As :meth:`CkksClient.upload`."""
        return await asyncio.to_thread(self._native.ask, "upload", timeout=timeout)

    async def predict(
        self,
        dense: npt.ArrayLike,
        sparse: npt.ArrayLike | None = None,
        *,
        timeout: float | None = None,
    ) -> Predictions:
        """As :meth:`CkksClient.predict`."""
        given = features(dense, sparse, self._info)
        found = await awaited(self._native, "predict", *given, timeout=timeout)
        return Predictions.of_facts(found)


def _describe(model: str | os.PathLike[str], plan: str | None) -> PlanInfo:
    return PlanInfo.of_json(_native.infer_describe(Path(model), plan))


CKKS = Computing(
    Kind("ckks", CkksClient, AsyncCkksClient), ModelInfo, _describe, "on encrypted features"
)
