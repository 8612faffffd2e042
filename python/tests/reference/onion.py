"""Keys, queries and responses of one server, by docs/onion-format.md."""

from __future__ import annotations

import bisect
import decimal
import functools
import math
import os
import struct
from dataclasses import dataclass

import numpy as np
from blake3 import blake3
from Crypto.Cipher import ChaCha20

Limbs = list[np.ndarray]
_HALF = decimal.Decimal("0.5")


def mulmod(x: np.ndarray, y: np.ndarray, q: int) -> np.ndarray:
    """x · y modulo q, for numbers below q < 2^51: doubles give the quotient, give or take one."""
    quotient = (x.astype(np.float64) * y.astype(np.float64) / q).astype(np.uint64)
    rest = (x * y - quotient * np.uint64(q)).view(np.int64)
    return (rest % q).astype(np.uint64)


class Prime:
    """A prime with its transform."""

    def __init__(self, q: int, psi: int, degree: int) -> None:
        self.q, self.degree = q, degree
        self.bits = q.bit_length()
        assert pow(psi, degree, q) == q - 1
        order = _reversed_bits(degree)
        powers = np.array([1], dtype=np.uint64)
        while len(powers) < 2 * degree:
            step = np.full(1, pow(psi, len(powers), q), dtype=np.uint64)
            powers = np.concatenate([powers, mulmod(powers, step, q)])
        self.roots = powers[:degree][order]
        self.inverse_roots = powers[(2 * degree - np.arange(degree)) % (2 * degree)][order]

    def forward(self, values: np.ndarray) -> np.ndarray:
        """Coefficients to evaluations, by butterflies: X^N + 1 splits into halves log2 N times."""
        values, groups = values.copy(), 1
        while groups < self.degree:
            halves = values.reshape(groups, 2, -1)
            product = mulmod(halves[:, 1], self.roots[groups : 2 * groups, None], self.q)
            low, q = halves[:, 0].copy(), np.uint64(self.q)
            halves[:, 0], halves[:, 1] = (low + product) % q, (low + q - product) % q
            groups *= 2
        return values

    def inverse(self, values: np.ndarray) -> np.ndarray:
        """Evaluations to coefficients."""
        values, groups, q = values.copy(), self.degree // 2, np.uint64(self.q)
        while groups:
            halves = values.reshape(groups, 2, -1)
            low, high = halves[:, 0].copy(), halves[:, 1].copy()
            halves[:, 0] = (low + high) % q
            roots = self.inverse_roots[groups : 2 * groups, None]
            halves[:, 1] = mulmod((low + q - high) % q, roots, self.q)
            groups //= 2
        return mulmod(values, self.of(pow(self.degree, -1, self.q)), self.q)

    def of(self, number: int) -> np.ndarray:
        """A number's residue, to multiply with."""
        return np.full(1, number % self.q, dtype=np.uint64)


def _reversed_bits(length: int) -> np.ndarray:
    bits = length.bit_length() - 1
    return np.array([int(f"{i:0{bits}b}"[::-1], 2) for i in range(length)])


@dataclass(frozen=True)
class Digits:
    """How numbers are cut up."""

    count: int
    base: int
    dropped: int

    def weight(self, digit: int) -> int:
        return 1 << (self.dropped + digit * self.base)


class Parameters:
    """A parameter set."""

    def __init__(
        self,
        id: int,
        name: str,
        primes: list[tuple[int, int]],
        kept: int,
        plain_bits: int,
        key_switch: Digits,
        selector: Digits,
        response_bits: tuple[int, int],
    ) -> None:
        self.id, self.name, self.degree = id, name, 4096
        self.primes = [Prime(q, psi, self.degree) for q, psi in primes]
        self.kept, self.plain_bits = kept, plain_bits
        self.key_switch, self.selector = key_switch, selector
        self.mask_bits, self.body_bits = response_bits
        self.q = math.prod(prime.q for prime in self.primes[:kept])
        self.dropped = math.prod(prime.q for prime in self.primes[kept:])
        self.plain_bytes = self.degree * plain_bits // 8


def n4096_128() -> Parameters:
    """The default set."""
    primes = [(1125899906826241, 1094367314627419), (1125899906629633, 967006076000656)]
    return Parameters(1, "n4096_128", primes, 1, 16, Digits(2, 32, 36), Digits(2, 15, 20), (25, 20))


def ive_paper() -> Parameters:
    """The paper's."""
    primes = [
        (134250497, 78445154),
        (134348801, 127257558),
        (136314881, 11243404),
        (138412033, 49879565),
    ]
    return Parameters(2, "ive_paper", primes, 4, 32, Digits(8, 14, 0), Digits(5, 22, 0), (42, 36))


SETS = {1: n4096_128, 2: ive_paper}


def pack(numbers: np.ndarray, bits: int) -> bytes:
    """Numbers of `bits` bits, low bits first."""
    matrix = numbers[:, None] >> np.arange(bits, dtype=np.uint64) & np.uint64(1)
    return np.packbits(matrix.astype(np.uint8), bitorder="little").tobytes()


def unpack(data: bytes, bits: int, count: int) -> np.ndarray:
    """The numbers that `pack` packed."""
    assert len(data) == -(-count * bits // 8)
    matrix = np.unpackbits(np.frombuffer(data, np.uint8), count=count * bits, bitorder="little")
    weights = np.uint64(1) << np.arange(bits, dtype=np.uint64)
    return (matrix.reshape(count, bits) * weights).sum(axis=1, dtype=np.uint64)


def uniform(params: Parameters, seed: bytes, number: int) -> Limbs:
    """A uniform polynomial modulo Q, as evaluations."""
    limbs = []
    for limb, prime in enumerate(params.primes):
        nonce = struct.pack("<QI", number, limb)
        stream = ChaCha20.new(key=seed, nonce=nonce).encrypt(bytes(8 * 4 * params.degree))
        words = np.frombuffer(stream, "<u8") & np.uint64((1 << prime.bits) - 1)
        limbs.append(words[words < prime.q][: params.degree])
        assert len(limbs[-1]) == params.degree
    return limbs


def small(params: Parameters, values: np.ndarray) -> Limbs:
    """A polynomial of small signed coefficients, as evaluations."""
    return [prime.forward((values % prime.q).astype(np.uint64)) for prime in params.primes]


class Source:
    """Secret randomness, drawn in the way of the known answers."""

    def __init__(self, seed: bytes | None = None) -> None:
        self._stream = ChaCha20.new(key=seed or os.urandom(32), nonce=b"\xff" * 12)

    def _words(self, count: int) -> list[int]:
        return list(struct.unpack(f"<{count}Q", self._stream.encrypt(bytes(8 * count))))

    def seed(self) -> bytes:
        """A seed that is sent."""
        return self._stream.encrypt(bytes(32))

    def ternary(self, degree: int) -> np.ndarray:
        """A secret's coefficients."""
        return np.array([(3 * word >> 64) - 1 for word in self._words(degree)])

    def gaussian(self, degree: int) -> np.ndarray:
        """An error's coefficients."""
        words = self._words(2 * degree)
        draws = [high << 64 | low for high, low in zip(words[::2], words[1::2], strict=True)]
        sizes = [bisect.bisect_right(thresholds(), draw >> 1) for draw in draws]
        return np.array([-x if draw & 1 else x for x, draw in zip(sizes, draws, strict=True)])


@functools.cache
def thresholds() -> list[int]:
    """2^127 times the chance that an error of deviation 3.2 is at most 0, 1, ... in size."""
    with decimal.localcontext(prec=60):
        variance = 2 * decimal.Decimal("3.2") ** 2
        weights = [(-k * k / variance).exp() for k in map(decimal.Decimal, range(100))]
        scale = 2**127 / (2 * sum(weights) - 1)
        return [int((2 * sum(weights[: k + 1]) - 1) * scale + _HALF) for k in range(42)]


def failure_log2(params: Parameters, levels: int, d0: int, games: int) -> float:
    """log2 of the bound on a response's chance of being wrong."""
    n, dropped, error = params.degree, float(params.dropped), 3.2**2
    s, plain = 2 * n / 3, 2.0**params.plain_bits

    def rest(digits: Digits) -> float:
        return 4.0**digits.dropped / 12 if digits.dropped else 0.0

    def terms(digits: Digits) -> float:
        return digits.count * n * 4.0**digits.base / 12

    def down(v: float) -> float:
        return v if params.dropped == 1 else v / dropped**2 + (1 + s) / 12

    leaf = error if params.dropped == 1 else error + dropped**2 / 12
    switch = terms(params.key_switch) * error
    for _ in range(levels):
        leaf = 2 * leaf + switch + s * rest(params.key_switch)
    times = leaf * s + switch + 8 / 9 * n * n * rest(params.key_switch)
    rowsel = down(leaf) * plain**2 / 4 * d0 * n
    game = terms(params.selector) * (down(times) + down(leaf)) + (1 + s) * rest(params.selector)
    switched = (params.q / 2.0**params.mask_bits) ** 2 / 12 * s
    margin = params.q / plain
    margin *= 0.5 - plain / 2.0**params.body_bits / 2 - plain**2 / (4 * params.q)
    x = margin / math.sqrt(rowsel + games * game + switched)
    chance_log2 = -x * x / 2 * math.log2(math.e) - math.log2(x * math.sqrt(2 * math.pi))
    return chance_log2 + 1 + math.log2(n)


class Geometry:
    """Where rows lie: what follows from a parameter set and a table's shape."""

    def __init__(self, set_id: int, row_bytes: int, rows: int, levels: int | None = None) -> None:
        assert 1 <= row_bytes <= 32_768
        assert 1 <= rows <= 1 << 32
        self.params, self.row_bytes, self.rows = SETS[set_id](), row_bytes, rows
        params = self.params
        self.rows_per_item = max(params.plain_bytes // row_bytes, 1)
        self.chunks = -(-row_bytes // params.plain_bytes)
        self.items = -(-rows // self.rows_per_item)
        fitting = [
            next(([level, games] for games in range(32) if self._fits(level, games)), None)
            for level in ([levels] if levels else range(1, 13))
        ]
        self.levels, self.games = min(filter(None, fitting), key=lambda found: self._cost(*found))
        self.d0 = self._matrix_rows(self.levels, self.games)
        self.columns = -(-self.items // self.d0)
        self.header = bytes([1, set_id, self.levels, 0])
        packed = [params.degree * prime.bits // 8 for prime in params.primes]
        self.key_bytes = 36 + (self.levels + 1) * params.key_switch.count * sum(packed)
        self.query_bytes = 36 + sum(packed[: params.kept])
        self.chunk_bytes = params.degree * (params.mask_bits + params.body_bits) // 8
        self.response_bytes = self.chunks * self.chunk_bytes

    def to_bytes(self) -> bytes:
        """What a server announces."""
        numbers = (1, self.params.id, self.levels, self.games, self.row_bytes, self.rows)
        return struct.pack("<4BIQ", *numbers)

    def _matrix_rows(self, levels: int, games: int) -> int:
        return (1 << levels) - games * self.params.selector.count

    def _fits(self, levels: int, games: int) -> bool:
        """Whether they hold the table and keep noise within its bound."""
        d0 = self._matrix_rows(levels, games)
        if not 1 <= d0 <= 2047 or -(-self.items // d0) > 1 << games:
            return False
        return failure_log2(self.params, levels, d0, games) <= -40

    def _cost(self, levels: int, games: int) -> int:
        columns = -(-self.items // self._matrix_rows(levels, games))
        return 2 * (1 << levels) + columns * self.chunks


class Client:
    """A secret, with its keys, for one version of one table."""

    def __init__(self, geometry: Geometry, version: bytes, source: Source | None = None) -> None:
        self.geometry, self.params = geometry, geometry.params
        self._source = source or Source()
        name = self.params.name.encode()
        mask = blake3(version + name, derive_key_context="hushtable onion plaintext mask v1")
        self.mask_key = mask.digest()
        self._coefficients = self._source.ternary(self.params.degree)
        self._secret = small(self.params, self._coefficients)
        self.keys = self._make_keys()
        self.key_id = blake3(self.keys).digest()

    def _encrypt(self, seed: bytes, number: int, message: Limbs) -> Limbs:
        """The body of an encryption modulo Q."""
        params = self.params
        masks = uniform(params, seed, number)
        errors = small(params, self._source.gaussian(params.degree))
        return [
            (error + m + prime.q - mulmod(mask, s, prime.q)) % prime.q
            for prime, mask, error, m, s in zip(
                params.primes, masks, errors, message, self._secret, strict=True
            )
        ]

    def _make_keys(self) -> bytes:
        params, levels, seed = self.params, self.geometry.levels, self._source.seed()
        degree, digits = params.degree, params.key_switch
        keys = self.geometry.header + seed
        for number in range(levels + 1):
            if number < levels:
                source = small(params, substitute(self._coefficients, (degree >> number) + 1))
            else:
                source = [
                    mulmod(s, s, p.q) for p, s in zip(params.primes, self._secret, strict=True)
                ]
            for digit in range(digits.count):
                weight = digits.weight(digit)
                message = [
                    mulmod(limb, prime.of(weight), prime.q)
                    for prime, limb in zip(params.primes, source, strict=True)
                ]
                body = self._encrypt(seed, number * digits.count + digit, message)
                for prime, limb in zip(params.primes, body, strict=True):
                    keys += pack(limb, prime.bits)
        assert len(keys) == self.geometry.key_bytes
        return keys

    def message(self, matrix_row: int, column: int) -> Limbs:
        """The coefficients of a query's message."""
        params, geometry = self.params, self.geometry
        values = np.zeros(params.degree, dtype=object)
        values[matrix_row] = (params.q + (1 << params.plain_bits - 1)) >> params.plain_bits
        for game in range(geometry.games):
            for digit in range(params.selector.count):
                at = geometry.d0 + game * params.selector.count + digit
                values[at] = (column >> game & 1) * params.selector.weight(digit)
        limbs = []
        for prime in params.primes:
            scale = params.dropped * pow(2, -geometry.levels, prime.q)
            limbs.append((values * scale % prime.q).astype(np.uint64))
        return limbs

    def query(self, row: int) -> bytes:
        """A query for a row."""
        params, geometry = self.params, self.geometry
        column, matrix_row = divmod(row // geometry.rows_per_item, geometry.d0)
        message = self.message(matrix_row, column)
        limbs = [prime.forward(limb) for prime, limb in zip(params.primes, message, strict=True)]
        seed = self._source.seed()
        body, primes = self._encrypt(seed, 0, limbs), list(params.primes)
        while len(primes) > params.kept:
            last = primes.pop()
            rest = last.inverse(body.pop()).astype(np.int64)
            rest = np.where(rest > last.q // 2, rest - last.q, rest)
            body = [
                mulmod(
                    (limb + prime.q - prime.forward((rest % prime.q).astype(np.uint64))) % prime.q,
                    prime.of(pow(last.q, -1, prime.q)),
                    prime.q,
                )
                for prime, limb in zip(primes, body, strict=True)
            ]
        packed = b"".join(pack(limb, p.bits) for p, limb in zip(primes, body, strict=True))
        return geometry.header + seed + packed

    def mask(self, number: int, plaintext: bytes) -> bytes:
        """A plaintext with its mask on, or off."""
        nonce = struct.pack("<QI", number, 0)
        return ChaCha20.new(key=self.mask_key, nonce=nonce).encrypt(plaintext)

    def row(self, row: int, response: bytes) -> bytes:
        """The row that a response holds."""
        geometry, params = self.geometry, self.params
        item, within = divmod(row, geometry.rows_per_item)
        mask_bytes = params.degree * params.mask_bits // 8
        data = b""
        for chunk in range(geometry.chunks):
            part = response[chunk * geometry.chunk_bytes :][: geometry.chunk_bytes]
            masks = unpack(part[:mask_bytes], params.mask_bits, params.degree)
            bodies = unpack(part[mask_bytes:], params.body_bits, params.degree)
            phase = bodies << np.uint64(params.mask_bits - params.body_bits)
            phase += multiply(masks, self._coefficients)
            shift = params.mask_bits - params.plain_bits
            numbers = (phase & np.uint64((1 << params.mask_bits) - 1)) + np.uint64(1 << shift - 1)
            plaintext = (numbers >> np.uint64(shift)).astype(f"<u{params.plain_bits // 8}")
            data += self.mask(item * geometry.chunks + chunk, plaintext.tobytes())
        return data[within * geometry.row_bytes :][: geometry.row_bytes]


def substitute(values: np.ndarray, r: int) -> np.ndarray:
    """Coefficients of a polynomial of X^r."""
    degree = len(values)
    to = np.arange(degree) * r % (2 * degree)
    out = np.zeros_like(values)
    out[to % degree] = np.where(to < degree, values, -values)
    return out


def multiply(x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """x · s modulo X^N + 1 and 2^64, for s of -1, 0 and 1."""
    doubled = np.concatenate([np.uint64(0) - x, x])
    out = np.zeros_like(x)
    for at in np.flatnonzero(s):
        window = doubled[len(x) - at : 2 * len(x) - at]
        out = out + window if s[at] > 0 else out - window
    return out
