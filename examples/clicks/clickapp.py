"""A trained click model as an application: a table, what inferences read of it, its quality."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

import hushtable
from hushtable.tune.trace import Trace

from .judging import Judge
from .pages import Bools, Floats, Ints, Pages
from .scoring import Score

Split = Literal["validation", "test"]


@dataclass(frozen=True)
class StoredRows:
    """The rows that held-out inferences read, rounded as the table stores them.

    Attributes:
        ids: int64 [ids], ascending.
        rows: float32 [ids, dim].
        row_bytes: bytes of a row as stored.
    """

    ids: Ints
    rows: Floats
    row_bytes: int

    @classmethod
    def of(cls, weight: Floats, traces: tuple[Trace, ...], dtype: str) -> StoredRows:
        """Stores the rows that ``traces`` read in a hushtable, and takes them out of it."""
        ids = np.unique(np.concatenate([trace.ids for trace in traces]))
        table = hushtable.Table.from_weight(weight[ids], dtype=dtype)
        return cls(ids, table.rows(np.arange(len(ids))), table.info.row_bytes)

    def take(self, ids: Ints) -> Floats:
        """The rows of ``ids``, float32 [ids, dim]."""
        rows: Floats = self.rows[np.searchsorted(self.ids, ids)]
        return rows


@dataclass(frozen=True, eq=False)
class ClickApp:
    """A trained model, and what to judge it on.

    Attributes:
        weight: float32 [rows, dim], the private table.
        device: the rest of the model.
        dtype: how the table is stored.
        train: one bag an inference of training users: what a layout may be learned from.
        validation: those of the validation users.
        test: those of the test users.
        pages: what the inferences of each split are judged on.
    """

    name: ClassVar[str]
    metric: ClassVar[str] = "AUC"
    higher_is_better: ClassVar[bool] = True
    #: The model.
    score: ClassVar[Score]

    weight: Floats
    device: Any
    dtype: str
    train: Trace
    validation: Trace
    test: Trace
    pages: dict[Split, Pages]
    stored: StoredRows = field(init=False)

    def __post_init__(self) -> None:
        stored = StoredRows.of(self.weight, (self.validation, self.test), self.dtype)
        object.__setattr__(self, "stored", stored)

    def stored_as(self, dtype: str) -> Self:
        """The same model with its table stored as ``dtype``."""
        return replace(self, dtype=dtype)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as stored."""
        return self.stored.row_bytes

    def quality(self, split: Split, kept: Bools | None = None, rows: Floats | None = None) -> float:
        """The AUC over the candidates of a split; more is better.

        Args:
            split: ``validation`` or ``test``.
            kept: bool [ids of the split], False where a lookup was dropped: the model then goes
                without that row. None where all were kept.
            rows: float32 [ids of the split, dim], as fetched; None for the table's own, rounded
                as they are stored.

        Raises:
            ValueError: ``kept`` or ``rows`` of another shape.
        """
        ids = self.held_out(split).ids
        if rows is None:
            rows = self.stored.take(ids)
        if rows.shape != (len(ids), self.weight.shape[1]):
            raise ValueError(
                f"rows of shape {rows.shape}, expected [ids, dim] ="
                f" ({len(ids)}, {self.weight.shape[1]})"
            )
        if kept is not None and kept.shape != (len(ids),):
            raise ValueError(f"kept of shape {kept.shape}, expected ({len(ids)},)")
        judge = Judge(self.pages[split])
        return judge.auc_of(judge.scores(type(self).score, self.device, rows, kept))

    def held_out(self, split: Split) -> Trace:
        """The trace of a split."""
        return self.validation if split == "validation" else self.test
