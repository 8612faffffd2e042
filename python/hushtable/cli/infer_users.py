"""Users on the command line and in files: numbers and rows of a recommendation model."""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections.abc import Sequence
from json import JSONDecodeError, loads
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BadFeatures, ConfigError
from ..infer import Predictions, SharesPredictions
from ..infer._shares import ABSENT, flat_indices
from .output import print_json, print_table

_Features = tuple[npt.NDArray[np.float64], npt.NDArray[Any]]
_Lines = tuple[list[list[float]], list[list[int | None]]]


def one_user(dense: str, sparse: str, width: int, bags: Sequence[int]) -> _Features:
    """A user's numbers and rows, with commas between; a blank among rows is no id, as in CSV.

    Args:
        dense: the numbers.
        sparse: the rows.
        width: numbers that the model takes of each user.
        bags: rows that it takes of each sparse feature.

    Raises:
        ConfigError: what is no number or no row, or more or fewer than the model takes.
    """
    numbers = [_number(part) for part in dense.split(",") if part.strip()]
    cells = sparse.split(",") if sparse.strip() else []
    if len(cells) == sum(bags) + 1 and not cells[-1].strip():
        # A comma after the last row begins no other.
        cells.pop()
    where = "the user"
    _check_width(len(numbers), len(cells), where, width, bags)
    rows = _within([_row(cell) if cell.strip() else None for cell in cells], bags, where)
    return np.array([numbers], np.float64), _row_array([rows])


def load_users(path: Path, dense: int, bags: Sequence[int]) -> _Features:
    """The users of a file, CSV or JSON lines; ``-`` is standard input.

    Rows are whole numbers, or None where a feature's bag has room for more ids than a user has.

    Args:
        path: the file.
        dense: numbers that the model takes of each user.
        bags: rows that it takes of each sparse feature.

    Raises:
        ConfigError: a file that cannot be read, or holds no users of this model.
    """
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read users from {path}: {error}") from error
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise ConfigError(f"{path} holds no users")
    parse = _json_lines if lines[0].lstrip().startswith("{") else _csv_lines
    numbers, rows = parse(lines, path, dense, bags)
    return np.array(numbers, np.float64), _row_array(rows)


def _row_array(rows: list[list[int | None]]) -> npt.NDArray[Any]:
    """Users' rows, as objects where one is None or so large that whoever takes it names it."""
    try:
        found: npt.NDArray[Any] = np.array(rows, np.int64)
    except (OverflowError, TypeError):
        found = np.array(rows, object)
    return found.reshape(len(rows), -1)


def _json_lines(lines: list[str], path: Path, width: int, bags: Sequence[int]) -> _Lines:
    numbers, rows = [], []
    for at, line in enumerate(lines, 1):
        where = f"{path}, line {at}"
        try:
            record = loads(line)
            dense, sparse = record["dense"], record.get("sparse", [])
            numbers.append([float(number) for number in dense])
            row = [_entry(entry) for entry in sparse]
        except (
            JSONDecodeError,
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            OverflowError,
        ) as error:
            raise ConfigError(
                f'{where}: {error}; expected {{"dense": [...], "sparse": [...]}}'
            ) from error
        rows.append(_within(row, bags, where))
        _check_width(len(numbers[-1]), len(rows[-1]), where, width, bags)
    return numbers, rows


def _entry(entry: Any) -> Any:
    """A row, None, or a list of such: a user's rows of one feature."""
    if isinstance(entry, list):
        return [_entry(one) for one in entry]
    if entry is not None and type(entry) is not int:
        # What int() would take, 1.9 or true, is another row than the user's.
        raise ConfigError(f"{entry!r} is no row: rows are whole numbers")
    return entry


def _csv_lines(lines: list[str], path: Path, width: int, bags: Sequence[int]) -> _Lines:
    numbers, rows = [], []
    for at, cells in enumerate(csv.reader(lines), 1):
        named = [cell for cell in cells if cell.strip()]
        if at == 1 and named and not any(map(_is_number, named)):
            continue
        where = f"{path}, line {at}"
        _check_width(min(len(cells), width), len(cells) - width, where, width, bags)
        try:
            numbers.append([_number(cell) for cell in cells[:width]])
            row = [_row(cell) if cell.strip() else None for cell in cells[width:]]
        except ConfigError as error:
            # One name in a line of numbers is a user's, who is not to be lost.
            header = " (a header would hold no number)" if at == 1 else ""
            raise ConfigError(f"{where}: {error}{header}") from error
        rows.append(_within(row, bags, where))
    if not numbers:
        raise ConfigError(f"{path} holds no users, only a header")
    return numbers, rows


def _within(row: list[Any], bags: Sequence[int], where: str) -> list[int | None]:
    """The rows one after the other, as many as bags have room for."""
    is_flat = not any(isinstance(entry, list) for entry in row)
    if is_flat and (len(row) != sum(bags) or None not in row):
        # Of another width, or negative: whoever takes it says so.
        return row
    try:
        found = flat_indices(row, bags, where)
    except BadFeatures as error:
        raise ConfigError(str(error)) from error
    return [None if index == ABSENT else index for index in found]


def _check_width(dense: int, sparse: int, where: str, width: int, bags: Sequence[int]) -> None:
    if (dense, sparse) != (width, sum(bags)):
        raise ConfigError(
            f"{where} has {dense} numbers and {max(sparse, 0)} rows: the model takes {width} "
            f"numbers and {sum(bags)} rows"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(text: str) -> float:
    if not _is_number(text):
        raise ConfigError(f"{text!r} is no number")
    return float(text)


def _row(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{text!r} is no row: rows are whole numbers") from None


def print_logits(found: Predictions | SharesPredictions, costs: str | None, as_json: bool) -> None:
    """Prints each user's logit and probability; what they cost goes to standard error."""
    if as_json:
        print_json(
            {
                "logits": found.logits.tolist(),
                "probabilities": found.probabilities.tolist(),
                "stats": None if found.stats is None else dataclasses.asdict(found.stats),
            }
        )
        return
    pairs = zip(found.logits, found.probabilities, strict=True)
    print_table(
        ["user", "logit", "probability"],
        [[str(user), f"{logit:.4f}", f"{share:.4f}"] for user, (logit, share) in enumerate(pairs)],
    )
    if costs is not None:
        print(costs, file=sys.stderr)
