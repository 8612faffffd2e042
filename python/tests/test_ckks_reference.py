"""Encrypted vectors from the page alone, against the known answers that the Rust crate made."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from reference import ckks
from reference.onion import Source, pack

VECTORS = Path(__file__).parents[2] / "vectors" / "ckks.json"


def vectors() -> list[dict[str, Any]]:
    document = json.loads(VECTORS.read_text(encoding="utf-8"))
    assert document["format"] == 1
    return document["vectors"]


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: str(vector["index"]))
def test_bytes_and_values_come_out_of_the_page(vector: dict[str, Any]) -> None:
    parameters = ckks.Parameters(vector["degree"], vector["moduli"], vector["special_moduli"])
    source = Source(bytes.fromhex(vector["seed"]))
    secret = source.ternary(parameters.degree)
    level, scale = vector["level"], 2.0 ** vector["scale_log2"]
    values = [complex(*value) for value in vector["values"]]
    own = parameters.at(level)
    message = ckks.encode(own, values, scale)
    packed = b"".join(pack(x, p.bits) for x, p in zip(message, own.primes, strict=True))
    assert packed.hex() == vector["encoded"]
    seed = bytes.fromhex(vector["mask_seed"])
    fresh = ckks.fresh(parameters, secret, message, level, scale, seed, vector["index"], source)
    assert fresh.hex() == vector["fresh"]
    keys = ckks.keys(
        parameters, secret, vector["rotations"], bytes.fromhex(vector["key_seed"]), source
    )
    assert keys.hex() == vector["keys"]
    slots = (values * parameters.degree)[: parameters.degree // 2]
    for name, expected in {
        "fresh": slots,
        "rotated_by_3": slots[3:] + slots[:3],
        "squared": [z * z for z in slots],
    }.items():
        data = bytes.fromhex(vector[name])
        (own_scale,) = struct.unpack_from("<d", data, 8)
        found = ckks.decrypt(parameters, secret, data)
        # Errors of a few hundred units, times the numbers that they are multiplied with.
        bound = 500 / own_scale * max(1.0, *map(abs, slots))
        assert max(abs(x - y) for x, y in zip(found, expected, strict=True)) < bound, name
