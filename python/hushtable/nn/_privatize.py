"""Puts private layers into a model that was made for torch's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from .._bags import Mode
from .._embeddings import COLLECTION, altered, kind_of
from .._fields import Fields
from .._types import LookupStats, TableInfo
from ..errors import ConfigError, Error
from ._collection import PrivateEmbeddingBagCollection
from ._layers import PrivateEmbedding, PrivateEmbeddingBag
from ._module import HAS_TORCH, array_of, is_tensor
from ._same_rows import check_same_rows, has_values
from ._sources import FeatureFacts, ModelSource, RowSource, features_of, is_model
from ._trips import ForwardStats, ask_many

if HAS_TORCH:
    import torch

    from ._gather import Gather
    from ._trace import Inputs

__all__ = ["Gathered", "Kept", "Privatized", "Replaced", "privatize"]


#: What training code puts before all names, and ``hushtable model build`` leaves out.
_WRAPPERS = ("model", "model_state_dict", "module", "state_dict", "_orig_mod")


@dataclass(frozen=True, slots=True)
class Replaced:
    """A layer that :func:`privatize` replaced.

    Attributes:
        path: where in the model it is.
        tables: the names of the tables that it reads by now.
        layer: what stands there.
        compared: whether rows of the layer were compared with what is served.
    """

    path: str
    tables: tuple[str, ...]
    layer: Any
    compared: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """An embedding layer that :func:`privatize` left as it was.

    Attributes:
        path: where in the model it is.
        why: the reason, for a person to read.
    """

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Gathered:
    """How a model's forward asks for the rows of its private layers.

    Attributes:
        trips: of each round trip that answers calls of several layers, the layers' paths: one
            again for each call of it. Those of one depend on rows of the trips before it.
        alone: layers that are asked when they are called, a round trip each, and why.
        stopped: why the model's code could be followed no further; layers that it calls after that
            are asked when they are called. None where all of it was.
        request: what a trip of one request to each server costs, whatever is asked; None where
            nothing was asked (``compare=False``) or answered, and in the clear.
    """

    trips: tuple[tuple[str, ...], ...]
    alone: tuple[Kept, ...]
    stopped: str | None
    request: LookupStats | None

    def __str__(self) -> str:
        count = sum(len(set(trip)) for trip in self.trips)
        lines = []
        if self.trips:
            what = "1 round trip" if len(self.trips) == 1 else f"{len(self.trips)} round trips"
            lines.append(f"a forward: {what} for {count} layers")
        if self.trips and self.request is not None:
            up, down = self.request.bytes_up, self.request.bytes_down
            lines[0] += f", a request to both servers {up:,} bytes up and {down:,} down"
        lines += [f"{one.path}: a round trip of its own, {one.why}" for one in self.alone]
        if self.stopped is not None:
            lines.append(
                f"the model's code was not followed past {self.stopped}: layers after that have a "
                "round trip each"
            )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Privatized:
    """What :func:`privatize` did. As text, a line for each embedding layer of the model.

    Attributes:
        replaced: layers that are private by now.
        kept: embedding layers that are not.
        gathered: how forwards ask for rows; None with one table, without torch, and of a forward
            that takes ``*args``, of which the first call says it.
    """

    replaced: tuple[Replaced, ...]
    kept: tuple[Kept, ...]
    gathered: Gathered | None = None
    _gather: Any = field(default=None, repr=False, compare=False)

    @property
    def given_up(self) -> tuple[Kept, ...]:
        """Layers of ``gathered`` that were asked when they were called after all, and why.

        A forward found it out; they have a round trip of their own from then on.
        """
        found = {} if self._gather is None else self._gather.given_up()
        return tuple(Kept(path, why) for path, why in found.items())

    @property
    def last_stats(self) -> ForwardStats | None:
        """What the last forward of the model in this thread cost, of all its private layers.

        None before the first, with one table, without torch, and of compiled forwards.
        """
        return None if self._gather is None else cast(ForwardStats, self._gather.last_stats)

    def __str__(self) -> str:
        lines = [
            f"{one.path}: private, {', '.join(one.tables)}"
            + ("" if one.compared else " (rows not compared)")
            for one in self.replaced
        ]
        lines += [f"{one.path}: left, {one.why}" for one in self.kept]
        lines += str(self.gathered or "").splitlines()
        lines += [f"{one.path}: a round trip of its own by now, {one.why}" for one in self.given_up]
        return "\n".join(lines) or "the model has no embedding layers"


class _Left(Exception):
    """Why a layer stays."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """What is to stand in a layer's place.

    Attributes:
        tables: the names of the tables that it reads.
        layer: the private layer.
        pairs: embedding layers, each with a private one that must give the same rows, and the type
            that the rows are stored in; none where there are no weights to compare with.
    """

    tables: tuple[str, ...]
    layer: Any
    pairs: tuple[tuple[Any, Any, str], ...]


def privatize(model: Any, client: RowSource | ModelSource, *, compare: bool = True) -> Privatized:
    """Replaces every embedding layer of ``model`` whose table is served.

    ``nn.Embedding``, ``nn.EmbeddingBag`` and torchrec's ``EmbeddingBagCollection`` are replaced in
    place by the layers of :mod:`hushtable.nn`; the weights that they held are let go. A layer's
    table is the one that has its name: of the layer at ``towers.user`` that is the feature or the
    table ``towers.user`` (``hushtable model build`` gives tables these names), of a collection each
    of its features. The only table of a :class:`~hushtable.Client` may also be found by its shape,
    where one layer alone has it.

    A layer that may give something else than float32 rows of its weight is left: one of a class
    with a ``forward`` of its own (language models scale rows, or count ids from another number),
    with hooks, parametrizations or ``max_norm``, in half precision, quantised.

    With a client of a model, a forward then asks for all layers in one round trip, or in one for
    each step by which ids depend on rows. For that the code of ``model`` is followed once, with
    stand-ins for its inputs and on copies of its modules, and hooks are put on ``model``, which
    work out a call's ids before it begins. A layer whose ids are others than that, or that cannot
    be foreseen, asks when it is called.

    Args:
        model: a ``torch.nn.Module``.
        client: a client of servers that hold a model or a single table.
        compare: compute a few rows by each layer whose weights are there (not on the meta device)
            and hold what is served against them, to the rounding of the table's stored type. The
            ids are 0, 1, the last and ``padding_idx``, whoever asks: the servers see one lookup of
            at most 4 keys for each layer, and one request of no ids.

    Returns:
        Which layers were replaced, and which were left and why: read it, since a layer that was
        left looks its rows up in the clear.

    Raises:
        ConfigError: a table that has the name of a layer, but another shape or other values: the
            bundle is of another model or checkpoint. Nothing was replaced.
        ServerError: with ``compare``, a server that did not answer. Nothing was replaced.
    """
    if not hasattr(model, "named_modules"):
        raise ConfigError(f"a {type(model).__name__} has no layers: give a torch.nn.Module")
    tables = _Tables(client)
    found = list(_embeddings(model))
    alone = tables.by_shape([layer for _, layer in found])
    plans: dict[int, tuple[str, _Planned] | str] = {}
    for path, layer in found:
        # A layer that stands in two places is replaced in both by either's name.
        if not isinstance(plans.get(id(layer), ""), str):
            continue
        try:
            if layer is model:
                raise _Left("it is the whole model: make the private layer itself, of a client")
            plans[id(layer)] = path, _private(path, layer, tables, alone)
        except _Left as left:
            plans[id(layer)] = str(left)
    if compare:
        for plan in plans.values():
            if not isinstance(plan, str):
                for own, private, dtype in plan[1].pairs:
                    check_same_rows(plan[0], own, private, dtype)
    # Only now that nothing can fail.
    replaced, kept = [], []
    for path, layer in found:
        plan = plans[id(layer)]
        if isinstance(plan, str):
            kept.append(Kept(path, plan))
            continue
        _, planned = plan
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, planned.layer)
        compared = compare and bool(planned.pairs)
        replaced.append(Replaced(path, planned.tables, planned.layer, compared))
    if not HAS_TORCH or not isinstance(model, torch.nn.Module):
        return Privatized(tuple(replaced), tuple(kept))
    if tables.model is None or not replaced:
        return Privatized(tuple(replaced), tuple(kept))
    gather = Gather()
    gather.install(model)
    gathered = _gathered(gather, model, tables.model, compare)
    return Privatized(tuple(replaced), tuple(kept), gathered, gather)


def _gathered(gather: Gather, model: Any, source: ModelSource, ask: bool) -> Gathered | None:
    """What is foreseen of forwards; where it may, one request of no ids says what each costs."""
    inputs = Inputs.of_code(model)
    if inputs is None:
        return None
    plan = gather.known(model, inputs, model.training).plan
    # So that the first forward need not wait for it.
    gather.known(model, inputs, not model.training)
    request = None
    if ask and plan.trips:
        # What was replaced stays so: a forward will say what is wrong with the servers.
        with contextlib.suppress(Error):
            _, request = ask_many(source, [{}])
    return Gathered(
        tuple(tuple(str(call.target) for call in trip.calls) for trip in plan.trips),
        tuple(Kept(path, why) for path, why in plan.alone.items()),
        plan.stopped,
        request,
    )


class _Tables:
    """A client's tables by the names that layers may have."""

    def __init__(self, client: RowSource | ModelSource) -> None:
        self.model: ModelSource | None = None
        self.sources: dict[str, RowSource] = {}
        self.names: dict[str, str] = {}
        self.poolings: dict[str, str] = {}
        self.features: dict[str, FeatureFacts] = {}
        if not is_model(client):
            only = cast(RowSource, client)
            self.sources[only.info.name] = only
            self.names[only.info.name] = only.info.name
            return
        self.model = cast(ModelSource, client)
        features = features_of(self.model)
        for feature in features.values():
            self.sources.setdefault(feature.table, self.model[feature.name])
            self.names.setdefault(feature.table, feature.table)
            self.features.setdefault(feature.table, feature)
        for feature in features.values():
            self.sources[feature.name] = self.model[feature.name]
            self.names[feature.name] = feature.table
            self.poolings[feature.name] = feature.pooling
            self.features[feature.name] = feature

    def of(self, path: str) -> str | None:
        """The name by which the layer at ``path`` is served."""
        if path in self.sources:
            return path
        # A bundle's names are without what wraps a whole model.
        first, _, rest = path.partition(".")
        return self.of(rest) if first in _WRAPPERS and rest else None

    def by_shape(self, layers: list[Any]) -> int | None:
        """The only layer (its id) that has the shape of a single table."""
        if self.model is not None:
            return None
        (source,) = self.sources.values()
        shape = (source.info.rows, source.info.dim)
        same = {id(layer) for layer in layers if _shape(layer) == shape}
        return same.pop() if len(same) == 1 else None


def _embeddings(model: Any) -> Iterator[tuple[str, Any]]:
    """Path and layer of every embedding layer; of a collection not what is inside."""
    inside: str | None = None
    # A layer that stands in two places is met at both.
    for path, module in model.named_modules(remove_duplicate=False):
        if inside is not None and path.startswith(inside):
            continue
        kind = kind_of(module)
        if kind is not None:
            yield path, module
        if kind == COLLECTION:
            inside = f"{path}." if path else ""


def _shape(layer: Any) -> tuple[int, int] | None:
    if kind_of(layer) == COLLECTION:
        return None
    return layer.num_embeddings, layer.embedding_dim


def _private(path: str, layer: Any, tables: _Tables, alone: int | None) -> _Planned:
    if kind_of(layer) == COLLECTION:
        return _private_collection(path, layer, tables)
    name = tables.of(path)
    if name is None and alone == id(layer):
        (name,) = tables.sources
    if name is None:
        raise _Left("no table is served under its name")
    source, table = tables.sources[name], tables.names[name]
    _check_shape(path, (layer.num_embeddings, layer.embedding_dim), source.info)
    _check_plain(layer)
    private = _stand_in(layer, source)
    private.served_by, private.feature = tables.model, tables.features.get(name)
    private.beside(layer.weight)
    return _Planned((table,), private, _pairs(layer, private, source))


def _stand_in(layer: Any, source: RowSource) -> PrivateEmbedding | PrivateEmbeddingBag:
    """The private layer for a plain one of one table."""
    if kind_of(layer) == "Embedding":
        return PrivateEmbedding(source, padding_idx=_zero_padding(layer))
    return PrivateEmbeddingBag(
        source,
        mode=cast(Mode, layer.mode),
        padding_idx=layer.padding_idx,
        include_last_offset=layer.include_last_offset,
    )


def _pairs(layer: Any, private: Any, source: RowSource) -> tuple[tuple[Any, Any, str], ...]:
    return ((layer, private, source.info.dtype),) if has_values(layer) else ()


def _check_plain(layer: Any) -> None:
    """Leaves a layer that may give something else than float32 rows of its weight."""
    why = altered(layer)
    if why is not None:
        raise _Left(why)
    options = {name: getattr(layer, name) for name in getattr(layer, "__constants__", ())}
    with Fields(options, _Left, "option") as own:
        own.skip("num_embeddings", "embedding_dim", "padding_idx", "mode", "include_last_offset")
        # norm_type says what max_norm means, sparse how a gradient is kept.
        own.skip("max_norm", "norm_type", "sparse", "scale_grad_by_freq")
    if layer.max_norm is not None:
        raise _Left("it has max_norm, which changes the rows that it looks up")
    if getattr(layer, "scale_grad_by_freq", False):
        raise _Left(
            "it has scale_grad_by_freq, and private rows have no gradient: set it to False, once "
            "the layer is trained"
        )
    if is_tensor(layer.weight):
        _check_weight(layer.weight, (layer.num_embeddings, layer.embedding_dim))


def _check_weight(weight: Any, shape: tuple[int, int]) -> None:
    if type(weight) not in (torch.Tensor, torch.nn.Parameter) or weight.layout != torch.strided:
        raise _Left(f"its weight is a {type(weight).__name__} of layout {weight.layout}")
    if weight.dtype != torch.float32:
        raise _Left(
            f"its rows are {str(weight.dtype).removeprefix('torch.')}, and private ones float32: "
            "call .float() on the model first, if it may compute in that"
        )
    if tuple(weight.shape) != shape:
        raise _Left(
            f"its weight is {list(weight.shape)}, but it says that it has {shape[0]} rows of "
            f"{shape[1]}"
        )


def _zero_padding(layer: Any) -> int | None:
    """The padding, whose row is taken for zeros, unless it was set to something else."""
    padding: int | None = layer.padding_idx
    if padding is None or (is_tensor(layer.weight) and not has_values(layer)):
        return None
    return None if array_of(layer.weight[padding]).any() else padding


def _private_collection(path: str, layer: Any, tables: _Tables) -> _Planned:
    if tables.model is None:
        raise _Left("it reads many tables, and the servers hold one: serve a model")
    names: list[str] = []
    pairs: list[tuple[Any, Any, str]] = []
    bags = dict(getattr(layer, "embedding_bags", {}).items())
    for config in layer.embedding_bag_configs():
        bag = bags.get(config.name)
        compared: set[str] = set()
        for name in config.feature_names:
            if name not in tables.poolings:
                raise _Left(f"the model that is served has no feature {name!r}")
            source, table = tables.sources[name], tables.names[name]
            shape = (config.num_embeddings, config.embedding_dim)
            _check_shape(f"{path} (feature {name!r})", shape, source.info)
            pooling = str(getattr(config.pooling, "value", config.pooling)).lower()
            if tables.poolings[name] != pooling:
                raise ConfigError(
                    f"{path}: feature {name!r} has pooling {pooling}, in the model bundle "
                    f"{tables.poolings[name]}: rebuild the bundle with the layer's"
                )
            if bag is not None and table not in compared:
                _check_bag(config.name, bag, pooling)
                pairs += _pairs(bag, _stand_in(bag, source), source)
            compared.add(table)
            names.append(name)
        _check_config(config)
    why = altered(layer)
    if why is not None:
        raise _Left(why)
    private = PrivateEmbeddingBagCollection(tables.model, names, is_weighted=layer.is_weighted())
    read = tuple(dict.fromkeys(tables.names[name] for name in names))
    return _Planned(read, private, tuple(pairs))


def _check_config(config: Any) -> None:
    """Leaves a collection with a table that torchrec computes in another way, or may compute so."""

    def left(why: str) -> _Left:
        return _Left(f"its table {config.name!r} has {why}")

    options = {name: getattr(value, "value", value) for name, value in vars(config).items()}
    with Fields(options, left, "option") as own:
        own.skip("name", "num_embeddings", "embedding_dim", "feature_names", "pooling")
        # How it is first filled, and how it is spread over machines.
        own.skip("weight_init_max", "weight_init_min", "init_fn", "need_pos")
        own.neutral("data_type", "FP32")
        for name in ("num_embeddings_post_pruning", "input_dim", "total_num_buckets"):
            own.neutral(name, None)
        own.neutral("use_virtual_table", False)
        own.neutral("virtual_table_eviction_policy", None)
        own.neutral("enable_embedding_update", False)


def _check_bag(table: str, bag: Any, pooling: str) -> None:
    """Leaves a collection whose part for a table was changed after it was made."""
    try:
        _check_plain(bag)
        if bag.mode != pooling or bag.padding_idx is not None or not bag.include_last_offset:
            raise _Left("its options are not those that the collection gave it")
    except _Left as left:
        raise _Left(f"of its layer for table {table!r}: {left}") from left


def _check_shape(path: str, shape: tuple[int, int], info: TableInfo) -> None:
    if shape != (info.rows, info.dim):
        raise ConfigError(
            f"{path} is {shape[0]} x {shape[1]}, but the table {info.name!r} that is served is "
            f"{info.rows} x {info.dim}: serve a bundle that was built from this model"
        )
