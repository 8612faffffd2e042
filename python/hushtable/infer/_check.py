"""What would be taken of a network, what is refused of it, and what a prediction would cost."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError, ModelError
from ._hybrid import HybridPlanInfo
from ._network import Network, Shape
from ._plan import compile as compile_model

__all__ = ["Report", "reader_of", "report_of"]

#: What files are, by how their names end.
_KINDS = {".onnx": "ONNX", ".h5": "Keras", ".hdf5": "Keras"}


@dataclass(frozen=True, slots=True)
class Report:
    """What would be taken of a network, what is refused of it, and what it would cost.

    Attributes:
        source: the file's name, or that of the module's class.
        kind: ``ONNX``, ``Keras`` or ``torch``.
        refusals: all that is refused, each with its place and what is possible instead. What reads
            something that is refused is not computed: of that, only operators that are never taken
            are here. Of what only compiling refuses it is the first.
        network: as it was taken, with what was left out (``notes``) and what it was compared with
            (``checked``); None where its reader refused something.
        plan: what `hushtable.infer.compile` makes of it by default: stages, bits, what is kept of a
            precompute and what is sent, which are counted and the same on every machine. Seconds
            are those of a link; those of computing are not predicted. Its ``name`` and ``plan`` are
            empty, as it was not written. None where something was refused.
    """

    source: str
    kind: str
    refusals: tuple[str, ...]
    network: Network | None = field(repr=False, compare=False)
    plan: HybridPlanInfo | None

    @property
    def operators(self) -> Mapping[str, int]:
        """How many nodes of each operator are taken, the most frequent first; empty without any."""
        nodes = () if self.network is None else self.network.nodes
        return dict(Counter(node.op for node in nodes).most_common())


def report_of(
    source: Any,
    shape: Shape | None,
    output: str | None,
    range: tuple[float, float] | None = None,
) -> Report:
    """See `networks.check`."""
    name, kind, read = reader_of(source, shape, output, range)
    refusals: list[str] = []
    network = plan = None
    try:
        network = read(refusals)
    except ModelError as error:  # of the whole: of no node that others could be read without
        refusals.append(str(error))
    if network is not None:
        with tempfile.TemporaryDirectory(prefix="hushtable-check-") as folder:
            bundle = network.build(Path(folder) / "model")
            try:
                plan = compile_model(bundle, scheme="hybrid")
            except ModelError as error:
                refusals.append(f"{name}, compiling: {error}")
            else:
                plan = dataclasses.replace(plan, name="", plan="")
    return Report(name, kind, tuple(refusals), network, plan)


#: With a list, into which goes what is refused; without one the first refusal is raised.
_Read = Callable[[list[str] | None], Network | None]


def reader_of(
    source: Any,
    shape: Shape | None,
    output: str | None,
    range: tuple[float, float] | None = None,
) -> tuple[str, str, _Read]:
    """What something is called, what it is, and what reads it."""
    if not isinstance(source, str | os.PathLike):
        from . import _torch

        if shape is None or output is not None:
            raise ConfigError(
                "a torch module is checked with shape=(channels, rows, columns), without output"
            )
        name = type(source).__name__
        return name, "torch", lambda found: _torch.read(source, shape, range, refusals=found)
    if range is not None:
        raise ConfigError("range= is for a torch module: inputs of a file have none")
    path = Path(source)
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        raise ConfigError(
            f"{path} is of no kind that is known by its name: possible are {', '.join(_KINDS)}"
        )
    if kind == "ONNX":
        from . import _onnx

        return path.name, kind, lambda found: _onnx.read(path, shape, output, refusals=found)
    from . import _keras

    if shape is not None or output is not None:
        raise ConfigError(
            "shape and output (--shape, --output) are for .onnx: a Keras model says its own"
        )
    return path.name, kind, lambda found: _keras.read(path, refusals=found)
