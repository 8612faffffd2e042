"""What layers fetch rows from."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from .._bags import FloatArray
from .._ids import Ids
from .._types import Bag, LayoutInfo, TableInfo

__all__ = ["BagSource", "RowSource"]


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

    def lookup_bag(self, ids: Ids) -> Bag:
        """The rows of a whole inference, those that fit."""
        ...
