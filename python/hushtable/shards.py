"""Shards of a model: a map of which rows lie on which servers, and what each of them fetches.

A model that is too large for one server's memory, or that one server does not scan fast enough, is
cut into shards. The map lies in the model's bundle, and leads servers of both sides alike::

    from hushtable.shards import fetch_shard, plan_shards

    plan_shards("models/clicks", memory_bytes=64 << 30)
    fetched = fetch_shard("s3://models/clicks", "/srv/models", shard=3)
    print(fetched.path)  # /srv/models/clicks-0f3c9a1b2c3d4e5f

Servers that are asked alone have a map of their own beside it, ``shards.onion.json``: their shards
hold columns of the tables as they are prepared. All here takes ``scheme="onion"`` for it.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _native
from ._fetch.fetching import Fetch
from ._fetch.source import first_files, open_source
from .errors import ConfigError
from .table import PARAMETERS, Progress

__all__ = [
    "Fetched",
    "Shard",
    "ShardMap",
    "ShardPart",
    "ShardedTable",
    "fetch_shard",
    "plan_shards",
    "read_shards",
    "verify_shard",
]

_Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class ShardPart:
    """A range of one table's rows.

    Attributes:
        table: the table's name.
        first: the first row.
        end: the row after the last.
    """

    table: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Shard:
    """What one shard holds.

    Attributes:
        bytes: bytes of its rows in memory, of one version: of a server that is asked alone, as they
            are prepared.
        parts: its ranges, one a table at most.
    """

    bytes: int
    parts: tuple[ShardPart, ...]


@dataclass(frozen=True, slots=True)
class ShardedTable:
    """A table as a map has it.

    Attributes:
        name: its name.
        version: what its content hashes to.
        rows: how many rows.
        row_bytes: bytes of one, as served.
        patched: True where some of its rows were changed by a patch.
        has_layout: True where bins are served of it; each shard's servers of a pair fetch it whole
            then.
        prepared: True where each shard of a server that is asked alone takes its part of the
            prepared file; where not, it prepares its rows at each start.
    """

    name: str
    version: str
    rows: int
    row_bytes: int
    patched: bool
    has_layout: bool
    prepared: bool = False


@dataclass(frozen=True, slots=True)
class ShardMap:
    """Which rows lie on which shard: every row of every table on one.

    Attributes:
        name: the model's name.
        model: the version of the model that it is of.
        version: what the map itself hashes to; servers with the same one mean the same by a
            shard's number.
        scheme: ``pair``, or ``onion`` for servers that are asked alone.
        parameters: the parameter set of servers that are asked alone; None of a pair.
        replicas: servers of each shard, of a pair on each side, that it was planned for.
        tables: the model's tables.
        shards: the shards, numbered from 0.
    """

    name: str
    model: str
    version: str
    scheme: str
    parameters: str | None
    replicas: int
    tables: tuple[ShardedTable, ...]
    shards: tuple[Shard, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """What :func:`fetch_shard` made, or found.

    Attributes:
        path: the folder, for ``hushtable serve``.
        name: the model's name.
        version: the model's version.
        part: ``shard-0`` and so on, or ``front``; of a server that is asked alone
            ``onion-shard-0``.
        bytes: bytes of the model that it has.
        copied_bytes: bytes of them that this call copied: 0 where it was there already.
    """

    path: Path
    name: str
    version: str
    part: str
    bytes: int
    copied_bytes: int


def plan_shards(
    model: _Path,
    *,
    scheme: str = "pair",
    parameters: str | None = None,
    shards: int | None = None,
    memory_bytes: int | None = None,
    versions: int = 2,
    replicas: int = 2,
) -> ShardMap:
    """Cuts a model into shards of equal size, and writes the map into its bundle in one step.

    The map is no part of the model's version. The same model and arguments make the same map.

    Args:
        model: the model's folder.
        scheme: ``pair``, or ``onion`` for servers that are asked alone. Their tables are prepared
            before, if at all: the map says of which prepared files shards take their part.
        parameters: of ``onion``, the parameter set; ``n4096_128`` by default.
        shards: how many; as many as ``memory_bytes`` takes by default, or one.
        memory_bytes: memory of the server of a shard; of ``onion`` with a GiB of clients' keys.
        versions: how many versions such a server holds at once: two, while it changes to the next.
        replicas: servers of each shard, on each side: what deployments are made by.

    Raises:
        ConfigError: a number below 1, or no number at all; a scheme or a set that there is not.
        PreparedError: a prepared file that is damaged, or of another version or set.
        ShardMapError: numbers that make no map of this model.
        ModelError, TableError: a model that cannot be opened, a table whose patch is damaged, a
            table of format 1.
    """
    _check(shards=shards, memory_bytes=memory_bytes, versions=versions, replicas=replicas)
    first_files(scheme)
    if scheme == "pair" and parameters is not None:
        raise ConfigError('parameters are of servers that are asked alone: give scheme="onion" too')
    planned = _native.plan_shards(
        Path(model),
        shards=shards,
        memory_bytes=memory_bytes,
        versions=versions,
        replicas=replicas,
        parameters=None if scheme == "pair" else parameters or PARAMETERS,
    )
    return _map(json.loads(planned))


def read_shards(model: _Path, *, scheme: str = "pair") -> ShardMap:
    """The map in a model's bundle, for ``pair`` or for ``onion``.

    Raises:
        ConfigError: no scheme of that name.
        ShardMapError: there is none, or one that is damaged or of another version of the model.
        ModelError: no model.
    """
    return _map(json.loads(_native.read_shards(Path(model), scheme)))


def fetch_shard(
    source: _Path,
    folder: _Path,
    *,
    shard: int | None,
    scheme: str = "pair",
    version: str | None = None,
    follow_redirects: bool = False,
    progress: Progress | None = None,
) -> Fetched:
    """Copies what one shard of a model needs, or a front, which has no rows.

    What is copied opens as the model does: files have the length of the model's own, with holes
    where another shard's rows are. Cut off at any point, the same call goes on where it stopped.
    Every byte is checked against the model's version before the copy gets its name,
    ``folder/NAME-VERSION`` with the first 16 digits of the version; one that is there already is
    not copied again.

    Args:
        source: a model's folder, or its URL: ``https://``, or ``s3://`` and what else fsspec opens
            (``pip install 'hushtable[remote]'``). The map must be in it.
        folder: where fetched models are kept; of each version one part. ``hushtable serve --watch``
            takes the newest of them.
        shard: which shard; None for a front.
        scheme: ``pair``, or ``onion`` for a server that is asked alone: its rows, and its part of
            the prepared files that the map names.
        version: the model's version, 64 hexadecimal digits: a source of another is refused. None
            takes whichever is there.
        follow_redirects: go to other hosts, too, where an HTTP server sends there.
        progress: called with (bytes done, bytes): of copying and checking together.

    Raises:
        ConfigError: a URL that nothing installed opens, a shard that is no number, a version that
            is none.
        VersionMismatch: the source holds another version than ``version``.
        ShardMapError: a shard that there is not, or a map that is damaged or of another version.
        FetchError: a source that cannot be read or that sends elsewhere, or a disk that cannot be
            written.
        SourceChanged: the source changed meanwhile: the next call begins anew.
        NoRoom: the disk has less room than it takes.
        PartExists: the folder has another part of this version.
        DamagedTable: what the source holds is not what the model's version says, or of prepared
            files not what the map says.
    """
    if shard is not None and (isinstance(shard, bool) or not isinstance(shard, int)):
        raise ConfigError(f"shard must be a whole number, or None for a front, not {shard!r}")
    if version is not None and not re.fullmatch("[0-9a-f]{64}", version):
        raise ConfigError(f"version must have 64 hexadecimal digits, not be {version!r}")
    opened = open_source(source, follow_redirects=follow_redirects)
    fetch = Fetch(opened, Path(folder), scheme, shard, version, progress)
    copied = fetch.run()
    of = fetch.map
    return Fetched(
        copied.path, of["name"], of["model"], fetch.part, copied.bytes, copied.copied_bytes
    )


def verify_shard(
    model: _Path, *, shard: int | None, scheme: str = "pair", progress: Progress | None = None
) -> None:
    """Reads what a shard has of a model, or a front, and checks it against the model's version.

    Args:
        model: a model's folder, or what :func:`fetch_shard` made.
        shard: which shard; None for a front.
        scheme: ``pair`` or ``onion``.
        progress: called with (bytes of rows done, bytes of rows).

    Raises:
        DamagedTable, ModelError, PreparedError: the first damage.
        ShardMapError: a shard or a map that there is not.
        TableError: a table that cannot be opened.
    """
    if shard is not None:
        _check(shard=shard, least=0)
    _native.verify_shard(Path(model), shard, scheme, progress=progress)


def _check(*, least: int = 1, **numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is None:
            continue
        is_whole = isinstance(number, int) and not isinstance(number, bool)
        if not is_whole or not least <= number < 1 << 63:
            raise ConfigError(f"{name} must be a whole number, {least} or more, not {number!r}")


def _map(found: dict[str, Any]) -> ShardMap:
    shards = (
        Shard(shard["bytes"], tuple(ShardPart(**part) for part in shard["parts"]))
        for shard in found["shards"]
    )
    tables = tuple(ShardedTable(**table) for table in found["tables"])
    return ShardMap(**{**found, "tables": tables, "shards": tuple(shards)})
