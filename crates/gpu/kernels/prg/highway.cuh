// HighwayHash-256 (Alakuijala, Cox and Wassenberg, "Fast keyed hash/pseudo-random function using
// SIMD multiply and permute", 2016): the key is the seed twice, a message is 32 bytes, a counter and
// zeros; message 0 makes the children, 1 and 2 the halves of a leaf.
//
// Floor: an update is, on each of four lanes of 64 bits, six additions (12 instructions of 32
// bits), two XORs (4) and two products of 32 by 32 bits, and four times six permutations of bytes
// among all: 96; eleven updates are 1,056 a message, 88 of them products, which run on another pipe.
#pragma once

#define PRG_SHARED_BYTES 0
DEVICE void prg_prepare(u8 *) {}

struct Highway {
    u64 v0[4], v1[4], product0[4], product1[4];
};

DEVICE u64 join(u32 low, u32 high) { return (u64)high << 32 | low; }
DEVICE u32 low_word(u64 x) { return (u32)x; }
DEVICE u32 high_word(u64 x) { return (u32)(x >> 32); }
DEVICE u64 swap_words(u64 x) { return join(high_word(x), low_word(x)); }

// to0 += bytes 3, 12, 2, 5, 14, 1, 15, 0 and to1 += bytes 11, 4, 10, 13, 9, 6, 8, 7 of the 16 that
// are a (the lower) and b.
DEVICE void zipper_merge_and_add(u64 b, u64 a, u64 &to1, u64 &to0) {
    u32 al = low_word(a), ah = high_word(a), bl = low_word(b), bh = high_word(b);
    to0 += join(permute_bytes(al, permute_bytes(ah, bh, 0x1040), 0x7253),
                permute_bytes(al, bh, 0x0716));
    to1 += join(permute_bytes(bl, permute_bytes(ah, bh, 0x5000), 0x7253),
                permute_bytes(bl, ah, 0x7061));
}

DEVICE void update(Highway &h, const u64 (&lanes)[4]) {
    UNROLL for (int i = 0; i < 4; i++) {
        h.v1[i] += h.product0[i] + lanes[i];
        h.product0[i] ^= (u64)low_word(h.v1[i]) * high_word(h.v0[i]);
        h.v0[i] += h.product1[i];
        h.product1[i] ^= (u64)low_word(h.v0[i]) * high_word(h.v1[i]);
    }
    zipper_merge_and_add(h.v1[1], h.v1[0], h.v0[1], h.v0[0]);
    zipper_merge_and_add(h.v1[3], h.v1[2], h.v0[3], h.v0[2]);
    zipper_merge_and_add(h.v0[1], h.v0[0], h.v1[1], h.v1[0]);
    zipper_merge_and_add(h.v0[3], h.v0[2], h.v1[3], h.v1[2]);
}

// The four words reduced modulo x^128 + x^2 + x.
DEVICE void reduce(u64 a3, u64 a2, u64 a1, u64 a0, u32 *out) {
    a3 &= 0x3fffffffffffffff;
    u64 high = a1 ^ (a3 << 1 | a2 >> 63) ^ (a3 << 2 | a2 >> 62);
    u64 low = a0 ^ a2 << 1 ^ a2 << 2;
    out[0] = low_word(low), out[1] = high_word(low);
    out[2] = low_word(high), out[3] = high_word(high);
}

// 8 words under a message.
DEVICE void tag(const u32 (&seed)[4], u32 message, u32 *out) {
    const u64 initial0[4] = {0xdbe6d5d5fe4cce2f, 0xa4093822299f31d0, 0x13198a2e03707344,
                             0x243f6a8885a308d3};
    const u64 initial1[4] = {0x3bd39e10cb0ef593, 0xc0acf169b5f18a8c, 0xbe5466cf34e90c6c,
                             0x452821e638d01377};
    const u64 key[2] = {join(seed[0], seed[1]), join(seed[2], seed[3])};
    Highway h;
    UNROLL for (int i = 0; i < 4; i++) {
        h.product0[i] = initial0[i];
        h.product1[i] = initial1[i];
        h.v0[i] = initial0[i] ^ key[i % 2];
        h.v1[i] = initial1[i] ^ swap_words(key[i % 2]);
    }
    const u64 packet[4] = {message, 0, 0, 0};
    update(h, packet);
    NO_UNROLL for (int turn = 0; turn < 5; turn++) {
        UNROLL for (int i = 0; i < 2; i++) {
            const u64 permuted[4] = {swap_words(h.v0[2]), swap_words(h.v0[3]),
                                     swap_words(h.v0[0]), swap_words(h.v0[1])};
            update(h, permuted);
        }
    }
    UNROLL for (int half = 0; half < 2; half++) {
        const int i = 2 * half;
        reduce(h.v1[i + 1] + h.product1[i + 1], h.v1[i] + h.product1[i],
               h.v0[i + 1] + h.product0[i + 1], h.v0[i] + h.product0[i], out + 4 * half);
    }
}

template <int N> DEVICE void prg_children(const u32 (&seed)[N][4], u32 (&out)[N][8]) {
    UNROLL for (int n = 0; n < N; n++) tag(seed[n], 0, out[n]);
}

DEVICE void prg_leaf(const u32 (&seed)[1][4], u32 (&out)[16]) {
    tag(seed[0], 1, out);
    tag(seed[0], 2, out + 8);
}

DEVICE void prg_leaf_pair(const u32 (&seed)[2][4], u32 (&a)[16], u32 (&b)[16]) {
    tag(seed[0], 1, a);
    tag(seed[0], 2, a + 8);
    tag(seed[1], 1, b);
    tag(seed[1], 2, b + 8);
}
