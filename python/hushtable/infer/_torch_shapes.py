"""Torch's functions of where numbers stand: flattening, views, parts, and parts put together."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._draft import Draft
from ._torch_tensors import BATCH, Operators, Regrouped, Tensor, truth

_ROWS_AND_COLUMNS = {2: 2, 3: 3, -2: 2, -1: 3}


class Shapes(Operators):
    """Sizes, views, parts of channels, rows and columns, and channels put together."""

    def __init__(self, torch: Any, draft: Draft, dtype: Any) -> None:
        super().__init__(torch, draft, dtype)
        shuffle = torch.nn.functional.channel_shuffle
        self.alike = {
            torch.nn.Flatten: (self._flatten, ("start_dim", "end_dim")),
            torch.nn.ChannelShuffle: (self._shuffle, ("groups",)),
        }
        self.functions = {
            getattr: self._attribute,
            operator.getitem: self._item,
            shuffle: self._shuffle,
        }
        self.of_both(
            {
                "flatten": self._flatten,
                "reshape": self._view,
                "mean": self._mean,
                "chunk": self._chunk,
                "split": self._split,
                "narrow": self._narrow,
                "cat": self._cat,
                "concat": self._cat,
                "concatenate": self._cat,
                "transpose": self._transpose,
                "unsqueeze": self._unsqueeze,
            }
        )
        self.methods |= {"view": self._view, "size": self._size, "contiguous": self._contiguous}
        self.first = [
            *(self._item, self._cat, self._attribute, self._size, self._view, self._contiguous),
            *(self._transpose, self._unsqueeze),
        ]

    # Sizes.

    def _attribute(self, name: str, input: Any, attribute: str) -> Any:
        if attribute != "shape":
            raise self.wrong(name, f"a tensor's {attribute}: its shape is possible")
        return self._size(name, input)

    def _size(self, name: str, input: Any, dim: int | None = None) -> Any:
        if isinstance(input, Regrouped):
            planes = self.draft.shape(input.tensor.name)[1:]
            sizes: tuple[Any, ...] = (BATCH, *input.order.shape, *planes)
        elif isinstance(input, Tensor):
            sizes = (BATCH, *self.draft.shape(input.name)[: input.rank - 1])
        else:
            raise self.wrong(name, f"the shape of {input}: that of a tensor is possible")
        return sizes if dim is None else sizes[dim]

    # Views.

    def _flatten(self, name: str, input: Tensor, start_dim: Any = 0, end_dim: Any = -1) -> Tensor:
        if start_dim not in (1, 1 - input.rank) or end_dim not in (-1, input.rank - 1):
            raise self.wrong(name, f"dimensions {start_dim} to {end_dim}: 1 to -1 are possible")
        return input.view(self.draft.flatten(name, input.name), 2)

    def _view(self, name: str, input: Any, *sizes: Any, shape: Any = None) -> Tensor | Regrouped:
        if isinstance(input, Tensor):
            channels = self.draft.shape(input.name)[0]
            input = Regrouped(input.view(input.name, input.rank), np.arange(channels))
        if not isinstance(input, Regrouped):
            raise self.wrong(name, f"a view of {input}: one of a tensor is possible")
        whole = (shape,) if shape is not None else sizes
        whole = whole[0] if len(whole) == 1 and isinstance(whole[0], tuple) else whole
        tensor, order = input.tensor, input.order
        planes = self.draft.shape(tensor.name)[1:]
        count = order.size * math.prod(planes)
        rest = self._rest(whole, count)
        if rest == (count,):
            ordered = self._ordered(name, tensor, order)
            return tensor.view(self.draft.flatten(name, ordered), 2)
        if rest[-2:] != planes or len(rest) < 3:
            raise self.wrong(
                name,
                f"a view as {whole}: (x.size(0), -1), (-1, {count}), or rows and columns as they "
                f"are after channels in groups is possible",
            )
        if len(rest) == 3:
            return tensor.view(self._ordered(name, tensor, order), 4)
        return Regrouped(tensor, order.reshape(rest[:-2]))

    def _rest(self, sizes: Sequence[Any], count: int) -> tuple[int, ...]:
        """The sizes after the number of images; none where that is not the first alone."""
        if not sizes or not all(isinstance(one, int) for one in sizes[1:]):
            return ()
        rest = list(sizes[1:])
        if sizes[0] is BATCH and rest.count(-1) == 1:
            known = -math.prod(rest)
            rest[rest.index(-1)] = count // known if known > 0 else 0
        elif sizes[0] is not BATCH and sizes[0] != -1:
            return ()
        return tuple(rest) if math.prod(rest) == count and min(rest, default=0) > 0 else ()

    def _ordered(self, name: str, tensor: Tensor, order: npt.NDArray[np.intp]) -> str:
        which = [int(one) for one in order.ravel()]
        if which == list(range(self.draft.shape(tensor.name)[0])):
            return tensor.name
        return self.draft.channels(name, tensor.name, which)

    def _contiguous(self, name: str, input: Any) -> Tensor | Regrouped:
        if isinstance(input, Tensor):
            return input.view(input.name, input.rank)
        return self._regrouped(name, input)

    def _regrouped(self, name: str, input: Any) -> Regrouped:
        if not isinstance(input, Regrouped):
            raise self.wrong(name, f"it is called with {input}: channels in groups are possible")
        return input

    def _transpose(self, name: str, input: Any, dim0: Any, dim1: Any) -> Regrouped:
        """Groups of channels, and the channels in each, change places."""
        order = self._regrouped(name, input).order
        axes = [one + order.ndim + 3 if one < 0 else one for one in (dim0, dim1)]
        if not all(1 <= one <= order.ndim for one in axes):
            raise self.wrong(
                name, f"dimensions {dim0} and {dim1}: those of groups of channels are possible"
            )
        return Regrouped(input.tensor, order.swapaxes(axes[0] - 1, axes[1] - 1))

    def _unsqueeze(self, name: str, input: Any, dim: Any) -> Tensor:
        """One channel, as ``x[:, 0]`` is, becomes one in a dimension of its own."""
        found = self._regrouped(name, input)
        if found.order.ndim != 0 or dim not in (1, -3):
            raise self.wrong(name, f"dimension {dim}: 1, of one channel without one, is possible")
        return found.tensor.view(self._ordered(name, found.tensor, found.order), 4)

    def _mean(self, name: str, input: Tensor, dim: Any = None, keepdim: Any = False) -> Tensor:
        axes = dim if isinstance(dim, tuple) else (dim,)
        if sorted(_ROWS_AND_COLUMNS.get(axis, -1) for axis in axes) != [2, 3]:
            raise self.wrong(name, f"a mean over {dim}: one over (2, 3) is possible")
        made = self.draft.global_average_pool(name, self.images(name, input))
        return Tensor(made, 4 if truth(keepdim) else 2)

    # Parts, and parts put together.

    def _item(self, name: str, input: Any, at: Any) -> Any:
        if isinstance(input, tuple):
            return input[at]
        if not isinstance(input, Tensor):
            raise self.wrong(name, f"a part of {input}: one of a tensor is possible")
        places = at if isinstance(at, tuple) else (at,)
        if places.count(...) == 1:
            middle = places.index(...)
            filled = (slice(None),) * (input.rank - len(places) + 1)
            places = (*places[:middle], *filled, *places[middle + 1 :])
        places = (*places, *(slice(None),) * (input.rank - len(places)))
        is_fixed = all(type(one) is int or isinstance(one, slice) for one in places)
        if len(places) != input.rank or not is_fixed or places[0] != slice(None):
            raise self.wrong(
                name, f"the part {at}: slices of channels, rows and columns are possible"
            )
        sizes = self.draft.shape(input.name)
        ranges = [_range(one, size) for one, size in zip(places[1:], sizes, strict=False)]
        whole = [*ranges, *map(range, sizes[len(ranges) :])]
        made = self._chosen(name, input.name, whole)
        match [type(one) is int for one in places[1:]]:
            case [False] | [False, False, False]:
                return input.view(made, input.rank)
            case [False, True, True]:
                return input.view(made, 2)
            case [True, False, False]:
                return Regrouped(input.view(made, 4), np.zeros((), np.intp))
        raise self.wrong(name, f"the part {at}: a dimension less is not possible")

    def _chosen(self, name: str, source: str, ranges: Sequence[range]) -> str:
        """Some channels, and of those some rows and columns: a window with a one in it."""
        shape = self.draft.shape(source)
        if not all(ranges):
            raise self.wrong(name, "a part of nothing")
        if len(ranges[0]) < shape[0]:
            source = self.draft.channels(name, source, ranges[0])
        if all(len(one) == size for one, size in zip(ranges[1:], shape[1:], strict=True)):
            return source
        # The least window that holds the first number and fits as often as there are numbers.
        kernel = [
            max(one.start + 1, size - len(one) * one.step + 1)
            for one, size in zip(ranges[1:], shape[1:], strict=True)
        ]
        place, stride = zip(*((one.start, one.step) for one in ranges[1:]), strict=True)
        return self.draft.places(name, source, kernel, place, stride)

    def _parts(self, name: str, input: Tensor, dim: Any, sizes: Sequence[int]) -> tuple[Any, ...]:
        channels, *planes = self.draft.shape(input.name)
        if dim not in (1, 1 - input.rank):
            raise self.wrong(name, f"parts of dimension {dim}: those of 1 are possible")
        if sum(sizes) != channels or min(sizes) < 1:
            raise self.wrong(name, f"{list(sizes)} of {channels} channels")
        found, begin = [], 0
        for at, size in enumerate(sizes):
            ranges = [range(begin, begin + size), *map(range, planes)]
            found.append(input.view(self._chosen(f"{name}.{at}", input.name, ranges), input.rank))
            begin += size
        return tuple(found)

    def _chunk(self, name: str, input: Tensor, chunks: Any, dim: Any = 0) -> tuple[Any, ...]:
        return self._split(name, input, -(-self.draft.shape(input.name)[0] // chunks), dim)

    def _split(self, name: str, input: Tensor, split_size: Any, dim: Any = 0) -> tuple[Any, ...]:
        channels = self.draft.shape(input.name)[0]
        if isinstance(split_size, tuple):
            sizes = [operator.index(one) for one in split_size]
        else:
            begins = range(0, channels, operator.index(split_size))
            sizes = [min(begins.step, channels - begin) for begin in begins]
        return self._parts(name, input, dim, sizes)

    def _narrow(self, name: str, input: Tensor, dim: Any, start: Any, length: Any) -> Any:
        channels = self.draft.shape(input.name)[0]
        begin = operator.index(start) + (channels if start < 0 else 0)
        end = begin + operator.index(length)
        if dim not in (1, 1 - input.rank) or not 0 <= begin < end <= channels:
            raise self.wrong(
                name,
                f"{length} from {start} of dimension {dim}: of {channels} channels (1), "
                "some are possible",
            )
        return self._item(name, input, (slice(None), slice(begin, end)))

    def _cat(self, name: str, tensors: Any, dim: Any = 0) -> Tensor:
        if not isinstance(tensors, tuple) or not all(isinstance(one, Tensor) for one in tensors):
            raise self.wrong(name, f"it is called with {tensors}: tensors are possible")
        ranks = {one.rank for one in tensors}
        if len(ranks) != 1:
            raise self.wrong(name, "images and rows after each other: flatten the images")
        rank = ranks.pop()
        if dim not in (1, 1 - rank):
            raise self.wrong(name, f"tensors after each other in dimension {dim}: 1 is possible")
        return Tensor(self.draft.concat(name, [one.name for one in tensors]), rank)

    def _shuffle(self, name: str, input: Tensor, groups: Any) -> Tensor:
        self.images(name, input)
        order = np.arange(self.draft.shape(input.name)[0]).reshape(operator.index(groups), -1)
        return Tensor(self._ordered(name, input, order.T), 4)


def _range(place: Any, size: int) -> range:
    """What a place of a dimension names of it."""
    if not isinstance(place, slice):
        return range(size)[place : place + 1 or None]
    found = range(*place.indices(size))
    if found.step < 1:
        raise ValueError(f"the slice {place} goes backwards")
    return found
