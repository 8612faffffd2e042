"""``hushtable certificates``: an authority and certificates for local runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from ..errors import ConfigError
from ..server import Side, make_certificates
from .output import Json, command, print_facts, print_json


@command(
    "hushtable certificates certs",
    "hushtable certificates certs --name left.internal --name 10.0.0.7",
    "hushtable certificates certs --side left",
)
def certificates(
    folder: Annotated[Path, typer.Argument(help="Where to write them.", show_default=False)],
    name: Annotated[
        list[str] | None,
        typer.Option(help="A host name or IP address of a server; repeat for more. "),
    ] = None,
    side: Annotated[
        str | None,
        typer.Option(
            help="Also make those of this side's shards and fronts, and what left or right shows "
            "the other where they predict on shares: left, right, or single of servers that are "
            "asked alone."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make a local authority, a server's certificate and a client's, valid for a year.

    For runs on one machine, demos and tests. In production use your own authority's certificates.
    """
    names = name or ["localhost", "127.0.0.1", "::1"]
    if side not in (None, "left", "right", "single"):
        raise ConfigError(f"side must be left, right or single, not {side!r}")
    files = make_certificates(folder, names, side=cast(Side | Literal["single"] | None, side))
    facts = {
        "ca": str(files.ca),
        "certificate": str(files.certificate),
        "key": str(files.key),
        "client_certificate": str(files.client_certificate),
        "client_key": str(files.client_key),
        **(
            {}
            if side is None
            else {
                "shard_certificate": str(files.shard_certificate),
                "shard_key": str(files.shard_key),
                "front_certificate": str(files.front_certificate),
                "front_key": str(files.front_key),
            }
        ),
        **(
            {}
            if files.peer_certificate is None
            else {
                "peer_certificate": str(files.peer_certificate),
                "peer_key": str(files.peer_key),
            }
        ),
        "names": names,
    }
    if json:
        print_json(facts)
    else:
        print_facts({**facts, "names": ", ".join(names)})
