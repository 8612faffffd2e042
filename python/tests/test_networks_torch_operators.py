"""Torch's operators one by one, with their odd options: computed as torch does, or refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from test_networks_torch import SHAPE, Make, Of, conv, norm, refused, same

from hushtable.errors import ConfigError, ModelError
from hushtable.infer import _torch, networks

torch = pytest.importorskip("torch", reason="the extra hushtable[torch] is not installed")
nn, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def of(function: Callable[[Any], Any]) -> Make:
    """A function of a convolution's numbers, wide enough that bounds of six are met."""
    return lambda: Of(lambda m, x: function(8 * m.c(x)), c=conv())


def of_rows(function: Callable[[Any], Any]) -> Make:
    return lambda: Of(lambda m, x: function(m.l(x.flatten(1))), l=nn.Linear(144, 4))


def kept(change: Callable[[Any], Any]) -> Make:
    """What is changed in place and read again by its first name."""

    def forward(module: Any, x: Any) -> Any:
        h = 8 * module.c(x)
        other = change(h)
        return h + module.d(other)

    return lambda: Of(forward, c=conv(), d=conv())


def layer(make: Make) -> Make:
    """A layer between convolutions."""
    return lambda: nn.Sequential(conv(), make(), conv(padding=0, kernel=1))


def set_later(module: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


def slopes(count: int) -> Any:
    made = nn.PReLU(count)
    nn.init.normal_(made.weight)
    return made


def shuffled(x: Any, groups: int = 2, contiguous: bool = True) -> Any:
    """As ShuffleNet does it."""
    batch, channels, rows, columns = x.size()
    x = x.view(batch, groups, channels // groups, rows, columns)
    x = torch.transpose(x, 1, 2)
    return (x.contiguous() if contiguous else x).reshape(batch, channels, rows, columns)


def turned_channels(x: Any) -> Any:
    """As Inception changes the scale of each channel of an image."""
    first = torch.unsqueeze(x[:, 0], 1) * 0.5 + 0.1
    return torch.cat((first, torch.unsqueeze(x[:, -1], -3)), 1)


def padded(x: Any) -> Any:
    """A shortcut without weights, of a ResNet for small images."""
    return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 2), "constant", 0)


class Normalised(nn.Module):  # type: ignore[misc, name-defined]
    """An input's mean and deviation, as buffers."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.randn(shape))
        self.register_buffer("deviation", torch.rand(shape) + 0.5)
        self.layer = conv()

    def forward(self, x: Any) -> Any:
        return self.layer((x - self.mean) / self.deviation) * self.mean


BOUNDS = {"min_val": -1.5, "max_val": 2.5}
TAKEN: dict[str, Make] = {
    # Activations.
    "ReLU6": layer(nn.ReLU6),
    "ReLU6 with bounds of its own": lambda: nn.Sequential(
        conv(), set_later(nn.ReLU6(), max_val=1.0)
    ),
    "relu6": of(F.relu6),
    "Hardtanh": layer(lambda: nn.Hardtanh(**BOUNDS)),
    "Hardtanh above 0": layer(lambda: nn.Hardtanh(0.5, 1)),
    "hardtanh": of(F.hardtanh),
    "hardtanh of rows": of_rows(lambda h: F.hardtanh(h, max_val=0.25)),
    "clamp": of(lambda h: torch.clamp(h, -2, 3.5)),
    "clip by keyword": of(lambda h: h.clip(max=6, min=0)),
    "clamp from 0": of(lambda h: h.clamp(min=0)),
    "clamp_min": of(lambda h: torch.clamp_min(h, 0)),
    "LeakyReLU": layer(lambda: nn.LeakyReLU(0.2)),
    "LeakyReLU of 0": layer(lambda: nn.LeakyReLU(0)),
    "LeakyReLU of 1": layer(lambda: nn.LeakyReLU(1.0)),
    "LeakyReLU below 0": layer(lambda: nn.LeakyReLU(-1.5)),
    "leaky_relu": of(lambda h: F.leaky_relu(h) + F.leaky_relu(h, 3)),
    "PReLU": layer(lambda: slopes(1)),
    "PReLU of each": layer(lambda: slopes(4)),
    "PReLU of rows": lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 4), slopes(4)),
    "prelu": lambda: Of(lambda m, x: F.prelu(m.c(x), m.p.weight), c=conv(), p=slopes(4)),
    # In place.
    "ReLU6(inplace=True)": lambda: Of(
        lambda m, x: x + m.c(m.r(x)), c=conv(), r=nn.ReLU6(inplace=True)
    ),
    "hardtanh_": kept(lambda h: F.hardtanh_(h, -1.0, 2.0)),
    "clamp_": kept(lambda h: h.clamp_(-1, 1)),
    "torch.clamp_": kept(lambda h: torch.clamp_(h, min=0)),
    "leaky_relu_": kept(F.leaky_relu_),
    "leaky_relu(inplace=True)": kept(lambda h: F.leaky_relu(h, 0.3, True)),
    "torch.relu_": kept(lambda h: torch.relu_(h)),
    "mul_": kept(lambda h: h.mul_(0.5)),
    "neg_": kept(lambda h: torch.neg_(h)),
    "sub_": kept(lambda h: h.sub_(h, alpha=3)),
    "div_": kept(lambda h: h.div_(4)),
    # Arithmetic.
    "numbers": of(lambda h: ((2 * h - 1) / 4 * 3 + True) * 0.5),
    "a number first": of(lambda h: 3 - h + (2.5 - h)),
    "minus": of(lambda h: -h + torch.neg(h) * 0.5),
    "tensors": lambda: Of(lambda m, x: m.c(x) - x, c=conv()),
    "sub": lambda: Of(lambda m, x: torch.sub(m.c(x), x, alpha=0.5), c=conv()),
    "rsub": lambda: Of(lambda m, x: torch.rsub(m.c(x), x, alpha=2), c=conv()),
    "of itself": of(lambda h: h - h * 0.5),
    "sizes": of(lambda h: h * h.size(1) / (h.size(2) * h.shape[3])),
    "of channels": lambda: Normalised((4, 1, 1)),
    "of channels, as images": lambda: Normalised((1, 4, 1, 1)),
    "of one number": lambda: Normalised((1, 1)),
    "of rows": of_rows(lambda h: (1 - torch.arange(4.0)) * h + torch.ones(1, 4)),
    # Convolutions.
    "dilation": lambda: nn.Sequential(conv(dilation=(2, 1)), conv(dilation=2, groups=2)),
    "dilated, same": lambda: nn.Conv2d(4, 4, (2, 4), padding="same", dilation=(3, 1)),
    "dilated by strides": lambda: nn.Conv2d(4, 4, 2, stride=2, dilation=3, padding=(1, 2)),
    "dilation set later": lambda: nn.Sequential(set_later(conv(), dilation=2)),
    "conv2d": lambda: Of(
        lambda m, x: F.conv2d(x, m.c.weight, None, 1, (1, 0), groups=2), c=conv(groups=2)
    ),
    "linear": lambda: Of(lambda m, x: F.linear(x.flatten(1), m.l.weight), l=nn.Linear(144, 4)),
    # Channels after each other, and parts of them.
    "cat": lambda: Of(lambda m, x: torch.cat([m.c(x), x, x], 1), c=conv(outputs=3)),
    "concat": lambda: Of(lambda m, x: torch.concat((x, m.c(x)), dim=-3), c=conv(outputs=3)),
    "concatenate": lambda: Of(lambda m, x: torch.concatenate((m.c(x), x), axis=1), c=conv()),
    "cat of one": of(lambda h: torch.cat([h], 1)),
    "cat of rows": of_rows(lambda h: torch.cat((h, h * 2, h[:, 1:]), -1)),
    "cat of columns of one": of(lambda h: torch.cat((h.mean((2, 3)), h[:, :, 0, -1]), 1)),
    "a slice": of(lambda h: h[:, 1:3]),
    "a slice from behind": of(lambda h: h[:, -3:-1, :, :]),
    "a slice by its sizes": of(lambda h: h[:, h.size(1) // 2 :] + h[:, : h.shape[1] // 2]),
    "every second": of(lambda h: h[:, ::2] - h[:, 1::2]),
    "all": of(lambda h: h[:] + h[...] + h[:, :9]),
    "rows and columns": of(lambda h: h[:, 1:, 1:-2, ::2] + h[..., :3, 3:][:, :3]),
    "far apart": of(lambda h: h[..., 1::5, 2::4]),
    "one of each": of(lambda h: h[..., 2, -1]),
    "chunk": of(lambda h: h.chunk(2, 1)[1] + torch.chunk(h, 3, dim=-3)[0]),
    "chunk of more": of(lambda h: torch.chunk(h, 9, 1)[3]),
    "split": of(lambda h: torch.cat(h.split(3, dim=1)[::-1], 1)),
    "split by sizes": of(lambda h: torch.cat(torch.split(h, [1, 2, 1], 1)[1:], 1)),
    "narrow": of(lambda h: h.narrow(1, 1, 2) - torch.narrow(h, -3, -2, 2)),
    "parts of rows": of_rows(lambda h: h[:, 1:] + h.narrow(1, 0, 3) + h.split([3, 1], 1)[0]),
    "shuffled": of(shuffled),
    "shuffled by layers": lambda: nn.Sequential(conv(outputs=6), nn.ChannelShuffle(3)),
    "channel_shuffle": of(lambda h: F.channel_shuffle(h, 4) + F.channel_shuffle(h, 2)),
    "shuffled, not contiguous": of(lambda h: shuffled(h, 4, False)),
    "grouped, then rows": of(lambda h: h.view(-1, 2, 2, 6, 6).transpose(-4, -3).reshape(-1, 144)),
    "one channel": of(turned_channels),
    "images of one": of(lambda h: h.mean((2, 3)).view(h.size(0), -1, 1, 1)),
    # Pads.
    "ZeroPad2d": lambda: nn.Sequential(nn.ZeroPad2d((1, 2, 0, 3)), conv(), nn.ZeroPad2d(1)),
    "ConstantPad2d": lambda: nn.Sequential(nn.ConstantPad2d(2, 0.0), conv(stride=2)),
    "pad": of(lambda h: F.pad(h, (1, 2)) + F.pad(h, [2, 1, 0, 0], value=0)),
    "pad of nothing": of(lambda h: F.pad(h, (0, 0, 0, 0))),
    "pad of channels": of(padded),
    "pad, then pools": of(lambda h: F.max_pool2d(F.pad(h, (2, 1, 0, 1)), 3, 2, 1)),
    "pad, then means": of(lambda h: F.avg_pool2d(F.pad(h, (2, 1, 0, 1)), 3, 2, 1)),
    "pad, then pools of ReLUs": of(lambda h: F.max_pool2d(F.pad(F.relu(h), (1, 0, 0, 1)), 3, 2, 1)),
    "pad, then smaller pools": of(lambda h: F.max_pool2d(F.pad(F.relu(h), (2, 2, 2, 2)), 2)),
    "pad, then pools that reach over": of(
        lambda h: F.max_pool2d(F.pad(F.relu(h), (0, 1, 0, 1)), 2, 2, ceil_mode=True)
    ),
    "pad of a pad": lambda: nn.Sequential(nn.ZeroPad2d(1), nn.ZeroPad2d((0, 1, 2, 0)), conv()),
    # Pools.
    "ceil_mode": lambda: nn.Sequential(conv(), nn.MaxPool2d(3, 2, ceil_mode=True)),
    "ceil_mode and pads": lambda: nn.Sequential(conv(), nn.MaxPool2d(4, 3, 2, ceil_mode=True)),
    "ceil_mode of whole means": lambda: nn.Sequential(conv(), nn.AvgPool2d(2, ceil_mode=True)),
    "AdaptiveMaxPool2d": lambda: nn.Sequential(conv(), nn.AdaptiveMaxPool2d((2, None))),
    "adaptive_max_pool2d": of(lambda h: F.adaptive_max_pool2d(h, 1)),
    "torch.max_pool2d": of(lambda h: torch.max_pool2d(h, 2, 1)),
    # What changes nothing.
    "dropouts": lambda: nn.Sequential(
        conv(), nn.Dropout2d(), nn.AlphaDropout(), nn.FeatureAlphaDropout(inplace=True)
    ),
    "dropout2d": of(lambda h: F.dropout2d(F.alpha_dropout(h), training=False)),
    "mean of a list": of(lambda h: h.mean([2, 3]) + h.mean(axis=(-1, -2), keepdims=False)),
}


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_taken_computes_what_the_module_does(case: str) -> None:
    module = TAKEN[case]()
    same(networks.from_torch(module, SHAPE), module)


def part_changed(module: Any, x: Any) -> Any:
    h = module.c(x)
    h[:, :2].relu_()
    return h


def parts_changed(module: Any, x: Any) -> Any:
    first, second = module.c(x).chunk(2, 1)
    first += second
    return torch.cat((second, first), 1)


def group_changed(module: Any, x: Any) -> Any:
    h = module.c(x)
    groups = h.view(-1, 2, 2, 6, 6)
    h.clamp_(0, 1)
    return groups.transpose(1, 2).reshape(-1, 4, 6, 6)


def parts_of_what_changes(module: Any, x: Any) -> Any:
    h = module.c(x)
    parts = h.split(2, 1)
    h *= 2
    return torch.cat(parts, 1)


def own(function: Callable[..., Any]) -> Make:
    return lambda: Of(function, c=conv())


REFUSED: dict[str, tuple[Make, str]] = {
    # Activations.
    "SiLU": (layer(nn.SiLU), r"module '1' \(SiLU\): SiLU is not supported: .*Train with ReLU"),
    "hardswish": (of(F.hardswish), "hardswish is not supported: .*Train with ReLU or ReLU6"),
    "Tanh": (layer(nn.Tanh), "Tanh is not supported: .*Train with ReLU"),
    "hardtanh to infinity": (of(lambda h: F.hardtanh(h, -1, float("inf"))), "two finite numbers"),
    "hardtanh to a hole": (of(lambda h: F.hardtanh(h, 0.0, float("nan"))), "two finite numbers"),
    "hardtanh to 1e39": (
        of(lambda h: F.hardtanh(h, 0, 1e39)),
        "a number above 0, and up to 1e12, is possible",
    ),
    "clamp of nothing": (of(lambda h: h.clamp(2, -1)), "a clip to 2.0 and -1.0"),
    "clamp at one": (of(lambda h: h.clamp(0, 0)), "a clip to 0.0 and 0.0"),
    "clamp from 1": (of(lambda h: h.clamp(min=1)), "numbers from 1 to None: from 0, or between"),
    "clamp to 1": (of(lambda h: h.clamp(max=1)), "numbers from None to 1"),
    "clamp far away": (of(lambda h: h.clamp(1e8, 2e8)), "nearer to each other"),
    "clamp by tensors": (of(lambda h: h.clamp(torch.zeros(()))), "no number that is known"),
    "clamp by itself": (of(lambda h: h.clamp(min=0, max=h)), "no number that is known"),
    "LeakyReLU of a hole": (layer(lambda: nn.LeakyReLU(float("nan"))), "not finite"),
    "LeakyReLU of a tensor": (of(lambda h: F.leaky_relu(h, h)), "no number that is known"),
    "inplace of 2.5": (layer(lambda: set_later(nn.ReLU6(), inplace=2.5)), "neither true nor false"),
    "PReLU of others": (layer(lambda: slopes(2)), "one number, or one of each of 4, is possible"),
    "prelu by itself": (of(lambda h: F.prelu(h, h)), "the slopes the tensor"),
    "out": (of(lambda h: torch.clamp(h, 0, 1, out=h)), "out"),
    # Arithmetic.
    "by 0": (of(lambda h: h / 0), "a division by 0"),
    "by a buffer of 0": (of(lambda h: h / torch.zeros(4, 1, 1)), "a division by 0"),
    "a number by it": (of(lambda h: 1 / h), "truediv of 1: one of a tensor"),
    "whole numbers": (of(lambda h: h // 2), "floordiv is not supported"),
    "rounded": (of(lambda h: torch.div(h, 2, rounding_mode="floor")), "rounded floor"),
    "a square": (of(lambda h: h * h), "a product of"),
    "a quotient": (of(lambda h: h / h), "by a number is possible"),
    "sub of a number": (own(lambda m, x: torch.sub(3, m.c(x))), "a function of 3"),
    "a product": (own(lambda m, x: x * m.c(x)), "a product of"),
    "1e39": (of(lambda h: h * 1e39), "not finite"),
    "a mask": (of(lambda h: h * torch.ones(6, 6)), "one of one number, or of one for each of 4"),
    "an image": (of(lambda h: h + torch.ones(1, 4, 6, 6)), "of one number, or of one for each"),
    "images": (of(lambda h: h + torch.ones(3, 4, 1, 1)), "of one number, or of one for each"),
    "one more": (of(lambda h: h + torch.ones(1, 1, 1, 1, 1)), "of one number, or of one for each"),
    "channels of rows": (of_rows(lambda h: h + torch.ones(4, 1)), "of one number, or of one for"),
    "integers": (of(lambda h: h + torch.ones(1, dtype=torch.int64)), "weights of torch.int64"),
    "by the batch": (of(lambda h: h * h.size(0)), "the number of images is no number"),
    "power": (of(lambda h: h**2), "pow is not supported"),
    "remainder": (of(lambda h: h % 2), "mod is not supported"),
    # Convolutions.
    "dilations of 0": (lambda: nn.Sequential(set_later(conv(), dilation=0)), "dilations of"),
    "pads below 0": (lambda: nn.Sequential(set_later(conv(), padding=-1)), "0 or more is possible"),
    "weights of an input": (
        lambda: Of(lambda m, x: F.conv2d(x, m.c(x)), c=conv()),
        "not numbers of the module's own",
    ),
    "weights of three dimensions": (
        of(lambda h: F.conv2d(h, torch.ones(4, 3, 3))),
        "weights of 3 dimensions",
    ),
    # Channels after each other, and parts of them.
    "cat of rows of planes": (of(lambda h: torch.cat((h, h), 2)), "in dimension 2: 1 is possible"),
    "cat of images": (of(lambda h: torch.cat((h, h))), "in dimension 0"),
    "cat of nothing": (own(lambda m, x: torch.cat((), 1) + m.c(x)), "cannot be traced"),
    "cat of both": (of(lambda h: torch.cat((h.mean((2, 3)), h), 1)), "flatten the images"),
    "cat of sizes": (of(lambda h: torch.cat((h, h[:, :, 1:]), 1)), "they must be alike"),
    "cat with numbers": (of(lambda h: torch.cat((h, torch.ones(1, 4, 6, 6)), 1)), "with"),
    "of no images": (of(lambda h: h[1:]), "slices of channels, rows and columns are possible"),
    "backwards": (of(lambda h: h[:, ::-1]), "goes backwards"),
    "nothing": (of(lambda h: h[:, 2:2]), "a part of nothing"),
    "outside": (of(lambda h: torch.unsqueeze(h[:, 4], 1)), "a part of nothing"),
    "a list": (of(lambda h: h[:, [0, 2]]), "slices of channels"),
    "a truth": (of(lambda h: h[:, True]), "slices of channels"),
    "one more dimension": (of(lambda h: h[:, None]), "slices of channels"),
    "two ellipses": (of(lambda h: h[..., ...]), "slices of channels"),
    "five": (of(lambda h: h[:, :, :, :, :]), "slices of channels"),
    "one row": (of(lambda h: h[:, :, 0]), "a dimension less"),
    "one of rows": (of_rows(lambda h: h[:, 0]), "a dimension less"),
    "one channel alone": (of(lambda h: h[:, 0]), "not one tensor"),
    "one channel's ReLU": (of(lambda h: F.relu(h[:, 0])), "relu of the tensor .* 3 dimensions"),
    "by the batch's size": (of(lambda h: h[:, : h.size(0)]), "arguments that are not taken"),
    "chunks of images": (of(lambda h: h.chunk(2)[0]), "parts of dimension 0"),
    "no chunks": (of(lambda h: h.chunk(0, 1)[0]), "chunk with arguments"),
    "split by other sizes": (of(lambda h: h.split([1, 2], 1)[0]), r"\[1, 2\] of 4 channels"),
    "split by 0": (of(lambda h: h.split([0, 4], 1)[1]), r"\[0, 4\] of 4 channels"),
    "split by -1": (of(lambda h: h.split(-1, 1)[0]), "of 4 channels"),
    "narrow of more": (of(lambda h: h.narrow(1, 3, 2)), "2 from 3 of dimension 1"),
    "groups as images": (of(lambda h: h.view(h.size(1), 2, 2, 6, 6)), "a view as"),
    "groups of others": (of(lambda h: h.view(-1, 2, 3, 6, 6)), "a view as"),
    "planes turned": (of(lambda h: h.transpose(2, 3)), "channels in groups are possible"),
    "groups and rows turned": (
        of(lambda h: h.view(-1, 2, 2, 6, 6).transpose(2, 3).reshape(-1, 4, 6, 6)),
        "those of groups of channels",
    ),
    "groups added": (of(lambda h: h.view(-1, 2, 2, 6, 6) + 1), "a sum of .* 5 dimensions"),
    "shuffled by 3": (of(lambda h: F.channel_shuffle(h, 3)), "cannot reshape"),
    # Pads.
    "ones": (lambda: nn.Sequential(nn.ConstantPad2d(1, 1.0), conv()), "value 1.0: zeros are"),
    "reflect": (of(lambda h: F.pad(h, (1, 1), mode="reflect")), "mode reflect"),
    "ReflectionPad2d": (layer(lambda: nn.ReflectionPad2d(1)), "ReflectionPad2d is not supported"),
    "cut": (lambda: nn.Sequential(nn.ZeroPad2d(-1), conv()), "two of each dimension, 0 or more"),
    "three": (of(lambda h: F.pad(h, (1, 1, 1))), "two of each dimension"),
    "of images": (of(lambda h: F.pad(h, (0, 0, 0, 0, 0, 0, 1, 0))), "images of zeros"),
    "of rows": (of_rows(lambda h: F.pad(h, (1, 1))), "rows and columns are missing"),
    # Pools.
    "dilated": (lambda: nn.Sequential(nn.MaxPool2d(2, dilation=2)), "dilations and indices"),
    "indices": (of(lambda h: F.adaptive_max_pool2d(h, 1, True)[0]), "indices"),
    "means that reach over": (
        lambda: nn.Sequential(nn.AvgPool2d(4, 3, ceil_mode=True)),
        "reach over the end",
    ),
    "windows that overlap": (of(lambda h: F.adaptive_max_pool2d(h, 4)), "only whole windows"),
    "larger": (layer(lambda: nn.Upsample(scale_factor=2)), "Upsample is not supported"),
    "larger by a function": (of(lambda h: F.interpolate(h, scale_factor=2)), "interpolate is not"),
    "awake": (of(F.dropout2d), "give it training=self.training"),
    "awake by an option": (of(lambda h: F.alpha_dropout(h, 0.5, True)), "training=self.training"),
    # Changes in place, of what may be the same memory.
    "a part's": (own(part_changed), "may share its memory .* at 'relu_'"),
    "another part's": (own(parts_changed), "may share its memory .* at 'iadd'"),
    "its groups'": (own(group_changed), "may share its memory .* at 'clamp_'"),
    "its parts'": (own(parts_of_what_changes), "may share its memory .* at 'imul'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_change_numbers_is_refused_by_name(case: str) -> None:
    refused(*REFUSED[case])


def test_pads_are_those_of_what_reads_them() -> None:
    module = nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), conv(), nn.ReLU(), nn.ZeroPad2d(1))
    module.append(nn.MaxPool2d(3, 2))
    network = networks.from_torch(module, SHAPE)
    assert [node.op for node in network.nodes] == ["conv", "relu", "max_pool"]
    assert network.notes == ()
    same(network, module)


def test_all_refusals_are_given_at_once() -> None:
    def forward(module: Any, x: Any) -> Any:
        h = module.silu(module.c(x))
        rows = F.relu(h).mean((2, 3))  # of what is refused: nothing is said
        return rows + module.w(module.c(x) ** 2) + module.p(x).mean((2, 3)) + module.t(x).tan()

    hooked = conv()
    hooked.register_forward_hook(lambda module, images, found: found)
    layers = {"c": conv(), "silu": nn.SiLU(), "w": conv(), "p": hooked, "t": conv(4, 3, dilation=2)}
    module = Of(forward, **layers)
    with pytest.raises(ModelError, match="the hook"):
        _torch.read(module, SHAPE, None)
    refusals: list[str] = []
    assert _torch.read(module, SHAPE, None, refusals) is None
    patterns = (r"p \(Conv2d\): the hook", r"'silu' \(SiLU\)", "'pow_1': pow", "'tan': tan is not")
    assert len(refusals) == len(patterns)
    for one, says in zip(refusals, patterns, strict=True):
        assert re.search(says, one), one
    module, refusals = nn.Sequential(conv(), norm()), []
    network = _torch.read(module, SHAPE, None, refusals)
    assert network is not None
    assert not refusals
    same(network, module)
    with pytest.raises(ConfigError, match=r"a torch\.nn\.Module is expected"):
        _torch.read(3, SHAPE, None, refusals)
    with pytest.raises(ModelError, match="torch.float16"):
        _torch.read(conv().half(), SHAPE, None, refusals)
