"""The commands, imported as they are asked for: one starts in half the time of all."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
from typing import Annotated, Any

import typer

from .. import __version__
from ..errors import ConfigError
from .output import unfold

__all__ = ["first_of", "has_lab", "whole"]

#: Groups of commands, and the modules that add to a group beside its own.
_GROUPS: dict[str, tuple[str, ...]] = {
    "table": (),
    "model": (),
    "shard": (),
    "cluster": (),
    "train": ("train_recover",),
    "infer": ("infer_check", "infer_import", "infer_project"),
}
#: Commands of the root. Each has a module of its name.
_COMMANDS = ("serve", "lookup", "tune", "certificates", "doctor")


#: The package that adds groups of commands where it is installed, and these groups.
_LAB = "hushtable_lab"
_OF_LAB = ("bench", "sim")


def first_of(arguments: list[str]) -> typer.Typer:
    """The command with that part alone that the arguments name; with all, where they name none."""
    name = arguments[0] if arguments else ""
    return _made((name,)) if name in (*_GROUPS, *_OF_LAB, *_COMMANDS) else whole()


def whole() -> typer.Typer:
    """The command with all of its parts."""
    return _made((*_GROUPS, *_OF_LAB, *_COMMANDS))


def has_lab() -> bool:
    """Whether the package with ``bench`` and ``sim`` is installed."""
    return importlib.util.find_spec(_LAB) is not None


@functools.cache
def _made(names: tuple[str, ...]) -> typer.Typer:
    app = typer.Typer(
        help="Private embedding tables: look rows up without the servers learning which.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        callback=_root,
    )
    for name in names:
        if name in _GROUPS:
            app.add_typer(_group(name, _GROUPS[name], __package__), name=name)
        elif name in _OF_LAB and has_lab():
            package = f"{_LAB}.cli"
            beside = importlib.import_module(package).GROUPS[name]
            app.add_typer(_group(name, beside, package), name=name)
        elif name in _OF_LAB:
            app.command(name, hidden=True, context_settings=_ANYTHING)(_without_lab)
        else:
            _module(name).register(app)
    _unfold(app)
    return app


@functools.cache
def _group(name: str, beside: tuple[str, ...], package: str) -> typer.Typer:
    group: typer.Typer = _module(name, package).app
    for module in beside:
        _module(module, package).register(group)
    _unfold(group)
    return group


def _module(name: str, package: str = __package__) -> Any:
    return importlib.import_module(f".{name}", package)


#: What a command that is not there is given.
_ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def _without_lab(context: typer.Context) -> None:
    raise ConfigError(
        f"`hushtable {context.info_name}` is a command of hushtable-lab, which is not installed: "
        "`pip install hushtable-lab`"
    )


def _unfold(app: typer.Typer) -> None:
    for command in app.registered_commands:
        # typer keeps a docstring's own line breaks, which then break lines a second time.
        command.help = unfold(inspect.getdoc(command.callback) or "")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"hushtable {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    del version
