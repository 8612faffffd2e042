"""``hushtable model``: build, describe and check model bundles."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ConfigError
from ..model import BuildPlan, Feature, Model, ModelPlan, ModelReport, verify_model
from ..table import PARAMETERS
from ._workers import RayAddress, RayInsecure, Workers, given_workers
from .output import DTYPES, Json, command, print_facts, print_json, print_table, progress_bar
from .table import _killable

_Folder = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The model's folder.", show_default=False)
]


@command(
    "hushtable model build dlrm.pt -o models/clicks --dry-run",
    "hushtable model build dlrm.pt -o models/clicks --max-ids 20 --pooling mean",
    "hushtable model build checkpoint/ -o models/clicks --tables '*.embedding_bags.*' --dtype f16",
    "hushtable model build model.safetensors.index.json -o models/clicks --spec model.toml",
)
def build(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            help="A .pt, .pth, .bin, .safetensors, .npz or .npy file, a .safetensors.index.json, "
            "or a folder: of torch.distributed.checkpoint, of safetensors shards, or of tables.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder to make.", show_default=False)
    ],
    name: Annotated[
        str | None, typer.Option(help="The model's name; the folder's by default.")
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB",
            help="Which tensors are tables, with * and ?; may be repeated. By default those that "
            "are named as embeddings.",
            show_default=False,
        ),
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file: [[feature]] with name, table, pooling, max_ids; [tables.NAME] with "
            "key, dtype.",
            show_default=False,
        ),
    ] = None,
    max_ids: Annotated[
        int, typer.Option(help="Most ids of one inference, of features that say nothing else.")
    ] = 1,
    pooling: Annotated[
        str, typer.Option(help="sum, mean or none, of features that say nothing else.")
    ] = "sum",
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", "--quantize", help=f"{DTYPES}; each tensor's own by default."),
    ] = None,
    dense: Annotated[
        bool, typer.Option("--dense/--no-dense", help="Keep the tensors that are no tables.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what is found, and write nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Build a model bundle from a checkpoint; an old bundle stands until the new one is whole.

    Every embedding becomes a table, read by a feature of its name; the other tensors are kept in
    dense.safetensors. The same checkpoint makes the same version. Nothing in it is executed.
    """
    options: dict[str, Any] = {
        "tables": tables,
        "spec": spec,
        "max_ids": max_ids,
        "pooling": pooling,
        "dtype": dtype,
        "dense": dense,
    }
    if dry_run:
        _print_plan(Model.plan(checkpoint, name=name or "model", **options), json)
        return
    started = time.perf_counter()
    with progress_bar("building", shown=not json, of_bytes=True) as progress, _killable():
        model = Model.build(checkpoint, output, name=name, progress=progress, **options)
    seconds = time.perf_counter() - started
    if json:
        print_json({**_facts(model), "seconds": round(seconds, 3)})
        return
    _print_model(model)
    print(f"built in {seconds:.1f} s; serve it: hushtable serve {output} --side left")


def _print_plan(plan: BuildPlan, as_json: bool) -> None:
    if as_json:
        print_json(dataclasses.asdict(plan))
        return
    found = [[t["name"], t["key"], t["rows"], t["dim"], t["stored"]] for t in plan.tables]
    print_table(
        ["table", "tensor", "rows", "dim", "type"],
        [[name, key, f"{rows:,}", str(dim), kind] for name, key, rows, dim, kind in found],
    )
    features = [f"{f.name} ({f.table}, {f.pooling}, {f.max_ids})" for f in plan.features]
    print_facts(
        {
            "checkpoint": plan.format,
            "features": ", ".join(features),
            "kept beside": ", ".join(plan.dense) or "nothing",
            "left out": ", ".join(plan.left_out) or "nothing",
        }
    )


@command("hushtable model info models/clicks", "hushtable model info models/clicks --json")
def info(folder: _Folder, json: Json = False) -> None:
    """Print a model's name and version, its features and its tables."""
    model = Model.open(folder)
    if json:
        print_json(_facts(model))
        return
    _print_model(model)


def _print_model(model: Model) -> None:
    tables = {table.name: table for table in model.tables}
    print_facts(
        {
            "model": model.name,
            "version": model.version,
            "path": str(model.path),
            "dense": ", ".join(model.dense_shapes()) or "none",
            "plans": ", ".join(map(_plan_text, model.plans)) or "none",
        }
    )
    rows = []
    for feature in model.features:
        table = tables[feature.table]
        rows.append(
            [
                feature.name,
                feature.table,
                feature.pooling,
                f"{feature.max_ids:,}",
                f"{table.rows:,}",
                str(table.dim),
                table.dtype,
                table.version[:16],
                "none" if table.layout is None else table.layout[:16],
            ]
        )
    columns = ["feature", "table", "pooling", "max ids", "rows", "dim", "dtype", "version"]
    print_table([*columns, "layout"], rows)


@command("hushtable model verify models/clicks", "hushtable model verify models/clicks --json")
def verify(folder: _Folder, json: Json = False) -> None:
    """Read every byte of a model; exits with 1 if one is not as it was built, and names what is
    damaged."""
    with progress_bar("verifying", shown=not json, of_bytes=True) as progress:
        report = verify_model(folder, progress=progress)
    if json:
        print_json(dataclasses.asdict(report))
    else:
        _print_report(report, folder)
    if not report.ok:
        raise typer.Exit(1)


@command(
    "hushtable model prepare models/clicks",
    "hushtable model prepare models/clicks --table items --table shops --workers 2",
    "hushtable model prepare /shared/models/clicks --ray auto --threads 8 --json",
)
def prepare(
    folder: _Folder,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table", help="Which table; may be repeated. All by default.", show_default=False
        ),
    ] = None,
    parameters: Annotated[
        str, typer.Option(help="Parameter set: n4096_128 or ive_paper.")
    ] = PARAMETERS,
    threads: Annotated[
        int,
        typer.Option(
            help="Threads of each table; 0 for one a core. With --workers or --ray: of each task, "
            "1 by default."
        ),
    ] = 0,
    workers: Workers = None,
    ray: RayAddress = None,
    insecure: RayInsecure = False,
    json: Json = False,
) -> None:
    """Make the files that a single server answers a model's tables from.

    As `hushtable table prepare` for each table, with --workers or --ray for several at once; large
    ones are cut into ranges. Interrupted, it goes on where it ended. On several machines the model
    is on a disk that they share.
    """
    from ..scale.preparing import prepare_model

    model = Model.open(folder)
    started = time.perf_counter()
    with (
        given_workers(workers, ray, insecure=insecure) as pool,
        progress_bar("preparing", shown=not json, of_bytes=True) as progress,
    ):
        made = prepare_model(
            model,
            tables=tables,
            parameters=parameters,
            threads=threads,
            pool=pool,
            progress=progress,
        )
    seconds = time.perf_counter() - started
    if json:
        facts = {
            name: {**dataclasses.asdict(info), "path": str(info.path)}
            for name, info in made.items()
        }
        print_json({"model": model.name, "tables": facts, "seconds": round(seconds, 3)})
        return
    print_table(
        ["table", "bytes", "seconds", "how"],
        [
            [
                name,
                f"{info.prepared_bytes:,}",
                f"{info.seconds:.1f}",
                "was there already" if info.reused else "made",
            ]
            for name, info in made.items()
        ],
    )
    print(f"prepared in {seconds:.1f} s; serve it: hushtable serve {folder} --scheme onion")


def _print_report(report: ModelReport, folder: Path) -> None:
    for table in report.tables:
        if table.error is not None:
            print(f"table {table.name}: {table.error}")
        for damage in table.damaged:
            print(f"table {table.name}: {damage}")
        more = table.damaged_count - len(table.damaged)
        if more > 0:
            print(f"table {table.name}: and {more:,} more")
    if report.dense is not None:
        print(report.dense)
    for plan in report.plans:
        if plan.error is not None:
            print(plan.error)
    if report.ok:
        rows = sum(table.rows for table in report.tables)
        print(f"ok: {len(report.tables)} tables, {rows:,} rows, are as they were built")
    else:
        print(f"damaged: build {folder} again, or restore it from a copy")


def open_model(path: Path, feature: str | None) -> Model | None:
    """The model at ``path``, for commands that take a table's bundle too; None for one of these.

    Raises:
        ConfigError: a feature was asked for, and this is no model.
    """
    if (path / "model.json").exists() or path.name == "model.json":
        return Model.open(path)
    if feature is not None:
        raise ConfigError(f"--feature {feature} is of a model, and {path} is none")
    return None


def model_feature(model: Model, name: str | None) -> Feature:
    """The feature of this name; without one, the model's only.

    Raises:
        ConfigError: there are several, and none was named.
        ModelError: there is none of this name.
    """
    if name is not None:
        return model.feature(name)
    if len(model.features) > 1:
        names = ", ".join(feature.name for feature in model.features[:8])
        raise ConfigError(
            f"the model {model.name!r} has several features: name one with --feature ({names})"
        )
    return model.features[0]


def _plan_text(plan: ModelPlan) -> str:
    if plan.error is not None:
        return f"{plan.name} (unusable: `hushtable model verify` says why)"
    return f"{plan.name} ({plan.scheme}, {plan.version[:16]})"


def _facts(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "version": model.version,
        "path": str(model.path),
        "features": [dataclasses.asdict(feature) for feature in model.features],
        "tables": [dataclasses.asdict(table) for table in model.tables],
        "dense": list(model.dense_shapes()),
        "plans": [dataclasses.asdict(plan) for plan in model.plans],
    }
