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


def one_user(dense: str, sparse: str) -> _Features:
    """A user's numbers and rows, with commas between.

    Raises:
        ConfigError: what is no number or no row.
    """
    numbers = [_number(part) for part in dense.split(",") if part.strip()]
    rows = [_row(part) for part in sparse.split(",") if part.strip()]
    return np.array([numbers], np.float64), np.array([rows], np.int64).reshape(1, len(rows))


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
    kind = np.int64 if all(bag == 1 for bag in bags) else object
    return np.array(numbers, np.float64), np.array(rows, kind).reshape(len(rows), -1)


def _json_lines(lines: list[str], path: Path, width: int, bags: Sequence[int]) -> _Lines:
    numbers, rows = [], []
    for at, line in enumerate(lines, 1):
        where = f"{path}, line {at}"
        try:
            record = loads(line)
            dense, sparse = record["dense"], record.get("sparse", [])
            numbers.append([float(number) for number in dense])
            row = [_entry(entry) for entry in sparse]
        except (JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
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
    return None if entry is None else int(entry)


def _csv_lines(lines: list[str], path: Path, width: int, bags: Sequence[int]) -> _Lines:
    numbers, rows = [], []
    for at, cells in enumerate(csv.reader(lines), 1):
        if at == 1 and any(cell.strip() and not _is_number(cell) for cell in cells):
            continue
        where = f"{path}, line {at}"
        _check_width(min(len(cells), width), len(cells) - width, where, width, bags)
        try:
            numbers.append([_number(cell) for cell in cells[:width]])
            row = [_row(cell) if cell.strip() else None for cell in cells[width:]]
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
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
