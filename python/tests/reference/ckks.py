"""Encrypted vectors, by docs/ckks-format.md."""

from __future__ import annotations

import math
import struct

import numpy as np

from reference.onion import Limbs, Prime, Source, mulmod, pack, small, uniform, unpack


class Parameters:
    """A parameter set, or the first of its primes."""

    def __init__(self, degree: int, moduli: list[int], special: list[int]) -> None:
        self.degree, self.special = degree, special
        self.moduli = moduli
        self.primes = [Prime(q, _psi(q, degree), degree) for q in moduli + special]

    def at(self, level: int, has_special: bool = False) -> Parameters:
        """The set of the first `level` + 1 primes of Q, and P's where asked for."""
        return Parameters(
            self.degree, self.moduli[: level + 1], self.special if has_special else []
        )


def _psi(q: int, degree: int) -> int:
    """The prime's root of unity."""
    roots = (pow(x, (q - 1) // (2 * degree), q) for x in range(2, q))
    return next(root for root in roots if pow(root, degree, q) == q - 1)


def _points(degree: int) -> list[complex]:
    """Where the slots' values are taken."""
    powers = [pow(5, j, 2 * degree) for j in range(degree // 2)]
    return [complex(math.cos(x), math.sin(x)) for x in (math.pi * p / degree for p in powers)]


def encode(parameters: Parameters, values: list[complex], scale: float) -> Limbs:
    """A vector as a polynomial, by the definition."""
    degree = parameters.degree
    slots = (values * degree)[: degree // 2]
    coefficients = [
        round(
            sum((z * x.conjugate() ** k).real for z, x in zip(slots, points, strict=True)) * share
        )
        for points in [_points(degree)]
        for share in [2 * scale / degree]
        for k in range(degree)
    ]
    return [prime.forward(_residues(coefficients, prime.q)) for prime in parameters.primes]


def decode(parameters: Parameters, limbs: Limbs, scale: float) -> list[complex]:
    """The slots of a polynomial."""
    product = math.prod(prime.q for prime in parameters.primes)
    total = [0] * parameters.degree
    for prime, limb in zip(parameters.primes, limbs, strict=True):
        others = product // prime.q
        weight = others * pow(others, -1, prime.q)
        total = [x + weight * int(y) for x, y in zip(total, prime.inverse(limb), strict=True)]
    centred = [(x + product // 2) % product - product // 2 for x in total]
    return [
        sum(c * x**k for k, c in enumerate(centred)) / scale for x in _points(parameters.degree)
    ]


def _residues(numbers: list[int], q: int) -> np.ndarray:
    return np.array([number % q for number in numbers], dtype=np.uint64)


def encrypt(
    parameters: Parameters,
    secret: np.ndarray,
    message: Limbs,
    seed: bytes,
    number: int,
    source: Source,
) -> bytes:
    """The packed body of a fresh ciphertext."""
    error = small(parameters, source.gaussian(parameters.degree))
    masks, secrets = uniform(parameters, seed, number), small(parameters, secret)
    bodies = b""
    for prime, e, m, a, s in zip(parameters.primes, error, message, masks, secrets, strict=True):
        q = np.uint64(prime.q)
        bodies += pack((e + m + q - mulmod(a, s, prime.q)) % q, prime.bits)
    return bodies


def fresh(
    parameters: Parameters, secret: np.ndarray, message: Limbs, level: int, scale: float,
    seed: bytes, number: int, source: Source,
) -> bytes:  # fmt: skip
    """A fresh ciphertext."""
    header = struct.pack("<BBHId", 1, 0, level, 0, scale) + seed + struct.pack("<Q", number)
    return header + encrypt(parameters.at(level), secret, message, seed, number, source)


def decrypt(parameters: Parameters, secret: np.ndarray, data: bytes) -> list[complex]:
    """The slots of a ciphertext of either kind."""
    version, kind, level, zeros, scale = struct.unpack_from("<BBHId", data)
    assert (version, zeros) == (1, 0)
    own = parameters.at(level)
    rest = data[16:]
    if kind == 0:
        (number,) = struct.unpack_from("<Q", rest, 32)
        masks, rest = uniform(own, rest[:32], number), rest[40:]
    else:
        masks, rest = _unpack(own, rest)
    bodies, rest = _unpack(own, rest)
    assert not rest
    limbs = [
        (b + mulmod(a, s, prime.q)) % np.uint64(prime.q)
        for prime, a, b, s in zip(own.primes, masks, bodies, small(own, secret), strict=True)
    ]
    return decode(own, limbs, scale)


def _unpack(parameters: Parameters, data: bytes) -> tuple[Limbs, bytes]:
    limbs = []
    for prime in parameters.primes:
        length = -(-parameters.degree * prime.bits // 8)
        limbs.append(unpack(data[:length], prime.bits, parameters.degree))
        data = data[length:]
    return limbs, data


def keys(
    parameters: Parameters, secret: np.ndarray, rotations: list[int], seed: bytes, source: Source
) -> bytes:
    """Keys for products and `rotations`, at the highest level."""
    degree = parameters.degree
    backwards = [pow(5, -steps, 2 * degree) for steps in rotations]
    pairs = [(_product(secret, secret), secret)]
    pairs += [(secret, _substituted(secret, exponent)) for exponent in backwards]
    special, p = len(parameters.special), math.prod(parameters.special)
    out, number = seed, 0
    for source_secret, target_secret in pairs:
        gains, targets = small(parameters, source_secret), small(parameters, target_secret)
        for first in range(0, len(parameters.moduli), special):
            error = small(parameters, source.gaussian(degree))
            masks = uniform(parameters, seed, number)
            for limb, prime in enumerate(parameters.primes):
                q = np.uint64(prime.q)
                body = error[limb]
                if limb < len(parameters.moduli):
                    body = mulmod(body, prime.of(pow(p, -1, prime.q)), prime.q)
                body = (body + q - mulmod(masks[limb], targets[limb], prime.q)) % q
                if first <= limb < min(first + special, len(parameters.moduli)):
                    body = (body + gains[limb]) % q
                out += pack(body, prime.bits)
            number += 1
    return out


def _substituted(values: np.ndarray, exponent: int) -> np.ndarray:
    """The polynomial at X^exponent."""
    out = np.zeros_like(values)
    for index, value in enumerate(values):
        place = index * exponent % (2 * len(values))
        out[place % len(values)] += value if place < len(values) else -value
    return out


def _product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The product modulo X^N + 1."""
    out = np.zeros_like(x)
    for index, value in enumerate(y):
        turned = np.roll(x, index)
        turned[:index] = -turned[:index]
        out += value * turned
    return out
