"""What the published keys cost to break in the core-SVP model, a second opinion.

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
likes. The ring's structure and hybrid attacks are not modelled for secrets of which two thirds are
not 0.

A bootstrap publishes one key under a secret of weight 32, whose zeros an attacker guesses. Of such
a key three attacks are estimated, each with k of the n coefficients guessed and a lattice of the
other n - k:

- Dropped zeros: all k are taken for zeros, which C(n - k, 32) / C(n, 32) of all choices are, and
  each choice costs a primal attack of its own (Albrecht, EUROCRYPT 2017).
- Primal hybrid: the lattice is reduced once, then every vector of k coefficients with at most w
  that are not 0 is tried by a closest-vector search in the last η of its dimensions
  (Howgrave-Graham, CRYPTO 2007; Son and Cheon, WAHC 2019). A meet in the middle tries them in the
  square root of their number. In a ring, X^i s is as good a secret as s, and the same reduced
  lattice serves for it: all N rotations are tried, as in Ogilvie's "On the Concrete Hardness Gap
  Between MLWE and LWE" (ePrint 2026/279), which the code's limits are from.
- Dual hybrid: the same search, with the dual attack's test (Cheon, Hhan, Hong and Son, 2019,
  ePrint 2019/1114).

Everything is in the attacker's favour: a meet in the middle never misses and needs no memory, a
closest-vector search always finds, a test costs one operation for each of the 1 / ε² dual vectors
and tells for certain. In the third column, that of the standard's factors, a closest-vector search
costs d² operations at least, a sieve in η dimensions 2^(0.292η + 16.4), and a test 128 times as
many vectors. Quantum attacks are not estimated for it.

What the sets are is read from ``vectors/parameters.json``, which the Rust code writes and a test of
its own holds (`cargo run -p hushtable-pir --example parameter_vectors`).
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import ceil, e, floor, inf, lgamma, log, log2, pi, sqrt
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CLASSICAL, QUANTUM = 0.292, 0.265
# log2 of the short vectors that a sieve leaves, to the block size.
SIEVED = 0.2075
# Below, the formula for δ does not hold.
BLOCK_MIN = 50
# Above, every attack costs more than is of interest.
BLOCK_MAX = 1500


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


@cache
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


@dataclass(frozen=True)
class Sparse:
    """An LWE instance in a ring, whose secret has so many coefficients of -1 or 1, else zeros."""

    dimension: int
    modulus_log2: float
    weight: int
    error: float

    def rest(self, guessed: int, found: int = 0) -> Lwe:
        """What is left when so many coefficients are known, of which so many are not 0."""
        left = self.dimension - guessed
        secret = sqrt((self.weight - found) / left)
        return Lwe(left, self.modulus_log2, secret, self.error)


@dataclass(frozen=True)
class Hybrid:
    """The cheapest hybrid attack of a kind: log2 of its cost, and what it guesses."""

    bits: float
    guessed: int
    weight: int
    block: int


@cache
def choose_log2(n: int, k: int) -> float:
    """log2 of the number of choices of k of n."""
    if not 0 <= k <= n:
        return -inf
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2)


def sum_log2(*terms: float) -> float:
    """log2 of the sum of powers of two."""
    most = max(terms)
    if abs(most) == inf:
        return most
    return most + log2(sum(2 ** (term - most) for term in terms))


@cache
def guess_log2(key: Sparse, guessed: int, weight: int) -> tuple[float, float]:
    """log2 of the chance that at most `weight` of the guessed are not 0, and of how many so are."""
    left, weights = key.dimension - guessed, range(weight + 1)
    hits = [choose_log2(guessed, i) + choose_log2(left, key.weight - i) for i in weights]
    hit = sum_log2(*hits) - choose_log2(key.dimension, key.weight)
    return hit, sum_log2(*(choose_log2(guessed, i) + i for i in weights))


def hybrid(key: Sparse, rest_log2: Callable[[Lwe, int], tuple[float, float]]) -> Hybrid:
    """The cheapest hybrid attack; `rest_log2` is what a lattice of the rest costs and each test."""

    def cost(guessed: int, weight: int, block: int) -> float:
        hit, tried = guess_log2(key, guessed, weight)
        # As many rotations as it takes, and all of them where that is too few.
        rotations = min(log2(key.dimension), -hit)
        once, each = rest_log2(key.rest(guessed, weight), block)
        return sum_log2(once, (rotations + tried) / 2 + each) - (hit + rotations)

    def best(guessed: int, weight: int) -> Hybrid:
        block = least(BLOCK_MIN, BLOCK_MAX, lambda block: cost(guessed, weight, block))
        return Hybrid(cost(guessed, weight, block), guessed, weight, block)

    def of(guessed: int) -> Hybrid:
        nonlocal start
        most = min(key.weight - 1, guessed)
        found = best(guessed, min(start, most))
        for step in (1, -1):
            while 0 <= found.weight + step <= most:
                other = best(guessed, found.weight + step)
                if other.bits >= found.bits:
                    break
                found = other
        start = found.weight
        return found

    # The best weight changes slowly.
    start = 0
    guessed = least(0, key.dimension - BLOCK_MIN, lambda guessed: of(guessed).bits)
    return of(guessed)


def sieve_log2(block: int, dimension: float, is_standard: bool) -> float:
    """log2 of what BKZ costs, without or with the factors of the standard of 2018."""
    return CLASSICAL * block + (16.4 + log2(8 * dimension) if is_standard else 0)


def best_dimension(lwe: Lwe, block: int, scale_log2: float) -> tuple[float, float]:
    """The lattice's dimension at which log2 of its last, or its dual's first, vector is best."""
    volume = lwe.dimension * (lwe.modulus_log2 - scale_log2)
    dimension = sqrt(volume / delta_log2(block))
    least_dimension = lwe.dimension + 1
    dimension = min(max(dimension, least_dimension), lwe.dimension + samples_max(lwe))
    return dimension, volume / dimension


def closest_log2(lwe: Lwe, block: int, is_standard: bool) -> tuple[float, float]:
    """log2 of what the reduction of the primal lattice costs and each closest-vector search."""
    dimension, lost = best_dimension(lwe, block, log2(lwe.error / lwe.secret))
    last = lwe.modulus_log2 - lost - (dimension - 1) * delta_log2(block)
    # The errors are shorter than the shortest vector of the last η dimensions, by their volume.
    short = log2(lwe.error) + log2(2 * pi * e) / 2 - last
    searched = max(1.0, 1 + short / delta_log2(block))
    if searched > dimension:
        return inf, inf
    each = CLASSICAL * searched if searched > 1 else 0.0
    if is_standard:
        each = max(2 * log2(dimension), each + 16.4 if searched > BLOCK_MIN else 0.0)
    return sieve_log2(block, dimension, is_standard), each


def dual_test_log2(lwe: Lwe, block: int, is_standard: bool) -> tuple[float, float]:
    """log2 of what enough dual vectors cost and each test."""
    dimension, gained = best_dimension(lwe, block, log2(lwe.error / lwe.secret))
    length = (dimension - 1) * delta_log2(block) + gained
    relative_log2 = length + log2(lwe.error) - lwe.modulus_log2
    if relative_log2 > 20:
        return inf, inf
    advantage_log2 = -2 * pi * pi * 4**relative_log2 / log(2)
    # Each vector is one operation of a test; to tell one guess of 2^128 takes 128 at least.
    vectors = -2 * advantage_log2 + (7.0 if is_standard else 0.0)
    calls = max(0.0, vectors - SIEVED * block)
    return sieve_log2(block, dimension, is_standard) + calls, vectors


def dropped(key: Sparse, is_standard: bool) -> Hybrid:
    """The cheapest attack that takes coefficients for zeros, with a primal attack each time."""

    def of(guessed: int) -> Hybrid:
        found = primal(key.rest(guessed))
        bits = found.standard if is_standard else found.classical
        return Hybrid(bits - guess_log2(key, guessed, 0)[0], guessed, 0, found.block)

    # One in two hundred of the ring's degree is as near as it need be.
    step = max(1, key.dimension // 200)
    last = (key.dimension - BLOCK_MIN) // step
    return of(step * least(0, last, lambda at: of(step * at).bits))


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
    sparse = [sparse_row(named) for named in parameters["sparse"]]
    return {"suite": "core-svp", "sets": sets, "sparse": sparse}


@cache
def estimate_sparse(key: Sparse) -> dict[str, Any]:
    """By attack and by measure, the cheapest attack on a key of a sparse secret."""

    def rounded(found: Hybrid) -> dict[str, Any]:
        guessed = {"guessed": found.guessed, "weight": found.weight}
        return {"bits": floor(10 * found.bits) / 10, "block": found.block, **guessed}

    attacks = {
        "dropped_zeros": lambda standard: dropped(key, standard),
        "primal_hybrid": lambda standard: hybrid(
            key, lambda lwe, block: closest_log2(lwe, block, standard)
        ),
        "dual_hybrid": lambda standard: hybrid(
            key, lambda lwe, block: dual_test_log2(lwe, block, standard)
        ),
    }
    return {
        name: {"classical": rounded(of(False)), "standard_2018": rounded(of(True))}
        for name, of in attacks.items()
    }


def sparse_row(named: dict[str, Any]) -> dict[str, Any]:
    """What the key under a set's sparse secret costs to break, and one at the code's limit."""
    # Up: sets whose primes differ by less are one to an attacker.
    modulus_log2 = ceil(100 * instance(named).modulus_log2) / 100

    def at(modulus_log2: float) -> dict[str, Any]:
        shape = (named["weight"], named["error_deviation"])
        return estimate_sparse(Sparse(named["degree"], modulus_log2, *shape))

    limit = named["modulus_log2_max"]
    return {
        "set": named["name"],
        "degree": named["degree"],
        "weight": named["weight"],
        "modulus_log2": modulus_log2,
        "published_limit": limit,
        "is_within": modulus_log2 <= limit,
        **at(modulus_log2),
        "at_limit": at(limit),
    }


def sparse_table_row(row: dict[str, Any]) -> str:
    """A sparse key's row in docs/security/encrypted.md."""

    def bits(attacks: dict[str, Any], name: str) -> str:
        return f"{attacks[name]['classical']['bits']} / {attacks[name]['standard_2018']['bits']}"

    verdict = "within" if row["is_within"] else "**beyond**"
    limit = f"{row['published_limit']:.0f}, {verdict}"
    names = ("dropped_zeros", "primal_hybrid", "dual_hybrid")
    shown = [f"`{row['set']}`", row["degree"], row["modulus_log2"], limit]
    shown += [bits(row, name) for name in names] + [bits(row["at_limit"], "primal_hybrid")]
    return "| " + " | ".join(str(cell) for cell in shown) + " |"


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
    for row in found["sparse"]:
        print(sparse_table_row(row))
    print(f"written to {out}")


if __name__ == "__main__":
    main()
