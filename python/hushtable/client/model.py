"""Clients of a model: many tables behind one address."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native
from .._bags import FloatArray
from .._ids import Ids, flatten_ids
from .._types import Bag, FeatureInfo, LookupStats, ModelInfo, TableInfo
from ..errors import BadIds, ConfigError, UnknownFeature
from . import logs
from .options import check_max_ids
from .reach import BaseClient, Kind, Movable, Reach, Unmovable, awaited
from .spans import CallSpan

_Asked = list[tuple[str, npt.NDArray[np.uint64]]]
_Shapes = list[tuple[str, tuple[int, ...]]]


class _Model(BaseClient):
    """What both clients of a model know."""

    def __init__(self, native: _native.Client, reach: Reach) -> None:
        super().__init__(native, reach)
        self._info = ModelInfo.of_facts(native.info())

    @property
    def info(self) -> ModelInfo:
        """The model at the servers, as of the last lookup, or as of the close."""
        return self._info

    @property
    def features(self) -> Mapping[str, FeatureInfo]:
        """The model's features by name, in the model's order."""
        return MappingProxyType({feature.name: feature for feature in self._info.features})

    def __repr__(self) -> str:
        info = self._info
        return (
            f"{type(self).__name__}({self._reach.urls}: model {info.name!r}, {len(info.features)} "
            f"features of {len(info.tables)} tables)"
        )

    def _feature(self, name: str) -> FeatureInfo:
        features = self.features
        if name not in features:
            names = list(features)
            listed = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
            raise UnknownFeature(
                f"model {self._info.name!r} has no feature {name!r}: it has {listed}", feature=name
            )
        return features[name]

    def _flattened(self, asked: Mapping[str, Ids]) -> tuple[_Asked, _Shapes]:
        """The ids as the native module takes them, and the shapes that they came in.

        Raises:
            BadIds: ids that are not by the features' names.
        """
        if not isinstance(asked, Mapping):
            raise BadIds(
                f"a model is asked for ids by its features' names, as {{name: ids}}, not for a "
                f"{type(asked).__name__}"
            )
        flat: _Asked = []
        shapes: _Shapes = []
        for name, ids in asked.items():
            array, shape = flatten_ids(ids)
            flat.append((name, array))
            shapes.append((name, shape))
        return flat, shapes

    def _bags(
        self, found: _native.ModelRows, shapes: _Shapes
    ) -> tuple[dict[str, Bag], LookupStats]:
        if found.costs.version != self._info.version:
            self._refresh()
        ids = sum(rows.kept.size for rows in found.features)
        stats = LookupStats.of_costs(ids, found.max_ids, found.costs)
        bags = {}
        for rows, (name, shape) in zip(found.features, shapes, strict=True):
            values = rows.values.reshape(*shape, rows.values.shape[1])
            bags[name] = Bag(values, rows.kept.reshape(shape), rows.dropped, stats)
        return bags, stats

    def _refresh(self) -> None:
        with contextlib.suppress(ConfigError):  # closed: what was known stays
            known, self._info = self._info, ModelInfo.of_facts(self._native.info())
            if known.version != self._info.version:
                logs.changed(self._reach.urls, known.name, known.version, self._info.version)


def _rows(bags: dict[str, Bag]) -> dict[str, FloatArray]:
    return {name: bag.rows for name, bag in bags.items()}


class ModelClient(_Model, Movable):
    """A connection to two servers that hold a model; made by :func:`connect` with ``model=``.

    Threads may share a client. After ``os.fork`` both processes may go on using it: the child
    connects anew at its first lookup. Copied or pickled, it connects anew as a :class:`Client`
    does.
    """

    def __init__(self, native: _native.Client, reach: Reach) -> None:
        super().__init__(native, reach)
        self._of_thread = threading.local()

    def lookup(
        self, asked: Mapping[str, Ids], *, timeout: float | None = None
    ) -> dict[str, FloatArray]:
        """Fetches the rows of one inference without any server learning which.

        One call is one round trip to each server, whatever it asks for. Every feature of the model
        is padded to its own ``max_ids``, those that are not asked for too: a server sees that
        somebody made one inference of this model, and nothing else. Where a feature's table has a
        layout, the layout says what is sent; what it leaves no room for comes back as zeros
        (:meth:`lookup_bags` says which).

        Args:
            asked: ids by the features' names; integers of any shape ``[*]``.
            timeout: seconds that this call may take with all that is done for it, in the place of
                the client's own.

        Returns:
            for each name float32 ``[*, dim]``, in the shape of its ids.

        Raises:
            BadIds: ids that are not integers.
            UnknownFeature: a name that the model does not have; nothing was sent.
            IdOutOfRange: an id that is no row of its table; nothing was sent.
            TooManyIds: more ids of a feature than the model's ``max_ids``; nothing was sent.
            VersionMismatch: the servers hold different versions of the model by now, or one that
                this client was not told to take.
            ServerBusy, ServerUnavailable, ServerTimeout, ServerError: a server that did not answer.
        """
        return _rows(self.lookup_bags(asked, timeout=timeout))

    def lookup_with_stats(
        self, asked: Mapping[str, Ids], *, timeout: float | None = None
    ) -> tuple[dict[str, FloatArray], LookupStats]:
        """:meth:`lookup`, with what it cost."""
        bags, stats = self._looked_up(asked, timeout)
        return _rows(bags), stats

    def lookup_bags(
        self, asked: Mapping[str, Ids], *, timeout: float | None = None
    ) -> dict[str, Bag]:
        """:meth:`lookup`, with which ids' rows are there (all, where no table has a layout)."""
        return self._looked_up(asked, timeout)[0]

    def _looked_up(
        self, asked: Mapping[str, Ids], timeout: float | None
    ) -> tuple[dict[str, Bag], LookupStats]:
        flat, shapes = self._flattened(asked)
        with CallSpan("lookup_model", model=self._info.name) as span:
            found = self._native.ask("lookup", flat, timeout=timeout)
            bags, stats = self._bags(found, shapes)
            span.note(stats)
        self._of_thread.stats = stats
        return bags, stats

    def lookup_many(
        self, inferences: Sequence[Mapping[str, Ids]], *, timeout: float | None = None
    ) -> list[dict[str, FloatArray]]:
        """:meth:`lookup` for several inferences, side by side: one message each.

        The servers see how many inferences there were. Where one fails, the others are given up and
        its error is raised.
        """
        return [_rows(bags) for bags in self.lookup_many_bags(inferences, timeout=timeout)]

    def lookup_many_bags(
        self, inferences: Sequence[Mapping[str, Ids]], *, timeout: float | None = None
    ) -> list[dict[str, Bag]]:
        """:meth:`lookup_many`, with which ids' rows are there, as :meth:`lookup_bags` says it."""
        with CallSpan("lookup_many", model=self._info.name, inferences=len(inferences)):
            return self._looked_up_many(inferences, timeout)

    def _looked_up_many(
        self, inferences: Sequence[Mapping[str, Ids]], timeout: float | None
    ) -> list[dict[str, Bag]]:
        asked = [self._flattened(inference) for inference in inferences]
        found = self._side_by_side([("lookup", flat) for flat, _ in asked], timeout)
        answers, stats = [], []
        for one, (_, shapes) in zip(found, asked, strict=True):
            bags, cost = self._bags(one, shapes)
            answers.append(bags)
            stats.append(cost)
        self._keep(stats)
        return answers

    def lookup_features(
        self, asked: Sequence[tuple[str, Ids, int]], *, timeout: float | None = None
    ) -> list[FloatArray]:
        """Rows of several features, each by a message of its own, all side by side.

        The servers see what they see of ``client[feature].lookup(ids, max_ids)`` for each. For many
        ids of few features that is less than :meth:`lookup_many`.

        Args:
            asked: names of features, ids of any shape, and the keys to send for them.
            timeout: as of :meth:`lookup`, for all of them.

        Raises:
            UnknownFeature, BadIds, IdOutOfRange, TooManyIds, ServerError: as
                :meth:`FeatureClient.lookup`; the others are given up.
        """
        clients = [self[name] for name, _, _ in asked]
        given = [
            (name, *flatten_ids(ids), client._bound(max_ids))
            for client, (name, ids, max_ids) in zip(clients, asked, strict=True)
        ]
        with CallSpan("lookup_features", model=self._info.name, features=len(given)):
            found = self._side_by_side(
                [("lookup_feature", name, flat, bound) for name, flat, _, bound in given], timeout
            )
            shaped = [
                client._shaped(one, shape, bound)
                for client, one, (_, _, shape, bound) in zip(clients, found, given, strict=True)
            ]
        self._keep([stats for _, stats in shaped])
        return [rows for rows, _ in shaped]

    def _side_by_side(self, asked: Sequence[tuple[Any, ...]], timeout: float | None) -> list[Any]:
        """What several native calls return; where one fails, the others are given up."""
        calls: list[_native.Call] = []
        futures: list[Future[Any]] = []
        started = time.monotonic()
        left = timeout
        try:
            for call, *given in asked:
                if timeout is not None and futures:
                    # One end for all; who is late says so by itself.
                    left = max(timeout - (time.monotonic() - started), 0.001)
                    if futures[0].done():
                        futures[0].result()
                future: Future[Any] = Future()
                futures.append(future)
                done = _resolves(future)
                calls.append(self._native.ask(call, *given, done=done, timeout=left))
            return [future.result() for future in futures]
        except BaseException:
            for call in calls:
                call.cancel()
            raise

    def _keep(self, stats: Sequence[LookupStats]) -> None:
        if stats:
            self._of_thread.stats = LookupStats.of_many(stats)

    def __getitem__(self, feature: str) -> FeatureClient:
        """One feature as a client of its table alone.

        Raises:
            UnknownFeature: a name that the model does not have.
        """
        return FeatureClient(self, self._feature(feature))

    @property
    def last_stats(self) -> LookupStats | None:
        """What this thread's last lookup cost, and which version answered; None before the first.

        After :meth:`lookup_many` and :meth:`lookup_features`, of all their messages together.
        """
        return getattr(self._of_thread, "stats", None)


def _resolves(future: Future[Any]) -> Callable[[Any, BaseException | None], None]:
    def done(found: Any, error: BaseException | None) -> None:
        if error is not None or found is None:
            future.set_exception(error or RuntimeError("a lookup ended without a result"))
        else:
            future.set_result(found)

    return done


class AsyncModelClient(_Model, Unmovable):
    """:class:`ModelClient` for asyncio; made by :func:`connect_async` with ``model=``.

    Lookups may run side by side. A cancelled lookup is given up at the servers too.
    """

    async def lookup(
        self, asked: Mapping[str, Ids], *, timeout: float | None = None
    ) -> dict[str, FloatArray]:
        """As :meth:`ModelClient.lookup`."""
        return (await self.lookup_with_stats(asked, timeout=timeout))[0]

    async def lookup_with_stats(
        self, asked: Mapping[str, Ids], *, timeout: float | None = None
    ) -> tuple[dict[str, FloatArray], LookupStats]:
        """As :meth:`ModelClient.lookup_with_stats`."""
        bags, stats = await self._looked_up(asked, timeout)
        return _rows(bags), stats

    async def lookup_bags(
        self, asked: Mapping[str, Ids], *, timeout: float | None = None
    ) -> dict[str, Bag]:
        """As :meth:`ModelClient.lookup_bags`."""
        return (await self._looked_up(asked, timeout))[0]

    async def lookup_many(
        self, inferences: Sequence[Mapping[str, Ids]], *, timeout: float | None = None
    ) -> list[dict[str, FloatArray]]:
        """As :meth:`ModelClient.lookup_many`."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self.lookup(asked, timeout=timeout)) for asked in inferences
                ]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    def __getitem__(self, feature: str) -> AsyncFeatureClient:
        """As :meth:`ModelClient.__getitem__`."""
        return AsyncFeatureClient(self, self._feature(feature))

    async def _looked_up(
        self, asked: Mapping[str, Ids], timeout: float | None
    ) -> tuple[dict[str, Bag], LookupStats]:
        flat, shapes = self._flattened(asked)
        with CallSpan("lookup_model", model=self._info.name) as span:
            found = await awaited(self._native, "lookup", flat, timeout=timeout)
            bags, stats = self._bags(found, shapes)
            span.note(stats)
        return bags, stats


class _Feature:
    """What both clients of one feature know."""

    _model: _Model

    def __init__(self, model: _Model, feature: FeatureInfo) -> None:
        self._model = model
        self._name = feature.name

    @property
    def feature(self) -> FeatureInfo:
        """What the model says of the feature."""
        return self._model._feature(self._name)

    @property
    def max_ids(self) -> int:
        """Keys that a lookup sends where it does not say: the model's word for this feature."""
        return self.feature.max_ids

    @property
    def info(self) -> TableInfo:
        """The table that the feature reads."""
        return self._model.info.table_of(self._name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r} of {self._model!r})"

    def _bound(self, max_ids: int | None) -> int:
        return check_max_ids(max_ids) or self.max_ids

    def _shaped(
        self, found: _native.Rows, shape: tuple[int, ...], bound: int
    ) -> tuple[FloatArray, LookupStats]:
        if found.costs.version != self.info.version:
            self._model._refresh()
        count = found.values.shape[0]
        stats = LookupStats.of_costs(count, bound, found.costs)
        return found.values.reshape(*shape, self.info.dim), stats


class FeatureClient(_Feature):
    """One feature of a model, as a client of its table alone: ``client["item"]``.

    The servers see which table is asked. :meth:`ModelClient.lookup` hides that too.
    """

    _model: ModelClient

    def lookup(
        self, ids: Ids, max_ids: int | None = None, *, timeout: float | None = None
    ) -> FloatArray:
        """As :meth:`Client.lookup`, padded to the model's ``max_ids`` where none is given."""
        return self.lookup_with_stats(ids, max_ids, timeout=timeout)[0]

    def lookup_with_stats(
        self, ids: Ids, max_ids: int | None = None, *, timeout: float | None = None
    ) -> tuple[FloatArray, LookupStats]:
        """:meth:`lookup`, with what it cost."""
        flat, shape = flatten_ids(ids)
        bound = self._bound(max_ids)
        with CallSpan("lookup", table=self.info.name, max_ids=bound) as span:
            found = self._model._native.ask(
                "lookup_feature", self._name, flat, bound, timeout=timeout
            )
            rows, stats = self._shaped(found, shape, bound)
            span.note(stats)
        self._model._of_thread.stats = stats
        return rows, stats

    @property
    def last_stats(self) -> LookupStats | None:
        """What this thread's last lookup of the model cost; None before the first."""
        return self._model.last_stats


class AsyncFeatureClient(_Feature):
    """:class:`FeatureClient` for asyncio."""

    async def lookup(
        self, ids: Ids, max_ids: int | None = None, *, timeout: float | None = None
    ) -> FloatArray:
        """As :meth:`FeatureClient.lookup`."""
        return (await self.lookup_with_stats(ids, max_ids, timeout=timeout))[0]

    async def lookup_with_stats(
        self, ids: Ids, max_ids: int | None = None, *, timeout: float | None = None
    ) -> tuple[FloatArray, LookupStats]:
        """As :meth:`FeatureClient.lookup_with_stats`."""
        flat, shape = flatten_ids(ids)
        bound = self._bound(max_ids)
        native = self._model._native
        with CallSpan("lookup", table=self.info.name, max_ids=bound) as span:
            found = await awaited(
                native, "lookup_feature", self._name, flat, bound, timeout=timeout
            )
            rows, stats = self._shaped(found, shape, bound)
            span.note(stats)
        return rows, stats


MODEL = Kind("pair", ModelClient, AsyncModelClient)
