"""``hushtable infer trace|project``: a plan's operations, and what they would take elsewhere."""

from __future__ import annotations

import dataclasses
import json as _json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ConfigError
from ..infer import machines, paper_trace
from ..infer import project as project_trace
from ..infer import trace as trace_plan
from .output import Json, command, print_json, print_table

#: Ciphertexts of one-hots in the paper's five models, from the smallest threshold to the largest.
_PAPER = {"500": 1, "5k": 1, "50k": 2, "500k": 18, "5M": 85}


@command(
    "hushtable infer trace models/clicks",
    "hushtable infer trace models/clicks -o trace.json",
)
def trace(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The model's folder.", show_default=False)
    ],
    name: Annotated[
        str | None, typer.Option(help="Which of the model's plans; the only one by default.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the trace here, as JSON.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """List every homomorphic operation of a model's plan, with its level.

    Levels do not depend on values: what is listed is what a server computes for any query.
    """
    found = trace_plan(model, plan=name)
    if out is not None:
        out.write_text(_json.dumps(found, indent=2) + "\n", encoding="utf-8")
        return
    if json:
        print_json(found)
        return
    columns = ["layer", "operation", "times", "level", "products", "rotations"]
    print_table(columns, [_row(operation) for operation in found["operations"]])


def _row(operation: dict[str, Any]) -> list[str]:
    rotations = operation["baby_rotations"] + operation["giant_rotations"]
    inputs = f" of {operation['inputs']}" if operation["inputs"] > 1 else ""
    return [
        operation["layer"],
        operation["kind"].replace("_", " ") + inputs,
        str(operation["count"]),
        str(operation["level"]),
        str(operation["diagonals"] or ""),
        str(rotations or ""),
    ]


@command(
    "hushtable infer project --paper",
    "hushtable infer project trace.json --machine a100 --machine my-asic.json",
)
def project(
    trace: Annotated[
        Path | None,
        typer.Argument(
            help="A trace, as `hushtable infer trace -o` writes it.", show_default=False
        ),
    ] = None,
    machine: Annotated[
        list[str] | None,
        typer.Option(help="One that is known, or the JSON file of one. [all that are known]"),
    ] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="HE-LRM's own Criteo programs instead of a trace.")
    ] = False,
    silu: Annotated[
        bool, typer.Option("--silu", help="With --paper: SiLU instead of ReLU.")
    ] = False,
    json: Json = False,
) -> None:
    """Say what a circuit would take on other machines, from tables of their operations.

    With --paper this is the case study of HE-LRM (section 6.4): its five Criteo models, by the
    threshold of their tables, on the paper's CPU, a faster one, a GPU and an ASIC. Where the
    tables are from is in --json.
    """
    if paper == (trace is not None):
        raise ConfigError("give either a trace or --paper")
    known = machines()
    tables = [_table(name) for name in machine or [one.name for one in known]]
    if trace is None:
        activation = "silu" if silu else "relu"
        traces = {name: paper_trace(count, activation=activation) for name, count in _PAPER.items()}
    else:
        traces = {trace.stem: _read(trace)}
    sources = {one.name: one.sources for one in known}
    rows = []
    for name, operations in traces.items():
        for table in tables:
            found = project_trace(operations, table)
            own = table["sources"] if isinstance(table, dict) else sources[table]
            if json:
                print_json({"trace": name, **dataclasses.asdict(found), "sources": own})
            share = found.bootstrap_seconds / found.seconds
            rows.append([name, found.device, f"{found.seconds:,.3g}", f"{share:.0%}"])
    if not json:
        print_table(["trace", "machine", "seconds", "bootstraps"], rows)


def _table(name: str) -> str | dict[str, Any]:
    """A known machine's name, or the table in a file."""
    return _read(Path(name)) if name.endswith(".json") else name


def _read(path: Path) -> dict[str, Any]:
    try:
        found = _json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: expected a JSON object")
    return found
