"""``hushtable infer project``: what a traced circuit would take on other machines."""

from __future__ import annotations

import json as _json
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import _native
from ..errors import ConfigError
from .output import Json, examples, print_json, print_table

#: Ciphertexts of one-hots in the paper's five models, from the smallest threshold to the largest.
_PAPER = {"500": 1, "5k": 1, "50k": 2, "500k": 18, "5M": 85}


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog=examples(
            "hushtable infer project --paper",
            "hushtable infer trace model -o trace.json",
            "hushtable infer project trace.json --backend a100 --backend my-asic.json",
        ),
    )(project)


def project(
    trace: Annotated[
        Path | None, typer.Argument(help="A trace, as `hushtable infer trace` writes it.")
    ] = None,
    backend: Annotated[
        list[str] | None,
        typer.Option(help="A machine that is known, or the file of one. [all that are known]"),
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

    With --paper this is the case study of HE-LRM (section 6.4): its five Criteo models on the
    paper's CPU, a faster one, a GPU and an ASIC. Where the tables are from is in --json.
    """
    if paper == (trace is not None):
        raise ConfigError("give either a trace or --paper")
    known = _native.known_backends()
    machines = [_machine(name) for name in backend or [name for name, _, _ in known]]
    if paper:
        traces = {name: _native.paper_trace(count, not silu) for name, count in _PAPER.items()}
    else:
        assert trace is not None
        try:
            text = trace.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{trace}: {error}") from None
        traces = {trace.stem: text}
    rows = [
        {"trace": name, **_json.loads(_native.project_trace(text, machine))}
        for name, text in traces.items()
        for machine in machines
    ]
    if json:
        sources = {name: sources for name, _, sources in known}
        for row in rows:
            print_json(row | {"sources": sources.get(row["backend"], [])})
        return
    print_table(
        ["trace", "machine", "seconds", "of it bootstraps"],
        [[row["trace"], row["device"], *_seconds(row)] for row in rows],
    )


def _machine(name: str) -> str:
    """A known machine's name, or the text of a table's file."""
    path = Path(name)
    if path.suffix != ".json":
        return name
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _seconds(row: dict[str, Any]) -> list[str]:
    total, bootstraps = row["total_ms"] / 1e3, row["bootstrap_ms"] / 1e3
    return [f"{total:,.3g}", f"{bootstraps / total:.0%}"]
