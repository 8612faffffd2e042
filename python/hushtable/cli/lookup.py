"""``hushtable lookup``: rows by id, privately."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import typer

from ..client import MAX_LAYOUT_BYTES, PARAMETER_SETS, Client, ClientOptions, connect
from ..client.connecting import Scheme
from ..errors import ConfigError
from ._servers import LEFT, RIGHT, Servers, with_servers
from .output import Json, command, print_json


@command(
    "hushtable lookup 3 14 159 --left https://a:4000 --right https://b:4000 --ca ca.pem",
    "hushtable lookup 3 --left https://a:4000 --left https://a2:4000 "
    "--right https://b:4000 --right https://b2:4000 --ca ca.pem",
    "hushtable lookup - --max-ids 64 --out rows.npy < ids.txt",
    "hushtable lookup 3 14 159 --bag",
    "hushtable lookup 3 14 159 --server https://a:4000 --ca ca.pem --max-ids 4",
)
@with_servers()
def lookup(
    servers: Servers,
    context: typer.Context,
    ids: Annotated[
        list[str], typer.Argument(help="Row ids, or - to read them from standard input.")
    ],
    max_ids: Annotated[
        int | None,
        typer.Option(
            help="Keys to send, whatever the number of ids. By default the next power of two, "
            "which tells the servers the logarithm of that number.",
            envvar="HUSHTABLE_MAX_IDS",
        ),
    ] = None,
    bag: Annotated[
        bool,
        typer.Option(
            "--bag",
            help="Ask by the table's layout: what is sent is the same for all bags of ids. Ids "
            "that do not fit are dropped, and named.",
        ),
    ] = False,
    prg: Annotated[
        str, typer.Option(help="Two servers: generator of the keys.", envvar="HUSHTABLE_PRG")
    ] = "aes128",
    parameter_set: Annotated[
        list[str] | None,
        typer.Option(
            help="A parameter set that a single server may serve by; may be repeated. Default: "
            f"{PARAMETER_SETS[0]}. ive_paper has less than 128 bits by the 2024 guidelines.",
            envvar="HUSHTABLE_PARAMETER_SET",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the rows to this .npy file.")] = None,
    json: Json = False,
) -> None:
    """Fetch rows from two servers, or from one, so that none learns which.

    To a single server every run makes new keys and uploads them: for many lookups, stay connected
    (hushtable.connect in Python). Default: two servers on this machine, at ports 4000 and 5000.
    """
    wanted = _parse(sys.stdin.read().split() if ids == ["-"] else ids)
    if bag and max_ids is not None:
        raise ConfigError("with --bag the layout fixes what is sent: leave --max-ids out")
    if servers.server and bag:
        raise ConfigError("--bag is for two servers: leave it out with --server")
    # The environment's are for whatever is asked.
    typed = {name for name in ("prg", "parameter_set") if _is_typed(context, name)}
    if servers.server and "prg" in typed:
        raise ConfigError("--prg is for two servers: leave it out with --server")
    if not servers.server and "parameter_set" in typed:
        raise ConfigError("--parameter-set is for a single server: name it by --server")
    where = servers.where
    if not servers.server:
        where |= {"left": servers.left or [LEFT], "right": servers.right or [RIGHT]}
    own: dict[str, Any]
    if servers.server:
        own = {"parameter_sets": parameter_set or PARAMETER_SETS}
    else:
        # A layout that is not asked by need not be fetched.
        own = {"prg": prg, "max_layout_bytes": MAX_LAYOUT_BYTES if bag else 0}
    options = ClientOptions(**servers.limits, max_ids=max_ids, **own)
    scheme: Scheme = "onion" if servers.server else "pair"
    with cast(Client, connect(**where, scheme=scheme, options=options)) as client:
        if bag:
            found = client.lookup_bag(wanted)
            rows, kept, stats = found.rows, found.kept, found.stats
        else:
            rows, stats = client.lookup_with_stats(wanted)
            kept = np.ones(wanted.shape, dtype=np.bool_)
        info = client.info
    if out is not None:
        np.save(out, rows)
    if json:
        record: dict[str, object] = {
            "table": dataclasses.asdict(info),
            "ids": wanted.tolist(),
            "stats": dataclasses.asdict(stats),
        }
        if bag:
            record["kept"] = kept.tolist()
        if out is None:
            # JSON has no NaN: where a row holds one, it says null.
            values = rows.astype(object)
            values[~np.isfinite(rows)] = None
            record["rows"] = values.tolist()
        else:
            record["out"] = str(out)
        print_json(record)
        return
    if out is None:
        with np.printoptions(precision=4, suppress=True, threshold=16, edgeitems=4, linewidth=120):
            for id_, row, is_kept in zip(wanted.tolist(), rows, kept, strict=True):
                print(f"{id_}\t{row if is_kept else 'dropped'}")
    else:
        print(f"{len(rows)} rows x {info.dim} written to {out}")
    if not kept.all():
        dropped = np.unique(wanted[~kept])
        print(f"# dropped for want of room: {_clipped(dropped.tolist())}", file=sys.stderr)
    sent = f"{stats.keys} keys a server" if not servers.server else f"{stats.keys} queries"
    print(
        f"# {sent}, {stats.bytes_up:,} B up, {stats.bytes_down:,} B down, "
        f"{stats.seconds * 1e3:.1f} ms",
        file=sys.stderr,
    )


def _is_typed(context: typer.Context, option: str) -> bool:
    """Whether the arguments give an option, and not the environment or nobody."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def _clipped(ids: list[int], most: int = 16) -> str:
    text = ", ".join(str(id_) for id_ in ids[:most])
    return text if len(ids) <= most else f"{text} and {len(ids) - most} more"


def _parse(words: list[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    ids = []
    for word in words:
        for part in word.split(","):
            try:
                ids.append(int(part))
            except ValueError:
                raise ConfigError(f"{part!r} is not an id: ids are whole numbers") from None
    if any(not -(1 << 63) <= id_ < 1 << 63 for id_ in ids):
        raise ConfigError("an id is too large: tables have at most 4,294,967,296 rows")
    return np.array(ids, dtype=np.int64)
