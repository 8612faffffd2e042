"""Rows with scales, on every engine that takes tables, against NumPy that reads the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from test_cli import run, run_json
from test_infer_shares_serve import Sides
from test_infer_tables import build, described, logits, users

import hushtable
from hushtable import Table, infer

CODES = ["int8", "int4", "int4/32", "int4/128", "int2", "int2/64", "fp8_e4m3", "fp8_e5m2/32"]
#: Values of a row: less than a byte's, an odd number, and so many that codes carry their scale.
DIMS = [1, 37, 256, 301]

Floats = npt.NDArray[np.float32]


def floats(kind: str, codes: npt.NDArray[np.uint8]) -> Floats:
    """8-bit floats, of which none is infinite or NaN."""
    mantissa, bias = {"fp8_e4m3": (3, 7), "fp8_e5m2": (2, 15)}[kind]
    exponents, steps = codes >> mantissa & (2 ** (7 - mantissa) - 1), codes % 2**mantissa
    normal = (steps / 2**mantissa + 1) * 2.0 ** (exponents.astype(int) - bias)
    small = steps / 2**mantissa * 2.0 ** (1 - bias)
    magnitude = np.where(exponents > 0, normal, small)
    return np.where(codes >= 128, -magnitude, magnitude).astype(np.float32)


def bundle_rows(bundle: Path) -> Floats:
    """The rows of a bundle by its files and the page of the format: [rows, dim]."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    rows, dim, dtype = manifest["rows"], manifest["dim"], manifest["dtype"]
    kind, _, group = dtype.partition("/")
    data = (bundle / "rows.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])

    def tensor(name: str) -> npt.NDArray[np.uint8]:
        first, end = header[name]["data_offsets"]
        return np.frombuffer(data[8 + length + first : 8 + length + end], np.uint8)

    weight = tensor("weight").reshape(rows, -1)
    if kind in ("int4", "int2"):
        bits = int(kind[3:])
        # Low bits first; what is left of the last byte is no code.
        each = weight[:, :, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2**bits - 1)
        codes = each.reshape(rows, -1)[:, :dim].astype(np.int32)
        numbers = np.where(codes >= 2 ** (bits - 1), codes - 2**bits, codes).astype(np.float32)
    elif kind == "int8":
        numbers = weight.view(np.int8).astype(np.float32)
    else:
        numbers = floats(kind, weight)
    if "scale" in header:
        raw = tensor("scale")
        scales = (
            raw.view("<f4")
            if header["scale"]["dtype"] == "F32"
            else (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
        ).reshape(rows, -1)
    else:
        assert kind in ("int4", "int2") and not group and dim >= 256
        low = np.zeros((rows, -(-dim // 16) * 16), np.uint32)
        low[:, :dim] = codes & 1
        parities = np.bitwise_xor.reduce(low.reshape(rows, -1, 16), axis=1)
        scales = ((parities << np.arange(16)).sum(axis=1, dtype=np.uint32) << 16).view(np.float32)
        scales = scales[:, None]
    return numbers * np.repeat(scales, int(group or dim), axis=1)[:, :dim]


def weight(rows: int, dim: int) -> Floats:
    return np.random.default_rng(dim).normal(size=(rows, dim)).astype(np.float32)


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("dim", DIMS)
def test_rows_are_what_the_files_say(tmp_path: Path, dtype: str, dim: int) -> None:
    values = weight(600, dim)
    table = Table.from_weight(values, name="items", dtype=dtype)
    table.save(tmp_path / "items")
    found = bundle_rows(tmp_path / "items")
    assert np.array_equal(table.rows(np.arange(600)), found)
    assert np.array_equal(Table.open(tmp_path / "items").rows(np.arange(600)), found)
    assert hushtable.verify_table(tmp_path / "items").ok
    # What normal numbers lose, of their squares.
    most = {"int8": 1e-4, "int4": 0.02, "int2": 0.2, "fp8_": 0.004}[dtype[:4]]
    lost = float(((found - values) ** 2).sum() / (values**2).sum())
    assert lost < most


VERSIONS = {
    "int8": "77a0073cc89b2dd4",
    "int4": "045b67316194e610",
    "int4/32": "b905ba93cdde9cb6",
    "int4/128": "dcfa30b527a07a79",
    "int2": "5ee49853ba1e0591",
    "int2/64": "7dcfe7d93e74b08f",
    "fp8_e4m3": "8a91ddbcd991c76f",
    "fp8_e5m2/32": "7015de9c9acca6d6",
}


def test_what_is_chosen_is_the_same_everywhere() -> None:
    """Versions that hold on every machine: each hashes all scales and codes."""
    values = (np.arange(300 * 40) * 7919 % 20_011 / 10_005.5 - 1).reshape(40, 300) ** 3
    found = {name: Table.from_weight(values, dtype=name).info.version[:16] for name in CODES}
    assert found == VERSIONS


@pytest.mark.parametrize("dtype", ["int4", "int4/64", "int2", "fp8_e4m3", "fp8_e5m2"])
def test_two_servers(tmp_path: Path, dtype: str) -> None:
    Table.from_weight(weight(600, 256), name="items", dtype=dtype).save(tmp_path / "items")
    expected = bundle_rows(tmp_path / "items")
    with (
        hushtable.ServerProcess(tmp_path / "items", "left", threads=1) as left,
        hushtable.ServerProcess(tmp_path / "items", "right", threads=1) as right,
        hushtable.connect(left.url, right.url) as client,
    ):
        assert client.info.dtype == dtype
        assert np.array_equal(client.lookup([[0, 599], [350, 1]]), expected[[[0, 599], [350, 1]]])


@pytest.mark.parametrize("dtype", ["int4", "int2/32", "fp8_e4m3", "fp8_e5m2"])
def test_one_server(tmp_path: Path, certificates: hushtable.Certificates, dtype: str) -> None:
    Table.from_weight(weight(600, 256), name="items", dtype=dtype).save(tmp_path / "items")
    expected = bundle_rows(tmp_path / "items")
    with (
        hushtable.ServerProcess(
            tmp_path / "items", scheme="onion", tls=certificates.server, threads=1
        ) as server,
        hushtable.connect(server=server.url, tls=certificates.ca) as client,
    ):
        assert client.info.dtype == dtype
        assert np.array_equal(client.lookup([0, 599, 350]), expected[[0, 599, 350]])


@pytest.mark.parametrize("dtype", ["int4", "int2", "fp8_e4m3"])
def test_encrypted_models_and_shares(tmp_path: Path, dtype: str) -> None:
    """Tables of a model are decoded as they are loaded, and computed with as numbers."""
    count = 4
    model = build(tmp_path, count, dtype)
    checkpoint = dict(np.load(tmp_path / "checkpoint.npz"))
    for name in (f"emb_l.{at}" for at in range(count)):
        before = checkpoint[f"{name}.weight"]
        checkpoint[f"{name}.weight"] = bundle_rows(model.path / "tables" / name)
        assert np.abs(before - checkpoint[f"{name}.weight"]).max() > 0.001
    np.savez(tmp_path / "checkpoint.npz", **checkpoint)

    (tmp_path / "model.toml").write_text(described(count, "relu"))
    dense, sparse = users(60, count)
    options: dict[str, Any] = {"fraction_bits": 14, "value_bits": 16, "runs": 1}
    infer.compile_shares(
        model, dense, sparse, spec=tmp_path / "model.toml", name="apart", **options
    )
    sides = Sides(tmp_path, tmp_path / "certificates", "apart")
    with (
        sides.right() as right,
        sides.left(right.url) as left,
        hushtable.connect(left.url, right.url, scheme="shares", tls=sides.tls) as client,
    ):
        found = client.predict(sparse[:3], dense[:3]).logits
    expected = logits(tmp_path, described(count, "relu"), dense, sparse)
    np.testing.assert_allclose(found, expected[:3], atol=2**-7)

    spec = described(count, "square")
    (tmp_path / "square.toml").write_text(spec)
    infer.compile(model, spec=tmp_path / "square.toml")
    expected = logits(tmp_path, spec, dense[:3], sparse[:3])
    for fhe in ("clear", "execute"):
        result = infer.Model.load(model.path, plan="clicks").predict(dense[:3], sparse[:3], fhe=fhe)
        np.testing.assert_allclose(result.logits, expected, atol=2**-9, err_msg=fhe)


def test_the_command(tmp_path: Path) -> None:
    values = weight(600, 256)
    np.save(tmp_path / "items.npy", values)
    bundle = tmp_path / "items"
    built = run_json("table", "build", tmp_path / "items.npy", bundle, "--quantize", "int4")
    assert (built["dtype"], built["row_bytes"], built["table_bytes"]) == ("int4", 128, 600 * 128)
    assert built["version"] == Table.from_weight(values, dtype="int4").info.version
    again = run_json("table", "build", tmp_path / "items.npy", bundle, "--dtype", "int4/64")
    assert again["row_bytes"] == 136
    assert run_json("table", "verify", bundle)["ok"]
    values[5] = 7.0
    np.savez(tmp_path / "changed.npz", ids=np.array([5]), rows=values[[5]])
    patched = run_json(
        "table", "patch", bundle, "--rows", tmp_path / "changed.npz", "--out", tmp_path / "next"
    )
    assert patched["version"] == Table.from_weight(values, dtype="int4/64").info.version
    assert np.array_equal(Table.open(tmp_path / "next").rows([5]), values[[5]])
    wrong = run("table", "build", tmp_path / "items.npy", bundle, "--quantize", "int3")
    assert wrong.returncode != 0
    assert "`int3` is not a table dtype; use f32, f16, bf16, int8, int4" in wrong.stderr


def safetensors(path: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> Path:
    """Writes (type, shape, bytes) by name."""
    header, data = {}, b""
    for name, (kind, shape, content) in tensors.items():
        ends = [len(data), len(data) + len(content)]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": ends}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


@pytest.mark.parametrize(("kind", "dtype"), [("F8_E4M3", "fp8_e4m3"), ("F8_E5M2", "fp8_e5m2")])
@pytest.mark.parametrize(
    ("scale", "shape", "group"),
    [
        (None, [], ""),
        ("emb.weight_scale", [], ""),
        ("emb.scale", [1], ""),
        ("emb.weight_scale", [40], ""),
        ("emb.weight.scale", [40, 1], ""),
        ("emb.weight_scale", [40, 3], "/32"),
        ("emb.weight_scale", [40, 2], "/64"),
    ],
)
def test_safetensors_of_8_bit_floats(
    tmp_path: Path, kind: str, dtype: str, scale: str | None, shape: list[int], group: str
) -> None:
    random = np.random.default_rng(7)
    numbers = [c for c in range(256) if c & 127 < {"F8_E4M3": 0x7F, "F8_E5M2": 0x7C}[kind]]
    codes = random.choice(np.array(numbers, np.uint8), size=(40, 96))
    tensors = {"emb.weight": (kind, [40, 96], codes.tobytes())}
    # Scales that no bfloat16 holds.
    scales = random.uniform(0.001, 3, size=shape).astype("<f4")
    expected = floats(dtype, codes)
    if scale is not None:
        tensors[scale] = ("F32", shape, scales.tobytes())
        each = np.broadcast_to(
            scales.reshape(len(scales) if scales.size > 1 else 1, -1),
            (40, max(shape[1:], default=1)),
        )
        expected = expected * np.repeat(each, int(group[1:] or 96), axis=1)[:, :96]
    source = safetensors(tmp_path / "model.safetensors", tensors)
    every = np.arange(40)
    assert hushtable.build_table(source, tmp_path / "items").dtype == dtype + group
    table = Table.open(tmp_path / "items")
    assert table.nonfinite_count == 0
    assert np.array_equal(table.rows(every), expected)
    # The very codes and scales of the file.
    assert (tmp_path / "items" / "rows.safetensors").read_bytes().endswith(codes.tobytes())
    hushtable.build_table(source, tmp_path / "wide", dtype="f32")
    assert np.array_equal(Table.open(tmp_path / "wide").rows(every), expected)
    hushtable.build_table(source, tmp_path / "small", dtype="int4/32")
    small = Table.from_weight(expected, dtype="int4/32")
    assert Table.open(tmp_path / "small").info.version == small.info.version
    model = hushtable.Model.build(source, tmp_path / "model")
    (one,) = model.tables
    assert one.dtype == dtype
    rows = Table.open(model.table_path(one.name)).rows(every)
    if group:
        # A model's tables have a scale a row unless they are told of groups.
        assert np.abs(rows - expected).max() <= np.abs(expected).max() / 8
    else:
        assert np.array_equal(rows, expected)
    assert not (model.path / "dense.safetensors").exists()


def test_scales_that_no_table_has_are_refused_by_name(tmp_path: Path) -> None:
    weight = ("F8_E4M3", [40, 96], bytes(40 * 96))
    for name, shape, text in (
        ("w_scale_inv", [1, 1], 'has the scales of blocks "w_scale_inv".* save the tensor deq'),
        ("w_scale", [40, 5], r"the scales \"w_scale\" of tensor \"w\" have shape \[40, 5\]"),
        ("scale", [2, 1], r"have shape \[2, 1\]; a table has one for the tensor, one for each row"),
        ("w.scale", [96], r"have shape \[96\]"),
    ):
        count = int(np.prod(shape))
        tensors = {"w": weight, name: ("F32", shape, np.ones(count, "<f4").tobytes())}
        source = safetensors(tmp_path / "model.safetensors", tensors)
        with pytest.raises(hushtable.TableError, match=text):
            hushtable.build_table(source, tmp_path / "items", key="w")
    # What is no number is kept and counted, where the type has a place for it.
    odd = ("F8_E4M3", [40, 96], b"\x7f" * 96 + bytes(39 * 96))
    source = safetensors(tmp_path / "model.safetensors", {"w": odd})
    hushtable.build_table(source, tmp_path / "items")
    assert Table.open(tmp_path / "items").nonfinite_count == 96
    with pytest.raises(hushtable.TableError, match="row 0, column 0 is NaN .* int4 cannot hold"):
        hushtable.build_table(source, tmp_path / "items", dtype="int4")
    halves = ("I32", [40, 96], bytes(4 * 40 * 96))
    source = safetensors(tmp_path / "model.safetensors", {"w": halves})
    with pytest.raises(hushtable.TableError, match="holds I32 values"):
        hushtable.build_table(source, tmp_path / "items")
