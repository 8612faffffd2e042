"""What layers fetch rows from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from .._bags import FloatArray
from .._ids import Ids
from .._types import Bag, LayoutInfo, TableInfo
from ..errors import ConfigError
from ..model import Model

__all__ = ["BagSource", "ClearModel", "FeatureFacts", "ModelSource", "RowSource"]


@runtime_checkable
class RowSource(Protocol):
    """What the layers fetch rows from: a :class:`~hushtable.Client` or a table in the clear."""

    @property
    def info(self) -> TableInfo:
        """The table's shape."""
        ...

    def lookup(self, ids: Ids, max_ids: int | None = None) -> FloatArray:
        """The rows ``ids``."""
        ...


@runtime_checkable
class BagSource(RowSource, Protocol):
    """A source with a layout, for layers with ``use_layout=True``."""

    @property
    def layout(self) -> LayoutInfo | None:
        """How whole inferences are answered."""
        ...

    def lookup_bags(self, bags: Sequence[Ids]) -> Sequence[Bag]:
        """For each of several inferences its rows, those that fit."""
        ...


class FeatureFacts(Protocol):
    """What a model says of one of its features."""

    @property
    def name(self) -> str:
        """The feature's name."""
        ...

    @property
    def table(self) -> str:
        """The name of the table that it reads; several features may read one."""
        ...

    @property
    def pooling(self) -> str:
        """``sum``, ``mean`` or ``none``."""
        ...

    @property
    def max_ids(self) -> int:
        """Most ids of one inference."""
        ...


class ModelSource(Protocol):
    """What layers of many tables fetch rows from: a client of a served model, or the model."""

    @property
    def features(self) -> Any:
        """What the model says of its features (:class:`FeatureFacts`), in its order."""
        ...

    def __getitem__(self, feature: str) -> RowSource:
        """The table of one feature."""
        ...

    def lookup_many(
        self, inferences: Sequence[Mapping[str, Ids]]
    ) -> Sequence[Mapping[str, FloatArray]]:
        """For each inference and each of its features the rows, float32 [ids, dim]."""
        ...


class ClearModel:
    """A model's tables in the clear: what a client of its servers is, with nothing hidden.

    Args:
        features: what the model says of its features.
        tables: of each table's name, its rows.
    """

    def __init__(self, features: Iterable[FeatureFacts], tables: Mapping[str, RowSource]) -> None:
        self.features = tuple(features)
        self._sources: dict[str, RowSource] = {}
        for feature in self.features:
            if feature.table not in tables:
                raise ConfigError(
                    f"feature {feature.name!r} reads table {feature.table!r}, which is not given"
                )
            self._sources[feature.name] = tables[feature.table]

    @classmethod
    def of(cls, model: Model) -> ClearModel:
        """Of a model bundle on disk."""
        return cls(model.features, {one.name: model.table(one.name) for one in model.tables})

    def __getitem__(self, feature: str) -> RowSource:
        if feature not in self._sources:
            raise ConfigError(unknown_feature(feature, self._sources))
        return self._sources[feature]

    def lookup_many(self, inferences: Sequence[Mapping[str, Ids]]) -> list[dict[str, FloatArray]]:
        """For each inference and each of its features the rows, float32 [ids, dim]."""
        return [
            {name: self[name].lookup(ids) for name, ids in inference.items()}
            for inference in inferences
        ]


def features_of(source: ModelSource) -> dict[str, FeatureFacts]:
    """By name, in the model's order, whether the source keeps them by name or in a row."""
    features = source.features
    if isinstance(features, Mapping):
        features = features.values()
    return {feature.name: feature for feature in features}


def is_model(source: RowSource | ModelSource) -> bool:
    """Whether a source has many tables."""
    return hasattr(source, "features") and hasattr(source, "lookup_many")


def unknown_feature(name: str, known: Iterable[str]) -> str:
    """What an error says of a feature that the model does not have."""
    names = sorted(known)
    listed = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
    return f"the model has no feature {name!r}: it has {listed}"
