"""``hushtable tune MODEL --trace FEATURE=FILE``: layouts for all tables of a model."""

from __future__ import annotations

import contextlib
import json as json_text
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ._help import columns
from ._tables import table_lines
from .model import open_model
from .output import print_json

if TYPE_CHECKING:
    from ..scale.pool import Pool
    from ..tune import ModelTuneResult

_COLUMNS = ("table", "share", "KB", "us", "ms", "lost", "even: KB", "us", "lost")


def tune_tables(
    bundle: Path,
    traces: list[str],
    weights: list[str],
    *,
    workers: contextlib.AbstractContextManager[Pool | None],
    out: Path | None,
    apply: Path | None,
    column: str | None,
    json: bool,
    max_comm_kb: float | None,
    max_server_us: float | None,
    **options: Any,
) -> None:
    """Searches, prints what was chosen, and writes it where that was asked for."""
    from ..tune import read_trace, tune_model

    model = open_model(bundle, None)
    if model is None:
        raise ConfigError(f"--trace FEATURE=FILE is of a model, and {bundle} is none")
    files = dict(_named(text, "--trace", "FILE") for text in traces)
    given = {
        name: _number(name, text)
        for name, text in (_named(text, "--weight", "NUMBER") for text in weights)
    }
    for name in (*files, *given):
        model.feature(name)  # rather now than after reading traces
    with workers as pool, search_progress(shown=not json) as progress:
        result = tune_model(
            model,
            {name: read_trace(file, column=column) for name, file in files.items()},
            comm_kb_max=max_comm_kb,
            server_us_max=max_server_us,
            weights=given or None,
            progress=progress,
            pool=pool,
            **options,
        )
    document = result.to_json()
    written = None
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        written = out / "model.json"
        written.write_text(json_text.dumps(document, indent=1) + "\n")
    applied = None
    if apply is not None:
        tuned = result.apply(apply)
        applied = {"bundle": str(apply), "model_version": tuned.version}
    if json:
        print_json({**document, "written": written and str(written), "applied": applied})
        return
    print("\n".join(model_lines(result)))
    if written is not None:
        print(f"wrote {written}")
    if applied is not None:
        print(f"serve it: hushtable serve {apply} --side left")


def model_lines(result: ModelTuneResult) -> list[str]:
    """What was chosen, in lines of the terminal's width: each table, the total, and the gain."""
    from ..tune.report import folded

    share, even = result.share, result.even
    rows = []
    for name, point in share.points.items():
        equal = None if even is None else even.points[name]
        rows.append([name, f"{share.weights[name]:.1%}", *_cells(point), *_cells(equal, False)])
    rows.append(["total", "", *_cells(share), *_cells(even, False)])
    lines = [*table_lines(_COLUMNS, rows, columns(), gap=1), ""]
    for name, point in share.points.items():
        lines += folded(point.spec.describe(), indent="    ", first=f"{name}: ")
    lines += ["", *folded(_gain(result))]
    if not share.is_exact:
        lines += folded("There were too many choices to try all: a better one may exist.")
    if result.left:
        names = ", ".join(result.left)
        lines += folded(f"Without a trace, as they were, and in no figure: {names}.")
    lines += [
        "share: of the model's loss. KB: to and from both servers for one inference. us:",
        "one core of a server, of many inferences. ms: of one alone. lost: of accesses.",
    ]
    return lines


def _gain(result: ModelTuneResult) -> str:
    share, even = result.share, result.even
    if even is None:
        return "An equal part of the budgets is too little for one of the tables."
    if even.drop <= 0:
        return "Nothing is lost, by equal parts of the budgets either."
    fewer = "" if share.drop <= 0 else f", {even.drop / share.drop:.3g} times as many"
    return (
        f"Of the weighted accesses {share.drop:.3%} are lost; by equal parts of the budgets "
        f"{even.drop:.3%} are{fewer}."
    )


def _cells(found: Any, has_latency: bool = True) -> list[str]:
    if found is None:
        return ["-"] * (4 if has_latency else 3)
    latency = [f"{found.latency_ms:.3g}"] if has_latency else []
    return [f"{found.comm_kb:,.1f}", f"{found.server_ms * 1e3:,.1f}", *latency, f"{found.drop:.3%}"]


def _named(text: str, flag: str, what: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise ConfigError(f"{flag} is {text!r}, but must be FEATURE={what}")
    return name, value


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise ConfigError(f"--weight of {name} is {text!r}, but must be a number of 0 or more")
    return number


@contextlib.contextmanager
def search_progress(*, shown: bool) -> Iterator[Any]:
    """A function of (what, done, total) that draws a bar; only on a terminal."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Elapsed())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("reading", total=None)

        def update(what: str, done: int, total: int) -> None:
            bars.update(task, description=what, completed=done, total=total)

        yield update
