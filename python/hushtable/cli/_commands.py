"""The commands, imported as they are asked for: one starts in half the time of all."""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Annotated, Any

import typer

from .. import __version__
from .output import unfold

__all__ = ["first_of", "whole"]

#: Groups of commands, and the modules that add to a group beside its own.
_GROUPS: dict[str, tuple[str, ...]] = {
    "table": (),
    "model": (),
    "shard": (),
    "bench": (
        "bench_ckks",
        "bench_coded",
        "bench_garble",
        "bench_gpu",
        "bench_hybrid",
        "bench_infer",
        "bench_key",
        "bench_layer",
        "bench_layout",
        "bench_model",
        "bench_onion",
        "bench_oram",
        "bench_patch",
        "bench_shards",
        "bench_shares",
    ),
    "sim": (),
    "cluster": (),
    "train": ("train_recover",),
    "infer": ("infer_check", "infer_import", "infer_project"),
}
#: Commands of the root. Each has a module of its name.
_COMMANDS = ("serve", "lookup", "tune", "certificates", "doctor")


def first_of(arguments: list[str]) -> typer.Typer:
    """The command with that part alone that the arguments name; with all, where they name none."""
    name = arguments[0] if arguments else ""
    return _made((name,)) if name in _GROUPS or name in _COMMANDS else whole()


def whole() -> typer.Typer:
    """The command with all of its parts."""
    return _made((*_GROUPS, *_COMMANDS))


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
            app.add_typer(_group(name), name=name)
        else:
            _module(name).register(app)
    _unfold(app)
    return app


@functools.cache
def _group(name: str) -> typer.Typer:
    group: typer.Typer = _module(name).app
    for beside in _GROUPS[name]:
        _module(beside).register(group)
    _unfold(group)
    return group


def _module(name: str) -> Any:
    return importlib.import_module(f".{name}", __package__)


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
