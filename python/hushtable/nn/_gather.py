"""Asks for all private layers of a model together, before the first of them is called.

A hook that runs before the model's ``forward`` works out the ids of its layers (:mod:`._trace`),
and the layers' calls are answered by as few round trips as their ids depend on each other's rows
(:mod:`._trips`). A layer checks that it was given the ids that were foreseen, and otherwise asks by
itself: what the model computes is the same in any case.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import fx

from .._types import LookupStats
from ..errors import Error
from ._module import Served
from ._trace import (
    Impure,
    Inputs,
    Level,
    Plan,
    PureMode,
    check_pure_call,
    check_pure_module,
    follow,
    ids_of,
    input_name,
)
from ._trips import Asked, Forward, ForwardStats, Trip, of_this_thread

__all__ = ["Gather"]

#: Most plans that a model has: for training and evaluation, with and without an optional input.
_PLANS_MAX = 16


class _Unknown:
    """In place of a value that could not be worked out ahead."""


class Gather:
    """What looks ahead in a model's forwards. Threads may share it.

    A copied or pickled one has no plans yet.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: dict[Any, _Known] = {}
        self._last = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]

    @property
    def last_stats(self) -> ForwardStats | None:
        """What this thread's last forward cost; None before the first."""
        return getattr(self._last, "stats", None)

    def given_up(self) -> dict[str, str]:
        """By path, layers that ask by themselves since something was found out in a forward."""
        return {
            str(node.target): why
            for known in list(self._plans.values())
            for node, why in list(known.given_up.items())
        }

    def install(self, model: Any) -> None:
        """Hooks the model, in place of those that were here or in its parts."""
        for module in model.modules():
            for hooks in (module._forward_pre_hooks, module._forward_hooks):
                for number, hook in list(hooks.items()):
                    if isinstance(getattr(hook, "__self__", None), Gather):
                        _unhook(module, number)
        model.register_forward_pre_hook(self.before, with_kwargs=True)
        model.register_forward_hook(self.after, always_call=True)

    def before(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The hook before a forward."""
        if torch.compiler.is_compiling():
            return
        running = of_this_thread()
        if running.following or torch.jit.is_tracing():
            return
        # A forward that was interrupted did not come to its end.
        self._ended(running)
        forward = Forward(self)
        running.forwards.append(forward)
        if any(isinstance(one, fx.Proxy) for one in (*args, *kwargs.values())):
            return
        try:
            known = self.known(model, Inputs.of_call(args, kwargs), model.training)
            known.look_ahead(forward, model, args, kwargs)
        # The model is another by now. Its layers ask by themselves.
        except Exception:
            forward.coming.clear()

    def after(self, model: Any, args: tuple[Any, ...], found: Any) -> None:
        """The hook after a forward, also after one that failed."""
        if torch.compiler.is_compiling():
            return
        for forward in self._ended(of_this_thread()):
            self._last.stats = forward.stats

    def _ended(self, running: Any) -> list[Forward]:
        """The model's forwards that ran."""
        ended = [one for one in running.forwards if one.owner is self]
        for forward in ended:
            running.forwards.remove(forward)
            for call in forward.missed:
                call.level.known.give_up(call.node)
            forward.end()
        return ended

    def known(self, model: Any, inputs: Inputs, training: bool) -> _Known:
        """The plan for such calls, in training or evaluation."""
        known = self._plans.get((training, inputs.key))
        if known is None:
            with self._lock:
                if len(self._plans) >= _PLANS_MAX:
                    # Of many texts, as the names of requests, there is one plan for all.
                    inputs = inputs.of_any_text()
                key = training, inputs.key
                known = self._plans.get(key)
                if known is None:
                    if len(self._plans) >= 2 * _PLANS_MAX:
                        return _Known(Plan(stopped="it is called in too many ways"))
                    known = self._plans[key] = _Known(follow(model, training, inputs, _why_alone))
        return known


def _unhook(module: Any, number: int) -> None:
    for name, hooks in vars(module).items():
        if name.startswith(("_forward_pre_hooks", "_forward_hooks")):
            hooks.pop(number, None)


def _why_alone(layer: Any) -> str | None:
    """Why a private layer is asked when it is called."""
    if not hasattr(layer, "asks_for"):
        return f"a {type(layer).__name__} asks for no rows"
    if layer.served_by is None:
        return "it was not made by privatize of a model's client"
    return None


class _Known:
    """A plan, and what was found out since."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        #: Of calls that are not foreseen after all, the reason.
        self.given_up: dict[fx.Node, str] = {}
        #: Operations that may not be run ahead.
        self.impure: set[fx.Node] = set()

    def look_ahead(
        self, forward: Forward, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        """Says to a forward which calls will come."""
        if not self.plan.trips:
            return
        values: dict[fx.Node, Any] = {}
        given = {input_name(place): one for place, one in enumerate(args)}
        given |= {input_name(name): one for name, one in kwargs.items()}
        levels: list[_Ahead] = []
        for level in self.plan.trips:
            ahead = _Ahead(self, forward, model, level, values, given, levels[:])
            levels.append(ahead)
            for node in level.calls:
                if node not in self.given_up:
                    layer = model.get_submodule(str(node.target))
                    forward.coming.setdefault(layer.handle, []).append(_Call(ahead, node))
        # The first level by what the inputs are now; the forward may write into them.
        levels[0].prepare()

    def give_up(self, node: fx.Node, why: str = "its ids were others than its code said") -> None:
        """Lets a layer ask by itself from now on."""
        self.given_up.setdefault(node, why)


@dataclass(eq=False)
class _Call:
    """A call that was foreseen."""

    level: _Ahead
    node: fx.Node

    def asked(self) -> Asked | None:
        return self.level.prepare().get(self.node)

    @property
    def failed(self) -> bool:
        return self.node in self.level.failed

    def answer(self) -> tuple[Any, LookupStats | None]:
        self.level.prepare()
        return self.level.trips[self.node].answer(self.node)


class _Ahead:
    """One level of a forward: its calls' ids, once they are worked out."""

    def __init__(
        self,
        known: _Known,
        forward: Forward,
        model: Any,
        level: Level,
        values: dict[fx.Node, Any],
        given: Mapping[str, Any],
        earlier: list[_Ahead],
    ) -> None:
        self.known = known
        self.trips: dict[fx.Node, Trip] = {}
        #: Calls whose ids could not be worked out.
        self.failed: set[fx.Node] = set()
        self._forward = forward
        self._model = model
        self._level = level
        self._values = values
        self._given = given
        self._earlier = earlier
        self._asked: dict[fx.Node, Asked] | None = None
        #: A server failed: it says nothing of the code.
        self._is_cut_off = False

    def prepare(self) -> Mapping[fx.Node, Asked]:
        """What each of the calls asks for, those of which that could be worked out."""
        if self._asked is None:
            self._asked = {}
            for level in self._earlier:
                level.prepare()
                self._is_cut_off = self._is_cut_off or level._is_cut_off
            # Each time: what an operation does may depend on what it is given.
            with torch.no_grad(), PureMode():
                self._run()
            self._asked = self._collect()
        return self._asked

    def _run(self) -> None:
        """Works out all values, as far as that can be done."""
        for node in self._level.steps:
            try:
                self._values[node] = self._value(node)
                continue
            except Impure as error:
                self.known.impure.add(node)
                self._give_up_after(node, str(error))
            except Error:
                self._is_cut_off = True
            # The forward will fail at the same place, or go another way.
            except Exception:
                pass
            self._values[node] = _Unknown()

    def _value(self, node: fx.Node) -> Any:
        def value(one: fx.Node) -> Any:
            found = self._values[one]
            if isinstance(found, _Unknown):
                raise LookupError(one.name)
            return found

        if node in self.known.impure:
            raise LookupError(node.name)
        if node.op == "placeholder":
            return self._given[str(node.target)]
        if node.op == "get_attr":
            if node.name in self.known.plan.constants:
                return self.known.plan.constants[node.name]
            return functools.reduce(getattr, str(node.target).split("."), self._model)
        args = fx.node.map_arg(node.args, value)
        kwargs = fx.node.map_arg(node.kwargs, value)
        if node.op == "call_function":
            return cast(Any, node.target)(*args, **kwargs)
        if node.op == "call_method":
            check_pure_call(args[0], str(node.target))
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        module = self._model.get_submodule(str(node.target))
        # Hooks are for the forward itself: none runs here.
        if not isinstance(module, Served):
            check_pure_module(module, str(node.target))
            return module.forward(*args, **kwargs)
        level = next(one for one in self._earlier if node in one.trips)
        call = _Call(level, node)
        if call.answer()[0] is None:
            raise LookupError(node.name)
        self._forward.ahead = call
        try:
            return module.forward(*args, **kwargs)
        finally:
            self._forward.ahead = None

    def _give_up_after(self, node: fx.Node, why: str) -> None:
        """Of an operation that may not be run ahead, all calls that depend on it."""
        after, queue = set(), [node]
        while queue:
            one = queue.pop()
            if one not in after:
                after.add(one)
                queue += one.users
        for level in self.known.plan.trips:
            for call in level.calls:
                if call in after:
                    self.known.give_up(call, why)

    def _collect(self) -> dict[fx.Node, Asked]:
        asked: dict[fx.Node, Asked] = {}
        by_model: dict[int, tuple[Any, dict[Any, Asked], dict[str, int]]] = {}
        for node in self._level.calls:
            if node in self.known.given_up:
                continue
            layer = self._model.get_submodule(str(node.target))
            try:
                ids = fx.node.map_arg(ids_of(node), self._values.__getitem__)
                call = layer.asks_for(ids)
            # The layer will say what is wrong with its ids.
            except Exception:
                if not _has_unknown(node, self._values):
                    return {}
                if not self._is_cut_off:
                    self.failed.add(node)
                continue
            asked[node] = call
            _, calls, dims = by_model.setdefault(id(layer.served_by), (layer.served_by, {}, {}))
            calls[node] = call
            dims.update(layer.feature_dims())
        for model, calls, dims in by_model.values():
            trip = Trip(model, calls, dims)
            self.trips.update(dict.fromkeys(calls, trip))
        return asked


def _has_unknown(node: fx.Node, values: Mapping[fx.Node, Any]) -> bool:
    return any(isinstance(values.get(one), _Unknown) for one in node.all_input_nodes)
