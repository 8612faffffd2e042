"""Clients of a network on inputs that its server never sees."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native
from .._closing import AsyncClosing, Closing
from ..client import TlsConfig
from ._hybrid import (
    NetworkInfo,
    OnlineStats,
    Outputs,
    PrecomputeStats,
    client_garbles,
    images,
)

#: Told the steps of precomputes that were made, and all of them.
Steps = Callable[[int, int], None]
#: What a client keeps of precomputes by default, at most.
STORE_BYTES_MAX = 64 << 30


class _HybridClient:
    """What both clients know."""

    def __init__(self, native: _native.HybridClient, url: str) -> None:
        self._native = native
        self._url = url
        self._info = NetworkInfo.of_facts(native.info())

    @property
    def info(self) -> NetworkInfo:
        """What the server computes, and what is kept of a precompute."""
        return self._info

    @property
    def precomputes(self) -> int:
        """Precomputes that can be used."""
        return self._native.precomputes()[0]

    def close(self) -> None:
        """Closes the connection. Predictions that are under way finish; new ones are refused."""
        self._native.close()

    def __repr__(self) -> str:
        info = self._info
        return f"{type(self).__name__}({self._url}: model {info.name!r}, input {info.input})"

    def _predict(self, inputs: npt.ArrayLike, progress: Steps | None) -> Outputs:
        rows, is_one = images(inputs, self._info)
        found = [self._native.predict(row, progress) for row in rows]
        empty = np.empty((0, self._info.outputs), np.float32)
        outputs = np.stack([one.outputs for one in found]) if found else empty
        stats = tuple(OnlineStats.of_facts(one) for one in found)
        return Outputs(outputs[0] if is_one else outputs, stats)


class HybridClient(_HybridClient, Closing):
    """A connection to a server of hybrid inference; made by :func:`hushtable.infer.connect`.

    Threads may share a client. A precompute is made ahead of time by :meth:`precompute`, and used
    up by one prediction.
    """

    def precompute(self, count: int = 1, *, progress: Steps | None = None) -> PrecomputeStats:
        """Makes precomputes, and keeps this client's halves; the server keeps its own.

        Lost connections are made again, and what the server lost is begun again.

        Args:
            count: how many.
            progress: called with (steps made, all of them).

        Raises:
            ServerBusy: the server keeps as many as it may.
            PrecomputeError: no room for this client's halves, or a folder that cannot be used.
            ServerUnavailable, ServerTimeout, ServerError: a server that does not go on.
        """
        return PrecomputeStats.of_facts(self._native.precompute(count, progress))

    def predict(self, inputs: npt.ArrayLike, *, progress: Steps | None = None) -> Outputs:
        """Has the network computed; the server learns neither inputs nor outputs.

        Each input uses up a precompute. Where there is none, one is made first.

        Args:
            inputs: numbers ``[planes, rows, columns]`` (:attr:`NetworkInfo.input`), or several.
            progress: called with (steps made, all of them) where a precompute is made.

        Raises:
            BadFeatures: other shapes, NaN, numbers beyond what the network was compiled for;
                nothing of that input was sent, and no precompute used.
            PlanMismatch: the server computes by another plan by now: connect again.
            PrecomputeError: this client's half is damaged; it is dropped, call again.
            ServerBusy, ServerUnavailable, ServerTimeout, ServerError: a server that did not answer.
        """
        return self._predict(inputs, progress)


class AsyncHybridClient(_HybridClient, AsyncClosing):
    """:class:`HybridClient` for asyncio; made by :func:`hushtable.infer.connect_async`."""

    async def precompute(self, count: int = 1, *, progress: Steps | None = None) -> PrecomputeStats:
        """As :meth:`HybridClient.precompute`."""
        made = await asyncio.to_thread(self._native.precompute, count, progress)
        return PrecomputeStats.of_facts(made)

    async def predict(self, inputs: npt.ArrayLike, *, progress: Steps | None = None) -> Outputs:
        """As :meth:`HybridClient.predict`."""
        return await asyncio.to_thread(self._predict, inputs, progress)


def trust_options(given: dict[str, Any]) -> dict[str, Any]:
    """How a native client checks a server, of the arguments of :func:`hushtable.infer.connect`."""
    checked = TlsConfig.of(given["tls"])
    certificate = None
    if checked is not None and checked.certificate is not None and checked.key is not None:
        certificate = (Path(checked.certificate), Path(checked.key))
    return {
        "ca": None if checked is None else checked.authorities,
        "certificate": certificate,
        "name": None if checked is None else checked.server_name,
        "insecure": given["insecure"],
        "connect_seconds": given["connect_timeout"],
        "seconds": given["timeout"],
    }


def hybrid_options(given: dict[str, Any]) -> dict[str, Any]:
    """What the native client takes, of the arguments of :func:`hushtable.infer.connect`."""

    def path(value: str | os.PathLike[str] | None) -> Path | None:
        return None if value is None else Path(value)

    return trust_options(given) | {
        "retry_seconds": given["retry_timeout"],
        "version": given["version"],
        "client_garbles": client_garbles(given["garbler"]),
        "parallel": given["parallel"],
        "steps_max": given["steps"],
        "up_mbps": given["up_mbps"],
        "down_mbps": given["down_mbps"],
        "store": path(given["store"]),
        "store_key": path(given["store_key"]),
        "store_bytes_max": given["store_bytes_max"],
    }
