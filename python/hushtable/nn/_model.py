"""A whole model at two servers that compute it on shares, as a layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from .._bags import FloatArray
from .._ids import flatten_ids, id_array
from ..errors import BadFeatures, ConfigError
from ._jagged import read_bags
from ._module import (
    HAS_TORCH,
    Served,
    array_of,
    as_tensor,
    check_answers_now,
    is_tensor,
    output,
)

if TYPE_CHECKING:
    from ..infer import SharesInfo, SharesPredictions, SharesStats

if HAS_TORCH:
    import torch

    from . import _ops

__all__ = ["PredictionSource", "PrivateModel"]

_STATE = "model is at servers"


class PredictionSource(Protocol):
    """What has a model computed: a :class:`hushtable.infer.SharesClient`."""

    @property
    def info(self) -> SharesInfo:
        """The model's features."""
        ...

    def predict(self, ids: Any = None, dense: Any = None) -> SharesPredictions:
        """A logit for each user."""
        ...


class PrivateModel(Served):
    """A model that two servers compute on shares: its forward is a whole private prediction.

    Neither server learns ids, features, rows or the prediction, as long as the two do not pool what
    they see. They see how many users a call predicts for.

    Nothing here is learned: the logits have no gradient, and dense features that ask for one are
    refused. There is no difference between training and evaluation.

    Args:
        client: of servers that hold a model (:func:`hushtable.connect`).
        padding_idx: the id that stands for none where a history is padded; None where none does.
            It may be a row's number, which a history then cannot have.

    Attributes:
        last_stats: what the last call cost; None before the first.

    Example:
        >>> model = PrivateModel(client)  # doctest: +SKIP
        >>> ids = {"user": torch.tensor([3, 17]), "films": torch.tensor([[1, 2], [5, -1]])}
        >>> model(ids, torch.zeros(2, 13)).shape  # doctest: +SKIP
        torch.Size([2])
    """

    source: PredictionSource
    padding_idx: int | None
    last_stats: SharesStats | None

    def __init__(self, client: PredictionSource, padding_idx: int | None = -1) -> None:
        super().__init__()
        check_answers_now(client)
        if not hasattr(client, "predict"):
            raise ConfigError(
                f"a {type(client).__name__} computes no model: give a client that "
                "hushtable.connect(scheme='shares') makes"
            )
        self.source = client
        self.padding_idx = padding_idx
        self.last_stats = None
        self._names = client.info.features

    def extra_repr(self) -> str:
        """The model and its features, as torch prints them."""
        info = self.source.info
        features = ", ".join(
            f"{name}: {rows}" + (f" (up to {bag} ids)" if bag > 1 else "")
            for name, rows, bag in zip(info.features, info.rows, info.bags, strict=True)
        )
        return f"{info.name}, dense={info.dense}" + (f", {features}" if features else "")

    def forward(self, ids: Any = None, dense: Any | None = None) -> Any:
        """A logit for each user, ``[users]`` in float32: a tensor on the device of the ids where
        ids or dense features are tensors, an array otherwise.

        Args:
            ids: by feature. Of one with one id, whole numbers ``[users]``. Of one with a history,
                ``[users, length]`` padded by ``padding_idx``, a list of each user's ids, or one id
                each ``[users]``. Of either, ``(values, offsets)`` as a tuple or a ``JaggedTensor``,
                with torchrec's offsets: one more than users. Or all of it as a
                ``KeyedJaggedTensor``. None of a model without such features.
            dense: numbers ``[users, dense]``; None of a model that takes none.

        Raises:
            ConfigError: dense features that ask for a gradient, while gradients are made; a
                ``KeyedJaggedTensor`` without one of the features.
            ValueError: offsets or lengths that do not fit the values.
            BadFeatures: a feature that is missing or unknown, another count of users or ids, NaN;
                nothing was sent.
            BadIds: ids that are no whole numbers; nothing was sent.
            IdOutOfRange: an id that is no row of its table; nothing was sent.
            ServerError: a server that did not answer.
        """
        if dense is not None and is_tensor(dense) and _asks_for_gradient(dense):
            raise ConfigError(
                "dense asks for a gradient, and servers that compute on shares make none: call the "
                "model under torch.no_grad(), or with dense.detach()"
            )
        given = _tensors(ids, self._names)
        if given is not None and (dense is None or is_tensor(dense)):
            return _ops.predict(*given, dense, self.handle)
        found = self._predict(ids, dense)
        like = _tensor_of(ids, dense)
        return found if like is None else output(found, like)

    def predict_tensors(self, values: list[Any], offsets: list[Any], dense: Any | None) -> Any:
        """The logits of tensors: what ``hushtable::predict`` does."""
        parts = zip(values, offsets, strict=True)
        ids = [one if not bounds.numel() else (one, bounds) for one, bounds in parts]
        found = self._predict(dict(zip(self._names, ids, strict=True)), dense)
        return output(found, _tensor_of(values, dense))

    def tables(self) -> dict[str, dict[str, Any]]:
        """By feature, ``rows`` and ``bag``, how many ids a user has of it at most."""
        info = self.source.info
        facts = zip(info.features, info.rows, info.bags, strict=True)
        return {name: {"rows": rows, "bag": bag} for name, rows, bag in facts}

    def extra_state(self) -> dict[str, Any]:
        """What a state dict has instead of weights."""
        info = self.source.info
        facts = {"name": info.name, "version": info.version, "plan": info.plan, "dense": info.dense}
        return {_STATE: {**facts, "features": self.tables()}}

    #: As torch asks for it.
    get_extra_state = extra_state

    def set_extra_state(self, state: Any) -> None:
        """Holds another layer's model against this one's; a newer version is no other model.

        Raises:
            ConfigError: a state of another model.
        """
        found = state.get(_STATE) if isinstance(state, Mapping) else None
        if found is None:
            raise ConfigError("the state dict is not of a model that servers compute")
        own = self.extra_state()[_STATE]
        for name in ("dense", "features"):
            if found.get(name) != own[name]:
                raise ConfigError(
                    f"the state dict is of a model {found.get('name')!r} with {name} "
                    f"{found.get(name)}, but {own['name']!r}, which is served, has {own[name]}"
                )

    def _placeless(self) -> str:
        return (
            f"no place for it: the model {self.source.info.name!r} is at servers; build a bundle "
            "from the checkpoint (hushtable model build) and compile it for shares (hushtable "
            "infer compile), or load the rest with strict=False"
        )

    def _predict(self, ids: Any, dense: Any | None) -> FloatArray:
        info = self.source.info
        columns = _columns(ids, info, self.padding_idx)
        numbers = None if dense is None else array_of(dense)
        found = self.source.predict(columns or None, numbers)
        self.last_stats = found.stats
        return found.logits.astype(np.float32)


def _tensors(ids: Any, names: Sequence[str]) -> tuple[list[Any], list[Any]] | None:
    """Values and offsets of features that are all tensors, or None.

    Offsets are empty for what came without. A compiler can follow.
    """
    if not isinstance(ids, Mapping) or set(ids) != set(names) or not names:
        return None
    values, offsets = [], []
    for name in names:
        given = ids[name]
        bounds: Any = None
        if isinstance(given, tuple) and len(given) == 2:
            given, bounds = given
        elif not is_tensor(given) and hasattr(given, "values") and hasattr(given, "offsets"):
            given, bounds = given.values(), given.offsets()
        if not is_tensor(given):
            return None
        values.append(given)
        none = given.new_empty((0,), dtype=torch.int64)
        offsets.append(none if bounds is None else as_tensor(bounds, given))
    return values, offsets


def _tensor_of(ids: Any, dense: Any | None) -> Any | None:
    """Some tensor of the input, for the device that the result belongs on."""
    listed: list[Any] = []
    if isinstance(ids, Mapping):
        listed = list(ids.values())
    elif isinstance(ids, list):
        listed = ids
    elif ids is not None:
        listed = [ids]
    flat: list[Any] = []
    for one in listed:
        if isinstance(one, tuple | list):
            flat += one
        else:
            flat.append(one.values() if hasattr(one, "offsets") else one)
    return next((one for one in (*flat, dense) if is_tensor(one)), None)


def _asks_for_gradient(dense: Any) -> bool:
    return bool(dense.requires_grad and torch.is_grad_enabled())


def _columns(ids: Any, info: SharesInfo, padding: int | None) -> dict[str, list[Any]]:
    """Of each feature an id a user; of one with a history, a list of them.

    Raises:
        BadFeatures: a feature that is missing or unknown, or of a shape that it does not have.
    """
    if ids is None:
        ids = {}
    if not isinstance(ids, Mapping):
        ids = {
            name: (bags.ids, bags.bounds)
            for name, bags in read_bags(ids, info.features, False).items()
        }
    columns: dict[str, list[Any]] = {}
    for name, given in ids.items():
        bag = info.bags[info.features.index(name)] if name in info.features else 1
        if bag == 1:
            columns[name] = _single(name, given)
        else:
            columns[name] = _histories(name, given, padding)
    return columns


def _single(name: str, given: Any) -> list[int]:
    """An id of each user."""
    bags = _jagged(name, given)
    if bags is not None:
        if any(len(one) != 1 for one in bags):
            raise BadFeatures(f"feature {name!r} takes one id of each user")
        return [int(one[0]) for one in bags]
    flat, shape = flatten_ids(given)
    if len(shape) != 1 and not (len(shape) == 2 and shape[1] == 1):
        raise BadFeatures(
            f"ids of feature {name!r} are of shape {list(shape)}: it takes one of each user, "
            "[users]"
        )
    found: list[int] = flat.tolist()
    return found


def _histories(name: str, given: Any, padding: int | None) -> list[list[int]]:
    """The ids of each user."""
    bags = _jagged(name, given)
    if bags is None and isinstance(given, list):
        bags = [id_array(one).reshape(-1) for one in given]
    if bags is None:
        array = id_array(given)
        if array.ndim not in (1, 2):
            raise BadFeatures(
                f"ids of feature {name!r} are of shape {list(array.shape)}: it takes "
                "[users, length], [users], or a list of each user's ids"
            )
        bags = list(array.reshape(len(array), -1) if len(array) else [])
    return [flatten_ids(_without(one, padding))[0].tolist() for one in bags]


def _jagged(name: str, given: Any) -> list[npt.NDArray[np.uint64]] | None:
    """The bags of values with offsets; None of anything else."""
    pair = isinstance(given, tuple)
    if not pair and not (hasattr(given, "values") and hasattr(given, "offsets")):
        return None
    bags = read_bags({name: given}, [name], False)[name]
    return np.split(bags.ids, bags.bounds[1:-1]) if len(bags.bounds) > 1 else []


def _without(ids: Any, padding: int | None) -> npt.NDArray[Any]:
    """What is not padding."""
    array = np.asarray(ids)
    if array.size == 0:
        # numpy takes an empty list for floats.
        return array.astype(np.int64)
    return array if padding is None else array[array != padding]
