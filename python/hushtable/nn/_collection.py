"""torchrec's collection of embedding bags, over the tables of one model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from .._bags import IntArray, Mode, reduce_bags
from ..errors import ConfigError, IdOutOfRange, TooManyIds
from ._jagged import Bags, read_bags
from ._module import Module, output
from ._sources import ModelSource, features_of, unknown_feature

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


class PrivateEmbeddingBagCollection(Module):
    """``torchrec.EmbeddingBagCollection`` over a model whose tables are served privately.

    Each sample of a call is one inference: one message to each server, whose size the model bundle
    alone fixes, whatever the sample's ids are and however many. The samples of a call travel at the
    same time. What the servers see is how many inferences were made.

    Bags are reduced on the client by the bundle's pooling (``sum`` or ``mean``), to the same bits
    as torch's (see :mod:`hushtable.nn`).

    Args:
        source: a client of servers that hold a model, or a :class:`ClearModel`.
        features: which of the model's features, in the order in which the result has them; by
            default all that are pooled, in the model's order.
        is_weighted: scale every row by its weight in the input; such features must be summed.

    Example:
        >>> bags = PrivateEmbeddingBagCollection(client)  # doctest: +SKIP
        >>> rows = bags({"user": ([7], [0, 1]), "item": ([3, 9, 4], [0, 3])})  # doctest: +SKIP
        >>> rows.to_dict()["item"].shape  # doctest: +SKIP
        torch.Size([1, 16])
    """

    source: ModelSource
    feature_names: tuple[str, ...]

    def __init__(
        self,
        source: ModelSource,
        features: Iterable[str] | None = None,
        is_weighted: bool = False,
    ) -> None:
        super().__init__()
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
        bags = read_bags(features, self.feature_names, self._is_weighted)
        samples = len(next(iter(bags.values())).bounds) - 1
        asked = {name: self._asked(name, one) for name, one in bags.items()}
        inferences = [{name: asked[name][at][0] for name in bags} for at in range(samples)]
        answers = self.source.lookup_many(inferences) if inferences else []
        columns = []
        for name, one in bags.items():
            found = [
                np.asarray(answer[name])[places]
                for answer, (_, places) in zip(answers, asked[name], strict=True)
            ]
            dim = self._tables[name].info.dim
            rows = np.concatenate([np.zeros((0, dim), np.float32), *found])
            mode = cast(Mode, self._facts[name].pooling)
            columns.append(reduce_bags(rows, one.bounds, mode, weights=one.weights))
        dims = [column.shape[1] for column in columns]
        values = np.concatenate(columns, axis=1)
        return KeyedRows(self.feature_names, dims, output(values, _tensor_of(features)))

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
