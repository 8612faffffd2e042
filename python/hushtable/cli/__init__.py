"""The command ``hushtable``."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated, NoReturn

import typer

from .. import __version__
from ..errors import (
    Error,
    FetchError,
    IdOutOfRange,
    ModelError,
    ShardMapError,
    TableError,
    VersionMismatch,
)
from . import (
    bench,
    bench_ckks,
    bench_coded,
    bench_garble,
    bench_gpu,
    bench_hybrid,
    bench_infer,
    bench_key,
    bench_layer,
    bench_layout,
    bench_model,
    bench_onion,
    bench_oram,
    bench_patch,
    bench_shards,
    bench_shares,
    certificates,
    cluster,
    doctor,
    infer,
    infer_import,
    infer_project,
    lookup,
    model,
    serve,
    shard,
    sim,
    table,
    train,
    train_recover,
    tune,
)
from ._variables import warn_of_unknown
from .output import USAGE_ERROR, fail, unfold, usage_hint, usage_text

__all__ = ["app", "main"]

app = typer.Typer(
    help="Private embedding tables: look rows up without the servers learning which.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(table.app, name="table")
app.add_typer(model.app, name="model")
app.add_typer(shard.app, name="shard")
app.add_typer(bench.app, name="bench")
app.add_typer(sim.app, name="sim")
app.add_typer(cluster.app, name="cluster")
train_recover.register(train.app)
app.add_typer(train.app, name="train")
infer_import.register(infer.app)
infer_project.register(infer.app)
app.add_typer(infer.app, name="infer")
serve.register(app)
lookup.register(app)
tune.register(app)
bench_ckks.register(bench.app)
bench_coded.register(bench.app)
bench_garble.register(bench.app)
bench_gpu.register(bench.app)
bench_hybrid.register(bench.app)
bench_infer.register(bench.app)
bench_key.register(bench.app)
bench_layer.register(bench.app)
bench_layout.register(bench.app)
bench_model.register(bench.app)
bench_onion.register(bench.app)
bench_oram.register(bench.app)
bench_patch.register(bench.app)
bench_shards.register(bench.app)
bench_shares.register(bench.app)
certificates.register(app)
doctor.register(app)
groups = (table, model, shard, cluster, bench, sim, train, infer)
for group in (app, *(part.app for part in groups)):
    for command in group.registered_commands:
        # typer keeps a docstring's own line breaks, which then break lines a second time.
        command.help = unfold(inspect.getdoc(command.callback) or "")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"hushtable {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    del version


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command and exits: 0 for success, 2 for bad input, 1 for what went wrong else.

    What a user can cause is one line and a hint, as JSON with ``--json``; never a traceback.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in arguments
    command = typer.main.get_command(app)
    warn_of_unknown(command)
    try:
        code = command(args=arguments, prog_name="hushtable", standalone_mode=False)
    except USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(usage_text(error))
            sys.exit(2)
        code = getattr(error, "exit_code", 2)
        fail(usage_text(error), usage_hint(error), "UsageError", code, as_json)
    except Error as error:
        # ConfigError, IdOutOfRange and their like are also ValueErrors or LookupErrors.
        code = 2 if isinstance(error, ValueError | LookupError | TableError) else 1
        fail(str(error), _hint(error), type(error).__name__, code, as_json)
    except (ValueError, TypeError, OverflowError) as error:
        # The native module says in a note which argument it was.
        text = ", ".join([str(error), *getattr(error, "__notes__", ())])
        fail(text, None, type(error).__name__, 2, as_json)
    except BrokenPipeError:
        # Whoever read has enough; the flush at exit must not complain again.
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        fail(str(error), None, type(error).__name__, 2, as_json)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _hint(error: Error) -> str | None:
    if isinstance(error, ShardMapError):
        return "`hushtable shard show MODEL` prints a map, `shard plan --help` makes one"
    if isinstance(error, FetchError):
        # The others say themselves what to do.
        kept = "what was copied is kept: the same command goes on with it"
        return kept if type(error) is FetchError else None
    if isinstance(error, ModelError):
        return "`hushtable model verify MODEL` checks a model, `model build --help` makes one"
    if isinstance(error, TableError):
        return "`hushtable table verify BUNDLE` checks a bundle, `table build --help` makes one"
    if isinstance(error, IdOutOfRange):
        return "nothing was sent to the servers"
    if isinstance(error, VersionMismatch):
        return "`hushtable table info BUNDLE` prints the version that each server should have"
    if isinstance(error, ConnectionError):
        return "the server's /readyz on its metrics port says whether it serves"
    return None
