"""Torch modules as networks: what is taken computes what the module does, and the rest is refused.

Each case is held against the module itself, in evaluation, on three images.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hushtable.errors import ConfigError, ModelError
from hushtable.infer import _torch, _torch_tensors, networks
from hushtable.infer.networks import Draft, Network

torch = pytest.importorskip("torch", reason="the extra hushtable[torch] is not installed")
nn, F = torch.nn, torch.nn.functional
pytestmark = [
    # What torch's own tracer and old functions say of themselves.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*"),
    pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning"),
]

SHAPE = (4, 6, 6)
Make = Callable[[], Any]


class Of(nn.Module):  # type: ignore[misc, name-defined]
    """A module that computes a function of itself and its input."""

    def __init__(self, function: Callable[..., Any], **layers: Any) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def conv(channels: int = 4, outputs: int = 4, kernel: Any = 3, **more: Any) -> Any:
    return nn.Conv2d(channels, outputs, kernel, **{"padding": 1, **more})


def norm(channels: int = 4, kind: Any = nn.BatchNorm2d, **more: Any) -> Any:
    made = kind(channels, **more)
    with torch.no_grad():
        made.running_mean.normal_()
        made.running_var.uniform_(0.5, 2)
        for one in made.parameters():
            one.normal_()
    return made


def edited(module: Any, **attributes: Any) -> Any:
    """A module of one layer and a ReLU; the layer's attributes are set."""
    for name, value in attributes.items():
        setattr(module, name, value)
    return nn.Sequential(module, nn.ReLU())


def answers(module: Any, images: Any) -> np.ndarray:
    dtype = next((one.dtype for one in module.parameters()), torch.float32)
    with torch.no_grad():
        found = module.eval()(torch.tensor(images, dtype=dtype))
    return np.asarray(found.double().numpy().reshape(len(images), -1))


def images_of(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(5).normal(0, 1, (3, *shape)).astype(np.float32)


def refused(make: Make, says: str) -> None:
    """Looks that the reader alone refuses a module, and how."""
    module = make()
    with pytest.raises(ModelError, match=says):
        _torch._Reader(module, SHAPE).read(None)


def same(network: Network, module: Any, shape: tuple[int, int, int] = SHAPE) -> None:
    images = images_of(shape)
    expected = answers(copy.deepcopy(module), images)
    found = network.evaluate(images)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def test_a_torch_module_is_taken_apart() -> None:
    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(4)

        def forward(self, x: Any) -> Any:
            y = self.norm(self.conv(x))
            y += x
            return torch.relu(y)

    class Whole(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.MaxPool2d(2))
            self.blocks = nn.Sequential(Block(), Block())
            self.last = nn.Linear(4, 5)

        def forward(self, x: Any) -> Any:
            x = self.blocks(self.first(x)).mean((2, 3))
            return self.last(nn.functional.dropout(x.view(x.size(0), -1), training=self.training))

    module = Whole()
    for one in module.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.running_mean.normal_()
            one.running_var.uniform_(0.5, 2)
    network = networks.from_torch(module, (3, 16, 16), range=(-1.0, 1.0))
    assert module.training
    assert network.range == (-1.0, 1.0)
    assert network.checked.startswith("2 random inputs have the answers of torch")
    assert network.notes == ("dropout: a dropout, which inference does without",)
    assert {"first.0", "blocks.1.conv", "last"} <= {node.name for node in network.nodes}
    images = images_of((3, 16, 16))
    expected = module.eval()(torch.from_numpy(images)).detach().numpy()
    np.testing.assert_allclose(network.evaluate(images), expected, atol=1e-5)
    with pytest.raises(ModelError, match=r"module '0' \(GELU\): GELU is not supported"):
        networks.from_torch(nn.Sequential(nn.GELU()), (3, 8, 8))
    with pytest.raises(ConfigError, match="channels, rows, columns"):
        networks.from_torch(module, (3, 16))


def grown(module: Any, x: Any) -> Any:
    h = module.c(x)
    keep = h
    h += module.d(x)
    return module.e(keep)


def moved(module: Any, x: Any) -> Any:
    h = module.c(x)
    keep = h
    h += 1
    return module.d(keep) + h


def doubled(module: Any, x: Any) -> Any:
    h = module.c(x)
    keep = h
    operator.iadd(h, h)
    return module.d(keep)


def given(module: Any, x: Any) -> Any:
    x += module.c(x)
    return module.d(x) + x


def through(module: Any, x: Any) -> Any:
    """A ReLU in place behind a layer; what stands before the layer is read again."""
    h = module.c(x)
    return module.r(module.layer(h)) + module.d(h)


def emptied(module: Any, x: Any) -> Any:
    """The same, where nobody reads what the ReLU gives."""
    h = module.c(x)
    F.relu(h, inplace=True)
    return module.d(h)


class Halved(nn.Conv2d):  # type: ignore[misc, name-defined]
    def forward(self, input: Any) -> Any:
        return super().forward(input) / 2


def lessened(module: Any, x: Any) -> Any:
    h = module.c(x)
    keep = h
    h -= x
    return module.d(keep)


def layers(**more: Any) -> dict[str, Any]:
    return {"c": conv(), "d": conv(), "e": conv(), "r": nn.ReLU(inplace=True), **more}


TAKEN: dict[str, Make] = {
    # Changes in place, of a value that is read again.
    "ReLU(inplace=True)": lambda: Of(lambda m, x: x + m.c(m.r(x)), **layers()),
    "F.relu(inplace=True)": lambda: Of(lambda m, x: x + m.c(F.relu(x, inplace=True)), **layers()),
    "relu_": lambda: Of(lambda m, x: x + m.c(x.relu_()), **layers()),
    "relu_ of no reader": lambda: Of(emptied, **layers()),
    "+=": lambda: Of(grown, **layers()),
    "+= 1": lambda: Of(moved, **layers()),
    "+= itself": lambda: Of(doubled, **layers()),
    "-=": lambda: Of(lessened, **layers()),
    "+= of the input": lambda: Of(given, **layers()),
    "in place behind Identity": lambda: Of(through, **layers(layer=nn.Identity())),
    "in place behind Dropout": lambda: Of(through, **layers(layer=nn.Dropout())),
    "in place behind a copy": lambda: Of(through, **layers(layer=nn.MaxPool2d(1))),
    "shared": lambda: (lambda c, r: nn.Sequential(c, r, c, r))(conv(), nn.ReLU(inplace=True)),
    # How it is called.
    "by keyword": lambda: Of(lambda m, x: m.r(input=m.c(input=x)), **layers()),
    "with a default": lambda: type(
        "Two", (nn.Module,), {"forward": lambda self, x, y=None: F.relu(x) if y is None else y}
    )(),
    "__call__": lambda: type(
        "Called", (Of,), {"__call__": lambda self, x: Of.__call__(self, x) + 2}
    )(lambda m, x: m.c(x), **layers()),
    "alpha": lambda: Of(lambda m, x: torch.add(1 + m.c(x), 3, alpha=2), **layers()),
    "alpha of tensors": lambda: Of(lambda m, x: m.c(x).add(x, alpha=2), **layers()),
    "differences": lambda: Of(lambda m, x: 1 - m.c(x), **layers()),
    "products": lambda: Of(lambda m, x: 2 * m.c(x), **layers()),
    "a part": lambda: Of(lambda m, x: m.c(x)[:, :2], **layers()),
    "a buffer's sum": lambda: Of(lambda m, x: m.c(x) + torch.ones(1), **layers()),
    "dropout of nothing": lambda: Of(lambda m, x: m.c(F.dropout(x, 0.0)), **layers()),
    # Modules alone, and their options.
    "a convolution": conv,
    "a subclass": lambda: nn.Sequential(Halved(4, 4, 3)),
    "dilation": lambda: nn.Sequential(conv(dilation=2)),
    "same, even": lambda: nn.Conv2d(4, 4, (4, 2), padding="same"),
    "depthwise": lambda: conv(outputs=8, groups=4, stride=(2, 1)),
    "stride set later": lambda: edited(conv(), stride=2),
    "float64": lambda: nn.Sequential(conv(), norm()).double(),
    "no affine": lambda: nn.Sequential(conv(), norm(affine=False, eps=0.5)),
    "statistics kept": lambda: edited(norm(), track_running_stats=False, momentum=None),
    "channels last": lambda: nn.Sequential(conv()).to(memory_format=torch.channels_last),
    "softmax of channels": lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Softmax(-3)),
    "softmax of rows": lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 3), nn.Softmax(-1)),
    "flatten from behind": lambda: Of(lambda m, x: m.l(x.flatten(-3)), l=nn.Linear(144, 3)),
    "rows are flat": lambda: Of(
        lambda m, x: m.n(F.relu(m.l(x.flatten(1)))).flatten(-1).add(x.mean((-1, -2))),
        l=nn.Linear(144, 4),
        n=norm(kind=nn.BatchNorm1d),
    ),
    "sizes": lambda: Of(
        lambda m, x: x.mean((2, 3), keepdim=True).view(x.shape[0], x.size(1)) + x.size(-1)
    ),
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_taken_computes_what_the_module_does(case: str) -> None:
    module = TAKEN[case]()
    same(networks.from_torch(module, SHAPE), module)


def hooked(at: int | None, kind: str, hook: Callable[..., Any], **more: Any) -> Any:
    module = nn.Sequential(conv(), nn.Sequential(conv(), nn.ReLU()))
    getattr(module if at is None else module[at], kind)(hook, **more)
    return module


def stale(wrap: Callable[[Any], Any]) -> Any:
    """Weights that were loaded, and are computed at the next forward only."""
    module, other = (nn.Sequential(wrap(conv()), nn.ReLU()) for _ in range(2))
    module.load_state_dict(other.state_dict())
    return module


def pruned(layer: Any) -> Any:
    from torch.nn.utils import prune

    return prune.l1_unstructured(layer, "weight", amount=0.5)


def replaced(method: str) -> Any:
    layer = conv()
    old = getattr(layer, method)
    return edited(layer, **{method: lambda *given: old(*given) * 2})


class Awake(nn.Module):  # type: ignore[misc, name-defined]
    """A layer that stays in training."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.layer.training = True
        return self


def with_more(kind: str, value: Any) -> Any:
    layer = conv()
    getattr(layer, kind)("more", value)
    return nn.Sequential(layer)


def of(function: Callable[..., Any]) -> Make:
    """A function of a convolution's numbers."""
    return lambda: Of(lambda m, x: function(m.c(x)), c=conv())


def of_rows(function: Callable[..., Any]) -> Make:
    return lambda: Of(lambda m, x: function(m.l(x.flatten(1))), l=nn.Linear(144, 3))


def read_of_a_view(module: Any, x: Any) -> Any:
    h = module.c(x)
    rows = h.flatten(1)
    h.relu_()
    return module.l(rows)


def set_in_place(module: Any, x: Any) -> Any:
    h = module.c(x)
    h.data = module.d(x)
    return module.e(h)


REFUSED: dict[str, tuple[Make, str]] = {
    # Hooks, and what is replaced.
    "hook": (
        lambda: hooked(0, "register_forward_hook", lambda m, i, o: o * 3),
        r"Sequential, 0 \(Conv2d\): the hook .*lambda.* runs at every forward.*remove it",
    ),
    "hook of the whole": (
        lambda: hooked(None, "register_forward_hook", lambda m, i, o: o + 1),
        r"the module itself \(Sequential\): the hook",
    ),
    "hook with names": (
        lambda: hooked(1, "register_forward_hook", lambda m, i, n, o: o + 1, with_kwargs=True),
        r", 1 \(Sequential\): the hook",
    ),
    "pre-hook": (
        lambda: hooked(0, "register_forward_pre_hook", lambda m, i: (i[0] * 2,)),
        r", 0 \(Conv2d\): the hook",
    ),
    "weight_norm": (
        lambda: stale(torch.nn.utils.weight_norm),
        "the hook WeightNorm .*remove_weight_norm",
    ),
    "spectral_norm": (lambda: stale(torch.nn.utils.spectral_norm), "the hook SpectralNorm"),
    "pruned": (lambda: stale(pruned), r"the hook L1Unstructured .*prune\.remove"),
    "parametrized": (
        lambda: stale(torch.nn.utils.parametrizations.weight_norm),
        r"parametrized: .*remove_parametrizations",
    ),
    "forward": (lambda: replaced("forward"), "forward is replaced on this one instance"),
    "_conv_forward": (lambda: replaced("_conv_forward"), "the attribute _conv_forward"),
    "eval": (
        lambda: edited(conv(), eval=lambda: None),
        "eval is replaced on this one instance",
    ),
    "not initialised": (
        lambda: type("Bare", (nn.Module,), {"__init__": lambda self: None})(),
        "Bare is no module that can be read",
    ),
    # A layer's options and tensors.
    "circular": (lambda: nn.Sequential(conv(padding_mode="circular")), "padding_mode circular"),
    "an attribute": (lambda: edited(conv(), gain=2), r"the attribute gain \(2\)"),
    "a parameter": (
        lambda: with_more("register_parameter", nn.Parameter(torch.ones(1))),
        "the tensor more",
    ),
    "a buffer": (lambda: with_more("register_buffer", torch.ones(1)), "the tensor more"),
    "a module": (lambda: with_more("add_module", nn.ReLU()), "the module more"),
    "one padding": (lambda: edited(conv(), padding=(1,)), "not enough values"),
    "same by 2": (lambda: edited(conv(), padding="same", stride=(2, 2)), "padding 'same'"),
    "integers": (
        lambda: edited(
            conv(bias=False),
            weight=nn.Parameter(torch.ones(4, 4, 3, 3, dtype=torch.int32), requires_grad=False),
        ),
        "weights of torch.int32",
    ),
    "half": (lambda: nn.Sequential(conv()).half(), r"torch.float16: .*call \.float\(\)"),
    "mixed": (lambda: nn.Sequential(conv(), norm().double()), "torch.float32, torch.float64"),
    "complex": (lambda: nn.Sequential(conv(dtype=torch.complex64)), "torch.complex64"),
    "no memory": (lambda: nn.Sequential(conv(device="meta")), "cannot be copied"),
    "awake dropout": (lambda: Awake(nn.Dropout(1.0)), "a dropout that is active"),
    "awake norm": (lambda: Awake(norm()), "training True: False is possible"),
    "no statistics": (
        lambda: nn.Sequential(nn.BatchNorm2d(4, track_running_stats=False)),
        "without running statistics",
    ),
    # Calls.
    "two arguments": (lambda: Of(lambda m, x: m.c(x, x), c=conv()), "something other than one"),
    "unknown keyword": (
        lambda: Of(lambda m, x: m.r(x, inplace=True), r=nn.ReLU()),
        "something other than one",
    ),
    "F.dropout": (of(lambda h: F.dropout(h, 1.0)), "give it training=self.training"),
    "softmax in halves": (
        of_rows(lambda h: F.softmax(h, 1, dtype=torch.float16)),
        "a softmax in torch.float16",
    ),
    "softmax in halves, by place": (
        of_rows(lambda h: F.softmax(h, 1, 3, torch.float16)),
        "a softmax in torch.float16",
    ),
    "mean in doubles": (of(lambda h: h.mean((2, 3), dtype=torch.float64)), "dtype"),
    "mean of no dimension": (of(lambda h: h.mean((6, 7))), r"a mean over \(6, 7\)"),
    "the batch as a number": (of(lambda h: h + h.size(0)), "the number of images"),
    "the batch as alpha": (of(lambda h: torch.add(h, 1, alpha=h.size(0))), "number of images"),
    "a number first": (of(lambda h: torch.add(3, h, alpha=2)), "a function of 3"),
    "1j": (of(lambda h: h + 1j), "1j is no number"),
    "10**400": (of(lambda h: h + 10**400), "too large"),
    "out": (of(lambda h: torch.add(h, 1, out=h)), "out"),
    "two inputs": (
        lambda: type("Two", (nn.Module,), {"forward": lambda self, x, y: x + y})(),
        "cannot be traced by torch.fx with one input",
    ),
    "a dictionary": (of(lambda h: {"a": h}), "not one tensor"),
    # Changes in place.
    "a view of what changes": (
        lambda: Of(read_of_a_view, c=conv(), l=nn.Linear(144, 3)),
        "it reads 'flatten', which may share its memory with what was changed in place at 'relu_'",
    ),
    "contiguous": (
        lambda: Of(through, **layers(layer=Of(lambda m, x: x.contiguous()))),
        "it reads '_0_c', which may share its memory",
    ),
    "data": (lambda: Of(set_in_place, **layers()), "data of a tensor is set"),
    # Dimensions.
    "softmax of columns": (
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Softmax(-1)),
        "a softmax over dimension -1",
    ),
    "rows and images": (
        of(lambda h: h.mean((2, 3)) + h.mean((2, 3), keepdim=True)),
        "of two tensors that are alike",
    ),
    "a matrix over images": (
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Linear(4, 3)),
        "flatten before it",
    ),
    "a matrix over columns": (
        lambda: Of(lambda m, x: m.l(m.c(x).mean((2, 3), True)), c=conv(4, 1), l=nn.Linear(1, 3)),
        "flatten before it",
    ),
    "a convolution of rows": (
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), conv(kernel=1)),
        "rows and columns are missing",
    ),
    "BatchNorm1d of images": (
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), norm(kind=nn.BatchNorm1d)),
        "flatten before it",
    ),
    "BatchNorm2d of rows": (
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), norm()),
        "rows and columns are missing",
    ),
    "size of rows": (of_rows(lambda h: h + h.size(2)), "index out of range"),
    "the batch joined": (of(lambda h: h.view(1, -1)), "a view as"),
    "channels as images": (of(lambda h: h.view(h.size(1), -1)), "a view as"),
    "pad over half": (lambda: nn.Sequential(nn.AvgPool2d(3, 1, 2)), "over half"),
    "no windows": (
        lambda: nn.Sequential(conv(), nn.AdaptiveAvgPool2d(0)),
        "0 x 0 windows: 1 or more each way are possible",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_change_numbers_is_refused_by_name(case: str) -> None:
    refused(*REFUSED[case])


@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook"])
def test_hooks_of_every_module_are_refused(kind: str) -> None:
    register = getattr(torch.nn.modules.module, f"register_module_{kind}")
    handle = register(lambda module, *values: None)
    try:
        with pytest.raises(ModelError, match=f"every module's forward .*{kind}s.*remove them"):
            networks.from_torch(nn.Sequential(conv()), SHAPE)
    finally:
        handle.remove()


def test_a_module_is_as_it_was_after_it_is_read() -> None:
    def counting(module: Any, x: Any) -> Any:
        module.count.add_(1)
        module.calls += 1
        return module.layers(F.dropout(x, training=module.training) + torch.rand(()).item() * 0)

    module = Of(counting, layers=nn.Sequential(conv(), norm(), nn.ReLU(inplace=True)), calls=0)
    module.register_buffer("count", torch.zeros(()))
    module.train()
    module.layers[1].eval()
    before = copy.deepcopy(module.state_dict())
    state = torch.get_rng_state()
    networks.from_torch(module, SHAPE)
    assert torch.equal(torch.get_rng_state(), state)
    assert [one.training for one in module.modules()] == [True, True, True, False, True]
    assert module.calls == 0
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_module_that_gives_itself_as_its_copy_is_refused() -> None:
    module = type("Same", (Of,), {"__deepcopy__": lambda self, _memo: self})(lambda m, x: F.relu(x))
    with pytest.raises(ModelError, match="Same: its copy shares modules with it"):
        networks.from_torch(module, SHAPE)
    assert module.training
    kept = edited(conv())
    kept.kept = kept[0].weight * 2
    with pytest.raises(ModelError, match="cannot be copied .*is not changed itself"):
        networks.from_torch(kept, SHAPE)


# The comparison at the import.


def outside(module: Any, x: Any) -> Any:
    return module.c(x) if isinstance(x, torch.Tensor) else module.c(x) + 1


def drawn(module: Any, x: Any) -> Any:
    return module.c(x) + torch.rand(()).item()


def changing(module: Any, x: Any) -> Any:
    module.c._parameters["weight"].data.mul_(2)
    return module.c(x)


@pytest.mark.parametrize("function", [outside, drawn, changing])
def test_what_no_trace_has_is_seen_in_the_answers(function: Callable[..., Any]) -> None:
    with pytest.raises(ModelError, match="gives other answers, though each operator alone"):
        networks.from_torch(Of(function, c=conv()), SHAPE)


def test_weights_that_floats_do_not_hold_are_seen_in_the_answers() -> None:
    module = nn.Sequential(conv(), norm()).double()
    with torch.no_grad():
        module[0].bias.fill_(1e9)
        module[1].running_mean.fill_(1e9)
    with pytest.raises(ModelError, match=r"module '1' \(BatchNorm2d\): torch computes other"):
        networks.from_torch(module, SHAPE)


@pytest.mark.parametrize(
    ("method", "changes", "says"),
    [
        ("conv", {"stride": (1, 1)}, r"module 'd' \(Conv2d\)"),
        ("batch_norm", {"epsilon": 1.0}, r"module 'n' \(BatchNorm2d\)"),
        ("linear", {"bias": None}, r"module 'l' \(Linear\)"),
    ],
)
def test_a_misreading_is_found_and_its_layer_is_named(
    method: str, changes: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(Draft, method)

    def wrong(self: Draft, name: str, source: str, *given: Any, **named: Any) -> str:
        if "bias" in changes:
            given = (given[0], None)
        else:
            named |= changes
        return str(right(self, name, source, *given, **named))

    module = Of(
        lambda m, x: m.l(m.p(F.relu(m.n(m.d(m.c(x))))).flatten(1)),
        c=conv(),
        d=conv(stride=2),
        n=norm(),
        p=nn.AdaptiveAvgPool2d(1),
        l=nn.Linear(4, 3),
    )
    monkeypatch.setattr(Draft, method, wrong)
    with pytest.raises(ModelError, match=f"{says}: torch computes other numbers here"):
        networks.from_torch(module, SHAPE)


def test_a_change_in_place_that_is_missed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        _torch_tensors.Tensor, "change", lambda self, name, _: self.view(name, self.rank)
    )
    with pytest.raises(ModelError, match="node 'add': torch computes other numbers here"):
        networks.from_torch(TAKEN["relu_"](), SHAPE)
