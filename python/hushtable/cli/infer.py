"""``hushtable infer``: a model computed on encrypted features."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import _native
from ..client import ClientOptions, connect
from ..client.connecting import offered_by
from ..client.options import KEY_BYTES_MAX, STORE_BYTES_MAX
from ..errors import ConfigError
from ..infer import (
    HybridPlanInfo,
    ModelInfo,
    NetworkInfo,
    PlanInfo,
    Serving,
    SharesInfo,
    SharesPlanInfo,
    compile_shares,
    describe,
    describe_shares,
    plan_shares,
)
from ..infer import compile as compile_model
from ..infer import plan as plan_model
from ..infer import serve as run_server
from ..infer import shape as shape_of
from ..infer._kinds import KINDS
from ..infer._shares import shares_inputs
from ..model import Model
from ..server import ServerTls
from ._servers import LEFT, Servers, with_servers
from ._settings import (
    Config,
    Log,
    LogJson,
    gathered,
    parse_bytes,
    server_tls,
    with_settings,
)
from .infer_hybrid import (
    DownOption,
    GarblerOption,
    Making,
    ParallelOption,
    StepsOption,
    Store,
    StoreBytesOption,
    StoreKeyOption,
    StoreLedgerOption,
    StoreOption,
    UpOption,
    kept_by,
    load_inputs,
    one_of,
    print_hybrid_plan,
    query_hybrid,
)
from .infer_shares import print_shares_plan, query_shares, shared_by
from .infer_users import load_users, one_user, print_logits
from .output import Json, command, print_facts, print_json, progress_bar

_Users = Annotated[
    int | None,
    typer.Option(help="Users that one query carries, a power of two. Default: 1."),
]
_KeyBytesMax = Annotated[
    int | None,
    typer.Option(
        "--key-bytes-max",
        help="Under encryption, the largest keys that a client uploads; smaller ones take the "
        "server more time. Default: keys are weighed against time.",
        parser=parse_bytes,
        show_default=False,
        metavar="",
    ),
]

_QueryBytesMax = Annotated[
    int | None,
    typer.Option(
        "--query-bytes-max",
        help="Under encryption, the largest query that a client uploads; one-hot vectors of large "
        "tables go in parts where it asks for that. Default: above 10 MB, weighed against time.",
        parser=parse_bytes,
        show_default=False,
        metavar="",
    ),
]


@command(
    "hushtable infer compile models/clicks --spec model.toml",
    "hushtable infer compile models/clicks --spec model.toml --name batch --users 64 --json",
    "hushtable infer compile models/cifar --scheme hybrid --samples images.npy",
    "hushtable infer compile models/cifar --scheme hybrid --verify-uploads",
    "hushtable infer compile models/clicks --scheme shares --spec model.toml --samples users.csv",
)
def compile_(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The model's folder.", show_default=False)
    ],
    scheme: Annotated[
        str,
        typer.Option(
            help="What to compile for: ckks, a DLRM on encrypted features; shares, one on the "
            "shares of two servers; or hybrid, a network."
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
    key_bytes_max: _KeyBytesMax = None,
    query_bytes_max: _QueryBytesMax = None,
    samples: Annotated[
        Path | None,
        typer.Option(
            help="How large numbers become is taken from these. hybrid: a .npy file of inputs as "
            "the network will see them; shares: users, CSV or JSON lines, as of `infer query`.",
            show_default=False,
        ),
    ] = None,
    fraction: Annotated[int, typer.Option(help="hybrid: fraction bits.")] = 12,
    bits: Annotated[
        int | None,
        typer.Option(help="hybrid: bits of numbers, 16 to 64. Default: the least that suffices."),
    ] = None,
    rounding: Annotated[str, typer.Option(help="hybrid: stochastic or nearest.")] = "stochastic",
    verify_uploads: Annotated[
        bool,
        typer.Option(
            "--verify-uploads",
            help="hybrid: clients prove that their uploads are encryptions of numbers. Without, "
            "one that cheats can read the weights.",
        ),
    ] = False,
    fraction_bits: Annotated[
        int | None,
        typer.Option(help="shares: bits after the point. Default: 12.", show_default=False),
    ] = None,
    value_bits: Annotated[
        int | None,
        typer.Option(
            help="shares: bits of a row's value, 8 or 16. Default: 8.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compile a model bundle into a plan, and write it into the bundle.

    For ckks and shares the bundle's tables are the embeddings, its dense part is the rest; for
    hybrid its dense part is a network (hushtable infer import). The plan belongs to this version of
    the model.
    """
    if scheme != "shares" and (fraction_bits is not None or value_bits is not None):
        raise ConfigError("--fraction-bits and --value-bits are for --scheme shares")
    if scheme == "hybrid":
        if spec is not None or users is not None:
            raise ConfigError("--spec and --users are for ckks: a network describes itself")
        if key_bytes_max is not None:
            raise ConfigError("--key-bytes-max is for ckks: a network's keys are its own")
        if query_bytes_max is not None:
            raise ConfigError("--query-bytes-max is for ckks: a network's inputs are its own")
        inputs = None if samples is None else load_inputs(samples)
        found = compile_model(
            model,
            scheme="hybrid",
            name=name,
            samples=inputs,
            fraction=fraction,
            bits=bits,
            rounding=one_of("--rounding", rounding, ("stochastic", "nearest")),
            verify_uploads=verify_uploads,
        )
        print_hybrid_plan(found, json)
        return
    if bits is not None:
        raise ConfigError("--bits is for --scheme hybrid")
    if verify_uploads:
        raise ConfigError("--verify-uploads is for --scheme hybrid")
    if scheme == "shares":
        if users is not None:
            raise ConfigError("--users is for ckks: a prediction on shares serves one user")
        if key_bytes_max is not None:
            raise ConfigError("--key-bytes-max is for ckks: shares are not encrypted")
        if query_bytes_max is not None:
            raise ConfigError("--query-bytes-max is for ckks: shares are not encrypted")
        if samples is None:
            raise ConfigError("which users show how large numbers become? give --samples FILE")
        bundle = Model.open(model)
        dense, sparse = load_users(samples, *shares_inputs(bundle, spec=spec, name=name))
        print_shares_plan(
            compile_shares(
                bundle,
                dense,
                sparse,
                spec=spec,
                name=name,
                fraction_bits=12 if fraction_bits is None else fraction_bits,
                value_bits=8 if value_bits is None else value_bits,
            ),
            json,
        )
        return
    if scheme != "ckks":
        raise ConfigError(f"--scheme is {scheme}, but must be ckks, shares or hybrid")
    if samples is not None:
        raise ConfigError("--samples is for --scheme shares and hybrid")
    compiled = compile_model(
        model,
        spec=spec,
        name=name,
        users=users,
        key_bytes_max=key_bytes_max,
        query_bytes_max=query_bytes_max,
    )
    _print_plan(compiled, json)


@command(
    "hushtable infer plan models/clicks",
    "hushtable infer plan model.toml",
    "hushtable infer plan --shape criteo --threshold 5000 --json",
    "hushtable infer plan --shape criteo --shares",
    "hushtable infer plan models/clicks --shares",
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
    key_bytes_max: _KeyBytesMax = None,
    query_bytes_max: _QueryBytesMax = None,
    shares: Annotated[
        bool,
        typer.Option(
            "--shares",
            help="Instead: what a prediction takes on the shares of two servers; of a description "
            "or a shape with ReLUs and weights that are made up.",
        ),
    ] = False,
    fraction_bits: Annotated[
        int | None,
        typer.Option(help="With --shares, bits after the point. Default: 12.", show_default=False),
    ] = None,
    value_bits: Annotated[
        int | None,
        typer.Option(
            help="With --shares, bits of a row's value: 8 or 16. Default: 8.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Print how a model is computed on encrypted features, and what that costs.

    Of a description or a shape: how it would be, without any weights. With --shares: bytes,
    messages and work of one prediction by two servers that do not collude, measured here.
    """
    if (model is None) == (shape is None):
        raise ConfigError("which model? give a folder, a description, or --shape uci or criteo")
    if threshold is not None and shape is None:
        raise ConfigError("--threshold is for --shape: a description says its own")
    if not shares and (fraction_bits is not None or value_bits is not None):
        raise ConfigError("--fraction-bits and --value-bits are for --shares")
    if shares:
        if users is not None or threshold is not None or key_bytes_max is not None:
            raise ConfigError("--users, --threshold and --key-bytes-max are for encrypted features")
        if query_bytes_max is not None:
            raise ConfigError("--query-bytes-max is for encrypted features")
        if model is not None and model.is_dir():
            if fraction_bits is not None or value_bits is not None:
                raise ConfigError("bits are the plan's own: `hushtable infer compile` sets them")
            print_shares_plan(describe_shares(model, plan=name), json)
            return
        if name is not None:
            raise ConfigError("--name is which plan of a model's folder: give the folder")
        spec = shape_of(shape) if shape is not None else model or ""
        print_shares_plan(
            plan_shares(
                spec,
                fraction_bits=12 if fraction_bits is None else fraction_bits,
                value_bits=8 if value_bits is None else value_bits,
            ),
            json,
        )
        return
    if shape is not None:
        description = shape_of(shape, threshold=threshold)
        found = plan_model(
            description, users=users, key_bytes_max=key_bytes_max, query_bytes_max=query_bytes_max
        )
    elif model is not None and model.is_dir():
        if users is not None:
            raise ConfigError("--users is the plan's own: `hushtable infer compile` sets it")
        if key_bytes_max is not None:
            raise ConfigError("keys are the plan's own: `hushtable infer compile` bounds them")
        if query_bytes_max is not None:
            raise ConfigError("queries are the plan's own: `hushtable infer compile` bounds them")
        described = describe(model, plan=name)
        if isinstance(described, HybridPlanInfo):
            print_hybrid_plan(described, json)
            return
        if isinstance(described, SharesPlanInfo):
            print_shares_plan(described, json)
            return
        found = described
    else:
        found = plan_model(
            model or "", users=users, key_bytes_max=key_bytes_max, query_bytes_max=query_bytes_max
        )
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
        "memory": f"{plan.key_memory_bytes:,} B for each client's keys, "
        f"{plan.map_memory_bytes:,} B for the model",
        "predicted": f"{plan.predicted_ms:,.1f} ms a query, one thread",
    }
    print_facts(facts)
    print(plan.text.rstrip())


@command(
    "hushtable infer serve models/clicks",
    "hushtable infer serve models/clicks --addr 0.0.0.0:4000 --tls-cert certs/server.pem "
    "--tls-key certs/server.key --keys-folder keys",
    "hushtable infer serve models/cifar --store precomputes --store-bytes-max 100GiB",
    "hushtable infer serve models/clicks --side left --peer https://right.example:4000 "
    "--peer-ca right.pem --tls-cert left.pem --tls-key left.key --peer-cert peer.pem "
    "--peer-key peer.key",
    "hushtable infer serve --config infer.toml --json",
)
@with_settings(
    *KINDS,
    besides=("model",),
    panels={scheme: row.how.capitalize() for scheme, row in KINDS.items()},
)
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
    """Serve a compiled model, on encrypted features, on shares or by hybrid inference.

    The plan says which. On encrypted features it computes a query of its own at the start and
    compares it with the model in the clear. On shares this is one of two servers: left calls right.
    Once ready, one line on standard output says model, version and URL, another what a client sends
    or keeps. It runs until SIGTERM.
    """
    settings = gathered(tuple(KINDS), config, given)
    if model is not None:
        settings["model"] = str(model)
    path = settings.pop("model", None)
    if path is None:
        raise ConfigError("which model? give the bundle's folder: hushtable infer serve MODEL")
    tls = server_tls(settings)
    _native.log_to_stderr(log, log_json)

    serve_model(path, tls, json, settings)


def serve_model(
    path: str | Path, tls: ServerTls | None, as_json: bool, settings: dict[str, Any]
) -> None:
    """Serves a compiled model, and says so in a line once it is ready."""

    def on_ready(serving: Serving) -> None:
        if as_json:
            print_json({"event": "ready", **dataclasses.asdict(serving)})
            return
        info = serving.model
        if isinstance(info, SharesInfo):
            how, costs = f"on shares, as the {info.side} server,", shared_by(info)
        elif isinstance(info, NetworkInfo):
            how, costs = "by hybrid inference", kept_by(info)
        else:
            how, costs = "on encrypted features", _costs(info)
        metrics = f"  metrics {serving.metrics_url}" if serving.metrics_url else ""
        print(
            f"ready: model {info.name!r} version {info.version[:16]} {how} at "
            f"{serving.url}{metrics}",
            flush=True,
        )
        print(costs, flush=True)

    run_server(path, tls=tls, on_ready=on_ready, **settings)
    if as_json:
        print_json({"event": "stopped"})


def _costs(info: ModelInfo) -> str:
    return (
        f"{info.key_bytes:,} B of keys once, then {info.query_bytes:,} B up and "
        f"{info.answer_bytes:,} B down for up to {info.users_per_query} users"
    )


def _telling(
    bar: Callable[[int, int], None] | None, url: str, *, shown: bool
) -> Callable[[int, int], None]:
    """Says how large the keys are once they go, which is after the users' features were taken."""
    said = not shown

    def told(done: int, total: int) -> None:
        nonlocal said
        if not said:
            print(f"keys of {total:,} B go to {url}", file=sys.stderr)
        said = True
        if bar is not None:
            bar(done, total)

    return told


@command(
    "hushtable infer query --dense 0.5,1.2,0,3,0.1 --sparse 3,17 --ca ca.pem "
    "--server https://one.example:4000",
    "hushtable infer query --input users.csv --json",
    "hushtable infer query --input - < users.jsonl",
    "hushtable infer query --input images.npy --store mine --server https://one.example:4000 "
    "--ca ca.pem",
    "hushtable infer query --left https://one.example:4000 --right https://two.example:4000 "
    "--left-ca one.pem --right-ca two.pem --dense 0.5,1.2 --sparse 3,17",
    more={
        "By hybrid inference": (
            *("garbler", "parallel", "steps", "up_mbps", "down_mbps"),
            *("store", "store_key", "store_ledger", "store_bytes_max"),
        )
    },
)
@with_servers()
def query(
    servers: Servers,
    dealer: Annotated[
        str | None,
        typer.Option(
            help="With --left: accept what client or servers deal alone. Default: what the servers "
            "announce.",
            show_default=False,
        ),
    ] = None,
    dense: Annotated[
        str | None,
        typer.Option(help="One user's numbers, with commas between.", show_default=False),
    ] = None,
    sparse: Annotated[
        str | None,
        typer.Option(
            help="Its rows, one a table, with commas between; of a feature with a bag as many as "
            "that takes, blank where there is none.",
            show_default=False,
        ),
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
    key_bytes_max: Annotated[
        int,
        typer.Option(
            help="Largest keys to make and upload. Default: 4 GiB.",
            parser=parse_bytes,
            show_default=False,
            metavar="",
        ),
    ] = KEY_BYTES_MAX,
    garbler: GarblerOption = "server",
    parallel: ParallelOption = "layer",
    steps: StepsOption = 8,
    up_mbps: UpOption = None,
    down_mbps: DownOption = None,
    store: StoreOption = None,
    store_key: StoreKeyOption = None,
    store_ledger: StoreLedgerOption = None,
    store_bytes_max: StoreBytesOption = STORE_BYTES_MAX,
    json: Json = False,
) -> None:
    """Have a model computed: on encrypted features, by hybrid inference, or on two servers' shares.

    A single server says which of the first two it offers, by default the one at port 4000 of this
    machine; --left and --right are for the third.

    On encrypted features every run makes new keys and uploads them, and says their size as it
    does; each user's logit and probability are printed. By hybrid inference --input is a .npy
    file of inputs; each uses up a precompute of --store, or one that is made now, and its outputs
    are printed. For many queries, stay connected (hushtable.connect in Python).
    """
    if bool(servers.left) != bool(servers.right):
        raise ConfigError("give --left and --right, or --server of a single server")
    if servers.tls is not None and servers.tls.left_ca is not None and not servers.left:
        raise ConfigError("--left-ca and --right-ca are for --left and --right")
    if servers.left:
        if (dense is None and sparse is None) == (input_ is None):
            raise ConfigError("which users? give --dense and --sparse for one, or --input for many")
        query_shares(servers, dealer, dense, sparse, input_, json)
        return
    server = servers.server or [LEFT]
    if offered_by(server, servers.tls, ClientOptions(**servers.limits)) == "hybrid":
        if input_ is None or dense is not None or sparse is not None:
            raise ConfigError("which inputs? this server takes a .npy file of them: --input FILE")
        making = Making(garbler, parallel, steps, up_mbps, down_mbps)
        own = Store(store, store_key, store_ledger, store_bytes_max)
        query_hybrid(servers, making, own, input_, json)
        return
    if (dense is None) == (input_ is None):
        raise ConfigError("which users? give --dense (and --sparse) for one, or --input for many")
    with (
        progress_bar("uploading keys", shown=not json, of_bytes=True) as bar,
        connect(
            server=server,
            scheme="ckks",
            tls=servers.tls,
            options=ClientOptions(
                **servers.limits,
                key_bytes_max=key_bytes_max,
                progress=_telling(bar, server[0], shown=not json),
            ),
        ) as client,
    ):
        info = client.info
        bags = [1] * len(info.rows)
        if input_ is None:
            numbers, rows = one_user(dense or "", sparse or "", info.dense, bags)
        else:
            numbers, rows = load_users(input_, info.dense, bags)
        found = client.predict(numbers, rows)
    stats = found.stats
    costs = None
    if stats is not None:
        costs = (
            f"{stats.seconds:.2f} s, {stats.answer_seconds:.2f} of them computing; "
            f"{stats.bytes_up:,} B up, {stats.bytes_down:,} B down"
        )
    print_logits(found, costs, json)
