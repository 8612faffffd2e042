"""What the single-server parameter sets cost to break in the core-SVP model, a second opinion.

    python bench/core_svp.py [--out FILE]

The first opinion is the published table (``ParameterSpec``'s check against the guidelines of ePrint
2024/463). This one is ours, and plain: the primal and the dual attack on LWE, each reduced to calls
of BKZ with blocks of β, and each call counted as one sieve in dimension β: 2^0.292β operations on a
classical computer, 2^0.265β on a quantum one. It leaves out all factors below the exponential, in
the attacker's favour, so its numbers are some 30 bits lower than those that tables of concrete
security promise; a third column adds the factors of the Homomorphic Encryption Standard of 2018
(β-dimensional sieves as measured, eight tours of d blocks: 0.292β + 16.4 + log2(8d)).

- Primal: Kannan's embedding into a lattice of dimension d = m + N + 1, the ternary half of the
  wanted vector scaled to the errors' length (Bai and Galbraith, ACISP 2014). BKZ finds it where its
  projection is shorter than the basis vector there by the geometric series assumption,
  s √β <= δ^(2β - d - 1) vol^(1/d) for errors of deviation s (Alkim, Ducas, Pöppelmann and Schwabe,
  USENIX Security 2016, section 6.3).
- Dual: a vector of length l in the scaled dual lattice tells LWE from uniform with advantage
  ε = exp(-2 π² (l s / q)²); one sieve gives 2^0.2075β such vectors, and 1 / ε² are wanted (the
  same, section 6.4).

The number of samples m is chosen by the attacker: queries and evaluation keys give as many as it
likes. The ring's structure and hybrid attacks on ternary secrets are not modelled.

What the sets are is read from ``vectors/parameters.json``, which the Rust code writes and a test of
its own holds (`cargo run -p hushtable-pir --example parameter_vectors`).
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable
from dataclasses import dataclass
from math import e, floor, inf, log, log2, pi, sqrt
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CLASSICAL, QUANTUM = 0.292, 0.265
# log2 of the short vectors that a sieve leaves, to the block size.
SIEVED = 0.2075
# Below, the formula for δ does not hold.
BLOCK_MIN = 50


@dataclass(frozen=True)
class Lwe:
    """An LWE instance: the standard deviations of secret and error, and samples without end."""

    dimension: int
    modulus_log2: float
    secret: float
    error: float


@dataclass(frozen=True)
class Attack:
    """The cheapest attack of a kind: its block size and samples, and log2 of what it costs."""

    block: int
    samples: int
    classical: float
    quantum: float
    standard: float


def delta_log2(block: int) -> float:
    """log2 of the root Hermite factor δ that blocks of this size reach (Chen, 2013)."""
    return log2((pi * block) ** (1 / block) * block / (2 * pi * e)) / (2 * (block - 1))


def primal_succeeds(lwe: Lwe, samples: int, block: int) -> bool:
    """Whether BKZ finds the error among so many samples."""
    dimension = samples + lwe.dimension + 1
    if block >= dimension:
        return False
    scale_log2 = log2(lwe.error / lwe.secret)
    volume_log2 = (samples * lwe.modulus_log2 + lwe.dimension * scale_log2) / dimension
    there = (2 * block - dimension - 1) * delta_log2(block) + volume_log2
    return log2(lwe.error * sqrt(block)) <= there


def dual_calls_log2(lwe: Lwe, samples: int, block: int) -> float:
    """log2 of how often BKZ must run for enough dual vectors; infinite where they say nothing."""
    dimension = samples + lwe.dimension
    if block >= dimension:
        return inf
    scale_log2 = log2(lwe.secret / lwe.error)
    length_log2 = (dimension - 1) * delta_log2(block)
    length_log2 += lwe.dimension * (lwe.modulus_log2 + scale_log2) / dimension
    relative_log2 = length_log2 + log2(lwe.error) - lwe.modulus_log2
    if relative_log2 > 20:
        return inf
    advantage_log2 = -2 * pi * pi * 4**relative_log2 / log(2)
    return max(0.0, -2 * advantage_log2 - SIEVED * block)


def least(low: int, high: int, cost: Callable[[int], float]) -> int:
    """Where a function that falls and then rises is least; ties go to the first."""
    step = max(1, (high - low) // 64)
    best = min(range(low, high + 1, step), key=cost)
    while step > 1:
        near = (max(low, best - step), min(high, best + step))
        step = max(1, step // 8)
        best = min((*range(near[0], near[1] + 1, step), best), key=cost)
    return best


def attack(samples: int, block: int, lwe: Lwe, calls_log2: float = 0.0) -> Attack:
    dimension = samples + lwe.dimension + 1
    return Attack(
        block,
        samples,
        CLASSICAL * block + calls_log2,
        QUANTUM * block + calls_log2,
        CLASSICAL * block + 16.4 + log2(8 * dimension) + calls_log2,
    )


def samples_max(lwe: Lwe) -> int:
    """More samples than any attack wants: the lattice's dimension is then thrice the secret's."""
    return 2 * lwe.dimension


def primal(lwe: Lwe) -> Attack:
    """The cheapest primal attack."""

    def block_of(samples: int) -> int:
        # Success is monotonic in the block size, as long as δ falls with it.
        low, high = BLOCK_MIN, samples + lwe.dimension
        while low < high:
            middle = (low + high) // 2
            if primal_succeeds(lwe, samples, middle):
                high = middle
            else:
                low = middle + 1
        return low

    samples = least(1, samples_max(lwe), block_of)
    return attack(samples, block_of(samples), lwe)


def dual(lwe: Lwe) -> Attack:
    """The cheapest dual attack, on a classical computer."""

    def cost(samples: int, block: int) -> float:
        return CLASSICAL * block + dual_calls_log2(lwe, samples, block)

    def block_of(samples: int) -> int:
        # Small blocks give vectors that say nothing, at infinite cost: start where they say much.
        low, high = BLOCK_MIN, samples + lwe.dimension - 1
        while low < high:
            middle = (low + high) // 2
            if dual_calls_log2(lwe, samples, middle) == 0:
                high = middle
            else:
                low = middle + 1
        return min(range(max(BLOCK_MIN, low - 60), low + 1), key=lambda b: cost(samples, b))

    samples = least(1, samples_max(lwe), lambda m: cost(m, block_of(m)))
    block = block_of(samples)
    return attack(samples, block, lwe, dual_calls_log2(lwe, samples, block))


def log2_of(product: int) -> float:
    """log2 of an integer too long for a float."""
    shift = max(0, product.bit_length() - 60)
    return log2(product >> shift) + shift


def instance(parameters: dict[str, Any], modulus_log2: float | None = None) -> Lwe:
    """The LWE instance that an attacker of a set is given, keys included."""
    product = 1
    for prime in parameters["moduli"]:
        product *= prime
    published = log2_of(product) if modulus_log2 is None else modulus_log2
    # Uniform over -1, 0, 1.
    secret = sqrt(2 / 3)
    return Lwe(parameters["degree"], published, secret, parameters["error_deviation"])


def estimate(lwe: Lwe) -> dict[str, Any]:
    def rounded(found: Attack) -> dict[str, Any]:
        # Down: half a bit of optimism is not ours to give.
        down = {name: floor(10 * getattr(found, name)) / 10 for name in ("classical", "quantum")}
        standard = floor(10 * found.standard) / 10
        return {"block": found.block, "samples": found.samples, **down, "standard_2018": standard}

    return {"primal": rounded(primal(lwe)), "dual": rounded(dual(lwe))}


def report(parameters: dict[str, Any]) -> dict[str, Any]:
    """For every set what it costs, and the same for the longest modulus that the table allows."""
    sets = []
    for named in parameters["sets"]:
        lwe, limit = instance(named), named["modulus_log2_max"]
        sets.append(
            {
                "set": named["name"],
                "degree": named["degree"],
                "modulus_log2": round(lwe.modulus_log2, 2),
                "published_limit": limit,
                "is_within": lwe.modulus_log2 <= limit,
                **estimate(lwe),
                "at_limit": estimate(instance(named, limit)),
            }
        )
    return {"suite": "core-svp", "sets": sets}


def table_row(row: dict[str, Any]) -> str:
    """A set's row in docs/security/one-server.md."""

    def bits(attack: dict[str, Any]) -> str:
        return f"{attack['classical']} / {attack['quantum']} (β = {attack['block']})"

    verdict = "within" if row["is_within"] else "**beyond**"
    name = f"`{row['set']}`" + (" (default)" if row["set"] == "n4096_128" else "")
    limit = f"{row['published_limit']:.0f}, {verdict}"
    shown = [name, row["degree"], row["modulus_log2"], limit, bits(row["primal"])]
    return "| " + " | ".join(str(cell) for cell in [*shown, bits(row["dual"])]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="default: bench/results/core-svp-DATE.json")
    arguments = parser.parse_args()
    today = datetime.datetime.now(datetime.UTC).date()
    out = arguments.out or ROOT / "bench" / "results" / f"core-svp-{today}.json"
    parameters = json.loads((ROOT / "vectors" / "parameters.json").read_text(encoding="utf-8"))
    found = report(parameters)
    out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    for row in found["sets"]:
        print(table_row(row))
        for which, attacks in (("set", row), ("limit", row["at_limit"])):
            for kind in ("primal", "dual"):
                print(f"  {which} {kind}: {attacks[kind]}")
    print(f"written to {out}")


if __name__ == "__main__":
    main()
