"""Embedding layers whose rows are fetched privately.

:class:`PrivateEmbedding` and :class:`PrivateEmbeddingBag` stand where a model has
``torch.nn.Embedding`` and ``torch.nn.EmbeddingBag``. Where torch is installed they are
``torch.nn.Module`` and return tensors (without gradient: the rows live on the servers); where it is
not, they take and return numpy arrays.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from ._bags import FloatArray, IntArray, Mode, bag_bounds, check_mode, reduce_bags
from ._ids import Ids, default_max_ids, flatten_ids
from ._types import TableInfo
from .errors import ConfigError, TooManyIds

try:
    import torch
except ImportError:
    _HAS_TORCH = False
else:
    _HAS_TORCH = True

__all__ = ["PrivateEmbedding", "PrivateEmbeddingBag", "RowSource"]


@runtime_checkable
class RowSource(Protocol):
    """What the layers fetch rows from: a :class:`~hushtable.Client` or a table in the clear."""

    @property
    def info(self) -> TableInfo:
        """The table's shape."""
        ...

    def lookup(self, ids: Ids, max_ids: int | None = None) -> FloatArray:
        """The rows ``ids``."""
        ...


class _NumpyModule(abc.ABC):
    """What is left of ``torch.nn.Module`` without torch: a layer can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    @abc.abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer computes."""


if TYPE_CHECKING:
    _Module = _NumpyModule
else:
    _Module = torch.nn.Module if _HAS_TORCH else _NumpyModule


class _Layer(_Module):
    """What both layers share: a source of rows, padding, and one round trip a call."""

    source: RowSource
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    max_ids: int | None

    def __init__(self, source: RowSource, padding_idx: int | None, max_ids: int | None) -> None:
        super().__init__()
        info = source.info
        if padding_idx is not None:
            if not -info.rows <= padding_idx < info.rows:
                raise ConfigError(
                    f"padding_idx {padding_idx} is not a row: the table has {info.rows} rows"
                )
            padding_idx %= info.rows
        if max_ids is not None and max_ids < 1:
            raise ConfigError(f"max_ids must be at least 1, not {max_ids}")
        self.source = source
        self.num_embeddings = info.rows
        self.embedding_dim = info.dim
        self.padding_idx = padding_idx
        self.max_ids = max_ids

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_ids is not None:
            text += f", max_ids={self.max_ids}"
        return text

    def _fetch(self, ids: npt.NDArray[np.uint64]) -> FloatArray:
        """The rows of flat ids, zero for padding, in one round trip of distinct rows."""
        # Padding and repeats are dropped only after the padded size is fixed: it then depends on
        # the input's shape, which the model's author chose, and not on what the user did.
        bound = default_max_ids(ids.size) if self.max_ids is None else self.max_ids
        wanted, position = np.unique(ids, return_inverse=True)
        if self.padding_idx is not None:
            is_padding = wanted == self.padding_idx
        else:
            is_padding = np.zeros(wanted.shape, dtype=np.bool_)
        distinct = int((~is_padding).sum())
        if distinct > bound:
            raise TooManyIds(
                f"{distinct} distinct ids in one call, but max_ids is {bound}: "
                "raise max_ids or call with smaller batches",
                ids=distinct,
                max_ids=bound,
            )
        rows = np.zeros((wanted.size, self.embedding_dim), dtype=np.float32)
        rows[~is_padding] = self.source.lookup(wanted[~is_padding], max_ids=bound)
        return rows[position.reshape(-1)]

    def _output(self, rows: FloatArray, like: Any) -> Any:
        if not _HAS_TORCH:
            return rows
        tensor = torch.from_numpy(np.ascontiguousarray(rows))
        return tensor.to(like.device) if isinstance(like, torch.Tensor) else tensor


class PrivateEmbedding(_Layer):
    """``torch.nn.Embedding`` over a private table.

    One call is one round trip to each server, whatever the shape of the input. What the servers
    see is that a lookup of ``max_ids`` rows was made. Where ``max_ids`` is not given it is the
    power of two at or above the number of elements of the input, padding included: a model that
    is always called with the same shape then shows nothing; one called with shapes that depend on
    the user shows the logarithm of their size.

    Args:
        source: a connected :class:`~hushtable.Client`, or a :class:`~hushtable.Table` to run the
            same model in the clear.
        padding_idx: the id that stands for "nothing": its row is not fetched and comes back as
            zeros, as in a freshly made ``torch.nn.Embedding``. May be negative, as there.
        max_ids: most *distinct* ids in one call, padding aside.

    Example:
        >>> layer = PrivateEmbedding(client, padding_idx=0, max_ids=64)  # doctest: +SKIP
        >>> layer(history).shape  # doctest: +SKIP
        torch.Size([1, 50, 32])
    """

    def __init__(
        self,
        source: RowSource,
        padding_idx: int | None = None,
        max_ids: int | None = None,
    ) -> None:
        super().__init__(source, padding_idx, max_ids)

    def forward(self, input: Ids) -> Any:
        """The rows of ``input`` (integers of any shape ``[*]``): float32 ``[*, dim]``.

        Raises:
            IdOutOfRange: an id that is no row of the table; nothing was sent.
            TooManyIds: more distinct ids than ``max_ids``; nothing was sent.
            ServerError: a server did not answer.
        """
        ids, shape = flatten_ids(input)
        return self._output(self._fetch(ids).reshape(*shape, self.embedding_dim), input)


class PrivateEmbeddingBag(_Layer):
    """``torch.nn.EmbeddingBag`` over a private table.

    Bags are reduced on the client, so the servers see one lookup of ``max_ids`` rows; see
    :class:`PrivateEmbedding` for what the default of ``max_ids`` shows.

    Args:
        source: as for :class:`PrivateEmbedding`.
        mode: ``"sum"``, ``"mean"`` or ``"max"`` of each bag; an empty bag is zero.
        padding_idx: the id left out of every reduction (and of the mean's count).
        include_last_offset: ``offsets`` ends with the length of the input, as in CSR.
        max_ids: most *distinct* ids in one call, padding aside.
    """

    mode: Mode
    include_last_offset: bool

    def __init__(
        self,
        source: RowSource,
        mode: Mode = "mean",
        padding_idx: int | None = None,
        include_last_offset: bool = False,
        max_ids: int | None = None,
    ) -> None:
        check_mode(mode)
        super().__init__(source, padding_idx, max_ids)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"{super().extra_repr()}, mode={self.mode!r}"

    def forward(
        self, input: Ids, offsets: Any | None = None, per_sample_weights: Any | None = None
    ) -> Any:
        """One row a bag, float32 ``[bags, dim]``.

        Args:
            input: ids, 2-D ``[bags, length]``, or 1-D with ``offsets``.
            offsets: 1-D; where in ``input`` each bag starts. The first is 0.
            per_sample_weights: of ``input``'s shape; rows are scaled by them. Only with
                ``mode="sum"``.

        Raises:
            ConfigError: ``per_sample_weights`` with another mode than sum.
            ValueError: shapes or offsets that do not fit.
            IdOutOfRange, TooManyIds, ServerError: as :meth:`PrivateEmbedding.forward`.
        """
        ids, shape = flatten_ids(input)
        bounds = bag_bounds(shape, _offset_array(offsets), self.include_last_offset)
        weights = None
        if per_sample_weights is not None:
            if self.mode != "sum":
                raise ConfigError(
                    f'per_sample_weights need mode="sum", this layer has mode={self.mode!r}'
                )
            weights = _weight_array(per_sample_weights)
            if weights.shape != shape:
                raise ValueError(
                    f"per_sample_weights must have the input's shape {shape}, not {weights.shape}"
                )
            weights = weights.reshape(-1)
        kept = None if self.padding_idx is None else ids != self.padding_idx
        bags = reduce_bags(self._fetch(ids), bounds, self.mode, kept=kept, weights=weights)
        return self._output(bags, input)


def _offset_array(offsets: Any | None) -> IntArray | None:
    if offsets is None:
        return None
    flat, shape = flatten_ids(offsets)
    return flat.astype(np.int64).reshape(shape)


def _weight_array(weights: Any) -> FloatArray:
    if hasattr(weights, "detach"):
        weights = weights.detach().cpu().numpy()
    return cast(FloatArray, np.asarray(weights, dtype=np.float32))
