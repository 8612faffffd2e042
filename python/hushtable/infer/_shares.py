"""Plans of predictions on the shares of two servers, and what one prediction takes."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import BadFeatures, ConfigError
from ..model import Model as ModelBundle
from ._description import plan_of, read_description, read_spec

_Path = str | os.PathLike[str]

#: What stands for no id where a user has fewer than a feature's bag.
ABSENT = 2**64 - 1

#: Users' sparse features: indices, or by feature lists of them; None where there is none.
Sparse = npt.ArrayLike | Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class SharesPlanInfo:
    """What one prediction on shares takes.

    Bytes and messages are those of any model of these sizes, times this machine's.

    Attributes:
        name: its name in the model's bundle; empty for one that was not written.
        plan: BLAKE3 of the plan's text, in hex; empty for one without weights.
        fraction_bits: bits after the point of activations.
        value_bits: bits of a row's value.
        up_bytes: bytes that the client sends to both servers together, beside its lookup keys.
        peer_bytes: bytes that each server sends the other.
        rounds: messages that each server sends the other, each after one of the other's.
        down_bytes: bytes of both shares of the logit.
        activations: values that go through a ReLU.
        products: multiplications of each server by weights.
        deal_ms: the client's work, on one thread of this machine; without making lookup keys.
        server_ms: each server's work, on one thread of this machine; without the lookup, and
            without what the messages take on their way.
        error: the largest error of a logit against the model in floating point, over the samples
            that it was calibrated on, or over made-up features where the weights are made up; None
            for a plan that is read from a bundle, which holds no samples.
        precompute_bytes: what each server keeps of an inference where the two deal themselves; None
            for a model whose activations are too wide for that, with which clients deal.
        precompute_peer_bytes: bytes that a server then sends the other beforehand.
        precompute_ms: each server's work for it, on one thread of this machine.
    """

    name: str
    plan: str
    fraction_bits: int
    value_bits: int
    up_bytes: int
    peer_bytes: int
    rounds: int
    down_bytes: int
    activations: int
    products: int
    deal_ms: float
    server_ms: float
    error: float | None
    precompute_bytes: int | None
    precompute_peer_bytes: int | None
    precompute_ms: float | None

    @classmethod
    def of_json(cls, text: str) -> Self:
        """From what the native module says."""
        found: dict[str, Any] = json.loads(text)
        return cls(**found)


def plan_shares(
    spec: _Path | str, *, fraction_bits: int = 12, value_bits: int = 8, runs: int = 50
) -> SharesPlanInfo:
    """What a prediction takes where left and right compute a model on shares.

    The model is the description's with ReLUs, whatever its activation; features are looked up
    whole, not cut into digits. Its weights are made up as they are initialised: how many bits a
    layer's values take, and with them the bytes, differs a little from those of trained ones.

    Args:
        spec: a TOML file, the model's description; or its text.
        fraction_bits: bits after the point of activations, 4 to 20.
        value_bits: bits of a row's value, 8 or 16.
        runs: predictions that are made to measure; the times are medians.

    Raises:
        ConfigError: a file that is not there, or bits that cannot be.
        ModelError: a description that says what cannot be; a layer whose sums do not fit.
    """
    _check_bits(fraction_bits, value_bits)
    text = _native.shares_plan(
        read_description(spec),
        fraction_bits=fraction_bits,
        value_bits=value_bits,
        runs=_checked(runs),
    )
    return SharesPlanInfo.of_json(text)


def compile_shares(
    model: _Path | ModelBundle,
    dense: npt.ArrayLike,
    sparse: Sparse | None = None,
    *,
    spec: _Path | None = None,
    name: str | None = None,
    fraction_bits: int = 12,
    value_bits: int = 8,
    runs: int = 50,
) -> SharesPlanInfo:
    """Compiles a bundle for predictions on shares: ``plans/NAME.shares.json``.

    The bundle's tables are the embeddings, its dense part is the rest of the model, whose
    activations are ReLUs. How many bits each layer's values take is measured on samples: users as
    the model will see them. The plan belongs to this version of the model, and is refused beside
    another; it holds the layers' largest values, and no sample.

    Args:
        model: the bundle's folder, or an open model.
        dense: the samples' numbers, ``[samples, dense]``.
        sparse: their indices, ``[samples, features]``, one of each feature; of one with a bag its
            ids as a list of up to so many, or as many columns, with None where there is no id.
        spec: a TOML file, the model's description (docs/infer.md); without, that of the plan of
            this name which is there.
        name: the plan's name; the model's by default.
        fraction_bits: bits after the point of activations, 4 to 20.
        value_bits: bits of a row's value, 8 or 16.
        runs: predictions that are made to measure; the times are medians.

    Raises:
        ConfigError: a file that is not there, bits or an activation that cannot be.
        BadFeatures: samples that are none of the model's.
        IdOutOfRange: an index that is no row of its table.
        ModelError: no sample; weights that do not fit the description; a layer whose sums do not
            fit, by its name.
    """
    _check_bits(fraction_bits, value_bits)
    bundle = model if isinstance(model, ModelBundle) else ModelBundle.open(model)
    width, bags = shares_inputs(bundle, spec=spec, name=name)
    name, text = name or bundle.name, read_spec(spec)
    numbers, rows = sample_arrays(dense, sparse, width, bags)
    compiled = _native.shares_compile(
        Path(bundle.path),
        text,
        numbers,
        rows,
        name=name,
        fraction_bits=fraction_bits,
        value_bits=value_bits,
        runs=_checked(runs),
    )
    return SharesPlanInfo.of_json(compiled)


def describe_shares(model: _Path, *, plan: str | None = None, runs: int = 50) -> SharesPlanInfo:
    """What a prediction takes by a bundle's plan: the one of this name, or the only one.

    Raises:
        ModelError: a model without such a plan, or with one of another version.
        ConfigError: several plans, and none named; one that is not for shares.
    """
    name = plan_of(model, plan, "shares")
    return SharesPlanInfo.of_json(_native.shares_describe(Path(model), name, runs=_checked(runs)))


def shares_inputs(
    bundle: ModelBundle, *, spec: _Path | None, name: str | None
) -> tuple[int, list[int]]:
    """A model's dense features and the bag of each sparse one, as compiling finds them."""
    return _native.shares_inputs(Path(bundle.path), read_spec(spec), name=name or bundle.name)


def sample_arrays(
    dense: npt.ArrayLike, sparse: Sparse | None, width: int, bags: Sequence[int]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint64]]:
    """Users' features as the native module takes them: ``[users, width]``, ``[users, sum(bags)]``.

    Raises:
        BadFeatures: other shapes or types than the model's.
    """
    try:
        numbers = np.asarray(plain(dense))
    except (TypeError, ValueError) as error:
        raise BadFeatures(
            f"dense features that are ragged, or no numbers: the model takes [users, {width}]"
        ) from error
    if numbers.dtype.kind not in "fiu" or numbers.ndim != 2 or numbers.shape[1] != width:
        raise BadFeatures(
            f"dense features of shape {list(numbers.shape)} and type {numbers.dtype}: the model "
            f"takes numbers, [users, {width}]"
        )
    users = [[] for _ in numbers] if sparse is None else _rows_of(sparse, len(bags))
    if len(users) != len(numbers):
        raise BadFeatures(f"sparse features of {len(users)} users beside {len(numbers)} dense ones")
    rows = np.empty((len(users), sum(bags)), np.uint64)
    for user, given in enumerate(users):
        rows[user] = flat_indices(given, bags, f"user {user}")
    with np.errstate(over="ignore"):
        # What does not fit becomes infinite, and is refused by name.
        return np.ascontiguousarray(numbers, dtype=np.float32), rows


def _rows_of(sparse: Sparse, features: int) -> list[Sequence[Any]]:
    given = plain(sparse)
    users: Any = given.tolist() if isinstance(given, np.ndarray) else given
    if not isinstance(users, Sequence) or isinstance(users, str):
        raise BadFeatures(f"sparse features are {users!r}: the model takes [users, {features}]")
    rows: list[Sequence[Any]] = []
    for user, row in enumerate(map(plain, users)):
        if not isinstance(row, list | tuple | np.ndarray):
            raise BadFeatures(
                f"sparse features of user {user} are {row!r}: the model takes a list of them, "
                f"[users, {features}]"
            )
        rows.append(row)  # type: ignore[arg-type]
    return rows


def plain(values: Any) -> Any:
    """Tensors and arrays of any library as numpy's, what has no axes as a number; else as it is."""
    if isinstance(values, list | tuple | int | np.generic) or not hasattr(values, "__array__"):
        return values
    if hasattr(values, "detach"):  # a tensor, maybe on a device
        values = values.detach().cpu()
    array = np.asarray(values)
    return array if array.ndim else array[()]


def flat_indices(given: Sequence[Any], bags: Sequence[int], where: str) -> list[int]:
    """One user's indices, as many as the bags have room for, :data:`ABSENT` where there is none.

    ``given`` has an entry for each of them, or one for each feature: of one with a bag, a list of
    up to so many ids.

    Raises:
        BadFeatures: too few, too many, or no whole numbers; ``where`` says whose.
    """
    entries: list[Any] = [plain(entry) for entry in given]
    if any(isinstance(entry, list | tuple | np.ndarray) for entry in entries):
        if len(entries) != len(bags):
            raise BadFeatures(
                f"{where} has {len(entries)} sparse features: the model takes {len(bags)}"
            )
        flat: list[Any] = []
        for feature, (entry, bag) in enumerate(zip(entries, bags, strict=True)):
            ids = list(entry) if isinstance(entry, list | tuple | np.ndarray) else [entry]
            if len(ids) > bag or (bag == 1 and len(ids) != 1):
                raise BadFeatures(
                    f"{where} has {len(ids)} ids of feature {feature}: "
                    f"it takes {'one' if bag == 1 else f'up to {bag}'}"
                )
            flat += ids + [None] * (bag - len(ids))
        entries = flat
    if len(entries) != sum(bags):
        raise BadFeatures(f"{where} has {len(entries)} indices: the model takes {sum(bags)}")
    own = [(feature, bag) for feature, bag in enumerate(bags) for _ in range(bag)]
    return [_index(entry, *at, where) for entry, at in zip(entries, own, strict=True)]


def _index(entry: Any, feature: int, bag: int, where: str) -> int:
    if entry is None:
        if bag == 1:
            raise BadFeatures(f"{where} has no index of feature {feature}: it takes one")
        return ABSENT
    entry = plain(entry)
    if isinstance(entry, bool) or not isinstance(entry, int | np.integer):
        raise BadFeatures(f"{where}: {entry!r} is no index: indices are whole numbers")
    if not 0 <= entry < ABSENT:
        raise BadFeatures(f"{where}: index {entry} is no row of a table")
    return int(entry)


def _check_bits(fraction_bits: int, value_bits: int) -> None:
    if not 4 <= fraction_bits <= 20:
        raise ConfigError(f"fraction_bits is {fraction_bits}, but must be 4 to 20")
    if value_bits not in (8, 16):
        raise ConfigError(f"value_bits is {value_bits}, but must be 8 or 16")


def _checked(runs: int) -> int:
    if runs < 1:
        raise ConfigError(f"runs is {runs}, but must be 1 or more")
    return runs
