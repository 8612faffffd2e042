"""``hushtable train``: a table behind an oblivious memory, and the server of its rounds."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from pathlib import Path
from typing import Annotated

import typer

from .. import _native
from ..errors import ConfigError
from ..fl.controller import Controller, place
from ..table import Table
from ..training import TrainServing, serve_training
from ._serving import (
    DrainMsMax,
    IoThreads,
    Log,
    LogJson,
    MetricsAddr,
    TlsCert,
    TlsClientCa,
    TlsKey,
    option,
    server_tls,
)
from .output import Json, examples, print_facts, print_json, progress_bar

app = typer.Typer(
    help="Train a table by federated rounds, behind an oblivious memory on disk.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_Folder = Annotated[Path, typer.Argument(help="The controller's folder.", metavar="FOLDER")]
_Key = Annotated[
    Path | None,
    typer.Option(help="File of the controller's key. Default: FOLDER.key.", metavar=""),
]
_Counter = Annotated[
    str | None,
    typer.Option(
        help="Its root counter, best where whoever writes to the folder cannot put it back: a "
        "file, etcd://HOST:PORT/KEY on this machine, or etcds://HOST:PORT[,HOST:PORT]/KEY?ca=FILE"
        "[&cert=FILE&key=FILE]. Default: FOLDER.counter.",
        metavar="",
    ),
]


@app.command(
    epilog=examples(
        "hushtable train create --table bundles/films --users 100 --slots 100 --epsilon 1 "
        "--aggregate fed_adagrad:lr=0.1 films",
        "hushtable train create --rows 10000000 --dim 16 --init 0.01 items",
    )
)
def create(
    folder: _Folder,
    table: Annotated[Path | None, typer.Option(help="Bundle of the rows to start from.")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows, without --table.")] = None,
    dim: Annotated[int | None, typer.Option(help="Numbers in a row, without --table.")] = None,
    init: Annotated[
        float, typer.Option(help="Without --table, rows start uniform between -INIT and INIT.")
    ] = 0.0,
    users: Annotated[int, typer.Option(help="Users of a round, at most.")] = 100,
    slots: Annotated[int, typer.Option(help="Values of a user in a round, at most.")] = 100,
    epsilon: Annotated[
        str,
        typer.Option(
            help="Epsilon of one value in one round: 0 reads as many rows as there are requests, "
            "inf exactly those asked for."
        ),
    ] = "1",
    aggregate: Annotated[
        str,
        typer.Option(
            help="What becomes of gradients: fed_avg, fed_adam, fed_adagrad, dp_fed_avg, eana or "
            "lazy_dp, with settings as fed_adagrad:lr=0.1 or dp_fed_avg:clip=1,noise=1.1,users=100."
        ),
    ] = "fed_avg",
    name: Annotated[
        str | None, typer.Option(help="The table's name. Default: the bundle's, or the folder's.")
    ] = None,
    cached_levels: Annotated[
        int | None, typer.Option(help="Levels of the tree kept in memory. Default: 14, 64 MiB.")
    ] = None,
    key: _Key = None,
    counter: _Counter = None,
    json: Json = False,
) -> None:
    """Make a controller in a new FOLDER, from a bundle or from new rows.

    Beside the folder it writes FOLDER.key, which all of it is sealed under and which opens users'
    requests, and FOLDER.counter, by which an old copy of the folder is found out. Keep both apart
    from the folder where its disk is not trusted.
    """
    if table is not None and (rows is not None or dim is not None):
        raise ConfigError("--table has its own rows and dim: leave --rows and --dim out")
    settings = {} if cached_levels is None else {"cached_levels": cached_levels}
    with progress_bar("writing rows", shown=not json) as bar:
        controller = Controller.create(
            folder,
            table=None if table is None else Table.open(table),
            rows=rows,
            dim=dim,
            init=init,
            users=users,
            slots=slots,
            epsilon=_epsilon(epsilon),
            aggregate=aggregate,
            name=name,
            key=key,
            counter=counter,
            progress=bar,
            **settings,
        )
    with controller:
        _print(controller, folder, key, counter, json)


@app.command(epilog=examples("hushtable train info films", "hushtable train info films --json"))
def info(folder: _Folder, key: _Key = None, counter: _Counter = None, json: Json = False) -> None:
    """Open a controller, ending what a crash cut short, and print what it is."""
    with (
        progress_bar("opening", shown=not json) as bar,
        Controller.open(folder, key=key, counter=counter, progress=bar) as controller,
    ):
        _print(controller, folder, key, counter, json)


@app.command(
    epilog=examples(
        "hushtable train export films -o bundles/films",
        "hushtable serve bundles/films --side left",
    )
)
def export(
    folder: _Folder,
    output: Annotated[Path, typer.Option("--output", "-o", help="The bundle's folder.")],
    dtype: Annotated[
        str, typer.Option(help="How to store numbers: f32, f16, bf16 or int8.")
    ] = "f32",
    key: _Key = None,
    counter: _Counter = None,
    json: Json = False,
) -> None:
    """Write the trained table as a bundle, which `hushtable serve` serves.

    All rows are read and written back, in an order that says nothing. Noise that LazyDP owes is
    added first.
    """
    with (
        progress_bar("exporting", shown=not json) as bar,
        Controller.open(folder, key=key, counter=counter) as controller,
    ):
        bundle = controller.export_bundle(output, dtype=dtype, progress=bar)
        rounds = controller.rounds
    about = bundle.info
    if json:
        print_json({"bundle": str(output), "rounds": rounds, **dataclasses.asdict(about)})
        return
    print_facts(
        {
            "bundle": str(output),
            "table": about.name,
            "version": about.version,
            "rows": f"{about.rows:,} x {about.dim} {about.dtype}",
            "rounds": f"{rounds:,}",
        }
    )


@app.command(
    epilog=examples(
        "hushtable train serve films",
        "hushtable train serve films --addr 0.0.0.0:4000 --tls-cert certs/server.pem --tls-key "
        "certs/server.key --operator-token-file token",
    )
)
def serve(
    folder: _Folder,
    port: Annotated[
        int | None, option("Port on this machine, 0 for any: short for --addr.", "port")
    ] = None,
    addr: Annotated[
        str | None, option("IP and port to listen on. Default: 127.0.0.1:4000.", "addr")
    ] = None,
    metrics_addr: MetricsAddr = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve other machines without TLS.")
    ] = False,
    operator_token_file: Annotated[
        Path | None,
        option(
            "File with the token that opening and ending rounds takes. Default: whoever connects "
            "may.",
            "operator_token_file",
        ),
    ] = None,
    request_ms: Annotated[
        int | None,
        option("How long requests are taken, where the operator does not say: 60000.", "request"),
    ] = None,
    upload_ms: Annotated[
        int | None,
        option(
            "How long uploads are waited for, where the operator does not say: 600000.", "upload"
        ),
    ] = None,
    io_threads: IoThreads = None,
    drain_ms_max: DrainMsMax = None,
    key: _Key = None,
    counter: _Counter = None,
    log: Log = "warn",
    log_json: LogJson = False,
    json: Json = False,
) -> None:
    """Serve the rounds of the controller in FOLDER, until SIGTERM or Ctrl-C.

    Once ready, one line says table, URL and the public key that users' requests are sealed to: give
    users that key by a way that they trust. A round that is open at the end is abandoned.
    """
    if port is not None and addr is not None:
        raise ConfigError("--port is short for --addr 127.0.0.1:PORT: give one of them")
    options = {
        "io_threads": io_threads,
        "drain_ms_max": drain_ms_max,
        "request_ms": request_ms,
        "upload_ms": upload_ms,
        "operator_token_file": operator_token_file and str(operator_token_file),
        "insecure": insecure or None,
    }
    tls = {"cert": tls_cert, "key": tls_key, "client_ca": tls_client_ca}
    _native.log_to_stderr(log, log_json)

    def on_ready(serving: TrainServing) -> None:
        if json:
            print_json({"event": "ready", **dataclasses.asdict(serving)})
            return
        metrics = f"  metrics {serving.metrics_url}/metrics" if serving.metrics_url else ""
        print(
            f"ready: training {serving.table!r} at {serving.url} "
            f"public key {serving.public_key}{metrics}",
            flush=True,
        )

    with contextlib.ExitStack() as drawn:
        bar = drawn.enter_context(progress_bar("opening", shown=not json))
        serve_training(
            folder,
            key=key,
            counter=counter,
            addr=addr or f"127.0.0.1:{4000 if port is None else port}",
            metrics_addr=_metrics(metrics_addr, port),
            tls=server_tls({name: file for name, file in tls.items() if file is not None}),
            on_ready=on_ready,
            on_opening=bar,
            **options,
        )


def _metrics(metrics_addr: str | None, port: int | None) -> str | None:
    if metrics_addr == "none":
        return None
    if metrics_addr is None:
        # Whoever asks for any port wants no fixed one taken.
        return "127.0.0.1:0" if port == 0 else "127.0.0.1:4001"
    return metrics_addr


def _epsilon(text: str) -> float:
    try:
        epsilon = float(text)
    except ValueError:
        raise ConfigError(f"epsilon is {text!r}, but must be a number, 0 or more, or inf") from None
    if math.isnan(epsilon) or epsilon < 0:
        raise ConfigError(f"epsilon is {text}, but must be 0 or more, or inf")
    return epsilon


def _print(
    controller: Controller, folder: Path, key: Path | None, counter: str | None, as_json: bool
) -> None:
    _, key_path, counter_path = place(folder, key, counter)
    facts = controller.facts
    if as_json:
        record = {
            "folder": str(folder),
            "key": str(key_path),
            "counter": counter_path,
            "public_key": controller.public_key.hex(),
            "rounds": controller.rounds,
            **facts,
            "spec": controller.spec,
        }
        print_json(record)
        return
    spec = controller.spec
    print_facts(
        {
            "table": controller.name,
            "rows": f"{controller.table_rows:,} x {controller.dim} f32",
            "rounds": f"{controller.rounds:,}",
            "round": f"up to {controller.users:,} users x {controller.slots:,} slots",
            "epsilon": str(spec["fdp"]["epsilon"]),
            "aggregate": str(spec["aggregate"]["name"]),
            "tree": f"{facts['levels']} levels, {facts['buckets'] * 2 * 4096:,} B on disk",
            "public key": controller.public_key.hex(),
            "key file": str(key_path),
            "counter": counter_path,
        }
    )
