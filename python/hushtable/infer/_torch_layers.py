"""Torch's layers: those with weights, and those with windows."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from .._fields import Fields
from ._draft import Draft
from ._network import INPUT, Floats, Node
from ._torch_tensors import Constant, Operators, Tensor, pair, truth

_WINDOWS = ("kernel_size", "stride", "padding")
_Pads = tuple[int, int, int, int]


class Layers(Operators):
    """Convolutions, matrices, norms, PReLUs, pools and pads.

    Attributes:
        padded: by the node that pads, what it pads, and how: a convolution or a pool that reads it
            takes the pads on itself.
    """

    def __init__(self, torch: Any, draft: Draft, dtype: Any) -> None:
        super().__init__(torch, draft, dtype)
        self.padded: dict[str, tuple[str, _Pads]] = {}
        nn, functional = torch.nn, torch.nn.functional
        self.layers = {
            nn.Conv2d: self._conv_layer,
            nn.Linear: self._linear_layer,
            nn.BatchNorm2d: self._batch_norm,
            nn.BatchNorm1d: self._batch_norm_of_rows,
            nn.PReLU: self._prelu_layer,
        }
        self.alike = {
            nn.MaxPool2d: (self._max_pool, (*_WINDOWS, "dilation", "ceil_mode", "return_indices")),
            nn.AvgPool2d: (
                self._average_pool,
                (*_WINDOWS, "ceil_mode", "count_include_pad", "divisor_override"),
            ),
            nn.AdaptiveAvgPool2d: (self._adaptive_average, ("output_size",)),
            nn.AdaptiveMaxPool2d: (self._adaptive_max, ("output_size", "return_indices")),
            nn.ZeroPad2d: (self._pad_layer, ("padding", "value")),
            nn.ConstantPad2d: (self._pad_layer, ("padding", "value")),
        }
        self.functions = {
            functional.conv2d: self._conv,
            functional.linear: self._linear,
            functional.max_pool2d: self._max_pool,
            functional.avg_pool2d: self._average_pool,
            functional.adaptive_avg_pool2d: self._adaptive_average,
            functional.adaptive_max_pool2d: self._adaptive_max,
            functional.pad: self._pad,
        }
        self.of_both({"max_pool2d": self._max_pool, "prelu": self._prelu})

    def without_pads(self, output: str) -> list[Node]:
        """The draft's nodes, less the pads that others have taken on themselves."""
        read = {output, *(one for node in self.draft.nodes for one in node.inputs)}
        return [
            node for node in self.draft.nodes if node.name in read or node.name not in self.padded
        ]

    # Layers with weights: what an option does not mean in an inference is passed over.

    def _conv_layer(self, name: str, input: Tensor, own: Fields, weights: Fields) -> Tensor:
        own.skip("in_channels", "out_channels", "kernel_size", "_reversed_padding_repeated_twice")
        own.neutral("padding_mode", "zeros")
        own.neutral("transposed", False)
        own.neutral("output_padding", (0, 0), 0)
        options = map(own.take, ("stride", "padding", "dilation", "groups"))
        return self._conv(name, input, *self._weights(name, weights), *options)

    def _conv(
        self,
        name: str,
        input: Tensor,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: Any = 1,
    ) -> Tensor:
        step, apart = pair(stride), pair(dilation)
        kernel = _values(weight)
        if kernel.ndim != 4:
            raise self.wrong(name, f"weights of {kernel.ndim} dimensions: 4 are possible")
        if padding == "same":
            if step != (1, 1):
                raise self.wrong(name, f"padding 'same' with the stride {step}")
            rows, columns = (
                (size - 1) * by for size, by in zip(kernel.shape[2:], apart, strict=True)
            )
            pads = (rows // 2, columns // 2, rows - rows // 2, columns - columns // 2)
        else:
            down, across = (0, 0) if padding == "valid" else pair(padding)
            pads = (down, across, down, across)
        if min(pads) < 0:
            raise self.wrong(name, f"padding {padding}: 0 or more is possible")
        source, pads = self._unpadded(self.images(name, input), pads)
        made = self.draft.conv(
            name,
            source,
            kernel,
            None if bias is None else _values(bias),
            stride=step,
            pad=pads,
            groups=operator.index(groups),
            dilation=apart,
        )
        return Tensor(made, 4)

    def _linear_layer(self, name: str, input: Tensor, own: Fields, weights: Fields) -> Tensor:
        own.skip("in_features", "out_features")
        return self._linear(name, input, *self._weights(name, weights))

    def _linear(self, name: str, input: Tensor, weight: Any, bias: Any = None) -> Tensor:
        made = self.draft.linear(
            name,
            self.rows(name, input),
            _values(weight),
            None if bias is None else _values(bias),
        )
        return Tensor(made, 2)

    def _weights(self, name: str, weights: Fields) -> tuple[Constant, Constant | None]:
        """A layer's weights, and its bias if it has one."""
        weight, bias = weights.take("weight"), weights.take("bias")
        return (
            Constant(self.floats(name, weight)),
            None if bias is None else Constant(self.floats(name, bias)),
        )

    def _batch_norm(self, name: str, input: Tensor, own: Fields, weights: Fields) -> Tensor:
        self.images(name, input)
        return self._norm(name, input, own, weights)

    def _batch_norm_of_rows(self, name: str, input: Tensor, own: Fields, weights: Fields) -> Tensor:
        self.rows(name, input)
        return self._norm(name, input, own, weights)

    def _norm(self, name: str, input: Tensor, own: Fields, weights: Fields) -> Tensor:
        # What has statistics uses them in evaluation, whatever its options say of training.
        own.skip("num_features", "momentum", "affine", "track_running_stats")
        weights.skip("num_batches_tracked")
        mean, variance = weights.take("running_mean"), weights.take("running_var")
        if mean is None or variance is None:
            raise self.wrong(name, "a batch norm without running statistics")
        mean, variance = self.floats(name, mean), self.floats(name, variance)
        scale, shift = weights.take("weight"), weights.take("bias")
        made = self.draft.batch_norm(
            name,
            input.name,
            scale=np.ones_like(mean) if scale is None else self.floats(name, scale),
            shift=np.zeros_like(mean) if shift is None else self.floats(name, shift),
            mean=mean,
            variance=variance,
            epsilon=float(own.take("eps")),
        )
        return Tensor(made, input.rank)

    def _prelu_layer(self, name: str, input: Tensor, own: Fields, weights: Fields) -> Tensor:
        own.skip("num_parameters", "init")
        return self._prelu(name, input, Constant(self.floats(name, weights.take("weight"))))

    def _prelu(self, name: str, input: Tensor, weight: Any) -> Tensor:
        channels = self.draft.shape(input.name)[0]
        if not isinstance(weight, Constant) or weight.values.shape not in ((), (1,), (channels,)):
            raise self.wrong(
                name, f"the slopes {weight}: one number, or one of each of {channels}, is possible"
            )
        return Tensor(self.draft.leaky_relu(name, input.name, weight.values), input.rank)

    # Pools.

    def _max_pool(
        self,
        name: str,
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: Any = False,
        return_indices: Any = False,
    ) -> Tensor:
        if pair(dilation) != (1, 1) or return_indices:
            raise self.wrong(name, "dilations and indices are not possible")
        return self._pool(name, "max_pool", input, kernel_size, stride, padding, ceil_mode)

    def _average_pool(
        self,
        name: str,
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: Any = False,
        count_include_pad: Any = True,
        divisor_override: Any = None,
    ) -> Tensor:
        is_whole = truth(count_include_pad) or not any(pair(padding))
        if divisor_override is not None or not is_whole:
            raise self.wrong(name, "a mean of other than whole windows is not possible")
        return self._pool(name, "average_pool", input, kernel_size, stride, padding, ceil_mode)

    def _pool(
        self,
        name: str,
        op: str,
        input: Tensor,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: Any,
    ) -> Tensor:
        kernel, ceil = pair(kernel_size), truth(ceil_mode)
        step = kernel if stride is None or stride == () else pair(stride)
        down, across = pair(padding)
        if 2 * down > kernel[0] or 2 * across > kernel[1]:
            raise self.wrong(name, f"padding {(down, across)} is over half of {kernel}")
        source, pads = self.images(name, input), (down, across, down, across)
        # Whether a window begins before the end is asked of what is padded.
        if not ceil:
            source, pads = self._unpadded(source, pads, kernel if op == "max_pool" else None)
        return Tensor(self.draft.pool(name, op, source, kernel, step, pads, ceil=ceil), 4)

    def _adaptive_average(self, name: str, input: Tensor, output_size: Any) -> Tensor:
        return self._adaptive(name, "average_pool", input, output_size)

    def _adaptive_max(
        self, name: str, input: Tensor, output_size: Any, return_indices: Any = False
    ) -> Tensor:
        if return_indices:
            raise self.wrong(name, "indices are not possible")
        return self._adaptive(name, "max_pool", input, output_size)

    def _adaptive(self, name: str, op: str, input: Tensor, output_size: Any) -> Tensor:
        _, rows, columns = self.draft.shape(self.images(name, input))
        if not isinstance(output_size, (tuple, list)):
            output_size = (output_size,) * 2
        down, across = (
            whole if size is None else operator.index(size)
            for size, whole in zip(output_size, (rows, columns), strict=True)
        )
        if min(down, across) < 1:
            raise self.wrong(name, f"{down} x {across} windows: 1 or more each way are possible")
        if rows % down or columns % across:
            raise self.wrong(
                name,
                f"{down} x {across} windows of {rows} x {columns}: only whole windows are possible",
            )
        kernel = (rows // down, columns // across)
        return Tensor(self.draft.pool(name, op, input.name, kernel, kernel), 4)

    # Pads.

    def _pad_layer(self, name: str, input: Tensor, padding: Any, value: Any) -> Tensor:
        pads = padding if isinstance(padding, (tuple, list)) else (padding,) * 4
        return self._pad(name, input, tuple(pads), value=value)

    def _pad(
        self, name: str, input: Tensor, pad: Any, mode: Any = "constant", value: Any = None
    ) -> Tensor:
        source = self.images(name, input)
        if mode != "constant" or value not in (None, 0):
            raise self.wrong(name, f"pads of mode {mode} and value {value}: zeros are possible")
        sizes = [operator.index(one) for one in pad]
        if len(sizes) % 2 or len(sizes) > 8 or min(sizes, default=0) < 0:
            raise self.wrong(name, f"pads {sizes}: two of each dimension, 0 or more, are possible")
        left, right, top, bottom, before, after, *of_images = [*sizes, *(8 - len(sizes)) * [0]]
        if any(of_images):
            raise self.wrong(name, f"pads {sizes}: images of zeros are not possible")
        if before or after:
            source = self.draft.pad_channels(f"{name}.channels", source, before, after)
        pads = (top, left, bottom, right)
        made = self.draft.pad(name, source, pads)
        if made != source:
            self.padded[made] = (source, pads)
        return Tensor(made, 4)

    def _unpadded(
        self, source: str, pads: _Pads, largest_of: tuple[int, int] | None = None
    ) -> tuple[str, _Pads]:
        """What a pad reads in the place of what it gives, and all pads.

        Zeros are what a sum of a window is padded with. Beside numbers that are not negative they
        are no more than what stands in the window, of which the largest is given.
        """
        if source not in self.padded:
            return source, pads
        bare, more = self.padded[source]
        top, left, bottom, right = map(operator.add, pads, more)
        if largest_of is not None:
            is_positive = bare != INPUT and self.draft.op(bare) == "relu"
            in_window = max(top, bottom) < largest_of[0] and max(left, right) < largest_of[1]
            if not is_positive or not in_window:
                return source, pads
        return bare, (top, left, bottom, right)


def _values(weight: Any) -> Floats:
    if isinstance(weight, Constant):
        return weight.values
    raise TypeError(f"the weights are {weight}, not numbers of the module's own")
