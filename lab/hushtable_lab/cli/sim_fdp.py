"""``hushtable sim fdp``: how many rows federated rounds read, and how many they lose."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushtable.cli._epsilon import read_epsilon
from hushtable.cli.output import Json, command, note, print_json, print_table
from hushtable.errors import ConfigError

from ..measure.records import bench_record

if TYPE_CHECKING:
    from ..sim.fl import Accesses

_EPSILONS = (math.inf, 1.0, 0.1)


@command(
    "hushtable sim fdp",
    "hushtable sim fdp --plots figures",
    "hushtable sim fdp --requests 10000 --union 887 --values 100 --epsilon 0.1",
    "hushtable sim fdp --requests 2000 --union 300 --mechanism shifted:loss=0.02 "
    "--mechanism eq3:y=power,exponent=5 --json",
)
def fdp(
    requests: Annotated[int, typer.Option(help="K: users times slots of a round.")] = 10_000,
    union: Annotated[
        list[int] | None,
        typer.Option(
            help="Different rows that a round asks for; may be repeated. Without it: the paper's "
            "Table 1, and its rounds in chunks.",
            show_default=False,
        ),
    ] = None,
    values: Annotated[
        int, typer.Option(help="Values of a user that are hidden together; 1 for one value.")
    ] = 1,
    epsilon: Annotated[
        list[str] | None,
        typer.Option(
            help="Of a round, for all values that are hidden together; may be repeated. By default "
            "inf, 1 and 0.1."
        ),
    ] = None,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            help="geometric, shifted[:loss=SHARE or by=ROWS,least=ROWS] or eq3[:y=uniform, "
            "y=square,low=ROWS,high=ROWS, y=power,exponent=NUMBER or y=delta[,at=ROWS]]; may be "
            "repeated. By default eq3, shifted and geometric."
        ),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(
            help="Draw Figure 3, and losses against epsilon, into this folder (matplotlib).",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Say how many rows a round reads, how many are dummies and how many are lost, in the mean.

    The number of rows that a round reads is drawn, so that it tells little of how alike users are
    (FEDORA, section 3). All of it is counted from the mechanisms' probabilities; nothing is
    measured. A controller's own settings: `hushtable train expect`.
    """
    from ..sim.fl import MECHANISMS
    from ..sim.fl.fdp import draw_fdp

    names = mechanism or list(MECHANISMS)
    epsilons = [read_epsilon(text) for text in epsilon] if epsilon else list(_EPSILONS)
    if values < 1:
        raise ConfigError(f"values is {values}, but must be 1 or more")
    if union:
        _shapes(requests, union, values, epsilons, names, json)
    else:
        if epsilon or values != 1:
            raise ConfigError("--epsilon and --values are for a --union; Table 1 has its own")
        _paper(names, json)
    if plots is not None:
        shown = [*names, *(["eq3:y=power,exponent=5"] if mechanism is None else [])]
        written = draw_fdp(requests, union or [887, 95], values if union else 100, shown, plots)
        note("".join(f"wrote {path}\n" for path in written))


def _shapes(
    requests: int,
    unions: list[int],
    values: int,
    epsilons: list[float],
    names: list[str],
    as_json: bool,
) -> None:
    from ..sim.fl import accesses

    rows = []
    for union in unions:
        for epsilon in epsilons:
            for name in names:
                mean = accesses(name, requests, union, epsilon / values)
                params = {"values": values, **_epsilon_param(epsilon)}
                if as_json:
                    print_json(_record("shape", name, mean, params))
                rows.append([f"{union:,}", f"{epsilon:g}", name, *_cells(mean)])
    if not as_json:
        print(f"{requests:,} requests a round, {values} values hidden together\n")
        print_table(("union", "ε", "mechanism", *_COLUMNS), rows)


def _paper(names: list[str], as_json: bool) -> None:
    from ..sim.fl import table_1
    from ..sim.fl.fdp import FIGURE_3, OWN, SAMPLE_REQUESTS, SAMPLE_UNION, chunked, worst_loss_share
    from ..sim.fl.privacy import accesses

    table, pieces, worst = [], [], []
    for name in names:
        for row, mean in table_1(name):
            params = {"dataset": row.dataset, **_epsilon_param(row.epsilon)}
            paper = {
                "paper_reduced_percent": row.reduced,
                "paper_dummy_percent": row.dummy,
                "paper_lost_percent": row.lost,
            }
            if as_json:
                print_json(_record("Table 1", name, mean, params, **paper))
            published = f"{row.reduced:.2f} / {row.dummy:.4g} / {row.lost:.4g}"
            found = f"{mean.reduced_percent:.2f} / {mean.dummy_percent:.4g}"
            found += f" / {mean.lost_percent:.4g}"
            table.append([row.dataset, f"{row.epsilon:g}", name, found, published])
        for dataset, requests, whole, parts in chunked(name, 1.0):
            for chunk, mean in ((None, whole), (16_384, parts)):
                params = {"dataset": dataset, "epsilon": 1.0, "chunk": chunk}
                if as_json:
                    print_json(_record("chunks", name, mean, params))
            pieces.append(
                [
                    dataset,
                    f"{requests:,}",
                    name,
                    f"{whole.k:,.0f} / {whole.dummy_percent:.3g} / {whole.lost_percent:.3g}",
                    f"{parts.k:,.0f} / {parts.dummy_percent:.3g} / {parts.lost_percent:.3g}",
                ]
            )
        for epsilon in (1.0, 0.1, 0.01, 0.001):
            share = worst_loss_share(name, 10_000, epsilon)
            worst.append([name, f"{epsilon:g}", f"{100 * share:.3g}"])
            if as_json:
                params = {"part": "worst loss", "mechanism": name, "epsilon": epsilon}
                params["requests"] = 10_000
                print_json(_bench(params, 100 * share))
    for sample in (*FIGURE_3, *OWN):
        mean = accesses(sample.mechanism, SAMPLE_REQUESTS, SAMPLE_UNION, sample.epsilon)
        if as_json:
            params = {"panel": sample.panel, "epsilon": sample.epsilon}
            print_json(_record("Figure 3", sample.mechanism, mean, params))
    if as_json:
        return
    print("Table 1: accesses reduced / dummy / lost, %\n")
    print_table(("data set", "ε", "mechanism", "here", "paper"), sorted(table))
    print("\nThe largest loss of any union, K = 10,000, by ε of one value\n")
    print_table(("mechanism", "ε", "lost, %"), worst)
    print("\nε = 1: rows read / dummy % / lost %, drawn once or from each 16,384 requests\n")
    print_table(("data set", "K", "mechanism", "once", "in chunks"), pieces)


_COLUMNS = ("reads", "dummy, %", "lost, %", "reduced, %")


def _cells(mean: Accesses) -> list[str]:
    return [
        f"{mean.k:,.1f}",
        f"{mean.dummy_percent:.4g}",
        f"{mean.lost_percent:.4g}",
        f"{mean.reduced_percent:.2f}",
    ]


def _epsilon_param(epsilon: float) -> dict[str, Any]:
    # JSON has no infinity.
    return {"epsilon": None if math.isinf(epsilon) else epsilon}


def _bench(params: dict[str, Any], value: float, unit: str = "%", **detail: Any) -> dict[str, Any]:
    return bench_record("sim fdp", params, value, unit, None, None, 1, "model", **detail)


def _record(
    part: str, mechanism: str, mean: Accesses, params: dict[str, Any], **detail: Any
) -> dict[str, Any]:
    return _bench(
        {"part": part, "mechanism": mechanism, "requests": mean.requests, **params},
        mean.k,
        "rows a round",
        k_union=mean.k_union,
        reduced_percent=mean.reduced_percent,
        dummy_percent=mean.dummy_percent,
        lost_percent=mean.lost_percent,
        **detail,
    )
