"""Criteo's click logs as they are published: read in order, in bounded memory.

Two forms are read: ``train.txt`` of the Kaggle challenge (and ``day_N`` of the terabyte log), which
has no header and whose fields are separated by tabs, and CSV with the header ``Id, Label, I1, ...,
I13, C1, ..., C26`` (``Id`` may be left out). The log is Criteo's; none of it is part of this
project.

    log = Criteo(Path("train.txt"))
    vocabulary = Vocabulary.of(log)          # one pass: each column's values
    for batch in log.batches(vocabulary, 2048, part="train"):
        ...
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from . import MalformedData

__all__ = ["DENSE", "SPARSE", "Batch", "Criteo", "Impression", "Part", "Vocabulary", "impressions"]

DENSE = tuple(f"I{number}" for number in range(1, 14))
SPARSE = tuple(f"C{number}" for number in range(1, 27))
#: The fields of a line of a file without a header.
_FIELDS = ("Label", *DENSE, *SPARSE)
#: Lines that a pass over a file holds at once.
_BLOCK = 65_536
#: A line has 41 short fields: what is longer is another file.
_LINE_CHARS_MAX = 4_096

Part = Literal["all", "train", "validation", "test"]


class Impression(NamedTuple):
    """One line of a log.

    Attributes:
        line: its number in the file, from 1.
        clicked: its label.
        counts: the 13 dense inputs, log(x + 1); a missing or negative count is 0.
        categories: the 26 categorical ones, as written; empty where missing.
    """

    line: int
    clicked: bool
    counts: list[float]
    categories: list[str]


def impressions(path: Path) -> Iterator[Impression]:
    """The impressions of a file, one after the other: nothing else of it is held.

    Raises:
        MalformedData: a column that is missing, another number of fields, a value that is no
            number; with the line.
        OSError: a file that cannot be read.
    """
    with path.open(newline="", encoding="utf-8") as file:
        try:
            first = file.readline(_LINE_CHARS_MAX)
            file.seek(0)
            has_header = "\t" not in first and "," in first
            lines = csv.reader(_short(file, path), delimiter="," if has_header else "\t")
            names = next(lines) if has_header else list(_FIELDS)
            if missing := [name for name in _FIELDS if name not in names]:
                raise MalformedData(f"no column {sorted(missing)[0]}: Criteo's has", path=path)
            places = [names.index(name) for name in _FIELDS]
            for line, fields in enumerate(lines, start=2 if has_header else 1):
                if len(fields) != len(names):
                    what = f"not the header's {len(names)} columns"
                    if not has_header:
                        what = f"{len(fields)} fields, expected {len(names)}"
                    raise MalformedData(what, path=path, line=line)
                yield _impression([fields[place] for place in places], path, line)
        except UnicodeDecodeError as error:
            raise MalformedData(f"not UTF-8 text ({error.reason})", path=path) from error
        except csv.Error as error:
            raise MalformedData(f"no table: {error}", path=path) from error


def _short(file: Iterable[str], path: Path) -> Iterator[str]:
    for number, text in enumerate(file, start=1):
        if len(text) > _LINE_CHARS_MAX:
            raise MalformedData(
                f"a line of {len(text):,} characters, at most {_LINE_CHARS_MAX:,} are expected",
                path=path,
                line=number,
            )
        yield text


def _impression(fields: list[str], path: Path, line: int) -> Impression:
    try:
        label, counts = int(fields[0]), [float(field or 0) for field in fields[1:14]]
        # Some counts are -1 or a little less.
        logs = [math.log1p(max(count, 0.0)) for count in counts]
    except ValueError as error:
        raise MalformedData(str(error), path=path, line=line) from error
    if label not in (0, 1) or not all(map(math.isfinite, counts)):
        raise MalformedData(
            "a label other than 0 and 1, or a count without end", path=path, line=line
        )
    return Impression(line, label == 1, logs, fields[14:])


@dataclass(frozen=True)
class Batch:
    """Impressions as a model reads them.

    Attributes:
        dense: float32 [impressions, 13], log(x + 1) of the counts.
        indices: int64 [impressions, 26], for each categorical column the row of its table.
        labels: bool [impressions].
    """

    dense: npt.NDArray[np.float32]
    indices: npt.NDArray[np.int64]
    labels: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Criteo:
    """A log on disk. Nothing of it is read before it is asked for.

    Attributes:
        path: the file.
        days: equal parts that its lines are taken to be of. The last one is held out: its first
            half is the validation part, its second half the test part. The Kaggle log has seven.
    """

    path: Path
    days: int = 7

    def __post_init__(self) -> None:
        if self.days < 1:
            raise ValueError(f"{self.days} days: at least 1")

    def count(self) -> int:
        """How many impressions it has, by one pass that parses nothing."""
        with self.path.open("rb") as file:
            head = file.readline(_LINE_CHARS_MAX)
            has_header = b"\t" not in head and b"," in head
            lines = int(bool(head) and not has_header)
            return lines + sum(1 for text in file if text.strip())

    def impressions(self, part: Part = "all", *, total: int | None = None) -> Iterator[Impression]:
        """The impressions of a part, in the order of the file; see :attr:`days`.

        Args:
            part: which.
            total: what :meth:`count` found, where it is known.
        """
        if part == "all":
            return impressions(self.path)
        total = self.count() if total is None else total
        held = total // self.days
        bounds = (0, total - held, total - held + held // 2, total)
        at = ("train", "validation", "test").index(part)
        return islice(impressions(self.path), bounds[at], bounds[at + 1])

    def batches(
        self, vocabulary: Vocabulary, size: int, *, part: Part = "all", total: int | None = None
    ) -> Iterator[Batch]:
        """Its impressions in the order of the file, ``size`` at a time; the last may be fewer.

        Args:
            vocabulary: of its categories.
            size: impressions a batch.
            part: ``"all"``, or what :attr:`days` says.
            total: what :meth:`count` found, where it is known.

        Raises:
            MalformedData: as :func:`impressions` does.
            ValueError: ``size`` or ``days`` below 1.
        """
        if size < 1:
            raise ValueError(f"batches of {size}: at least 1")
        rows = self.impressions(part, total=total)
        while block := list(islice(rows, size)):
            yield vocabulary.encode(block, self.path)


class Vocabulary:
    """Which row of its table each category is: numbered from 1, without gaps, by column.

    Row 0 of each table stands for a missing value, and for one that the vocabulary has not seen.
    A category takes four bytes here, however often it occurs.

    Args:
        values: of each of the 26 columns its categories, as numbers, ascending: uint32 [distinct].
    """

    def __init__(self, values: list[npt.NDArray[np.uint32]]) -> None:
        if len(values) != len(SPARSE):
            raise ValueError(f"{len(values)} columns, expected {len(SPARSE)}")
        self._values = values

    @classmethod
    def of(cls, log: Criteo, *, part: Part = "all") -> Vocabulary:
        """Every category of a log, by one pass over it (two for a part of it).

        Raises:
            MalformedData: as :func:`impressions` does, or a category that is no hexadecimal number
                of 32 bits.
        """
        found = [np.zeros(0, np.uint32) for _ in SPARSE]
        rows = log.impressions(part)
        while block := list(islice(rows, _BLOCK)):
            numbers = _numbers(block, log.path)
            for column, known in enumerate(found):
                seen = numbers[numbers[:, column] >= 0, column].astype(np.uint32)
                found[column] = np.union1d(known, seen)
        return cls(found)

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each column's table: its categories, and row 0."""
        return tuple(len(values) + 1 for values in self._values)

    def encode(self, block: list[Impression], path: Path) -> Batch:
        """Impressions as a model reads them.

        Raises:
            MalformedData: a category that is no hexadecimal number of 32 bits; ``path`` is named.
        """
        numbers = _numbers(block, path)
        indices = np.zeros(numbers.shape, np.int64)
        for column, values in enumerate(self._values):
            if not len(values):
                continue
            places = np.searchsorted(values, numbers[:, column])
            places[places == len(values)] = 0
            # A missing value is -1, which no category is.
            known = values[places] == numbers[:, column]
            indices[known, column] = places[known] + 1
        return Batch(
            np.array([one.counts for one in block], np.float32),
            indices,
            np.array([one.clicked for one in block], np.bool_),
        )


def _numbers(block: list[Impression], path: Path) -> npt.NDArray[np.int64]:
    """The categories as numbers, int64 [impressions, 26]; -1 where one is missing."""
    found = np.empty((len(block), len(SPARSE)), np.int64)
    for at, one in enumerate(block):
        try:
            found[at] = [_number(text) for text in one.categories]
        except ValueError as error:
            raise MalformedData(str(error), path=path, line=one.line) from None
    return found


def _number(category: str) -> int:
    if not category:
        return -1
    # int() alone would take signs, spaces and underscores too.
    if len(category) > 8 or not category.isalnum():
        raise ValueError(f"category {category[:20]!r} is no hexadecimal number of 32 bits")
    return int(category, 16)
