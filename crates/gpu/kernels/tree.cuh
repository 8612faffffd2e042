// The steps of a tree on the device: from a node to its children, from a node to its leaf.
//
// The macro PRG names the generator (PrgKind's id, 1 to 8). Some need shared memory: a kernel that
// uses a tree leaves the first PRG_SHARED_BYTES of its shared memory to the generator, and begins
// with prg_prepare(shared) and block_sync(), both reached by every thread.
//
// A node's bit 0 is its control bit, the rest the seed. Control bits become masks: no branch and no
// address depends on them (but aes.cuh).
#pragma once

#include "platform.cuh"

#if PRG == 1
#include "prg/aes.cuh"
#elif PRG == 2 || PRG == 3
#include "prg/chacha.cuh"
#elif PRG == 4 || PRG == 5
#include "prg/salsa.cuh"
#elif PRG == 6
#include "prg/sha256.cuh"
#elif PRG == 7
#include "prg/siphash.cuh"
#elif PRG == 8
#include "prg/highway.cuh"
#else
#error "PRG is the id of a generator, 1 to 8"
#endif

// A key on the device is words: the root node, then the corrections of the left and the right child
// of every level, then the leaf's correction.
constexpr u32 NODE_WORDS = 4, LEVEL_WORDS = 8, LEAF_WORDS = 16;

struct alignas(16) Node {
    u32 w[4];
};

// Four of a key's words. Not counted as a read of device memory: a key is some hundred words, which
// the first-level cache keeps.
DEVICE Node load_of_key(const u32 *words) {
    Vec4 v = *(const Vec4 *)words;
    return Node{{v.x, v.y, v.z, v.w}};
}

DEVICE Node load_node(const u32 *words) {
    Vec4 v = load_4(words);
    return Node{{v.x, v.y, v.z, v.w}};
}

DEVICE void store_node(u32 *words, const Node &node) {
    store_4(words, node.w[0], node.w[1], node.w[2], node.w[3]);
}

// All ones if the control bit is set.
DEVICE u32 control_mask(const Node &node) { return 0 - (node.w[0] & 1); }

DEVICE void seed_of(const Node &node, u32 (&seed)[4]) {
    seed[0] = node.w[0] & ~1u;
    UNROLL for (int k = 1; k < 4; k++) seed[k] = node.w[k];
}

DEVICE void correct_children(const Node &node, const u32 *correction, const u32 (&words)[8],
                             Node &left, Node &right) {
    u32 mask = control_mask(node);
    Node to_left = load_of_key(correction),
         to_right = load_of_key(correction + NODE_WORDS);
    UNROLL for (int k = 0; k < 4; k++) {
        left.w[k] = words[k] ^ (to_left.w[k] & mask);
        right.w[k] = words[4 + k] ^ (to_right.w[k] & mask);
    }
}

// A node's children; `correction` is the level's 8 words, aligned to 16 bytes.
DEVICE void expand_node(const Node &node, const u32 *correction, Node &left, Node &right) {
    count_calls(1);
    u32 seed[1][4], words[1][8];
    seed_of(node, seed[0]);
    prg_children<1>(seed, words);
    correct_children(node, correction, words[0], left, right);
}

// The same for two nodes at once, each with its correction, so that one fills what the other waits.
DEVICE void expand_node_pair(const Node (&node)[2], const u32 *const (&correction)[2],
                             Node (&left)[2], Node (&right)[2]) {
    count_calls(2);
    u32 seed[2][4], words[2][8];
    seed_of(node[0], seed[0]);
    seed_of(node[1], seed[1]);
    prg_children<2>(seed, words);
    UNROLL for (int n = 0; n < 2; n++) {
        correct_children(node[n], correction[n], words[n], left[n], right[n]);
    }
}

// A node's leaf, not yet corrected.
DEVICE void convert_leaf(const Node &node, u32 (&leaf)[16]) {
    count_calls(1);
    u32 seed[1][4];
    seed_of(node, seed[0]);
    prg_leaf(seed, leaf);
}

// The leaves of two nodes.
DEVICE void convert_leaf_pair(const Node (&node)[2], u32 (&a)[16], u32 (&b)[16]) {
    count_calls(2);
    u32 seed[2][4];
    seed_of(node[0], seed[0]);
    seed_of(node[1], seed[1]);
    prg_leaf_pair(seed, a, b);
}

// Bytes modulo 2^8: the low seven bits of each are added, the highest by XOR, where carries end.
DEVICE u32 add_bytes(u32 a, u32 b) {
    return ((a & 0x7f7f7f7f) + (b & 0x7f7f7f7f)) ^ ((a ^ b) & 0x80808080);
}

// Applies the leaf's correction (16 words, aligned to 16 bytes) where the control bit is set.
// GROUP 0: bits, by XOR; 1: bytes, by addition; 2: words, by addition. The right side's shares in the
// additive groups count negatively: whoever adds them up negates the sum.
template <int GROUP>
DEVICE void correct_leaf(const Node &node, const u32 *correction, u32 (&leaf)[16]) {
    u32 mask = control_mask(node);
    UNROLL for (int k = 0; k < 16; k += 4) {
        Node part = load_of_key(correction + k);
        UNROLL for (int i = 0; i < 4; i++) {
            u32 word = part.w[i] & mask;
            if (GROUP == 0) leaf[k + i] ^= word;
            if (GROUP == 1) leaf[k + i] = add_bytes(leaf[k + i], word);
            if (GROUP == 2) leaf[k + i] += word;
        }
    }
}

// A key's words, and the levels of its tree.
struct Key {
    const u32 *words;
    u32 depth;
};

DEVICE const u32 *correction_of(const Key &key, u32 level) {
    return key.words + NODE_WORDS + LEVEL_WORDS * level;
}

// Node `index` of level `to`, from the root.
DEVICE Node walk(const Key &key, u32 to, u32 index) {
    Node node = load_of_key(key.words);
    NO_UNROLL for (u32 level = 0; level < to; level++) {
        Node left, right;
        expand_node(node, correction_of(key, level), left, right);
        // The way is a leaf's number, the same for every key: no secret.
        u32 goes_right = 0 - (index >> (to - 1 - level) & 1);
        UNROLL for (int k = 0; k < 4; k++) {
            node.w[k] = (left.w[k] & ~goes_right) | (right.w[k] & goes_right);
        }
    }
    return node;
}
