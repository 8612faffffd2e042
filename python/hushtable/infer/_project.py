"""Every operation of a plan, and what they would take on other machines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from .. import _native


@dataclass(frozen=True)
class Machine:
    """A machine with a table of what its operations take.

    Attributes:
        name: A short name.
        device: The machine, and the library on it.
        sources: Where its figures are from, and how those that are printed nowhere were got.
    """

    name: str
    device: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Projection:
    """What a circuit would take on one machine.

    Attributes:
        machine: The machine's name.
        device: What it is.
        seconds: In all.
        bootstrap_seconds: What bootstraps take of it.
        layers: Seconds of each layer, in the order of the circuit.
    """

    machine: str
    device: str
    seconds: float
    bootstrap_seconds: float
    layers: tuple[tuple[str, float], ...]


def machines() -> tuple[Machine, ...]:
    """The machines whose tables come along: the paper's CPU, a faster one, a GPU and an ASIC."""
    known = _native.known_backends()
    return tuple(Machine(name, device, tuple(sources)) for name, device, sources in known)


def trace(model: str | PathLike[str], *, plan: str | None = None) -> dict[str, Any]:
    """Every homomorphic operation of a model's plan, in order, with its level.

    Args:
        model: The bundle's folder.
        plan: Which of its plans; the only one by default.

    Raises:
        ModelError: a model without a plan, or with one of another version.
        ConfigError: several plans, and none named.
    """
    traced: dict[str, Any] = json.loads(_native.infer_trace(Path(model), plan))
    return traced


def paper_trace(ciphertexts: int, *, activation: str = "relu") -> dict[str, Any]:
    """HE-LRM's own Criteo program, its one-hots in so many ciphertexts of 32,768 slots.

    Args:
        ciphertexts: 1, 1, 2, 18 and 85 in the paper, from the smallest threshold to the largest.
        activation: ``relu`` (12 bootstraps) or ``silu`` (5).
    """
    traced: dict[str, Any] = json.loads(_native.paper_trace(ciphertexts, activation == "relu"))
    return traced


def project(trace: Mapping[str, Any], machine: str | Mapping[str, Any]) -> Projection:
    """What a traced circuit would take on a machine (HE-LRM, section 6.4).

    Args:
        trace: What :func:`trace` gave.
        machine: The name of one of :func:`machines`, or a table like theirs: ``name``, ``device``,
            ``sources``, ``degree``, and ``costs``, for each of ``add``, ``multiply_plain``,
            ``multiply``, ``rescale``, ``rotate``, ``hoisted_rotate`` and ``bootstrap`` pairs of
            limbs (rising) and milliseconds.

    Raises:
        ConfigError: no such machine, a table that cannot be used, or one without an operation that
            the circuit needs.
    """
    table = machine if isinstance(machine, str) else json.dumps(machine)
    found = json.loads(_native.project_trace(json.dumps(trace), table))
    return Projection(
        machine=found["backend"],
        device=found["device"],
        seconds=found["total_ms"] / 1e3,
        bootstrap_seconds=found["bootstrap_ms"] / 1e3,
        layers=tuple((name, ms / 1e3) for name, ms in found["layers"]),
    )
