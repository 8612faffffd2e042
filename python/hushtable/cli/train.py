"""``hushtable train``: a table behind an oblivious memory, and the server of its rounds."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import tempfile
from collections.abc import Iterator
from json import dumps as json_of
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import _native
from .._fdp import DEFAULT
from ..errors import ConfigError
from ..fl.controller import Controller, Spent, fdp_spec, place
from ..fl.training import TrainServing, serve_training
from ..model import Model
from ..table import Table
from ._epsilon import read_epsilon
from ._settings import Config, Log, LogJson, gathered, server_tls, with_settings
from .output import DTYPES, Json, command, print_facts, print_json, print_table, progress_bar

_Folder = Annotated[Path, typer.Argument(help="The controller's folder.", metavar="FOLDER")]
_Key = Annotated[
    Path | None,
    typer.Option(
        help="File of the controller's key, on another disk than FOLDER.",
        envvar="HUSHTABLE_KEY",
        show_envvar=False,
        metavar="",
    ),
]
_KeyBeside = Annotated[
    bool,
    typer.Option(
        "--key-beside",
        help="Take a key that lies beside FOLDER, for trying out; without --key, FOLDER.key.",
    ),
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


@command(
    "hushtable train create --table bundles/films --users 100 --slots 100 --epsilon 1 "
    "--aggregate fed_adagrad:lr=0.1 --key /elsewhere/films.key films",
    "hushtable train create --rows 10000000 --dim 16 --clip norm=2,value=0.5,weight=50 "
    "--key-beside items",
    more={
        "New rows": ("rows", "dim", "init", "name"),
        "Privacy": ("mechanism", "values", "loss", "epsilon_budget", "budget_delta"),
        "Uploads": ("clip", "no_clip", "authority"),
        "Memory and disk": ("cached_levels", "bucket_kib"),
    },
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
    mechanism: Annotated[
        str,
        typer.Option(
            help="How the number of rows that a round reads is drawn: shifted (loses under a tenth "
            "of the rows in the mean; or shifted:loss=0.02, shifted:by=ROWS,least=ROWS), "
            "geometric, or the paper's eq3 with its weights y (eq3:y=power,exponent=5, "
            "eq3:y=square,low=ROWS,high=ROWS, eq3:y=delta). For good: it is part of the pin. "
            "`hushtable train expect` compares them."
        ),
    ] = DEFAULT,
    values: Annotated[
        int,
        typer.Option(
            help="Values of a user that --epsilon is for: 1, or as many as --slots to hide how "
            "many there are."
        ),
    ] = 1,
    loss: Annotated[
        str,
        typer.Option(
            help="Which rows are lost where a round reads fewer than were asked for: random, "
            "least-requested, recently-read (rows never read, or longest ago, are kept; takes "
            "memory and time) or highest-ids."
        ),
    ] = "random",
    epsilon_budget: Annotated[
        float | None,
        typer.Option(
            help="What the epsilon of all rounds may come to, those that are abandoned, crash or "
            "evaluate included; no round begins past it. Default: no bound.",
        ),
    ] = None,
    budget_delta: Annotated[
        float,
        typer.Option(
            help="0 adds rounds up by their sum; more, by concentrated differential privacy, "
            "which is less for many rounds."
        ),
    ] = 0.0,
    aggregate: Annotated[
        str,
        typer.Option(
            help="What becomes of gradients: fed_avg, fed_adam, fed_adagrad; with noise for every "
            "row dp_fed_avg (a mean) or lazy_dp (a sum); or eana, whose noise leaves visible which "
            "rows were trained. Settings as fed_adagrad:lr=0.1 or "
            "dp_fed_avg:clip=1,noise=1.1,users=100."
        ),
    ] = "fed_avg",
    clip: Annotated[
        str,
        typer.Option(
            help="How much of one user's upload counts, so that none can undo what the others "
            "learnt: the L2 norm of all its gradients, one number of them, its weight. Settings as "
            "norm=2,value=0.5,weight=100, which is the default but where the aggregate clips by "
            "itself. For good: it is part of the pin."
        ),
    ] = "default",
    no_clip: Annotated[
        bool, typer.Option("--no-clip", help="No clip: for users that are all trusted.")
    ] = False,
    authority: Annotated[
        str | None,
        typer.Option(
            help="Public key of whoever enrolls the users that may take part, from `hushtable "
            "train key`. Default: everyone may.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The table's name. Default: the bundle's, or the folder's.")
    ] = None,
    cached_levels: Annotated[
        int | None, typer.Option(help="Levels of the tree kept in memory. Default: 14, 64 MiB.")
    ] = None,
    bucket_kib: Annotated[
        int | None,
        typer.Option(
            help="KiB of the tree's buckets: 4, 8 or 16. Larger ones write less a row and read "
            "more. Default: 4, a page."
        ),
    ] = None,
    key: _Key = None,
    key_beside: _KeyBeside = False,
    counter: _Counter = None,
    json: Json = False,
) -> None:
    """Make a controller in a new FOLDER, from a bundle or from new rows.

    All of the folder is sealed under the key, which also opens users' requests: it is made where
    --key says, which should be another disk, for whoever copies both can read it all. Beside the
    folder it writes FOLDER.counter, by which an old copy of the folder is found out: keep that
    apart too where the disk is not trusted. The pin that it prints is what users know the
    controller by: give it to them by a way that the operator cannot change.
    """
    if table is not None and (rows is not None or dim is not None):
        raise ConfigError("--table has its own rows and dim: leave --rows and --dim out")
    if no_clip and clip != "default":
        raise ConfigError("--no-clip is no --clip: give one of them")
    given = {"cached_levels": cached_levels, "bucket_kib": bucket_kib}
    settings = {name: value for name, value in given.items() if value is not None}
    with progress_bar("writing rows", shown=not json) as bar:
        controller = Controller.create(
            folder,
            table=None if table is None else Table.open(table),
            rows=rows,
            dim=dim,
            init=init,
            users=users,
            slots=slots,
            epsilon=read_epsilon(epsilon),
            mechanism=mechanism,
            values=values,
            loss=loss.replace("-", "_"),
            epsilon_budget=epsilon_budget,
            budget_delta=budget_delta,
            aggregate=aggregate,
            clip=None if no_clip else clip,
            authority=authority,
            name=name,
            key=key,
            key_beside=key_beside,
            counter=counter,
            progress=bar,
            **settings,
        )
    with controller:
        _print(controller, place(folder, key, counter, key_beside=key_beside), json)


@command(
    "hushtable train expect --requests 10000 --union 887 --values 100 --epsilon 0.1",
    "hushtable train expect --requests 10000 --union 887 --mechanism shifted:loss=0.02 --json",
)
def expect(
    requests: Annotated[int, typer.Option(help="K: users times slots of a round.")] = 10_000,
    union: Annotated[
        list[int] | None,
        typer.Option(
            help="Different rows that a round asks for, as far as you know; may be repeated. By "
            "default a hundredth, a tenth and half of the requests.",
            show_default=False,
        ),
    ] = None,
    values: Annotated[int, typer.Option(help="As of `hushtable train create`.")] = 1,
    epsilon: Annotated[str, typer.Option(help="As of `hushtable train create`.")] = "1",
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            help="As of `hushtable train create`; may be repeated. By default shifted, "
            "geometric and eq3."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Tell what rounds would read and lose, before a controller is made for good.

    By the mechanism itself, as a controller would draw with it: rows read in the mean, dummies and
    lost rows as shares of those asked for, reads saved against reading a row for each request, and
    what of epsilon a round really spends.
    """
    found = read_epsilon(epsilon)
    rows = []
    for name in mechanism or ["shifted", "geometric", "eq3"]:
        fdp = fdp_spec(found, name, values, requests)
        for count in union or sorted({max(1, requests // part) for part in (100, 10, 2)}):
            if not 1 <= count <= requests:
                raise ConfigError(f"union is {count}, but must be 1 to the {requests} requests")
            mean = _native.fdp_expect(json_of(fdp), requests, count)
            if json:
                spent = mean["spent"] if math.isfinite(mean["spent"]) else None
                each = mean["epsilon_per_value"]
                exact = {"spent": spent, "epsilon_per_value": each if math.isfinite(each) else None}
                record = {"requests": requests, "union": count, "fdp": fdp, **mean, **exact}
                print_json({"mechanism": name, **record})
            rows.append(
                [
                    name,
                    f"{count:,}",
                    f"{mean['reads']:,.1f}",
                    f"{mean['dummy']:.2%}",
                    f"{mean['lost']:.2%}",
                    f"{mean['reduced']:.2%}",
                    f"{mean['spent']:.4g}",
                ]
            )
    if not json:
        columns = ("mechanism", "union", "reads", "dummies", "lost", "saved", "ε spent")
        print_table(columns, rows)


@command(
    "hushtable train info films --key /elsewhere/films.key",
    "hushtable train info films --key-beside --json",
)
def info(
    folder: _Folder,
    key: _Key = None,
    key_beside: _KeyBeside = False,
    counter: _Counter = None,
    json: Json = False,
) -> None:
    """Open a controller, ending what a crash cut short, and print what it is."""
    with (
        progress_bar("opening", shown=not json) as bar,
        Controller.open(
            folder, key=key, key_beside=key_beside, counter=counter, progress=bar
        ) as controller,
    ):
        _print(controller, place(folder, key, counter, key_beside=key_beside), json)


@command("hushtable train key authority.key", "hushtable train key alice.key")
def key(
    file: Annotated[
        Path, typer.Argument(help="A new file, or an old one with --show.", metavar="FILE")
    ],
    show: Annotated[bool, typer.Option("--show", help="Print the key of a file there is.")] = False,
    json: Json = False,
) -> None:
    """Make the key of a user, or of the authority that enrolls users, and print its public half.

    An authority's goes to `hushtable train create --authority`, a user's to the authority. The file
    is the secret.
    """
    public = _native.public_key(file) if show else _native.create_key(file)
    if json:
        print_json({"file": str(file), "public_key": public})
    else:
        print(public)


@command(
    "hushtable train enroll --authority-key authority.key --pin pin1:... 4a1c...",
)
def enroll(
    users: Annotated[
        list[str], typer.Argument(help="Users' public keys.", metavar="PUBLIC_KEY...")
    ],
    authority_key: Annotated[
        Path, typer.Option(help="File of the authority's key.", metavar="FILE")
    ],
    pin: Annotated[str, typer.Option(help="The controller's pin.", metavar="PIN")],
    json: Json = False,
) -> None:
    """Enroll users with a controller: print a ticket for each public key.

    Runs where the authority's key is, which should be nowhere near the operator. A ticket is no
    secret: it is of use to the user of that key alone, and to no other controller.
    """
    tickets = [_native.enroll(authority_key, pin, user) for user in users]
    if json:
        print_json({"tickets": dict(zip(users, tickets, strict=True))})
    else:
        print("\n".join(tickets))


@command(
    "hushtable train audit audit.jsonl --key /elsewhere/films.key",
    "hushtable train audit audit.jsonl --key /elsewhere/films.key --expect 4170:9c1f...",
)
def audit(
    file: Annotated[Path, typer.Argument(help="The audit log.", metavar="FILE")],
    key: Annotated[
        Path,
        typer.Option(
            help="File of the controller's key.",
            envvar="HUSHTABLE_KEY",
            show_envvar=False,
            metavar="",
        ),
    ],
    expect: Annotated[
        str | None,
        typer.Option(
            help="SEQ:HASH of a line that must be in it, as an earlier check printed it.",
            metavar="",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check the audit log of `hushtable train serve --audit-log`, and print what it holds.

    Every line is checked by the controller's key; the first bad one ends it. That lines were cut
    off the end shows only against a hash that was printed before: keep the one of `end`, and give
    it as --expect the next time.
    """
    found = _native.audit_log(file, key, expect=expect)
    if json:
        print_json({"file": str(file), **found})
        return

    def counts(of: dict[str, int]) -> str:
        return ", ".join(f"{count:,} {name}" for name, count in of.items()) or "none"

    facts = {
        "file": str(file),
        "lines": f"{found['lines']:,}, each as it was written",
        "from": found["first"] or "",
        "to": found["last"] or "",
        "events": counts(found["events"]),
        "rounds over": counts(found["outcomes"]),
        "refused": counts(found["refused"]),
        "end": found["end"],
    }
    if found["torn_bytes"]:
        facts["torn"] = f"{found['torn_bytes']:,} bytes of a last line, which is no part of it"
    print_facts(facts)


@command(
    "hushtable train export films --key /elsewhere/films.key -o bundles/films",
    "hushtable serve bundles/films --side left",
    "hushtable train export films --key-beside --model models/clicks --table films",
    "hushtable train export films --key-beside -o bundles/films-2 --since bundles/films",
)
def export(
    folder: _Folder,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The bundle's folder; with --model, the new model's: MODEL itself by default.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A model to put the table into; made with this one table where there is none.",
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(help="Which table of the model; the trained table's name by default."),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", "--quantize", help=f"How to store numbers: {DTYPES}.")
    ] = "f32",
    since: Annotated[
        Path | None,
        typer.Option(
            help="An earlier export: write a patch of it, of the rows that differ.",
            show_default=False,
        ),
    ] = None,
    key: _Key = None,
    key_beside: _KeyBeside = False,
    counter: _Counter = None,
    json: Json = False,
) -> None:
    """Write the trained table as a bundle, or into a model; `hushtable serve` serves both.

    All rows are read and written back, in an order that says nothing. Noise that they are owed
    (dp_fed_avg, lazy_dp) is added first. A model gets a new version. With --since all rows are read
    and written back too: which rows differ is found in the two bundles, and says to whoever has
    both what they say.
    """
    if model is not None and since is not None:
        raise ConfigError("--since writes a bundle of a table: leave --model out")
    if model is not None:
        at = place(folder, key, counter, key_beside=key_beside)
        _export_into(model, table, at, key_beside, output or model, dtype, json)
        return
    if output is None:
        raise ConfigError("say where to write: --output BUNDLE, or --model MODEL")
    if table is not None:
        raise ConfigError("--table names a table of a model: give --model too")
    with (
        progress_bar("exporting", shown=not json) as bar,
        Controller.open(folder, key=key, key_beside=key_beside, counter=counter) as controller,
    ):
        with _whole_beside(output, is_needed=since is not None) as whole:
            bundle = controller.export_bundle(whole, dtype=dtype, progress=bar)
            if since is not None:
                bundle = bundle.follow(since, output)
        rounds = controller.rounds
    about = bundle.info
    if json:
        facts = {"bundle": str(output), "rounds": rounds, **dataclasses.asdict(about)}
        if since is not None:
            facts |= {"changed_rows": bundle.changed_rows, "base_version": bundle.base_version}
        print_json(facts)
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
    if since is not None:
        print(f"{bundle.changed_rows:,} rows differ from version {bundle.base_version[:16]}")


@contextlib.contextmanager
def _whole_beside(output: Path, *, is_needed: bool) -> Iterator[Path]:
    """Where the whole table goes: ``output``, or a folder beside it, which goes afterwards."""
    if not is_needed:
        yield output
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}-", dir=output.parent) as folder:
        yield Path(folder, "whole")


def _export_into(
    model: Path,
    table: str | None,
    at: tuple[Path, Path, str],
    key_beside: bool,
    output: Path,
    dtype: str,
    as_json: bool,
) -> None:
    """Writes the trained table into a model."""
    folder, key, counter = at
    before = Model.open(model) if model.exists() else None
    if before is not None and table is not None:
        before.table_path(table)  # rather refused now than after all rows are read
    with (
        progress_bar("exporting", shown=not as_json) as bar,
        Controller.open(folder, key=key, key_beside=key_beside, counter=counter) as controller,
        # On the model's file system, and gone again whatever happens.
        tempfile.TemporaryDirectory(prefix=".hushtable-export-", dir=output.parent) as place,
    ):
        bundle = controller.export_bundle(Path(place) / "table", dtype=dtype, progress=bar)
        rounds = controller.rounds
        name = bundle.info.name if table is None else table
        if before is None:
            after = Model.of_table(bundle, output, table_name=name)
        else:
            after = before.replace_table(name, bundle, output)
    facts = {"model": after.name, "path": str(after.path), "version": after.version, "table": name}
    if as_json:
        print_json({**facts, "rounds": rounds, "table_version": bundle.info.version})
        return
    print_facts({**facts, "table version": bundle.info.version, "rounds": f"{rounds:,}"})


@command(
    "hushtable train serve films --key /elsewhere/films.key",
    "hushtable train serve films --key /elsewhere/films.key --addr 0.0.0.0:4000 "
    "--tls-cert certs/server.pem --tls-key "
    "certs/server.key --operator-token-file token",
)
@with_settings("train", panels={"train": "Rounds"})
def serve(
    folder: _Folder,
    key: _Key = None,
    key_beside: _KeyBeside = False,
    counter: _Counter = None,
    config: Config = None,
    log: Log = "warn",
    log_json: LogJson = False,
    json: Json = False,
    **given: Any,
) -> None:
    """Serve the rounds of the controller in FOLDER, until SIGTERM or Ctrl-C.

    Once ready, one line says table, URL and the pin by which users know the controller: give it to
    them by a way that they trust. A round that is open at the end is abandoned.
    """
    settings = gathered(("train",), config, given)
    if settings.get("port") == 0:
        # Whoever asks for any port wants no fixed one taken.
        settings.setdefault("metrics_addr", "127.0.0.1:0")
    tls = server_tls(settings)
    _native.log_to_stderr(log, log_json)

    def on_ready(serving: TrainServing) -> None:
        if json:
            print_json({"event": "ready", **dataclasses.asdict(serving)})
            return
        metrics = f"  metrics {serving.metrics_url}" if serving.metrics_url else ""
        print(
            f"ready: training {serving.table!r} at {serving.url} pin {serving.pin}{metrics}",
            flush=True,
        )

    with contextlib.ExitStack() as drawn:
        bar = drawn.enter_context(progress_bar("opening", shown=not json))
        serve_training(
            folder,
            key=key,
            key_beside=key_beside,
            counter=counter,
            tls=tls,
            on_ready=on_ready,
            on_opening=bar,
            **settings,
        )


def _fdp(fdp: dict[str, Any]) -> str:
    """For whom, and how."""
    protects = fdp.get("protects", "value")
    whom = "a value" if protects == "value" else f"{protects['count']['values']} values together"
    mechanism = fdp.get("mechanism", "geometric")
    if not isinstance(mechanism, str):
        ((kind, settings),) = mechanism.items()
        mechanism = f"{kind} {json_of(settings)}"
    return f"{fdp['epsilon']} for {whom}, {mechanism}"


def _spent(spent: Spent) -> str:
    text = f"{spent.epsilon:.6g} by {spent.rounds:,} rounds begun"
    if spent.budget is None:
        return f"{text}, no budget"
    delta = f" at delta {spent.delta:g}" if spent.delta else ""
    left = f"{max(spent.budget - spent.epsilon, 0.0):.6g} left of {spent.budget:g}{delta}"
    rounds = "" if spent.rounds_left is None else f" ({spent.rounds_left:,} rounds)"
    return f"{text}, {left}{rounds}"


def _clip(spec: dict[str, Any]) -> str:
    clip = spec.get("clip")
    if clip is None:
        by_itself = "clip" in spec["aggregate"]
        return "by the aggregate" if by_itself else "none: one user can undo a row"
    return ", ".join(f"{name} {bound:g}" for name, bound in clip.items())


def _print(controller: Controller, at: tuple[Path, Path, str], as_json: bool) -> None:
    folder, key_path, counter_path = at
    facts = controller.facts
    if as_json:
        record = {
            "folder": str(folder),
            "key": str(key_path),
            "counter": counter_path,
            "public_key": controller.public_key.hex(),
            "pin": controller.pin,
            "rounds": controller.rounds,
            "spent": dataclasses.asdict(controller.spent),
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
            "epsilon": _fdp(spec["fdp"]),
            "spent": _spent(controller.spent),
            "aggregate": str(spec["aggregate"]["name"]),
            "clip": _clip(spec),
            "tree": f"{facts['levels']} levels, {facts['file_bytes']:,} B on disk",
            "users": "enrolled" if "authority" in spec else "everyone who can reach it",
            "pin": controller.pin,
            "key file": str(key_path),
            "counter": counter_path,
        }
    )
