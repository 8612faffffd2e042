"""How the command speaks: text or JSON on standard output, progress on standard error."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn, TypeVar

import typer

from ._help import columns, styled
from ._tables import table_lines

if TYPE_CHECKING:
    from .._types import LayoutInfo

_DIM, _RED, _BOLD_RED = "2", "31", "1;31"

#: The types that a table's values are stored as, for help.
DTYPES = (
    "f32, f16, bf16, int8, int4, int2, fp8_e4m3 or fp8_e5m2 (the last four also with a scale for "
    "32, 64 or 128 values: int4/32)"
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


_Command = TypeVar("_Command", bound=Callable[..., None])


class Shown(NamedTuple):
    """What the help of a command has beside what its function says.

    Attributes:
        examples: command lines.
        more: names of options that ``--help-all`` alone shows, by the heading that they are under.
    """

    examples: tuple[str, ...] = ()
    more: Mapping[str, Sequence[str]] = {}


#: By a command's function.
SHOWN: dict[Callable[..., None], Shown] = {}


def command(
    *examples: str, more: Mapping[str, Sequence[str]] | None = None
) -> Callable[[_Command], _Command]:
    """Has the help of a command end with these command lines, and leave ``more`` to --help-all.

    Where the command is and what its help says in one line is in the table of ``_commands.py``.
    """

    def marked(function: _Command) -> _Command:
        SHOWN[function] = Shown(examples, more or {})
        return function

    return marked


def unfold(text: str) -> str:
    """Paragraphs of one line each."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def describe_layout(layout: LayoutInfo) -> str:
    """One line: which layout, and what an inference by it costs."""
    parts = ", ".join(
        f"{part.name} {part.rows:,} rows in {part.bins:,} bins x {part.queries}"
        for part in layout.parts
    )
    return (
        f"version {layout.version[:16]} ({parts}): an inference of up to {layout.ids_max:,} ids "
        f"is {layout.keys:,} keys, {layout.bytes_up:,} B up, {layout.bytes_down:,} B down; "
        f"clients keep {layout.map_bytes:,} B"
    )


def print_json(record: Mapping[str, Any]) -> None:
    """One line of JSON."""
    print(json.dumps(record), flush=True)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Two columns: what, and its value."""
    # Lines are never folded: what is piped on may be searched or copied.
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        print(f"{styled(name.ljust(width), _DIM, sys.stdout)}  {value}".rstrip())


def print_bench(record: dict[str, Any], as_json: bool) -> None:
    """A benchmark's record: JSON, or what, how fast, and how near its floor."""
    if as_json:
        print_json(record)
        return
    unit = record["unit"]
    facts = {record["bench"]: _params(record["params"]), "value": f"{record['value']:,.6g} {unit}"}
    if record["floor"] is not None:
        facts["floor"] = (
            f"{record['floor']:,.6g} {unit} ({record['detail'].get('bound', '')}): "
            f"{record['of_floor']:.0%} of it"
        )
    facts["on"] = f"{record['threads']} thread(s), {record['isa']}"
    details = {k: v for k, v in record["detail"].items() if k != "bound" and v is not None}
    print_facts(facts | {k: f"{v:,.6g}" if isinstance(v, float) else v for k, v in details.items()})


def _params(params: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in params.items())


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table of the terminal's width; the first column to the left, figures to the right."""
    for line in table_lines(heads, rows, columns()):
        print(line)


def note(text: str) -> None:
    """A line about what is being done, for people who watch."""
    if sys.stderr.isatty():
        print(styled(text, _DIM, sys.stderr), file=sys.stderr)


@contextlib.contextmanager
def progress_bar(what: str, *, shown: bool, of_bytes: bool = False) -> Iterator[Any]:
    """A function of (done, all) that draws a bar; only on a terminal, and on standard error."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    count: ProgressColumn = DownloadColumn() if of_bytes else MofNCompleteColumn()
    columns = (TextColumn(what), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)

        def update(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield update


def _usage_error() -> type[Exception]:
    # Newer typers raise an exception of their own, those up to 0.20 that of click: Flower needs one
    # of the latter.
    name = "TyperException" if hasattr(typer, "TyperException") else "ClickException"
    module = typer if name == "TyperException" else importlib.import_module("click")
    found: type[Exception] = getattr(module, name)
    return found


#: What typer raises for bad usage.
USAGE_ERROR = _usage_error()


def usage_text(error: Exception) -> str:
    """What a usage error says."""
    message: str = getattr(error, "message", "")
    if "Did you mean" in message:
        # typer's guess, which newer clicks would put a second one after.
        return message
    text: str = error.format_message() if hasattr(error, "format_message") else str(error)
    return text


def usage_hint(error: Exception) -> str | None:
    """Where a usage error's command explains itself."""
    context = getattr(error, "ctx", None)
    return None if context is None else f"{context.command_path} --help"


def fail(message: str, hint: str | None, kind: str, code: int, as_json: bool) -> NoReturn:
    """Says what went wrong and exits with ``code``."""
    if as_json:
        record = {"type": kind, "message": message, "hint": hint, "exit_code": code}
        print_json({"error": record})
    else:
        one_line = " ".join(message.split())
        error = sys.stderr
        print(f"{styled('error:', _BOLD_RED, error)} {styled(one_line, _RED, error)}", file=error)
        if hint:
            print(styled(f"hint: {hint}", _DIM, error), file=error)
    sys.exit(code)
