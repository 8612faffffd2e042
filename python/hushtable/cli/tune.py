"""``hushtable tune``: a layout for a table, from a trace and budgets."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from ..table import Table
from ._tune_model import search_progress, tune_tables
from ._workers import RayAddress, RayInsecure, Workers, given_workers
from .model import model_feature, open_model
from .output import Json, command, print_json

if TYPE_CHECKING:
    from ..tune import TuneResult
    from ..tune.judge import Quality


@command(
    "hushtable tune bundles/items trace.parquet --max-comm-kb 300 --max-drop 0.01 --out tuned",
    "hushtable tune bundles/items trace.npz --max-comm-kb 300 --max-latency-ms 100 "
    "--quality model.py:auc --min-quality 0.78 --out tuned --apply bundles/items-tuned",
    "hushtable tune bundles/items trace.csv --max-drop 0.01 --json",
    "hushtable tune models/clicks trace.csv --feature cart --max-drop 0.01 --apply models/clicks",
    "hushtable tune models/clicks --trace cart=cart.csv --trace seen=seen.csv "
    "--max-comm-kb 400 --max-server-us 2000 --apply models/clicks",
    "hushtable tune bundles/items trace.npz --max-drop 0.01 --ray auto --workers 64",
    more={
        "Quality": ("quality", "min_quality", "lower_is_better"),
        "Traces": ("held_out", "shuffle", "column"),
        "Search": ("seed", "evaluations", "sample_bags", "workers", "ray", "insecure"),
    },
)
def tune(
    bundle: Annotated[
        Path,
        typer.Argument(
            help="The table's folder, or a model's with --feature or --trace.", show_default=False
        ),
    ],
    trace: Annotated[
        Path | None,
        typer.Argument(
            help="What inferences read: .parquet (a column of lists, or columns bag and id), .csv "
            "(columns bag and id, or one bag a line) or .npz (ids, offsets).",
            show_default=False,
        ),
    ] = None,
    traces: Annotated[
        list[str] | None,
        typer.Option(
            "--trace",
            metavar="FEATURE=FILE",
            help="Of a model: what inferences read of a feature; repeat it for all features whose "
            "tables share the budgets.",
            show_default=False,
        ),
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FEATURE=NUMBER",
            help="With --trace: how much a lost access of a feature counts; its accesses per "
            "inference by default.",
            show_default=False,
        ),
    ] = None,
    max_server_us: Annotated[
        float | None,
        typer.Option(
            help="With --trace: time of one core of a server for one inference of many, of all "
            "tables."
        ),
    ] = None,
    max_comm_kb: Annotated[
        float | None,
        typer.Option(help="KB (1,000 bytes) to and from both servers for one inference."),
    ] = None,
    max_latency_ms: Annotated[
        float | None, typer.Option(help="Time of one server for one inference, on one thread.")
    ] = None,
    max_drop: Annotated[
        float | None, typer.Option(help="Share of the accesses not served: 0.01 is 1 %.")
    ] = None,
    quality: Annotated[
        str | None,
        typer.Option(
            help="module:function or file.py:function: takes a bool array, which of the held-out "
            "accesses were served, and returns the model's quality."
        ),
    ] = None,
    min_quality: Annotated[
        float | None, typer.Option(help="The worst quality: a maximum with --lower-is-better.")
    ] = None,
    lower_is_better: Annotated[
        bool, typer.Option("--lower-is-better", help="Quality is a loss, such as perplexity.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for front.json and the plots.", show_default=False)
    ] = None,
    plots: Annotated[bool, typer.Option(help="Draw plots into the folder (matplotlib).")] = True,
    apply: Annotated[
        Path | None,
        typer.Option(
            help="Write the table with the chosen layout as this bundle; of a model, the model."
        ),
    ] = None,
    feature: Annotated[
        str | None,
        typer.Option(help="Of a model: the feature whose table is meant.", show_default=False),
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(help="Another trace to measure on; else the last of this one."),
    ] = None,
    train: Annotated[
        float, typer.Option(help="Share of the bags to learn from.", rich_help_panel="Traces")
    ] = 0.8,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Shuffle the bags before they are divided.")
    ] = False,
    column: Annotated[
        str | None, typer.Option(help="The Parquet column that holds the bags.")
    ] = None,
    ids_max: Annotated[
        int | None,
        typer.Option(help="Most ids of one inference; the longest bag's by default."),
    ] = None,
    drop_rule: Annotated[
        str,
        typer.Option(help="Which ids go first: most-frequent, earliest or random."),
    ] = "most-frequent",
    seed: Annotated[int, typer.Option(help="Of samples and permutations.", min=0)] = 0,
    evaluations: Annotated[
        int | None,
        typer.Option(help="Layouts simulated at most; 400 by default, of large tables 240."),
    ] = None,
    sample_bags: Annotated[int, typer.Option(help="Bags that each is simulated on.")] = 1000,
    workers: Workers = None,
    ray: RayAddress = None,
    insecure: RayInsecure = False,
    json: Json = False,
) -> None:
    """Choose how a table is served to inferences that read many rows at once.

    The first part of the trace says which rows are hot and which are read together; layouts are
    searched and measured on the rest. Prints those that no other beats; the choice within the
    budgets is marked *: the fastest where drops or quality are limited, else what serves most.
    Times are this machine's, by a model that `hushtable bench layout` fits and keeps.

    With --trace, tables of a model share one budget of bytes and one of time: of each table's
    layouts one is taken, so that together they lose the least share of the lookups.

    Layouts are simulated by threads of this process; with --workers or --ray by processes, here or
    on all machines of a Ray cluster. What is found is the same.
    """
    if traces or trace is None:
        options = {
            "quality": quality,
            "min-quality": min_quality,
            "max-latency-ms": max_latency_ms,
            "max-drop": max_drop,
            "feature": feature,
            "held-out": held_out,
            "ids-max": ids_max,
            "TRACE": trace,
        }
        _refuse_of_one_table(bundle, traces, options)
        tune_tables(
            bundle,
            traces or [],
            weight or [],
            workers=given_workers(workers, ray, insecure=insecure),
            out=out,
            apply=apply,
            column=column,
            json=json,
            max_comm_kb=max_comm_kb,
            max_server_us=max_server_us,
            seed=seed,
            train=train,
            shuffle=shuffle,
            drop_rule=drop_rule,
            evaluations=evaluations,
            sample_bags=sample_bags,
        )
        return
    if weight or max_server_us is not None:
        raise ConfigError("--weight and --max-server-us are of all tables of a model: give --trace")
    # They bring more than other commands need.
    from ..tune import Budgets, draw, read_trace, to_json, write_json
    from ..tune import tune as search
    from ..tune.plots import require_matplotlib
    from ..tune.report import LEGEND, family_rows, folded, front_rows, table_lines

    budgets = Budgets(max_comm_kb, max_latency_ms, max_drop, min_quality, lower_is_better)
    measure = _load_quality(quality) if quality else None
    if out is not None and plots:
        require_matplotlib()  # rather now than after minutes of search
    model = open_model(bundle, feature)
    chosen = None if model is None else model_feature(model, feature)
    table = Table.open(bundle) if model is None or chosen is None else model.table(chosen.table)
    if chosen is not None and ids_max is None:
        ids_max = chosen.max_ids  # what clients pad to
    with (
        given_workers(workers, ray, insecure=insecure) as pool,
        search_progress(shown=not json) as progress,
    ):
        result = search(
            table,
            read_trace(trace, column=column),
            budgets,
            measure,
            seed,
            progress,
            held_out=None if held_out is None else read_trace(held_out, column=column),
            train=train,
            shuffle=shuffle,
            ids_max=ids_max,
            drop_rule=drop_rule,
            evaluations=evaluations,
            sample_bags=sample_bags,
            pool=pool,
        )
    written: list[Path] = []
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_json(result, out / "front.json")
        written = [out / "front.json", *(draw(result, out) if plots else [])]
    applied = None
    if apply is not None:
        if model is None or chosen is None:
            layout = result.apply(apply)
            applied = {"bundle": str(apply), "layout_version": layout.version()}
        else:
            layout = result.layout()
            tuned = Table(table._native.with_layout(layout))
            applied = {
                "bundle": str(apply),
                "layout_version": layout.version(),
                "model_version": model.replace_table(chosen.table, tuned, apply).version,
            }
    if json:
        print_json({**to_json(result), "written": list(map(str, written)), "applied": applied})
        return
    print("\n".join(table_lines(front_rows(result))))
    print("\nThe best of each family within the budgets:\n")
    print("\n".join([*table_lines(family_rows(result)), "", *LEGEND, ""]))
    for name, value in _facts(result).items():
        print("\n".join(folded(value, indent=" " * 15, first=f"{name:<13}  ")))
    if written:
        print(f"wrote {len(written)} files into {out}")
    if applied is not None:
        print(f"serve it: hushtable serve {apply} --side left")


def _refuse_of_one_table(bundle: Path, traces: list[str] | None, options: dict[str, Any]) -> None:
    """Refuses what only the search for one table takes."""
    if not traces:
        raise ConfigError(
            f"give a trace: hushtable tune {bundle} TRACE, or of a model's features --trace "
            "FEATURE=FILE"
        )
    for name, value in options.items():
        if value is not None:
            word = name if name.isupper() else f"--{name}"
            raise ConfigError(
                f"{word} is for one table: with --trace give --max-comm-kb or --max-server-us, "
                "and no other limit"
            )


def _facts(result: TuneResult) -> dict[str, Any]:
    best, trace = result.best, result.facts["trace"]
    quality = "" if best.quality is None else f", quality {best.quality:.5g}"
    if quality and result.quality_clear is not None:
        quality += f" ({result.quality_clear:.5g} in the clear)"
    return {
        "chosen": f"{best.spec.describe()} [{best.family}]",
        "communication": f"{best.comm_kb:,.1f} KB an inference",
        "throughput": f"{best.inferences_per_s:,.0f} inferences/s/core, predicted "
        f"(passes of {best.batch}: {best.batch_ms:.3g} ms)",
        "latency": f"{best.latency_ms:.3g} ms of one server, predicted",
        "dropped": f"{best.drop:.3%} of {best.accesses:,} held-out accesses{quality}",
        "clients keep": f"{best.costs['map_bytes'] / 1e3:,.1f} KB of map",
        "learned from": f"{trace['accesses_learned']:,} accesses in {trace['bags_learned']:,} bags",
        "search": f"{result.facts['evaluations']} layouts, {result.facts['seconds']:.1f} s",
    }


def _load_quality(name: str) -> Quality:
    """The function that ``module:function`` or ``file.py:function`` names."""
    module_name, separator, function_name = name.rpartition(":")
    if not separator or not module_name or not function_name:
        raise ConfigError(f"--quality is {name!r}, but must be module:function or file.py:function")
    path = Path(module_name)
    folder = str(path.parent.resolve()) if path.suffix == ".py" else str(Path.cwd())
    if path.suffix == ".py" and not path.is_file():
        raise ConfigError(f"--quality: there is no file {path}")
    sys.path.insert(0, folder)
    try:
        module = importlib.import_module(path.stem if path.suffix == ".py" else module_name)
    except ImportError as error:
        raise ConfigError(f"--quality: {module_name} cannot be imported: {error}") from error
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigError(f"--quality: {module_name} has no function {function_name}")
    measure: Quality = function
    return measure
