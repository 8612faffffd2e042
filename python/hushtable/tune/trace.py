"""Traces: which ids each inference read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, Error

__all__ = ["IntArray", "Trace", "TraceError", "read_trace"]

IntArray = npt.NDArray[np.int64]

#: Ids are 32-bit numbers in a layout's map.
_ID_MAX = 2**32 - 1


class TraceError(Error, ValueError):
    """A trace that cannot be used.

    Attributes:
        bag: the bag at fault, counted from 0; None where no one bag is.
        id: the id at fault, if one is.
    """

    def __init__(self, message: str, *, bag: int | None = None, id: int | None = None) -> None:
        super().__init__(message)
        self.bag = bag
        self.id = id


@dataclass(frozen=True, eq=False)
class Trace:
    """Bags of ids, one bag an inference: bag b is ``ids[offsets[b] : offsets[b + 1]]``.

    Attributes:
        ids: int64 [accesses], bag after bag.
        offsets: int64 [bags + 1], from 0 to the number of accesses.
        source: what errors call it, such as the file it came from.

    Raises:
        TraceError: no accesses, a negative or too large id, or offsets that do not fit the ids.
    """

    ids: IntArray
    offsets: IntArray
    source: str = field(default="the trace", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", _integers(self.ids, "ids", self.source))
        object.__setattr__(self, "offsets", _integers(self.offsets, "offsets", self.source))
        _check_offsets(self)
        if self.ids.size == 0:
            raise TraceError(f"{self.source} is empty: it has {self.bag_count} bags and no ids")
        for bad in (self.ids < 0, self.ids > _ID_MAX):
            if bad.any():
                self._refuse(int(bad.argmax()), f"but ids run from 0 to {_ID_MAX}")

    @property
    def bag_count(self) -> int:
        """Bags."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> IntArray:
        """Accesses of each bag, int64 [bags]."""
        return np.diff(self.offsets)

    def bag(self, index: int) -> IntArray:
        """The ids of one bag."""
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def bag_of_access(self) -> IntArray:
        """The bag of each access, int64 [accesses]."""
        return np.repeat(np.arange(self.bag_count), self.lengths)

    def take(self, bags: IntArray) -> Trace:
        """The bags with these numbers, in this order."""
        lengths = self.lengths[bags]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        shift = np.repeat(self.offsets[:-1][bags] - offsets[:-1], lengths)
        return Trace(self.ids[np.arange(offsets[-1]) + shift], offsets, source=self.source)

    def split(self, train: float = 0.8, *, shuffle_seed: int | None = None) -> tuple[Trace, Trace]:
        """Two traces: the first ``train`` of the bags to learn from, and the rest held out.

        Args:
            train: share of the bags to learn from, over 0 and below 1.
            shuffle_seed: bags are taken in the order of the trace, which is right where that is
                the order of time; with a seed they are shuffled first.

        Raises:
            ConfigError: a share outside its range.
            TraceError: fewer than two bags, or one half without ids.
        """
        if not 0 < train < 1:
            raise ConfigError(f"train is {train:g}, but must be over 0 and below 1")
        if self.bag_count < 2:
            raise TraceError(f"{self.source} has one bag: there is none to hold out")
        order = np.arange(self.bag_count)
        if shuffle_seed is not None:
            order = np.random.default_rng(shuffle_seed).permutation(self.bag_count)
        first = min(max(round(train * self.bag_count), 1), self.bag_count - 1)
        for name, bags in (("first", order[:first]), ("held-out", order[first:])):
            if not self.lengths[bags].any():
                raise TraceError(f"the {name} {len(bags)} bags of {self.source} have no ids")
        return self.take(order[:first]), self.take(order[first:])

    def sample(self, bags_max: int, seed: int) -> Trace:
        """At most ``bags_max`` bags with ids, drawn at random, in the order of the trace."""
        filled = np.flatnonzero(self.lengths)
        if len(filled) <= bags_max:
            return self
        drawn = np.random.default_rng(seed).choice(filled, bags_max, replace=False)
        return self.take(np.sort(drawn))

    def distinct_counts(self) -> IntArray:
        """Distinct ids of each bag, int64 [bags]."""
        bags = self.bag_of_access()
        order = np.lexsort((self.ids, bags))
        ids, bags = self.ids[order], bags[order]
        is_first = np.ones(len(ids), dtype=bool)
        is_first[1:] = (ids[1:] != ids[:-1]) | (bags[1:] != bags[:-1])
        return np.bincount(bags[is_first], minlength=self.bag_count).astype(np.int64)

    def check(self, rows: int, ids_max: int | None = None) -> None:
        """Refuses ids that a table of ``rows`` does not have, and bags of over ``ids_max`` ids.

        Raises:
            TraceError: names the first bag and id at fault.
        """
        outside = self.ids >= rows
        if outside.any():
            self._refuse(
                int(outside.argmax()), f"but the table has {rows:,} rows, with ids 0 to {rows - 1}"
            )
        if ids_max is not None and (self.lengths > ids_max).any():
            bag = int((self.lengths > ids_max).argmax())
            raise TraceError(
                f"bag {bag} of {self.source} has {self.lengths[bag]} ids, over ids_max, "
                f"{ids_max}: raise it, or split the bag",
                bag=bag,
            )

    def _refuse(self, access: int, why: str) -> None:
        bag = int(np.searchsorted(self.offsets, access, side="right")) - 1
        wrong = int(self.ids[access])
        raise TraceError(f"bag {bag} of {self.source} has id {wrong}, {why}", bag=bag, id=wrong)


def _integers(values: npt.ArrayLike, name: str, source: str) -> IntArray:
    array = np.asarray(values)
    if array.ndim != 1:
        raise TraceError(f"the {name} of {source} have {array.ndim} dimensions, but must have 1")
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.dtype.kind == "u" and int(array.max()) > np.iinfo(np.int64).max:
        raise TraceError(f"{source} has {array.max()} among its {name}, over the limit of 2^63 - 1")
    if array.dtype.kind not in "iu":
        raise TraceError(f"the {name} of {source} are {array.dtype}, but must be integers")
    return np.ascontiguousarray(array, dtype=np.int64)


def _check_offsets(trace: Trace) -> None:
    offsets, source = trace.offsets, trace.source
    rule = "offsets are where each bag starts, and at last the number of ids"
    if offsets.size == 0 or offsets[0] != 0:
        raise TraceError(f"the offsets of {source} do not start with 0: {rule}")
    falls = np.diff(offsets) < 0
    if falls.any():
        bag = int(falls.argmax())
        found = f"offsets[{bag + 1}] = {offsets[bag + 1]} after {offsets[bag]}"
        raise TraceError(f"the offsets of {source} fall ({found}): {rule}", bag=bag)
    if offsets[-1] != trace.ids.size:
        found = f"the last offset is {offsets[-1]}, but there are {trace.ids.size} ids"
        raise TraceError(f"the offsets of {source} do not fit ({found}): {rule}")


def read_trace(path: str | Path, *, column: str | None = None) -> Trace:
    """Reads a trace: the ids that inferences read, one bag an inference.

    By the file's ending:

    - ``.npz``: arrays ``ids`` [accesses] and ``offsets`` [bags + 1], as in :class:`Trace`.
    - ``.csv``, ``.tsv``, ``.txt``: where the first line names columns ``bag`` and ``id``, one
      access a line (comma or tab between; other columns are passed over); else one bag a line, its
      ids separated by commas, spaces or tabs. Blank lines are passed over.
    - ``.parquet``: a column of lists of integers, one bag a row (``column`` where there are
      several); or columns ``bag`` and ``id``. Needs pyarrow.

    Lines or rows of one ``bag`` need not stand together; bags come in the order in which they first
    appear. A bag without ids can only be told by ``.npz`` and lists in ``.parquet``.

    Raises:
        TraceError: what is wrong, with the file and its line, row or bag.
        ConfigError: a file of an unknown ending, or pyarrow is not installed.
    """
    path = Path(path)
    readers = {
        ".npz": _read_npz,
        **dict.fromkeys((".csv", ".tsv", ".txt"), _read_csv),
        **dict.fromkeys((".parquet", ".pq"), _read_parquet),
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(f"{path}: a trace is a .parquet, .csv, .tsv, .txt or .npz file")
    if column is not None and reader is not _read_parquet:
        raise ConfigError(f"{path}: only Parquet files have a column to choose")
    if not path.is_file():
        raise TraceError(f"{path}: no such file")
    if reader is _read_parquet:
        return _read_parquet(path, column)
    return reader(path, None)


def _read_npz(path: Path, _column: str | None) -> Trace:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = {"ids", "offsets"} - set(arrays.files)
            if missing:
                found = ", ".join(arrays.files[:8]) or "nothing"
                raise TraceError(f"{path} has no array {sorted(missing)[0]!r}; it has {found}")
            ids, offsets = arrays["ids"], arrays["offsets"]
    except TraceError:
        raise
    # numpy and zipfile raise many kinds for a file that is damaged.
    except Exception as error:
        raise TraceError(f"{path} is no readable .npz file: {_short(error)}") from error
    return Trace(ids, offsets, source=str(path))


def _read_csv(path: Path, _column: str | None) -> Trace:
    from ._csv import read_csv

    return read_csv(path)


def _read_parquet(path: Path, column: str | None) -> Trace:
    try:
        import pyarrow
        from pyarrow import parquet, types
    except ImportError as error:
        raise ConfigError(
            f"{path} is a Parquet file: install pyarrow by `pip install 'hushtable[data]'`, or "
            "give the trace as .csv or .npz"
        ) from error

    def is_list(kind: object) -> bool:
        tests = (types.is_list, types.is_large_list, types.is_fixed_size_list)
        return any(test(kind) for test in tests)

    try:
        schema = parquet.read_schema(path)
        lists = [field.name for field in schema if is_list(field.type)]
        chosen = column or (lists[0] if len(lists) == 1 else None)
        is_flat = column is None and {"bag", "id"} <= set(schema.names)
        if is_flat:
            table = parquet.read_table(path, columns=["bag", "id"])
            columns = [_flat_column(path, table, name) for name in ("bag", "id")]
            return group_bags(columns[0], columns[1], str(path))
        if chosen is None or chosen not in lists:
            raise TraceError(
                f"{path}: which column holds the bags? Expected one of lists of integers, or "
                f"columns bag and id; found {', '.join(map(repr, schema.names[:8]))}"
                + (f", of which lists: {', '.join(map(repr, lists[:8]))}" if lists else "")
            )
        bags = parquet.read_table(path, columns=[chosen])[chosen].combine_chunks()
        if isinstance(bags, pyarrow.ChunkedArray):  # combine_chunks may leave it so
            bags = pyarrow.concat_arrays(bags.chunks) if bags.num_chunks else pyarrow.array([])
    except pyarrow.ArrowException as error:
        raise TraceError(f"{path} is no readable Parquet file: {_short(error)}") from error
    if not types.is_integer(bags.type.value_type):
        raise TraceError(
            f"{path}: column {chosen!r} holds lists of {bags.type.value_type}, but ids are integers"
        )
    if bags.null_count:
        row = int(np.argmax(bags.is_null().to_numpy(zero_copy_only=False)))
        raise TraceError(f"{path}: row {row} of column {chosen!r} is null", bag=row)
    values = bags.flatten()
    lengths = bags.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    if values.null_count:
        at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        row = int(np.searchsorted(offsets, at, side="right")) - 1
        raise TraceError(f"{path}: row {row} of column {chosen!r} holds a null id", bag=row)
    return Trace(values.to_numpy(zero_copy_only=False), offsets, source=str(path))


def _flat_column(path: Path, table: object, name: str) -> IntArray:
    from pyarrow import types

    values = table[name]  # type: ignore[index]
    if not types.is_integer(values.type):
        raise TraceError(f"{path}: column {name!r} is {values.type}, but must be integers")
    if values.null_count:
        row = int(np.argmax(values.is_null().to_numpy()))
        raise TraceError(f"{path}: row {row} of column {name!r} is null")
    return _integers(values.to_numpy(), name, str(path))


def group_bags(labels: IntArray, ids: IntArray, source: str) -> Trace:
    """A trace from each access's bag label and id; bags in the order of their first access."""
    if labels.size == 0:
        raise TraceError(f"{source} is empty: it has no accesses")
    if (np.diff(labels) < 0).any():
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        place = np.empty(len(first), dtype=np.int64)
        place[np.argsort(first)] = np.arange(len(first))
        labels = place[inverse]
        order = np.argsort(labels, kind="stable")
        labels, ids = labels[order], ids[order]
    starts = np.flatnonzero(np.diff(labels)) + 1
    return Trace(ids, np.concatenate(([0], starts, [len(ids)])), source=source)


def _short(error: BaseException, characters_max: int = 160) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= characters_max else text[: characters_max - 3] + "..."


def distinct_quantile(trace: Trace, share: float) -> int:
    """The least count that ``share`` of the bags' distinct ids do not pass."""
    counts = np.sort(trace.distinct_counts())
    return int(counts[min(math.ceil(share * len(counts)), len(counts)) - 1])
