"""Torch modules as networks, by `torch.fx`: a copy of a module is traced, the module itself is not
touched.

A trace is what the module's own code calls, and torch's modules are not looked into: what each
computes is read from its options and weights, every one of them. What changes numbers and is in no
trace (hooks, methods that are replaced on one instance) is refused. A tensor that is changed in
place has its new numbers for whoever reads it later; one that may share memory with it is not read
any more.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import itertools
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .._fields import Fields
from ..errors import ConfigError, Error, ModelError
from ._compare import compared
from ._draft import Draft
from ._network import INPUT, Floats, Network, Shape

_DROPOUT = "a dropout, which inference does without"
#: What decides about a call of a module and its mode, and is a type's own, not an instance's.
_CALLS = ("forward", "_call_impl", "_compiled_call_impl", "_slow_forward", "train", "eval")
#: `h += y` is another assignment for torch.fx, so the tracer is told that it changes h.
_IN_PLACE = (
    *("iadd", "isub", "imul", "imatmul", "itruediv", "ifloordiv", "imod", "ipow"),
    *("iand", "ior", "ixor", "ilshift", "irshift"),
)
_WINDOWS = ("kernel_size", "stride", "padding")
_ROWS_AND_COLUMNS = {2: 2, 3: 3, -2: 2, -1: 3}


def read(module: Any, shape: Shape, range: tuple[float, float] | None) -> Network:
    """See `networks.from_torch`."""
    reader = _Reader(module, shape)
    network = reader.read(range)
    return compared(network, "torch", reader.answers, reader.between, reader.draft.source)


@contextlib.contextmanager
def _telling(what: str) -> Iterator[None]:
    """Makes an error of torch, or of the module's own code, one of hushtable's."""
    try:
        yield
    except Error:
        raise
    except Exception as error:  # of any kind
        raise ModelError(f"{what}: {error}") from error


class _Batch:
    """The number of images: what is read for one is computed for any number of them."""

    def __repr__(self) -> str:
        return "the number of images"


_BATCH = _Batch()


@dataclass(eq=False)
class _Tensor:
    """A tensor while the module computes.

    Attributes:
        name: the node of the draft that gives its numbers, as they are by now.
        rank: 4, or 2 where it is flat.
        memory: the tensors that may share its memory, itself among them.
        changed: where one of the others was changed in place; empty where none was.
    """

    name: str
    rank: int
    memory: list[_Tensor] = field(default_factory=list)
    changed: str = ""

    def __post_init__(self) -> None:
        self.memory.append(self)

    def __repr__(self) -> str:
        return f"the tensor {self.name}"

    def view(self, name: str, rank: int) -> _Tensor:
        """Another tensor, of what may be the same memory."""
        return _Tensor(name, rank, self.memory)

    def change(self, name: str, where: str) -> _Tensor:
        """The same tensor, with other numbers."""
        self.name = name
        for other in self.memory:
            if other is not self:
                other.changed = where
        return self


def _pair(value: Any) -> tuple[int, int]:
    first, second = value if isinstance(value, (tuple, list)) else (value, value)
    return operator.index(first), operator.index(second)


def _truth(value: Any) -> bool:
    if isinstance(value, int):
        return bool(value)
    raise TypeError(f"{value!r} is neither true nor false")


def _proxy(fx: Any) -> Any:
    """torch.fx's own stand-in for a tensor, that tells changes in place from assignments."""

    class Proxy(fx.Proxy):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            if name not in ("tracer", "node"):
                raise TypeError(f"{name} of a tensor is set")
            super().__setattr__(name, value)

    def method(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, other: self.tracer.create_proxy(
            "call_function", function, (self, other), {}
        )

    for name in _IN_PLACE:
        setattr(Proxy, f"__{name}__", method(getattr(operator, name)))
    return Proxy


class _Reader:
    """A module, and what is read of it. A value is a tensor, a number, or sizes."""

    def __init__(self, module: Any, shape: Shape) -> None:
        try:
            self.torch = torch = importlib.import_module("torch")
            self.fx = importlib.import_module("torch.fx")
        except ImportError as error:
            raise ConfigError(
                "torch modules are taken apart by torch itself: `pip install 'hushtable[torch]'`"
            ) from error
        nn, functional = torch.nn, torch.nn.functional
        if not isinstance(module, nn.Module):
            raise ConfigError(f"a torch.nn.Module is expected, not {type(module).__name__}")
        self.draft = Draft(shape, type(module).__name__)
        self.values: dict[Any, Any] = {}
        self.seeds = itertools.count()
        #: The node of the draft that each of the trace made.
        self.made: dict[Any, str] = {}
        self.modules: dict[type, Callable[..., _Tensor]] = {
            nn.Conv2d: self._conv,
            nn.Linear: self._linear,
            nn.BatchNorm2d: self._batch_norm,
            nn.BatchNorm1d: self._batch_norm_of_rows,
        }
        #: Those that compute what a function does, and their options in the order of its arguments.
        self.alike: dict[type, tuple[Callable[..., _Tensor], tuple[str, ...]]] = {
            nn.ReLU: (self._relu, ("inplace",)),
            nn.MaxPool2d: (self._max_pool, (*_WINDOWS, "dilation", "ceil_mode", "return_indices")),
            nn.AvgPool2d: (
                self._average_pool,
                (*_WINDOWS, "ceil_mode", "count_include_pad", "divisor_override"),
            ),
            nn.AdaptiveAvgPool2d: (self._adaptive, ("output_size",)),
            nn.Flatten: (self._flatten, ("start_dim", "end_dim")),
            nn.Softmax: (self._softmax, ("dim",)),
            nn.Sigmoid: (self._sigmoid, ()),
            nn.Identity: (self._identity, ()),
            nn.Dropout: (self._dropout, ("p", "training", "inplace")),
            nn.Dropout2d: (self._dropout, ("p", "training", "inplace")),
        }
        self.functions: dict[Any, Callable[..., Any]] = {
            functional.relu: self._relu,
            torch.relu: self._relu,
            functional.max_pool2d: self._max_pool,
            functional.avg_pool2d: self._average_pool,
            functional.adaptive_avg_pool2d: self._adaptive,
            functional.dropout: self._dropout,
            functional.softmax: self._functional_softmax,
            torch.softmax: self._softmax,
            torch.sigmoid: self._sigmoid,
            operator.add: self._plus,
            operator.iadd: self._add_,
            torch.add: self._add,
            torch.flatten: self._flatten,
            torch.reshape: self._view,
            torch.mean: self._mean,
            getattr: self._attribute,
            operator.getitem: self._item,
        }
        #: Of tensors.
        self.methods: dict[str, Callable[..., Any]] = {
            "relu": self._relu,
            "relu_": self._relu_,
            "add": self._add,
            "add_": self._add_,
            "flatten": self._flatten,
            "view": self._view,
            "reshape": self._view,
            "size": self._size,
            "mean": self._mean,
            "contiguous": self._contiguous,
            "softmax": self._softmax,
            "sigmoid": self._sigmoid,
        }
        with _telling(f"{self.draft.source} is no module that can be read"):
            self._refuse_hooks(module)
            self.dtype = self._dtype(module)
        #: Two, as tracing may leave something in one.
        self.whole, self.own = self._copied(module), self._copied(module)

    def read(self, range: tuple[float, float] | None) -> Network:
        """The network, not compared with anything."""
        source = self.draft.source
        tracer, proxy = self.fx.Tracer(), _proxy(self.fx)
        tracer.proxy = lambda node: proxy(node, tracer)
        with (
            self._apart(),
            _telling(
                f"{source} cannot be traced by torch.fx with one input: export it to ONNX, and "
                "import that"
            ),
        ):
            self.graph = tracer.trace(self.whole)
        for node in self.graph.nodes:
            where = self._where(node)
            if node.op == "output":
                found = self._resolve(where, node.args[0])
                if not isinstance(found, _Tensor):
                    raise ModelError(f"{source} gives {node.args[0]}, not one tensor")
                return self.draft.finish(found.name, range)
            with _telling(f"{source}, {where}"):
                found = self._one(node, where)
            self.values[node] = found
            if isinstance(found, _Tensor) and found.name not in (INPUT, *self.made.values()):
                self.made[node] = found.name
        raise ModelError(f"{source} gives nothing")

    # The module, its copies, and what they compute.

    def _refuse_hooks(self, module: Any) -> None:
        """What runs beside a module's forward, or in its place, is in no trace."""
        for name, hooks in vars(self.torch.nn.modules.module).items():
            if name.startswith("_global_forward") and hooks:
                raise ModelError(
                    f"torch has hooks that run at every module's forward ({name}), which may "
                    "change numbers: remove them"
                )
        for path, one in module.named_modules():
            where = f"{self.draft.source}, {path or 'the module itself'} ({type(one).__name__})"
            for hook in (*one._forward_pre_hooks.values(), *one._forward_hooks.values()):
                label = getattr(hook, "__qualname__", type(hook).__name__)
                raise ModelError(
                    f"{where}: the hook {label} runs at every forward, and may change numbers: "
                    "remove it (torch.nn.utils.remove_weight_norm and remove_spectral_norm, and "
                    "prune.remove there, leave the weights that theirs compute)"
                )
            for name in _CALLS:
                if name in vars(one):
                    raise ModelError(
                        f"{where}: {name} is replaced on this one instance: give the module as "
                        "its type has it, or export it to ONNX, and import that"
                    )
            if self.torch.nn.utils.parametrize.is_parametrized(one):
                raise ModelError(
                    f"{where}: its weights are parametrized: "
                    "torch.nn.utils.parametrize.remove_parametrizations leaves what is computed"
                )

    def _dtype(self, module: Any) -> Any:
        """Of the module's numbers, and so of its inputs."""
        torch = self.torch
        tensors = (*module.parameters(), *module.buffers())
        found = {one.dtype for one in tensors if one.is_floating_point() or one.is_complex()}
        if found <= {torch.float32} or found == {torch.float64}:
            return torch.float64 if torch.float64 in found else torch.float32
        names = ", ".join(sorted(map(str, found)))
        raise ModelError(
            f"{self.draft.source} has weights of {names}: of torch.float32 throughout, or of "
            "torch.float64, is possible; call .float() on it, and look at what it then answers"
        )

    def _copied(self, module: Any) -> Any:
        """A copy in evaluation, in a module that calls it as anyone does."""
        with (
            self._apart(),
            _telling(
                f"{self.draft.source} cannot be copied and put into evaluation on the CPU, and it "
                "is not changed itself: export it to ONNX, and import that"
            ),
        ):
            copied = copy.deepcopy(module)
            if {id(one) for one in copied.modules()} & {id(one) for one in module.modules()}:
                raise ModelError(f"{self.draft.source}: its copy shares modules with it")
            copied.cpu().eval()
            return self.torch.nn.Sequential(copied)

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """Without gradients, and with random numbers of its own each time: whoever computes with
        them gives other answers the next time, and torch's own are as they were afterwards.
        """
        with self.torch.random.fork_rng(devices=[]), self.torch.no_grad():
            self.torch.default_generator.manual_seed(next(self.seeds))
            yield

    def answers(self, images: Floats) -> npt.NDArray[Any]:
        """What the module gives for images: by its own code, on a copy of them."""
        with self._apart():
            return np.asarray(self.own(self._tensor(images)).double().numpy())

    def _tensor(self, images: Floats) -> Any:
        return self.torch.tensor(images, dtype=self.dtype, device="cpu")

    def between(self, images: Floats) -> list[tuple[str, str, npt.NDArray[Any]]]:
        """What each node of the trace gives for images, as far as torch computes them."""
        found = []
        interpreter = self.fx.Interpreter(self.whole, graph=self.graph)
        run = interpreter.run_node

        def watched(node: Any) -> Any:
            value = run(node)
            if node in self.made:
                kept = value.detach().double().clone().numpy()
                found.append((self.made[node], self._where(node), kept))
            return value

        interpreter.run_node = watched
        with self._apart(), contextlib.suppress(Exception):
            interpreter.run(self._tensor(images))
        return found

    # The trace, node by node.

    def _where(self, node: Any) -> str:
        if node.op != "call_module":
            return f"node {node.name!r}"
        kind = type(self.whole.get_submodule(node.target)).__name__
        return f"module {self._path(node)!r} ({kind})"

    def _path(self, node: Any) -> str:
        """A module's place, as its owner calls it."""
        return str(node.target).partition(".")[2] or self.draft.source

    def _one(self, node: Any, where: str) -> Any:
        if node.op == "placeholder":
            return _Tensor(INPUT, 4)
        if node.op == "get_attr":
            path = str(node.target).removeprefix("0.")
            raise self.draft.wrong(where, f"a tensor of its own, {path}, is not supported")
        values = [self._resolve(where, one) for one in node.args]
        named = {key: self._resolve(where, one) for key, one in node.kwargs.items()}
        if node.op == "call_module":
            return self._module(node, where, values, named)
        if node.op == "call_method":
            function, what = self.methods.get(node.target), node.target
        else:
            function = self.functions.get(node.target)
            what = getattr(node.target, "__name__", str(node.target))
        if function is None:
            raise self._unsupported(where, what)
        first = values[0] if values else named.get("input")
        if not isinstance(first, _Tensor) and function not in (self._plus, self._item):
            raise self.draft.wrong(where, f"{what} of {first}: one of a tensor is possible")
        try:
            return function(node.name, *values, **named)
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise self.draft.wrong(
                where, f"{what} with arguments that are not taken: {error}"
            ) from error

    def _module(self, node: Any, where: str, values: list[Any], named: dict[str, Any]) -> _Tensor:
        module = self.whole.get_submodule(node.target)
        kind = type(module)
        if kind not in self.modules and kind not in self.alike:
            raise self._unsupported(where, kind.__name__)
        given = [*values, *(named.pop(name) for name in ("input",) if name in named)]
        if len(given) != 1 or named or not isinstance(given[0], _Tensor):
            raise self.draft.wrong(where, "it is called with something other than one tensor")

        def wrong(what: str) -> ModelError:
            return self.draft.wrong(where, what)

        common = vars(self.torch.nn.Module())
        fields = {name: value for name, value in vars(module).items() if name not in common}
        tensors = {**module._parameters, **module._buffers}
        with (
            Fields(fields | {"training": module.training}, wrong) as own,
            Fields(tensors, wrong, "tensor") as weights,
            Fields(module._modules, wrong, "module"),
        ):
            if kind in self.modules:
                made = self.modules[kind](self._path(node), given[0], own, weights)
            else:
                function, options = self.alike[kind]
                made = function(self._path(node), given[0], *map(own.take, options))
            own.neutral("training", False)
        return made

    def _unsupported(self, where: str, what: str) -> ModelError:
        modules = sorted(kind.__name__ for kind in self.modules | self.alike)
        names = {*self.methods, *(one.__name__ for one in self.functions)}
        return self.draft.wrong(
            where,
            f"{what} is not supported: possible are the modules {', '.join(modules)} and the "
            f"functions {', '.join(sorted(names))}",
        )

    def _resolve(self, where: str, value: Any) -> Any:
        """An argument, with what was computed in the places of the trace's nodes."""
        if isinstance(value, (tuple, list)):
            return tuple(self._resolve(where, one) for one in value)
        if not isinstance(value, self.fx.Node):
            return value
        found = self.values[value]
        if isinstance(found, _Tensor) and found.changed:
            raise self.draft.wrong(
                where,
                f"it reads {value.name!r}, which may share its memory with what was changed in "
                f"place at {found.changed!r}: do without inplace=True, += or a method ending in _ "
                "there",
            )
        return found

    def _images(self, name: str, tensor: _Tensor) -> str:
        """The node of a tensor that must be images."""
        if tensor.rank != 4:
            raise self.draft.wrong(name, "it is of one row per image: rows and columns are missing")
        return tensor.name

    def _rows(self, name: str, tensor: _Tensor) -> str:
        """The node of a tensor that must be flat."""
        if tensor.rank != 2:
            shape = " x ".join(map(str, self.draft.shape(tensor.name)))
            raise self.draft.wrong(
                name, f"it is of {shape} per image, not of one row: flatten before it"
            )
        return tensor.name

    def _floats(self, name: str, tensor: Any) -> Floats:
        """Weights; those of a type of their own may compute something."""
        if type(tensor) not in (self.torch.Tensor, self.torch.nn.Parameter):
            raise self.draft.wrong(name, f"weights of the type {type(tensor).__name__}")
        if tensor.dtype != self.dtype:
            raise self.draft.wrong(name, f"weights of {tensor.dtype}")
        return np.asarray(tensor.detach().float().numpy(), np.float32)

    # Modules with weights: what an option does not mean in an inference is passed over.

    def _conv(self, name: str, input: _Tensor, own: Fields, weights: Fields) -> _Tensor:
        own.skip("in_channels", "out_channels", "kernel_size", "_reversed_padding_repeated_twice")
        own.neutral("dilation", (1, 1), 1)
        own.neutral("padding_mode", "zeros")
        own.neutral("transposed", False)
        own.neutral("output_padding", (0, 0), 0)
        stride, padding = _pair(own.take("stride")), own.take("padding")
        weight, bias = self._floats(name, weights.take("weight")), weights.take("bias")
        if padding == "same":
            if stride != (1, 1):
                raise self.draft.wrong(name, f"padding 'same' with the stride {stride}")
            rows, columns = (size - 1 for size in weight.shape[2:])
            pad = (rows // 2, columns // 2, rows - rows // 2, columns - columns // 2)
        else:
            down, across = (0, 0) if padding == "valid" else _pair(padding)
            pad = (down, across, down, across)
        made = self.draft.conv(
            name,
            self._images(name, input),
            weight,
            None if bias is None else self._floats(name, bias),
            stride=stride,
            pad=pad,
            groups=operator.index(own.take("groups")),
        )
        return _Tensor(made, 4)

    def _linear(self, name: str, input: _Tensor, own: Fields, weights: Fields) -> _Tensor:
        own.skip("in_features", "out_features")
        weight, bias = self._floats(name, weights.take("weight")), weights.take("bias")
        made = self.draft.linear(
            name,
            self._rows(name, input),
            weight,
            None if bias is None else self._floats(name, bias),
        )
        return _Tensor(made, 2)

    def _batch_norm(self, name: str, input: _Tensor, own: Fields, weights: Fields) -> _Tensor:
        self._images(name, input)
        return self._norm(name, input, own, weights)

    def _batch_norm_of_rows(
        self, name: str, input: _Tensor, own: Fields, weights: Fields
    ) -> _Tensor:
        self._rows(name, input)
        return self._norm(name, input, own, weights)

    def _norm(self, name: str, input: _Tensor, own: Fields, weights: Fields) -> _Tensor:
        # What has statistics uses them in evaluation, whatever its options say of training.
        own.skip("num_features", "momentum", "affine", "track_running_stats")
        weights.skip("num_batches_tracked")
        mean, variance = weights.take("running_mean"), weights.take("running_var")
        if mean is None or variance is None:
            raise self.draft.wrong(name, "a batch norm without running statistics")
        mean, variance = self._floats(name, mean), self._floats(name, variance)
        scale, shift = weights.take("weight"), weights.take("bias")
        made = self.draft.batch_norm(
            name,
            input.name,
            scale=np.ones_like(mean) if scale is None else self._floats(name, scale),
            shift=np.zeros_like(mean) if shift is None else self._floats(name, shift),
            mean=mean,
            variance=variance,
            epsilon=float(own.take("eps")),
        )
        return _Tensor(made, input.rank)

    # Functions and methods, with torch's own order and names of arguments.

    def _relu(self, name: str, input: _Tensor, inplace: Any = False) -> _Tensor:
        if _truth(inplace):
            return self._relu_(name, input)
        return _Tensor(self.draft.relu(name, input.name), input.rank)

    def _relu_(self, name: str, input: _Tensor) -> _Tensor:
        return input.change(self.draft.relu(name, input.name), name)

    def _plus(self, name: str, left: Any, right: Any) -> _Tensor:
        first, second = (left, right) if isinstance(left, _Tensor) else (right, left)
        return self._add(name, first, second)

    def _add(self, name: str, input: _Tensor, other: Any, *, alpha: Any = 1) -> _Tensor:
        return _Tensor(self._sum(name, input, other, alpha), input.rank)

    def _add_(self, name: str, input: _Tensor, other: Any, *, alpha: Any = 1) -> _Tensor:
        return input.change(self._sum(name, input, other, alpha), name)

    def _sum(self, name: str, input: Any, other: Any, alpha: Any) -> str:
        if not isinstance(input, _Tensor) or not isinstance(alpha, (int, float)):
            raise self.draft.wrong(name, f"a sum of {input} and {alpha} times {other}")
        if isinstance(other, (int, float)):
            return self.draft.affine(name, input.name, 1.0, float(other) * alpha)
        if not isinstance(other, _Tensor) or alpha != 1 or input.rank != other.rank:
            raise self.draft.wrong(
                name,
                f"a sum of {input} and {alpha} times {other}: one with a number, or of two "
                "tensors that are alike, is possible",
            )
        return self.draft.add(name, input.name, other.name)

    def _attribute(self, name: str, input: _Tensor, attribute: str) -> Any:
        if attribute != "shape":
            raise self.draft.wrong(name, f"a tensor's {attribute}: its shape is possible")
        return self._size(name, input)

    def _size(self, _name: str, input: _Tensor, dim: int | None = None) -> Any:
        sizes = (_BATCH, *self.draft.shape(input.name)[: input.rank - 1])
        return sizes if dim is None else sizes[dim]

    def _item(self, name: str, sizes: Any, at: Any) -> Any:
        if isinstance(sizes, tuple):
            return sizes[at]
        raise self.draft.wrong(name, "a part of a tensor is not supported")

    def _flatten(self, name: str, input: _Tensor, start_dim: Any = 0, end_dim: Any = -1) -> _Tensor:
        if start_dim not in (1, 1 - input.rank) or end_dim not in (-1, input.rank - 1):
            raise self.draft.wrong(
                name, f"dimensions {start_dim} to {end_dim}: 1 to -1 are possible"
            )
        return input.view(self.draft.flatten(name, input.name), 2)

    def _view(self, name: str, input: _Tensor, *sizes: Any) -> _Tensor:
        whole = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple) else sizes
        count = math.prod(self.draft.shape(input.name))
        if whole in ((_BATCH, -1), (_BATCH, count), (-1, count)):
            return input.view(self.draft.flatten(name, input.name), 2)
        raise self.draft.wrong(
            name, f"a view as {whole}: (x.size(0), -1), or (-1, {count}), is possible"
        )

    def _identity(self, _name: str, input: _Tensor) -> _Tensor:
        return input

    def _contiguous(self, _name: str, input: _Tensor) -> _Tensor:
        return input.view(input.name, input.rank)

    def _mean(self, name: str, input: _Tensor, dim: Any = None, keepdim: Any = False) -> _Tensor:
        axes = dim if isinstance(dim, tuple) else (dim,)
        if sorted(_ROWS_AND_COLUMNS.get(axis, -1) for axis in axes) != [2, 3]:
            raise self.draft.wrong(name, f"a mean over {dim}: one over (2, 3) is possible")
        made = self.draft.global_average_pool(name, self._images(name, input))
        return _Tensor(made, 4 if _truth(keepdim) else 2)

    def _max_pool(
        self,
        name: str,
        input: _Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: Any = False,
        return_indices: Any = False,
    ) -> _Tensor:
        if _pair(dilation) != (1, 1) or return_indices:
            raise self.draft.wrong(name, "dilations and indices are not possible")
        return self._pool(name, "max_pool", input, kernel_size, stride, padding, ceil_mode)

    def _average_pool(
        self,
        name: str,
        input: _Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: Any = False,
        count_include_pad: Any = True,
        divisor_override: Any = None,
    ) -> _Tensor:
        is_whole = _truth(count_include_pad) or not any(_pair(padding))
        if divisor_override is not None or not is_whole:
            raise self.draft.wrong(name, "a mean of other than whole windows is not possible")
        return self._pool(name, "average_pool", input, kernel_size, stride, padding, ceil_mode)

    def _pool(
        self,
        name: str,
        op: str,
        input: _Tensor,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: Any,
    ) -> _Tensor:
        if ceil_mode:
            raise self.draft.wrong(name, "ceil_mode is not possible")
        kernel = _pair(kernel_size)
        step = kernel if stride is None or stride == () else _pair(stride)
        down, across = _pair(padding)
        if 2 * down > kernel[0] or 2 * across > kernel[1]:
            raise self.draft.wrong(name, f"padding {(down, across)} is over half of {kernel}")
        pad = (down, across, down, across)
        return _Tensor(self.draft.pool(name, op, self._images(name, input), kernel, step, pad), 4)

    def _adaptive(self, name: str, input: _Tensor, output_size: Any) -> _Tensor:
        _, rows, columns = self.draft.shape(self._images(name, input))
        if not isinstance(output_size, (tuple, list)):
            output_size = (operator.index(output_size),) * 2
        down, across = (
            whole if size is None else operator.index(size)
            for size, whole in zip(output_size, (rows, columns), strict=True)
        )
        if rows % down or columns % across:
            raise self.draft.wrong(
                name,
                f"{down} x {across} means of {rows} x {columns}: only whole windows are possible",
            )
        kernel = (rows // down, columns // across)
        return _Tensor(self.draft.pool(name, "average_pool", input.name, kernel, kernel), 4)

    def _dropout(
        self,
        name: str,
        input: _Tensor,
        p: Any = 0.5,
        training: Any = True,
        inplace: Any = False,
    ) -> _Tensor:
        if _truth(training) and p != 0:
            raise self.draft.wrong(
                name, "a dropout that is active in evaluation too: give it training=self.training"
            )
        self.draft.leave_out(name, _DROPOUT)
        return input  # the same tensor, in torch too

    def _functional_softmax(
        self, name: str, input: _Tensor, dim: Any = None, _stacklevel: Any = 3, dtype: Any = None
    ) -> _Tensor:
        return self._softmax(name, input, dim, dtype)

    def _softmax(self, name: str, input: _Tensor, dim: Any = None, dtype: Any = None) -> _Tensor:
        if dtype is not None:
            raise self.draft.wrong(name, f"a softmax in {dtype}")
        if dim not in (1, 1 - input.rank):
            raise self.draft.wrong(name, f"a softmax over dimension {dim}: 1 is possible")
        return _Tensor(self.draft.post(name, "softmax", input.name), input.rank)

    def _sigmoid(self, name: str, input: _Tensor) -> _Tensor:
        return _Tensor(self.draft.post(name, "sigmoid", input.name), input.rank)
