"""What a model's private layers will be asked for, found by following its code once.

torch's FX runs the model's ``forward`` with stand-ins for its inputs and notes each operation. Of
that the arithmetic is kept that leads to layers' ids. It can then be run before the forward itself
is. Whatever cannot be followed, or would change something if it ran twice, is left out: such layers
are asked when they are called.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import inspect
import math
import operator
import random
import sys
import types
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.nn.modules.module import _has_any_global_hook
from torch.utils._python_dispatch import TorchDispatchMode

from ._module import Served
from ._trips import of_this_thread

__all__ = [
    "Impure",
    "Inputs",
    "Level",
    "Plan",
    "PureMode",
    "check_pure_call",
    "check_pure_module",
    "follow",
    "ids_of",
    "input_name",
]


@dataclass(frozen=True, eq=False)
class Level:
    """Layers' calls of which none depends on another's rows.

    Attributes:
        calls: the calls.
        steps: the operations that lead to their ids and not to those of a level before.
    """

    calls: tuple[fx.Node, ...]
    steps: tuple[fx.Node, ...]


@dataclass(frozen=True)
class Plan:
    """How to foresee what a model's private layers are asked for.

    Attributes:
        trips: of each round trip what it answers, in the order of the code. The ids of one depend
            on rows of those before it.
        constants: tensors that the code holds, by the name of the operation.
        alone: of each layer that is asked when it is called, by its path, the reason.
        stopped: why the code could be followed no further; None where all of it was.
    """

    trips: tuple[Level, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    alone: Mapping[str, str] = field(default_factory=dict)
    stopped: str | None = None


class Impure(Exception):
    """An operation that may not be run ahead: it changes something, or draws random numbers."""


_LEVEL = "hushtable level"
#: Most loops over inputs whose length is found out, for each of which the code is followed again.
_LOOPS_MAX = 16
#: Stands for an input that may be anything.
OPEN = object()


@dataclass(frozen=True)
class Inputs:
    """A call's inputs, as far as a plan is for them alone; OPEN in place of all others.

    Attributes:
        args: by place.
        kwargs: by name.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @classmethod
    def of_call(cls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Inputs:
        """What is fixed of a call's inputs: those that code branches on without reading tensors."""
        return cls(
            tuple(map(_fixed, args)), {name: _fixed(kwargs[name]) for name in sorted(kwargs)}
        )

    @classmethod
    def of_code(cls, model: Any) -> Inputs | None:
        """Of a call that gives what has no default; None where the code takes ``*args``."""
        parameters = inspect.signature(model.forward).parameters.values()
        if any(one.kind is one.VAR_POSITIONAL for one in parameters):
            return None
        needed = [one for one in parameters if one.default is one.empty]
        by_name = [one.name for one in needed if one.kind is one.KEYWORD_ONLY]
        places = sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in needed)
        return cls((OPEN,) * places, dict.fromkeys(by_name, OPEN))

    def of_any_text(self) -> Inputs:
        """The same, of calls whose texts are others too."""
        args = tuple(OPEN if isinstance(one, str) else one for one in self.args)
        named = {name: OPEN if isinstance(one, str) else one for name, one in self.kwargs.items()}
        return Inputs(args, named)

    @property
    def key(self) -> tuple[Any, ...]:
        """The same of calls that one plan is for."""
        return self.args, tuple(self.kwargs.items())


def input_name(place: int | str) -> str:
    """What stands for an input in a plan, by its place or its name."""
    return f"input_{place}"


def _fixed(given: Any) -> Any:
    return given if given is None or isinstance(given, bool | str) else OPEN


def follow(
    model: Any, training: bool, inputs: Inputs, may_gather: Callable[[Any], str | None]
) -> Plan:
    """A plan for calls of ``model``.

    The code runs on copies of the modules, with the same weights: what it writes into them is lost.

    Args:
        model: with private layers in it.
        training: whether calls are in training; then all of its parts are that are as it is now.
        inputs: of the calls.
        may_gather: why a layer is to be asked by itself; None where it need not be.
    """
    if "forward" in vars(model):
        return Plan(stopped="its forward was replaced")
    lengths: dict[int, int] = {}
    with _following(), torch.no_grad():
        tracer, error = _attempt(model, training, inputs, lengths)
        # A loop over an input that counts through layers is as long as they are.
        while len(lengths) < _LOOPS_MAX and (loop := _loop_that_ended(tracer, error)) is not None:
            if loop[0] in lengths:
                break
            lengths[loop[0]] = loop[1]
            tracer, error = _attempt(model, training, inputs, lengths)
    stopped = None
    if error is not None:
        first = (str(error).strip().splitlines() or [""])[0]
        stopped = f"{type(error).__name__}: {first}"[:160]
    return Plan(stopped=stopped) if tracer is None else _plan(model, tracer, stopped, may_gather)


def _attempt(
    model: Any, training: bool, inputs: Inputs, lengths: Mapping[int, int]
) -> tuple[_Tracer | None, Exception | None]:
    """Follows the code once; how far it came, and what stopped it."""
    tracer = None
    try:
        tracer = _Tracer(model, training, lengths)
        with PureMode():
            tracer.run(inputs)
    # Whatever a stranger's code does with what is no tensor.
    except Exception as error:
        return tracer, error
    return tracer, None


def _loop_that_ended(tracer: _Tracer | None, error: Exception | None) -> tuple[int, int] | None:
    """Which loop over an input went past the layers, and how many of them there were."""
    if tracer is None or not isinstance(error, IndexError | KeyError):
        return None
    return tracer.loops[-1] if tracer.loops else None


def _plan(
    model: Any,
    tracer: _Tracer,
    stopped: str | None,
    may_gather: Callable[[Any], str | None],
) -> Plan:
    nodes = list(tracer.graph.nodes)
    changed = _changed(nodes)
    alone: dict[str, str] = {}
    reasons: dict[fx.Node, str | None] = {}
    level_of: dict[fx.Node, int] = {}
    calls: list[fx.Node] = []
    for node in nodes:
        inputs = node.all_input_nodes
        why = next((reasons[one] for one in inputs if reasons[one]), None)
        layer = _private(model, node)
        if why is None:
            why = _impure(model, node) if node not in changed else changed[node]
        if why is None and node in tracer.endless:
            why = "it is called for each part of an input, and how many there are is not known"
        reasons[node] = why
        level_of[node] = max((level_of[one] for one in inputs), default=0)
        if layer is None:
            continue
        ids = ids_of(node)
        found = _nodes_in(ids)
        why = next((reasons[one] for one in found if reasons[one]), None) or may_gather(layer)
        if why is not None:
            alone.setdefault(str(node.target), why)
            reasons[node] = f"its ids depend on {node.target}, which is asked by itself"
            continue
        level = max((level_of[one] for one in found), default=0)
        level_of[node] = max(level + 1, level_of[node])
        node.meta[_LEVEL] = level
        calls.append(node)
    levels: dict[int, list[fx.Node]] = {}
    for node in calls:
        levels.setdefault(node.meta[_LEVEL], []).append(node)
    if all(len(one) == 1 for one in levels.values()):
        # Nothing to gather.
        return Plan(alone=alone, stopped=stopped)
    known: set[fx.Node] = set()
    trips = []
    for level in sorted(levels):
        wanted: set[fx.Node] = set()
        queue = [one for node in levels[level] for one in _nodes_in(ids_of(node))]
        while queue:
            node = queue.pop()
            if node not in wanted and node not in known:
                wanted.add(node)
                queue += node.all_input_nodes
        known |= wanted
        trips.append(Level(tuple(levels[level]), tuple(one for one in nodes if one in wanted)))
    constants = {
        node.name: getattr(tracer.root, str(node.target))
        for node in known
        if node.op == "get_attr" and str(node.target).startswith("_tensor_constant")
    }
    return Plan(tuple(trips), constants, alone, stopped)


def ids_of(node: fx.Node) -> Any:
    """What a layer is asked for: its first argument, whatever that is called."""
    if node.args:
        return node.args[0]
    return node.kwargs.get("input", node.kwargs.get("features"))


def _nodes_in(argument: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.node.map_arg(argument, found.append)
    return found


def _private(model: Any, node: fx.Node) -> Served | None:
    if node.op != "call_module":
        return None
    layer = model.get_submodule(str(node.target))
    return layer if isinstance(layer, Served) else None


_IN_PLACE = {
    operator.setitem,
    operator.delitem,
    *(vars(operator)[name] for name in dir(operator) if name.startswith("i") and name[1:] in (
        "add", "and", "concat", "floordiv", "lshift", "matmul", "mod", "mul", "or", "pow",
        "rshift", "sub", "truediv", "xor",
    )),
}  # fmt: skip
#: Where functions are whose effects are known, or are checked when they are run.
_HOMES = (torch, torch.nn.functional, torch.special, torch.fft, torch.linalg, math, operator)


#: Operations whose result may be their first argument in another shape.
_VIEWS = frozenset(
    {
        *("_item", "chunk", "contiguous", "detach", "expand", "flatten", "get", "getattr"),
        *("getitem", "long", "narrow", "permute", "reshape", "select", "split", "squeeze", "t"),
        *("to", "transpose", "unbind", "unflatten", "unsqueeze", "values", "view"),
    }
)


def _changes(node: fx.Node) -> bool:
    """Whether an operation writes into its first argument."""
    if node.kwargs.get("out") is not None or node.kwargs.get("inplace"):
        return True
    name = str(node.target)
    if node.op == "call_method":
        return name.endswith("_") and not name.endswith("__")
    if node.op != "call_function":
        return False
    own = getattr(node.target, "__name__", "")
    return node.target in _IN_PLACE or (own.endswith("_") and not own.endswith("__"))


def _changed(nodes: Sequence[fx.Node]) -> dict[fx.Node, str]:
    """What an operation somewhere in the code writes into, with views of it, and the reason."""
    changed: dict[fx.Node, str] = {}
    for node in nodes:
        if not _changes(node):
            continue
        why = f"its ids come from what {node.name} changes in place"
        target: Any = node.kwargs.get("out") or (node.args[0] if node.args else None)
        while isinstance(target, fx.Node) and target not in changed:
            changed[target] = why
            name = str(getattr(target.target, "__name__", target.target))
            target = target.args[0] if target.args and name in _VIEWS else None
    return changed


def _impure(model: Any, node: fx.Node) -> str | None:
    """Why an operation is not run ahead, as far as its name says it."""
    if _changes(node):
        return f"its ids come from what {node.name} changes in place"
    if node.op == "call_function":
        if node.target in (getattr, len, _item):
            return None
        own = getattr(node.target, "__name__", "")
        if any(getattr(home, own, None) is node.target for home in _HOMES):
            return None
        return f"its ids come from {own or node.target}, which may have effects of its own"
    if node.op == "call_module":
        module = model.get_submodule(str(node.target))
        if isinstance(module, Served):
            return None
        if getattr(module, "inplace", False):
            return f"its ids come from {node.target}, which changes its input in place"
        if _has_hooks(module):
            return f"its ids come from {node.target}, which has hooks"
        with_effects = _with_effects(module)
        return with_effects and f"its ids come from {node.target}, {with_effects}"
    return None


def check_pure_module(module: Any, path: str) -> None:
    """Refuses a module that has come to do more than torch's own ``forward``.

    Raises:
        Impure: such a one.
    """
    why = _with_effects(module)
    if why is not None:
        raise Impure(f"its ids come from {path}, {why}")


def _with_effects(module: Any) -> str | None:
    """What a module's ``forward`` runs beside torch's own code."""
    for one in module.modules():
        if not type(one).__module__.startswith(("torch.nn.", "torch.ao.nn.")):
            return f"which runs a {type(one).__name__}"
        if "forward" in vars(one):
            return "whose forward was replaced"
        if one is not module and (_has_hooks(one) or _has_any_global_hook()):
            return "which has hooks"
    return None


def _has_hooks(module: Any) -> bool:
    return any(
        value
        for name, value in vars(module).items()
        if name.endswith("_hooks") and "state" not in name
    )


def _item(values: Any, place: int) -> Any:
    """What a loop over an input meets at some place."""
    if isinstance(values, torch.Tensor | np.ndarray | Sequence):
        return values[place]
    if isinstance(values, Mapping | KeysView | ItemsView | ValuesView):
        return next(islice(values, place, None))
    raise Impure(f"a {type(values).__name__} may be used up by a look at it")


class _Tracer(fx.Tracer):
    """Follows a model's code down to private layers and torch's own.

    FX's own ``trace`` patches all modules of the process meanwhile, those of other threads too.
    Here the modules are copies, of classes that tell this tracer of what is done with them.
    """

    proxy_buffer_attributes = True

    def __init__(self, model: Any, training: bool, lengths: Mapping[int, int]) -> None:
        super().__init__()
        self._lengths = lengths
        self._loops = 0
        #: Of loops over inputs that go on, the innermost last: which it is, and its place.
        self.loops: list[tuple[int, int]] = []
        self._training = {model.training: training}
        #: What was taken out of inputs in loops that did not end.
        self.endless: set[fx.Node] = set()
        self.graph = fx.Graph(tracer_cls=type(self))
        self._parameters: dict[str, Any] = {}
        self._copies: dict[int, Any] = {}
        self.root = self._copy(model)
        self.submodule_paths = {module: path for path, module in self.root.named_modules()}
        self.tensor_attrs = {
            value: f"{path}.{name}" if path else name
            for module, path in self.submodule_paths.items()
            for name, value in vars(module).items()
            if isinstance(value, torch.Tensor)
        }

    def run(self, inputs: Inputs) -> None:
        """Notes what the model's code does."""
        args = [self._stand_in(place, one) for place, one in enumerate(inputs.args)]
        kwargs = {name: self._stand_in(name, one) for name, one in inputs.kwargs.items()}
        self.root.forward(*args, **kwargs)

    def _stand_in(self, name: int | str, given: Any) -> Any:
        if given is not OPEN:
            return given
        return self.create_proxy("placeholder", input_name(name), (), {})

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, Served):
            return True
        holds = any(isinstance(one, Served) for one in m.modules())
        return not holds and super().is_leaf_module(m, module_qualified_name)

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        # A loop over layers and inputs ends with the layers. One over inputs alone does not end.
        loop, self._loops = self._loops, self._loops + 1
        met: list[fx.Node] = []
        for place in range(self._lengths.get(loop, len(self.submodule_paths or ()) + 8)):
            found = self.create_proxy("call_function", _item, (obj, place), {})
            met.append(found.node)
            self.loops.append((loop, place))
            yield found
            self.loops.remove((loop, place))
        if loop in self._lengths:
            return
        self.endless.update(met)
        raise fx.proxy.TraceError("it loops over an input, whose length is not known")

    def _copy(self, module: Any) -> Any:
        """A module with the same attributes, weights and parts, into which code may write."""
        if id(module) in self._copies:
            return self._copies[id(module)]
        kind = type(module)
        tracer = self

        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            own = functools.partial(kind.__call__, self)
            return tracer.call_module(self, own, args, kwargs)

        def read(self: Any, name: str) -> Any:
            return tracer.getattr(name, kind.__getattr__(self, name), tracer._parameters)

        own = {"__call__": called, "__getattr__": read, "__module__": kind.__module__}
        copied: Any = object.__new__(type(kind.__name__, (kind,), own))
        self._copies[id(module)] = copied
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                value = value.clone()
            elif type(value) in (dict, collections.OrderedDict) and name in _OF_MODULES:
                value = value.copy()
            elif not isinstance(module, Served):
                value = self._apart(value)
            copied.__dict__[name] = value
        copied.training = self._training.get(module.training, module.training)
        for name, one in vars(module)["_modules"].items():
            copied.__dict__["_modules"][name] = None if one is None else self._copy(one)
        return copied

    def _apart(self, value: Any) -> Any:
        """A value of a module into which code may write; the same where none is known to be made.

        A tensor stays: what would write into it is refused.
        """
        if id(value) in self._copies:
            return self._copies[id(value)]
        kind = type(value)
        if isinstance(value, torch.nn.Module):
            return self._copy(value)
        if kind is types.MethodType:
            return types.MethodType(value.__func__, self._apart(value.__self__))
        if kind is tuple:
            return tuple(map(self._apart, value))
        if kind in _DRAWN_FROM or (kind is np.ndarray and value.dtype != object):
            made = copy.deepcopy(value)
        elif kind in _HOLDERS:
            made = value.copy()
        elif _is_plain(kind):
            made = object.__new__(kind)
        else:
            return value
        self._copies[id(value)] = made
        if kind in _HOLDERS and len(made) <= _HELD_MAX:
            if isinstance(made, dict):
                for key, one in value.items():
                    made[key] = self._apart(one)
            elif not isinstance(made, set):
                made.clear()
                made.extend(map(self._apart, value))
        elif _is_plain(kind):
            vars(made).update({name: self._apart(one) for name, one in vars(value).items()})
        return made


#: What torch's own modules hold.
_OF_MODULES = frozenset(vars(torch.nn.Module()))
_HOLDERS = (
    *(list, dict, set, collections.OrderedDict, collections.defaultdict),
    *(collections.Counter, collections.deque),
)
#: Of more than so many things those are left that the things themselves hold.
_HELD_MAX = 10_000
_DRAWN_FROM = (random.Random, np.random.Generator, np.random.RandomState)
_MAKING = ("__new__", "__reduce__", "__reduce_ex__")
#: Where classes may stand for more than what their attributes say.
_LIBRARIES = frozenset({*sys.stdlib_module_names, "hushtable", "numpy", "torch", "torchrec"})


def _is_plain(kind: type) -> bool:
    """Whether an object of a class is its attributes and nothing else."""
    return (
        kind.__module__.partition(".")[0] not in _LIBRARIES
        and bool(kind.__dictoffset__)
        and kind.__basicsize__ <= _Plain.__basicsize__
        and all(getattr(kind, one) is getattr(object, one) for one in _MAKING)
        and not hasattr(kind, "__del__")
    )


class _Plain:
    pass


@contextlib.contextmanager
def _following() -> Iterator[None]:
    """Nothing is foreseen meanwhile, and all random numbers are put back."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    of_this_thread().following = True
    try:
        with torch.random.fork_rng(list(devices)):
            yield
    finally:
        of_this_thread().following = False
        random.setstate(python)
        np.random.set_state(numpy)


#: Methods of inputs that are no tensors: of lists and dicts, and of torchrec's jagged tensors.
_READS = frozenset(
    {
        "copy",
        "count",
        "get",
        "index",
        "items",
        "keys",
        "length_per_key",
        "lengths",
        "lengths_or_none",
        "offset_per_key",
        "offsets",
        "offsets_or_none",
        "stride",
        "to_dict",
        "values",
        "weights",
        "weights_or_none",
    }
)


def check_pure_call(receiver: Any, name: str) -> None:
    """Refuses a method that may change what it belongs to.

    Raises:
        Impure: such a one.
    """
    if isinstance(receiver, torch.Tensor | torch.Size):
        return
    # A queue's takes out what it gives.
    if name not in _READS or (name == "get" and not isinstance(receiver, Mapping)):
        raise Impure(f"its ids come from {type(receiver).__name__}.{name}")


#: Arguments by which an operation is told whether it trains.
_TRAINS = ("train", "training", "use_input_stats")


class PureMode(TorchDispatchMode):
    """Refuses operations that write into what was there before, or draw random numbers.

    Raises:
        Impure: such an operation, before it runs.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # To be kept from torch's compiler it would have to be imported, which takes seconds.
        return False

    def __init__(self) -> None:
        super().__init__()
        self._own: set[int] = set()
        self._kept: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        schema = func._schema
        named = {one.name: value for one, value in zip(schema.arguments, args, strict=False)}
        named |= kwargs or {}
        trains = not any(named.get(one) is False for one in _TRAINS)
        if trains and torch.Tag.nondeterministic_seeded in func.tags:
            raise Impure(f"its ids come from {name}, which draws random numbers")
        # Its schema does not say that it writes there.
        if trains and named.get("running_mean") is not None:
            raise Impure(f"its ids come from {name}, which changes running statistics")
        if schema.is_mutable:
            for argument in schema.arguments:
                if argument.alias_info is None or not argument.alias_info.is_write:
                    continue
                if not self._is_own(named.get(argument.name)):
                    raise Impure(f"its ids come from {name}, which changes a tensor in place")
        found = func(*args, **(kwargs or {}))
        given = {_storage(one) for one in _tensors((args, kwargs))}
        for one in _tensors(found):
            if _storage(one) not in given:
                self._own.add(_storage(one))
                self._kept.append(one)
        return found

    def _is_own(self, given: Any) -> bool:
        return all(_storage(one) in self._own for one in _tensors(given))


def _tensors(values: Any) -> list[Any]:
    leaves, _ = torch.utils._pytree.tree_flatten(values)
    return [one for one in leaves if isinstance(one, torch.Tensor)]


def _storage(tensor: Any) -> int:
    found: int = tensor.untyped_storage()._cdata
    return found
