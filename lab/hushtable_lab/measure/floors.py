"""What this machine could do at best: the floors that benchmarks report against.

A figure alone says little; beside the floor it says what is left to gain.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from hushtable._machine import cores, instruction_ns, read_gb_per_s

from .. import native

#: Rows that one 512-bit leaf holds shares of, by output group.
ROWS_PER_LEAF = {"bits": 512, "z8": 64, "z32": 16}


@dataclass(frozen=True, slots=True)
class Floor:
    """A bound on time, and what sets it.

    Attributes:
        seconds: the least time.
        bound: ``memory``, ``gfni``, ``vaes`` or ``ifma``.
        gb_per_s: read bandwidth that it was reckoned with, if any.
        instruction_ns: time of one 512-bit instruction that it was reckoned with, if any.
    """

    seconds: float
    bound: str
    gb_per_s: float | None = None
    instruction_ns: float | None = None


@functools.cache
def multiply_ns() -> float | None:
    """Measured ``vpmadd52luq`` of 512 bits, in ns; None where the processor has none."""
    return native.multiply_ns()


def answer_floor(rows: int, row_bytes: int, batch: int, threads: int, keys_per_pass: int) -> Floor:
    """The least time of an answer to ``batch`` keys.

    Each pass reads the table once, at the bandwidth of whatever cache or memory it fits in. A batch
    takes rows x row_bytes / 512 affine instructions a key: one instruction multiplies 8 queries'
    shares of 8 rows with 64 bytes of table (8 rows x 8 bytes).
    """
    passes = -(-batch // keys_per_pass)
    gb_per_s = read_gb_per_s(rows * row_bytes, threads)
    memory = passes * rows * row_bytes / (gb_per_s * 1e9)
    affine_ns = instruction_ns()[0]
    if batch == 1 or affine_ns is None:
        return Floor(memory, "memory", gb_per_s, affine_ns)
    product = rows * row_bytes * batch / 512 * affine_ns * 1e-9 / min(threads, cores())
    if product > memory:
        return Floor(product, "gfni", gb_per_s, affine_ns)
    return Floor(memory, "memory", gb_per_s, affine_ns)


def expand_floor(rows: int, group: str) -> Floor | None:
    """The least time of expanding one AES-128 key on one thread; None below AVX-512.

    Two AES blocks an inner node and four a leaf, ten rounds each, four blocks an instruction.
    """
    aes_round_ns = instruction_ns()[1]
    if aes_round_ns is None:
        return None
    leaves = -(-rows // ROWS_PER_LEAF[group])
    blocks = 2 * (leaves - 1) + 4 * leaves
    return Floor(blocks * 10 / 4 * aes_round_ns * 1e-9, "vaes", None, aes_round_ns)


def row_select_floor(
    prepared_bytes: int, vectors: int, batch: int, threads: int, modulus_bits: int
) -> Floor:
    """The least time of RowSel for ``batch`` queries.

    The prepared table is read once for all. Each of its ``vectors`` (eight coefficients) is
    multiplied with two polynomials of each query: by a low and a high half each, four instructions,
    or for primes of at most 28 bits by one whole product each, two.
    """
    gb_per_s = read_gb_per_s(prepared_bytes, threads)
    memory = prepared_bytes / (gb_per_s * 1e9)
    one_ns = multiply_ns()
    if one_ns is not None:
        each = 2 if modulus_bits <= 28 else 4
        product = each * vectors * batch * one_ns * 1e-9 / min(threads, cores())
        if product > memory:
            return Floor(product, "ifma", gb_per_s, one_ns)
    return Floor(memory, "memory", gb_per_s, one_ns)


def ckks_floor(read_bytes: int, vectors: int, threads: int = 1) -> Floor:
    """The least time of operations on CKKS ciphertexts.

    Its keys and prepared plaintexts are read once, and ``vectors`` times eight 52-bit
    multiplications are done: transforms, changes of basis, sums of products.
    """
    gb_per_s = read_gb_per_s(read_bytes, threads) if read_bytes else None
    memory = 0.0 if gb_per_s is None else read_bytes / (gb_per_s * 1e9)
    one_ns = multiply_ns()
    product = 0.0 if one_ns is None else vectors * one_ns * 1e-9 / min(threads, cores())
    bound = "ifma" if product > memory else "memory"
    return Floor(max(product, memory), bound, gb_per_s, one_ns)


def transform_floor(degree: int) -> Floor | None:
    """The least time of one transform modulo one prime; None without 52-bit multiplications.

    N / 2 · log2 N butterflies, eight at a time, of three multiplications each: the product's two
    halves' worth, and the quotient's (Harvey, "Faster arithmetic for number-theoretic transforms").
    """
    one_ns = multiply_ns()
    if one_ns is None:
        return None
    butterflies = degree // 2 * (degree.bit_length() - 1)
    return Floor(butterflies / 8 * 3 * one_ns * 1e-9, "ifma", None, one_ns)
