"""Clients of one table."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

from .. import _native
from .._asked import AskedBags
from .._bags import FloatArray
from .._ids import Ids, default_max_ids, flatten_ids
from .._types import Bag, LayoutInfo, LookupStats, OnionInfo, TableInfo
from ..errors import ConfigError, NoLayout
from . import logs
from .options import check_max_ids
from .reach import BaseClient, Kind, Movable, Reach, Unmovable, awaited
from .spans import CallSpan


class _Base(BaseClient):
    """What both clients know: one table."""

    def __init__(self, native: _native.Client, reach: Reach) -> None:
        super().__init__(native, reach)
        self._layout: LayoutInfo | None = None
        self._version = ""
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
            facts = self._native.ask("layout") if self._onion is None else None
            self._layout = None if facts is None else LayoutInfo.of_facts(facts)
        return self._layout

    def _refresh_info(self) -> None:
        served: _native.ServedFacts = self._native.info()
        self._info = info = TableInfo.of_facts(served.table)
        known, self._version = self._version, info.version
        if known not in ("", info.version):
            logs.changed(self._reach.urls, info.name, known, info.version)
        self._keys_per_request_max = served.keys_per_request_max
        self._onion = None if served.onion is None else OnionInfo.of_facts(served.onion)

    def _asked(self, bags: Sequence[Ids]) -> AskedBags:
        asked = AskedBags.of(bags)
        if self._onion is not None:
            raise NoLayout(
                "a single server answers no bags: layouts are for two servers; look the rows up by "
                "lookup()"
            )
        return asked

    def _shaped(self, rows: FloatArray, shape: tuple[int, ...]) -> FloatArray:
        # The table may have changed under the lookup, even its dim. (Another thread may have
        # closed the client meanwhile: then what is known stays.)
        with contextlib.suppress(ConfigError):
            self._refresh_info()
        return rows.reshape(*shape, self._info.dim)

    def _bags(self, found: _native.BagsRows, asked: AskedBags) -> list[Bag]:
        stats = LookupStats.of_costs(found.kept.size, found.keys, found.costs)
        rows = self._shaped(found.values, (found.kept.size,))
        return asked.split(rows, found.kept, found.dropped, stats)

    def __repr__(self) -> str:
        info = self._info
        return (
            f"{type(self).__name__}({self._reach.urls}: "
            f"{info.name!r}, {info.rows} rows x {info.dim} {info.dtype})"
        )

    def _bound(self, max_ids: int | None, count: int) -> int:
        bound = check_max_ids(max_ids) or self._reach.options.max_ids
        return default_max_ids(count) if bound is None else bound


class Client(_Base, Movable):
    """A connection to two servers that hold one table, or to one; made by :func:`connect`.

    Threads may share a client. After ``os.fork`` both processes may go on using it: the child
    connects anew at its first lookup, to a single server with a secret and keys of its own.

    A client that is copied or pickled (``copy.deepcopy``, ``torch.save``, a ``DataLoader`` that
    spawns its workers) connects anew where it arrives: to the same URLs, holding the servers to the
    same version and the same TLS files, which must be there. Neither keys nor secrets travel, but
    the files' paths.
    """

    def __init__(self, native: _native.Client, reach: Reach) -> None:
        super().__init__(native, reach)
        self._of_thread = threading.local()

    def lookup(
        self, ids: Ids, max_ids: int | None = None, *, timeout: float | None = None
    ) -> FloatArray:
        """Fetches rows without any server learning which.

        One call is one round trip to each server, at the same time, whatever the number of ids.
        The ids are padded with dummies to ``max_ids`` keys (encrypted queries, to a single
        server), so that a server sees ``max_ids`` and nothing else: neither which ids, nor how
        many, nor whether some are the same. To a single server the first call uploads the client's
        keys, and so does one that finds them gone.

        Where ``max_ids`` is given neither here nor in :class:`ClientOptions`, the ids are padded to
        the next power of two (one key at least). The servers then learn the logarithm, rounded up,
        of how many ids there were. If that number says something about a user, choose ``max_ids``.

        Args:
            ids: integers of any shape ``[*]``: an array, a (nested) list, one integer, a tensor.
            max_ids: keys to send. What it costs grows with it, used or not.
            timeout: seconds that this call may take with all that is done for it: retries, other
                servers, new connections, an upload of keys. Default: the client's
                (:class:`ClientOptions`).

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
        return self.lookup_with_stats(ids, max_ids, timeout=timeout)[0]

    def lookup_with_stats(
        self, ids: Ids, max_ids: int | None = None, *, timeout: float | None = None
    ) -> tuple[FloatArray, LookupStats]:
        """:meth:`lookup`, with what it cost."""
        flat, shape = flatten_ids(ids)
        bound = self._bound(max_ids, flat.size)
        with CallSpan("lookup", table=self._info.name, max_ids=bound) as span:
            found: _native.Rows = self._native.ask("lookup", flat, bound, timeout=timeout)
            stats = LookupStats.of_costs(flat.size, bound, found.costs)
            span.note(stats)
        self._of_thread.stats = stats
        return self._shaped(found.values, shape), stats

    def lookup_bag(self, ids: Ids, *, timeout: float | None = None) -> Bag:
        """Fetches the rows of a whole inference by the table's layout.

        One call is one round trip to each server, at the same time. The layout fixes what is sent:
        :attr:`layout`'s ``keys`` keys, whatever the ids are and however many. A server sees that an
        inference was made and nothing else.

        What that leaves no room for is dropped, by the layout's rule: its row comes back as zeros
        and ``kept`` says so. The servers do not learn whether anything was dropped.

        Args:
            ids: integers of any shape ``[*]``, at most the layout's ``ids_max``; may repeat.
            timeout: as of :meth:`lookup`.

        Raises:
            BadIds: ids that are not integers.
            IdOutOfRange: an id that is no row; nothing was sent.
            TooManyIds: more ids than the layout is made for; nothing was sent.
            NoLayout: the servers' table has no layout, or there is a single server.
            VersionMismatch: the servers have different layouts.
            ServerBusy: a server stayed busy until the timeout.
            ServerUnavailable, ServerTimeout, ServerError: a server that did not answer.
        """
        return self.lookup_bags([ids], timeout=timeout)[0]

    def lookup_bags(self, bags: Sequence[Ids], *, timeout: float | None = None) -> list[Bag]:
        """:meth:`lookup_bag` for several inferences at once.

        All bags travel in one request to each server; where they are more than both servers take
        (256 by default, fewer where one is large), in as few as hold them, one after the other. A
        server sees how many inferences were made and nothing else.

        Args:
            bags: of each inference the ids, integers of any shape ``[*]``, at most the layout's
                ``ids_max``. An empty bag costs as much as any other. Without bags nothing is sent.
            timeout: as of :meth:`lookup`, for all of them.

        Returns:
            each bag's rows, in their order. Their ``stats`` are those of the whole call.

        Raises:
            BadIds, IdOutOfRange, TooManyIds: as :meth:`lookup_bag`, of any of the bags; nothing was
                sent.
            NoLayout, VersionMismatch: as :meth:`lookup_bag`.
            ServerBusy, ServerUnavailable, ServerTimeout, ServerError: a server that did not answer.
        """
        asked = self._asked(bags)
        with CallSpan("lookup_bags", table=self._info.name, bags=len(bags)) as span:
            rows = self._native.ask("lookup_bags", asked.ids, asked.bounds, timeout=timeout)
            found = self._bags(rows, asked)
            if found:
                span.note(found[0].stats)
        if found:
            self._of_thread.stats = found[0].stats
        return found

    @property
    def last_stats(self) -> LookupStats | None:
        """What this thread's last lookup cost; None before the first."""
        return getattr(self._of_thread, "stats", None)


class AsyncClient(_Base, Unmovable):
    """:class:`Client` for asyncio; made by :func:`connect_async`.

    Lookups may run side by side. A cancelled lookup is given up at the servers too. It belongs to
    one process: make another one there.
    """

    async def lookup(
        self, ids: Ids, max_ids: int | None = None, *, timeout: float | None = None
    ) -> FloatArray:
        """As :meth:`Client.lookup`."""
        return (await self.lookup_with_stats(ids, max_ids, timeout=timeout))[0]

    async def lookup_with_stats(
        self, ids: Ids, max_ids: int | None = None, *, timeout: float | None = None
    ) -> tuple[FloatArray, LookupStats]:
        """As :meth:`Client.lookup_with_stats`."""
        flat, shape = flatten_ids(ids)
        bound = self._bound(max_ids, flat.size)
        with CallSpan("lookup", table=self._info.name, max_ids=bound) as span:
            found: _native.Rows = await awaited(
                self._native, "lookup", flat, bound, timeout=timeout
            )
            stats = LookupStats.of_costs(flat.size, bound, found.costs)
            span.note(stats)
        return self._shaped(found.values, shape), stats

    async def lookup_bag(self, ids: Ids, *, timeout: float | None = None) -> Bag:
        """As :meth:`Client.lookup_bag`."""
        return (await self.lookup_bags([ids], timeout=timeout))[0]

    async def lookup_bags(self, bags: Sequence[Ids], *, timeout: float | None = None) -> list[Bag]:
        """As :meth:`Client.lookup_bags`."""
        asked = self._asked(bags)
        with CallSpan("lookup_bags", table=self._info.name, bags=len(bags)) as span:
            rows = await awaited(
                self._native, "lookup_bags", asked.ids, asked.bounds, timeout=timeout
            )
            found = self._bags(rows, asked)
            if found:
                span.note(found[0].stats)
        return found


PAIR = Kind("pair", Client, AsyncClient)
ONION = Kind("onion", Client, AsyncClient)
