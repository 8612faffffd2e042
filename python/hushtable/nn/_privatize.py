"""Puts private layers into a model that was made for torch's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from .._bags import Mode
from .._types import TableInfo
from ..errors import ConfigError
from ._collection import PrivateEmbeddingBagCollection
from ._layers import PrivateEmbedding, PrivateEmbeddingBag
from ._module import array_of
from ._sources import ModelSource, RowSource, features_of, is_model

__all__ = ["Kept", "Privatized", "Replaced", "privatize"]


#: What training code puts before all names, and ``hushtable model build`` leaves out.
_WRAPPERS = ("model", "model_state_dict", "module", "state_dict", "_orig_mod")


@dataclass(frozen=True, slots=True)
class Replaced:
    """A layer that :func:`privatize` replaced.

    Attributes:
        path: where in the model it is.
        tables: the names of the tables that it reads by now.
        layer: what stands there.
    """

    path: str
    tables: tuple[str, ...]
    layer: Any


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
class Privatized:
    """What :func:`privatize` did. As text, a line for each embedding layer of the model.

    Attributes:
        replaced: layers that are private by now.
        kept: embedding layers that are not.
    """

    replaced: tuple[Replaced, ...]
    kept: tuple[Kept, ...]

    def __str__(self) -> str:
        lines = [f"{one.path}: private, {', '.join(one.tables)}" for one in self.replaced]
        lines += [f"{one.path}: left, {one.why}" for one in self.kept]
        return "\n".join(lines) or "the model has no embedding layers"


class _Left(Exception):
    """Why a layer stays."""


def privatize(model: Any, client: RowSource | ModelSource) -> Privatized:
    """Replaces every embedding layer of ``model`` whose table is served.

    ``nn.Embedding``, ``nn.EmbeddingBag`` and torchrec's ``EmbeddingBagCollection`` are replaced in
    place by the layers of :mod:`hushtable.nn`; the weights that they held are let go. A layer's
    table is the one that has its name: of the layer at ``towers.user`` that is the feature or the
    table ``towers.user`` (``hushtable model build`` gives tables these names), of a collection each
    of its features. The only table of a :class:`~hushtable.Client` may also be found by its shape,
    where one layer alone has it.

    Args:
        model: a ``torch.nn.Module``.
        client: a client of servers that hold a model or a single table.

    Returns:
        Which layers were replaced, and which were left and why: read it, since a layer that was
        left looks its rows up in the clear.

    Raises:
        ConfigError: a table that has the name of a layer, but another shape: the bundle is of
            another model. Nothing was replaced.
    """
    if not hasattr(model, "named_modules"):
        raise ConfigError(f"a {type(model).__name__} has no layers: give a torch.nn.Module")
    tables = _Tables(client)
    found = list(_embeddings(model))
    alone = tables.by_shape([layer for _, layer in found])
    layers: dict[int, tuple[tuple[str, ...], Any] | str] = {}
    for path, layer in found:
        # A layer that stands in two places is replaced in both by either's name.
        if isinstance(layers.get(id(layer), ""), str):
            try:
                layers[id(layer)] = _private(path, layer, tables, alone)
            except _Left as left:
                layers[id(layer)] = str(left)
    # Only now that nothing can fail.
    replaced, kept = [], []
    for path, layer in found:
        outcome = layers[id(layer)]
        parent, _, name = path.rpartition(".")
        if layer is model and not isinstance(outcome, str):
            outcome = "it is the whole model: make the private layer itself, of the same client"
        if isinstance(outcome, str):
            kept.append(Kept(path, outcome))
            continue
        setattr(model.get_submodule(parent), name, outcome[1])
        replaced.append(Replaced(path, *outcome))
    return Privatized(tuple(replaced), tuple(kept))


class _Tables:
    """A client's tables by the names that layers may have."""

    def __init__(self, client: RowSource | ModelSource) -> None:
        self.model: ModelSource | None = None
        self.sources: dict[str, RowSource] = {}
        self.names: dict[str, str] = {}
        self.poolings: dict[str, str] = {}
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
        for feature in features.values():
            self.sources[feature.name] = self.model[feature.name]
            self.names[feature.name] = feature.table
            self.poolings[feature.name] = feature.pooling

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
        if _kind(module) is not None:
            inside = f"{path}."
            yield path, module


def _kind(module: Any) -> str | None:
    """By the names of its classes, so that neither torch nor torchrec has to be there."""
    for base in type(module).__mro__:
        package = base.__module__.partition(".")[0]
        if package == "torch" and base.__name__ in ("Embedding", "EmbeddingBag"):
            return base.__name__
        if package == "torchrec" and base.__name__ == "EmbeddingBagCollection":
            return base.__name__
    return None


def _shape(layer: Any) -> tuple[int, int] | None:
    if _kind(layer) == "EmbeddingBagCollection":
        return None
    return layer.num_embeddings, layer.embedding_dim


def _private(
    path: str, layer: Any, tables: _Tables, alone: int | None
) -> tuple[tuple[str, ...], Any]:
    if _kind(layer) == "EmbeddingBagCollection":
        return _private_collection(path, layer, tables)
    name = tables.of(path)
    if name is None and alone == id(layer):
        (name,) = tables.sources
    if name is None:
        raise _Left("no table is served under its name")
    source, table = tables.sources[name], tables.names[name]
    _check_shape(path, (layer.num_embeddings, layer.embedding_dim), source.info)
    if layer.max_norm is not None:
        raise _Left("it has max_norm, which changes the rows that it looks up")
    private: PrivateEmbedding | PrivateEmbeddingBag
    if _kind(layer) == "Embedding":
        private = PrivateEmbedding(source, padding_idx=_zero_padding(layer))
    else:
        private = PrivateEmbeddingBag(
            source,
            mode=cast(Mode, layer.mode),
            padding_idx=layer.padding_idx,
            include_last_offset=layer.include_last_offset,
        )
    return (table,), private


def _zero_padding(layer: Any) -> int | None:
    """The padding, whose row is taken for zeros, unless it was set to something else."""
    padding: int | None = layer.padding_idx
    if padding is None or array_of(layer.weight[padding]).any():
        return None
    return padding


def _private_collection(
    path: str, layer: Any, tables: _Tables
) -> tuple[tuple[str, ...], PrivateEmbeddingBagCollection]:
    if tables.model is None:
        raise _Left("it reads many tables, and the servers hold one: serve a model")
    names: list[str] = []
    for config in layer.embedding_bag_configs():
        for name in config.feature_names:
            if name not in tables.poolings:
                raise _Left(f"the model that is served has no feature {name!r}")
            shape = (config.num_embeddings, config.embedding_dim)
            _check_shape(f"{path} (feature {name!r})", shape, tables.sources[name].info)
            pooling = str(getattr(config.pooling, "value", config.pooling)).lower()
            if tables.poolings[name] != pooling:
                raise ConfigError(
                    f"{path}: feature {name!r} has pooling {pooling}, in the model bundle "
                    f"{tables.poolings[name]}: rebuild the bundle with the layer's"
                )
            names.append(name)
    private = PrivateEmbeddingBagCollection(tables.model, names, is_weighted=layer.is_weighted())
    return tuple(dict.fromkeys(tables.names[name] for name in names)), private


def _check_shape(path: str, shape: tuple[int, int], info: TableInfo) -> None:
    if shape != (info.rows, info.dim):
        raise ConfigError(
            f"{path} is {shape[0]} x {shape[1]}, but the table {info.name!r} that is served is "
            f"{info.rows} x {info.dim}: serve a bundle that was built from this model"
        )
