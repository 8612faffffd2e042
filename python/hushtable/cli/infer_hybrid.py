"""``hushtable infer`` by hybrid inference: precomputes, and predictions that use them up."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
import typer

from ..client import ClientOptions, connect
from ..client.options import STORE_BYTES_MAX
from ..errors import ConfigError
from ..infer import HybridClient, HybridPlanInfo, NetworkInfo, Outputs
from ._servers import LEFT, Servers, with_servers
from ._settings import parse_bytes
from .output import Json, command, print_facts, print_json, print_table, progress_bar

GarblerOption = Annotated[
    str, typer.Option(help="hybrid: who garbles, client or server. Who does keeps little.")
]
ParallelOption = Annotated[
    str,
    typer.Option(
        help="hybrid: how precomputes are made: layer, all layers of one at once; sequential, step "
        "by step; request, several at once."
    ),
]
StepsOption = Annotated[
    int, typer.Option(help="hybrid: steps (of --parallel request, precomputes) at once.")
]
UpOption = Annotated[
    float | None, typer.Option(help="hybrid: Mbit/s to the server, at most.", show_default=False)
]
DownOption = Annotated[
    float | None, typer.Option(help="hybrid: Mbit/s from the server, at most.", show_default=False)
]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        help="hybrid: folder where this client's halves of precomputes are kept. Default: memory.",
        show_default=False,
    ),
]
StoreKeyOption = Annotated[
    Path | None,
    typer.Option(
        help="hybrid: file of the key that --store is sealed with. Default: key, in it.",
        show_default=False,
    ),
]
StoreLedgerOption = Annotated[
    Path | None,
    typer.Option(
        help="hybrid: folder, outside of --store, that says which halves may still be used. "
        "Default: where the machine keeps its state.",
        show_default=False,
    ),
]
StoreBytesOption = Annotated[
    int,
    typer.Option(
        help="hybrid: most bytes of this client's halves. Default: 64 GiB.",
        parser=parse_bytes,
        show_default=False,
        metavar="",
    ),
]

_Word = TypeVar("_Word", bound=str)


@dataclasses.dataclass(frozen=True, slots=True)
class Making:
    """How precomputes are made, as options say it."""

    garbler: str
    parallel: str
    steps: int
    up_mbps: float | None
    down_mbps: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    """Where this client's halves are, as options say it."""

    folder: Path | None
    key: Path | None
    ledger: Path | None
    bytes_max: int


def one_of(option: str, word: str, words: tuple[_Word, ...]) -> _Word:
    """The word, of those that there are.

    Raises:
        ConfigError: it is none of them.
    """
    for known in words:
        if known == word:
            return known
    raise ConfigError(f"{option} is {word}, but must be {' or '.join(words)}")


def load_inputs(path: Path) -> npt.NDArray[Any]:
    """The array of a .npy file.

    Raises:
        ConfigError: a file that is not there, or none.
    """
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read inputs: {error}") from error
    if not isinstance(found, np.ndarray):
        raise ConfigError(f"{path} is no .npy file of one array")
    return found


def kept_by(info: NetworkInfo) -> str:
    """What parties keep of a precompute, in a line."""
    sides = []
    if info.server_garbles:
        kept = info.bytes_if_server_garbles
        sides.append(f"{kept['client']:,} B at the client and {kept['server']:,} B here")
    if info.client_garbles:
        kept = info.bytes_if_client_garbles
        sides.append(f"{kept['client']:,} B and {kept['server']:,} B where the client garbles")
    return f"a precompute takes {', or '.join(sides)}; {info.activations:,} activations"


def print_hybrid_plan(plan: HybridPlanInfo, as_json: bool) -> None:
    """Prints a plan."""
    if as_json:
        print_json(dataclasses.asdict(plan))
        return
    server, client = plan.bytes_if_server_garbles, plan.bytes_if_client_garbles
    print_facts(
        {
            "plan": plan.name,
            "hash": plan.plan,
            "input": " x ".join(map(str, plan.input)),
            "outputs": f"{plan.outputs:,}",
            "numbers": f"{plan.bits} bits, {plan.fraction} of fraction, {plan.rounding} rounding",
            "encryption": plan.lattice,
            "uploads": _uploads(plan),
            "server garbles": f"a precompute takes {server['client']:,} B at the client, "
            f"{server['server']:,} B at the server",
            "client garbles": f"a precompute takes {client['client']:,} B at the client, "
            f"{client['server']:,} B at the server",
            "its link": _link(plan.link_if_server_garbles) + ", server garbles",
            "or": _link(plan.link_if_client_garbles) + ", client garbles",
        }
    )
    print(plan.text.rstrip())


def _uploads(plan: HybridPlanInfo) -> str:
    """What is uploaded for a precompute, and whether it is proven to be what it should be."""
    if plan.proof_bytes == 0:
        return (
            f"{plan.upload_bytes:,} B, taken as they are: a client that cheats can read weights "
            "(--verify-uploads)"
        )
    return (
        f"{plan.upload_bytes:,} B, and {plan.proof_bytes:,} B that prove them to be encryptions "
        f"({plan.proof_bytes / plan.upload_bytes:.1%})"
    )


def _link(link: dict[str, float]) -> str:
    """The best split of a radio link, in words."""
    return (
        f"{link['up_share']:.1%} up is the best split: {link['seconds']:.3g} s at 1,000 Mbps "
        f"({link['even_seconds']:.3g} s in halves) for {link['up_bytes']:,} B up, "
        f"{link['down_bytes']:,} B down"
    )


def open_client(servers: Servers, making: Making, store: Store) -> HybridClient:
    """A client as options say it."""
    options = ClientOptions(
        **servers.limits,
        garbler=one_of("--garbler", making.garbler, ("client", "server")),
        parallel=one_of("--parallel", making.parallel, ("layer", "sequential", "request")),
        steps=making.steps,
        up_mbps=making.up_mbps,
        down_mbps=making.down_mbps,
        store=store.folder,
        store_key=store.key,
        store_ledger=store.ledger,
        store_bytes_max=store.bytes_max,
    )
    client = connect(
        server=servers.server or [LEFT], scheme="hybrid", tls=servers.tls, options=options
    )
    if refused := client.precomputes_refused:
        print(
            f"{refused} precomputes of {store.folder} may have been used before, and were dropped: "
            "the folder was copied or put back, or its ledger is not there (--store-ledger)",
            file=sys.stderr,
        )
    return client


def query_hybrid(servers: Servers, making: Making, store: Store, path: Path, as_json: bool) -> None:
    """Predicts for the inputs of a file, and prints what comes out."""
    inputs = load_inputs(path)
    with (
        open_client(servers, making, store) as client,
        progress_bar("making a precompute", shown=not as_json) as bar,
    ):
        ready = client.precomputes
        needed = 1 if inputs.ndim in (1, 3) else len(inputs)
        if ready < needed and not as_json:
            print(
                f"{ready} precomputes are ready for {needed} inputs: the offline phase runs now "
                "for the others",
                file=sys.stderr,
            )
        found = client.predict(inputs, progress=bar)
    _print_outputs(found, as_json)


def _print_outputs(found: Outputs, as_json: bool) -> None:
    rows = np.atleast_2d(found.outputs)
    best = np.atleast_1d(found.classes)
    if as_json:
        stats = [dataclasses.asdict(one) for one in found.stats]
        print_json({"outputs": rows.tolist(), "classes": best.tolist(), "stats": stats})
        return
    print_table(
        ["input", "class", "output"],
        [
            [str(at), str(int(which)), f"{row[which]:.4f}"]
            for at, (row, which) in enumerate(zip(rows, best, strict=True))
        ],
    )
    offline = [one.offline for one in found.stats if one.offline is not None]
    print(
        f"online {sum(one.seconds for one in found.stats):.2f} s, "
        f"{sum(one.bytes_up for one in found.stats):,} B up, "
        f"{sum(one.bytes_down for one in found.stats):,} B down; offline now "
        f"{sum(one.seconds for one in offline):.2f} s for {len(offline)} precomputes",
        file=sys.stderr,
    )


@command(
    "hushtable infer precompute --count 10 --store mine "
    "--server https://one.example:4000 --ca ca.pem",
    "hushtable infer precompute --count 3 --store mine --garbler client --parallel request",
    "hushtable infer precompute --store mine --up-mbps 100 --down-mbps 900 --json",
)
@with_servers(sides=False)
def precompute(
    servers: Servers,
    count: Annotated[int, typer.Option(help="How many.", min=1)] = 1,
    store: StoreOption = None,
    store_key: StoreKeyOption = None,
    store_ledger: StoreLedgerOption = None,
    store_bytes_max: StoreBytesOption = STORE_BYTES_MAX,
    garbler: GarblerOption = "server",
    parallel: ParallelOption = "layer",
    steps: StepsOption = 8,
    up_mbps: UpOption = None,
    down_mbps: DownOption = None,
    json: Json = False,
) -> None:
    """Make precomputes for hybrid inference ahead of time: each is used up by one prediction.

    This client's halves go to --store, the server keeps its own. Lost connections are made again.
    """
    if store is None:
        raise ConfigError(
            "where to? a precompute outlives this command in a folder: --store FOLDER"
        )
    making = Making(garbler, parallel, steps, up_mbps, down_mbps)
    own = Store(store, store_key, store_ledger, store_bytes_max)
    with (
        open_client(servers, making, own) as client,
        progress_bar("making precomputes", shown=not json) as bar,
    ):
        made = client.precompute(count, progress=bar)
        ready = client.precomputes
    if json:
        print_json({**dataclasses.asdict(made), "ready": ready})
        return
    print(
        f"made {made.precomputes} in {made.seconds:.2f} s, {made.bytes_up:,} B up, "
        f"{made.bytes_down:,} B down; {ready} are ready in {store}"
    )
