"""Says when storing rows beside those they are read with pays (Lam et al., §IV-B).

    python -m examples.codesign.collocation [--out FILE] [--plots FOLDER] [--quick] [--made-only]

Traces are made up in which rows are read in groups; for each of them the same grid of layouts is
simulated with and without companions, and the cheapest that drops few enough is taken of both. What
companions save in bytes, PRF calls and time is the ratio of the two. Beside it: how much together
the rows of the applications' traces are read, counted in the same way.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import hushtable
from hushtable import ConfigError, _native, data
from hushtable.tune import CostModel, LayoutSpec, PartSpec, Trace, load_costs
from hushtable.tune.costs import FEATURES
from hushtable.tune.screen import layout_costs
from hushtable.tune.search import Simulator, native_arrays
from hushtable.tune.spec import seed_text

from .groups import Company, GroupSpec

#: Rows' bytes that costs are told for; drops do not depend on them.
ROW_BYTES = (16, 64, 256, 1024)
#: Shares of the accesses that may be dropped.
DROPS = (0.01, 0.05)
COMPANIONS = (1, 3, 7)
#: Bags that companions are learned from, and that drops are counted on.
LEARNED_BAGS, TOLD_BAGS = 4_000, 500
#: Bags of *recs*, whose trace has no bags of its own, and how many of them are counted.
RECS_BAG_IDS, RECS_BAGS = 64, 20_000


@dataclass(frozen=True)
class Layouts:
    """A grid of layouts: the same bins and queries, with and without companions.

    Attributes:
        hot_rows: rows of a hot part; 0 for none.
        hot_bins, full_bins: bins of each part.
        queries: keys to a bin of the full part, where there is no hot part.
    """

    hot_rows: tuple[int, ...] = (0, 1024, 4096)
    hot_bins: tuple[int, ...] = (8, 16, 32, 64, 128)
    full_bins: tuple[int, ...] = (4, 8, 16, 24, 32, 48, 64, 96, 128, 256)
    queries: tuple[int, ...] = (1, 2, 3)

    def specs(self, rows: int, ids_max: int) -> Iterator[LayoutSpec]:
        """All of them, for a table of ``rows``."""
        companions = (0, *COMPANIONS)
        for hot_rows, count in itertools.product(self.hot_rows, companions):
            hots: Sequence[PartSpec | None] = [None]
            if hot_rows:
                hots = [PartSpec(hot_rows, bins, 1, 1, count) for bins in self.hot_bins]
            queries = self.queries if hot_rows == 0 else self.queries[:1]
            for hot, bins, keys in itertools.product(hots, self.full_bins, queries):
                full = PartSpec(rows, bins, keys, 1, count)
                yield LayoutSpec(hot, full, ids_max, "most-frequent", seed_text(0))


QUICK = Layouts(hot_rows=(0, 512), hot_bins=(16, 32), full_bins=(8, 16, 32, 64), queries=(1, 2))


def simulate(spec: GroupSpec, layouts: Layouts, *, seed: int = 1) -> list[tuple[LayoutSpec, float]]:
    """Each layout, and the share of a made-up trace's accesses that it drops."""
    learned, told = trace_halves(spec, seed)
    model = load_costs() or _no_time()
    table = hushtable.Table.from_weight(np.zeros((spec.rows, 8), np.float32), dtype="f16")
    profile = _native.Profile(*native_arrays(learned), spec.rows)
    simulator = Simulator(table._native, profile, model, seed=0)
    specs = list(layouts.specs(spec.rows, spec.bag_ids))
    return [(point.spec, point.drop) for point, _ in simulator.run_all(specs, told)]


def trace_halves(spec: GroupSpec, seed: int) -> tuple[Trace, Trace]:
    """The bags to learn from and the bags to count on."""
    trace = spec.trace(LEARNED_BAGS + TOLD_BAGS, seed=seed)
    return trace.split(LEARNED_BAGS / (LEARNED_BAGS + TOLD_BAGS))


def _no_time() -> CostModel:
    """A model of no time at all, where this machine has not been measured."""
    zero = (0.0,) * len(FEATURES)
    return CostModel(zero, zero, 0.0, 0.0, platform.processor(), "", hushtable.__version__)


def savings(
    found: Sequence[tuple[LayoutSpec, float]], row_bytes: int, drop: float, model: CostModel | None
) -> dict[str, Any]:
    """What companions save of each cost, where at most ``drop`` of the accesses are dropped.

    For each cost: the least without companions, the least with them, and the first over the second;
    None where no layout of the grid drops so few. Time is None without a model of it.
    """
    costs: dict[str, Callable[[LayoutSpec, dict[str, int]], float]] = {
        "comm_kb": lambda _spec, figures: figures["comm_bytes"] / 1e3,
        "prf_calls": lambda _spec, figures: figures["prf_calls"],
    }
    if model is not None:
        costs["server_us"] = lambda spec, figures: (
            (model.batch_seconds(figures, spec) / 64 + model.wire_seconds(figures)) * 1e6
        )
    result: dict[str, Any] = {}
    for name, cost in costs.items():
        least: dict[bool, tuple[float, LayoutSpec] | None] = {False: None, True: None}
        for spec, dropped in found:
            if dropped > drop:
                continue
            value = cost(spec, layout_costs(spec, row_bytes))
            with_companions = any(part.companions for part in spec.parts)
            best = least[with_companions]
            if best is None or value < best[0]:
                least[with_companions] = (value, spec)
        without, beside = least[False], least[True]
        result[name] = {
            "without": None if without is None else without[0],
            "with": None if beside is None else beside[0],
            "ratio": without[0] / beside[0] if without and beside else None,
            "layout_without": None if without is None else without[1].describe(),
            "layout_with": None if beside is None else beside[1].describe(),
        }
    return result


def cells(quick: bool) -> list[GroupSpec]:
    """The traces of the sweep: groups' sizes and how much of a bag comes in them, then how uneven
    the groups are read."""
    base = GroupSpec(rows=1 << 12 if quick else 1 << 14)
    shares = (0.0, 0.9) if quick else (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
    sizes = (4,) if quick else (2, 4, 8)
    found = [replace(base, group_rows=size, together=share) for size in sizes for share in shares]
    exponents = () if quick else (0.0, 0.7, 1.3)
    return found + [replace(base, exponent=one, together=0.9) for one in exponents]


def sweep(quick: bool, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """A record for each made-up trace, number of bytes, and share that may be dropped."""
    model = load_costs()
    records = []
    for spec in cells(quick):
        found = simulate(spec, QUICK if quick else Layouts())
        company = Company.of(*trace_halves(spec, 1))
        say(f"  {spec}: {company.ids_a_key[3]:.2f} ids a key with three companions")
        for row_bytes, drop in itertools.product(ROW_BYTES, DROPS):
            saved = savings(found, row_bytes, drop, model)
            records.append(
                {
                    "bench": "collocation",
                    "params": asdict(spec) | {"row_bytes": row_bytes, "drop": drop},
                    "value": saved["comm_kb"]["ratio"],
                    "unit": "times the bytes without companions over those with",
                    "detail": saved | {"company": asdict(company)},
                }
            )
    return records


def real_traces(say: Callable[[str], None]) -> Iterator[tuple[str, Trace, Trace]]:
    """The name, the training part and the test part of each application's trace, and of *recs*."""
    from .__main__ import PAPER, load

    for name in PAPER:
        app = load(name, None, say)
        yield name, app.train, app.test
    ids = data.load_requests(data.fetch("recs", say=say))
    ids = ids[: len(ids) // RECS_BAG_IDS * RECS_BAG_IDS].astype(np.int64)
    recs = Trace(ids, np.arange(0, len(ids) + 1, RECS_BAG_IDS))
    learned, told = recs.split(0.8)
    # The newest of what is learned: a recommender's items come and go.
    newest = np.arange(max(learned.bag_count - RECS_BAGS, 0), learned.bag_count)
    yield "recs", learned.take(newest), told.take(np.arange(min(2_000, told.bag_count)))


def companies(say: Callable[[str], None]) -> list[dict[str, Any]]:
    """A record for each real trace: how much together its rows are read."""
    records = []
    for name, learned, told in real_traces(say):
        company = Company.of(learned, told)
        say(f"  {name}: {company}")
        records.append(
            {
                "bench": "company",
                "params": {"trace": name},
                "value": company.ids_a_key[3],
                "unit": "ids a key with three companions",
                "detail": asdict(company),
            }
        )
    return records


def draw(records: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """What companions save by how much rows are read together, as one figure a cost.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    from hushtable.tune.plots import require_matplotlib

    matplotlib = require_matplotlib()
    from matplotlib.figure import Figure

    titles = {"comm_kb": "bytes", "prf_calls": "PRF calls", "server_us": "a server's time"}
    made = [one for one in records if one["bench"] == "collocation"]
    even = [one for one in made if one["params"]["exponent"] == GroupSpec().exponent]
    sizes = sorted({one["params"]["group_rows"] for one in even})
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    styles = ("o-", "s--", "^-.", "D:")
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "hushtable"}):
        for cost, title in titles.items():
            sheet = Figure(figsize=(9.6, 5.6), layout="constrained")
            grid = sheet.subplots(len(DROPS), len(sizes), sharex=True, sharey=True, squeeze=False)
            for (row, drop), (column, size) in itertools.product(
                enumerate(DROPS), enumerate(sizes)
            ):
                axes = grid[row][column]
                for row_bytes, style in zip(ROW_BYTES, styles, strict=True):
                    points = [
                        (one["params"]["together"], one["detail"][cost]["ratio"])
                        for one in even
                        if one["params"]["group_rows"] == size
                        and one["params"]["row_bytes"] == row_bytes
                        and one["params"]["drop"] == drop
                        and one["detail"].get(cost, {}).get("ratio") is not None
                    ]
                    if points:
                        label = f"rows of {row_bytes} B"
                        axes.plot(*zip(*points, strict=True), style, label=label, markersize=4)
                axes.axhline(1.0, color="#999999", linewidth=0.8)
                axes.set_title(f"groups of {size}, {drop:.0%} dropped", fontsize=9)
            handles, labels = grid[-1][-1].get_legend_handles_labels()
            sheet.legend(handles, labels, fontsize=7, frameon=False, loc="outside right upper")
            sheet.supxlabel("share of a bag's ids that come with their group", fontsize=9)
            sheet.supylabel(f"{title}: without companions / with", fontsize=9)
            path = folder / f"collocation-{cost.replace('_', '-')}.svg"
            sheet.savefig(path, metadata={"Date": None})
            written.append(path)
    return written


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.codesign.collocation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("collocation.json"), help="a file")
    parser.add_argument("--plots", type=Path, help="a folder for the figures")
    parser.add_argument("--quick", action="store_true", help="small traces, for a smoke test")
    parser.add_argument("--made-only", action="store_true", help="leave the real traces out")
    options = parser.parse_args()

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    records = sweep(options.quick, say)
    try:
        if not options.made_only:
            records += companies(say)
        if options.plots:
            draw(records, options.plots)
    except (hushtable.Error, ConfigError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    options.out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine(), "results": records}, indent=1)
    options.out.write_text(text + "\n", encoding="utf-8")
    say(f"written to {options.out}")
    return 0


def machine() -> dict[str, Any]:
    """What times were predicted for."""
    model = load_costs()
    return {"system": platform.platform(), "cpu": None if model is None else model.cpu}


if __name__ == "__main__":
    sys.exit(main())
