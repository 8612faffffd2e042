"""``hushtable train model``: a controller for each table of a model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._fdp import DEFAULT
from ..cli._epsilon import read_epsilon
from ..cli._workers import RayAddress, RayInsecure
from ..cli.output import DTYPES, Json, command, print_facts, print_json, print_table
from ..errors import ConfigError

if TYPE_CHECKING:
    from .hosts import Hosts
    from .training import ModelController


_Folder = Annotated[Path, typer.Argument(help="The controllers' folder.", metavar="FOLDER")]


@command(
    "hushtable train model create models/clicks clicks --keys /elsewhere/clicks --users 100 "
    "--slots 20 --aggregate fed_adagrad:lr=0.1 --epsilon-budget 100",
    "hushtable train model create models/clicks clicks --key-beside --slots 20 --table-slots "
    "cart=5 --ray auto --json",
)
def create(
    model: Annotated[
        Path, typer.Argument(help="The model's bundle, which the rows start from.", metavar="MODEL")
    ],
    folder: _Folder,
    keys: Annotated[
        Path | None,
        typer.Option(help="Folder for the keys, on another disk: KEYS/TABLE.key.", metavar=""),
    ] = None,
    key_beside: Annotated[
        bool, typer.Option("--key-beside", help="Keep keys beside FOLDER's tables, to try out.")
    ] = False,
    counters: Annotated[
        Path | None,
        typer.Option(help="Folder for the root counters. Default: beside the tables.", metavar=""),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table", help="Which table; may be repeated. All by default.", show_default=False
        ),
    ] = None,
    users: Annotated[int, typer.Option(help="Users of a round, at most.")] = 100,
    slots: Annotated[int, typer.Option(help="Values of a user in a table, at most.")] = 100,
    table_slots: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE=SLOTS", help="Another number for one table.", show_default=False
        ),
    ] = None,
    epsilon: Annotated[
        str, typer.Option(help="Epsilon of one value in one round of its table.")
    ] = "1",
    mechanism: Annotated[
        str, typer.Option(help="How many rows a round reads: see `hushtable train create`.")
    ] = DEFAULT,
    values: Annotated[
        int, typer.Option(help="Values of a user in a table that --epsilon is for.")
    ] = 1,
    epsilon_budget: Annotated[
        float | None,
        typer.Option(
            help="What the epsilons of all rounds of all tables may come to together: each table "
            "gets an equal part. Default: no bound."
        ),
    ] = None,
    budget_delta: Annotated[
        float, typer.Option(help="As of `hushtable train create`; each table gets a part of it.")
    ] = 0.0,
    aggregate: Annotated[
        str, typer.Option(help="What becomes of gradients: see `hushtable train create`.")
    ] = "fed_avg",
    clip: Annotated[
        str, typer.Option(help="How much of a user's upload to a table counts.")
    ] = "default",
    authority: Annotated[
        str | None, typer.Option(help="Public key of whoever enrolls users. Default: everyone may.")
    ] = None,
    cpus: Annotated[float, typer.Option(help="With --ray: processors of each table.")] = 1.0,
    ray: RayAddress = None,
    insecure: RayInsecure = False,
    json: Json = False,
) -> None:
    """Make a controller for each table of MODEL, in a new FOLDER.

    Each has its own files, key and pin. The pin that is printed is of all of them: give it to users
    by a way that the operator cannot change. On several machines FOLDER, the keys and MODEL are on
    disks that they share.
    """
    from .training import ModelController

    if keys is not None and key_beside:
        raise ConfigError("--keys says where keys are, --key-beside that they are beside: give one")
    by_table: dict[str, dict[str, Any]] = {}
    for text in table_slots or []:
        name, equals, number = text.partition("=")
        if not equals or not number.isdecimal():
            raise ConfigError(f"--table-slots is {text!r}, but must be TABLE=SLOTS")
        by_table[name] = {"slots": int(number)}
    settings: dict[str, Any] = {
        "users": users,
        "slots": slots,
        "epsilon": read_epsilon(epsilon),
        "mechanism": mechanism,
        "values": values,
        "aggregate": aggregate,
        "clip": clip,
    }
    if authority is not None:
        settings["authority"] = authority
    if epsilon_budget is not None:
        from ..model import Model

        count = len(tables) if tables else len(Model.open(model).tables)
        settings |= {
            "epsilon_budget": epsilon_budget / count,
            "budget_delta": budget_delta / count,
        }
    with ModelController.create(
        folder,
        model,
        keys=keys,
        key_beside=key_beside,
        counters=counters,
        tables=tables,
        by_table=by_table,
        hosts=_hosts(ray, insecure),
        place=lambda place: dataclasses.replace(place, cpus=cpus),
        **settings,
    ) as controller:
        _print(controller, json)


@command("hushtable train model info clicks", "hushtable train model info clicks --ray auto --json")
def info(
    folder: _Folder,
    delta: Annotated[
        float, typer.Option(help="Delta that the composed epsilon holds with.")
    ] = 1e-6,
    ray: RayAddress = None,
    insecure: RayInsecure = False,
    json: Json = False,
) -> None:
    """Open all controllers, ending what a crash cut short, and print what they are and have cost.

    A user's loss in a round is that of all tables together: their sum, and what it comes to
    composed by concentrated differential privacy.
    """
    from .training import ModelController

    with ModelController.open(folder, hosts=_hosts(ray, insecure)) as controller:
        _print(controller, json, delta)


@command(
    "hushtable train model export clicks --model models/clicks",
    "hushtable train model export clicks --model models/clicks -o models/clicks-2 --dtype f16",
)
def export(
    folder: _Folder,
    model: Annotated[
        Path, typer.Option(help="The model to put the trained tables into.", metavar="MODEL")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The new model's folder; MODEL by default.", show_default=False
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", "--quantize", help=f"How to store numbers: {DTYPES}.")
    ] = "f32",
    ray: RayAddress = None,
    insecure: RayInsecure = False,
    json: Json = False,
) -> None:
    """Write the trained tables into a model, all in one step; `hushtable serve` serves it."""
    from .training import ModelController

    with ModelController.open(folder, hosts=_hosts(ray, insecure)) as controller:
        made = controller.export_into(model, output or model, dtype=dtype)
        tables = controller.tables
    facts = {"model": made.name, "path": str(made.path), "version": made.version}
    if json:
        print_json({**facts, "tables": list(tables)})
        return
    print_facts({**facts, "tables": ", ".join(tables)})


def _hosts(address: str | None, insecure: bool) -> Hosts | None:
    if address is None:
        return None
    from .hosts import RayHosts

    return RayHosts(address, insecure=insecure)


def _print(controller: ModelController, as_json: bool, delta: float = 1e-6) -> None:
    spent, facts, last = controller.spent, controller.facts, controller.last
    composed = spent.composed(delta)
    if as_json:
        print_json(
            {
                "pin": controller.pin,
                "users": controller.users,
                "round": None if last is None else dataclasses.asdict(last),
                "spent": {"epsilon": spent.epsilon, "delta": spent.delta},
                "composed": {"epsilon": composed, "delta": delta},
                "rounds_left": spent.rounds_left,
                "tables": {
                    name: {
                        "pin": own.pin,
                        "rounds": own.rounds,
                        "spent": dataclasses.asdict(spent.tables[name]),
                        "machine": own.machine,
                        "spec": own.spec,
                    }
                    for name, own in facts.items()
                },
            }
        )
        return
    print_table(
        ["table", "rows", "dim", "slots", "rounds", "epsilon", "left", "machine"],
        [
            [
                name,
                f"{own.spec['rows']:,}",
                str(own.spec["dim"]),
                str(own.spec["slots"]),
                f"{own.rounds:,}",
                f"{spent.tables[name].epsilon:.6g}",
                _left(spent.tables[name].rounds_left),
                own.machine,
            ]
            for name, own in facts.items()
        ],
    )
    print_facts(
        {
            "spent": f"{spent.epsilon:.6g} in all tables together; composed {composed:.6g} at "
            f"delta {delta:g}",
            "last round": "none" if last is None else _ended(last.number, last.outcomes),
            "pin": controller.pin,
        }
    )


def _left(rounds: int | None) -> str:
    return "no end" if rounds is None else f"{rounds:,}"


def _ended(number: int, outcomes: Any) -> str:
    bad = {name: word for name, word in (outcomes or {}).items() if word != "committed"}
    told = ", ".join(f"{name} {word}" for name, word in bad.items())
    return f"{number:,}, committed in all tables" if not bad else f"{number:,}: {told}"
