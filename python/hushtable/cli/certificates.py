"""``hushtable certificates``: an authority and certificates for local runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..server import make_certificates
from .output import Json, examples, print_facts, print_json


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog=examples(
            "hushtable certificates certs",
            "hushtable certificates certs --name left.internal --name 10.0.0.7",
        )
    )(certificates)


def certificates(
    folder: Annotated[Path, typer.Argument(help="Where to write them.", show_default=False)],
    name: Annotated[
        list[str] | None,
        typer.Option(help="A host name or IP address of a server; repeat for more. "),
    ] = None,
    json: Json = False,
) -> None:
    """Make a local authority, a server's certificate and a client's, valid for a year.

    For runs on one machine, demos and tests. In production use your own authority's certificates.
    """
    names = name or ["localhost", "127.0.0.1", "::1"]
    files = make_certificates(folder, names)
    facts = {
        "ca": str(files.ca),
        "certificate": str(files.certificate),
        "key": str(files.key),
        "client_certificate": str(files.client_certificate),
        "client_key": str(files.client_key),
        "names": names,
    }
    if json:
        print_json(facts)
    else:
        print_facts({**facts, "names": ", ".join(names)})
