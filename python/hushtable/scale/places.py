"""A model's folder: where the controllers of its tables are."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import _within
from ..errors import ConfigError
from .hosts import TablePlace

__all__ = ["default_place", "read_places", "write_places"]

_FILE = "controllers.json"
_FORMAT = {"format": "hushtable-model-controllers", "format_version": 1}


def read_places(folder: Path) -> list[TablePlace]:
    """Where the controllers of a folder are.

    Raises:
        ConfigError: a folder that :meth:`ModelController.create` did not make.
    """
    path = folder / _FILE
    try:
        record = json.loads(path.read_text())
        if {key: record[key] for key in _FORMAT} != _FORMAT:
            raise ValueError("of another format")
        places = [TablePlace(**place) for place in record["places"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{folder} holds no controllers of a model ({error}): `hushtable train model create`"
            " makes them"
        ) from error
    root = folder.absolute()
    return [
        dataclasses.replace(
            place,
            folder=_absolute(root, place.folder),
            key=None if place.key is None else _absolute(root, place.key),
            counter=None if place.counter is None else _absolute(root, place.counter),
        )
        for place in places
    ]


def write_places(folder: Path, places: Sequence[TablePlace]) -> None:
    """Writes :data:`_FILE`; paths within the folder relative, so that it can be moved."""
    record = {**_FORMAT, "places": [_relative(folder, place) for place in places]}
    (folder / _FILE).write_text(json.dumps(record, indent=1) + "\n")


def _relative(folder: Path, place: TablePlace) -> dict[str, Any]:
    record = {**dataclasses.asdict(place), "resources": dict(place.resources)}
    for name in ("folder", "key", "counter"):
        value = record[name]
        if value is not None and "://" not in value and Path(value).is_relative_to(folder):
            record[name] = str(Path(value).relative_to(folder))
    return record


def _absolute(folder: Path, path: str) -> str:
    return path if "://" in path else str(folder / path)


def default_place(
    folder: Path, name: str, keys: Path | str | None, counters: Path | str | None
) -> TablePlace:
    """Where a table's controller is where nobody says otherwise."""
    return TablePlace(
        name,
        str(_within.join(folder, name)),
        None if keys is None else str(_within.join(Path(keys).absolute(), f"{name}.key")),
        None
        if counters is None
        else str(_within.join(Path(counters).absolute(), f"{name}.counter")),
        key_beside=keys is None,
    )
