"""Clients of a network on inputs that its server never sees."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .. import _native
from ..client.reach import BaseClient, Kind, Movable, Reach, Unmovable
from ._description import plan_of
from ._hybrid import (
    HybridPlanInfo,
    NetworkInfo,
    OnlineStats,
    Outputs,
    PrecomputeStats,
    images,
)
from ._types import Computing

#: Told the steps of precomputes that were made, and all of them.
Steps = Callable[[int, int], None]


class _HybridClient(BaseClient):
    """What both clients know."""

    def __init__(self, native: _native.Client, reach: Reach) -> None:
        super().__init__(native, reach)
        self._info = NetworkInfo.of_facts(native.info())

    @property
    def info(self) -> NetworkInfo:
        """What the server computes, and what is kept of a precompute."""
        return self._info

    @property
    def precomputes(self) -> int:
        """Precomputes that can be used."""
        count: int = self._native.ask("precomputes")
        return count

    @property
    def precomputes_refused(self) -> int:
        """Halves of the folder that were dropped, for they may have been used before: it was copied
        or put back from a backup, or its ledger was lost (``ClientOptions(store_ledger=)``)."""
        count: int = self._native.ask("precomputes_refused")
        return count

    def __repr__(self) -> str:
        info = self._info
        return f"{type(self).__name__}({self._reach.urls}: model {info.name!r}, input {info.input})"

    def _predict(
        self, inputs: npt.ArrayLike, progress: Steps | None, timeout: float | None
    ) -> Outputs:
        rows, is_one = images(inputs, self._info)
        end = None if timeout is None else time.monotonic() + timeout
        found: list[_native.HybridPredictionFacts] = []
        for row in rows:
            # One end for all of them; what is too late still says so by itself.
            left = timeout if end is None or not found else max(end - time.monotonic(), 0.001)
            found.append(self._native.ask("predict", row, progress, timeout=left))
        empty = np.empty((0, self._info.outputs), np.float32)
        outputs = np.stack([one.outputs for one in found]) if found else empty
        stats = tuple(OnlineStats.of_facts(one) for one in found)
        return Outputs(outputs[0] if is_one else outputs, stats)


class HybridClient(_HybridClient, Movable):
    """A connection to a server of hybrid inference; made by :func:`hushtable.connect`.

    Threads may share a client. A precompute is made ahead of time by :meth:`precompute`, and used
    up by one prediction. A copy connects anew, without precomputes; while this client is open,
    there is none of one with a ``store``, which one client at a time may use.
    """

    def precompute(
        self, count: int = 1, *, progress: Steps | None = None, timeout: float | None = None
    ) -> PrecomputeStats:
        """Makes precomputes, and keeps this client's halves; the server keeps its own.

        Lost connections are made again, and what the server lost is begun again.

        Args:
            count: how many.
            progress: called with (steps made, all of them).
            timeout: seconds that all of it may take, in the place of the client's own limits.

        Raises:
            ServerBusy: the server keeps as many as it may.
            PrecomputeError: no room for this client's halves, or a folder that cannot be used.
            ServerUnavailable, ServerTimeout, ServerError: a server that does not go on.
        """
        made = self._native.ask("precompute", count, progress, timeout=timeout)
        return PrecomputeStats.of_facts(made)

    def predict(
        self,
        inputs: npt.ArrayLike,
        *,
        progress: Steps | None = None,
        timeout: float | None = None,
    ) -> Outputs:
        """Has the network computed; the server learns neither inputs nor outputs.

        Each input uses up a precompute. Where there is none, one is made first.

        Args:
            inputs: numbers ``[planes, rows, columns]`` (:attr:`NetworkInfo.input`), or several.
            progress: called with (steps made, all of them) where a precompute is made.
            timeout: seconds that this call may take with all that is done for it, precomputes too,
                in the place of the client's own.

        Raises:
            BadFeatures: other shapes, NaN, numbers beyond what the network was compiled for;
                nothing of that input was sent, and no precompute used.
            PlanMismatch: the server computes by another plan by now: connect again.
            PrecomputeError: this client's half of a precompute that was just made is lost or
                damaged. An older one is dropped, and the next is taken.
            ServerBusy, ServerUnavailable, ServerTimeout, ServerError: a server that did not answer.
        """
        return self._predict(inputs, progress, timeout)


class AsyncHybridClient(_HybridClient, Unmovable):
    """:class:`HybridClient` for asyncio; made by :func:`hushtable.connect_async`."""

    async def precompute(
        self, count: int = 1, *, progress: Steps | None = None, timeout: float | None = None
    ) -> PrecomputeStats:
        """As :meth:`HybridClient.precompute`."""
        made = await asyncio.to_thread(
            self._native.ask, "precompute", count, progress, timeout=timeout
        )
        return PrecomputeStats.of_facts(made)

    async def predict(
        self,
        inputs: npt.ArrayLike,
        *,
        progress: Steps | None = None,
        timeout: float | None = None,
    ) -> Outputs:
        """As :meth:`HybridClient.predict`."""
        return await asyncio.to_thread(self._predict, inputs, progress, timeout)


def _describe(model: str | os.PathLike[str], plan: str | None) -> HybridPlanInfo:
    return HybridPlanInfo.of_json(_native.hybrid_describe(Path(model), plan_of(model, plan, None)))


HYBRID = Computing(
    Kind("hybrid", HybridClient, AsyncHybridClient), NetworkInfo, _describe, "by hybrid inference"
)
