"""Weights that torchao has quantised, where torch and torchao are installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hushtable
from hushtable import Table

torch = pytest.importorskip("torch")
ao = pytest.importorskip("torchao.quantization")
granularity = pytest.importorskip("torchao.quantization.granularity")

ROWS, DIM = 100, 64


def quantised(config: Any) -> tuple[Any, np.ndarray]:
    """A layer, and the values that it stands for."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Embedding(ROWS, DIM)).eval()
    ao.quantize_(net, config, filter_fn=lambda module, _: isinstance(module, torch.nn.Embedding))
    return net[0], net[0].weight.dequantize().detach().numpy()


def intx(bits: Any, group: int | None = None, **options: Any) -> Any:
    each = granularity.PerAxis(0) if group is None else granularity.PerGroup(group)
    return ao.IntxWeightOnlyConfig(weight_dtype=bits, granularity=each, **options)


def test_codes_and_scales_are_kept() -> None:
    for config, dtype in (
        (intx(torch.int8), "int8"),
        (ao.Int8WeightOnlyConfig(), "int8"),
        (ao.Float8WeightOnlyConfig(), "fp8_e4m3"),
    ):
        layer, values = quantised(config)
        for stored in ("f32", dtype):
            found = Table.from_weight(layer, dtype=stored)
            assert found.info.dtype == stored
            assert np.array_equal(found.rows(np.arange(ROWS)), values)


def test_symmetric_int4_finds_its_codes_again() -> None:
    for group in (None, 32):
        layer, values = quantised(intx(torch.int4, group))
        dtype = "int4" if group is None else f"int4/{group}"
        found = Table.from_weight(layer, dtype=dtype).rows(np.arange(ROWS))
        # As far as a bfloat16 is from a scale.
        assert np.all(np.abs(found - values) <= np.abs(values) * 2.0**-8)


def test_asymmetric_codes_are_rounded_anew() -> None:
    layer, values = quantised(intx(torch.int4, 32, mapping_type=ao.MappingType.ASYMMETRIC))
    assert np.array_equal(Table.from_weight(layer).rows(np.arange(ROWS)), values)
    found = Table.from_weight(layer, dtype="int4/32").rows(np.arange(ROWS))
    assert 0.001 < ((found - values) ** 2).sum() / (values**2).sum() < 0.02


def test_a_saved_file_of_classes_is_refused(tmp_path: Any) -> None:
    layer, _ = quantised(intx(torch.int4))
    torch.save(layer.state_dict(), tmp_path / "model.pt")
    with pytest.raises(hushtable.TableError, match="no part of a state dict; refused"):
        hushtable.build_table(tmp_path / "model.pt", tmp_path / "items")
