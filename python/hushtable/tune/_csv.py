"""Traces as text; see :func:`hushtable.tune.read_trace` for the rules."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np

from .trace import IntArray, Trace, TraceError, group_bags

#: Lines parsed at once: large enough that the loop over chunks costs nothing.
_LINES = 1 << 15
_SEPARATORS = str.maketrans({",": " ", "\t": " "})
_ALLOWED = dict.fromkeys(map(ord, "0123456789-, \t\r\n"))
_INT64_MAX = 2**63 - 1


def read_csv(path: Path) -> Trace:
    """Reads a text file of either kind."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            first = next((line for line in lines if line.strip()), "")
        names = [name.strip().strip('"').lower() for name in first.replace("\t", ",").split(",")]
        if {"bag", "id"} <= set(names):
            labels, ids = _read_columns(path, names, "\t" if "\t" in first else ",")
            return group_bags(labels, ids, str(path))
        if any(character.isalpha() for character in first):
            raise TraceError(
                f"{path}: line 1 is neither a header with columns bag and id nor a bag of ids: "
                f"{_clip(first.strip())}"
            )
        return _read_bags(path)
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is no text file: {error.reason}") from error


def _read_columns(path: Path, names: list[str], delimiter: str) -> tuple[IntArray, IntArray]:
    columns = (names.index("bag"), names.index("id"))
    try:
        with warnings.catch_warnings():
            # A file with nothing but its header is told apart below.
            warnings.simplefilter("ignore", UserWarning)
            table = np.loadtxt(
                itertools.islice(_filled_lines(path), 1, None),
                dtype=np.int64,
                delimiter=delimiter,
                usecols=columns,
                comments=None,
                ndmin=2,
            )
    except ValueError:
        _find_bad_cell(path, names, columns, delimiter)
    table = table.reshape(-1, 2)
    return table[:, 0], np.ascontiguousarray(table[:, 1])


def _filled_lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        yield from (line for line in lines if line.strip())


def _find_bad_cell(
    path: Path, names: list[str], columns: tuple[int, int], delimiter: str
) -> NoReturn:
    is_header = True
    with path.open(encoding="utf-8-sig", newline="") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            if is_header:
                is_header = False
                continue
            cells = line.rstrip("\r\n").split(delimiter)
            if len(cells) <= max(columns):
                raise TraceError(
                    f"{path}: line {number} has {len(cells)} columns, the header {len(names)}"
                )
            for column in columns:
                _parse(path, number, cells[column].strip(), names[column])
    raise TraceError(f"{path} cannot be read as columns bag and id")


def _read_bags(path: Path) -> Trace:
    ids: list[IntArray] = []
    lengths: list[int] = []
    with path.open(encoding="utf-8-sig", newline="") as lines:
        number = 1
        while chunk := list(itertools.islice(lines, _LINES)):
            text = "".join(chunk)
            bags = [line.translate(_SEPARATORS).split() for line in chunk]
            tokens = list(itertools.chain.from_iterable(bags))
            try:
                # int() would take 1_000 and digits of other scripts too.
                if text.translate(_ALLOWED):
                    raise ValueError
                ids.append(np.array(list(map(int, tokens)), dtype=np.int64))
            except (ValueError, OverflowError):
                _find_bad_token(path, number, bags)
            lengths.extend(len(bag) for bag in bags if bag)
            number += len(chunk)
    if not lengths:
        raise TraceError(f"{path} is empty: it has no bags")
    return Trace(np.concatenate(ids), np.concatenate(([0], np.cumsum(lengths))), source=str(path))


def _find_bad_token(path: Path, number: int, bags: list[list[str]]) -> NoReturn:
    for line, bag in enumerate(bags, number):
        for token in bag:
            _parse(path, line, token, "id")
    raise TraceError(f"{path}: lines {number} to {number + len(bags) - 1} hold more than integers")


def _parse(path: Path, line: int, token: str, name: str) -> None:
    digits = token.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise TraceError(f"{path}: line {line} has {name} {_clip(token)}, which is no integer")
    if len(digits) > 19 or int(digits) > _INT64_MAX:
        raise TraceError(f"{path}: line {line} has {name} {_clip(token)}, over the limit of 2^63-1")


def _clip(text: str, characters_max: int = 40) -> str:
    return repr(text if len(text) <= characters_max else text[:characters_max] + "...")
