"""``hushtable sim``: what a deployment would cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushtable._fdp import DEFAULT
from hushtable.cli.output import Json, command, note, print_json, print_table
from hushtable.errors import ConfigError
from hushtable.model import Model

from ..measure.records import bench_record

if TYPE_CHECKING:
    from ..sim.fl import Accesses, Point
    from ..sim.fl.datasets import Table1Row


@command(
    "hushtable sim fl --table small",
    "hushtable bench oram --rows 10000000 --row-bytes 64 --requests 10000 --json > bench.json",
    "hushtable sim fl --table all --measured bench.json --plots figures",
    "hushtable sim fl --rows 40000000 --row-bytes 96 --requests 20000 --k 6000 --json",
    "hushtable sim fl --model models/clicks --feature item --requests 10000",
)
def fl(
    table: Annotated[
        str, typer.Option(help="Of the paper's: small, medium, large or all.")
    ] = "all",
    rows: Annotated[int | None, typer.Option(help="Rows of a table of your own.")] = None,
    row_bytes: Annotated[int | None, typer.Option(help="Bytes of a row of it.")] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="The tables of this model, at four bytes a value, as they are trained.",
            show_default=False,
        ),
    ] = None,
    feature: Annotated[
        str | None,
        typer.Option(help="Of the model, only this feature's table.", show_default=False),
    ] = None,
    requests: Annotated[
        list[int] | None,
        typer.Option(
            help="K: users times rows of each, a round; may be repeated. By default 10,000, "
            "100,000 and 1,000,000."
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(help="Rows a round accesses. By default drawn as the paper's data sets do."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Privacy of the number of accesses.")] = 1.0,
    mechanism: Annotated[
        str,
        typer.Option(
            help="How hushtable draws the number of accesses, as `hushtable train create` takes "
            "it: shifted, geometric, eq3, each with settings."
        ),
    ] = DEFAULT,
    bucket_kib: Annotated[
        int, typer.Option(help="KiB of a bucket of hushtable's tree: 4, 8 or 16.")
    ] = 4,
    measured: Annotated[
        list[Path] | None,
        typer.Option(
            help="What `hushtable bench oram --json` printed here; may be repeated. Without it, "
            "times are carried over from the published artifact's.",
            show_default=False,
        ),
    ] = None,
    published: Annotated[
        str,
        typer.Option(
            help="Times of the published system: artifact (its code, run on a 2-core server) or "
            "paper (its authors' machine, from their text)."
        ),
    ] = "artifact",
    round_seconds: Annotated[
        float, typer.Option(help="What a round takes without the server: network and training.")
    ] = 120.0,
    datasets: Annotated[
        bool, typer.Option("--datasets", help="Print each data set, not only their mean.")
    ] = False,
    plots: Annotated[
        Path | None,
        typer.Option(help="Draw Figures 7 to 9 into this folder (matplotlib).", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Price federated rounds through an oblivious memory on an SSD.

    Bytes are counted from the trees' shapes, times are carried over from measured runs. Prints, for
    Path ORAM+, FEDORA as published and hushtable: what a request reads and writes, the server's
    time, how long an SSD of the file's size lives, and what hardware and power cost against a
    memory that is all DRAM. Then Table 1 of the paper: accesses saved, dummies and losses.
    """
    # It brings numpy, which other commands may do without.
    from ..sim.fl import REQUESTS, Times, points, table_1
    from ..sim.fl.cost import DRIVE_WRITES
    from ..sim.fl.geometry import BUCKET_KIB
    from ..sim.fl.plots import draw, require_matplotlib

    if plots is not None:
        require_matplotlib()
    if not epsilon >= 0 or math.isinf(epsilon):
        raise ConfigError(f"epsilon is {epsilon:g}, but must be 0 or more, and finite")
    if bucket_kib not in BUCKET_KIB:
        raise ConfigError(f"bucket_kib is {bucket_kib}, but must be 4, 8 or 16")
    tables = _model_tables(model, feature)
    if tables and (rows is not None or row_bytes is not None):
        raise ConfigError("--model has rows of its own: leave --rows and --row-bytes out")
    tables = tables or _tables(table, rows, row_bytes)
    counts = requests or list(REQUESTS)
    for count in counts:
        if k is not None and not 1 <= k <= count:
            raise ConfigError(f"k is {k}, but must be 1 to the {count} requests")
    times = Times.load(published, measured or ())
    found = list(
        points(
            tables,
            counts,
            times,
            epsilon=epsilon,
            k=k,
            round_seconds=round_seconds,
            mechanism=mechanism,
            bucket_kib=bucket_kib,
        )
    )
    losses = {name: table_1(name) for name in dict.fromkeys(("eq3", mechanism))}
    written = [] if plots is None else draw(found, plots)
    if json:
        for point in found:
            print_json(_point_record(point, published, [str(path) for path in measured or ()]))
        for name, rows_of in losses.items():
            for row, mean in rows_of:
                print_json(_loss_record(name, row, mean))
        note("".join(f"wrote {path}\n" for path in written))
        return
    print_table(_TREE_COLUMNS, _tree_rows(found))
    for name in dict.fromkeys(point.table.name for point in found):
        for count in counts:
            here = [p for p in found if p.table.name == name and p.requests == count]
            shown = [p for p in here if datasets or p.dataset in ("all", "mean")]
            print(f"\n{name}, {count:,} requests a round\n")
            print_table(_COLUMNS, [_cells(point) for point in shown])
    print("\nTable 1: accesses reduced / dummy / lost, % (more: hushtable sim fdp)\n")
    both = zip(losses["eq3"], losses[mechanism], strict=True)
    columns = ("data set", "ε", "paper", "Eq. 3", mechanism)
    print_table(columns, [_loss_cells(row, mean, ours) for (row, mean), (_, ours) in both])
    print(_LEGEND.format(seconds=round_seconds, writes=DRIVE_WRITES))
    if not measured:
        print(f"Times: {published}'s, carried over; measure yours and give them with --measured.")
    if written:
        print(f"wrote {len(written)} files into {plots}")


_TREE_COLUMNS = ("tree", "rows", "Z", "A", "levels", "path", "GB", "filled")
#: Short, so that a terminal of 80 columns shows all.
_COLUMNS = ("design", "k/K", "read", "written", "us", "over", "life", "cost", "watt", "joule")
_LEGEND = """
read: KB a request; written: B a request; us: the server's, a request; over: on
the round's other {seconds:g} s; life: of an SSD of the file's size, written {writes} times
(hushtable's file holds each page twice); cost, watt, joule: how many times less
than with all in DRAM. k is the data sets' geometric mean: --datasets has each.
path: pages from root to leaf."""


def _model_tables(path: Path | None, feature: str | None) -> list[Any]:
    """The sizes of a model's tables."""
    from ..sim.fl import TableSize

    if path is None:
        if feature is not None:
            raise ConfigError("--feature names a feature of a model: give --model too")
        return []
    model = Model.open(path)
    wanted = None if feature is None else model.feature(feature).table
    found = [table for table in model.tables if wanted in (None, table.name)]
    return [TableSize(table.name, table.rows, 4 * table.dim) for table in found]


def _tables(table: str, rows: int | None, row_bytes: int | None) -> list[Any]:
    from ..sim.fl import TABLES, TableSize

    if rows is not None or row_bytes is not None:
        if rows is None or row_bytes is None:
            raise ConfigError("a table of your own needs both --rows and --row-bytes")
        return [TableSize("yours", rows, row_bytes)]
    if table == "all":
        return list(TABLES.values())
    if table not in TABLES:
        raise ConfigError(f"table is {table!r}, but must be one of {', '.join(TABLES)} or all")
    return [TABLES[table]]


def _tree_rows(found: list[Point]) -> list[list[str]]:
    seen = {(p.table.name, p.design.name): p for p in found}
    return [
        [
            f"{table}, {design}",
            f"{point.tree.rows:,} x {point.tree.row_bytes} B",
            f"{point.tree.slots}",
            f"{point.tree.period or '-'}",
            f"{point.tree.levels}",
            f"{point.tree.path_pages}",
            f"{point.design.file_bytes(point.tree) / 1e9:.3g}",
            f"{point.tree.load:.0%}",
        ]
        for (table, design), point in seen.items()
    ]


def _cells(point: Point) -> list[str]:
    costs, dram = point.costs, point.in_dram
    return [
        point.label if point.dataset in ("all", "mean") else f"  {point.dataset}",
        f"{point.k / point.requests:.3f}",
        f"{point.pages.read_bytes / point.requests / 1e3:.1f}",
        f"{point.pages.written_bytes / point.requests:,.0f}",
        f"{point.us_per_request:,.0f}",
        _figures(100 * costs.overhead) + "%",
        _life(costs.life_months),
        _figures(dram.dollars / costs.dollars),
        _figures(dram.watts / costs.watts),
        _figures(dram.joules / costs.joules),
    ]


def _figures(value: float) -> str:
    """Two or three figures."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _life(months: float) -> str:
    if months < 1:
        return f"{_figures(months * 365.25 / 12)} d"
    return f"{_figures(months)} mo" if months < 24 else f"{_figures(months / 12)} y"


def _loss_cells(row: Table1Row, mean: Accesses, ours: Accesses) -> list[str]:
    def percents(each: Accesses) -> str:
        shares = (each.dummy_percent, each.lost_percent)
        dummy, lost = (f"{share:.{0 if share >= 100 else 2}f}" for share in shares)
        return f"{each.reduced_percent:.2f}/{dummy}/{lost}"

    return [
        row.dataset,
        f"{row.epsilon:g}",
        f"{row.reduced:.2f}/{row.dummy:.4g}/{row.lost:.4g}",
        percents(mean),
        percents(ours),
    ]


def _point_record(point: Point, published: str, measured: list[str]) -> dict[str, Any]:
    costs, dram, tree = point.costs, point.in_dram, point.tree
    return bench_record(
        "sim fl",
        {
            "table": point.table.name,
            "rows": tree.rows,
            "row_bytes": tree.row_bytes,
            "requests": point.requests,
            "design": point.design.name,
            "epsilon": point.epsilon,
            "dataset": point.dataset,
            "published": published,
            "measured": measured,
        },
        costs.life_months,
        "months",
        None,
        None,
        1,
        "model",
        k=point.k,
        slots=tree.slots,
        period=tree.period,
        levels=tree.levels,
        path_pages=tree.path_pages,
        file_bytes=point.design.file_bytes(tree),
        read_bytes_per_request=point.pages.read_bytes / point.requests,
        written_bytes_per_request=point.pages.written_bytes / point.requests,
        us_per_request=point.us_per_request,
        ssd_us_per_request=point.time.ssd_seconds * 1e6 / point.requests,
        overhead=costs.overhead,
        dollars=costs.dollars,
        watts=costs.watts,
        joules_per_round=costs.joules,
        dollars_of_dram=costs.dollars / dram.dollars,
        watts_of_dram=costs.watts / dram.watts,
        joules_of_dram=costs.joules / dram.joules,
    )


def _loss_record(mechanism: str, row: Table1Row, mean: Accesses) -> dict[str, Any]:
    return bench_record(
        "sim fl accesses",
        {
            "mechanism": mechanism,
            "dataset": row.dataset,
            # JSON has no infinity.
            "epsilon": None if math.isinf(row.epsilon) else row.epsilon,
            "requests": mean.requests,
        },
        mean.reduced_percent,
        "%",
        None,
        None,
        1,
        "model",
        dummy_percent=mean.dummy_percent,
        lost_percent=mean.lost_percent,
        paper_reduced_percent=row.reduced,
        paper_dummy_percent=row.dummy,
        paper_lost_percent=row.lost,
    )
