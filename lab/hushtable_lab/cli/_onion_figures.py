"""IVE's figures 4a, 4b, 6, 8 and 13a to 13c, of what ``bench onion --sweep`` found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..sim.accelerator.figures_draw import lines, stacked
from ..sim.accelerator.published import bound, compare
from ..sim.figure import Figure
from ..sim.published import Comparison

_STEPS = ("ExpandQuery", "RowSel", "ColTor")
_PAPER_SET = "ive_paper"
_Record = Mapping[str, Any]


def figures(records: Iterable[_Record]) -> list[Figure]:
    """Those that the records are enough for, one for each parameter set."""
    records = list(records)
    found = []
    for parameters in sorted({one["params"]["parameters"] for one in records}):
        own = [one for one in records if one["params"]["parameters"] == parameters]
        made = [
            _operations(own, parameters, "4a", "table_mib", "MiB of table"),
            _operations(own, parameters, "4b", "matrix_rows", "D0, 1 GiB of table"),
            _intensity(own, parameters),
            _traffic(own, parameters),
            _times(own, parameters, "13a", "table_mib", "MiB of table"),
            _times(own, parameters, "13b", "schedule", "order of both trees"),
            _times(own, parameters, "13c", "batch", "queries of a batch"),
        ]
        found += [one for one in made if one is not None]
    return found


def _of(records: Sequence[_Record], bench: str, figure: str | None = None) -> list[_Record]:
    return [
        one
        for one in records
        if one["bench"] == bench and figure in (None, one["params"].get("figure"))
    ]


def _field(record: _Record, name: str) -> Any:
    return record["params"].get(name, record["detail"].get(name))


def _operations(
    records: Sequence[_Record], parameters: str, number: str, across: str, what: str
) -> Figure | None:
    own = _of(records, "onion-operations", number)
    if not own:
        return None
    shares = [
        (
            _field(one, across),
            one["detail"]["expand_share"],
            one["value"],
            one["detail"]["tournament_share"],
            one["detail"]["multiplications"],
        )
        for one in own
    ]

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        labels = [str(row[0]) for row in shares]
        parts = {
            step: [row[1 + index] * row[4] for row in shares] for index, step in enumerate(_STEPS)
        }
        stacked(axes, labels, parts, "integer multiplications of a query")
        axes.set_xlabel(what, fontsize=9)
        canvas.legend(loc="outside right upper", fontsize=8, frameon=False)

    comparisons: tuple[Comparison, ...] = ()
    if number == "4a" and parameters == _PAPER_SET:
        by_mib = {row[0]: row[2] for row in shares}
        comparisons = tuple(
            compare("Figure 4a", f"RowSel, share of multiplications, {gb} GB", by_mib[gb << 10])
            for gb in (2, 16)
        )
    return Figure(
        f"{number}-{parameters}",
        f"Multiplications by step, {parameters}",
        (across, "expand_share", "row_select_share", "tournament_share", "multiplications"),
        shares,
        comparisons,
        draw,
    )


def _intensity(records: Sequence[_Record], parameters: str) -> Figure | None:
    own = _of(records, "onion-intensity")
    if not own:
        return None
    rows = [
        (one["params"]["batch"], one["detail"]["expand"], one["value"], one["detail"]["tournament"])
        for one in own
    ]

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        batches = [row[0] for row in rows]
        series = {
            step: (batches, [row[1 + index] for row in rows]) for index, step in enumerate(_STEPS)
        }
        lines(axes, series, "queries of a batch", "integer multiplications a byte", log="xy")
        canvas.legend(loc="outside right upper", fontsize=8, frameon=False)

    alone = next(row[2] for row in rows if row[0] == 1)
    limits = bound("Figure 6", "Figure 6: RowSel's multiplications a byte, batch 1")
    return Figure(
        f"6-{parameters}",
        f"Multiplications for each byte between memory and cache, 2 GiB, {parameters}",
        ("batch", "expand", "row_select", "tournament"),
        rows,
        draw=draw,
        notes=(limits.statement(alone),),
    )


def _traffic(records: Sequence[_Record], parameters: str) -> Figure | None:
    own = _of(records, "onion-traffic")
    if not own:
        return None
    rows: list[tuple[Any, ...]] = []
    for one in own:
        for step in ("expand", "tournament"):
            moved = one["detail"][step]
            rows.append(
                (
                    one["params"]["scratchpad"],
                    step,
                    one["params"]["schedule"],
                    one["params"]["overlap"],
                    moved["ciphertext_reads"],
                    moved["ciphertext_writes"],
                    moved["key_reads"],
                    one["detail"][f"{step}_reduction"],
                    one["detail"]["row_select"]["table"],
                )
            )

    def draw(canvas: Any) -> None:
        places = sorted({row[0] for row in rows})
        panels = canvas.subplots(len(places), 2, squeeze=False)
        for line, where in zip(panels, places, strict=True):
            for axes, step in zip(line, ("expand", "tournament"), strict=True):
                shown = [row for row in rows if row[:2] == (where, step)]
                labels = [_short(row[2]) + ("\nR.O." if row[3] else "") for row in shown]
                parts = {
                    name: [row[index] / 1e9 for row in shown]
                    for name, index in (("read", 4), ("written", 5), ("keys", 6))
                }
                stacked(axes, labels, parts, "GB of 32 queries")
                axes.tick_params(axis="x", labelsize=5.5)
                axes.set_title(f"{_STEPS[0 if step == 'expand' else 2]}, {where}", fontsize=8)
        handles, names = panels[0][0].get_legend_handles_labels()
        canvas.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8)

    return Figure(
        f"8-{parameters}",
        f"Bytes that the orders move, 8 GiB, {parameters}",
        (
            "scratchpad",
            "step",
            "schedule",
            "overlap",
            "ciphertext_reads",
            "ciphertext_writes",
            "key_reads",
            "reduction_over_breadth",
            "table_bytes",
        ),
        rows,
        _ratios(rows) if parameters == _PAPER_SET else (),
        draw,
        inches=(8.4, 6.4),
    )


def _ratios(rows: Sequence[Sequence[Any]]) -> tuple[Comparison, ...]:
    """Ours on the chip's scratchpad, beside the paper's."""
    by = {tuple(row[1:4]): row[7] for row in rows if row[0] == "chip"}
    within, inside = "hierarchical-breadth", "hierarchical"
    subtrees = "DRAM: breadth first over hierarchical, breadth first inside"
    all_of_ours = "DRAM: breadth first over all of ours"
    expand = {name: by["expand", name, False] for name in (within, inside)}
    return (
        compare("Figure 8a", f"ExpandQuery, {subtrees}", expand[within]),
        compare(
            "Figure 8a",
            "ExpandQuery, DRAM: breadth over depth first inside",
            expand[inside] / expand[within],
        ),
        compare("Figure 8a", f"ExpandQuery, {all_of_ours}", by["expand", inside, True]),
        compare("Figure 8b", f"ColTor, {subtrees}", by["tournament", within, False]),
        compare(
            "Figure 8b",
            "ColTor, DRAM: without over with overlapping",
            by["tournament", inside, True] / by["tournament", inside, False],
        ),
        compare("Figure 8b", f"ColTor, {all_of_ours}", by["tournament", inside, True]),
    )


def _times(
    records: Sequence[_Record], parameters: str, number: str, across: str, what: str
) -> Figure | None:
    own = _of(records, "onion-sweep", number)
    if not own:
        return None
    rows: list[tuple[Any, ...]] = []
    for one in own:
        label = _field(one, across)
        if number == "13b":
            label = _short(label) + (", R.O." if one["params"]["overlap"] else "")
        batch, detail = one["params"]["batch"], one["detail"]
        rows.append(
            (
                label,
                batch,
                detail["expand_ms"] / batch,
                detail["row_select_ms"] / batch,
                detail["tournament_ms"] / batch,
                one["value"],
                detail["ms_per_pass"],
            )
        )

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        labels = [str(row[0]).replace(", ", "\n") for row in rows]
        parts = {step: [row[2 + index] for row in rows] for index, step in enumerate(_STEPS)}
        stacked(axes, labels, parts, "ms a query")
        axes.set_xlabel(what, fontsize=9)
        axes.tick_params(axis="x", labelsize=6.5)
        canvas.legend(loc="outside right upper", fontsize=8, frameon=False)

    return Figure(
        f"{number}-{parameters}",
        f"Time of a query by step, {parameters}",
        (across, "batch", "expand_ms", "row_select_ms", "tournament_ms", "qps", "pass_ms"),
        rows,
        draw=draw,
    )


def _short(schedule: str) -> str:
    order, _, depth = schedule.partition(":")
    names = {
        "breadth": "BFS",
        "depth": "DFS",
        "hierarchical": "HS (DFS)",
        "hierarchical-breadth": "HS (BFS)",
    }
    return names.get(order, order) + (f" {depth}" if depth else "")
