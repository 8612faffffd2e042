"""``hushtable infer import``: a network of convolutions as a model bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from ..infer import networks
from .output import Json, command, print_facts, print_json

Source = Annotated[
    Path, typer.Argument(metavar="FILE", help="A .onnx file, or Keras' .h5.", show_default=False)
]
Shape = Annotated[
    str | None,
    typer.Option(
        help="ONNX: channels, rows and columns of an input, where the file leaves them open.",
        metavar="C,R,C",
        show_default=False,
    ),
]
Output = Annotated[
    str | None,
    typer.Option(help="ONNX: the output that is wanted, of several.", show_default=False),
]


@command(
    "hushtable infer import resnet18.onnx -o models/resnet18",
    "hushtable infer import free.onnx -o models/free --shape 3,224,224 --output logits",
    "hushtable infer import cnn_model.h5 -o models/cnn --name cifar --json",
)
def import_(
    source: Source,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The model's folder, to be made.", show_default=False),
    ],
    name: Annotated[
        str | None, typer.Option(help="The model's name; that of the folder by default.")
    ] = None,
    shape: Shape = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Make a model bundle of a network of convolutions, for hybrid private inference.

    Nothing in the file is executed. What is not supported is said by name and place. An ONNX
    network is compared with onnx's reference evaluator. `hushtable infer compile MODEL --scheme
    hybrid` goes on from here. torch modules are imported from Python
    (hushtable.infer.networks.from_torch), or through ONNX.
    """
    network = networks.from_file(source, shape=sizes(shape), output=output)
    made = network.build(out, name=name)
    facts = {
        "model": str(made),
        "input": list(network.input),
        "answers": network.answers,
        "parameters": network.parameters,
        "relus": network.activations,
        "operators": len(network.nodes),
        "notes": list(network.notes),
        "checked": network.checked,
    }
    if json:
        print_json(facts)
        return
    channels, rows, columns = network.input
    print_facts(
        facts
        | {
            "input": f"{channels} x {rows} x {columns}",
            "parameters": f"{network.parameters:,}",
            "relus": f"{network.activations:,}",
            "notes": "; ".join(network.notes) or "nothing was left out",
            "checked": network.checked or "with nothing: what wrote the file does not run here",
        }
    )


def sizes(text: str | None) -> list[int] | None:
    """Sizes as they are written, with commas."""
    if text is None:
        return None
    try:
        return [int(size) for size in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--shape is {text}, expected whole numbers as in 3,224,224") from error
