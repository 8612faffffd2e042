"""``hushtable shard``: cut a model into shards, and fetch what a shard's servers need of it."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..errors import ConfigError
from ..shards import ShardMap, fetch_shard, plan_shards, read_shards
from ._settings import parse_bytes
from .output import Json, command, print_facts, print_json, print_table, progress_bar
from .table import _killable

_Folder = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The model's folder.", show_default=False)
]
_Scheme = Annotated[
    Literal["pair", "onion"],
    typer.Option(help="Whose shards: those of two servers, or of a single server."),
]


@command(
    "hushtable shard plan models/clicks --memory 64GiB",
    "hushtable shard plan models/clicks --shards 4 --replicas 3 --json",
    "hushtable shard plan models/clicks --scheme onion --memory 64GiB",
)
def plan(
    model: _Folder,
    shards: Annotated[
        int | None,
        typer.Option(min=1, help="How many; as many as --memory takes, or 1.", show_default=False),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="Memory of the server of a shard: 64GiB, say.",
            show_default=False,
        ),
    ] = None,
    replicas: Annotated[int, typer.Option(min=1, help="Servers of each shard, on each side.")] = 2,
    versions: Annotated[
        int,
        typer.Option(min=1, help="Versions that a server holds at once while it changes."),
    ] = 2,
    scheme: _Scheme = "pair",
    parameters: Annotated[
        Literal["n4096_128", "ive_paper"] | None,
        typer.Option(help="Parameter set, of --scheme onion; n4096_128 by default."),
    ] = None,
    json: Json = False,
) -> None:
    """Cut a model's tables into shards of equal size, and write the map into its bundle.

    The map is shards.json, and no part of the model's version. All shards and fronts of a side must
    have the same one; the other side may have another. A side takes shards times replicas servers.

    With --scheme onion it is shards.onion.json, of servers that are asked alone: their shards hold
    columns of the tables as they are prepared. Prepare tables before, so that each shard is sent
    its part of the prepared file (hushtable model prepare).
    """
    memory_bytes = None if memory is None else parse_bytes(memory)
    made = plan_shards(
        model,
        scheme=scheme,
        parameters=parameters,
        shards=shards,
        memory_bytes=memory_bytes,
        versions=versions,
        replicas=replicas,
    )
    if json:
        print_json(_record(model, made))
        return
    _print_map(model, made)
    of = "" if scheme == "pair" else f" --scheme {scheme}"
    print(f"fetch a shard: hushtable shard fetch {model} -o FOLDER{of} --shard 0")


@command("hushtable shard show models/clicks", "hushtable shard show models/clicks --json")
def show(model: _Folder, scheme: _Scheme = "pair", json: Json = False) -> None:
    """Print which rows of which tables lie on which shard."""
    found = read_shards(model, scheme=scheme)
    if json:
        print_json(_record(model, found))
    else:
        _print_map(model, found)


@command(
    "hushtable shard fetch /mnt/models/clicks -o /srv/models --shard 3",
    "hushtable shard fetch s3://models/clicks -o /srv/models --front",
    "hushtable shard fetch s3://models/clicks -o /srv/models --scheme onion --shard 0",
)
def fetch(
    source: Annotated[
        str,
        typer.Argument(
            help="The model with its map: a folder, an http(s) URL, or one of what fsspec opens "
            "(pip install 'hushtable[remote]').",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The folder of fetched models.", show_default=False),
    ],
    shard: Annotated[
        int | None, typer.Option(min=0, help="Fetch this shard's rows.", show_default=False)
    ] = None,
    front: Annotated[
        bool, typer.Option("--front", help="Fetch what a front needs: no rows.")
    ] = False,
    scheme: _Scheme = "pair",
    version: Annotated[
        str | None,
        typer.Option(
            metavar="HEX",
            help="The model's version, all 64 digits: refuse a source that holds another.",
            show_default=False,
        ),
    ] = None,
    follow_redirects: Annotated[
        bool,
        typer.Option(
            "--follow-redirects", help="Go to other hosts, too, where the source sends there."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Copy what a shard, or a front, needs of a model, and check every byte of it.

    Killed at any point, the same command goes on where it stopped. The copy has its name,
    FOLDER/NAME-VERSION, once it is whole; that is the last line printed. It is as long as the model
    for ls, but takes only the shard's part of it on the disk.
    """
    if front == (shard is not None):
        raise ConfigError("name what to fetch: --shard K, or --front")
    started = time.perf_counter()
    with progress_bar("fetching", shown=not json, of_bytes=True) as progress, _killable():
        fetched = fetch_shard(
            source,
            output,
            shard=shard,
            scheme=scheme,
            version=version,
            follow_redirects=follow_redirects,
            progress=progress,
        )
    seconds = round(time.perf_counter() - started, 3)
    if json:
        record = dataclasses.asdict(fetched)
        print_json({**record, "path": str(fetched.path), "seconds": seconds})
        return
    print_facts(
        {
            "model": fetched.name,
            "version": fetched.version,
            "part": fetched.part,
            "bytes": f"{fetched.bytes:,}, of which {fetched.copied_bytes:,} copied now",
        }
    )
    print(fetched.path)


def _record(model: Path, of: ShardMap) -> dict[str, Any]:
    return {"path": str(model), **dataclasses.asdict(of)}


def _print_map(model: Path, of: ShardMap) -> None:
    sizes = [shard.bytes for shard in of.shards]
    servers = f"{len(sizes) * of.replicas:,}{' a side' if of.scheme == 'pair' else ''}"
    print_facts(
        {
            "model": of.name,
            "version": of.model,
            "path": str(model),
            "map": of.version,
            "scheme": of.scheme if of.parameters is None else f"{of.scheme}, {of.parameters}",
            "shards": f"{len(sizes):,} of {min(sizes):,} to {max(sizes):,} bytes a version",
            "servers": f"{servers}: {of.replicas} of each shard",
        }
    )
    tables = {table.name: table for table in of.tables}
    rows = []
    for number, shard in enumerate(of.shards):
        for part in shard.parts:
            fetched = "its rows"
            if of.scheme == "pair" and tables[part.table].has_layout:
                fetched = "whole, for its layout"
            elif tables[part.table].prepared:
                fetched = "its rows, and its part of the prepared file"
            rows.append(
                [
                    str(number),
                    part.table,
                    f"{part.first:,}",
                    f"{part.end:,}",
                    f"{(part.end - part.first) * tables[part.table].row_bytes:,}",
                    fetched,
                ]
            )
    print_table(["shard", "table", "first row", "end", "bytes", "fetched"], rows)
