"""Figures 3, 4, 5, 8, 9 and 11 of Garimella et al., "Characterizing and Optimizing End-to-End
Systems for Private Inference", with what was measured here beside what they have."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hushtable.tune.plots import require_matplotlib

from . import paper_networks
from .paper_networks import PaperNetwork

__all__ = ["bars", "draw", "finish_lines", "slots"]

_Cost = dict[str, Any]

#: Colours of Okabe and Ito; each series also has its own hatching or line.
_PAPER, _OURS = ("#999999", "//"), ("#0072B2", "")
_PARTS = {"HE": ("#009E73", ""), "GC.Garble": ("#E69F00", "//"), "GC.Eval": ("#D55E00", "..")}
_SERVER_GARBLES, _CLIENT_GARBLES = ("#0072B2", "-", "o"), ("#D55E00", "--", "s")
#: The paper's threads of the server's garbling in Figure 4.
_FIGURE_4_THREADS = 4


def draw(costs: Sequence[_Cost], folder: str | Path) -> list[Path]:
    """Draws what the cost files have into ``folder``, each figure as .svg and .png.

    Args:
        costs: cost files, as `hushtable bench hybrid --cost` writes them.
        folder: made if it is not there.

    Returns:
        The files. A figure whose networks are not among the costs is left out.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    matplotlib = require_matplotlib()
    figure_of = importlib.import_module("matplotlib.figure").Figure
    by_role = {
        (one["network"], one["size"], one["garbler"]): one
        for one in costs
        if paper_networks.network(one["network"], one["size"]) is not None
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "hushtable"}):
        for name, figure in _FIGURES.items():
            canvas = figure_of(figsize=(7.2, 4.2), layout="constrained")
            if not figure(canvas.subplots(), by_role):
                continue
            for suffix in (".svg", ".png"):
                path = folder / (name + suffix)
                about = {"Date": None} if suffix == ".svg" else {"Software": None}
                canvas.savefig(path, dpi=160, metadata=about)
                written.append(path)
    return written


_ByRole = dict[tuple[str, int, str], _Cost]


def _networks(by_role: _ByRole, *garblers: str) -> list[PaperNetwork]:
    """Those that were measured in all of these roles, in the paper's order."""
    return [
        one
        for one in paper_networks.NETWORKS
        if all((one.name, one.size, garbler) in by_role for garbler in garblers)
    ]


def _storage(axes: Any, by_role: _ByRole) -> bool:
    """Figure 3."""
    networks = _networks(by_role, "server")
    if not networks:
        return False
    theirs = [one.client_bytes(client_garbles=False) / 1e9 for one in networks]
    ours = [_client_gb(by_role, one, "server") for one in networks]
    series = [("DELPHI (paper)", theirs, _PAPER), ("hushtable", ours, _OURS)]
    bars(axes, [one.title for one in networks], series, "GB at the client, a precompute")
    axes.set_title("Storage at the client, the server garbles (Figure 3)", fontsize=10)
    return True


def _garblers_storage(axes: Any, by_role: _ByRole) -> bool:
    """Figure 8."""
    networks = _networks(by_role, "server", "client")
    if not networks:
        return False
    series = []
    for garbler, hatch in (("server", ""), ("client", "//")):
        theirs = [one.client_bytes(client_garbles=garbler == "client") / 1e9 for one in networks]
        series.append((f"DELPHI (paper), {garbler} garbles", theirs, (_PAPER[0], hatch)))
    for garbler, hatch in (("server", ""), ("client", "//")):
        ours = [_client_gb(by_role, one, garbler) for one in networks]
        series.append((f"hushtable, {garbler} garbles", ours, (_OURS[0], hatch)))
    bars(axes, [one.title for one in networks], series, "GB at the client, a precompute")
    axes.set_title("Storage at the client, by who garbles (Figure 8)", fontsize=10)
    return True


def _client_gb(by_role: _ByRole, network: PaperNetwork, garbler: str) -> float:
    cost = by_role[network.name, network.size, garbler]
    return float(cost["storage"]["client_bytes"]) / 1e9


def _computing(axes: Any, by_role: _ByRole) -> bool:
    """Figure 4: ours to the right of each pair."""
    networks = _networks(by_role, "server")
    if not networks:
        return False
    for at, one in enumerate(networks):
        cost = by_role[one.name, one.size, "server"]
        parts = {
            "HE": (one.he_seconds[0], cost["offline"]["server"]["he"]),
            "GC.Garble": (
                one.circuit_seconds("garble", "server", _FIGURE_4_THREADS),
                cost["offline"]["server"]["garble"],
            ),
            "GC.Eval": (
                one.circuit_seconds("evaluate", "client", paper_networks.CLIENT_THREADS),
                cost["online"]["client"]["evaluate"],
            ),
        }
        width = 0.8 / (2 * len(parts))
        for index, (part, (theirs, ours)) in enumerate(parts.items()):
            colour, hatch = _PARTS[part]
            for half, seconds in enumerate((theirs, ours)):
                axes.bar(
                    at - 0.4 + (half * len(parts) + index + 0.5) * width,
                    max(seconds, 1e-4),
                    width,
                    color=colour,
                    hatch=hatch,
                    edgecolor="white",
                    alpha=0.45 if half == 0 else 1.0,
                    label=f"{part}, {('paper', 'here')[half]}" if at == 0 else None,
                )
    _finish_bars(axes, [one.title for one in networks], "seconds")
    axes.set_title("Computing, the server garbles (Figure 4)", fontsize=10)
    return True


def _layers(axes: Any, by_role: _ByRole) -> bool:
    """Figure 9: one layer after the other, and a thread for each."""
    networks = _networks(by_role, "server")
    if not networks:
        return False
    layers = [by_role[one.name, one.size, "server"]["offline"]["layers"] for one in networks]
    series = [
        ("paper, one thread", [one.he_seconds[0] for one in networks], (_PAPER[0], "")),
        ("paper, a thread a layer", [one.he_seconds[1] for one in networks], (_PAPER[0], "//")),
        ("hushtable, one thread", [sum(own) for own in layers], (_OURS[0], "")),
        ("hushtable, the slowest layer", [max(own) for own in layers], (_OURS[0], "//")),
    ]
    bars(axes, [one.title for one in networks], series, "seconds of the server")
    axes.set_title("Homomorphic encryption, layers in parallel (Figure 9)", fontsize=10)
    return True


def bars(
    axes: Any,
    titles: Sequence[str],
    series: Sequence[tuple[str, Sequence[float], tuple[str, str]]],
    unit: str,
) -> None:
    """Bars side by side for each title, on a logarithmic scale: label, values, colour and hatch."""
    width = 0.8 / len(series)
    for index, (label, values, (colour, hatch)) in enumerate(series):
        places = [at - 0.4 + (index + 0.5) * width for at in range(len(titles))]
        drawn = axes.bar(
            places, values, width, color=colour, hatch=hatch, edgecolor="white", label=label
        )
        axes.bar_label(drawn, fmt=_short, fontsize=6, padding=1)
    _finish_bars(axes, titles, unit)


def _short(value: float) -> str:
    return f"{value:.3g}"


def _finish_bars(axes: Any, titles: Sequence[str], unit: str) -> None:
    axes.set_yscale("log")
    axes.set_xticks(range(len(titles)), titles)
    axes.set_ylabel(unit)
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(y=0.15)
    axes.legend(fontsize=7, frameon=False, ncols=2)


def slots(up_bytes: float, down_bytes: float, mbps: float) -> tuple[float, float]:
    """The share of a link for the way up at which bytes take least, and the seconds they take then.

    Of a link of B with u for the way up, U bytes up and D down take U/u + D/(B - u): least at
    u = B · √U / (√U + √D) (the paper's section 5.3, in closed form).
    """
    up, down = 8e-6 * up_bytes, 8e-6 * down_bytes
    share = up**0.5 / (up**0.5 + down**0.5)
    return mbps * share, (up**0.5 + down**0.5) ** 2 / mbps


def _traffic(cost: _Cost) -> tuple[int, int]:
    up = cost["offline"]["bytes_up"] + cost["online"]["bytes_up"]
    return up, cost["offline"]["bytes_down"] + cost["online"]["bytes_down"]


def _largest(by_role: _ByRole, *garblers: str) -> PaperNetwork | None:
    """The paper's own choice, ResNet-18 at 64 x 64, or the largest that was measured."""
    return max(_networks(by_role, *garblers), key=lambda one: one.relus, default=None)


def _bandwidth(axes: Any, by_role: _ByRole) -> bool:
    """Figure 5: an even split."""
    one = _largest(by_role, "server")
    if one is None:
        return False
    rates = [100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000]
    for label, (up, down), (colour, line, marker) in (
        ("DELPHI (paper)", one.traffic(client_garbles=False), ("#777777", ":", "^")),
        ("hushtable", _traffic(by_role[one.name, one.size, "server"]), _SERVER_GARBLES),
    ):
        seconds = [8e-6 * (up + down) / (rate / 2) for rate in rates]
        axes.plot(rates, seconds, color=colour, linestyle=line, marker=marker, label=label)
    axes.set_xlabel("Mbit/s, half of it for each way")
    finish_lines(axes, f"Communication of {one.title}, the server garbles (Figure 5)")
    return True


def _wireless(axes: Any, by_role: _ByRole) -> bool:
    """Figure 11: splits of 1 Gbit/s, with the best of each."""
    one = _largest(by_role, "server", "client")
    if one is None:
        return False
    mbps = 1_000.0
    for garbler, style in (("server", _SERVER_GARBLES), ("client", _CLIENT_GARBLES)):
        client_garbles = garbler == "client"
        for who, (up, down), faint in (
            ("paper", one.traffic(client_garbles=client_garbles), True),
            ("hushtable", _traffic(by_role[one.name, one.size, garbler]), False),
        ):
            ups = [0.02 * mbps * step for step in range(1, 50)]
            seconds = [8e-6 * (up / u + down / (mbps - u)) for u in ups]
            colour, line, marker = style
            alpha = 0.4 if faint else 1.0
            label = f"{who}, {garbler} garbles"
            axes.plot(ups, seconds, color=colour, linestyle=line, alpha=alpha, label=label)
            best, least = slots(up, down, mbps)
            axes.plot([best], [least], color=colour, marker=marker, alpha=alpha)
            axes.annotate(
                f"{best:.0f} up: {least:.3g} s",
                (best, least),
                fontsize=7,
                xytext=(4, -9),
                textcoords="offset points",
            )
    axes.set_xlabel("Mbit/s for the way up, of 1,000")
    finish_lines(axes, f"Wireless slots of {one.title} (Figure 11)")
    return True


def finish_lines(axes: Any, title: str) -> None:
    """Seconds on a logarithmic scale, a title, a legend."""
    axes.set_yscale("log")
    axes.set_ylabel("seconds")
    axes.set_title(title, fontsize=10)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, frameon=False)


_FIGURES: dict[str, Callable[[Any, _ByRole], bool]] = {
    "figure-3-storage": _storage,
    "figure-4-computing": _computing,
    "figure-5-bandwidth": _bandwidth,
    "figure-8-garblers": _garblers_storage,
    "figure-9-layers": _layers,
    "figure-11-wireless": _wireless,
}
