"""The layers of one table."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from .._bags import FloatArray, IntArray, Mode, bag_bounds, check_mode, reduce_bags
from .._ids import Ids, default_max_ids, flatten_ids
from .._types import LookupStats
from ..errors import ConfigError, IdOutOfRange, NoLayout, TooManyIds
from ._module import (
    HAS_TORCH,
    Served,
    as_tensor,
    check_answers_now,
    is_tensor,
    offset_array,
    output,
    weight_array,
)
from ._sources import BagSource, FeatureFacts, ModelSource, RowSource
from ._trips import DistinctIds, foreseen, note

if HAS_TORCH:
    import torch

    from . import _ops

__all__ = ["PrivateEmbedding", "PrivateEmbeddingBag"]


class _Layer(Served):
    """What both layers share: a source of rows, padding, and one round trip a call."""

    source: RowSource
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    max_ids: int | None
    use_layout: bool
    #: Bool in the shape of the last input: which elements had their rows; None before the first
    #: call. All are True without ``use_layout``, and padding always is.
    last_kept: Any
    last_stats: LookupStats | None = None
    #: The model that answers for several layers at once, and the feature that this one asks.
    served_by: ModelSource | None = None
    feature: FeatureFacts | None = None

    def __init__(
        self, source: RowSource, padding_idx: int | None, max_ids: int | None, use_layout: bool
    ) -> None:
        super().__init__()
        check_answers_now(source)
        info = source.info
        if use_layout:
            _check_layout(source, max_ids)
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
        self.use_layout = use_layout
        self.last_kept = None

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_ids is not None:
            text += f", max_ids={self.max_ids}"
        return text + (", use_layout=True" if self.use_layout else "")

    def tables(self) -> dict[str, dict[str, Any]]:
        """By name, the table that this layer reads: ``rows``, ``dim`` and ``version``."""
        info = self.source.info
        return {info.name: {"rows": info.rows, "dim": info.dim, "version": info.version}}

    def look_up(self, ids: Any, offsets: Any | None, weights: Any | None) -> tuple[Any, Any]:
        """The rows of a tensor of ids, and which were kept: what ``hushtable::lookup`` does."""
        flat, shape = flatten_ids(ids)
        bounds, _ = self._check(shape, offsets, weights)
        rows, kept = self._fetch(flat, shape, bounds, ids)
        # A program may write into its operators' results: these are its own.
        fetched = output(rows.reshape(*shape, self.embedding_dim), ids)
        return fetched, output(kept.reshape(shape).copy(), ids)

    def _check(
        self, shape: tuple[int, ...], offsets: Any | None, weights: Any | None
    ) -> tuple[IntArray, FloatArray | None]:
        """Where the call's inferences begin and end in the flat ids, and the rows' weights, flat.

        Offsets and weights are held against the ids' shape, before anything is sent.
        """
        raise TypeError(f"{type(self).__name__} says nothing of its inferences")

    def _fetch(
        self,
        ids: npt.NDArray[np.uint64],
        shape: tuple[int, ...],
        bounds: IntArray,
        like: Any,
    ) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """The rows of flat ids, zero for padding and what was dropped, and which were not dropped.

        One round trip (by a layout, as many as the servers take to answer so many inferences).
        """
        if self.use_layout:
            rows, kept = self._fetch_bags(ids, bounds)
        else:
            rows, kept = self._fetch_distinct(ids), np.ones(ids.shape, dtype=np.bool_)
        self.last_kept = output(kept.reshape(shape), like)
        return rows, kept

    def _fetch_bags(
        self, ids: npt.NDArray[np.uint64], bounds: IntArray
    ) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """By the source's layout. Repeats go along: they decide what is dropped."""
        rows = np.zeros((ids.size, self.embedding_dim), dtype=np.float32)
        kept = np.ones(ids.shape, dtype=np.bool_)
        wanted = np.full(ids.shape, True) if self.padding_idx is None else ids != self.padding_idx
        # What is after the last bound is in no bag.
        wanted[bounds[-1] :] = False
        parts = [ids[first:end][wanted[first:end]] for first, end in pairwise(bounds)]
        bags = cast(BagSource, self.source).lookup_bags(parts)
        self._note()
        if bags:
            rows[wanted] = np.concatenate([bag.rows for bag in bags])
            kept[wanted] = np.concatenate([bag.kept for bag in bags])
        return rows, kept

    def asks_for(self, ids: Ids) -> DistinctIds:
        """What a call with such ids looks up.

        Raises:
            BadIds, IdOutOfRange: ids that are none of the table's.
        """
        asked = self._distinct(flatten_ids(ids)[0])
        if asked.wanted.size and (highest := int(asked.wanted[-1])) >= self.num_embeddings:
            raise IdOutOfRange(f"id {highest} is no row", id=highest, rows=self.num_embeddings)
        return asked

    def feature_dims(self) -> dict[str, int]:
        """By feature that the layer asks, the values of a row."""
        return {} if self.feature is None else {self.feature.name: self.embedding_dim}

    def _distinct(self, ids: npt.NDArray[np.uint64]) -> DistinctIds:
        asked = None if self.feature is None else (self.feature.name, self.feature.max_ids)
        return DistinctIds(ids, self.padding_idx, asked)

    def _fetch_distinct(self, ids: npt.NDArray[np.uint64]) -> FloatArray:
        """With others in one round trip where the model's forward has them all; else by itself."""
        asked = self._distinct(ids)
        found = foreseen(self.handle, asked)
        if found is not None:
            rows, self.last_stats = found
            return cast(FloatArray, rows)
        # Padding and repeats are dropped only after the padded size is fixed: it then depends on
        # the input's shape, which the model's author chose, and not on what the user did.
        bound = default_max_ids(ids.size) if self.max_ids is None else self.max_ids
        if asked.wanted.size > bound:
            raise TooManyIds(
                f"{asked.wanted.size} distinct ids in one call, but max_ids is {bound}: "
                "raise max_ids or call with smaller batches",
                ids=asked.wanted.size,
                max_ids=bound,
            )
        rows = asked.spread(self.source.lookup(asked.wanted, max_ids=bound))
        self._note()
        return rows

    def _note(self) -> None:
        """Keeps what a round trip of the layer's own cost."""
        self.last_stats = getattr(self.source, "last_stats", None)
        note(self.last_stats)


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
        use_layout: ask by the table's layout. Each entry of an input of two or more dimensions is
            then one inference, and an input of one dimension or none is one: each sends what the
            layout fixes, whatever its ids are, of at most the layout's ``ids_max`` elements,
            padding aside. All inferences of a call go in one request, or in as few as the servers
            take. Rows that do not fit an inference are dropped: they come back as zeros, and
            ``last_kept`` says which. Tell the model by training it with such rows dropped, or tune
            the layout until few enough are (``hushtable tune``).

    Attributes:
        last_kept: bool in the shape of the last input: False where a row was dropped. Padding
            counts as kept.
        last_stats: what the round trip of the last call cost, which several layers may have shared;
            None before the first, and in the clear.

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
        use_layout: bool = False,
    ) -> None:
        super().__init__(source, padding_idx, max_ids, use_layout)

    def forward(self, input: Ids) -> Any:
        """The rows of ``input`` (integers of any shape ``[*]``): ``[*, dim]``, float32, or of the
        type that the module was turned into.

        Raises:
            IdOutOfRange: an id that is no row of the table; nothing was sent.
            TooManyIds: more distinct ids than ``max_ids``, more ids than the layout is made for;
                nothing was sent.
            ServerError: a server did not answer.
        """
        if is_tensor(input):
            return self._own(_ops.lookup(input, None, None, self.handle)[0])
        ids, shape = flatten_ids(input)
        bounds, _ = self._check(shape, None, None)
        rows, _ = self._fetch(ids, shape, bounds, input)
        return self._own(output(rows.reshape(*shape, self.embedding_dim), input))

    def _check(
        self, shape: tuple[int, ...], offsets: Any | None, weights: Any | None
    ) -> tuple[IntArray, FloatArray | None]:
        entries, each = (shape[0], shape[1:]) if len(shape) > 1 else (1, shape)
        return np.arange(entries + 1, dtype=np.int64) * math.prod(each), None


class PrivateEmbeddingBag(_Layer):
    """``torch.nn.EmbeddingBag`` over a private table.

    Bags are reduced on the client, so the servers see one lookup of ``max_ids`` rows (by a layout,
    how many bags there were); see :class:`PrivateEmbedding` for what the default of ``max_ids``
    shows.

    Args:
        source: as for :class:`PrivateEmbedding`.
        mode: ``"sum"``, ``"mean"`` or ``"max"`` of each bag; an empty bag is zero.
        padding_idx: the id left out of every reduction (and of the mean's count).
        include_last_offset: ``offsets`` ends with the length of the input, as in CSR.
        max_ids: most *distinct* ids in one call, padding aside.
        use_layout: ask by the table's layout, as for :class:`PrivateEmbedding`: each bag is one
            inference, and all bags of a call go in one request, or in as few as the servers take.
            Rows that do not fit are left out of their bag's reduction (and of the mean's count), as
            if their ids were not in it.

    Attributes:
        last_kept: bool in the shape of the last input: False where a row was left out for want of
            room. Padding counts as kept.
        last_stats: as of :class:`PrivateEmbedding`.
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
        use_layout: bool = False,
    ) -> None:
        check_mode(mode)
        super().__init__(source, padding_idx, max_ids, use_layout)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"{super().extra_repr()}, mode={self.mode!r}"

    def forward(
        self, input: Ids, offsets: Any | None = None, per_sample_weights: Any | None = None
    ) -> Any:
        """One row a bag, ``[bags, dim]``, float32, or of the type that the module was turned into.

        Args:
            input: ids, 2-D ``[bags, length]``, or 1-D with ``offsets``.
            offsets: 1-D; where in ``input`` each bag starts. The first is 0.
            per_sample_weights: of ``input``'s shape; rows are scaled by them. Only with
                ``mode="sum"``. They have a gradient, which is made on the client. They may be of
                any type (torch asks for weights of the rows').

        Raises:
            ConfigError: ``per_sample_weights`` with another mode than sum.
            ValueError: shapes or offsets that do not fit.
            IdOutOfRange, TooManyIds, ServerError: as :meth:`PrivateEmbedding.forward`.
        """
        # torch's kernels round once a weighted row, those for padding twice.
        fused = self.padding_idx is None
        if is_tensor(input):
            offsets, weights = as_tensor(offsets, input), as_tensor(per_sample_weights, input)
            checked = None if weights is None else weights.detach()
            found, present = _ops.lookup(input, offsets, checked, self.handle)
            if self.padding_idx is not None:
                present = present & (input != self.padding_idx)
            elif not self.use_layout:
                present = None
            bags = _ops.reduce(
                self._rounded(found),
                present,
                offsets,
                weights,
                self.mode,
                self.include_last_offset,
                fused,
            )
            return self._own(bags)
        ids, shape = flatten_ids(input)
        bounds, scales = self._check(shape, offsets, per_sample_weights)
        rows, kept = self._fetch(ids, shape, bounds, input)
        if self.padding_idx is not None:
            kept = kept & (ids != self.padding_idx)
        if HAS_TORCH:
            rows = self._rounded(torch.from_numpy(rows)).numpy()
        bags = reduce_bags(rows, bounds, self.mode, kept=kept, weights=scales, fused=fused)
        return self._own(output(bags, input))

    def _check(
        self, shape: tuple[int, ...], offsets: Any | None, weights: Any | None
    ) -> tuple[IntArray, FloatArray | None]:
        """Where bags begin and end, and the rows' weights, flat."""
        bounds = bag_bounds(shape, offset_array(offsets), self.include_last_offset)
        if weights is None:
            return bounds, None
        if self.mode != "sum":
            raise ConfigError(
                f'per_sample_weights need mode="sum", this layer has mode={self.mode!r}'
            )
        scales = weight_array(weights)
        if scales.shape != shape:
            raise ValueError(
                f"per_sample_weights must have the input's shape {shape}, not {scales.shape}"
            )
        return bounds, scales.reshape(-1)


def _check_layout(source: RowSource, max_ids: int | None) -> None:
    if max_ids is not None:
        raise ConfigError("with use_layout the layout fixes what is sent: leave max_ids out")
    if not isinstance(source, BagSource):
        raise ConfigError(f"a {type(source).__name__} has no layout: leave use_layout out")
    if source.layout is None:
        raise NoLayout(
            f"table {source.info.name!r} has no layout: leave use_layout out, or serve a bundle "
            "that `hushtable tune --apply` has made"
        )
