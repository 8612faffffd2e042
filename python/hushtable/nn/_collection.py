"""torchrec's collection of embedding bags, over the tables of one model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from .._bags import FloatArray, IntArray, Mode, reduce_bags
from .._types import LookupStats
from ..errors import ConfigError, IdOutOfRange, TooManyIds
from ._jagged import Bags, read_bags, tensors_of
from ._module import HAS_TORCH, Served, check_answers_now, output
from ._sources import ModelSource, features_of, unknown_feature
from ._trips import Found, ask_many, foreseen, note

if HAS_TORCH:
    import torch

    from . import _ops

__all__ = ["KeyedRows", "PrivateEmbeddingBagCollection"]


class KeyedRows:
    """A row for each sample and feature: what torchrec calls a ``KeyedTensor``."""

    def __init__(self, keys: Sequence[str], dims: Sequence[int], values: Any) -> None:
        self._keys = list(keys)
        self._dims = list(dims)
        self._values = values

    def keys(self) -> list[str]:
        """The features, in the order of their columns."""
        return list(self._keys)

    def values(self) -> Any:
        """All of them side by side, float32 ``[samples, sum of dims]``."""
        return self._values

    def length_per_key(self) -> list[int]:
        """The dim of each feature."""
        return list(self._dims)

    def offset_per_key(self) -> list[int]:
        """The column where each feature begins, and at last their number."""
        return [0, *np.cumsum(self._dims).tolist()]

    def key_dim(self) -> int:
        """The dimension along which features lie side by side."""
        return 1

    def __getitem__(self, key: str) -> Any:
        """One feature's rows, float32 ``[samples, dim]``."""
        if key not in self._keys:
            raise KeyError(f"no feature {key!r}: there are {', '.join(self._keys)}")
        place = self._keys.index(key)
        first, end = self.offset_per_key()[place : place + 2]
        return self._values[:, first:end]

    def to_dict(self) -> dict[str, Any]:
        """Each feature's rows, float32 ``[samples, dim]``."""
        return {key: self[key] for key in self._keys}


@dataclass(frozen=True)
class Samples:
    """A call of a collection.

    Attributes:
        features: by name, of each sample the ids to look up, and where among them each of its ids
            is.
    """

    features: dict[str, list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.intp]]]]

    def samples(self) -> list[tuple[npt.NDArray[np.uint64], ...]]:
        """Of each sample the ids to look up of each feature."""
        parts = self.parts().values()
        return list(zip(*parts, strict=True))

    def same(self, other: Any) -> bool:
        """Whether another call has the same samples."""
        return (
            isinstance(other, Samples)
            and self.features.keys() == other.features.keys()
            and all(
                len(own) == len(found)
                and all(
                    np.array_equal(left, right)
                    for one, two in zip(own, found, strict=True)
                    for left, right in zip(one, two, strict=True)
                )
                for own, found in zip(self.features.values(), other.features.values(), strict=True)
            )
        )

    def parts(self) -> dict[str, list[npt.NDArray[np.uint64]]]:
        """An inference for each sample."""
        return {name: [ids for ids, _ in samples] for name, samples in self.features.items()}

    def answered(self, found: Mapping[str, Sequence[Found]]) -> list[FloatArray]:
        """Of each feature the rows of all its ids, zeros where a layout left some out."""
        return [
            np.concatenate(
                [part.rows[places] for part, (_, places) in zip(found[name], samples, strict=True)]
            )
            for name, samples in self.features.items()
        ]


class PrivateEmbeddingBagCollection(Served):
    """``torchrec.EmbeddingBagCollection`` over a model whose tables are served privately.

    Each sample of a call is one inference: one message to each server, whose size the model bundle
    alone fixes, whatever the sample's ids are and however many. The samples of a call travel at the
    same time. What the servers see is how many inferences were made.

    Bags are reduced on the client by the bundle's pooling (``sum`` or ``mean``), to the same bits
    as torch's (see :mod:`hushtable.nn`). Weights have a gradient.

    Called with a dict of tensors it compiles as a whole and can be exported; a
    ``KeyedJaggedTensor`` is taken apart between two graphs.

    Args:
        source: a client of servers that hold a model, or a :class:`ClearModel`.
        features: which of the model's features, in the order in which the result has them; by
            default all that are pooled, in the model's order.
        is_weighted: scale every row by its weight in the input; such features must be summed.

    Attributes:
        last_stats: what the round trip of the last call cost, which several layers may have shared;
            None before the first, and in the clear.

    Example:
        >>> bags = PrivateEmbeddingBagCollection(client)  # doctest: +SKIP
        >>> rows = bags({"user": ([7], [0, 1]), "item": ([3, 9, 4], [0, 3])})  # doctest: +SKIP
        >>> rows.to_dict()["item"].shape  # doctest: +SKIP
        torch.Size([1, 16])
    """

    source: ModelSource
    feature_names: tuple[str, ...]
    last_stats: LookupStats | None = None

    def __init__(
        self,
        source: ModelSource,
        features: Iterable[str] | None = None,
        is_weighted: bool = False,
    ) -> None:
        super().__init__()
        check_answers_now(source)
        known = features_of(source)
        if features is None:
            names = [name for name, one in known.items() if one.pooling != "none"]
        else:
            names = list(features)
        if not names:
            raise ConfigError("no features: the model pools none, so name its layers one by one")
        if len(set(names)) < len(names):
            raise ConfigError(f"a feature is named twice: {', '.join(names)}")
        for name in names:
            if name not in known:
                raise ConfigError(unknown_feature(name, known))
            pooling = known[name].pooling
            if pooling == "none":
                raise ConfigError(
                    f"feature {name!r} is not pooled: use PrivateEmbedding(client[{name!r}])"
                )
            if is_weighted and pooling != "sum":
                raise ConfigError(
                    f"feature {name!r} has pooling {pooling!r}, and weights need 'sum'"
                )
        self.source = source
        self.feature_names = tuple(names)
        self._facts = {name: known[name] for name in names}
        self._is_weighted = is_weighted
        self._tables = {name: source[name] for name in names}

    def is_weighted(self) -> bool:
        """Whether rows are scaled by the input's weights."""
        return self._is_weighted

    def extra_repr(self) -> str:
        """The features, as torch prints them."""
        return ", ".join(
            f"{name}: {self._tables[name].info.rows} x {self._tables[name].info.dim} "
            f"{facts.pooling}, max_ids={facts.max_ids}"
            for name, facts in self._facts.items()
        )

    def forward(self, features: Any) -> KeyedRows:
        """One row for each sample and feature.

        Args:
            features: a ``torchrec.KeyedJaggedTensor`` (or what has its methods), or a dict of each
                feature to a ``JaggedTensor`` or to ``(values, offsets)``, with weights as a third
                part. Offsets are torchrec's: one more than samples. Features that the collection
                does not have are left alone.

        Raises:
            ConfigError: a feature that is missing, or whose number of samples is another.
            ValueError: offsets, lengths or weights that do not fit the values.
            IdOutOfRange: an id that is no row of its feature's table; nothing was sent.
            TooManyIds: more ids of one feature in a sample than its ``max_ids``; nothing was sent.
            ServerError: a server did not answer.
        """
        given = tensors_of(features, self.feature_names, self._is_weighted)
        if given is None:
            bags = read_bags(features, self.feature_names, self._is_weighted)
            columns = [
                reduce_bags(rows, one.bounds, self._mode(name), weights=one.weights)
                for (name, one), rows in zip(bags.items(), self._fetch(bags), strict=True)
            ]
            return KeyedRows(
                self.feature_names,
                self.dims,
                self._own(output(np.concatenate(columns, axis=1), _tensor_of(features))),
            )
        values, offsets, weights = given
        checked = [one.detach() for one in weights]
        fetched = _ops.lookup_features(values, offsets, checked, self.handle)
        sums = [
            _ops.reduce(
                self._rounded(rows),
                None,
                offsets[place],
                weights[place] if weights else None,
                self._mode(name),
                True,
                True,
            )
            for place, (name, rows) in enumerate(zip(self.feature_names, fetched, strict=True))
        ]
        return KeyedRows(self.feature_names, self.dims, self._own(torch.cat(sums, dim=1)))

    def tables(self) -> dict[str, dict[str, Any]]:
        """By name, the tables that the features read: ``rows``, ``dim`` and ``version``."""
        infos = [self._tables[name].info for name in self.feature_names]
        return {
            info.name: {"rows": info.rows, "dim": info.dim, "version": info.version}
            for info in infos
        }

    @property
    def dims(self) -> list[int]:
        """Of each feature, in their order, the columns that it takes."""
        return [self._tables[name].info.dim for name in self.feature_names]

    def look_up(self, values: list[Any], offsets: list[Any], weights: list[Any]) -> list[Any]:
        """Of each feature the rows of a tensor: what ``hushtable::lookup_features`` does."""
        parts = zip(values, offsets, weights or [None] * len(values), strict=True)
        given = dict(zip(self.feature_names, parts, strict=True))
        found = self._fetch(read_bags(given, self.feature_names, self._is_weighted))
        return [output(rows, ids) for rows, ids in zip(found, values, strict=True)]

    def _mode(self, name: str) -> Mode:
        return cast(Mode, self._facts[name].pooling)

    @property
    def served_by(self) -> ModelSource:
        """The model that answers for several layers at once."""
        return self.source

    def asks_for(self, features: Any) -> Samples:
        """What a call with such features looks up.

        Raises:
            ConfigError, ValueError, IdOutOfRange, TooManyIds: as a call does.
        """
        given = tensors_of(features, self.feature_names, False)
        if given is not None:
            parts = zip(*given[:2], strict=True)
            features = dict(zip(self.feature_names, parts, strict=True))
        return self._samples(read_bags(features, self.feature_names, False))

    def feature_dims(self) -> dict[str, int]:
        """By feature that the layer asks, the values of a row."""
        return dict(zip(self.feature_names, self.dims, strict=True))

    def _samples(self, bags: dict[str, Bags]) -> Samples:
        return Samples({name: self._asked(name, one) for name, one in bags.items()})

    def _fetch(self, bags: dict[str, Bags]) -> list[FloatArray]:
        """Of each feature the rows of all its ids, an inference for each sample."""
        asked = self._samples(bags)
        inferences = [dict(zip(bags, sample, strict=True)) for sample in asked.samples()]
        if not inferences:
            return [np.zeros((0, dim), np.float32) for dim in self.dims]
        taken = foreseen(self.handle, asked)
        if taken is not None:
            found, self.last_stats = taken
            return cast(list[FloatArray], found)
        answers, self.last_stats = ask_many(self.source, inferences)
        note(self.last_stats, len(inferences))
        return asked.answered({name: [one[name] for one in answers] for name in bags})

    def _asked(self, name: str, bags: Bags) -> list[tuple[npt.NDArray[np.uint64], IntArray]]:
        """For each sample the ids to look up, and where among them each of its ids is."""
        rows, max_ids = self._tables[name].info.rows, self._facts[name].max_ids
        if bags.ids.size and (highest := int(bags.ids.max())) >= rows:
            raise IdOutOfRange(
                f"feature {name!r}: id {highest} is out of range, its table has {rows} rows",
                id=highest,
                rows=rows,
            )
        # A layout's rule of what is dropped counts repeats.
        repeats = getattr(self._tables[name], "layout", None) is not None
        asked = []
        for sample, (first, end) in enumerate(zip(bags.bounds, bags.bounds[1:], strict=False)):
            ids, places = bags.ids[first:end], np.arange(end - first)
            if len(ids) > 1 and not repeats:
                ids, places = np.unique(ids, return_inverse=True)
            if len(ids) > max_ids:
                raise TooManyIds(
                    f"feature {name!r} has {len(ids)} {'ids' if repeats else 'distinct ids'} in "
                    f"sample {sample}, but the model is made for {max_ids} (max_ids): rebuild the "
                    f"bundle with a larger max_ids for {name!r}, or cut the sample's list",
                    ids=len(ids),
                    max_ids=max_ids,
                )
            asked.append((ids, places))
        return asked


def _tensor_of(features: Any) -> Any:
    """Some tensor of the input, for the device that the result belongs on."""
    if hasattr(features, "lengths"):
        return features.values()
    first = next(iter(features.values()))
    return first[0] if isinstance(first, tuple | list) else first.values()
