"""Private lookups, from two servers or from one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from . import _native
from ._bags import FloatArray
from ._ids import Ids, default_max_ids, flatten_ids
from ._types import Bag, LayoutInfo, LookupStats, OnionInfo, TableInfo
from .errors import ConfigError

#: What a layout may take by default: one with the ids of 2^28 rows.
MAX_LAYOUT_BYTES = 1 << 30
#: The parameter sets that a single server may serve by, unless the caller says otherwise.
PARAMETER_SETS = ("n4096_128",)

__all__ = ["AsyncClient", "Client", "TlsConfig", "connect", "connect_async"]

_Result = TypeVar("_Result")
_Done = Callable[[_Result | None, BaseException | None], None]
_Costs = tuple[int, int, float, float, float, int]
_LookupResult = tuple[FloatArray, _Costs]
_BagResult = tuple[FloatArray, npt.NDArray[np.bool_], int, int, _Costs]


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """How to check the servers, and how to show them who asks.

    Attributes:
        ca: PEM file with the certificate of the authority that the servers' certificates come
            from.
        certificate: PEM file with this client's own certificate, for servers that ask for one.
        key: PEM file with its private key.
        left_name: the name that left's certificate is for, where that is not its URL's host.
        right_name: the same for right.
        server_name: the same for a single server.
    """

    ca: str | os.PathLike[str]
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    left_name: str | None = None
    right_name: str | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("a client certificate needs both: certificate= and key=")


def connect(
    left: str | None = None,
    right: str | None = None,
    *,
    server: str | None = None,
    tls: TlsConfig | str | os.PathLike[str] | None = None,
    max_ids: int | None = None,
    timeout: float = 30.0,
    connect_timeout: float = 5.0,
    prg: str = "aes128",
    parameter_sets: Sequence[str] = PARAMETER_SETS,
    insecure: bool = False,
    max_layout_bytes: int = MAX_LAYOUT_BYTES,
) -> Client:
    """Connects to a left and a right server, or to a single server, and asks what they hold.

    With two servers, privacy rests on them not putting their heads together: have them run by
    parties that do not. Anyone who sees both servers' traffic in the clear sees the ids, hence TLS.

    With one (``server=``), it rests on encryption that the server computes with. The client makes a
    secret, which it keeps, and keys, which the first lookup uploads (:attr:`Client.onion` says how
    many bytes); the server can tell which lookups were made under one set of keys.

    Args:
        left: URL of the left server, ``https://host:port``; ``http://`` only on this machine.
        right: URL of the right server.
        server: URL of a single server (``hushtable serve --scheme onion``), instead of the two.
        tls: the authority's PEM file, or a :class:`TlsConfig`; needed for ``https://``.
        max_ids: default for :meth:`Client.lookup`.
        timeout: seconds that one lookup may take, retries at a busy server included.
        connect_timeout: seconds that one connection may take.
        prg: the generator that two servers' keys use; they accept aes128, chacha20 and chacha12 by
            default.
        parameter_sets: the parameter sets that a single server may serve by. The client takes the
            parameters themselves from its own build and refuses a server that names another set.
            ``ive_paper`` has less than 128 bits of security by the 2024 guidelines.
        insecure: allow ``http://`` to other machines, where something else encrypts the way.
        max_layout_bytes: the largest layout to fetch. Where the table has one, it is fetched now,
            for :meth:`Client.lookup_bag`; 0 for a client that makes plain lookups only. Layouts are
            for two servers.

    Raises:
        ConfigError: a URL, file or option that cannot work.
        SwappedServers: left says it is right, or both say they are the same side.
        VersionMismatch: the servers hold different tables.
        ParametersRefused: a single server of a set that ``parameter_sets`` does not name.
        ProtocolError: a server of the other kind: one of two asked alone, or the reverse; or one
            that announces what cannot be.
        TlsError, ServerUnavailable, ServerTimeout: a server that cannot be reached.
    """
    urls = _Urls.check(left, right, server)
    native = _connect(
        urls, tls, timeout, connect_timeout, prg, parameter_sets, insecure, max_layout_bytes
    )
    return Client(native, urls=urls, max_ids=max_ids)


async def connect_async(
    left: str | None = None,
    right: str | None = None,
    *,
    server: str | None = None,
    tls: TlsConfig | str | os.PathLike[str] | None = None,
    max_ids: int | None = None,
    timeout: float = 30.0,
    connect_timeout: float = 5.0,
    prg: str = "aes128",
    parameter_sets: Sequence[str] = PARAMETER_SETS,
    insecure: bool = False,
    max_layout_bytes: int = MAX_LAYOUT_BYTES,
) -> AsyncClient:
    """:func:`connect` for asyncio; arguments and errors are the same."""
    urls = _Urls.check(left, right, server)
    native = await asyncio.to_thread(
        _connect,
        urls,
        tls,
        timeout,
        connect_timeout,
        prg,
        parameter_sets,
        insecure,
        max_layout_bytes,
    )
    return AsyncClient(native, urls=urls, max_ids=max_ids)


@dataclass(frozen=True, slots=True)
class _Urls:
    """Of two servers, or of one: then there is no second."""

    first: str
    second: str | None

    @classmethod
    def check(cls, left: str | None, right: str | None, server: str | None) -> Self:
        if server is not None and left is None and right is None:
            return cls(server, None)
        if server is None and left is not None and right is not None:
            return cls(left, right)
        raise ConfigError(
            "which servers? give left= and right=, or server= alone for a single server"
        )

    def __str__(self) -> str:
        return self.first if self.second is None else f"{self.first}, {self.second}"


class _Base:
    """What both clients know: servers, one table, a default padding."""

    def __init__(self, native: _native.Client, *, urls: _Urls, max_ids: int | None) -> None:
        self._native = native
        self._urls = urls
        self._max_ids = _check_max_ids(max_ids)
        self._layout: LayoutInfo | None = None
        self._refresh_info()

    @property
    def info(self) -> TableInfo:
        """The table at the servers, as of the last lookup, or as of the close."""
        return self._info

    @property
    def keys_per_request_max(self) -> int:
        """The largest ``max_ids`` that the servers take in one lookup."""
        return self._keys_per_request_max

    @property
    def onion(self) -> OnionInfo | None:
        """What a lookup from a single server costs; None with two."""
        return self._onion

    @property
    def layout(self) -> LayoutInfo | None:
        """The layout that :meth:`lookup_bag` asks by, as of the last one; None without.

        Raises:
            VersionMismatch: the servers have different layouts.
            LayoutError: the layout is larger than ``max_layout_bytes``.
        """
        with contextlib.suppress(ConfigError):  # closed: what was known stays
            facts = self._native.layout()
            self._layout = None if facts is None else LayoutInfo.of_facts(*facts)
        return self._layout

    def _refresh_info(self) -> None:
        facts, self._keys_per_request_max = self._native.facts()
        self._info = TableInfo(*facts)
        onion = self._native.onion()
        self._onion = None if onion is None else OnionInfo(*onion)

    def _shaped(self, rows: FloatArray, shape: tuple[int, ...]) -> FloatArray:
        # The table may have changed under the lookup, even its dim. (Another thread may have
        # closed the client meanwhile: then what is known stays.)
        with contextlib.suppress(ConfigError):
            self._refresh_info()
        return rows.reshape(*shape, self._info.dim)

    def _bag(self, result: _BagResult, shape: tuple[int, ...]) -> Bag:
        rows, kept, dropped, keys, costs = result
        stats = LookupStats(kept.size, keys, *costs)
        return Bag(self._shaped(rows, shape), kept.reshape(shape), dropped, stats)

    def close(self) -> None:
        """Closes the connections. Lookups that are under way finish; new ones are refused."""
        self._native.close()

    def __repr__(self) -> str:
        info = self._info
        return (
            f"{type(self).__name__}({self._urls}: "
            f"{info.name!r}, {info.rows} rows x {info.dim} {info.dtype})"
        )

    def _bound(self, max_ids: int | None, count: int) -> int:
        bound = _check_max_ids(max_ids) or self._max_ids
        return default_max_ids(count) if bound is None else bound


class Client(_Base):
    """A connection to two servers that hold one table, or to one; made by :func:`connect`.

    Threads may share a client. After ``os.fork`` both processes may go on using it: the child
    connects anew at its first lookup, to a single server with a secret and keys of its own.
    """

    def __init__(self, native: _native.Client, *, urls: _Urls, max_ids: int | None) -> None:
        super().__init__(native, urls=urls, max_ids=max_ids)
        self._of_thread = threading.local()

    def lookup(self, ids: Ids, max_ids: int | None = None) -> FloatArray:
        """Fetches rows without any server learning which.

        One call is one round trip to each server, at the same time, whatever the number of ids.
        The ids are padded with dummies to ``max_ids`` keys (encrypted queries, to a single
        server), so that a server sees ``max_ids`` and nothing else: neither which ids, nor how
        many, nor whether some are the same. To a single server the first call uploads the client's
        keys, and so does one that finds them gone.

        Where ``max_ids`` is given neither here nor to :func:`connect`, the ids are padded to the
        next power of two (one key at least). The servers then learn the logarithm, rounded up, of
        how many ids there were. If that number says something about a user, choose ``max_ids``.

        Args:
            ids: integers of any shape ``[*]``: an array, a (nested) list, one integer, a tensor.
            max_ids: keys to send. What it costs grows with it, used or not.

        Returns:
            float32 ``[*, dim]``: the rows, in the shape of the ids.

        Raises:
            BadIds: ids that are not integers.
            IdOutOfRange: an id that is no row; nothing was sent.
            TooManyIds: more ids than ``max_ids``, or more than :attr:`keys_per_request_max`;
                nothing was sent.
            ServerBusy: a server stayed busy until the timeout.
            ServerUnavailable, ServerTimeout, ServerError: a server that did not answer.
            VersionMismatch: the servers hold different versions of the table by now.
            UnknownKeys: a single server dropped this client's keys as soon as it had them.
        """
        return self.lookup_with_stats(ids, max_ids)[0]

    def lookup_with_stats(
        self, ids: Ids, max_ids: int | None = None
    ) -> tuple[FloatArray, LookupStats]:
        """:meth:`lookup`, with what it cost."""
        flat, shape = flatten_ids(ids)
        bound = self._bound(max_ids, flat.size)
        rows, costs = self._native.lookup(flat, bound)
        stats = LookupStats(flat.size, bound, *costs)
        self._of_thread.stats = stats
        return self._shaped(rows, shape), stats

    def lookup_bag(self, ids: Ids) -> Bag:
        """Fetches the rows of a whole inference by the table's layout.

        One call is one round trip to each server, at the same time. The layout fixes what is sent:
        :attr:`layout`'s ``keys`` keys, whatever the ids are and however many. A server sees that an
        inference was made and nothing else.

        What that leaves no room for is dropped, by the layout's rule: its row comes back as zeros
        and ``kept`` says so. The servers do not learn whether anything was dropped.

        Args:
            ids: integers of any shape ``[*]``, at most the layout's ``ids_max``; may repeat.

        Raises:
            BadIds: ids that are not integers.
            IdOutOfRange: an id that is no row; nothing was sent.
            TooManyIds: more ids than the layout is made for; nothing was sent.
            NoLayout: the servers' table has no layout, or there is a single server.
            VersionMismatch: the servers have different layouts.
            ServerBusy: a server stayed busy until the timeout.
            ServerUnavailable, ServerTimeout, ServerError: a server that did not answer.
        """
        flat, shape = flatten_ids(ids)
        bag = self._bag(self._native.lookup_bag(flat), shape)
        self._of_thread.stats = bag.stats
        return bag

    @property
    def last_stats(self) -> LookupStats | None:
        """What this thread's last lookup cost; None before the first."""
        return getattr(self._of_thread, "stats", None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClient(_Base):
    """:class:`Client` for asyncio; made by :func:`connect_async`.

    Lookups may run side by side. A cancelled lookup is given up at the servers too.
    """

    async def lookup(self, ids: Ids, max_ids: int | None = None) -> FloatArray:
        """As :meth:`Client.lookup`."""
        return (await self.lookup_with_stats(ids, max_ids))[0]

    async def lookup_with_stats(
        self, ids: Ids, max_ids: int | None = None
    ) -> tuple[FloatArray, LookupStats]:
        """As :meth:`Client.lookup_with_stats`."""
        flat, shape = flatten_ids(ids)
        bound = self._bound(max_ids, flat.size)

        def start(done: _Done[_LookupResult]) -> _native.Call:
            return self._native.start_lookup(flat, bound, done)

        rows, costs = await _awaited(start)
        return self._shaped(rows, shape), LookupStats(flat.size, bound, *costs)

    async def lookup_bag(self, ids: Ids) -> Bag:
        """As :meth:`Client.lookup_bag`."""
        flat, shape = flatten_ids(ids)

        def start(done: _Done[_BagResult]) -> _native.Call:
            return self._native.start_bag(flat, done)

        return self._bag(await _awaited(start), shape)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def _awaited(start: Callable[[_Done[_Result]], _native.Call]) -> _Result:
    """The result of a native call; cancelled, the call is given up."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def deliver(result: _Result | None, error: BaseException | None) -> None:
        if future.done():  # cancelled meanwhile
            return
        if error is not None or result is None:
            future.set_exception(error or RuntimeError("a lookup ended without a result"))
        else:
            future.set_result(result)

    def done(result: _Result | None, error: BaseException | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, result, error)

    call = start(done)
    try:
        return await future
    except asyncio.CancelledError:
        call.cancel()
        raise


def _connect(
    urls: _Urls,
    tls: TlsConfig | str | os.PathLike[str] | None,
    timeout: float,
    connect_timeout: float,
    prg: str,
    parameter_sets: Sequence[str],
    insecure: bool,
    max_layout_bytes: int,
) -> _native.Client:
    if max_layout_bytes < 0:
        raise ConfigError(f"max_layout_bytes must be at least 0, not {max_layout_bytes}")
    if isinstance(parameter_sets, str) or not parameter_sets:
        raise ConfigError(
            f"parameter_sets must list one or more names, as ('n4096_128',): {parameter_sets!r}"
        )
    if tls is not None and not isinstance(tls, TlsConfig):
        tls = TlsConfig(ca=tls)
    certificate = None
    if tls is not None and tls.certificate is not None and tls.key is not None:
        certificate = (Path(tls.certificate), Path(tls.key))
    ca = None if tls is None else Path(tls.ca)
    if urls.second is None:
        return _native.Client.connect_one(
            urls.first,
            ca=ca,
            certificate=certificate,
            name=None if tls is None else tls.server_name,
            parameter_sets=list(parameter_sets),
            insecure=insecure,
            connect_seconds=connect_timeout,
            seconds=timeout,
        )
    return _native.Client.connect(
        urls.first,
        urls.second,
        ca=ca,
        certificate=certificate,
        names=(None, None) if tls is None else (tls.left_name, tls.right_name),
        prg=prg,
        insecure=insecure,
        connect_seconds=connect_timeout,
        seconds=timeout,
        layout_bytes_max=max_layout_bytes,
    )


def _check_max_ids(max_ids: int | None) -> int | None:
    if max_ids is not None and max_ids < 1:
        raise ConfigError(f"max_ids must be at least 1, not {max_ids}")
    return max_ids
