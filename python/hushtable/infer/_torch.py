"""Torch modules as networks, by `torch.fx`: the module is traced, not run on data."""

from __future__ import annotations

import importlib
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, ModelError
from .networks import INPUT, Draft, Network, Shape

_DROPOUT = "a dropout, which inference does without"


def read(module: Any, shape: Shape, range: tuple[float, float] | None) -> Network:
    """See `networks.from_torch`."""
    try:
        torch = importlib.import_module("torch")
        fx = importlib.import_module("torch.fx")
    except ImportError as error:
        raise ConfigError(
            "torch modules are taken apart by torch itself: `pip install 'hushtable[torch]'`"
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(f"a torch.nn.Module is expected, not {type(module).__name__}")
    was_training = module.training
    try:
        traced = fx.symbolic_trace(module.eval())
    except Exception as error:  # the tracer's own, or the module's
        raise ModelError(
            f"{type(module).__name__} cannot be traced by torch.fx: {error}; export it to ONNX, "
            "and import that"
        ) from error
    finally:
        module.train(was_training)
    return _Reader(torch, traced, Draft(shape, type(module).__name__)).read(range)


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    first, second = value
    return int(first), int(second)


def _floats(tensor: Any) -> npt.NDArray[np.float32]:
    return np.asarray(tensor.detach().cpu().float().numpy(), np.float32)


class _Reader:
    """A value is what a node of the draft gives, or a number (a size)."""

    def __init__(self, torch: Any, traced: Any, draft: Draft) -> None:
        self.traced = traced
        self.draft = draft
        self.values: dict[Any, Any] = {}
        nn, functional = torch.nn, torch.nn.functional
        self.modules: dict[type, Callable[..., str]] = {
            nn.Conv2d: self._conv,
            nn.Linear: self._linear,
            nn.BatchNorm2d: self._batch_norm,
            nn.BatchNorm1d: self._batch_norm,
            nn.ReLU: self._relu,
            nn.MaxPool2d: self._max_pool,
            nn.AvgPool2d: self._average_pool,
            nn.AdaptiveAvgPool2d: self._adaptive,
            nn.Flatten: self._flat_module,
            nn.Softmax: self._softmax,
            nn.Sigmoid: self._sigmoid,
            nn.Identity: self._identity,
            nn.Dropout: self._dropout,
            nn.Dropout2d: self._dropout,
        }
        #: Functions of torch and of its functional module, and methods of tensors, by name.
        self.functions: dict[str, Callable[..., Any]] = {
            "relu": self._relu_function,
            "relu_": self._relu_function,
            "add": self._add,
            "add_": self._add,
            "iadd": self._add,
            "flatten": self._flatten_function,
            "view": self._view,
            "reshape": self._view,
            "size": self._size,
            "mean": self._mean,
            "max_pool2d": self._max_pool_function,
            "avg_pool2d": self._average_pool_function,
            "adaptive_avg_pool2d": self._adaptive_function,
            "dropout": self._dropout_function,
            "contiguous": self._same,
            "softmax": self._softmax_function,
            "sigmoid": self._sigmoid_function,
        }
        self.names = {
            functional.relu: "relu",
            functional.max_pool2d: "max_pool2d",
            functional.avg_pool2d: "avg_pool2d",
            functional.adaptive_avg_pool2d: "adaptive_avg_pool2d",
            functional.dropout: "dropout",
            functional.softmax: "softmax",
            operator.add: "add",
            operator.iadd: "add",
            torch.add: "add",
            torch.flatten: "flatten",
            torch.relu: "relu",
            torch.mean: "mean",
            torch.sigmoid: "sigmoid",
            torch.softmax: "softmax",
            torch.reshape: "reshape",
        }

    def read(self, range: tuple[float, float] | None) -> Network:
        inputs = [node for node in self.traced.graph.nodes if node.op == "placeholder"]
        if len(inputs) != 1:
            names = ", ".join(node.name for node in inputs)
            raise ModelError(f"{self.draft.source} has the inputs {names}: one is possible")
        for node in self.traced.graph.nodes:
            if node.op == "output":
                found = self.values.get(node.args[0])
                if not isinstance(found, str):
                    raise ModelError(f"{self.draft.source} gives {node.args[0]}, not one tensor")
                return self.draft.finish(found, range)
            self.values[node] = self._one(node)
        raise ModelError(f"{self.draft.source} gives nothing")

    def _one(self, node: Any) -> Any:
        if node.op == "placeholder":
            return INPUT
        where = f"node {node.name!r}"
        if node.op == "call_module":
            module = self.traced.get_submodule(node.target)
            reader = self.modules.get(type(module))
            if reader is None:
                raise self._unsupported(f"{where} ({node.target})", type(module).__name__)
            source = self._resolve(node.args[0])
            return reader(str(node.target), source, module)
        if node.op == "get_attr":
            raise self._unsupported(where, f"a tensor of its own, {node.target}")
        if node.op == "call_method":
            name = str(node.target)
        else:
            if node.target is operator.getitem:
                sizes, at = (self._resolve(one) for one in node.args)
                if isinstance(sizes, tuple) and isinstance(at, int):
                    return sizes[at]
            if node.target is getattr and node.args[1] == "shape":
                return self._sizes(self._resolve(node.args[0]))
            name = self.names.get(node.target, "")
        function = self.functions.get(name)
        if function is None:
            target = getattr(node.target, "__name__", str(node.target))
            raise self._unsupported(where, target)
        values = [self._resolve(one) for one in node.args]
        named = {key: self._resolve(one) for key, one in node.kwargs.items()}
        try:
            return function(node.name, *values, **named)
        except TypeError as error:
            raise self.draft.wrong(
                where, f"{name} with arguments that are not taken: {error}"
            ) from error

    def _unsupported(self, where: str, what: str) -> ModelError:
        modules = sorted(kind.__name__ for kind in self.modules)
        return self.draft.wrong(
            where,
            f"{what} is not supported: possible are the modules {', '.join(modules)} and the "
            f"functions {', '.join(sorted(set(self.functions)))}",
        )

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return tuple(self._resolve(one) for one in value)
        try:
            return self.values.get(value, value)
        except TypeError:  # a slice, which is in no mapping
            return value

    def _sizes(self, source: str) -> tuple[int, ...]:
        channels, rows, columns = self.draft.shape(source)
        return (1, channels) if self._is_flat(source) else (1, channels, rows, columns)

    def _is_flat(self, source: str) -> bool:
        return source != INPUT and self.draft.op(source) in ("flatten", "linear")

    # Modules.

    def _conv(self, name: str, source: str, module: Any) -> str:
        if _pair(module.dilation) != (1, 1) or module.padding_mode != "zeros":
            raise self.draft.wrong(name, "dilations and padding other than zeros are not possible")
        if module.padding == "same":
            rows, columns = (size - 1 for size in module.kernel_size)
            pad = (rows // 2, columns // 2, rows - rows // 2, columns - columns // 2)
        else:
            down, across = (0, 0) if module.padding == "valid" else _pair(module.padding)
            pad = (down, across, down, across)
        return self.draft.conv(
            name,
            source,
            _floats(module.weight),
            None if module.bias is None else _floats(module.bias),
            stride=_pair(module.stride),
            pad=pad,
            groups=module.groups,
        )

    def _linear(self, name: str, source: str, module: Any) -> str:
        bias = None if module.bias is None else _floats(module.bias)
        return self.draft.linear(name, source, _floats(module.weight), bias)

    def _batch_norm(self, name: str, source: str, module: Any) -> str:
        if module.running_mean is None:
            raise self.draft.wrong(name, "a batch norm without running statistics")
        mean, variance = _floats(module.running_mean), _floats(module.running_var)
        return self.draft.batch_norm(
            name,
            source,
            scale=np.ones_like(mean) if module.weight is None else _floats(module.weight),
            shift=np.zeros_like(mean) if module.bias is None else _floats(module.bias),
            mean=mean,
            variance=variance,
            epsilon=module.eps,
        )

    def _relu(self, name: str, source: str, _module: Any) -> str:
        return self.draft.relu(name, source)

    def _max_pool(self, name: str, source: str, module: Any) -> str:
        if module.return_indices:
            raise self.draft.wrong(name, "return_indices")
        return self._max_pool_function(
            name,
            source,
            module.kernel_size,
            module.stride,
            module.padding,
            module.dilation,
            module.ceil_mode,
        )

    def _average_pool(self, name: str, source: str, module: Any) -> str:
        return self._average_pool_function(
            name,
            source,
            module.kernel_size,
            module.stride,
            module.padding,
            module.ceil_mode,
            module.count_include_pad,
            module.divisor_override,
        )

    def _adaptive(self, name: str, source: str, module: Any) -> str:
        return self._adaptive_function(name, source, module.output_size)

    def _flat_module(self, name: str, source: str, module: Any) -> str:
        return self._flatten_function(name, source, module.start_dim, module.end_dim)

    def _softmax(self, name: str, source: str, module: Any) -> str:
        return self._softmax_function(name, source, module.dim)

    def _sigmoid(self, name: str, source: str, _module: Any) -> str:
        return self._sigmoid_function(name, source)

    def _identity(self, _name: str, source: str, _module: Any) -> str:
        return source

    def _dropout(self, name: str, source: str, _module: Any) -> str:
        return self._dropout_function(name, source)

    # Functions and methods, with torch's own order and names of arguments.

    def _relu_function(self, name: str, input: str, inplace: bool = False) -> str:
        return self.draft.relu(name, input)

    def _add(self, name: str, input: Any, other: Any, *, alpha: float = 1) -> str:
        if not isinstance(input, str):
            input, other = other, input
        if isinstance(other, (int, float)):
            return self.draft.affine(name, input, 1.0, float(other) * alpha)
        if alpha != 1:
            raise self.draft.wrong(name, f"a sum with alpha {alpha}: 1 is possible")
        return self.draft.add(name, input, other)

    def _flatten_function(
        self, name: str, input: str, start_dim: int = 0, end_dim: int = -1
    ) -> str:
        if start_dim != 1 or end_dim not in (-1, 3):
            raise self.draft.wrong(
                name, f"dimensions {start_dim} to {end_dim}: 1 to -1 are possible"
            )
        return self.draft.flatten(name, input)

    def _view(self, name: str, input: str, *sizes: Any) -> str:
        whole = tuple(sizes[0]) if sizes and isinstance(sizes[0], tuple) else sizes
        count = math.prod(self.draft.shape(input))
        if len(whole) == 2 and whole[0] in (1, -1) and whole[1] in (-1, count):
            return self.draft.flatten(name, input)
        raise self.draft.wrong(name, f"a view as {whole}: (batch, {count}) is possible")

    def _size(self, name: str, input: str, dim: int | None = None) -> Any:
        sizes = self._sizes(input)
        return sizes if dim is None else sizes[dim]

    def _mean(self, name: str, input: str, dim: Any = None, keepdim: bool = False) -> str:
        axes = (dim,) if isinstance(dim, int) else tuple(dim or ())
        if sorted(axis % 4 for axis in axes) != [2, 3]:
            raise self.draft.wrong(name, f"a mean over {dim}: one over (2, 3) is possible")
        return self.draft.global_average_pool(name, input)

    def _max_pool_function(
        self,
        name: str,
        input: str,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> str:
        if _pair(dilation) != (1, 1) or return_indices:
            raise self.draft.wrong(name, "dilations and indices are not possible")
        return self._pool(name, "max_pool", input, kernel_size, stride, padding, ceil_mode)

    def _average_pool_function(
        self,
        name: str,
        input: str,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> str:
        if divisor_override or (any(_pair(padding)) and not count_include_pad):
            raise self.draft.wrong(name, "a mean of other than whole windows is not possible")
        return self._pool(name, "average_pool", input, kernel_size, stride, padding, ceil_mode)

    def _pool(
        self,
        name: str,
        op: str,
        source: str,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
    ) -> str:
        if ceil_mode:
            raise self.draft.wrong(name, "ceil_mode is not possible")
        kernel = _pair(kernel_size)
        step = kernel if stride is None or stride == () else _pair(stride)
        down, across = _pair(padding)
        return self.draft.pool(name, op, source, kernel, step, (down, across, down, across))

    def _adaptive_function(self, name: str, input: str, output_size: Any) -> str:
        sizes = output_size if isinstance(output_size, tuple) else (output_size, output_size)
        _, rows, columns = self.draft.shape(input)
        down, across = (
            whole if size is None else int(size)
            for size, whole in zip(sizes, (rows, columns), strict=True)
        )
        if rows % down or columns % across:
            raise self.draft.wrong(
                name,
                f"{down} x {across} means of {rows} x {columns}: only whole windows are possible",
            )
        kernel = (rows // down, columns // across)
        return self.draft.pool(name, "average_pool", input, kernel, kernel)

    def _dropout_function(
        self, name: str, input: str, p: float = 0.5, training: bool = False, inplace: bool = False
    ) -> str:
        self.draft.leave_out(name, _DROPOUT)
        return input

    def _same(self, _name: str, input: str) -> str:
        return input

    def _softmax_function(self, name: str, input: str, dim: int | None = None, **_more: Any) -> str:
        if dim not in (1, -1):
            raise self.draft.wrong(name, f"a softmax over dimension {dim}: 1 is possible")
        return self.draft.post(name, "softmax", input)

    def _sigmoid_function(self, name: str, input: str) -> str:
        return self.draft.post(name, "sigmoid", input)
