"""What is said of a torch module before it is imported."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hushtable import infer
from hushtable.errors import ConfigError
from hushtable.infer import networks

torch = pytest.importorskip("torch", reason="the extra hushtable[torch] is not installed")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")


def test_the_price_of_a_module_is_its_plans(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 4))
    report = networks.check(module, shape=(2, 8, 8))
    assert (report.source, report.kind, report.refusals) == ("Sequential", "torch", ())
    assert report.operators == {"conv": 1, "relu": 1, "flatten": 1, "linear": 1}
    bits = []
    for at, range in enumerate((None, (0.0, 0.01), (-255.0, 255.0))):
        network = networks.from_torch(module, (2, 8, 8), range=range)
        plan = infer.compile(network.build(tmp_path / f"model-{at}"), scheme="hybrid")
        report = networks.check(module, shape=(2, 8, 8), range=range)
        assert report.plan == dataclasses.replace(plan, name="", plan="")
        bits.append(plan.bits)
    assert bits[1] < bits[0] < bits[2]


def test_all_that_is_refused_of_a_module_is_said_at_once() -> None:
    class Two(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Softplus(), nn.Conv2d(2, 2, 3, padding_mode="circular")

        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
            return torch.tanh(torch.relu(self.left(x) + self.right(x)))

    report = networks.check(Two(), shape=(2, 8, 8))
    left, right, behind = report.refusals
    assert "left" in left and "Softplus" in left
    assert "right" in right and "padding_mode" in right
    assert "tanh is not supported" in behind
    assert (report.network, report.plan) == (None, None)


def test_a_module_is_checked_with_a_shape_alone() -> None:
    with pytest.raises(ConfigError, match="checked with shape="):
        networks.check(nn.ReLU())
    with pytest.raises(ConfigError, match="range= is for a torch module"):
        networks.check("a.onnx", range=(0, 1))
    with pytest.raises(ConfigError, match="without output"):
        networks.check(nn.ReLU(), shape=(1, 2, 3), output="y")
    with pytest.raises(ConfigError, match=r"torch\.nn\.Module is expected, not dict"):
        networks.check({}, shape=(1, 2, 3))
