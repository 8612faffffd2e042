"""Compiling a model into a plan, and saying what a plan is."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Literal, Self, overload

import numpy.typing as npt

from .. import _native
from ..data import CRITEO_KAGGLE_ROWS
from ..errors import ConfigError
from ..model import Model as ModelBundle
from ._description import read_description, read_spec
from ._hybrid import HybridPlanInfo, Rounding, compile_hybrid

_Path = str | os.PathLike[str]

#: Values of the heart data's categorical columns: sex, cp, fbs, restecg, exang, slope, ca, thal.
HEART_ROWS = (2, 4, 2, 3, 2, 3, 4, 3)


@dataclass(frozen=True, slots=True)
class PlanAlternative:
    """Another way to compute a model on encrypted features.

    Attributes:
        what: what is other: without bootstraps or with some, or the activation.
        predicted_ms: what one query takes on one thread; None where there is no such plan.
        key_bytes: bytes of a client's keys, uploaded once; None where there is no such plan.
        refused: why there is no such plan; None where there is one.
    """

    what: str
    predicted_ms: float | None
    key_bytes: int | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class PlanInfo:
    """How a model is computed on encrypted features, and what that costs.

    Attributes:
        name: its name in the model's bundle; empty for one that was not written.
        plan: BLAKE3 of what a client goes by, in hex; empty for one without weights.
        degree: the ring's N: half of it are slots.
        levels: multiplications one after the other.
        log2_modulus: log2 of the whole modulus, that of keys included: what security hangs on.
        users_per_query: users that one query carries.
        rotations: rotations that keys are made for.
        ciphertexts: ciphertexts of one query.
        key_bytes: bytes of a client's keys, uploaded once.
        key_memory_bytes: bytes of memory that one client's keys take at the server.
        map_memory_bytes: bytes of memory that the prepared model takes there.
        query_bytes: bytes of one query.
        answer_bytes: bytes of one answer.
        predicted_ms: what one query takes on one thread, by the planner's cost table.
        bootstraps: how often levels are restored on the way.
        alternatives: of a description: what the same model would take with bootstraps or without,
            and with each activation that can stand for ReLU.
        text: the plan in words.
    """

    name: str
    plan: str
    degree: int
    levels: int
    log2_modulus: float
    users_per_query: int
    rotations: int
    ciphertexts: int
    key_bytes: int
    key_memory_bytes: int
    map_memory_bytes: int
    query_bytes: int
    answer_bytes: int
    predicted_ms: float
    bootstraps: int
    alternatives: tuple[PlanAlternative, ...]
    text: str

    @classmethod
    def of_json(cls, text: str) -> Self:
        """From what the native module says."""
        found: dict[str, Any] = json.loads(text)
        others = found.pop("alternatives")
        return cls(alternatives=tuple(PlanAlternative(**other) for other in others), **found)


@overload
def compile(
    model: _Path | ModelBundle,
    *,
    scheme: Literal["hybrid"],
    name: str | None = None,
    samples: npt.ArrayLike | None = None,
    fraction: int = 12,
    bits: int | None = None,
    rounding: Rounding = "stochastic",
    verify_uploads: bool = False,
) -> HybridPlanInfo: ...


@overload
def compile(
    model: _Path | ModelBundle,
    *,
    scheme: Literal["ckks"] = "ckks",
    spec: _Path | None = None,
    name: str | None = None,
    users: int | None = None,
    key_bytes_max: int | None = None,
    query_bytes_max: int | None = None,
) -> PlanInfo: ...


def compile(
    model: _Path | ModelBundle,
    *,
    scheme: Literal["ckks", "hybrid"] = "ckks",
    spec: _Path | None = None,
    name: str | None = None,
    users: int | None = None,
    key_bytes_max: int | None = None,
    query_bytes_max: int | None = None,
    samples: npt.ArrayLike | None = None,
    fraction: int = 12,
    bits: int | None = None,
    rounding: Rounding = "stochastic",
    verify_uploads: bool = False,
) -> PlanInfo | HybridPlanInfo:
    """Compiles a model bundle into a plan, and writes it there: ``plans/NAME.SCHEME.json``.

    ``ckks``: the bundle's tables are the embeddings, its dense part is the rest of the model.
    ``spec`` says how they make a model: sizes, activation, digits (docs/infer.md). ``hybrid``: the
    bundle's dense part is a network, as ``hushtable infer import`` writes it (docs/hybrid.md). The
    plan belongs to this version of the model, and is refused beside another.

    Args:
        model: the bundle's folder, or an open model.
        scheme: what to compile for.
        spec: ckks: a TOML file, the model's description; without, that of the plan which is there.
        name: the plan's name; the model's by default.
        users: ckks: users that one query carries, a power of two; 1 by default.
        key_bytes_max: ckks: the largest keys that a client is to upload: smaller ones take the
            server more time. Without a bound, keys are weighed against time.
        query_bytes_max: ckks: the largest query that a client is to upload: where whole one-hot
            vectors are larger, those of large tables go in parts. Without a bound, bytes above 10
            MB are weighed against time.
        samples: hybrid: inputs ``[samples, planes, rows, columns]`` as the network will see them:
            how large numbers become is taken from them. Made-up ones by default, with more margin.
        fraction: hybrid: fraction bits of numbers and weights.
        bits: hybrid: numbers are held modulo 2^bits, 16 to 64; the least that suffices by default.
        rounding: hybrid: ``stochastic``, to one of the two nearest, or ``nearest``, which takes
            larger circuits.
        verify_uploads: hybrid: clients prove that what they upload are encryptions of numbers,
            before anything is computed on it: for weights that must stay secret to clients that
            cheat.

    Raises:
        ConfigError: a file that is not there, or an option that cannot work.
        ModelError: weights that do not fit the description; an operator that is not supported;
            numbers that need more bits than there are.
        ModelTooDeep: a model that no 128-bit parameter set carries.
        KeysTooLarge: keys above ``key_bytes_max`` whatever the plan.
        QueryTooLarge: queries above ``query_bytes_max`` whatever the plan.
    """
    bundle = model if isinstance(model, ModelBundle) else ModelBundle.open(model)
    if scheme == "hybrid":
        if spec is not None or users is not None or key_bytes_max is not None:
            raise ConfigError("spec, users and key_bytes_max are for ckks")
        if query_bytes_max is not None:
            raise ConfigError("query_bytes_max is for ckks")
        return compile_hybrid(
            bundle,
            name=name or bundle.name,
            samples=samples,
            fraction=fraction,
            bits=bits,
            rounding=rounding,
            verify_uploads=verify_uploads,
        )
    if scheme != "ckks":
        from ._kinds import KINDS

        advice = f": see compile_{scheme}" if scheme in KINDS else ""
        raise ConfigError(f"scheme must be ckks or hybrid, not {scheme!r}{advice}")
    if samples is not None or bits is not None:
        raise ConfigError('samples and bits are for scheme="hybrid"')
    return PlanInfo.of_json(
        _native.infer_compile(
            bundle.path,
            read_spec(spec),
            name=name or bundle.name,
            users=_checked(users),
            key_bytes_max=_bound("key_bytes_max", key_bytes_max),
            query_bytes_max=_bound("query_bytes_max", query_bytes_max),
        )
    )


def plan(
    spec: _Path | str,
    *,
    users: int | None = None,
    key_bytes_max: int | None = None,
    query_bytes_max: int | None = None,
) -> PlanInfo:
    """What :func:`compile` would make of a description, without weights: sizes, levels, cost.

    Args:
        spec: a TOML file, the model's description; or its text.
        users: as for :func:`compile`.
        key_bytes_max: as for :func:`compile`.
        query_bytes_max: as for :func:`compile`.

    Raises:
        ConfigError: a file that is not there; users that are no power of two.
        ModelError: a description that says what cannot be.
        ModelTooDeep: a model that no 128-bit parameter set carries.
        KeysTooLarge: keys above ``key_bytes_max`` whatever the plan.
        QueryTooLarge: queries above ``query_bytes_max`` whatever the plan.
    """
    return PlanInfo.of_json(
        _native.infer_plan(
            read_description(spec),
            users=_checked(users),
            key_bytes_max=_bound("key_bytes_max", key_bytes_max),
            query_bytes_max=_bound("query_bytes_max", query_bytes_max),
        )
    )


def _bound(name: str, most: int | None) -> int | None:
    """A bound on bytes, of which the native module takes no number below 0 or above 64 bits."""
    if most is not None and not 1 <= most < 2**63:
        raise ConfigError(f"{name} is {most}, but must be a number of bytes")
    return most


def _checked(users: int | None) -> int | None:
    """Users of a query, of which the native module takes no number below 0 or above 64 bits."""
    if users is not None and not 1 <= users < 2**32:
        raise ConfigError(f"users is {users}, but must be a power of two")
    return users


def shape(name: str, *, threshold: int | None = None) -> str:
    """The description of a model of a known shape, as :func:`plan` takes it.

    ``uci`` is the model of the UCI heart data, ``criteo`` that of the Criteo logs' 13 numbers and
    26 features of their real cardinalities (Garimella et al., "HE-LRM"), both with squares as
    activations.

    Args:
        name: ``uci`` or ``criteo``.
        threshold: the most rows of a feature whose table stays as it is.

    Raises:
        ConfigError: a name that is none of these.
    """
    if name == "uci":
        dense, bottom, top, dim = 5, [16, 4], [16, 1], 4
        rows: tuple[int, ...] = HEART_ROWS
    elif name == "criteo":
        dense, bottom, top, dim = 13, [512, 256, 64, 16], [512, 256, 1], 16
        rows = CRITEO_KAGGLE_ROWS
    else:
        raise ConfigError(f"there is no shape {name!r}: it must be uci or criteo")
    lines = [
        f"dense = {dense}",
        f"bottom = {bottom}",
        f"top = {top}",
        f"dim = {dim}",
        'activation = "square"',
        f"threshold = {500 if threshold is None else threshold}",
    ]
    for number, count in enumerate(rows, 1):
        lines += ["[[features]]", f'name = "C{number}"', f"rows = {count}"]
    return "\n".join([*lines, ""])
