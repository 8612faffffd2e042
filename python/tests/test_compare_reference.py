"""Comparison keys by an implementation of their own: shares, and what they add up to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reference.compare import share
from reference.pair import AES128, CHACHA20

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "compare.json").read_text())
PRGS = {"aes128": AES128, "chacha20": CHACHA20}


@pytest.mark.parametrize(
    "vector", VECTORS["vectors"], ids=lambda vector: f"{vector['prg']}-{vector['bits']}"
)
def test_shares_are_those_of_the_vectors(vector: dict[str, object]) -> None:
    prg, bits, words = PRGS[vector["prg"]], vector["bits"], bytes.fromhex(vector["words"])
    keys = list(zip(vector["points"], vector["at"], vector["roots"], strict=True))
    for key, (point, at, roots) in enumerate(keys):
        left, right = (
            share(prg, side, bits, len(keys), key, int(root, 16), words, at)
            for side, root in enumerate(roots)
        )
        assert left == vector["left_shares"][key] and right == vector["right_shares"][key]
        assert left ^ right == (at < point)
