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
from ..errors import ConfigError
from ..infer import (
    HybridPlanInfo,
    ModelInfo,
    NetworkInfo,
    PlanInfo,
    Predictions,
    Serving,
    connect,
    describe,
)
from ..infer import compile as compile_model
from ..infer import plan as plan_model
from ..infer import serve as run_server
from ..infer import shape as shape_of
from ..infer._client import KEY_BYTES_MAX
from ..infer._hybrid_client import STORE_BYTES_MAX
from ._settings import (
    CA_HELP,
    Config,
    Log,
    LogJson,
    gathered,
    parse_bytes,
    server_tls,
    with_settings,
)
from .infer_hybrid import (
    ADDRESS,
    DownOption,
    GarblerOption,
    Making,
    ParallelOption,
    Reach,
    StepsOption,
    Store,
    StoreBytesOption,
    StoreKeyOption,
    StoreOption,
    UpOption,
    kept_by,
    load_inputs,
    one_of,
    print_hybrid_plan,
    query_hybrid,
    register,
)
from .output import Json, examples, print_facts, print_json, print_table, progress_bar

app = typer.Typer(
    help="Compute a model that stays at its server on inputs that do not reach it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
register(app)

_Users = Annotated[
    int | None,
    typer.Option(help="Users that one query carries, a power of two. Default: 1."),
]


@app.command(
    "compile",
    epilog=examples(
        "hushtable infer compile models/clicks --spec model.toml",
        "hushtable infer compile models/clicks --spec model.toml --name batch --users 64 --json",
        "hushtable infer compile models/cifar --scheme hybrid --samples images.npy",
    ),
)
def compile_(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The model's folder.", show_default=False)
    ],
    scheme: Annotated[
        str,
        typer.Option(
            help="What to compile for: ckks, a DLRM on encrypted features, or hybrid, a network."
        ),
    ] = "ckks",
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
    samples: Annotated[
        Path | None,
        typer.Option(
            help="hybrid: a .npy file of inputs as the network will see them: what numbers become "
            "is taken from them.",
            show_default=False,
        ),
    ] = None,
    fraction: Annotated[int, typer.Option(help="hybrid: fraction bits.")] = 12,
    bits: Annotated[
        int | None,
        typer.Option(help="hybrid: bits of numbers, 16 to 64. Default: the least that suffices."),
    ] = None,
    rounding: Annotated[str, typer.Option(help="hybrid: stochastic or nearest.")] = "stochastic",
    json: Json = False,
) -> None:
    """Compile a model bundle into a plan, and write it into the bundle.

    For ckks the bundle's tables are the embeddings, its dense part is the rest; for hybrid its
    dense part is a network (hushtable infer import). The plan belongs to this version of the model.
    """
    if scheme == "hybrid":
        if spec is not None or users is not None:
            raise ConfigError("--spec and --users are for ckks: a network describes itself")
        inputs = None if samples is None else load_inputs(samples)
        found = compile_model(
            model,
            scheme="hybrid",
            name=name,
            samples=inputs,
            fraction=fraction,
            bits=bits,
            rounding=one_of("--rounding", rounding, ("stochastic", "nearest")),
        )
        print_hybrid_plan(found, json)
        return
    if scheme != "ckks":
        raise ConfigError(f"--scheme is {scheme}, but must be ckks or hybrid")
    if samples is not None or bits is not None:
        raise ConfigError("--samples and --bits are for --scheme hybrid")
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
        described = describe(model, plan=name)
        if isinstance(described, HybridPlanInfo):
            print_hybrid_plan(described, json)
            return
        found = described
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
        "hushtable infer serve models/cifar --store precomputes --store-bytes-max 100GiB",
        "hushtable infer serve --config infer.toml --json",
    )
)
@with_settings("infer", "hybrid", besides=("model",))
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
    """Serve a compiled model, on encrypted features or by hybrid inference, until SIGTERM.

    The plan says which. On encrypted features it computes a query of its own at the start and
    compares it with the model in the clear. Once ready, one line on standard output says model,
    version and URL, another what a client sends or keeps.
    """
    settings = gathered(("infer", "hybrid"), config, given)
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
        how = "by hybrid inference" if isinstance(info, NetworkInfo) else "on encrypted features"
        metrics = f"  metrics {serving.metrics_url}/metrics" if serving.metrics_url else ""
        print(
            f"ready: model {info.name!r} version {info.version[:16]} {how} at "
            f"{serving.url}{metrics}",
            flush=True,
        )
        costs = kept_by(info) if isinstance(info, NetworkInfo) else _costs(info)
        print(costs, flush=True)

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
        "hushtable infer query --input images.npy --store mine --address https://one.example:4000 "
        "--ca ca.pem",
    )
)
def query(
    address: Annotated[
        list[str] | None,
        typer.Option(
            help="URL of the server; may be repeated, for other servers of the same operator, "
            f"asked where those before drain or are out of reach. Default: {ADDRESS}.",
            envvar="HUSHTABLE_ADDRESS",
            show_default=False,
        ),
    ] = None,
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
        typer.Option(help=CA_HELP, envvar="HUSHTABLE_CA"),
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
    garbler: GarblerOption = "server",
    parallel: ParallelOption = "layer",
    steps: StepsOption = 8,
    up_mbps: UpOption = None,
    down_mbps: DownOption = None,
    store: StoreOption = None,
    store_key: StoreKeyOption = None,
    store_bytes_max: StoreBytesOption = STORE_BYTES_MAX,
    json: Json = False,
) -> None:
    """Have a model computed, on encrypted features or by hybrid inference: what the server offers.

    On encrypted features every run makes new keys and uploads them; their size is said before; each
    user's logit and probability are printed. By hybrid inference --input is a .npy file of inputs;
    each uses up a precompute of --store, or one that is made now, and its outputs are printed. For
    many queries, stay connected (hushtable.infer.connect in Python).
    """
    address = address or [ADDRESS]
    reach = Reach(address, ca, certificate, key, timeout, insecure)
    if reach.is_hybrid():
        if input_ is None or dense is not None or sparse is not None:
            raise ConfigError("which inputs? this server takes a .npy file of them: --input FILE")
        making = Making(garbler, parallel, steps, up_mbps, down_mbps)
        own = Store(store, store_key, store_bytes_max)
        query_hybrid(reach, making, own, input_, json)
        return
    if (dense is None) == (input_ is None):
        raise ConfigError("which users? give --dense (and --sparse) for one, or --input for many")
    with (
        progress_bar("uploading keys", shown=not json, of_bytes=True) as bar,
        connect(
            address,
            scheme="ckks",
            tls=reach.tls(),
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
            print(f"keys of {info.key_bytes:,} B go to {address[0]}", file=sys.stderr)
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
