"""``hushtable bench ckks``: what it prints, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from test_cli import RECORD, run, run_json


def bench(operation: str, *more: Any) -> dict[str, Any]:
    return run_json(
        *("bench", "ckks", "--operation", operation, "--degree", 8192, "--limbs", 3),
        *("--threads", 1, "--seconds", 0.05, *more),
    )


@pytest.mark.parametrize("operation", ["rotate", "multiply", "rescale", "transform"])
def test_bench_ckks(operation: str) -> None:
    record = bench(operation, "--diagonals", 6, "--baby-steps", 4)
    assert record.keys() == RECORD
    assert record["bench"] == "ckks"
    expected = {"operation": operation, "degree": 8192, "limbs": 3}
    if operation == "transform":
        expected |= {"diagonals": 6, "baby_steps": 4}
    assert record["params"] == expected
    assert (record["unit"], record["threads"]) == ("ms", 1)
    assert 0 < record["value"] <= record["detail"]["median_ms"]
    assert record["of_floor"] == pytest.approx(record["floor"] / record["value"])
    detail = record["detail"]
    assert detail["level"] == 2
    assert detail["log_q"] < detail["log_qp"] <= 214
    assert detail["special_limbs"] >= 1
    # Fresh noise and a key switch's are some bits above one; a slot's scale is 46 bits.
    assert 15 < detail["error_bits"] < detail["scale_bits"]
    has_keys = operation != "rescale"
    assert (detail["key_bytes"] > 32) == has_keys
    assert (detail["read_bytes"] > 0) == has_keys
    assert (detail["prepared_bytes"] > 0) == (operation == "transform")
    assert detail["ciphertext_memory_bytes"] >= 2 * 3 * 8192 * 8
    assert detail["transforms"] > 0
    assert detail["vectors"] > 0


@pytest.mark.rest
def test_bench_of_a_bootstrap() -> None:
    options = ["--degree", 32768, "--slots", 16, "--seconds", 0.05]
    record = run_json("bench", "ckks", "--operation", "bootstrap", *options)
    assert record.keys() == RECORD
    assert record["params"] == {"operation": "bootstrap", "degree": 32768, "slots": 16}
    assert 0 < record["floor"] < record["value"] <= record["detail"]["median_ms"]
    detail = record["detail"]
    assert detail["levels_left"] == 5
    assert detail["log_qp"] <= 868
    assert detail["failure_log2"] < -138
    for name in ("random", "constant", "one_hot", "positive"):
        assert detail[f"{name}_mean_bits"] > 15, name
        assert 12 < detail[f"{name}_worst_bits"] <= detail[f"{name}_mean_bits"], name
    assert 100e6 < detail["key_bytes"] < detail["keys_memory_bytes"] < detail["peak_bytes"]


def test_a_transform_has_a_key_for_each_step() -> None:
    one = bench("rotate")["detail"]["key_bytes"] - 32
    detail = bench("transform", "--diagonals", 6, "--baby-steps", 4)["detail"]
    # Baby steps 1, 2 and 3, and the giant step 4.
    assert detail["key_bytes"] - 32 == 4 * one


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--operation", "divide"], "must be rotate, multiply, rescale, transform or bootstrap"),
        (["--threads", 2], "threads is 2"),
        (["--limbs", 30, "--degree", 8192], "no room for 30 primes"),
        (["--degree", 5000], "degree 5000"),
        (["--operation", "rescale", "--limbs", 1], "at least 2"),
        (["--operation", "transform", "--diagonals", 0], "diagonals is 0"),
        (["--operation", "bootstrap", "--degree", 8192], "32768 is nearest"),
        (["--operation", "bootstrap", "--degree", 32768, "--slots", 100], "128 comes next"),
        (["--operation", "bootstrap", "--degree", 32768, "--slots", 32768], "2 to 16384"),
    ],
)
def test_what_cannot_be_is_refused(options: list[Any], said: str) -> None:
    done = run("bench", "ckks", *options)
    assert done.returncode == 2
    assert said in done.stderr


def test_help_has_examples_and_json() -> None:
    done = run("bench", "ckks", "--help")
    assert done.returncode == 0
    assert "$ hushtable bench ckks" in done.stdout
    assert "--json" in done.stdout
