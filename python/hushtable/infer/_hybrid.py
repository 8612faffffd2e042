"""Hybrid inference: what a network is to a client, compiling one, and one in this process."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from .. import _native
from ..client.options import Garbler
from ..errors import BadFeatures, ConfigError
from ..model import Model as ModelBundle
from ._description import plan_of

_Path = str | os.PathLike[str]
FloatArray = npt.NDArray[np.float32]

#: How fraction bits are dropped.
Rounding = Literal["stochastic", "nearest"]


@dataclass(frozen=True, slots=True)
class HybridPlanInfo:
    """How a network is computed by hybrid inference, and what is kept of a precompute.

    Attributes:
        name: its name in the model's bundle.
        plan: BLAKE3 of what a client goes by, in hex.
        input: planes, rows and columns of an input.
        outputs: numbers of an answer.
        bits: k: numbers are held modulo 2^k.
        fraction: fraction bits of them.
        rounding: how fraction bits are dropped.
        lattice: the encryption's parameters.
        stages: linear layers, each with what is summed into it.
        activations: numbers that go through garbled circuits.
        bytes_if_server_garbles: bytes of one precompute at the ``client`` and at the ``server``.
        bytes_if_client_garbles: the same where the client garbles.
        upload_bytes: bytes of the public key and the encrypted masks of one precompute.
        proof_bytes: bytes that prove them to be encryptions; 0 where the plan asks for no proof.
        link_if_server_garbles: how a radio link is best split between its directions for one
            prediction, both phases together (Garimella et al., section 5.3): ``up_bytes`` and
            ``down_bytes``, the ``up_share`` of the link (0 to 1), the ``seconds`` that it takes at
            1,000 Mbps, and ``even_seconds`` with half of it either way.
        link_if_client_garbles: the same where the client garbles.
        text: the plan in words.
    """

    name: str
    plan: str
    input: tuple[int, int, int]
    outputs: int
    bits: int
    fraction: int
    rounding: str
    lattice: str
    stages: int
    activations: int
    bytes_if_server_garbles: dict[str, int]
    bytes_if_client_garbles: dict[str, int]
    upload_bytes: int
    proof_bytes: int
    link_if_server_garbles: dict[str, float]
    link_if_client_garbles: dict[str, float]
    text: str

    @classmethod
    def of_json(cls, text: str) -> Self:
        """From what the native module says."""
        found: dict[str, Any] = json.loads(text)
        return cls(**{**found, "input": tuple(found["input"])})


@dataclass(frozen=True, slots=True)
class NetworkInfo:
    """What a server of hybrid inference computes, as it announced it and this client checked it.

    Attributes:
        name: the model's name.
        version: BLAKE3 of its manifest, in hex.
        plan: BLAKE3 of what a client goes by, in hex: precomputes are made for it.
        input: planes, rows and columns of an input.
        outputs: numbers of an answer.
        bits: k: numbers are held modulo 2^k.
        fraction: fraction bits of them.
        rounding: how fraction bits are dropped.
        lattice: the encryption's parameters.
        stages: linear layers.
        activations: numbers that go through garbled circuits.
        client_garbles: whether the client may garble.
        server_garbles: whether the server garbles.
        bytes_if_server_garbles: bytes of one precompute at the ``client`` and at the ``server``.
        bytes_if_client_garbles: the same where the client garbles.
    """

    name: str
    version: str
    plan: str
    input: tuple[int, int, int]
    outputs: int
    bits: int
    fraction: int
    rounding: str
    lattice: str
    stages: int
    activations: int
    client_garbles: bool
    server_garbles: bool
    bytes_if_server_garbles: dict[str, int]
    bytes_if_client_garbles: dict[str, int]

    @classmethod
    def of_facts(cls, facts: _native.HybridFacts) -> Self:
        """From what the native module says."""
        server_client, server_server, client_client, client_server = facts.kept_bytes
        return cls(
            name=facts.name,
            version=facts.version,
            plan=facts.plan,
            input=facts.input,
            outputs=facts.outputs,
            bits=facts.bits,
            fraction=facts.fraction,
            rounding=facts.rounding,
            lattice=facts.lattice,
            stages=facts.stages,
            activations=facts.activations,
            client_garbles=facts.client_garbles,
            server_garbles=facts.server_garbles,
            bytes_if_server_garbles={"client": server_client, "server": server_server},
            bytes_if_client_garbles={"client": client_client, "server": client_server},
        )

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """From a line of JSON."""
        return cls(**{**record, "input": tuple(record["input"])})


@dataclass(frozen=True, slots=True)
class PrecomputeStats:
    """What precomputes cost to make.

    Attributes:
        precomputes: how many were made.
        steps: steps of all.
        bytes_up: bytes of steps sent.
        bytes_down: bytes of replies received.
        seconds: from the call to its end.
        retries: times that a call was made again.
        begun_again: precomputes that the server lost while they were made.
    """

    precomputes: int
    steps: int
    bytes_up: int
    bytes_down: int
    seconds: float
    retries: int
    begun_again: int

    @classmethod
    def of_facts(cls, facts: _native.PrecomputeFacts) -> Self:
        """From what the native module says."""
        return cls(
            facts.precomputes,
            facts.steps,
            facts.bytes_up,
            facts.bytes_down,
            facts.seconds,
            facts.retries,
            facts.begun_again,
        )


@dataclass(frozen=True, slots=True)
class OnlineStats:
    """What one prediction cost online.

    Attributes:
        bytes_up: bytes of frames sent.
        bytes_down: bytes of frames received.
        frames: frames, both ways.
        seconds: from the precompute's use to the answer.
        lost: precomputes that the server did not have any more.
        offline: what the precompute cost, where there was none and it was made now.
    """

    bytes_up: int
    bytes_down: int
    frames: int
    seconds: float
    lost: int
    offline: PrecomputeStats | None

    @classmethod
    def of_facts(cls, facts: _native.HybridPredictionFacts) -> Self:
        """From what the native module says."""
        offline = None if facts.offline is None else PrecomputeStats.of_facts(facts.offline)
        return cls(
            facts.bytes_up, facts.bytes_down, facts.frames, facts.seconds, facts.lost, offline
        )


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a network says of some inputs.

    Attributes:
        outputs: float32 ``[inputs, outputs]``; ``[outputs]`` of one input.
        stats: what each cost; empty for a network in this process.
    """

    outputs: FloatArray
    stats: tuple[OnlineStats, ...] = ()

    @property
    def classes(self) -> npt.NDArray[np.intp]:
        """The index of the largest output of each input."""
        return np.asarray(self.outputs.argmax(axis=-1))


class HybridModel:
    """A compiled network in this process, with the same outputs as a server's.

    ``clear`` computes in floats. ``simulate`` computes the protocol's integers in the open, rounded
    to the nearest: what quantising costs. ``execute`` runs both parties, encrypted and garbled.
    """

    def __init__(self, native: _native.HybridModel) -> None:
        self._native = native
        self._info = NetworkInfo.of_facts(native.info())

    @classmethod
    def load(cls, path: _Path, *, plan: str | None = None) -> Self:
        """Opens a model bundle and one of its hybrid plans, the only one by default.

        Raises:
            ModelError: a model without a hybrid plan, or with one of another version.
            ConfigError: several plans, and none named.
        """
        name = plan_of(path, plan, "hybrid")
        return cls(_native.HybridModel(os.fspath(path), name))

    @property
    def info(self) -> NetworkInfo:
        """What a server of it would announce."""
        return self._info

    def predict(
        self,
        inputs: npt.ArrayLike,
        *,
        fhe: Literal["clear", "simulate", "execute"] = "clear",
        garbler: Garbler = "server",
    ) -> Outputs:
        """Outputs of one input ``[planes, rows, columns]``, or of several.

        Raises:
            BadFeatures: other shapes than the network's, or numbers beyond what it was compiled
                for.
            ConfigError: ``fhe`` or ``garbler`` is none of these.
        """
        if fhe not in ("clear", "simulate", "execute"):
            raise ConfigError(f"fhe must be clear, simulate or execute, not {fhe!r}")
        rows, is_one = images(inputs, self._info)
        found = self._native.predict(rows, fhe, client_garbles(garbler))
        found = found.reshape(len(rows), self._info.outputs)
        return Outputs(found[0] if is_one else found)

    def __repr__(self) -> str:
        return f"HybridModel({self._info.name!r}, version {self._info.version[:16]})"


def client_garbles(garbler: str) -> bool:
    """Whether the client garbles.

    Raises:
        ConfigError: a word that is neither side.
    """
    if garbler not in ("client", "server"):
        raise ConfigError(f"garbler must be client or server, not {garbler!r}")
    return garbler == "client"


def images(inputs: npt.ArrayLike, info: NetworkInfo) -> tuple[FloatArray, bool]:
    """Inputs as rows of numbers, and whether there was one alone.

    Raises:
        BadFeatures: other shapes or types than the network's.
    """
    given = np.asarray(inputs)
    if given.dtype.kind not in "fiu":
        raise BadFeatures(f"inputs are numbers, not {given.dtype}")
    shape = info.input
    count = shape[0] * shape[1] * shape[2]
    one = given.shape in (shape, (count,))
    if not one and given.shape[1:] not in (shape, (count,)):
        raise BadFeatures(
            f"inputs of shape {list(given.shape)}: the network takes {list(shape)}, or several of "
            "them"
        )
    with np.errstate(over="ignore"):
        # What does not fit becomes infinite, and is refused.
        rows = np.ascontiguousarray(given.reshape(-1, count), dtype=np.float32)
    return rows, one


def compile_hybrid(
    bundle: ModelBundle,
    *,
    name: str,
    samples: npt.ArrayLike | None,
    fraction: int,
    bits: int | None,
    rounding: str,
    verify_uploads: bool,
) -> HybridPlanInfo:
    """As :func:`hushtable.infer.compile` with ``scheme="hybrid"``."""
    rows = None
    if samples is not None:
        given = np.asarray(samples)
        if given.dtype.kind not in "fiu" or given.ndim < 2:
            raise ConfigError("samples are arrays of numbers, [samples, planes, rows, columns]")
        rows = np.ascontiguousarray(given.reshape(len(given), -1), dtype=np.float32)
    return HybridPlanInfo.of_json(
        _native.hybrid_compile(
            Path(bundle.path),
            name=name,
            samples=rows,
            fraction=fraction,
            bits=bits,
            rounding=rounding,
            verify_uploads=verify_uploads,
        )
    )
