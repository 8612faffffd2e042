// Shares times table on CUDA cores, for every group: what multiply.cu, cooperative.cu and fused.cu
// have in common.
//
// Macros: GROUP_ID (0 bits, 1 Z_2^8, 2 Z_2^32), TILES.
#pragma once
#include "layout.cuh"

#if GROUP_ID == 2
#define OCTET_WORDS 8
#else
#define OCTET_WORDS 2
#endif

// A key's shares of eight rows in a row, for the eight bytes of a column that a lane reads at once:
// bits as two words of byte masks, bytes as two words, words as eight.
struct Octet {
    u32 w[OCTET_WORDS];
};

// The four low bits of x, each over a byte of its own.
DEVICE u32 spread_bits(u32 x) { return ((x & 15) * 0x00204081 & 0x01010101) * 255; }

DEVICE void spread_octet(Octet &octet, u32 byte) {
    octet.w[0] = spread_bits(byte);
    octet.w[1] = spread_bits(byte >> 4);
}

// Octet j of table leaf `leaf`, from a key's shares in natural order.
DEVICE void load_octet(Octet &octet, const u32 *shares, u64 leaf, u32 j) {
#if GROUP_ID == 0
    spread_octet(octet, shares[2 * leaf + j / 4] >> 8 * (j % 4));
#elif GROUP_ID == 1
    Vec2 words = load_2(shares + 16 * leaf + 2 * j);
    octet.w[0] = words.x, octet.w[1] = words.y;
#else
    load_words(octet.w, shares + 64 * leaf + 8 * j);
#endif
}

// Adds the products of eight rows' shares with their bytes of one column.
DEVICE void add_products(u32 &sum, const Octet &octet, u32 low, u32 high) {
#if GROUP_ID == 0
    sum ^= low & octet.w[0];
    sum ^= high & octet.w[1];
#elif GROUP_ID == 1
    sum = dot_bytes(low, octet.w[0], sum);
    sum = dot_bytes(high, octet.w[1], sum);
#else
    UNROLL for (int b = 0; b < 4; b++) {
        sum += (low >> 8 * b & 255) * octet.w[b];
        sum += (high >> 8 * b & 255) * octet.w[4 + b];
    }
#endif
}

// One lane's sum into a column's.
DEVICE void add_sum(u32 *to, u32 sum) {
#if GROUP_ID == 0
    sum ^= sum >> 16;
    atomic_xor(to, (sum ^ sum >> 8) & 255);
#else
    atomic_add(to, sum);
#endif
}

// What the product of a batch reads and writes.
struct Product {
    const u8 *table;
    const u32 *shares; // [key][share_words]
    u32 *sums;         // [key][strips x TILES x 8]
    u64 share_words;
    u32 key_count;
    u32 leaves; // table leaves that shares are there for
    u32 steps;  // of the superblocks present
};

// The table leaves of a lane in a step: t and t + 1 of its superblock.
DEVICE void find_leaves(u32 (&leaf)[2], const Product &product, const Shape &shape, u32 step) {
    u32 block = step >> shape.height, s = step - (block << shape.height);
    u32 t = thread_index() % 2 * 2;
    UNROLL for (int half = 0; half < 2; half++) {
        u64 at = ((((u64)shape.first_block + block) * 4 + t + half) << shape.height) + s;
        // Beyond the shares the table is zero.
        leaf[half] = at < product.leaves ? (u32)at : product.leaves - 1;
    }
}

template <int P, int L>
DEVICE void load_lines(Vec4 (&words)[L][P], const Product &product, const Shape &shape, u32 strip,
                       u32 first_pair, u32 step, u32 first) {
    u32 lane = thread_index() % 32;
    const u8 *at =
        step_at(product.table, shape, strip, step) + first * LINE_BYTES + first_pair * 512;
    at += lane * 16;
    UNROLL for (int line = 0; line < L; line++)
        UNROLL for (int pair = 0; pair < P; pair++) {
            words[line][pair] = Vec4{0, 0, 0, 0};
            if ((first_pair + pair) * 2 + lane / 16 < TILES)
                words[line][pair] = load_4(at + line * LINE_BYTES + pair * 512);
        }
}

// Adds, for Q keys from `first_key` on, the products with P pairs of tiles from `first_pair`
// on of steps `step`, `step + stride`, ... to the sums. A lane reads 16 bytes at a time: one
// column, leaves t and t + 1, eight rows of each; a warp 512 bytes. L loads a pair are in flight.
template <int Q, int P, int L>
DEVICE void multiply_steps(const Product &product, const Shape &shape, u32 first_key, u32 strip,
                           u32 first_pair, u32 step, u32 stride) {
    u32 lane = thread_index() % 32;
    u32 sums[Q][P];
    const u32 *shares[Q];
    UNROLL for (int q = 0; q < Q; q++) {
        u32 key = first_key + q < product.key_count ? first_key + q : product.key_count - 1;
        shares[q] = product.shares + key * product.share_words;
        UNROLL for (int pair = 0; pair < P; pair++) sums[q][pair] = 0;
    }
    if (step >= product.steps) return;
    // A turn is L lines of a step; the next one's words are on their way while one is multiplied.
    u32 turn = 0, leaf[2];
    Vec4 next[L][P];
    load_lines<P, L>(next, product, shape, strip, first_pair, step, 0);
    find_leaves(leaf, product, shape, step);
    while (step < product.steps) {
        Vec4 words[L][P];
        UNROLL for (int line = 0; line < L; line++)
            UNROLL for (int pair = 0; pair < P; pair++) words[line][pair] = next[line][pair];
        u32 first = turn * L, leaves[2] = {leaf[0], leaf[1]};
        if (++turn == 8 / L) {
            turn = 0;
            step += stride;
            if (step < product.steps) find_leaves(leaf, product, shape, step);
        }
        if (step < product.steps)
            load_lines<P, L>(next, product, shape, strip, first_pair, step, turn * L);
        UNROLL for (int q = 0; q < Q; q++)
            UNROLL for (int line = 0; line < L; line++) {
                Octet octet;
                load_octet(octet, shares[q], leaves[0], first + line);
                UNROLL for (int pair = 0; pair < P; pair++)
                    add_products(sums[q][pair], octet, words[line][pair].x, words[line][pair].y);
                load_octet(octet, shares[q], leaves[1], first + line);
                UNROLL for (int pair = 0; pair < P; pair++)
                    add_products(sums[q][pair], octet, words[line][pair].z, words[line][pair].w);
            }
    }
    u64 columns = (u64)shape.strips * TILES * 8;
    UNROLL for (int q = 0; q < Q; q++)
        UNROLL for (int pair = 0; pair < P; pair++) {
            u32 sum = sums[q][pair], other = warp_shuffle_xor(sum, 1);
#if GROUP_ID == 0
            sum ^= other;
#else
            sum += other;
#endif
            u32 tile = (first_pair + pair) * 2 + lane / 16;
            if (lane % 2 == 0 && tile < TILES && first_key + q < product.key_count)
                add_sum(product.sums + (first_key + q) * columns + (strip * TILES + tile) * 8 +
                            lane / 2 % 8,
                        sum);
        }
}
