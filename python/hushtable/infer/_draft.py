"""Networks while importers put them together."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .._printable import named, one_line
from ..errors import ModelError
from ._network import INPUT, Floats, Network, Node, Shape, text

#: What a client does to an opened answer: it stands at the end of a network only.
_POSTS = {"softmax", "sigmoid"}

#: What compiling takes: numbers of a value, and those of all values of a network together, or of
#: all windows over one; and the largest number itself.
NUMBERS_MAX = 1 << 24
NUMBERS_SUM_MAX = 1 << 28
_BOUND_MAX = float(np.float32(1e12))
#: Weights that a reader makes, and no file has: choices of channels, zeros between others.
_MADE_MAX = 1 << 27


@dataclass
class Numbers:
    """Counts those of a network's values, of which compiling takes so many.

    Attributes:
        total: of those that were taken.
    """

    total: int = 0

    def add(self, sizes: Iterable[int]) -> str:
        """Says what is wrong with a value of these sizes; nothing where it is taken."""
        count = math.prod(sizes)
        if count > NUMBERS_MAX:
            return f"{count} numbers: at most {NUMBERS_MAX} are possible of one value"
        if (total := self.total + count) > NUMBERS_SUM_MAX:
            return f"{total} numbers of all values so far: at most {NUMBERS_SUM_MAX} are possible"
        self.total = total
        return ""


@dataclass
class Draft:
    """A network while an importer puts it together; every node is checked as it is added.

    What it takes is bounded as what compiling takes is: a file of a few bytes can claim sizes that
    no memory has.

    Attributes:
        input: channels, rows and columns.
        source: what is imported, for messages.
    """

    input: Shape
    source: str
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Floats] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _shapes: dict[str, Shape] = field(default_factory=dict)
    _numbers: Numbers = field(default_factory=Numbers)
    _made: int = 0

    def __post_init__(self) -> None:
        if why := self._numbers.add(self.input):
            raise self.wrong("the input", why)
        self._shapes[INPUT] = self.input

    def shape(self, name: str) -> Shape:
        """Of what a node gives."""
        return self._shapes[name]

    def wrong(self, where: str, what: str) -> ModelError:
        """An error about a node."""
        return ModelError(one_line(f"{self.source}, {where}: {what}"))

    def make(self, name: str, count: int) -> None:
        """Counts weights that are about to be made, and that no file has.

        Raises:
            ModelError: too many of them.
        """
        if (made := self._made + count) > _MADE_MAX:
            raise self.wrong(
                name,
                f"{made} weights that the file does not have: at most {_MADE_MAX} are "
                "possible, for channels that are chosen, zeros between weights and the like",
            )
        self._made = made

    def tensor(self, name: str, values: npt.ArrayLike) -> str:
        """Keeps weights, as float32, and returns their name; another where that one is taken.

        Raises:
            ModelError: weights that are not finite.
        """
        array = np.ascontiguousarray(values, np.float32)
        if not np.isfinite(array).all():
            raise self.wrong(name, "weights that are not finite")
        name = _free(name, self.tensors)
        self.tensors[name] = array
        return name

    def leave_out(self, name: str, why: str) -> None:
        """Notes an operator that changes nothing."""
        self.notes.append(f"{named(name)}: {why}")

    def conv(
        self,
        name: str,
        source: str,
        weight: npt.ArrayLike,
        bias: npt.ArrayLike | None,
        *,
        stride: Sequence[int] = (1, 1),
        pad: Sequence[int] = (0, 0, 0, 0),
        groups: int = 1,
        dilation: Sequence[int] = (1, 1),
    ) -> str:
        """Adds a convolution; ``pad`` is top, left, bottom, right.

        A dilated kernel gets zeros between its weights: it costs what one of that size does.
        """
        kernel = np.asarray(weight)
        wide = tuple(kernel.shape[2:])
        if kernel.ndim == 4 and tuple(dilation) != (1, 1):
            if min(dilation) < 1:
                raise self.wrong(name, f"dilations of {tuple(dilation)}: 1 or more are possible")
            wide = tuple((size - 1) * by + 1 for size, by in zip(wide, dilation, strict=True))
        channels, rows, columns = self.shape(source)
        if kernel.ndim != 4 or groups < 1 or kernel.shape[1] * groups != channels:
            raise self.wrong(
                name, f"weights of {kernel.shape} in {groups} groups over {channels} channels"
            )
        if kernel.shape[0] % groups:
            raise self.wrong(name, f"{kernel.shape[0]} kernels in {groups} groups")
        size = self._windows(name, source, wide, stride, pad)
        if size is None:
            raise self.wrong(
                name, f"a kernel of {wide} over {rows} x {columns}, padded by {tuple(pad)}"
            )
        if wide != kernel.shape[2:]:
            kernel = self._dilated(name, kernel, wide, dilation)
        attributes = {
            "weight": self.tensor(f"{name}.weight", kernel),
            **self._bias(name, bias, kernel.shape[0]),
            "stride": list(stride),
            "pad": list(pad),
            "groups": groups,
        }
        return self._add(name, "conv", [source], attributes, (kernel.shape[0], *size))

    def _dilated(
        self, name: str, kernel: npt.NDArray[Any], wide: Sequence[int], dilation: Sequence[int]
    ) -> Floats:
        shape = (*kernel.shape[:2], *wide)
        self.make(name, math.prod(shape))
        found = np.zeros(shape, np.float32)
        found[:, :, :: dilation[0], :: dilation[1]] = kernel
        return found

    def _windows(
        self,
        name: str,
        source: str,
        kernel: Sequence[int],
        stride: Sequence[int],
        pad: Sequence[int],
    ) -> tuple[int, int] | None:
        """How many windows there are down and across; None where none fits, or sizes are none.

        Raises:
            ModelError: more zeros, or numbers in windows, than are computed with.
        """
        channels, rows, columns = self.shape(source)
        size = _windows(rows, columns, kernel, stride, pad)
        if size is None:
            return None
        padded = channels * (rows + pad[0] + pad[2]) * (columns + pad[1] + pad[3])
        if padded > 2 * NUMBERS_MAX:
            raise self.wrong(
                name,
                f"with the zeros around {padded} numbers: at most {2 * NUMBERS_MAX} are possible",
            )
        inside = channels * math.prod(size) * math.prod(kernel)
        if inside > NUMBERS_SUM_MAX:
            raise self.wrong(
                name,
                f"{inside} numbers in all windows: at most {NUMBERS_SUM_MAX} are possible",
            )
        return size

    def linear(
        self, name: str, source: str, weight: npt.ArrayLike, bias: npt.ArrayLike | None
    ) -> str:
        """Adds a fully connected layer; weights are outputs x inputs."""
        matrix = np.asarray(weight)
        channels, rows, columns = self.shape(source)
        if rows * columns > 1:
            raise self.wrong(
                name, f"a matrix over {channels} x {rows} x {columns}: flatten before it"
            )
        if matrix.ndim != 2 or matrix.shape[1] != channels:
            raise self.wrong(name, f"a matrix of {matrix.shape} for {channels} numbers")
        attributes = {
            "weight": self.tensor(f"{name}.weight", matrix),
            **self._bias(name, bias, matrix.shape[0]),
        }
        return self._add(name, "linear", [source], attributes, (matrix.shape[0], 1, 1))

    def _bias(self, name: str, bias: npt.ArrayLike | None, outputs: int) -> dict[str, str]:
        if bias is None:
            return {}
        if np.shape(bias) != (outputs,):
            raise self.wrong(name, f"a bias of {np.shape(bias)} for {outputs} outputs")
        return {"bias": self.tensor(f"{name}.bias", bias)}

    def batch_norm(
        self,
        name: str,
        source: str,
        *,
        scale: npt.ArrayLike,
        shift: npt.ArrayLike,
        mean: npt.ArrayLike,
        variance: npt.ArrayLike,
        epsilon: float,
    ) -> str:
        """Adds scale · (x - mean) / sqrt(variance + epsilon) + shift, of each channel."""
        shape = self.shape(source)
        parts = {"scale": scale, "shift": shift, "mean": mean, "variance": variance}
        for part, values in parts.items():
            if np.shape(values) != (shape[0],):
                raise self.wrong(name, f"{part} of {np.shape(values)} for {shape[0]} channels")
        if not epsilon >= 0 or not (np.asarray(variance, np.float64) + epsilon > 0).all():
            raise self.wrong(name, "a variance that is not positive")
        attributes: dict[str, Any] = {
            part: self.tensor(f"{name}.{part}", values) for part, values in parts.items()
        }
        attributes["epsilon"] = float(epsilon)
        return self._add(name, "batch_norm", [source], attributes, shape)

    def affine(self, name: str, source: str, scale: npt.ArrayLike, shift: npt.ArrayLike) -> str:
        """Adds scale · x + shift, of each channel or by one number for all."""
        channels = self.shape(source)[0]
        self.make(name, 4 * channels)
        values = []
        for part in (scale, shift):
            found = np.squeeze(np.asarray(part, np.float32))
            if found.ndim == 0:
                found = np.full(channels, found, np.float32)
            if found.shape != (channels,):
                raise self.wrong(
                    name,
                    f"constants of {np.shape(part)} for {channels} channels: one each is possible",
                )
            values.append(found)
        return self.batch_norm(
            name,
            source,
            scale=values[0],
            shift=values[1],
            mean=np.zeros(channels, np.float32),
            variance=np.ones(channels, np.float32),
            epsilon=0.0,
        )

    def relu(self, name: str, source: str, most: float | None = None) -> str:
        """Adds a ReLU; ``most`` is the largest number that it gives (6 in a ReLU6), if any."""
        if most is None:
            return self._add(name, "relu", [source], {}, self.shape(source))
        largest = float(np.float32(most))
        if not 0 < largest <= _BOUND_MAX:
            raise self.wrong(
                name,
                f"a ReLU of at most {most}: a number above 0, and up to 1e12, is possible",
            )
        return self._add(name, "relu", [source], {"max": largest}, self.shape(source))

    def clip(self, name: str, source: str, least: float, most: float) -> str:
        """Adds min(max(x, least), most): a ReLU, with what it is shifted by around it."""
        if not -math.inf < least < most < math.inf:
            raise self.wrong(
                name, f"a clip to {least} and {most}: two finite numbers that rise are possible"
            )
        if least == 0:
            return self.relu(name, source, most)
        # What is shifted far and back loses the digits that float32 does not hold.
        if max(-least, most) > 2**16 or abs(least) > 2**10 * (most - least):
            raise self.wrong(
                name, f"a clip to {least} and {most}: bounds nearer to each other, and to 0, please"
            )
        down = self.affine(f"{name}.down", source, 1.0, -least)
        inside = self.relu(f"{name}.relu", down, most - least)
        return self.affine(name, inside, 1.0, least)

    def leaky_relu(self, name: str, source: str, slope: npt.ArrayLike) -> str:
        """Adds x where it is positive and slope · x elsewhere, by one slope or one a channel.

        It is slope · x + (1 - slope) · relu(x): a ReLU, and x kept beside it.
        """
        slopes = np.asarray(slope, np.float64)
        if not slopes.any():
            return self.relu(name, source)
        kept = self.affine(f"{name}.slope", source, slopes, 0.0)
        relu = self.relu(f"{name}.relu", source)
        return self.add(name, kept, self.affine(f"{name}.rest", relu, 1 - slopes, 0.0))

    def pad(self, name: str, source: str, pad: Sequence[int]) -> str:
        """Adds zeros around planes: top, left, bottom, right."""
        if not any(pad):
            self.leave_out(name, "a pad of nothing")
            return source
        channels = self.shape(source)[0]
        self.make(name, channels)
        kernel = np.ones((channels, 1, 1, 1), np.float32)
        return self.conv(name, source, kernel, None, pad=pad, groups=channels)

    def pad_channels(self, name: str, source: str, before: int, after: int) -> str:
        """Adds channels of zeros."""
        channels = self.shape(source)[0]
        whole = before + channels + after
        self.make(name, whole * channels)
        kernel = np.eye(whole, channels, -before, np.float32)
        return self.conv(name, source, kernel[:, :, None, None], None)

    def places(
        self,
        name: str,
        source: str,
        kernel: Sequence[int],
        place: Sequence[int],
        stride: Sequence[int],
    ) -> str:
        """Adds a choice of rows and columns: of each window the number at one place."""
        channels = self.shape(source)[0]
        self.make(name, channels * math.prod(kernel))
        weight = np.zeros((channels, 1, *kernel), np.float32)
        weight[:, :, place[0], place[1]] = 1
        return self.conv(name, source, weight, None, stride=stride, groups=channels)

    def channels(self, name: str, source: str, which: Sequence[int]) -> str:
        """Adds a choice of channels, in the order given: a convolution of ones and zeros."""
        count = self.shape(source)[0]
        if len(which) == count and all(map(operator.eq, which, range(count))):
            self.leave_out(name, "all channels in their order")
            return source
        if not which or not all(0 <= one < count for one in which):
            raise self.wrong(name, f"channels {list(which[:100])} of {count}")
        self.make(name, len(which) * count)
        kernel = np.zeros((len(which), count, 1, 1), np.float32)
        kernel[np.arange(len(which)), list(which)] = 1
        return self.conv(name, source, kernel, None)

    def concat(self, name: str, sources: Sequence[str]) -> str:
        """Adds planes after each other, of the same rows and columns."""
        shapes = [self.shape(one) for one in sources]
        if len({shape[1:] for shape in shapes}) != 1:
            texts = ", ".join(f"({text(shape)})" for shape in shapes)
            raise self.wrong(name, f"planes of {texts} after each other: they must be alike")
        if len(sources) == 1:
            self.leave_out(name, "one part alone")
            return sources[0]
        channels = sum(shape[0] for shape in shapes)
        return self._add(name, "concat", list(sources), {}, (channels, *shapes[0][1:]))

    def pool(
        self,
        name: str,
        op: str,
        source: str,
        kernel: Sequence[int],
        stride: Sequence[int],
        pad: Sequence[int] = (0, 0, 0, 0),
        *,
        ceil: bool = False,
    ) -> str:
        """Adds ``max_pool`` or ``average_pool``; one of 1 x 1 is left out.

        With ``ceil`` a last window may reach over the end, if it begins before it.
        """
        channels, rows, columns = self.shape(source)
        if ceil and (more := _over(rows, columns, kernel, stride, pad)) != (0, 0):
            if op == "average_pool":
                raise self.wrong(
                    name, "means of windows that reach over the end (ceil_mode) are not possible"
                )
            pad = (pad[0], pad[1], pad[2] + more[0], pad[3] + more[1])
        size = self._windows(name, source, kernel, stride, pad)
        if size is None:
            raise self.wrong(name, f"windows of {tuple(kernel)} over {rows} x {columns}")
        if math.prod(kernel) == 1 and math.prod(stride) == 1 and not any(pad):
            self.leave_out(name, "a pool of 1 x 1")
            return source
        if op == "average_pool" and tuple(kernel) == (rows, columns) and not any(pad):
            return self.global_average_pool(name, source)
        attributes = {"kernel": list(kernel), "stride": list(stride), "pad": list(pad)}
        return self._add(name, op, [source], attributes, (channels, *size))

    def global_average_pool(self, name: str, source: str) -> str:
        """Adds the mean of each plane."""
        shape = (self.shape(source)[0], 1, 1)
        return self._add(name, "global_average_pool", [source], {}, shape)

    def add(self, name: str, left: str, right: str) -> str:
        """Adds a sum of two."""
        if self.shape(left) != self.shape(right):
            shapes = f"({text(self.shape(left))}) and ({text(self.shape(right))})"
            raise self.wrong(name, f"a sum of {shapes}: they must be alike")
        return self._add(name, "add", [left, right], {}, self.shape(left))

    def flatten(self, name: str, source: str) -> str:
        """Adds a flattening; one of what is flat is left out."""
        shape = self.shape(source)
        if shape[1:] == (1, 1):
            return source
        return self._add(name, "flatten", [source], {}, (math.prod(shape), 1, 1))

    def post(self, name: str, op: str, source: str) -> str:
        """Adds ``softmax`` or ``sigmoid``, at the network's end: who opens the answer does it."""
        if self.shape(source)[1:] != (1, 1):
            raise self.wrong(name, f"a {op} over planes: it is possible over one row, at the end")
        return self._add(name, op, [source], {}, self.shape(source))

    def _add(
        self, name: str, op: str, inputs: list[str], attributes: dict[str, Any], shape: Shape
    ) -> str:
        for one in inputs:
            if one != INPUT and self.op(one) in _POSTS:
                raise self.wrong(
                    name, f"a {op} after a {self.op(one)}: that is possible at the end only"
                )
        if why := self._numbers.add(shape):
            raise self.wrong(name, why)
        name = _free(name or op, self._shapes)
        self.nodes.append(Node(name, op, tuple(inputs), attributes, shape))
        self._shapes[name] = shape
        return name

    def op(self, name: str) -> str:
        """Which operator a node is."""
        return next(node.op for node in self.nodes if node.name == name)

    def finish(self, output: str, range: tuple[float, float] | None = None) -> Network:
        """The network, of those nodes that the output needs.

        Raises:
            ModelError: no node at all.
        """
        if output == INPUT:
            raise ModelError(f"{self.source}: the output is the input: there is nothing to compute")
        needed = {output}
        for node in reversed(self.nodes):
            if node.name in needed:
                needed.update(node.inputs)
        nodes = tuple(node for node in self.nodes if node.name in needed)
        for node in self.nodes:
            if node.name not in needed:
                self.leave_out(node.name, "the output does not depend on it")
        read = _names(nodes)
        tensors = {name: tensor for name, tensor in self.tensors.items() if name in read}
        return Network(self.input, nodes, output, tensors, range, tuple(self.notes))


def _names(nodes: Sequence[Node]) -> set[str]:
    """Of the tensors that nodes read."""
    return {value for node in nodes for value in node.attributes.values() if isinstance(value, str)}


def _free(name: str, taken: Mapping[str, Any]) -> str:
    if name not in taken:
        return name
    at = 2
    while f"{name}_{at}" in taken:
        at += 1
    return f"{name}_{at}"


def _windows(
    rows: int, columns: int, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]
) -> tuple[int, int] | None:
    """How many windows there are down and across; None where none fits, or sizes are none."""
    if min(*kernel, *stride) < 1 or min(pad) < 0:
        return None
    down = rows + pad[0] + pad[2] - kernel[0]
    across = columns + pad[1] + pad[3] - kernel[1]
    if down < 0 or across < 0:
        return None
    return down // stride[0] + 1, across // stride[1] + 1


def _over(
    rows: int, columns: int, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]
) -> tuple[int, int]:
    """By how much the last windows reach over the end, if those that begin before it count."""
    over = []
    for at, size in enumerate((rows, columns)):
        whole = size + pad[at] + pad[at + 2] - kernel[at]
        steps = -(-whole // stride[at])
        if steps * stride[at] >= size + pad[at]:
            steps -= 1
        over.append(max(steps * stride[at] - whole, 0))
    return over[0], over[1]


def same_pad(
    rows: int,
    columns: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    *,
    more_below: bool = True,
) -> tuple[int, int, int, int]:
    """The zeros around an image with which windows of a stride are its sizes over that, rounded up.

    Of an odd number one more stands below and to the right, or above and to the left.
    """
    less, more = [], []
    for size, window, step in zip((rows, columns), kernel, stride, strict=True):
        whole = max((math.ceil(size / step) - 1) * step + window - size, 0)
        less.append(whole // 2)
        more.append(whole - whole // 2)
    if more_below:
        return less[0], less[1], more[0], more[1]
    return more[0], more[1], less[0], less[1]
