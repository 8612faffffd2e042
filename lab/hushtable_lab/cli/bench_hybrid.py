"""``hushtable bench hybrid``: a private prediction of the paper's networks, offline and online."""

from __future__ import annotations

import json as json_
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from hushtable.cli.output import Json, command, note, print_bench, print_json
from hushtable.errors import ConfigError

from .. import characterise as characterise


@command(
    "hushtable bench hybrid --network resnet32 --size 32 --garbler server --json",
    "hushtable bench hybrid --network resnet18 --size 64 --garbler client --cost costs",
    "hushtable bench hybrid --network lenet --up-mbps 500 --down-mbps 500",
    "hushtable bench hybrid --network resnet32 --verify-uploads --json",
)
def hybrid(
    network: Annotated[str, typer.Option(help="resnet32, resnet18, vgg16 or lenet.")] = "resnet32",
    size: Annotated[int, typer.Option(help="Rows and columns of an image: 32 or 64.")] = 32,
    garbler: Annotated[str, typer.Option(help="Who garbles: server or client.")] = "server",
    parallel: Annotated[
        str, typer.Option(help="How layers are encrypted: layer (all at once) or sequential.")
    ] = "layer",
    runs: Annotated[int, typer.Option(help="Predictions, each by a new precompute.")] = 1,
    parts: Annotated[
        bool, typer.Option(help="Also run both parties in this process, for the time of each part.")
    ] = True,
    up_mbps: Annotated[
        float | None, typer.Option(help="Megabits a second to the server, at most.")
    ] = None,
    down_mbps: Annotated[
        float | None, typer.Option(help="Megabits a second from the server, at most.")
    ] = None,
    verify_uploads: Annotated[
        bool, typer.Option("--verify-uploads", help="The client proves its uploads.")
    ] = False,
    cost: Annotated[
        Path | None,
        typer.Option(
            help="A folder for the cost file, NETWORK-SIZE-GARBLER.json.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Predict privately, between two processes over loopback TLS: seconds, offline and online.

    Each process has a core of its own. Of several runs the fastest counts. The details are seconds
    by part (homomorphic encryption, garbling, evaluating, oblivious transfer, shares), bytes each
    way, what each party keeps of a precompute, the most memory, and what Garimella et al. measured.
    Weights are made up, which changes neither times nor bytes.
    """
    if not 1 <= runs <= 1000:
        raise ConfigError(f"--runs is {runs}, but must be 1 to 1000")
    if garbler not in ("server", "client"):
        raise ConfigError(f"--garbler is {garbler!r}, but must be server or client")
    if parallel not in ("layer", "sequential"):
        raise ConfigError(f"--parallel is {parallel!r}, but must be layer or sequential")
    if size not in (32, 64):
        raise ConfigError(f"--size is {size}, but must be 32 or 64")
    found = characterise.measure(
        network,
        size,
        garbler="client" if garbler == "client" else "server",
        parallel="layer" if parallel == "layer" else "sequential",
        runs=runs,
        parts=parts,
        up_mbps=up_mbps,
        down_mbps=down_mbps,
        verify_uploads=verify_uploads,
        say=note,
    )
    if cost is not None:
        if not parts:
            raise ConfigError("--cost needs the parts: leave --no-parts out")
        cost.mkdir(parents=True, exist_ok=True)
        path = cost / f"{network}-{size}-{garbler}.json"
        path.write_text(json_.dumps(found.cost_file(), indent=2) + os.linesep, encoding="utf-8")
        note(f"wrote {path}")
    print_bench(found.record(), json)


@command("hushtable bench paper hybrid costs/*.json -o figures")
def hybrid_figures(
    costs: Annotated[
        list[Path],
        typer.Argument(help="Cost files of `bench hybrid --cost`.", show_default=False),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the figures.", show_default=False)
    ],
    json: Json = False,
) -> None:
    """Draw what was measured as the paper has it: its Figures 3, 4, 5, 8, 9 and 11.

    Beside each are the paper's own figures, of DELPHI on an EPYC 7502 and an Atom. A figure whose
    networks are not among the cost files is left out.
    """
    from .. import plots

    found: list[dict[str, Any]] = [characterise.read_cost(path) for path in costs]
    written = plots.draw(found, out)
    if json:
        print_json({"written": [str(path) for path in written]})
        return
    for path in written:
        print(path)
