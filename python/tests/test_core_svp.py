"""bench/core_svp.py: it says what published estimates say; of our sets, what their page says."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def core_svp(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "bench")
    return importlib.import_module("core_svp")


# Dimension, log2 q, deviation of secret and error; classical bits and block size as published.
PRIMAL = {
    # lattice-estimator's README, `LWE.estimate.rough(schemes.Kyber512)`: 118.6 bits, block 406.
    "kyber512": ((512, math.log2(3329), math.sqrt(1.5), math.sqrt(1.5)), 118.6, 406),
    # Albrecht, FHE.org 2024: 182.2 bits, block 624.
    "kyber768": ((768, math.log2(3329), 1.0, 1.0), 182.2, 624),
    # NewHope (USENIX Security 2016), table 1.
    "bcns": ((1024, 32.0, 3.192, 3.192), 86, 296),
    "newhope": ((1024, math.log2(12289), math.sqrt(8), math.sqrt(8)), 282, 967),
}
# The same table's dual attacks.
DUAL = {
    "bcns": (PRIMAL["bcns"][0], 86, 296),
    "jarjar": ((512, math.log2(12289), math.sqrt(12), math.sqrt(12)), 130, 448),
    "newhope": (PRIMAL["newhope"][0], 281, 962),
}
# Homomorphic Encryption Standard (2018), table 1, ternary secrets: log2 q, bits of the uSVP attack.
STANDARD = {1024: (27, 131.6), 2048: (54, 129.7), 4096: (109, 128.1), 8192: (218, 128.5)}


@pytest.mark.parametrize("name", PRIMAL)
def test_the_primal_attack_costs_what_is_published(core_svp: ModuleType, name: str) -> None:
    parameters, bits, block = PRIMAL[name]
    found = core_svp.primal(core_svp.Lwe(*parameters))
    assert abs(found.classical - bits) <= 1
    assert abs(found.block - block) <= 3


@pytest.mark.parametrize("name", DUAL)
def test_the_dual_attack_costs_what_is_published(core_svp: ModuleType, name: str) -> None:
    parameters, bits, block = DUAL[name]
    found = core_svp.dual(core_svp.Lwe(*parameters))
    assert abs(found.classical - bits) <= 1
    assert abs(found.block - block) <= 3


@pytest.mark.parametrize("degree", STANDARD)
def test_the_factors_of_the_2018_standard_give_its_table(core_svp: ModuleType, degree: int) -> None:
    modulus_log2, bits = STANDARD[degree]
    lwe = core_svp.Lwe(degree, modulus_log2, math.sqrt(2 / 3), 3.19)
    assert abs(core_svp.primal(lwe).standard - bits) <= 1


def test_a_weaker_instance_costs_less(core_svp: ModuleType) -> None:
    def bits(modulus_log2: float, secret: float, error: float) -> list[float]:
        lwe = core_svp.Lwe(4096, modulus_log2, secret, error)
        return [core_svp.primal(lwe).classical, core_svp.dual(lwe).classical]

    base = bits(100, math.sqrt(2 / 3), 3.2)
    for weaker in (bits(104, math.sqrt(2 / 3), 3.2), bits(100, 0.3, 3.2), bits(100, 0.8, 1.0)):
        assert all(less < more for less, more in zip(weaker, base, strict=True))


def test_the_page_and_the_kept_output_say_what_the_script_says(core_svp: ModuleType) -> None:
    parameters = json.loads((ROOT / "vectors" / "parameters.json").read_text(encoding="utf-8"))
    found = core_svp.report(parameters)
    kept = sorted((ROOT / "bench" / "results").glob("core-svp-*.json"))[-1]
    assert json.loads(kept.read_text(encoding="utf-8")) == found, "run bench/core_svp.py again"
    text = (ROOT / "docs" / "security" / "one-server.md").read_text(encoding="utf-8")
    for row in found["sets"]:
        assert core_svp.table_row(row) in text.splitlines()
        assert f"{row['primal']['standard_2018']}" in text
    limit = found["sets"][0]["at_limit"]["primal"]
    assert f"{limit['classical']} classical bits by it (β = {limit['block']})" in text
    default = next(row for row in found["sets"] if row["set"] == "n4096_128")
    assert default["is_within"]
    at_limit = default["at_limit"]
    for kind in ("primal", "dual"):
        assert default[kind]["classical"] > at_limit[kind]["classical"]
