"""Clients of a model that is computed on encrypted features."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Literal, overload

import numpy.typing as npt

from .. import _native
from .._closing import AsyncClosing, Closing
from ..client import Tls
from ..client.table import Done, Servers, awaited, urls_of
from ..errors import ConfigError
from ._hybrid import Garbler, Parallel
from ._hybrid_client import (
    STORE_BYTES_MAX,
    AsyncHybridClient,
    HybridClient,
    hybrid_options,
    trust_options,
)
from ._types import ModelInfo, Predictions, features

#: Told the bytes of keys that are uploaded, and all of them.
Progress = Callable[[int, int], None]
#: Keys that a client makes and uploads by default, at most.
KEY_BYTES_MAX = 4 << 30


class _Client:
    """What both clients know."""

    def __init__(self, native: _native.InferClient, url: str) -> None:
        self._native = native
        self._url = url
        self._info = ModelInfo.of_facts(native.info())

    @property
    def info(self) -> ModelInfo:
        """What the server computes, and what it costs: bytes of keys before any is sent."""
        return self._info

    def close(self) -> None:
        """Closes the connection. Predictions that are under way finish; new ones are refused."""
        self._native.close()

    def __repr__(self) -> str:
        info = self._info
        return (
            f"{type(self).__name__}({self._url}: model {info.name!r}, keys of {info.key_bytes:,} B)"
        )


class Client(_Client, Closing):
    """A connection to a server of encrypted inference; made by :func:`connect`.

    Threads may share a client. After ``os.fork`` both processes may go on using it: the child
    connects anew, with keys of its own, at its first prediction.
    """

    def upload(self) -> int:
        """Brings the keys to the server, where they are not there yet; the bytes sent.

        :meth:`predict` does so by itself. Called before, the first prediction is as fast as others.

        Raises:
            ServerError: a server without room for the keys.
            ServerBusy, ServerUnavailable, ServerTimeout: a server that does not take them.
        """
        return self._native.upload()

    def predict(self, dense: npt.ArrayLike, sparse: npt.ArrayLike | None = None) -> Predictions:
        """Has the model computed for some users; the server learns neither features nor answers.

        Args:
            dense: numbers ``[users, info.dense]``, or ``[info.dense]`` of one user.
            sparse: rows of the model's tables, ``[users, len(info.rows)]``; none without tables.

        Raises:
            BadFeatures: other shapes, NaN or infinity; nothing of that user was sent.
            IdOutOfRange: an index that is no row of its table; nothing of that user was sent.
            PlanMismatch: the server computes by another plan by now: connect again.
            ServerBusy, ServerUnavailable, ServerTimeout, ServerError: a server that did not answer.
        """
        return Predictions.of_facts(self._native.predict(*features(dense, sparse, self._info)))


class AsyncClient(_Client, AsyncClosing):
    """:class:`Client` for asyncio; made by :func:`connect_async`."""

    async def upload(self) -> int:
        """As :meth:`Client.upload`."""
        return await asyncio.to_thread(self._native.upload)

    async def predict(
        self, dense: npt.ArrayLike, sparse: npt.ArrayLike | None = None
    ) -> Predictions:
        """As :meth:`Client.predict`."""
        numbers, rows = features(dense, sparse, self._info)

        def start(done: Done[_native.PredictionFacts]) -> _native.Call:
            return self._native.start_predict(numbers, rows, done)

        return Predictions.of_facts(await awaited(start))


@overload
def connect(
    address: Servers,
    *,
    scheme: Literal["hybrid"],
    tls: Tls | None = None,
    version: str | None = None,
    timeout: float = 60.0,
    connect_timeout: float = 5.0,
    insecure: bool = False,
    garbler: Garbler = "server",
    parallel: Parallel = "layer",
    steps: int = 8,
    retry_timeout: float = 60.0,
    up_mbps: float | None = None,
    down_mbps: float | None = None,
    store: str | os.PathLike[str] | None = None,
    store_key: str | os.PathLike[str] | None = None,
    store_bytes_max: int = STORE_BYTES_MAX,
) -> HybridClient: ...


@overload
def connect(
    address: Servers,
    *,
    scheme: Literal["ckks"] | None = None,
    tls: Tls | None = None,
    version: str | None = None,
    timeout: float = 60.0,
    connect_timeout: float = 5.0,
    upload_timeout: float = 600.0,
    key_bytes_max: int = KEY_BYTES_MAX,
    insecure: bool = False,
    progress: Progress | None = None,
    garbler: Garbler = "server",
    parallel: Parallel = "layer",
    steps: int = 8,
    retry_timeout: float = 60.0,
    up_mbps: float | None = None,
    down_mbps: float | None = None,
    store: str | os.PathLike[str] | None = None,
    store_key: str | os.PathLike[str] | None = None,
    store_bytes_max: int = STORE_BYTES_MAX,
) -> Client: ...


def connect(
    address: Servers,
    *,
    scheme: Literal["ckks", "hybrid"] | None = None,
    tls: Tls | None = None,
    version: str | None = None,
    timeout: float = 60.0,
    connect_timeout: float = 5.0,
    upload_timeout: float = 600.0,
    key_bytes_max: int = KEY_BYTES_MAX,
    insecure: bool = False,
    progress: Progress | None = None,
    garbler: Garbler = "server",
    parallel: Parallel = "layer",
    steps: int = 8,
    retry_timeout: float = 60.0,
    up_mbps: float | None = None,
    down_mbps: float | None = None,
    store: str | os.PathLike[str] | None = None,
    store_key: str | os.PathLike[str] | None = None,
    store_bytes_max: int = STORE_BYTES_MAX,
) -> Client | HybridClient:
    """Connects to a server of encrypted or hybrid inference, and checks what it announces.

    Nothing secret is sent yet: the keys go up with the first prediction, or by
    :meth:`Client.upload`. Their size is :attr:`ModelInfo.key_bytes`. At a server of hybrid
    inference a :class:`HybridClient` comes back (type checkers want ``scheme="hybrid"``).

    Args:
        address: URL of the server, ``https://host:port``; ``http://`` only on this machine. Or a
            list: servers of one operator with the same model. The first that can be asked is, and
            the next where it drains or is out of reach: it gets the keys then.
        scheme: ``ckks`` or ``hybrid``; what the server offers by default.
        tls: the authority's PEM file, True for the authorities that this machine trusts, or a
            :class:`hushtable.TlsConfig`; needed for ``https://``.
        version: the only version of the model to ask, in hex.
        timeout: seconds that one query may take, retries at a busy server included; of hybrid
            inference, that one call may take, and that the server may be silent.
        connect_timeout: seconds that one connection may take.
        upload_timeout: seconds that the upload of the keys may take.
        key_bytes_max: the largest keys to make and upload.
        insecure: allow ``http://`` to other machines, where something else encrypts the way.
        progress: called with (bytes of keys uploaded, all of them) during an upload.
        garbler: hybrid: who garbles, ``client`` or ``server``. Who does keeps little of a
            precompute, and the other keeps the circuits.
        parallel: hybrid: how precomputes are made: all layers of one at once (``layer``), step by
            step (``sequential``), or several precomputes at once (``request``).
        steps: hybrid: steps, or precomputes, that are under way at once.
        retry_timeout: hybrid: seconds for which a lost call of a precompute is made again.
        up_mbps: hybrid: megabits a second to the server, at most.
        down_mbps: hybrid: megabits a second from the server, at most.
        store: hybrid: folder where this client's halves of precomputes are kept; memory by default.
        store_key: hybrid: the file of the key that the folder is sealed with; ``key`` in it.
        store_bytes_max: hybrid: most bytes of this client's halves.

    Raises:
        ConfigError: a URL, file or option that cannot work; larger keys than ``key_bytes_max``.
        VersionMismatch: the server has another version than ``version``.
        ProtocolError: a server of another kind, or one that announces what cannot be.
        PrecomputeError: a folder that cannot be used.
        TlsError, ServerUnavailable, ServerTimeout: a server that cannot be reached.
    """
    given, urls = locals(), urls_of("address", address)
    if _is_hybrid(urls, given):
        return HybridClient(_native.HybridClient(urls, **hybrid_options(given)), " or ".join(urls))
    return Client(_native.InferClient(urls, **_options(given)), " or ".join(urls))


async def connect_async(
    address: Servers,
    *,
    scheme: Literal["ckks", "hybrid"] | None = None,
    tls: Tls | None = None,
    version: str | None = None,
    timeout: float = 60.0,
    connect_timeout: float = 5.0,
    upload_timeout: float = 600.0,
    key_bytes_max: int = KEY_BYTES_MAX,
    insecure: bool = False,
    progress: Progress | None = None,
    garbler: Garbler = "server",
    parallel: Parallel = "layer",
    steps: int = 8,
    retry_timeout: float = 60.0,
    up_mbps: float | None = None,
    down_mbps: float | None = None,
    store: str | os.PathLike[str] | None = None,
    store_key: str | os.PathLike[str] | None = None,
    store_bytes_max: int = STORE_BYTES_MAX,
) -> Any:
    """:func:`connect` for asyncio; arguments and errors are the same.

    An :class:`AsyncClient` comes back, or an :class:`AsyncHybridClient`.
    """
    given, urls = locals(), urls_of("address", address)
    if await asyncio.to_thread(_is_hybrid, urls, given):
        options = hybrid_options(given)
        of_hybrid = await asyncio.to_thread(_native.HybridClient, urls, **options)
        return AsyncHybridClient(of_hybrid, " or ".join(urls))
    native = await asyncio.to_thread(_native.InferClient, urls, **_options(given))
    return AsyncClient(native, " or ".join(urls))


def _is_hybrid(urls: list[str], given: dict[str, Any]) -> bool:
    scheme = given["scheme"]
    if scheme not in (None, "ckks", "hybrid"):
        raise ConfigError(f"scheme must be ckks or hybrid, not {scheme!r}")
    if scheme is None:
        return _native.server_is_hybrid(urls, **trust_options(given))
    return bool(scheme == "hybrid")


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """What the native client takes, of the arguments of :func:`connect`."""
    return trust_options(given) | {
        "upload_seconds": given["upload_timeout"],
        "key_bytes_max": given["key_bytes_max"],
        "version": given["version"],
        "progress": given["progress"],
    }
