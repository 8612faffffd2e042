"""``hushtable table push`` and ``hushtable model push``: the next version for running servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..push import push_bundle
from ._servers import Ca, Certificate, CertificateKey, client_tls
from .output import Json, command, print_json


@command(
    "hushtable table push BUNDLE --to https://left:4000 --token-file push.token --ca ca.pem",
    "hushtable model push BUNDLE --to https://left:4000 --token-file push.token --ca ca.pem",
)
def push(
    bundle: Annotated[Path, typer.Argument(help="The bundle's folder.", show_default=False)],
    to: Annotated[
        list[str],
        typer.Option(metavar="URL", help="A server of yours; may be repeated.", show_default=False),
    ],
    token_file: Annotated[
        Path,
        typer.Option(
            help="The token that the servers were started with (--push-token-file).",
            show_default=False,
        ),
    ],
    ca: Ca = None,
    certificate: Certificate = None,
    key: CertificateKey = None,
    json: Json = False,
) -> None:
    """Bring the next version to running servers, one after the other.

    Each checks every byte and serves it beside the last version, which goes once nobody asks
    for it.
    """
    tls = client_tls(ca, certificate, key)
    for url in to:
        taken = push_bundle(bundle, url, token_file=token_file, tls=tls)
        if json:
            print_json({"url": url, "taken": taken})
        else:
            typer.echo(f"{url}: {'taken' if taken else 'unchanged: it is served already'}")
