"""Table 1 and Figures 3, 4, 8 and 9 of Garimella et al., which need no simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..figure import COLOURS, GREY, Figure
from .closed import Breakdown, breakdown
from .network import Network
from .printed import HATCHES, T_R18, constants, network_of, paper, printed, script
from .totals import figure_5, figure_11, figure_14, text

__all__ = ["FIGURES"]

_PHASES = ("offline", "online")


def table_1(**_: Any) -> Figure:
    """Table 1: one inference where the server garbles, at 500 Mbit/s each way."""
    offline, online = breakdown(paper().deployment(*T_R18, "server"))
    where = "Table 1"
    sums = "the table adds cells that are rounded"
    cells = (
        ("offline GC", offline.gc, 25.1, 0.1, 25.11),
        ("offline HE", offline.he, 1080.0, 10.0, None),
        ("offline communication", offline.link, 704.0, 1.0, 704.44),
        ("offline total", offline.total, 1809.0, 1.0, 1808.0),
        ("online GC", online.gc, 200.0, 1.0, 199.92),
        ("online SS", online.ss, 0.610, 0.001, None),
        ("online communication", online.link, 42.5, 0.1, 42.53),
        ("online total", online.total, 243.0, 1.0, 243.06),
        ("GC", offline.gc + online.gc, 225.0, 1.0, None),
        ("communication", offline.link + online.link, 747.0, 1.0, None),
        ("total", offline.total + online.total, 2052.0, 1.0, 2051.0),
    )
    comparisons = [
        printed(name, ours, value, digit, source=where, note=sums if "total" in name else "")
        for name, ours, value, digit, _ in cells
    ]
    comparisons += [
        script(name, ours, exact, source=where)
        for name, ours, _, _, exact in cells
        if exact is not None
    ]
    without_keys, _unused = breakdown(paper().deployment(*T_R18, "server"), with_keys=False)
    comparisons.append(
        script("HE without keys", without_keys.he, 1078.08, source=where, note="keys take 0.34 s")
    )
    share = 100 * offline.total / (offline.total + online.total)
    comparisons.append(printed("offline share", share, 88.0, 1.0, "%", source="section 4.2"))
    return Figure(
        "table-1",
        "Seconds of one inference, the server garbles (ResNet-18, TinyImageNet)",
        ("phase", "gc_s", "he_s", "ss_s", "link_s", "total_s"),
        [
            (name, one.gc, one.he, one.ss, one.link, one.total)
            for name, one in zip(_PHASES, (offline, online), strict=True)
        ],
        tuple(comparisons),
        draw=lambda canvas: _stacks(canvas, ("offline", "online"), (offline, online)),
        notes=("The table's totals add rounded cells: 1,809 and 2,052 for 1,808 and 2,051.",),
    )


def _stacks(canvas: Any, titles: Sequence[str], bars: Sequence[Breakdown]) -> None:
    axes = canvas.subplots()
    below = [0.0] * len(bars)
    parts = (("GC", "gc"), ("HE", "he"), ("SS", "ss"), ("link", "link"))
    for index, (label, name) in enumerate(parts):
        values = [getattr(one, name) for one in bars]
        colour, hatch = COLOURS[index], HATCHES[index]
        axes.bar(
            titles, values, bottom=below, color=colour, hatch=hatch, edgecolor="white", label=label
        )
        below = [a + b for a, b in zip(below, values, strict=True)]
    axes.bar_label(axes.containers[-1], [f"{one:,.4g} s" for one in below], fontsize=8)
    axes.set_ylabel("seconds")
    axes.margins(y=0.12)
    axes.legend(fontsize=8, frameon=False)


#: GB that a client keeps, as Figures 3 and 8 have them: where the server garbles, where it does.
_GB = {
    "C-VGG": (5.05, 0.99),
    "C-R32": (5.53, 1.09),
    "C-R18": (10.17, 2.00),
    "T-VGG": (20.18, 3.97),
    "T-R32": (22.12, 4.35),
    "T-R18": (40.66, 8.00),
}
_IMAGENET_GB = {"resnet18": 498.1, "resnet32": 271.0, "vgg16": 247.2}
_VGG = (
    "The figures of storage count 276,480 and 1,105,920 ReLUs of VGG-16; the authors' simulator "
    "and the measured bytes have 8,192 more, those of its two hidden dense layers."
)


def figure_3(**_: Any) -> Figure:
    """Figure 3: what a client keeps of a precompute where the server garbles."""
    relu = constants().relu
    rows: list[tuple[str, int, float]] = []
    comparisons = []
    for title, (said, _cg) in _GB.items():
        relus = network_of(title).relus
        rows.append((title, relus, relus * relu.evaluator_bytes / 1e9))
        comparisons.append(
            printed(f"{title}, client", rows[-1][2], said, 0.01, "GB", source="Figure 3")
        )
    for (name, size), relus in constants().relus_only.items():
        rows.append((f"ImageNet {name}", relus, relus * relu.evaluator_bytes / 1e9))
        said = _IMAGENET_GB[name]
        comparisons.append(
            printed(f"{name} {size}x{size}", rows[-1][2], said, 0.1, "GB", source="Figure 3")
        )
    comparisons.append(printed("T-R18", rows[5][2], 41, 1, "GB", source="section 4.1.1"))
    titles, values = [row[0] for row in rows], [row[2] for row in rows]

    def draw(canvas: Any) -> None:
        from ...plots import bars

        theirs = [one[0] for one in _GB.values()]
        theirs += [_IMAGENET_GB[name] for name, _ in constants().relus_only]
        axes = canvas.subplots()
        series = [("paper", theirs, (GREY, "//")), ("ours", values, (COLOURS[0], ""))]
        bars(axes, titles, series, "GB at the client, a precompute")
        axes.tick_params(axis="x", labelrotation=25, labelsize=8)

    return Figure(
        "3",
        "Storage at the client for a precompute, the server garbles",
        ("network", "relus", "client_gb"),
        rows,
        tuple(comparisons),
        draw,
        notes=(
            _VGG,
            "The text has 18.2 KB for the client and 3.5 KB for the server a ReLU: 18,248 B are "
            "18.2 times 1,000, 3,590 B are 3.5 times 1,024.",
        ),
    )


def figure_4(**_: Any) -> Figure:
    """Figure 4: minutes of encryption, garbling and evaluating; four threads for circuits."""
    rows: list[tuple[str, float, float, float]] = []
    for title in _GB:
        one = network_of(title)
        garble = constants().circuits["garble", "server"].seconds(one.simulated_relus, 4)
        evaluate = constants().circuits["evaluate", "client"].seconds(one.simulated_relus, 4)
        rows.append((title, one.he_seconds[0] / 60, garble / 60, evaluate / 60))
    last = rows[-1]
    client_garbles, server_garbles = (
        paper().deployment(*T_R18, "client"),
        paper().deployment(*T_R18, "server"),
    )
    garbling = next(one.amount for one in client_garbles.costs.offline if one.part == "garble")
    where = "Figure 4, section 5.1"
    comparisons = (
        printed("T-R18, HE", last[1], 17.76, 0.01, "min", source="Figure 4, section 5.2"),
        printed("GC, client garbles, Atom", garbling, 382.6, 0.1, source="Figure 4, section 5.5"),
        printed("GC.Eval, Atom", breakdown(server_garbles)[1].gc, 200, 1, source=where),
        script("GC.Eval, EPYC", breakdown(client_garbles)[1].gc, 11.005, source=where),
        printed(
            *("GC.Eval, EPYC", breakdown(client_garbles)[1].gc, 11.1, 0.1),
            source=where,
            note="11.0 by the constants",
        ),
    )

    def draw(canvas: Any) -> None:
        from ...plots import bars

        names = ("HE.Eval, server", "GC.Garble, server", "GC.Eval, client")
        series = [
            (name, [float(row[at + 1]) for row in rows], (COLOURS[at], HATCHES[at]))
            for at, name in enumerate(names)
        ]
        bars(canvas.subplots(), [row[0] for row in rows], series, "minutes")

    return Figure(
        "4",
        "Minutes of computing, one inference, the server garbles",
        ("network", "he_min", "garble_min", "evaluate_min"),
        rows,
        comparisons,
        draw,
        notes=(
            "The figure's script garbles and evaluates with four threads, Table 1 garbles with 32.",
        ),
    )


def figure_8(**_: Any) -> Figure:
    """Figure 8: what a client keeps, by who garbles."""
    relu = constants().relu
    rows: list[tuple[str, float, float]] = [
        (
            title,
            network_of(title).relus * relu.evaluator_bytes / 1e9,
            network_of(title).relus * relu.garbler_bytes / 1e9,
        )
        for title in _GB
    ]
    comparisons = []
    for title, by_server, by_client in rows:
        said = _GB[title]
        for who, ours, theirs in (("server", by_server, said[0]), ("client", by_client, said[1])):
            comparisons.append(
                printed(f"{title}, {who} garbles", ours, theirs, 0.01, "GB", source="Figure 8")
            )
    ratio = sum(row[1] / row[2] for row in rows) / len(rows)
    comparisons.append(
        printed("less at the client", ratio, 5, 1, "times", source="Figure 8, section 5.1")
    )
    comparisons.append(
        printed("T-R18, client garbles", rows[-1][2], 8, 1, "GB", source="Figure 8, section 5.1")
    )

    def draw(canvas: Any) -> None:
        from ...plots import bars

        series = []
        for at, who in enumerate(("server", "client")):
            theirs: list[float] = [said[at] for said in _GB.values()]
            ours = [float(row[at + 1]) for row in rows]
            series.append((f"paper, {who} garbles", theirs, (GREY, HATCHES[at])))
            series.append((f"ours, {who} garbles", ours, (COLOURS[at], HATCHES[at])))
        bars(canvas.subplots(), list(_GB), series, "GB at the client, a precompute")

    return Figure(
        "8",
        "Storage at the client for a precompute, by who garbles",
        ("network", "server_garbles_gb", "client_garbles_gb"),
        rows,
        tuple(comparisons),
        draw,
        notes=(_VGG,),
    )


#: Seconds with one thread and with one a layer, and how many times as fast.
_LAYERS = {
    "C-R32": (39.05, 2.63, 14.85),
    "C-VGG": (187.16, 22.53, 8.31),
    "C-R18": (292.41, 36.51, 8.01),
    "T-R32": (111.51, 8.70, 12.82),
    "T-VGG": (498.81, 73.44, 6.79),
    "T-R18": (1066.20, 140.96, 7.56),
}


def figure_9(**_: Any) -> Figure:
    """Figure 9: layers one after the other, and one thread for each."""
    rows: list[tuple[str, float, float, float]] = []
    comparisons = []
    for title, (one_thread, one_a_layer, speedup) in _LAYERS.items():
        of = network_of(title)
        first = _seconds_of_he(of, "sequential")
        last = _seconds_of_he(of, "layer")
        rows.append((title, first, last, first / last))
        for name, ours, theirs in (
            ("one thread", first, one_thread),
            ("a thread a layer", last, one_a_layer),
        ):
            comparisons.append(
                printed(
                    *(f"{title}, {name}", ours, theirs, 0.01),
                    source="Figure 9",
                    note="the constant itself",
                    is_input=True,
                )
            )
        comparisons.append(
            printed(f"{title}, speed-up", first / last, speedup, 0.01, "", source="Figure 9")
        )
    mean = sum(row[3] for row in rows) / len(rows)
    comparisons.append(script("mean speed-up", mean, 9.72, "", source="Figure 9"))
    comparisons.append(printed("mean speed-up", mean, 9.7, 0.1, "", source="Figure 9, section 5.2"))
    comparisons.append(
        printed("T-R18", rows[-1][2] / 60, 2.35, 0.01, "min", source="Figure 9, section 5.2")
    )

    def draw(canvas: Any) -> None:
        from ...plots import bars

        series = [
            ("one layer after the other", [row[1] for row in rows], (GREY, "")),
            ("a thread a layer", [row[2] for row in rows], (COLOURS[0], "//")),
        ]
        bars(canvas.subplots(), list(_LAYERS), series, "seconds of the server")

    return Figure(
        "9",
        "Homomorphic encryption, layers in parallel",
        ("network", "sequential_s", "layer_s", "speedup"),
        rows,
        tuple(comparisons),
        draw,
        notes=("Seconds are constants of the profile; only their quotients are found here.",),
    )


def _seconds_of_he(of: Network, parallel: Any) -> float:
    costs = paper().costs(of.name, of.size, "client", parallel)
    return next(s.amount for s in costs.offline if s.part == "he" and s.on == "server")


#: Tables and figures by the paper's numbers; "text" is what stands in its text alone.
FIGURES: dict[str, Callable[..., Figure]] = {
    "table-1": table_1,
    "3": figure_3,
    "4": figure_4,
    "5": figure_5,
    "8": figure_8,
    "9": figure_9,
    "11": figure_11,
    "14": figure_14,
    "text": text,
}
