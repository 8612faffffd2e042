"""Comparison keys, by the documentation of ``hushtable_mpc::compare`` alone."""

from __future__ import annotations

from .pair import convert, expand, with_bit, xor

_LEAF_BITS = 7


def share(
    prg: int, is_right: bool, bits: int, count: int, key: int, root: int, words: bytes, at: int
) -> int:
    """One server's share of [at < r] by key number ``key`` of ``count``."""
    levels = max(bits - _LEAF_BITS, 0)
    level_bytes = 16 * count + -(-count // 8)
    node = with_bit(root.to_bytes(16, "little"), int(is_right))
    result = 0
    for level in range(levels):
        part = words[level * level_bytes : (level + 1) * level_bytes]
        left_word = part[16 * key : 16 * key + 16]
        right_bit = part[16 * count + key // 8] >> (key % 8) & 1
        children = list(expand(prg, with_bit(node, 0)))
        if node[0] & 1:
            children[0] = xor(children[0], left_word)
            children[1] = xor(children[1], with_bit(left_word, right_bit))
        turn = at >> (bits - 1 - level) & 1
        if turn == 0:
            result ^= children[1][0] & 1
        node = children[turn]
    leaf_bits = 1 << min(bits, _LEAF_BITS)
    leaf_bytes = -(-leaf_bits // 8)
    start = levels * level_bytes + key * leaf_bytes
    leaf = int.from_bytes(convert(prg, with_bit(node, 0))[:16], "little")
    if node[0] & 1:
        leaf ^= int.from_bytes(words[start : start + leaf_bytes], "little")
    behind = (1 << leaf_bits) - (2 << at % leaf_bits)
    return result ^ (leaf & behind).bit_count() & 1
