"""Compiling a model into a plan, and saying what a plan is."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from .. import _native
from ..data import CRITEO_KAGGLE_ROWS
from ..errors import ConfigError
from ..model import Model as ModelBundle

_Path = str | os.PathLike[str]

#: Values of the heart data's categorical columns: sex, cp, fbs, restecg, exang, slope, ca, thal.
HEART_ROWS = (2, 4, 2, 3, 2, 3, 4, 3)


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
        query_bytes: bytes of one query.
        answer_bytes: bytes of one answer.
        predicted_ms: what one query takes on one thread, by the planner's cost table.
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
    query_bytes: int
    answer_bytes: int
    predicted_ms: float
    text: str

    @classmethod
    def of_json(cls, text: str) -> Self:
        """From what the native module says."""
        found: dict[str, Any] = json.loads(text)
        return cls(**found)


def compile(
    model: _Path | ModelBundle,
    *,
    scheme: Literal["ckks"] = "ckks",
    spec: _Path | None = None,
    name: str | None = None,
    users: int | None = None,
) -> PlanInfo:
    """Compiles a model bundle into a plan, and writes it into the bundle: ``plans/NAME.ckks.json``.

    The bundle's tables are the embeddings, its dense part is the rest of the model. ``spec`` says
    how they make a model: sizes, activation, digits (docs/infer.md). The plan belongs to this
    version of the model, and is refused beside another.

    Args:
        model: the bundle's folder, or an open model.
        scheme: what to compile for.
        spec: a TOML file, the model's description; without, that of the plan which is there.
        name: the plan's name; the model's by default.
        users: users that one query carries, a power of two; 1 by default.

    Raises:
        ConfigError: a file that is not there, or an option that cannot work.
        ModelError: weights that do not fit the description.
        ModelTooDeep: a model that no 128-bit parameter set carries.
    """
    if scheme != "ckks":
        raise ConfigError(f"scheme must be ckks, not {scheme!r}")
    bundle = model if isinstance(model, ModelBundle) else ModelBundle.open(model)
    return PlanInfo.of_json(
        _native.infer_compile(bundle.path, _read(spec), name=name or bundle.name, users=users)
    )


def plan(spec: _Path | str, *, users: int | None = None) -> PlanInfo:
    """What :func:`compile` would make of a description, without weights: sizes, levels, cost.

    Args:
        spec: a TOML file, the model's description; or its text.
        users: as for :func:`compile`.

    Raises:
        ConfigError: a file that is not there.
        ModelError: a description that says what cannot be.
        ModelTooDeep: a model that no 128-bit parameter set carries.
    """
    is_text = isinstance(spec, str) and "\n" in spec
    text = str(spec) if is_text else _read(spec)
    return PlanInfo.of_json(_native.infer_plan(text or "", users=users))


def describe(model: _Path, *, plan: str | None = None) -> PlanInfo:
    """The plan in a model's bundle: the one of this name, or the only one.

    Raises:
        ModelError: a model without a plan, or with one of another version.
        ConfigError: several plans, and none named.
    """
    return PlanInfo.of_json(_native.infer_describe(Path(model), plan))


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


def _read(spec: _Path | None) -> str | None:
    if spec is None:
        return None
    try:
        return Path(spec).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the model's description: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the model's description {os.fspath(spec)} is no text") from error
