"""The commands as typer runs them: each is imported when it is asked for."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from typer import core
from typer.core import TyperCommand, TyperGroup

from ..errors import ConfigError
from . import _commands, _help
from .output import SHOWN, Shown, unfold

__all__ = ["root"]


def root() -> typer.Typer:
    """The command with all below it, of which nothing is imported yet."""
    app = typer.Typer(
        cls=_Root,
        help=_commands.line(""),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options_of_root)
    return app


class _Command(TyperCommand):
    """A command with a page of help of our own."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes what ``--help`` prints."""
        formatter.write(self.page(ctx, is_whole=False))

    def page(self, ctx: Any, *, is_whole: bool) -> str:
        """The help; where it is not whole, of most groups of options the heading alone."""
        headings: dict[str, list[_help.Row]] = {heading: [] for heading in _ALWAYS}
        for parameter in self.get_params(ctx):
            row = _row(parameter, ctx)
            if row is not None:
                headings.setdefault(_heading(parameter), []).append(row)
        sections = list(headings.items())
        last = ""
        if not is_whole:
            folded = [(heading, len(rows)) for heading, rows in sections if heading not in _ALWAYS]
            sections = [section for section in sections if section[0] in _ALWAYS]
            if folded:
                named = ", ".join(f"{heading} ({count})" for heading, count in folded)
                last = f"{ctx.command_path} {_ALL} shows these too: {named}."
        usage = _help.usage(ctx.command_path, self.collect_usage_pieces(ctx))
        shown = (self.epilog or "").split("\n\n")[1:]
        examples = [line.strip().removeprefix("$ ") for line in shown]
        return _help.page(usage, self.help or "", sections, examples, after_sections=last)


#: What every page of help has, in this order; options under other headings are for --help-all.
_ALWAYS = ("Arguments", "Servers", "Options")
_ALL = "--help-all"


def _heading(parameter: Any) -> str:
    own = "Arguments" if parameter.param_type_name == "argument" else "Options"
    return getattr(parameter, "rich_help_panel", None) or own


def _print_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        page: Any = context.command
        print(page.page(context, is_whole=True))
        raise typer.Exit


@functools.cache
def _option_of_all() -> Any:
    """The option --help-all, of commands that have what it shows."""

    def only(
        help_all: Annotated[
            bool,
            typer.Option(
                _ALL,
                is_eager=True,
                expose_value=False,
                callback=_print_all,
                help="Show all options, and exit.",
            ),
        ] = False,
    ) -> None:
        del help_all

    app = typer.Typer(add_completion=False)
    app.command()(only)
    return typer.main.get_command(app).params[0]


def _row(parameter: Any, ctx: Any) -> _help.Row | None:
    """What is said of an argument or an option; None of what is hidden."""
    # typer 0.20 imports rich, where it is, to escape brackets for it, whatever prints them.
    has_rich, core.HAS_RICH = core.HAS_RICH, False
    try:
        row = parameter.get_help_record(ctx)
        return row and (row[0].rstrip(), row[1])
    finally:
        core.HAS_RICH = has_rich


class _Group(TyperGroup):
    """A group of commands that are imported when they are asked for."""

    #: Its path below ``hushtable``.
    path = ""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes what ``--help`` prints."""
        formatter.write(_commands.page(self.path))

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, without them."""
        return list(self.commands)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """What a shell is offered: names and lines."""
        whole: Any = self.commands
        stand_ins: Any = {
            name: TyperCommand(name, help=_commands.line(f"{self.path} {name}".strip()))
            for name in whole
        }
        self.commands = stand_ins
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self.commands = whole


class _Root(_Group):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        below: Any = _Below("")
        self.commands = below


class _Below(Mapping[str, Any]):
    """Commands of a group by their names, imported where they are looked up."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._made: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(_commands.names(self._path))

    def __len__(self) -> int:
        return len(_commands.names(self._path))

    def __contains__(self, name: object) -> bool:
        return name in _commands.names(self._path)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _made(f"{self._path} {name}".strip())
        return self._made[name]


def _made(path: str) -> Any:
    name = path.split(" ")[-1]
    found = _commands.entry(path)
    if found is None and path in _commands.OF_LAB:
        return _command(_without_lab, name, context_settings=_ANYTHING, hidden=True)
    if found is None:
        raise KeyError(name)
    where, line = found
    if not where:
        group = _Group(name=name, help=line, no_args_is_help=True, rich_markup_mode=None)
        below: Any = _Below(path)
        group.path, group.commands = path, below
        return group
    module, _, attribute = where.partition(":")
    function = getattr(importlib.import_module(module, _commands.package(path)), attribute)
    return _command(function, name)


def _command(function: Any, name: str, **more: Any) -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    shown = SHOWN.get(function, Shown())
    examples = "\n\n".join(f"  $ {line}" for line in shown.examples)
    app.command(
        name,
        cls=_Command,
        # typer keeps a docstring's own line breaks, which then break lines a second time.
        help=unfold(inspect.getdoc(function) or ""),
        epilog=examples and f"Examples:\n\n{examples}",
        **more,
    )(function)
    made: Any = typer.main.get_command(app)
    for heading, names in shown.more.items():
        for parameter in made.params:
            if parameter.name in names:
                parameter.rich_help_panel = heading
    if any(_heading(parameter) not in _ALWAYS for parameter in made.params):
        made.params.append(_option_of_all())
    return made


#: What a command that is not there is given.
_ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def _without_lab(context: typer.Context) -> None:
    raise ConfigError(
        f"`hushtable {context.info_name}` is a command of hushtable-lab, which is not installed: "
        "`pip install hushtable-lab`"
    )


def _print_version(wanted: bool) -> None:
    if wanted:
        print(_commands.version())
        raise typer.Exit


def _options_of_root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    del version
