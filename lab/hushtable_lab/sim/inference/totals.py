"""Figures 5, 11 and 14 of Garimella et al., and what stands in their text: whole inferences."""

from __future__ import annotations

from typing import Any

from ..figure import COLOURS, Figure
from .closed import best_split, breakdown, traffic
from .deployment import Costs, Deployment
from .printed import T_R18, paper, printed, script

__all__ = ["figure_5", "figure_11", "figure_14", "text"]


def figure_5(**_: Any) -> Figure:
    """Figure 5: communication by what the link has, half of it for each way."""
    rows: list[tuple[float, float, float]] = []
    for mbps in range(100, 1_001, 100):
        half = paper().deployment(*T_R18, "server", up_mbps=mbps / 2, down_mbps=mbps / 2)
        offline, online = breakdown(half)
        rows.append((mbps, offline.link, online.link))
    costs = paper().costs(*T_R18, "server", "sequential")
    up, down = traffic(costs)
    circuits = sum(step.amount for step in costs.offline if step.part == "circuits")
    in_online = sum(step.amount for step in costs.online if step.on in ("up", "down"))
    last = rows[-1]
    where = "section 4.1.3"
    comparisons = (
        script("1 Gbit/s, offline", last[1], 704.44, source="Figure 5"),
        script("1 Gbit/s, online", last[2], 42.53, source="Figure 5"),
        printed("1 Gbit/s", last[1] + last[2], 747, 1, source="Table 1"),
        printed(
            *("1 Gbit/s, offline", last[1] / 60, 11, 1, "min"), source=where, note="cut off, not up"
        ),
        printed("circuits' share", 100 * circuits / (up + down), 81.5, 0.1, "%", source=where),
        printed(
            *("online share", 100 * in_online / (up + down), 5.7, 0.1, "%"),
            source=where,
            note="the text says upload, which is 6.05 %",
        ),
    )

    def draw(canvas: Any) -> None:
        from ...plots import finish_lines

        axes = canvas.subplots()
        rates = [row[0] for row in rows]
        for at, (label, line) in enumerate((("offline", "-"), ("online", "--"))):
            values = [row[at + 1] for row in rows]
            axes.plot(rates, values, line, color=COLOURS[at], marker="os"[at], label=label)
        axes.plot(rates, [row[1] + row[2] for row in rows], ":", color=COLOURS[2], label="both")
        axes.plot([1_000], [747], "x", color="black", label="paper, both (Table 1)")
        axes.set_xlabel("Mbit/s, half of it for each way")
        finish_lines(axes, "Communication of T-R18, the server garbles (Figure 5)")

    return Figure(
        "5",
        "Seconds of communication, an even split (ResNet-18, TinyImageNet)",
        ("mbps", "offline_s", "online_s"),
        rows,
        comparisons,
        draw,
        notes=(
            f"Of all bytes {100 * up / (up + down):.2f} % go up. The text's 81.5 % for download is "
            "the share of the circuits, and its 5.7 % for upload that of the online phase.",
        ),
    )


def figure_11(**_: Any) -> Figure:
    """Figure 11: communication by what of 1 Gbit/s is for the way up."""
    rows: list[tuple[str, float, float]] = []
    found: dict[str, tuple[float, float, float, float]] = {}
    for garbler, paper_up in (("server", 198.0), ("client", 835.0)):
        costs = paper().costs(*T_R18, garbler)  # type: ignore[arg-type]
        best, _down = best_split(costs, 1_000)
        for up in sorted({*range(20, 1_000, 20), best, paper_up}):
            rows.append((garbler, up, _link(costs, up)))
        found[garbler] = (
            best,
            _link(costs, best),
            _link(costs, paper_up),
            _link(costs, 500),
        )
    server, client = found["server"], found["client"]
    where, text_ = "Figure 11", "section 5.3"
    comparisons = [
        printed("server garbles, down", 1_000 - server[0], 802, 5, "Mbit/s", source=text_),
        printed("client garbles, up", client[0], 835, 5, "Mbit/s", source=text_),
        script("server garbles, best", server[1], 551.60, source=where),
        script("server garbles, 802 down", server[2], 551.66, source=where),
        script("server garbles, even split", server[3], 746.97, source=where),
        script("client garbles, best", client[1], 487.35, source=where),
        script("client garbles, 835 up", client[2], 487.36, source=where),
        script("client garbles, even split", client[3], 704.44, source=where),
    ]
    most = 100 * max(1 - one[1] / one[3] for one in (server, client))
    both = 100 * (1 - client[1] / server[3])
    comparisons += [
        printed(
            *("saved by slots, at most", most, 35, 1, "%"),
            source=text_,
            note="26.2 % where the server garbles, 30.8 % where the client does",
        ),
        printed(
            *("saved by slots and by the client's garbling", both, 35, 1, "%"),
            source=text_,
            note="from the server garbling at an even split: what 35 % may be of",
        ),
    ]

    def draw(canvas: Any) -> None:
        from ...plots import finish_lines

        axes = canvas.subplots()
        for at, (garbler, paper_up) in enumerate((("server", 198), ("client", 835))):
            points = [(up, s) for who, up, s in rows if who == garbler]
            axes.plot(*zip(*points, strict=True), color=COLOURS[at], label=f"{garbler} garbles")
            best, least, at_paper, _even = found[garbler]
            axes.plot([best], [least], "os"[at], color=COLOURS[at], label=f"best: {best:.0f} up")
            axes.plot([paper_up], [at_paper], "x", color="black", label=f"paper: {paper_up} up")
        axes.set_xlabel("Mbit/s for the way up, of 1,000")
        finish_lines(axes, "Wireless slots of T-R18 (Figure 11)")

    return Figure(
        "11",
        "Communication by how 1 Gbit/s is shared out (ResNet-18, TinyImageNet)",
        ("garbler", "up_mbps", "seconds"),
        rows,
        tuple(comparisons),
        draw,
        notes=(
            "The best split is found in closed form; the paper's points are within 5 Mbit/s of it.",
            f"The text's saving of up to 35 % does not follow from an even split: slots save "
            f"{100 * (1 - server[1] / server[3]):.1f} % where the server garbles and {most:.1f} % "
            f"where the client does. From the one's even split to the other's best it is "
            f"{both:.1f} %.",
        ),
    )


def _link(costs: Costs, up_mbps: float) -> float:
    up, down = traffic(costs)
    return 8e-6 * (up / up_mbps + down / (1_000 - up_mbps))


#: Total seconds by the authors' script, and the share that is offline, of Figure 14's bars.
_BARS = {
    "server garbles*": (930.147, 76),
    "client garbles": (1052.268, 89),
    "GC 19x": (662.468, 85),
    "GC 100x": (644.927, 84),
    "HE 1000x": (492.236, 79),
    "link 10x": (53.613, 80),
    "ReLUs 1/10": (6.048, 73),
}


def figure_14(**_: Any) -> Figure:
    """Figure 14: one inference as parts get faster, each on top of those before."""
    client = paper().deployment(*T_R18, "client")
    found = dict(
        zip(
            _BARS,
            (
                breakdown(_proposed_server(), with_keys=False),
                breakdown(client, with_keys=False),
                breakdown(client, gc_speedup=19, with_keys=False),
                breakdown(client, gc_speedup=100, with_keys=False),
                breakdown(client, gc_speedup=100, he_speedup=1e3, with_keys=False),
                breakdown(client, gc_speedup=100, he_speedup=1e3, link_speedup=10, with_keys=False),
                breakdown(
                    client,
                    gc_speedup=100,
                    he_speedup=1e3,
                    link_speedup=10,
                    fewer_relus=10,
                    with_keys=False,
                ),
            ),
            strict=True,
        )
    )
    totals = {name: offline.total + online.total for name, (offline, online) in found.items()}
    where, text_ = "Figure 14", "section 6.2"
    comparisons = []
    for name, (total, share) in _BARS.items():
        comparisons.append(script(name, totals[name], total, source=where))
        ours = 100 * found[name][0].total / totals[name]
        comparisons.append(printed(f"{name}, offline", ours, share, 1, "%", source=where))
    table_1_total = sum(
        one.total for one in breakdown(paper().deployment(*T_R18, "server"), with_keys=False)
    )
    proposed, only = totals["server garbles*"], totals["client garbles"]
    saved = 100 * (1 - proposed / table_1_total)
    faster = found["link 10x"]
    garbling = 100 * faster[0].gc / faster[0].total
    comparisons += [
        printed(
            *("saved by layers and slots, server garbles", saved, 54.6, 0.1, "%"),
            source="section 6.1",
        ),
        printed(
            "client over server", 100 * (only / proposed - 1), 13, 1, "%", source="section 6.1"
        ),
        printed(
            *("garbling's share", 100 * found["client garbles"][0].gc / only, 38, 1, "%"),
            source=text_,
        ),
        printed("GC 19x, faster", only / totals["GC 19x"], 1.59, 0.01, "times", source=text_),
        printed(
            *("HE 1000x, faster", totals["GC 100x"] / totals["HE 1000x"], 1.31, 0.01, "times"),
            source=text_,
        ),
        printed(
            *("link 10x, faster", totals["HE 1000x"] / totals["link 10x"], 9.1, 0.1, "times"),
            source=text_,
        ),
        printed(
            *("link 10x, online", faster[1].total, 12, 1),
            source=text_,
            note="the bar's 80 % offline leaves 10.7 s of 53.6",
        ),
        printed("link 10x, garbling's share of offline", garbling, 10, 1, "%", source=text_),
        printed(
            *("ReLUs 1/10, faster", totals["link 10x"] / totals["ReLUs 1/10"], 9, 1, "times"),
            source=text_,
        ),
        printed("ReLUs 1/10, online", found["ReLUs 1/10"][1].total, 1.63, 0.01, source=text_),
    ]

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        places = range(len(_BARS))
        series = (("offline", 0, COLOURS[0], ""), ("online", 1, COLOURS[1], "//"))
        for label, at, colour, hatch in series:
            below = [0.0] * len(found) if at == 0 else [one[0].total for one in found.values()]
            values = [one[at].total for one in found.values()]
            axes.bar(places, values, 0.7, below, color=colour, hatch=hatch, label=label)
        theirs = [one[0] for one in _BARS.values()]
        axes.plot(places, theirs, "kx", label="paper, both")
        for at, total in enumerate(totals.values()):
            axes.annotate(f"{total:,.4g}", (at, total), ha="center", va="bottom", fontsize=8)
        axes.set_xticks(places, list(_BARS), rotation=20, fontsize=8)
        axes.set_ylabel("seconds")
        axes.legend(fontsize=8, frameon=False)

    return Figure(
        "14",
        "One inference as parts get faster (ResNet-18, TinyImageNet)",
        (
            *("bar", "offline_gc_s", "offline_he_s", "offline_link_s"),
            *("online_gc_s", "online_ss_s", "online_link_s", "total_s"),
        ),
        [
            (name, off.gc, off.he, off.link, on.gc, on.ss, on.link, totals[name])
            for name, (off, on) in found.items()
        ],
        tuple(comparisons),
        draw,
        notes=(
            "* with layers in parallel and slots. The bars leave the 0.34 s of making keys out.",
            "A tenth of the ReLUs divides all communication by ten, as the paper has it, though "
            "the bytes of encryption do not depend on ReLUs.",
            "12 s online at ten times the link is not what the figure's own share has, 10.7 s.",
        ),
    )


def _proposed_server() -> Deployment:
    return paper().deployment(*T_R18, "server", "layer", up_mbps=198, down_mbps=802)


def text(**_: Any) -> Figure:
    """Numbers of one inference that only the text has: sections 5.1 and 5.2."""
    server = breakdown(_proposed_server())[1]
    layer, request = (
        breakdown(paper().deployment(*T_R18, "client", parallel, client_storage_gb=8))
        for parallel in ("layer", "request")
    )
    rows = [
        ("online, server garbles", server.total),
        ("online, client garbles", layer[1].total),
        ("offline, layers in parallel", layer[0].total),
        ("offline, one core", request[0].total),
    ]
    where, next_ = "section 5.1", "section 5.2"
    comparisons = (
        printed("online link, server garbles", server.link, 27.1, 0.1, source=where),
        printed("online link, client garbles", layer[1].link, 101, 1, source=where),
        printed(
            *("online, faster", server.total / layer[1].total, 2.02, 0.01, "times"), source=where
        ),
        printed(
            *("whole, layers in parallel", layer[0].total + layer[1].total, 1053, 1), source=next_
        ),
        printed("whole, one core", request[0].total + request[1].total, 3126, 1, source=next_),
        printed("offline, one core", request[0].total, 3013, 1, source=next_),
        printed("offline, layers in parallel", layer[0].total, 939, 1, source=next_),
        printed(
            *("offline, layers in parallel, 16 GB", layer[0].total, 936, 1),
            source=next_,
            note="the same section has 939 s",
        ),
        script("offline, layers in parallel", layer[0].total, 939.70, source=next_),
        script("offline, one core", request[0].total, 3012.63, source=next_),
    )
    return Figure(
        "text",
        "One inference in the text of sections 5.1 and 5.2 (ResNet-18, TinyImageNet)",
        ("what", "seconds"),
        rows,
        comparisons,
        notes=("For one precompute with layers in parallel the text has both 936 and 939 s.",),
    )
