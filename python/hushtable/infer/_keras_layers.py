"""What Keras' layers compute, in a draft's operators."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ._draft import Draft, same_pad
from ._keras_file import Sizes, Weights
from ._keras_graph import SIZE_MAX, Layer, is_size
from ._network import INPUT, Floats, Shape

#: Of the activation leaky_relu, which is TensorFlow's.
_LEAKY_RELU_SLOPE = 0.2
#: Those that read two and more.
_OF_SEVERAL = {"Add", "Concatenate"}

_Pad = tuple[int, int, int, int]
_NO_PAD: _Pad = (0, 0, 0, 0)


@dataclass(frozen=True)
class Value:
    """What a layer gives.

    Attributes:
        node: its node in the draft.
        is_row: to Keras it is a row of numbers; otherwise planes.
        order: where a row was planes, or several after each other: their channels, rows and
            columns. Each stands in the file by rows, columns and channels, and here by channels
            first. None where that is the same.
        pad: zeros around planes that are not in the draft yet: what reads them may have its own.
        padded: the layer that they are of.
    """

    node: str
    is_row: bool
    order: tuple[Shape, ...] | None = None
    pad: _Pad = _NO_PAD
    padded: str = ""


class Layers:
    """Adds layers to a draft."""

    def __init__(self, draft: Draft, weights: Weights) -> None:
        self.draft = draft
        self.weights = weights

    def value(self, layer: Layer, sources: list[Value]) -> Value:
        """What a layer gives, all of whose config and weights are read.

        Raises:
            ModelError: something that is not read.
        """
        self._inputs(layer, sources)
        if layer.kind not in _PADDED:
            sources = [self.settled(source) for source in sources]
        with layer.config as own:
            own.common()
            value = _LAYERS[layer.kind](self, layer, *sources)
        if not layer.parts:
            self.weights.take(layer, {})
        return value

    def model(self, layer: Layer, sources: list[Value]) -> Value:
        """What goes into a model that is a layer of another."""
        self._inputs(layer, sources)
        value = self.settled(sources[0])
        channels, rows, columns = self.shape(value)
        sizes = [channels] if value.is_row else [rows, columns, channels]
        if layer.graph is not None and not layer.graph.takes(sizes):
            raise layer.wrong(
                f"its inputs are {layer.graph.sizes!r:.60}, and it reads one of {sizes}"
            )
        return value

    def _inputs(self, layer: Layer, sources: list[Value]) -> None:
        if layer.kind in _OF_SEVERAL:
            if len(sources) < 2:
                raise layer.wrong(f"{len(sources)} inputs: 2 and more are possible")
        elif len(sources) != 1:
            raise layer.wrong(f"{len(sources)} inputs: 1 is possible")

    def settled(self, value: Value) -> Value:
        """A value with all of its zeros around it in the draft."""
        if not any(value.pad):
            return value
        node = self.draft.pad(value.padded, value.node, value.pad)
        return Value(node, value.is_row)

    def shape(self, value: Value) -> Shape:
        """Of a value, with the zeros around it."""
        channels, rows, columns = self.draft.shape(value.node)
        top, left, bottom, right = value.pad
        return channels, top + rows + bottom, left + columns + right

    def planes(self, layer: Layer, value: Value) -> Shape:
        """Of a layer's input, which must be planes, channels last."""
        layer.config.neutral("data_format", "channels_last")
        if value.is_row:
            raise layer.wrong("its input is a row of numbers: planes are possible")
        return self.shape(value)

    def activation(self, layer: Layer, value: Value) -> Value:
        """A value after the activation of a layer's config."""
        found = layer.config.take("activation", None)
        if found is None or found == "linear":
            return value
        name = layer.node if layer.kind == "Activation" else f"{layer.node}_{found!s:.40}"
        if found in ("relu", "relu6"):
            node = self.draft.relu(name, value.node, 6.0 if found == "relu6" else None)
        elif found == "leaky_relu":
            node = self.draft.leaky_relu(name, value.node, _LEAKY_RELU_SLOPE)
        elif found in ("softmax", "sigmoid"):
            node = self.draft.post(f"{layer.node}_{found}", found, value.node)
        else:
            if isinstance(found, dict):
                found = f"that is an object of {found.get('class_name')!s:.40}"
            raise layer.wrong(
                f"the activation {found!s:.60} is not supported: possible are relu, relu6 and "
                "leaky_relu, and at the end softmax and sigmoid"
            )
        return dataclasses.replace(value, node=node)

    def pads(self, layer: Layer, value: Value, kernel: list[int], stride: list[int]) -> _Pad:
        """The pads that windows have by themselves."""
        _, rows, columns = self.planes(layer, value)
        padding = layer.config.take("padding", "valid")
        if padding == "valid":
            return _NO_PAD
        if padding != "same":
            raise layer.wrong(f"padding {padding!r:.60}: valid and same are possible")
        return same_pad(rows, columns, kernel, stride)

    def convolved(
        self,
        layer: Layer,
        value: Value,
        name: str,
        kernel: Floats,
        bias: Floats | None,
        groups: int,
    ) -> str:
        """Adds a convolution by the strides, dilations and pads of a layer's config."""
        own = layer.config
        stride, dilation = own.pair("strides", [1, 1]), own.pair("dilation_rate", [1, 1])
        if max(stride) > 1 and max(dilation) > 1:
            raise layer.wrong(f"strides {stride} with dilation_rate {dilation}: one is possible")
        wide = [(size - 1) * by + 1 for size, by in zip(kernel.shape[2:], dilation, strict=True)]
        pad = _sum(value.pad, self.pads(layer, value, wide, stride))
        return self.draft.conv(
            name,
            value.node,
            kernel,
            bias,
            stride=stride,
            pad=pad,
            groups=groups,
            dilation=dilation,
        )


def _sum(one: _Pad, other: _Pad) -> _Pad:
    top, left, bottom, right = (a + b for a, b in zip(one, other, strict=True))
    return top, left, bottom, right


def _turned(values: Floats, order: tuple[Shape, ...] | None) -> Floats:
    """Weights of a row's numbers, which the file has in its order, in the network's."""
    if order is None:
        return values
    ends = np.cumsum([math.prod(shape) for shape in order])
    parts = []
    for part, (channels, rows, columns) in zip(np.split(values, ends[:-1]), order, strict=True):
        by_rows = part.reshape(rows, columns, channels, -1)
        parts.append(by_rows.transpose(2, 0, 1, 3).reshape(part.shape))
    return np.concatenate(parts)


def _conv(layers: Layers, layer: Layer, value: Value) -> Value:
    own = layer.config
    channels = layers.planes(layer, value)[0]
    filters, size = own.whole("filters", None), own.pair("kernel_size", None)
    groups = own.whole("groups", 1)
    own.trained("kernel", "bias")
    if channels % groups:
        raise layer.wrong(f"{groups} groups of {channels} channels")
    sizes: dict[str, Sizes] = {
        "kernel": (*(size or (None, None)), channels // groups, filters),
        "bias": (filters,),
    }
    weights = layers.weights.take(layer, sizes)
    kernel = weights["kernel"].transpose(3, 2, 0, 1)
    node = layers.convolved(layer, value, layer.node, kernel, weights.get("bias"), groups)
    return layers.activation(layer, Value(node, is_row=False))


def _depthwise(layers: Layers, layer: Layer, value: Value) -> Value:
    """Of each channel alone, and then of all at each place, where the layer is separable."""
    own = layer.config
    channels = layers.planes(layer, value)[0]
    size, each = own.pair("kernel_size", None), own.whole("depth_multiplier", 1)
    own.neutral("groups", 1)
    own.trained("kernel", "depthwise", "pointwise", "bias")
    between = channels * each
    is_separable = layer.kind == "SeparableConv2D"
    filters = own.whole("filters", None) if is_separable else between
    sizes: dict[str, Sizes] = {
        "depthwise_kernel": (*(size or (None, None)), channels, each),
        "pointwise_kernel": (1, 1, between, filters),
        "bias": (filters,),
    }
    weights = layers.weights.take(layer, sizes)
    kernel, bias = weights["depthwise_kernel"], weights.get("bias")
    kernel = kernel.reshape(*kernel.shape[:2], between).transpose(2, 0, 1)[:, None]
    if is_separable:
        node = layers.convolved(layer, value, f"{layer.node}_depthwise", kernel, None, channels)
        kernel = weights["pointwise_kernel"].transpose(3, 2, 0, 1)
        node = layers.draft.conv(layer.node, node, kernel, bias)
    else:
        node = layers.convolved(layer, value, layer.node, kernel, bias, channels)
    return layers.activation(layer, Value(node, is_row=False))


def _dense(layers: Layers, layer: Layer, value: Value) -> Value:
    own, draft = layer.config, layers.draft
    channels, rows, columns = draft.shape(value.node)
    units = own.whole("units", None)
    own.trained("kernel", "bias")
    weights = layers.weights.take(layer, {"kernel": (channels, units), "bias": (units,)})
    matrix, bias = _turned(weights["kernel"], value.order).T, weights.get("bias")
    if rows * columns > 1:
        # Over planes Keras has it at each place, over channels.
        node = draft.conv(layer.node, value.node, matrix[:, :, None, None], bias)
    else:
        node = draft.linear(layer.node, value.node, matrix, bias)
    return layers.activation(layer, Value(node, value.is_row))


def _batch_norm(layers: Layers, layer: Layer, value: Value) -> Value:
    own = layer.config
    last = _last(value)
    own.neutral("axis", -1, last, [-1], [last])
    epsilon = own.number("epsilon", 1e-3)
    own.trained("beta", "gamma")
    # How means and variances are come by in training.
    own.skip("moving_mean_initializer", "moving_variance_initializer", "momentum", "synchronized")
    channels = layers.draft.shape(value.node)[0]
    weights = {
        part: _turned(values, value.order)
        for part, values in layers.weights.take(
            layer, dict.fromkeys(layer.parts, (channels,))
        ).items()
    }
    node = layers.draft.batch_norm(
        layer.node,
        value.node,
        scale=weights.get("gamma", np.ones(channels)),
        shift=weights.get("beta", np.zeros(channels)),
        mean=weights["moving_mean"],
        variance=weights["moving_variance"],
        epsilon=epsilon,
    )
    return dataclasses.replace(value, node=node)


def _rescaling(layers: Layers, layer: Layer, value: Value) -> Value:
    own = layer.config
    scale, offset = own.number("scale", math.nan), own.number("offset", 0.0)
    node = layers.draft.affine(layer.node, value.node, scale, offset)
    return dataclasses.replace(value, node=node)


def _pool(layers: Layers, layer: Layer, value: Value) -> Value:
    kernel = layer.config.pair("pool_size", None) or [2, 2]
    stride = layer.config.pair("strides", None) or kernel
    pad = layers.pads(layer, value, kernel, stride)
    op = "max_pool" if layer.kind == "MaxPooling2D" else "average_pool"
    if op == "average_pool" and any(pad):
        raise layer.wrong("an average of padded windows: padding valid is possible")
    both = _sum(value.pad, pad)
    is_inside = max(both[0::2]) < kernel[0] and max(both[1::2]) < kernel[1]
    # A largest number is one of the pool's own windows, which pass pads over: zeros around numbers
    # of which none is less change it as little, if there is a number in each window.
    is_free = op == "average_pool" or _is_rectified(layers.draft, value.node)
    if not (is_inside and is_free):
        value, both = layers.settled(value), pad
    node = layers.draft.pool(layer.node, op, value.node, kernel, stride, both)
    return Value(node, is_row=False)


def _is_rectified(draft: Draft, node: str) -> bool:
    """Whether no number of a node is below 0, as far as that is seen at once."""
    return node != INPUT and draft.op(node) == "relu"


def _global(layers: Layers, layer: Layer, value: Value) -> Value:
    _, *sizes = layers.planes(layer, value)
    is_row = not layer.config.flag("keepdims", False)
    if layer.kind == "GlobalMaxPooling2D":
        node = layers.draft.pool(layer.node, "max_pool", value.node, sizes, sizes)
    else:
        node = layers.draft.global_average_pool(layer.node, value.node)
    return Value(node, is_row)


def _zeros(layers: Layers, layer: Layer, value: Value) -> Value:
    layers.planes(layer, value)
    found = layer.config.take("padding", 1)
    pair = found if isinstance(found, list) else [found, found]
    pads = [one if isinstance(one, list) else [one, one] for one in pair]
    each = [size for pad in pads for size in pad]
    is_pad = all(
        isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= SIZE_MAX
        for size in each
    )
    if [len(pad) for pad in pads] != [2, 2] or not is_pad:
        raise layer.wrong(
            f"padding {found!r:.60}: [[top, bottom], [left, right]], whole numbers from 0, is "
            "possible"
        )
    top, bottom, left, right = each
    pad = _sum(value.pad, (top, left, bottom, right))
    return dataclasses.replace(value, pad=pad, padded=layer.node)


def _add(layers: Layers, layer: Layer, first: Value, *others: Value) -> Value:
    node = first.node
    for other in others:
        if (first.is_row, first.order) != (other.is_row, other.order):
            raise layer.wrong(
                "a sum of two whose numbers stand in different orders: both flattened from planes "
                "of the same sizes is possible, or neither"
            )
        node = layers.draft.add(layer.node, node, other.node)
    return dataclasses.replace(first, node=node)


def _concatenate(layers: Layers, layer: Layer, *values: Value) -> Value:
    first = values[0]
    layer.config.neutral("axis", -1, _last(first))
    if any(value.is_row != first.is_row for value in values):
        raise layer.wrong("rows of numbers after planes: one kind is possible")
    orders: list[Shape] = []
    for value in values:
        orders += value.order or [layers.draft.shape(value.node)]
    order = tuple(orders) if any(value.order for value in values) else None
    node = layers.draft.concat(layer.node, [value.node for value in values])
    return Value(node, first.is_row, order)


def _last(value: Value) -> int:
    """The axis of channels, or of a row's numbers."""
    return 1 if value.is_row else 3


def _flatten(layers: Layers, layer: Layer, value: Value) -> Value:
    layer.config.neutral("data_format", "channels_last")
    return _row(layers, layer, value)


def _row(layers: Layers, layer: Layer, value: Value) -> Value:
    if value.is_row:
        return value
    shape = channels, rows, columns = layers.draft.shape(value.node)
    is_same = channels == 1 or rows * columns == 1
    node = layers.draft.flatten(layer.node, value.node)
    return Value(node, is_row=True, order=None if is_same else (shape,))


def _reshape(layers: Layers, layer: Layer, value: Value) -> Value:
    shape = layers.draft.shape(value.node)
    count = math.prod(shape)
    found = layer.config.take("target_shape")
    if found in ([-1], [count]):
        return _row(layers, layer, value)
    if shape[1:] == (1, 1) and value.order is None and found in ([1, 1, -1], [1, 1, count]):
        return Value(value.node, is_row=False)
    raise layer.wrong(
        f"target_shape {found!r:.60}: a row is possible, [-1], and planes of one place, [1, 1, -1]"
    )


def _dropout(layers: Layers, layer: Layer, value: Value) -> Value:
    # How much, of what and by which numbers: in training.
    layer.config.skip("rate", "noise_shape", "seed")
    layers.draft.leave_out(layer.node, "a dropout, which inference does without")
    return value


def _relu(layers: Layers, layer: Layer, value: Value) -> Value:
    own = layer.config
    own.neutral("threshold", 0)
    most, slope = own.number("max_value", None), own.number("negative_slope", 0.0)
    if slope < 0:
        raise layer.wrong(f"negative_slope {slope}: 0 and more is possible")
    if most is None:
        node = layers.draft.leaky_relu(layer.node, value.node, slope)
    elif slope:
        raise layer.wrong(f"max_value {most} and negative_slope {slope}: one is possible")
    else:
        node = layers.draft.relu(layer.node, value.node, most)
    return dataclasses.replace(value, node=node)


def _leaky_relu(layers: Layers, layer: Layer, value: Value) -> Value:
    slope = layer.config.number("alpha", 0.3)
    return dataclasses.replace(value, node=layers.draft.leaky_relu(layer.node, value.node, slope))


def _prelu(layers: Layers, layer: Layer, value: Value) -> Value:
    own = layer.config
    own.trained("alpha")
    channels, rows, columns = layers.draft.shape(value.node)
    sizes = [channels] if value.is_row else [rows, columns, channels]
    shared = own.take("shared_axes", None)
    axes = [] if shared is None else shared
    is_axes = isinstance(axes, list) and all(is_size(one) and one <= len(sizes) for one in axes)
    if not is_axes:
        raise layer.wrong(f"shared_axes {shared!r:.60}: axes from 1 to {len(sizes)} are possible")
    sizes = [1 if at in axes else size for at, size in enumerate(sizes, 1)]
    if math.prod(sizes[:-1]) > 1:
        raise layer.wrong(
            f"slopes of each place, shared_axes {shared!r:.60}: one a channel is possible, [1, 2]"
        )
    slopes = layers.weights.take(layer, {"alpha": tuple(sizes)})["alpha"].reshape(-1)
    if slopes.size > 1:
        slopes = _turned(slopes, value.order)
    node = layers.draft.leaky_relu(layer.node, value.node, slopes)
    return dataclasses.replace(value, node=node)


def _softmax(layers: Layers, layer: Layer, value: Value) -> Value:
    last = _last(value)
    layer.config.neutral("axis", -1, last, [-1], [last])
    node = layers.draft.post(layer.node, "softmax", value.node)
    return dataclasses.replace(value, node=node)


_LAYERS: dict[str, Callable[..., Value]] = {
    "Activation": Layers.activation,
    "Add": _add,
    "AveragePooling2D": _pool,
    "BatchNormalization": _batch_norm,
    "Concatenate": _concatenate,
    "Conv2D": _conv,
    "Dense": _dense,
    "DepthwiseConv2D": _depthwise,
    "Dropout": _dropout,
    "Flatten": _flatten,
    "GlobalAveragePooling2D": _global,
    "GlobalMaxPooling2D": _global,
    "LeakyReLU": _leaky_relu,
    "MaxPooling2D": _pool,
    "PReLU": _prelu,
    "ReLU": _relu,
    "Rescaling": _rescaling,
    "Reshape": _reshape,
    "SeparableConv2D": _depthwise,
    "Softmax": _softmax,
    "ZeroPadding2D": _zeros,
}
#: Those that can have zeros around their input as pads of their own.
_PADDED = {
    "AveragePooling2D",
    "Conv2D",
    "DepthwiseConv2D",
    "MaxPooling2D",
    "SeparableConv2D",
    "ZeroPadding2D",
}
