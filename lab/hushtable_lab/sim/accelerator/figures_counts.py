"""Figures 4a, 4b, 6 and 7d: a query's integer multiplications, and the bytes they are done on.

The paper counts integer multiplications and leaves unsaid how many a modular one is. Here they are
those of 32 bits: a product of two residues is two (its low and its high half), and Montgomery's
reduction two more. A butterfly, and a product of the inverse CRT, reduces each product; RowSel and
the products with keys add up first and reduce each sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..figure import COLOURS, Figure
from .figures_draw import finish, lines, stacked
from .figures_points import GB, Digits, digits
from .published import bound, compare

__all__ = ["FIGURES", "Counts", "count"]

N, RESIDUES, RECORD_BYTES = 4096, 4, 16_384
PRODUCT, REDUCTION = 2, 2
#: Of words of 28 bits that Q has, and of Q over a residue.
Q_WORDS = 4

#: A GPU whose roofline the paper draws: its data sheet's 1,008 GB/s, and 64 of 32-bit
#: multiplications a cycle in each of 128 multiprocessors at 2.52 GHz.
RTX_4090_BYTES, RTX_4090_MULTIPLICATIONS = 1.008e12, 128 * 64 * 2.52e9

_KINDS = {
    "(i)NTT": COLOURS[0],
    "GEMM": COLOURS[1],
    "products with keys": COLOURS[2],
    "inverse CRT": COLOURS[3],
}


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one query.

    Attributes:
        multiplications: by step ("ExpandQuery", "RowSel", "ColTor"), then by kind.
        client_bytes: that ExpandQuery and ColTor move if each ciphertext and key is moved once for
            each operation that takes or makes it, by step.
        table_bytes: of the prepared table.
        row_bytes: of RowSel's ciphertexts, in and out.
    """

    multiplications: dict[str, dict[str, float]]
    client_bytes: dict[str, float]
    table_bytes: float
    row_bytes: float

    def total(self, step: str) -> float:
        """Multiplications of a step."""
        return sum(self.multiplications[step].values())

    def share(self, step: str) -> float:
        """Of all multiplications."""
        return self.total(step) / sum(map(self.total, self.multiplications))


def count(table_gb: float, d0: int = 256, how: Digits | None = None) -> Counts:
    """Multiplications and bytes of a query.

    Args:
        table_gb: GB (2^30 B) of records.
        d0: records of the first dimension.
        how: digits of the keys of each step; by default the model's.
    """
    how = how or digits()
    records = table_gb * GB / RECORD_BYTES
    columns = max(1.0, records / d0)
    depth = math.ceil(math.log2(columns))
    # A tree with so many leaves has one inner node fewer; leaves are the first dimension's and
    # those that the selection bits' RGSW ciphertexts are made of.
    leaves = d0 + depth * how.tournament
    ntt = N / 2 * math.log2(N) * (PRODUCT + REDUCTION)
    rows = N * RESIDUES
    residue_products = rows * (PRODUCT + REDUCTION)
    icrt = residue_products + rows * (Q_WORDS - 1) * PRODUCT

    def switch(polynomials: int, width: int) -> dict[str, float]:
        """Decomposes polynomials into digits and multiplies them with a key of two columns."""
        transforms = polynomials * RESIDUES * (1 + width)
        return {
            "(i)NTT": transforms * ntt,
            "products with keys": 2 * rows * (polynomials * width * PRODUCT + REDUCTION),
            "inverse CRT": polynomials * icrt,
        }

    def times(amount: float, one: Mapping[str, float]) -> dict[str, float]:
        return {kind: amount * value for kind, value in one.items()}

    expand = times(leaves - 1, switch(1, how.expand))
    made = times(depth * how.tournament, switch(2, how.tournament))
    for kind, value in made.items():
        expand[kind] += value
    selected = columns * 2 * rows * (d0 * PRODUCT + REDUCTION)
    tournament = times(columns - 1, switch(2, how.tournament))
    # 28 bits a residue.
    polynomial = rows * 28 / 8
    ciphertext = 2 * polynomial
    key, bit = 2 * how.expand * polynomial, 4 * how.tournament * polynomial
    return Counts(
        {
            "ExpandQuery": expand,
            "RowSel": {"GEMM": selected},
            "ColTor": tournament,
        },
        {
            "ExpandQuery": (leaves - 1) * 3 * ciphertext + math.ceil(math.log2(leaves)) * key,
            "ColTor": (columns - 1) * 3 * ciphertext + depth * bit,
        },
        records * polynomial,
        (d0 + columns) * ciphertext,
    )


def figure_4a() -> Figure:
    """Share of multiplications by step and database."""
    sizes = (2, 4, 8, 16)
    found = {f"{gb} GB": count(gb) for gb in sizes}

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        parts = {
            step: [100 * one.share(step) for one in found.values()]
            for step in ("ExpandQuery", "RowSel", "ColTor")
        }
        stacked(axes, list(found), parts, "share of integer multiplications, %")
        below = parts["ExpandQuery"]
        for place, (low, share) in enumerate(zip(below, parts["RowSel"], strict=True)):
            axes.text(
                place, low + share / 2, f"{share:.1f} %", ha="center", color="white", fontsize=9
            )
        canvas.legend(loc="outside right upper", fontsize=8, frameon=False)

    source = "Figure 4a"
    return Figure(
        "4a",
        "Integer multiplications by step and database, D0 = 256",
        ("database", "expand_query", "row_sel", "col_tor", "row_sel_share"),
        [
            [name, *(one.total(step) for step in one.multiplications), one.share("RowSel")]
            for name, one in found.items()
        ],
        (
            compare(
                source, "RowSel, share of multiplications, 2 GB", found["2 GB"].share("RowSel")
            ),
            compare(
                source, "RowSel, share of multiplications, 16 GB", found["16 GB"].share("RowSel")
            ),
        ),
        draw,
        notes=(
            _digits_note(),
            "With 8 digits in both, the shares are "
            + ", ".join(f"{count(gb, how=Digits(8, 8)).share('RowSel'):.1%}" for gb in sizes)
            + ": the figure's, but working sets and times of ColTor are those of 5.",
        ),
    )


def figure_4b() -> Figure:
    """Multiplications by step against D0, 2 GB."""
    sizes = [2**k for k in range(5, 13)]
    found = {d0: count(2, d0) for d0 in sizes}
    totals = {d0: sum(map(one.total, one.multiplications)) for d0, one in found.items()}
    least = min(totals, key=lambda d0: totals[d0])
    eight = min(sizes, key=lambda d0: sum(map(count(8, d0).total, found[d0].multiplications)))

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        parts = {
            step: [one.total(step) / 1e9 for one in found.values()]
            for step in ("ExpandQuery", "RowSel", "ColTor")
        }
        stacked(axes, [str(d0) for d0 in sizes], parts, "integer multiplications, 10^9")
        axes.set_xlabel("D0, records of the first dimension", fontsize=9)
        axes.legend(fontsize=8, frameon=False)

    return Figure(
        "4b",
        "Integer multiplications by step and D0, 2 GB",
        ("d0", "expand_query", "row_sel", "col_tor", "total"),
        [
            [d0, *(one.total(step) for step in one.multiplications), totals[d0]]
            for d0, one in found.items()
        ],
        (),
        draw,
        notes=(
            bound("Figure 4b", "Figure 4b: D0 of the fewest multiplications").statement(least),
            f"The paper leaves the database unsaid: 2 GB is taken. With 8 GB it is {eight}.",
            _digits_note(),
        ),
    )


def figure_6() -> Figure:
    """Roofline of an RTX 4090 and the time that it leaves to each step, 2 GB."""
    one = count(2)
    batches = (1, 2, 4, 8, 16, 32, 64)
    rows: list[list[Any]] = []
    seconds: dict[str, list[float]] = {"ExpandQuery": [], "RowSel": [], "ColTor": []}
    intensity: dict[str, list[float]] = {step: [] for step in seconds}
    for batch in batches:
        for step, times in seconds.items():
            work = batch * one.total(step)
            moved = (
                one.table_bytes + batch * one.row_bytes
                if step == "RowSel"
                else batch * one.client_bytes[step]
            )
            times.append(max(work / RTX_4090_MULTIPLICATIONS, moved / RTX_4090_BYTES))
            intensity[step].append(work / moved)
            rows.append([step, batch, work, moved, work / moved, 1e3 * times[-1]])

    def draw(canvas: Any) -> None:
        left, right = canvas.subplots(1, 2)
        ridge = RTX_4090_MULTIPLICATIONS / RTX_4090_BYTES
        places = sorted([2 ** (k / 4) for k in range(-6, 33)] + [ridge])
        roof = [min(RTX_4090_MULTIPLICATIONS, RTX_4090_BYTES * at) / 1e12 for at in places]
        left.plot(places, roof, color="black", linewidth=1.2, label="RTX 4090")
        # All that a step is, at each batch: one point where batches change nothing.
        lines(
            left,
            {
                step: (
                    at,
                    [min(RTX_4090_MULTIPLICATIONS, RTX_4090_BYTES * x) / 1e12 for x in at],
                )
                for step, at in intensity.items()
            },
            "integer multiplications a byte of DRAM traffic",
            "10^12 multiplications a second",
            log="xy",
        )
        left.annotate(
            "RowSel, batches\nof 1 (left) to 64",
            (intensity["RowSel"][2], RTX_4090_BYTES * intensity["RowSel"][2] / 1e12),
            xytext=(10, -18),
            textcoords="offset points",
            fontsize=7,
        )
        left.legend(fontsize=7, frameon=False)
        parts = {
            step: [
                100 * value / sum(other[place] for other in seconds.values())
                for place, value in enumerate(times)
            ]
            for step, times in seconds.items()
        }
        stacked(right, [str(batch) for batch in batches], parts, "share of the time, %")
        right.set_xlabel("batch, queries", fontsize=9)
        handles = right.get_legend_handles_labels()
        canvas.legend(*handles, loc="outside lower center", ncols=3, fontsize=8, frameon=False)

    return Figure(
        "6",
        "Roofline of an RTX 4090, and time by step and batch at it, 2 GB",
        ("step", "batch", "multiplications", "dram_bytes", "multiplications_a_byte", "ms"),
        rows,
        (),
        draw,
        inches=(9.4, 4.2),
        notes=(
            bound("Figure 6", "Figure 6: RowSel's multiplications a byte, batch 1").statement(
                intensity["RowSel"][0]
            ),
            "The paper measured the times on a GPU; these are what the roofline allows at least. "
            "Keys are read once a query, ciphertexts for every operation.",
        ),
    )


def figure_7d() -> Figure:
    """Multiplications of each step by kind, 8 GB."""
    one = count(8)
    steps = list(one.multiplications)
    shares = {
        kind: [100 * one.multiplications[step].get(kind, 0.0) / one.total(step) for step in steps]
        for kind in _KINDS
    }

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        stacked(
            axes, steps, shares, "share of the step's integer multiplications, %", colours=_KINDS
        )
        finish(axes, "share of the step's integer multiplications, %")
        canvas.legend(loc="outside right upper", fontsize=8, frameon=False)

    return Figure(
        "7d",
        "Integer multiplications of each step by kind, 8 GB",
        ("step", *(f"{kind.replace(' ', '_')}_share" for kind in _KINDS), "total"),
        [
            [step, *(shares[kind][place] / 100 for kind in _KINDS), one.total(step)]
            for place, step in enumerate(steps)
        ],
        (),
        draw,
        notes=(
            "The text has no numbers of this figure: RowSel is products of matrices only, the "
            "other two steps are mostly transforms.",
        ),
    )


def _digits_note() -> str:
    how = digits()
    return (
        f"Keys of ExpandQuery have {how.expand} digits and those of ColTor {how.tournament}; the "
        "paper says 5 to 8, and not where."
    )


FIGURES: dict[str, Callable[..., Figure]] = {
    "4a": figure_4a,
    "4b": figure_4b,
    "6": figure_6,
    "7d": figure_7d,
}
