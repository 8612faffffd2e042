"""A model's source: which version it holds, and how many shards its map has for a scheme."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .. import _native
from .._fetch.source import MAPS, first_files, no_file, open_source
from ..errors import FetchError, ShardMapError
from .errors import OtherSide

__all__ = ["Source", "read_source"]


@dataclass(frozen=True, slots=True)
class Source:
    """What a source held when it was read.

    Attributes:
        place: the folder or URL.
        shown: the same as it may be printed: a URL may hold a password.
        name: the model's name.
        version: its version, in hex.
        shards: how many its map has.
    """

    place: str
    shown: str
    name: str
    version: str
    shards: int


def read_source(place: str, scheme: str = "pair") -> Source:
    """Reads the map of the model at ``place``, a folder or a URL, and checks that it is of it.

    Args:
        place: where the model is.
        scheme: ``pair`` or ``onion``: each has a map of its own.

    Raises:
        FetchError: nothing that can be read, or no map.
        ShardMapError: a map that is damaged or of another version.
        OtherSide: a map that names sides: it is of a model, and each side has servers of its own.
        ConfigError: a URL that nothing installed opens.
    """
    opened = open_source(place)
    texts: list[bytes] = []
    for path, bytes_max in first_files(scheme).items():
        facts = opened.facts(path)
        if facts is None:
            raise no_file(opened.shown, path)
        if facts.bytes > bytes_max:
            raise FetchError(f"{opened.shown}: {path} has {facts.bytes} bytes, over {bytes_max}")
        texts.append(opened.read(path, 0, facts.bytes))
    check_sides(texts[1], f"{opened.shown}: {MAPS[scheme]}")
    try:
        found = json.loads(_native.shard_heads(texts[0], texts[1], scheme))["map"]
    except ShardMapError as error:
        raise ShardMapError(f"{opened.shown}: {error}") from error
    return Source(place, opened.shown, found["name"], found["model"], len(found["shards"]))


def check_sides(text: bytes, shown: str) -> None:
    """Whether a map speaks of sides; what else is wrong with it is not looked at.

    Raises:
        OtherSide: it does.
    """
    try:
        map_ = json.loads(text)
    except ValueError:
        return
    if sides := sorted(set(_sides(map_))):
        raise OtherSide(
            f"{shown} names {' and '.join(sides)}: a map says which rows are on which "
            "shard, and left and right are two clusters of two operators; make it again with "
            "`hushtable shard plan`, once for both",
            side=sides[-1],
        )


def _sides(value: Any) -> Iterator[str]:
    """The sides that entries of the map speak of; tables may be named as they like."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            if name in ("left", "right"):
                yield name
            elif name in ("side", "sides"):
                yield from (str(one) for one in (below if isinstance(below, list) else [below]))
            yield from _sides(below)
    elif isinstance(value, list):
        for below in value:
            yield from _sides(below)
