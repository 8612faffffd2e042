"""Torch modules of layers and functions at random: read right by the reader alone, or refused.

Nothing is compared at the import here, so what is tested is that nothing has to be.
"""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_networks_torch import answers, images_of, norm

from hushtable.errors import Error
from hushtable.infer import HybridModel, _torch, compile, networks

torch = pytest.importorskip("torch", reason="the extra hushtable[torch] is not installed")
nn, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")

#: How many modules are drawn.
DRAWN = 5000 if os.environ.get("HUSHTABLE_SCALE_LONG") == "1" else 200
#: And how many of them are compiled and predicted with.
COMPILED = DRAWN // 5


def grow(_layer: Any, a: Any, b: Any) -> Any:
    a += b
    return a


def step(_layer: Any, a: Any, _b: Any) -> Any:
    a += 0.5
    return a


def layer(make: Callable[[Any, int], Any], by_name: bool = False) -> tuple[Any, Any]:
    """A layer for so many channels, and its call."""
    return make, (lambda m, a, b: m(input=a)) if by_name else (lambda m, a, b: m(a))


def function(run: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    return None, lambda m, a, b: run(a, b)


def drawn(draw: Callable[[Any], Any], run: Callable[[Any, Any, Any], Any]) -> tuple[Any, Any]:
    """A function of two values and of something that is drawn for it."""
    return (lambda random, _channels: Numbers(draw(random))), (lambda m, a, b: run(a, b, m.drawn))


class Numbers(nn.Module):  # type: ignore[misc, name-defined]
    """Something that is drawn, where layers stand."""

    def __init__(self, drawn: Any) -> None:
        super().__init__()
        self.drawn = drawn


def some_slice(random: Any) -> slice:
    begin, end = (None if random.random() < 0.4 else int(random.integers(-3, 4)) for _ in range(2))
    return slice(begin, end, None if random.random() < 0.6 else int(random.integers(1, 4)))


def some_part(random: Any) -> Any:
    """A slice of channels, at times of rows and columns too, or another part."""
    parts = [slice(None), *(some_slice(random) for _ in range(random.integers(1, 4)))]
    if random.random() < 0.15:
        parts[int(random.integers(0, len(parts)))] = int(random.integers(-1, 2))
    return (..., *parts[1:]) if random.random() < 0.2 else tuple(parts)


def some_pads(random: Any) -> tuple[int, ...]:
    count = 2 * int(random.integers(1, 4))
    return tuple(int(one) for one in random.integers(-1 if random.random() < 0.05 else 0, 3, count))


def some_bounds(random: Any) -> tuple[float, float]:
    least = float(random.normal(-0.5, 0.5))
    return least, least + float(random.uniform(0.1, 2))


def some_sizes(random: Any) -> Any:
    """Of parts of channels: one for all, or of each."""
    sizes = [int(one) for one in random.integers(1, 4, random.integers(1, 4))]
    return sizes if random.random() < 0.7 else sizes[0]


def regrouped(a: Any, groups: int) -> Any:
    batch, channels, rows, columns = a.size()
    a = a.view(batch, groups, channels // groups, rows, columns).transpose(1, 2)
    return (a.contiguous() if groups % 2 else a).reshape(batch, channels, rows, columns)


def slopes(random: Any, channels: int) -> Any:
    made = nn.PReLU(channels if random.random() < 0.5 else 1)
    nn.init.normal_(made.weight)
    return made


def some_conv(random: Any, channels: int) -> Any:
    kernel = tuple(int(one) for one in random.integers(1, 5, 2))
    dilation = tuple(int(one) for one in random.integers(1, 4 if random.random() < 0.3 else 2, 2))
    if random.random() < 0.3:
        return nn.Conv2d(channels, 3, kernel, padding="same", dilation=dilation)
    pad, stride = int(random.integers(0, 3)), int(random.integers(1, 3))
    return nn.Conv2d(channels, int(random.integers(1, 5)), kernel, stride, pad, dilation)


def some_pool(random: Any, _channels: int) -> Any:
    kind = (nn.MaxPool2d, nn.AvgPool2d)[random.integers(2)]
    pad = int(random.integers(0, 2))
    more = {"count_include_pad": False} if kind is nn.AvgPool2d and random.random() < 0.2 else {}
    kernel = tuple(int(one) for one in random.integers(1, 4, 2))
    stride = None if random.random() < 0.5 else int(random.integers(1, 3))
    return kind(kernel, stride, pad, ceil_mode=bool(random.random() < 0.3), **more)


#: A layer or none, and what is computed with it of two values.
STEPS: list[tuple[Any, Any]] = [
    layer(some_conv),
    layer(some_conv),
    layer(some_conv, by_name=True),
    layer(lambda random, channels: norm(channels)),
    layer(lambda random, channels: norm(channels, nn.BatchNorm1d)),
    layer(lambda random, channels: nn.Linear(channels, 3)),
    layer(lambda random, channels: nn.ReLU(inplace=bool(random.integers(2)))),
    layer(lambda random, channels: nn.Identity()),
    layer(lambda random, channels: nn.Dropout(inplace=bool(random.integers(2)))),
    layer(lambda random, channels: nn.AdaptiveAvgPool2d(int(random.integers(1, 4)))),
    layer(lambda random, channels: nn.Flatten()),
    layer(some_pool),
    layer(some_pool),
    (None, grow),
    (None, grow),
    (None, step),
    function(lambda a, b: a),
    function(lambda a, b: a + b),
    function(lambda a, b: a + b),
    function(lambda a, b: torch.add(b, a)),
    function(lambda a, b: a.add_(b)),
    function(lambda a, b: 1.5 + a),
    function(lambda a, b: torch.add(a, 2, alpha=0.5)),
    function(lambda a, b: F.relu(a, inplace=True)),
    function(lambda a, b: a.relu_()),
    function(lambda a, b: torch.relu(a)),
    function(lambda a, b: a.flatten(1)),
    function(lambda a, b: a.view(a.size(0), -1)),
    function(lambda a, b: torch.reshape(a, (a.shape[0], -1))),
    function(lambda a, b: a.contiguous()),
    function(lambda a, b: a.mean((2, 3))),
    function(lambda a, b: a.mean((-1, -2), keepdim=True)),
    function(lambda a, b: F.dropout(a, 0.5, training=False)),
    function(lambda a, b: F.max_pool2d(a, 2)),
    function(lambda a, b: F.avg_pool2d(a, (1, 2), 1)),
]
#: What is newer than those, drawn as often as they are all together.
MORE: list[tuple[Any, Any]] = [
    layer(lambda random, channels: nn.ReLU6(inplace=bool(random.integers(2)))),
    layer(lambda random, channels: nn.Hardtanh(*some_bounds(random), bool(random.integers(2)))),
    layer(lambda random, channels: nn.LeakyReLU(random.normal(), bool(random.integers(2)))),
    layer(slopes),
    layer(lambda random, channels: nn.AdaptiveMaxPool2d(int(random.integers(1, 4)))),
    layer(lambda random, channels: nn.ZeroPad2d(int(random.integers(0, 3)))),
    layer(lambda random, channels: nn.ChannelShuffle(int(random.integers(1, 4)))),
    layer(lambda random, channels: nn.FeatureAlphaDropout(inplace=bool(random.integers(2)))),
    drawn(some_bounds, lambda a, b, by: a.clamp(*by)),
    drawn(some_bounds, lambda a, b, by: torch.clip_(a, max=by[1], min=by[0])),
    drawn(some_bounds, lambda a, b, by: F.hardtanh(a, by[0], by[1], inplace=True)),
    function(lambda a, b: a.clamp_(min=0)),
    function(lambda a, b: F.relu6(a)),
    drawn(lambda random: random.normal(), lambda a, b, by: F.leaky_relu_(a, by)),
    drawn(lambda random: random.normal(), lambda a, b, by: by * a),
    drawn(lambda random: random.normal(), lambda a, b, by: by - a),
    drawn(lambda random: random.normal(), lambda a, b, by: a.mul_(by)),
    drawn(lambda random: random.normal(), lambda a, b, by: torch.sub(a, b, alpha=by)),
    drawn(lambda random: random.normal(), lambda a, b, by: a.add_(b, alpha=by)),
    drawn(lambda random: random.integers(1, 5), lambda a, b, by: a / int(by)),
    drawn(lambda random: torch.randn(1, 3, 1, 1), lambda a, b, by: (a - by) * by),
    drawn(lambda random: torch.randn(3), lambda a, b, by: by * a),
    function(lambda a, b: -a),
    function(lambda a, b: a - b),
    function(lambda a, b: b.sub_(a)),
    function(lambda a, b: operator.isub(a, b)),
    function(lambda a, b: operator.imul(a, 0.5)),
    function(lambda a, b: torch.cat((a, b), 1)),
    function(lambda a, b: torch.cat((a, b), 1)),
    function(lambda a, b: torch.cat([b, a, b], dim=-3)),
    function(lambda a, b: torch.cat(torch.chunk(a, 2, 1)[::-1], 1)),
    function(lambda a, b: torch.cat((a.relu_(), b), 1)),
    drawn(some_part, lambda a, b, by: a[by]),
    drawn(some_part, lambda a, b, by: a[by]),
    drawn(some_part, lambda a, b, by: a[by].relu_()),
    function(lambda a, b: a[:, a.size(1) // 2 :]),
    function(lambda a, b: torch.unsqueeze(a[:, -1], 1)),
    drawn(lambda random: int(random.integers(1, 4)), lambda a, b, by: a.chunk(by, 1)[-1]),
    drawn(some_sizes, lambda a, b, by: torch.split(a, by, 1)[0]),
    drawn(some_sizes, lambda a, b, by: a.narrow(1, -1, 1)),
    drawn(some_pads, lambda a, b, by: F.pad(a, by)),
    drawn(some_pads, lambda a, b, by: F.max_pool2d(F.pad(F.relu(a), by), 3, 2)),
    drawn(some_pads, lambda a, b, by: F.avg_pool2d(F.pad(a, by), 2, 1, 1)),
    drawn(lambda random: int(random.integers(1, 4)), lambda a, b, by: regrouped(a, by)),
    function(lambda a, b: a.view(a.size(0), -1, a.size(2), a.size(3))),
]
#: What is read by mistake where something of it is not.
NEAR_MISSES: list[tuple[Any, Any]] = [
    layer(lambda random, channels: nn.Conv2d(channels, 2, 3, padding=1, padding_mode="reflect")),
    layer(lambda random, channels: nn.Softmax(int(random.integers(-3, 4)))),
    layer(lambda random, channels: nn.Flatten(int(random.integers(-3, 4)))),
    layer(lambda random, channels: nn.AvgPool2d(2, divisor_override=3)),
    function(lambda a, b: F.dropout(a, 1.0)),
    function(lambda a, b: a.add(b, alpha=2)),
    function(lambda a, b: a * b),
    function(lambda a, b: 1 / a),
    function(lambda a, b: a.clamp(max=1)),
    function(lambda a, b: a.clamp(1, 0)),
    function(lambda a, b: torch.cat((a, b))),
    function(lambda a, b: torch.cat((a, b), 2)),
    function(lambda a, b: torch.cat((a, b), -1)),
    function(lambda a, b: a.transpose(1, 2)),
    function(lambda a, b: a.chunk(2)[0]),
    function(lambda a, b: F.pad(a, (1, 1), value=1.0)),
    function(lambda a, b: F.pad(a, (1, 1), mode="replicate")),
    function(lambda a, b: F.alpha_dropout(a, 0.5, True)),
    function(lambda a, b: a * torch.arange(5.0)),
    function(lambda a, b: a + a.size(0)),
    function(lambda a, b: a + a.size(1)),
    function(lambda a, b: a.view(1, -1)),
    function(lambda a, b: a.view(-1, a.size(1))),
    function(lambda a, b: a.mean((1, 2))),
    function(lambda a, b: a.mean(-1)),
    function(lambda a, b: F.softmax(a, 1, dtype=torch.float16)),
    function(lambda a, b: a.sigmoid()),
    function(lambda a, b: a[:1]),
]


class Drawn(nn.Module):  # type: ignore[misc, name-defined]
    """Steps that a seed draws, each of values before it; rows of some values are added up."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        random = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.shape = tuple(int(one) for one in random.integers(1, 7, 3))
        self.layers, self.steps = nn.ModuleList(), []
        values = [torch.randn(3, *self.shape)]
        with torch.no_grad():
            for _ in range(random.integers(2, 9)):
                self.draw(random, values)
            rows = [at for at, value in enumerate(values) if value.ndim > 1]
            self.read = [rows[one] for one in random.integers(0, len(rows), 3)]
            self.heads = nn.ModuleList(
                nn.Linear(values[one].flatten(1).shape[1], 3) for one in self.read
            )
        self.softmax = bool(random.random() < 0.3)

    def draw(self, random: Any, values: list[Any]) -> None:
        """One more step, where torch computes it; now and then one that it does not."""
        from_ = (STEPS, MORE)[random.integers(2)] if random.random() < 0.9 else NEAR_MISSES
        make, run = from_[random.integers(len(from_))]
        at = max(0, len(values) - 1 - int(random.integers(0, 3) * random.integers(0, 2)))
        other = int(random.integers(len(values)))
        made = make(random, values[at].shape[:2][-1]).eval() if make else None
        self.layers.append(made or nn.Identity())
        try:
            found = run(made, values[at], values[other])
            if not found.numel():
                raise ValueError("nothing at all")
            values.append(found)
        except (RuntimeError, ValueError, IndexError):
            if random.random() > 0.005:
                self.layers = self.layers[:-1]
                return
            values.append(values[at])
        self.steps.append((run, at, other))

    def forward(self, x: Any) -> Any:
        values = [x]
        for (run, at, other), made in zip(self.steps, self.layers, strict=True):
            values.append(run(made, values[at], values[other]))
        found = [
            head(values[at].flatten(1)) for head, at in zip(self.heads, self.read, strict=True)
        ]
        total = found[0] + found[1] + found[2]
        return total.softmax(1) if self.softmax else total


def test_modules_at_random_are_read_right_or_refused() -> None:
    taken = 0
    for seed in range(DRAWN):
        module = Drawn(seed)
        images, state = images_of(module.shape), torch.get_rng_state()
        before = copy.deepcopy(module.state_dict())
        flags = [one.training for one in module.modules()]
        try:
            reader = _torch._Reader(module, module.shape)
            network = reader.read(None)
        except Error:
            network = None
        assert torch.equal(torch.get_rng_state(), state), seed
        assert [one.training for one in module.modules()] == flags, seed
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
        if network is None:
            continue
        try:
            expected = answers(module, images)
        except (RuntimeError, ValueError, IndexError, TypeError):
            with pytest.raises(Error):
                networks.from_torch(module, module.shape)
            continue
        taken += 1
        difference = np.abs(network.evaluate(images) - expected).max()
        assert difference <= 1e-4 * np.abs(expected).max(), f"seed {seed}: {reader.module.graph}"
    assert DRAWN / 4 < taken < DRAWN * 0.9


def test_what_is_taken_compiles_and_predicts_as_torch_does(tmp_path: Path) -> None:
    """The whole way, by what shares no code with torch: twelve fraction bits are off by little."""
    for seed in range(COMPILED):
        module = Drawn(seed)
        try:
            network = networks.from_torch(module, module.shape, range=(-1, 1))
        except Error:
            continue
        image = np.random.default_rng(seed).uniform(-1, 1, (1, *module.shape)).astype(np.float32)
        expected = answers(module, image)[0]
        model = network.build(tmp_path / f"model-{seed}")
        compile(model, scheme="hybrid", samples=image)
        local = HybridModel.load(model)
        largest = max(np.abs(value).max() for value in network.values(image).values())
        for how, tolerance in (("clear", 1e-4), ("simulate", 0.01)):
            found = local.predict(image[0], fhe=how).outputs
            assert np.abs(found - expected).max() <= tolerance * largest, (seed, how)
