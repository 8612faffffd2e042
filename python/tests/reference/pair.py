"""Keys of two servers, by docs/key-format.md."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

from Crypto.Cipher import AES

#: By the id on the wire: a leaf's rows, and bytes of one share (0 for a bit).
GROUPS = {0: (512, 0), 1: (64, 1), 2: (16, 4)}
AES128, CHACHA20 = 1, 2

_PI = AES.new(bytes.fromhex("243f6a8885a308d313198a2e03707344"), AES.MODE_ECB)


def xor(*parts: bytes) -> bytes:
    """The XOR of bytes of one length."""
    total = 0
    for part in parts:
        total ^= int.from_bytes(part, "little")
    return total.to_bytes(len(parts[0]), "little")


def _hash(word: bytes, tweak: int) -> bytes:
    word = xor(word, tweak.to_bytes(16, "little"))
    low, high = word[:8], word[8:]
    sigma = high + xor(high, low)
    return xor(_PI.encrypt(sigma), sigma)


def chacha_block(key: bytes, counter: int, rounds: int = 20) -> bytes:
    """A block of ChaCha under a key of 128 bits, with a nonce of zeros."""
    start = [*struct.unpack("<4I", b"expand 16-byte k"), *struct.unpack("<8I", key + key)]
    start += [counter, 0, 0, 0]
    x = list(start)

    def add_xor_rotate(a: int, b: int, d: int, bits: int) -> None:
        x[a] = (x[a] + x[b]) & 0xFFFFFFFF
        word = x[d] ^ x[a]
        x[d] = (word << bits | word >> (32 - bits)) & 0xFFFFFFFF

    columns = [(i, 4 + i, 8 + i, 12 + i) for i in range(4)]
    diagonals = [(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)]
    for _ in range(rounds // 2):
        for a, b, c, d in columns + diagonals:
            add_xor_rotate(a, b, d, 16)
            add_xor_rotate(c, d, b, 12)
            add_xor_rotate(a, b, d, 8)
            add_xor_rotate(c, d, b, 7)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(x, start, strict=True)))


def expand(prg: int, seed: bytes) -> tuple[bytes, bytes]:
    """L and R of a seed."""
    if prg == AES128:
        return _hash(seed, 0), _hash(seed, 1)
    block = chacha_block(seed, 0)
    return block[:16], block[16:32]


def convert(prg: int, seed: bytes) -> bytes:
    """C of a seed."""
    if prg == AES128:
        return b"".join(_hash(seed, tweak) for tweak in (2, 3, 4, 5))
    return chacha_block(seed, 1)


def with_bit(word: bytes, bit: int) -> bytes:
    """The word with bit 0 as said."""
    return bytes([word[0] & 0xFE | bit]) + word[1:]


def depth_of(rows: int, group: int) -> int:
    """Levels of the tree over so many rows."""
    leaves = -(-rows // GROUPS[group][0])
    return (leaves - 1).bit_length()


class Correction(NamedTuple):
    """What both keys of a pair hold: a left and a right word a level, and the leaf's."""

    levels: list[tuple[bytes, bytes]]
    leaf: bytes


def make(prg: int, group: int, rows: int, row: int, roots: Sequence[bytes]) -> Correction:
    """The correction words of the pair for `row`, from root seeds whose bit 0 is clear."""
    leaf, place = divmod(row, GROUPS[group][0])
    depth = depth_of(rows, group)
    nodes = [with_bit(roots[0], 0), with_bit(roots[1], 1)]
    levels = []
    for level in range(depth):
        right = leaf >> (depth - 1 - level) & 1
        (l0, r0), (l1, r1) = (expand(prg, with_bit(node, 0)) for node in nodes)
        seed = xor(l0, l1) if right else xor(r0, r1)
        words = (
            with_bit(seed, (l0[0] ^ l1[0] ^ right ^ 1) & 1),
            with_bit(seed, (r0[0] ^ r1[0] ^ right) & 1),
        )
        levels.append(words)
        kept = (r0, r1) if right else (l0, l1)
        nodes = [
            xor(child, words[right]) if node[0] & 1 else child
            for node, child in zip(nodes, kept, strict=True)
        ]
    blocks = [convert(prg, with_bit(node, 0)) for node in nodes]
    share_bytes = GROUPS[group][1]
    if share_bytes == 0:
        return Correction(levels, xor(*blocks, (1 << place).to_bytes(64, "little")))
    sign, modulus = (-1 if nodes[1][0] & 1 else 1), 1 << 8 * share_bytes
    out = b""
    for index in range(64 // share_bytes):
        at = slice(index * share_bytes, (index + 1) * share_bytes)
        a, b = (int.from_bytes(block[at], "little") for block in blocks)
        value = sign * (int(index == place) - a + b) % modulus
        out += value.to_bytes(share_bytes, "little")
    return Correction(levels, out)


def right_bits(levels: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The right correction words' control bits, packed."""
    bits = sum((right[0] & 1) << level for level, (_, right) in enumerate(levels))
    return bits.to_bytes(-(-len(levels) // 8), "little")


def make_pair(
    prg: int, group: int, rows: int, row: int, roots: Sequence[bytes] | None = None
) -> tuple[bytes, bytes]:
    """The left and the right key for `row`, as they are sent."""
    roots = [with_bit(root, 0) for root in roots or (os.urandom(16), os.urandom(16))]
    words = make(prg, group, rows, row, roots)
    common = b"".join(left for left, _ in words.levels) + right_bits(words.levels) + words.leaf
    left, right = (
        bytes([1, side, group, prg]) + struct.pack("<I", rows - 1) + roots[side] + common
        for side in (0, 1)
    )
    return left, right


def share(key: bytes, row: int) -> int:
    """What a server makes of a key at one row: tests hold it against the known answers."""
    _, side, group, prg, last = struct.unpack("<4BI", key[:8])
    depth = depth_of(last + 1, group)
    words, bits, leaf_word = key[24 : 24 + 16 * depth], key[24 + 16 * depth : -64], key[-64:]
    leaf, place = divmod(row, GROUPS[group][0])
    node = with_bit(key[8:24], side)
    for level in range(depth):
        right = leaf >> (depth - 1 - level) & 1
        child = expand(prg, with_bit(node, 0))[right]
        if node[0] & 1:
            word = words[16 * level : 16 * level + 16]
            if right:
                word = with_bit(word, bits[level // 8] >> level % 8 & 1)
            child = xor(child, word)
        node = child
    block, is_corrected = convert(prg, with_bit(node, 0)), node[0] & 1
    share_bytes = GROUPS[group][1]
    if share_bytes == 0:
        block = xor(block, leaf_word) if is_corrected else block
        return block[place // 8] >> place % 8 & 1
    at = slice(place * share_bytes, (place + 1) * share_bytes)
    value = int.from_bytes(block[at], "little")
    value += is_corrected * int.from_bytes(leaf_word[at], "little")
    return (-value if side else value) % (1 << 8 * share_bytes)


def add(group: int, left: bytes, right: bytes) -> bytes:
    """A row from the two answers to its keys."""
    if group == 0:
        return xor(left, right)
    step = GROUPS[group][1]
    row = b""
    for at in range(0, len(left), step):
        a, b = (int.from_bytes(answer[at : at + step], "little") for answer in (left, right))
        row += ((a + b) % (1 << 8 * step)).to_bytes(step, "little")
    return row[: len(left)]
