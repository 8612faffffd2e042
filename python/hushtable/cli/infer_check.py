"""``hushtable infer check``: what would be taken of a network, what is refused, and the price."""

from __future__ import annotations

import dataclasses
from typing import Any

import typer

from ..infer import networks
from .infer_hybrid import print_hybrid_plan
from .infer_import import Output, Shape, Source, sizes
from .output import Json, command, note, print_facts, print_json

#: As of a file that cannot be imported.
_REFUSED = 2


@command(
    "hushtable infer check resnet18.onnx",
    "hushtable infer check free.onnx --shape 3,224,224 --output logits",
    "hushtable infer check cnn_model.h5 --json",
)
def check(
    source: Source,
    shape: Shape = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Say what would be taken of a network, what is refused of it, and what it would cost.

    Nothing is written. Refusals are said together, by name and place, and the command exits with 2:
    all but of what reads something that is refused, which is looked at for its operators alone. Of
    a network that is taken whole the price is that of `hushtable infer compile --scheme hybrid`:
    stages, ReLUs, bits, bytes of a precompute at either side, and what a prediction sends. It is
    counted, not measured, and the same on every machine. Seconds are those of a link; `hushtable
    infer precompute` and `query` measure those of computing.
    """
    note("reading, and compiling what was read")
    report = networks.check(source, shape=sizes(shape), output=output)
    if json:
        print_json(_record(report))
    else:
        _print(report)
    if report.refusals:
        raise typer.Exit(_REFUSED)


def _record(report: networks.Report) -> dict[str, Any]:
    network, plan = report.network, report.plan
    return {
        "file": report.source,
        "kind": report.kind,
        "refusals": list(report.refusals),
        "input": None if network is None else list(network.input),
        "answers": None if network is None else network.answers,
        "parameters": None if network is None else network.parameters,
        "relus": None if network is None else network.activations,
        "operators": dict(report.operators),
        "notes": None if network is None else list(network.notes),
        "checked": None if network is None else network.checked,
        "plan": None if plan is None else dataclasses.asdict(plan),
    }


def _print(report: networks.Report) -> None:
    facts = {"file": f"{report.source}, {report.kind}"}
    if (network := report.network) is not None:
        facts |= {
            "input": " x ".join(map(str, network.input)),
            "taken": ", ".join(f"{op} {count:,}" for op, count in report.operators.items()),
            "left out": "; ".join(network.notes) or "nothing",
            "checked": network.checked or "with nothing: what wrote the file does not run here",
            "parameters": f"{network.parameters:,}",
            "ReLUs": f"{network.activations:,}",
        }
    facts["refused"] = str(len(report.refusals)) if report.refusals else "nothing"
    print_facts(facts)
    for refusal in report.refusals:
        print(f"- {' '.join(refusal.split())}")
    if report.plan is not None:
        print(
            "\nWhat it would cost, counted from what compiling makes of it without samples of "
            "inputs;\nseconds are those of the link alone:"
        )
        none_yet = dataclasses.replace(report.plan, name="none yet", plan="none yet")
        print_hybrid_plan(none_yet, as_json=False)
