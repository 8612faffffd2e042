"""A torch module: nothing runs beside its forward, copies of it compute, and one is traced."""

from __future__ import annotations

import contextlib
import copy
import importlib
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, Error, ModelError
from ._network import Floats

#: What decides about a call of a module and its mode, and is a type's own, not an instance's.
_CALLS = ("forward", "_call_impl", "_compiled_call_impl", "_slow_forward", "train", "eval")
#: `h += y` is another assignment for torch.fx, so the tracer is told that it changes h.
_IN_PLACE = (
    *("iadd", "isub", "imul", "imatmul", "itruediv", "ifloordiv", "imod", "ipow"),
    *("iand", "ior", "ixor", "ilshift", "irshift"),
)


@contextlib.contextmanager
def telling(what: str) -> Iterator[None]:
    """Makes an error of torch, or of the module's own code, one of hushtable's."""
    try:
        yield
    except Error:
        raise
    except Exception as error:  # of any kind
        raise ModelError(f"{what}: {error}") from error


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


class Module:
    """A module, its copies in evaluation, and what they compute.

    Attributes:
        source: the name of its type, for messages.
        torch: the package.
        fx: its tracer.
        dtype: of the module's numbers, and so of its inputs.
        odd: by path, why a module computes other than its type does.
    """

    def __init__(self, module: Any) -> None:
        try:
            self.torch = importlib.import_module("torch")
            self.fx = importlib.import_module("torch.fx")
        except ImportError as error:
            raise ConfigError(
                "torch modules are taken apart by torch itself: `pip install 'hushtable[torch]'`"
            ) from error
        if not isinstance(module, self.torch.nn.Module):
            raise ConfigError(f"a torch.nn.Module is expected, not {type(module).__name__}")
        self.source = type(module).__name__
        self._seeds = itertools.count()
        with telling(f"{self.source} is no module that can be read"):
            self._refuse_hooks_of_all()
            self.odd = {
                path: f"{self.source}, {path or 'the module itself'} ({type(one).__name__}): {why}"
                for path, one in module.named_modules()
                if (why := self._odd(one))
            }
            self.dtype = self._dtype(module)
        self._given = module

    def trace(self) -> None:
        """Copies the module, and traces a copy.

        Raises:
            ModelError: a module that cannot be copied, or traced.
        """
        # Two, as tracing may leave something in one.
        self.whole, self._own = self._copied(self._given), self._copied(self._given)
        tracer, proxy = self.fx.Tracer(), _proxy(self.fx)
        tracer.proxy = lambda node: proxy(node, tracer)
        with (
            self._apart(),
            telling(
                f"{self.source} cannot be traced by torch.fx with one input: export it to ONNX, "
                "and import that"
            ),
        ):
            self.graph = tracer.trace(self.whole)

    def _refuse_hooks_of_all(self) -> None:
        for name, hooks in vars(self.torch.nn.modules.module).items():
            if name.startswith("_global_forward") and hooks:
                raise ModelError(
                    f"torch has hooks that run at every module's forward ({name}), which may "
                    "change numbers: remove them"
                )

    def _odd(self, one: Any) -> str:
        """What runs beside a module's forward, or in its place, and so is in no trace."""
        for hook in (*one._forward_pre_hooks.values(), *one._forward_hooks.values()):
            label = getattr(hook, "__qualname__", type(hook).__name__)
            return (
                f"the hook {label} runs at every forward, and may change numbers: remove it "
                "(torch.nn.utils.remove_weight_norm and remove_spectral_norm, and prune.remove "
                "there, leave the weights that theirs compute)"
            )
        for name in _CALLS:
            if name in vars(one):
                return (
                    f"{name} is replaced on this one instance: give the module as its type has "
                    "it, or export it to ONNX, and import that"
                )
        if self.torch.nn.utils.parametrize.is_parametrized(one):
            return (
                "its weights are parametrized: "
                "torch.nn.utils.parametrize.remove_parametrizations leaves what is computed"
            )
        return ""

    def _dtype(self, module: Any) -> Any:
        torch = self.torch
        tensors = (*module.parameters(), *module.buffers())
        found = {one.dtype for one in tensors if one.is_floating_point() or one.is_complex()}
        if found <= {torch.float32} or found == {torch.float64}:
            return torch.float64 if torch.float64 in found else torch.float32
        names = ", ".join(sorted(map(str, found)))
        raise ModelError(
            f"{self.source} has weights of {names}: of torch.float32 throughout, or of "
            "torch.float64, is possible; call .float() on it, and look at what it then answers"
        )

    def _copied(self, module: Any) -> Any:
        """A copy in evaluation, in a module that calls it as anyone does."""
        with (
            self._apart(),
            telling(
                f"{self.source} cannot be copied and put into evaluation on the CPU, and it is "
                "not changed itself: export it to ONNX, and import that"
            ),
        ):
            copied = copy.deepcopy(module)
            if {id(one) for one in copied.modules()} & {id(one) for one in module.modules()}:
                raise ModelError(f"{self.source}: its copy shares modules with it")
            copied.cpu().eval()
            return self.torch.nn.Sequential(copied)

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """Without gradients, and with random numbers of its own each time: whoever computes with
        them gives other answers the next time, and torch's own are as they were afterwards.
        """
        with self.torch.random.fork_rng(devices=[]), self.torch.no_grad():
            self.torch.default_generator.manual_seed(next(self._seeds))
            yield

    def answers(self, images: Floats) -> npt.NDArray[Any]:
        """What the module gives for images: by its own code, on a copy of them."""
        with self._apart():
            return np.asarray(self._own(self._tensor(images)).double().numpy())

    def _tensor(self, images: Floats) -> Any:
        return self.torch.tensor(images, dtype=self.dtype, device="cpu")

    def values(self, images: Floats) -> Iterator[tuple[Any, npt.NDArray[Any]]]:
        """What each node of the trace gives for images, as far as torch computes tensors."""
        found = []
        interpreter = self.fx.Interpreter(self.whole, graph=self.graph)
        run = interpreter.run_node

        def watched(node: Any) -> Any:
            value = run(node)
            if isinstance(value, self.torch.Tensor):
                found.append((node, value.detach().double().clone().numpy()))
            return value

        interpreter.run_node = watched
        with self._apart(), contextlib.suppress(Exception):
            interpreter.run(self._tensor(images))
        return iter(found)

    def where(self, node: Any) -> str:
        """A node of the trace, for messages."""
        if node.op != "call_module":
            return f"node {node.name!r}"
        kind = type(self.whole.get_submodule(node.target)).__name__
        return f"module {self.path(node) or self.source!r} ({kind})"

    def path(self, node: Any) -> str:
        """A module's place, as its owner calls it; empty of the whole."""
        return str(node.target).partition(".")[2]
