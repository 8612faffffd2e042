"""Torch modules as networks, by `torch.fx`: a copy of a module is traced, the module itself is not
touched.

A trace is what the module's own code calls, and torch's modules are not looked into: what each
computes is read from its options and weights, every one of them. What changes numbers and is in no
trace (hooks, methods that are replaced on one instance) is refused. A tensor that is changed in
place has its new numbers for whoever reads it later; one that may share memory with it is not read
any more.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from .._fields import Fields
from .._printable import one_line, printed
from ..errors import ModelError
from ._compare import compared
from ._draft import Draft
from ._network import INPUT, Floats, Network, Shape
from ._torch_functions import Functions
from ._torch_layers import Layers
from ._torch_module import Module, telling
from ._torch_shapes import Shapes
from ._torch_tensors import Constant, Regrouped, Tensor

_Range = tuple[float, float] | None

#: What is computed of sizes.
_OF_NUMBERS = {operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv}
#: numpy's names of arguments, that torch takes too.
_ALSO = {"axis": "dim", "keepdims": "keepdim"}
#: Functions and modules that bend everywhere.
_SMOOTH = {
    *("silu", "hardswish", "gelu", "mish", "elu", "selu", "celu", "hardsigmoid", "softplus"),
    *("tanh", "rrelu", "glu", "logsigmoid", "softsign", "tanhshrink"),
}


@overload
def read(module: Any, shape: Shape, range: _Range) -> Network: ...
@overload
def read(
    module: Any, shape: Shape, range: _Range, refusals: list[str] | None
) -> Network | None: ...
def read(
    module: Any, shape: Shape, range: _Range, refusals: list[str] | None = None
) -> Network | None:
    """See `networks.from_torch`.

    Args:
        refusals: takes every refusal of one node or layer, and none of them is raised; there is no
            network then.
    """
    with printed():
        reader = _Reader(module, shape, refusals)
        network = reader.read(range)
        if network is None:
            return None
        source = reader.draft.source
        return compared(network, "torch", reader.module.answers, reader.between, source)


class _Reader:
    """A module, and what is read of it. Values are tensors, numbers, sizes, and tuples."""

    def __init__(self, module: Any, shape: Shape, refusals: list[str] | None = None) -> None:
        self.module = Module(module)
        self.draft = Draft(shape, self.module.source)
        self.refusals = refusals
        self.values: dict[Any, Any] = {}
        #: The node of the draft that each of the trace made.
        self.made: dict[Any, str] = {}
        given = (self.module.torch, self.draft, self.module.dtype)
        self.own = Layers(*given)
        for other in (Functions(*given), Shapes(*given)):
            self.own.take(other)

    def read(self, range: _Range) -> Network | None:
        """The network, not compared with anything; None where refusals were taken."""
        source = self.draft.source
        for why in self.module.odd.values():
            self._refuse(ModelError(why))
        self.module.trace()
        for node in self.module.graph.nodes:
            where = self.module.where(node)
            if any(one not in self.values for one in node.all_input_nodes):
                # It reads what was refused, and may be such that nothing would help.
                if (what := self._unknown(node)) is not None:
                    self._refuse(self._unsupported(where, what))
                continue
            if node.op == "output":
                return self._finish(where, node.args[0], range)
            try:
                with telling(f"{source}, {where}"), np.errstate(over="ignore"):
                    found = self._one(node, where)
            except ModelError as error:
                self._refuse(error)
                continue
            if found is None:
                continue
            self.values[node] = found
            if isinstance(found, Tensor) and found.name not in (INPUT, *self.made.values()):
                self.made[node] = found.name
        if self.refusals:
            return None
        raise ModelError(f"{source} gives nothing")

    def _refuse(self, error: ModelError) -> None:
        if self.refusals is None:
            raise error
        self.refusals.append(one_line(str(error)))

    def _finish(self, where: str, output: Any, range: _Range) -> Network | None:
        if self.refusals:
            return None
        found = self._resolve(where, output)
        if not isinstance(found, Tensor):
            raise ModelError(f"{self.draft.source} gives {output}, not one tensor")
        self.draft.nodes = self.own.without_pads(found.name)
        return self.draft.finish(found.name, range)

    def between(self, images: Floats) -> list[tuple[str, str, npt.NDArray[Any]]]:
        """What each node of the draft is compared with."""
        return [
            (self.made[node], self.module.where(node), values)
            for node, values in self.module.values(images)
            if node in self.made
        ]

    # The trace, node by node.

    def _one(self, node: Any, where: str) -> Any:
        """What a node gives; None of a module that was refused before."""
        if node.op == "placeholder":
            return Tensor(INPUT, 4)
        if node.op == "get_attr":
            owner, _, name = str(node.target).rpartition(".")
            found = getattr(self.module.whole.get_submodule(owner), name)
            return Constant(self.own.floats(where, found))
        if (what := self._unknown(node)) is not None:
            raise self._unsupported(where, what)
        values = [self._resolve(where, one) for one in node.args]
        named = {_ALSO.get(key, key): self._resolve(where, one) for key, one in node.kwargs.items()}
        if node.op == "call_module":
            if self.module.path(node) in self.module.odd:
                return None
            return self._module(node, where, values, named)
        if node.target in _OF_NUMBERS and all(isinstance(one, (int, float)) for one in values):
            return node.target(*values)
        function, what = self._table(node).get(node.target), _called(node)
        if function is None:
            raise self._unsupported(where, what)
        first = values[0] if values else named.get("input")
        if not isinstance(first, Tensor) and function not in self.own.first:
            raise self.draft.wrong(where, f"{what} of {first}: one of a tensor is possible")
        try:
            return function(node.name, *values, **named)
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise self.draft.wrong(
                where, f"{what} with arguments that are not taken: {error}"
            ) from error

    def _module(self, node: Any, where: str, values: list[Any], named: dict[str, Any]) -> Tensor:
        module = self.module.whole.get_submodule(node.target)
        kind = type(module)
        given = [*values, *(named.pop(name) for name in ("input",) if name in named)]
        if len(given) != 1 or named or not isinstance(given[0], Tensor):
            raise self.draft.wrong(where, "it is called with something other than one tensor")

        def wrong(what: str) -> ModelError:
            return self.draft.wrong(where, what)

        name = self.module.path(node) or self.module.source
        common = vars(self.module.torch.nn.Module())
        fields = {name: value for name, value in vars(module).items() if name not in common}
        tensors = {**module._parameters, **module._buffers}
        with (
            Fields(fields | {"training": module.training}, wrong) as own,
            Fields(tensors, wrong, "tensor") as weights,
            Fields(module._modules, wrong, "module"),
        ):
            if kind in self.own.layers:
                made = self.own.layers[kind](name, given[0], own, weights)
            else:
                function, options = self.own.alike[kind]
                made = function(name, given[0], *map(own.take, options))
            own.neutral("training", False)
        return made

    def _table(self, node: Any) -> dict[Any, Callable[..., Any]]:
        return self.own.methods if node.op == "call_method" else self.own.functions

    def _unknown(self, node: Any) -> str | None:
        """What a node calls, if that is in no table."""
        if node.op == "call_module":
            kind = type(self.module.whole.get_submodule(node.target))
            is_read = kind in self.own.layers or kind in self.own.alike
            return None if is_read or self.module.path(node) in self.module.odd else kind.__name__
        if node.op not in ("call_function", "call_method"):
            return None
        is_read = node.target in self._table(node) or node.target in _OF_NUMBERS
        return None if is_read else _called(node)

    def _unsupported(self, where: str, what: str) -> ModelError:
        if what.lower().removesuffix("_") in _SMOOTH:
            return self.draft.wrong(
                where,
                f"{what} is not supported: private inference computes activations of straight "
                "pieces. Train with ReLU or ReLU6 in its place; LeakyReLU, PReLU and Hardtanh are "
                "possible too",
            )
        modules = sorted(kind.__name__ for kind in self.own.layers | self.own.alike)
        names = {*self.own.methods, *(one.__name__ for one in self.own.functions)}
        functions = sorted(name for name in names if not name.endswith("_"))
        return self.draft.wrong(
            where,
            f"{what} is not supported: possible are the modules {', '.join(modules)} and the "
            f"functions {', '.join(functions)}",
        )

    def _resolve(self, where: str, value: Any) -> Any:
        """An argument, with what was computed in the places of the trace's nodes."""
        if isinstance(value, (tuple, list)):
            return tuple(self._resolve(where, one) for one in value)
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return slice(*(self._resolve(where, one) for one in parts))
        if not isinstance(value, self.module.fx.Node):
            return value
        found = self.values[value]
        for one in found if isinstance(found, tuple) else (found,):
            tensor = one.tensor if isinstance(one, Regrouped) else one
            if isinstance(tensor, Tensor) and tensor.changed:
                raise self.draft.wrong(
                    where,
                    f"it reads {value.name!r}, which may share its memory with what was changed in "
                    f"place at {tensor.changed!r}: do without inplace=True, += or a method ending "
                    "in _ there",
                )
        return found


def _called(node: Any) -> str:
    return str(getattr(node.target, "__name__", node.target))
