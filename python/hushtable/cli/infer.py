"""``hushtable infer``: a model computed on encrypted features."""

from __future__ import annotations

import csv
import dataclasses
import sys
from json import JSONDecodeError, loads
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from .. import _native
from ..client import TlsConfig
from ..errors import ConfigError
from ..infer import ModelInfo, PlanInfo, Predictions, Serving, connect, describe
from ..infer import compile as compile_model
from ..infer import plan as plan_model
from ..infer import serve as run_server
from ..infer import shape as shape_of
from ..infer._client import KEY_BYTES_MAX
from ._settings import Config, Log, LogJson, gathered, parse_bytes, server_tls, with_settings
from .output import Json, examples, print_facts, print_json, print_table, progress_bar

app = typer.Typer(
    help="Compute a model on encrypted features: compile it, serve it, ask it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_Users = Annotated[
    int | None,
    typer.Option(help="Users that one query carries, a power of two. Default: 1."),
]


@app.command(
    "compile",
    epilog=examples(
        "hushtable infer compile models/clicks --spec model.toml",
        "hushtable infer compile models/clicks --spec model.toml --name batch --users 64 --json",
    ),
)
def compile_(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The model's folder.", show_default=False)
    ],
    scheme: Annotated[str, typer.Option(help="What to compile for: ckks.")] = "ckks",
    spec: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file, the model's description; that of the plan there is by default.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The plan's name; the model's by default.")
    ] = None,
    users: _Users = None,
    json: Json = False,
) -> None:
    """Compile a model bundle into a plan for encrypted features, and write it into the bundle.

    The bundle's tables are the embeddings, its dense part is the rest. The plan says parameters,
    levels and rotations; it belongs to this version of the model.
    """
    if scheme != "ckks":
        raise ConfigError(f"--scheme is {scheme}, but must be ckks")
    _print_plan(compile_model(model, spec=spec, name=name, users=users), json)


@app.command(
    epilog=examples(
        "hushtable infer plan models/clicks",
        "hushtable infer plan model.toml",
        "hushtable infer plan --shape criteo --threshold 5000 --json",
    )
)
def plan(
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL",
            help="A model's folder, for the plan in it; or a model's description, TOML.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Which of the model's plans; the only one by default.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="Instead of a model: uci or criteo.", show_default=False)
    ] = None,
    threshold: Annotated[
        int | None,
        typer.Option(
            help="With --shape, most rows of a feature whose table stays as it is; larger ones are "
            "cut into digits.",
            show_default=False,
        ),
    ] = None,
    users: _Users = None,
    json: Json = False,
) -> None:
    """Print how a model is computed on encrypted features, and what that costs.

    Of a description or a shape: how it would be, without any weights.
    """
    if (model is None) == (shape is None):
        raise ConfigError("which model? give a folder, a description, or --shape uci or criteo")
    if threshold is not None and shape is None:
        raise ConfigError("--threshold is for --shape: a description says its own")
    if shape is not None:
        found = plan_model(shape_of(shape, threshold=threshold), users=users)
    elif model is not None and model.is_dir():
        if users is not None:
            raise ConfigError("--users is the plan's own: `hushtable infer compile` sets it")
        found = describe(model, plan=name)
    else:
        found = plan_model(model or "", users=users)
    _print_plan(found, json)


def _print_plan(plan: PlanInfo, as_json: bool) -> None:
    if as_json:
        print_json(dataclasses.asdict(plan))
        return
    facts: dict[str, Any] = {}
    if plan.name:
        facts |= {"plan": plan.name, "hash": plan.plan}
    facts |= {
        "ring": f"N = {plan.degree:,}, log2 QP = {plan.log2_modulus:.1f}, {plan.levels} levels",
        "users": f"{plan.users_per_query:,} a query",
        "query": f"{plan.query_bytes:,} B in {plan.ciphertexts} ciphertexts",
        "answer": f"{plan.answer_bytes:,} B",
        "keys": f"{plan.key_bytes:,} B, uploaded once ({plan.rotations} rotations)",
        "predicted": f"{plan.predicted_ms:,.1f} ms a query, one thread",
    }
    print_facts(facts)
    print(plan.text.rstrip())


@app.command(
    epilog=examples(
        "hushtable infer serve models/clicks",
        "hushtable infer serve models/clicks --addr 0.0.0.0:4000 --tls-cert certs/server.pem "
        "--tls-key certs/server.key --keys-folder keys",
        "hushtable infer serve --config infer.toml --json",
    )
)
@with_settings("infer", besides=("model",))
def serve(
    model: Annotated[
        Path | None,
        typer.Argument(
            help="The folder of a model with a plan.",
            envvar="HUSHTABLE_MODEL",
            show_default=False,
            metavar="MODEL",
        ),
    ] = None,
    config: Config = None,
    log: Log = "warn",
    log_json: LogJson = False,
    json: Json = False,
    **given: Any,
) -> None:
    """Serve a compiled model on encrypted features, until SIGTERM or Ctrl-C.

    At the start it computes an encrypted query of its own and compares it with the model in the
    clear. Once ready, one line on standard output says model, version and URL, another what a
    client sends.
    """
    settings = gathered(("infer",), config, given)
    if model is not None:
        settings["model"] = str(model)
    path = settings.pop("model", None)
    if path is None:
        raise ConfigError("which model? give the bundle's folder: hushtable infer serve MODEL")
    tls = server_tls(settings)
    _native.log_to_stderr(log, log_json)

    def on_ready(serving: Serving) -> None:
        if json:
            print_json({"event": "ready", **dataclasses.asdict(serving)})
            return
        info = serving.model
        metrics = f"  metrics {serving.metrics_url}/metrics" if serving.metrics_url else ""
        print(
            f"ready: model {info.name!r} version {info.version[:16]} on encrypted features at "
            f"{serving.url}{metrics}",
            flush=True,
        )
        print(_costs(info), flush=True)

    run_server(path, tls=tls, on_ready=on_ready, **settings)
    if json:
        print_json({"event": "stopped"})


def _costs(info: ModelInfo) -> str:
    return (
        f"{info.key_bytes:,} B of keys once, then {info.query_bytes:,} B up and "
        f"{info.answer_bytes:,} B down for up to {info.users_per_query} users"
    )


@app.command(
    epilog=examples(
        "hushtable infer query --dense 0.5,1.2,0,3,0.1 --sparse 3,17 --ca ca.pem "
        "--address https://one.example:4000",
        "hushtable infer query --input users.csv --json",
        "hushtable infer query --input - < users.jsonl",
    )
)
def query(
    address: Annotated[
        str, typer.Option(help="URL of the server.", envvar="HUSHTABLE_ADDRESS")
    ] = "http://127.0.0.1:4000",
    dense: Annotated[
        str | None,
        typer.Option(help="One user's numbers, with commas between.", show_default=False),
    ] = None,
    sparse: Annotated[
        str | None,
        typer.Option(help="Its rows, one a table, with commas between.", show_default=False),
    ] = None,
    input_: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="Users instead: CSV (the numbers, then the rows; a header is passed over) or JSON "
            'lines ({"dense": [...], "sparse": [...]}); - for standard input.',
            show_default=False,
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(help="PEM file: the authority of the server.", envvar="HUSHTABLE_CA"),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(help="PEM file: this client's certificate.", envvar="HUSHTABLE_CERTIFICATE"),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="PEM file: the certificate's key.", envvar="HUSHTABLE_CERTIFICATE_KEY"),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds a query may take.", envvar="HUSHTABLE_TIMEOUT")
    ] = 60.0,
    key_bytes_max: Annotated[
        int,
        typer.Option(
            help="Largest keys to make and upload. Default: 4 GiB.",
            parser=parse_bytes,
            show_default=False,
            metavar="",
        ),
    ] = KEY_BYTES_MAX,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Allow http:// to another machine.", envvar="HUSHTABLE_INSECURE"
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Have a model computed on encrypted features; print each user's logit and probability.

    Every run makes new keys and uploads them; their size is said before. For many queries, stay
    connected (hushtable.infer.connect in Python).
    """
    if (dense is None) == (input_ is None):
        raise ConfigError("which users? give --dense (and --sparse) for one, or --input for many")
    if (certificate or key) and ca is None:
        raise ConfigError("a client certificate is for https: give --ca too")
    tls = TlsConfig(ca, certificate, key) if ca else None
    with (
        progress_bar("uploading keys", shown=not json, of_bytes=True) as bar,
        connect(
            address,
            tls=tls,
            timeout=timeout,
            key_bytes_max=key_bytes_max,
            insecure=insecure,
            progress=bar,
        ) as client,
    ):
        info = client.info
        if input_ is None:
            numbers, rows = _one(dense or "", sparse or "")
        else:
            numbers, rows = _many(input_, info)
        if not json:
            print(f"keys of {info.key_bytes:,} B go to {address}", file=sys.stderr)
        found = client.predict(numbers, rows)
    _print_found(found, json)


def _print_found(found: Predictions, as_json: bool) -> None:
    stats = found.stats
    if as_json:
        print_json(
            {
                "logits": found.logits.tolist(),
                "probabilities": found.probabilities.tolist(),
                "stats": None if stats is None else dataclasses.asdict(stats),
            }
        )
        return
    pairs = zip(found.logits, found.probabilities, strict=True)
    print_table(
        ["user", "logit", "probability"],
        [[str(user), f"{logit:.4f}", f"{share:.4f}"] for user, (logit, share) in enumerate(pairs)],
    )
    if stats is not None:
        print(
            f"{stats.seconds:.2f} s, {stats.answer_seconds:.2f} of them computing; "
            f"{stats.bytes_up:,} B up, {stats.bytes_down:,} B down",
            file=sys.stderr,
        )


_Features = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]


def _one(dense: str, sparse: str) -> _Features:
    numbers = [_number(part) for part in dense.split(",") if part.strip()]
    rows = [_row(part) for part in sparse.split(",") if part.strip()]
    return np.array([numbers], np.float64), np.array([rows], np.int64).reshape(1, len(rows))


def _many(path: Path, info: ModelInfo) -> _Features:
    text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise ConfigError(f"{path} holds no users")
    parse = _json_lines if lines[0].lstrip().startswith("{") else _csv_lines
    numbers, rows = parse(lines, path, info)
    return np.array(numbers, np.float64), np.array(rows, np.int64).reshape(len(rows), -1)


def _json_lines(
    lines: list[str], path: Path, info: ModelInfo
) -> tuple[list[list[float]], list[list[int]]]:
    numbers, rows = [], []
    for at, line in enumerate(lines, 1):
        try:
            record = loads(line)
            dense, sparse = record["dense"], record.get("sparse", [])
            numbers.append([float(number) for number in dense])
            rows.append([int(row) for row in sparse])
        except (JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f'{path}, line {at}: {error}; expected {{"dense": [...], "sparse": [...]}}'
            ) from error
        _check_width(len(numbers[-1]), len(rows[-1]), f"{path}, line {at}", info)
    return numbers, rows


def _csv_lines(
    lines: list[str], path: Path, info: ModelInfo
) -> tuple[list[list[float]], list[list[int]]]:
    numbers, rows = [], []
    for at, cells in enumerate(csv.reader(lines), 1):
        if at == 1 and any(not _is_number(cell) for cell in cells):
            continue
        where = f"{path}, line {at}"
        _check_width(min(len(cells), info.dense), len(cells) - info.dense, where, info)
        try:
            numbers.append([_number(cell) for cell in cells[: info.dense]])
            rows.append([_row(cell) for cell in cells[info.dense :]])
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
    if not numbers:
        raise ConfigError(f"{path} holds no users, only a header")
    return numbers, rows


def _check_width(dense: int, sparse: int, where: str, info: ModelInfo) -> None:
    if (dense, sparse) != (info.dense, len(info.rows)):
        raise ConfigError(
            f"{where} has {dense} numbers and {max(sparse, 0)} rows: the model takes {info.dense} "
            f"numbers and {len(info.rows)} rows"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(text: str) -> float:
    if not _is_number(text):
        raise ConfigError(f"{text!r} is no number")
    return float(text)


def _row(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{text!r} is no row: rows are whole numbers") from None
