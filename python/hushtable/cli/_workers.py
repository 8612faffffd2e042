"""Options of commands that take workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..scale.pool import Pool

__all__ = ["RayAddress", "RayInsecure", "Workers", "given_workers"]

Workers = Annotated[
    int | None,
    typer.Option(
        help="Processes of this machine that share the work, or with --ray tasks at once; as many "
        "as there are processors by default.",
        min=1,
        show_default=False,
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Share the work on a Ray cluster: HOST:PORT of its head, auto for the one that this "
        "machine is in, or local.",
        show_default=False,
    ),
]
RayInsecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="With --ray: take a cluster of several machines without token authentication.",
    ),
]


@contextlib.contextmanager
def given_workers(
    workers: int | None, address: str | None, *, insecure: bool = False
) -> Iterator[Pool | None]:
    """The pool that the options ask for; None where they ask for none."""
    if workers is None and address is None:
        yield None
        return
    from ..scale.pool import open_pool

    with open_pool(workers, address, insecure=insecure) as pool:
        yield pool
