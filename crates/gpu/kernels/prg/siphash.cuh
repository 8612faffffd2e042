// SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012) keyed with the seed,
// on the one-byte messages 0 to 3 (children) and 4 to 11 (leaf), 64 bits a message.
//
// Floor: a round is 4 additions, 4 XORs and 4 rotations of 64 bits, two instructions of 32 bits
// each, and two rotations by 32, which are none: 24. Six rounds and 6 for the rest: 150 a message,
// 600 for the children and 1,200 for a leaf, at 64 a cycle.
#pragma once

#define PRG_SHARED_BYTES 0
DEVICE void prg_prepare(u8 *) {}

DEVICE u64 rotate_left_64(u64 x, int n) { return x << n | x >> (64 - n); }

DEVICE void sip_round(u64 (&v)[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate_left_64(v[1], 13) ^ v[0];
    v[3] = rotate_left_64(v[3], 16) ^ v[2];
    v[0] = rotate_left_64(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate_left_64(v[1], 17) ^ v[2];
    v[3] = rotate_left_64(v[3], 21) ^ v[0];
    v[2] = rotate_left_64(v[2], 32);
}

DEVICE u64 tag(u64 low, u64 high, u32 message) {
    // A message of under eight bytes is one word: its bytes, then its length in the top byte.
    u64 word = 1ull << 56 | message;
    // "somepseudorandomlygeneratedbytes"
    u64 v[4] = {low ^ 0x736f6d6570736575, high ^ 0x646f72616e646f6d, low ^ 0x6c7967656e657261,
                high ^ 0x7465646279746573 ^ word};
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    UNROLL for (int i = 0; i < 4; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

template <int WORDS> DEVICE void tags(const u32 (&seed)[4], u32 first, u32 (&out)[WORDS]) {
    u64 low = (u64)seed[1] << 32 | seed[0], high = (u64)seed[3] << 32 | seed[2];
    UNROLL for (int i = 0; i < WORDS / 2; i++) {
        u64 word = tag(low, high, first + i);
        out[2 * i] = (u32)word;
        out[2 * i + 1] = (u32)(word >> 32);
    }
}

template <int N> DEVICE void prg_children(const u32 (&seed)[N][4], u32 (&out)[N][8]) {
    UNROLL for (int n = 0; n < N; n++) tags(seed[n], 0, out[n]);
}

DEVICE void prg_leaf(const u32 (&seed)[1][4], u32 (&out)[16]) { tags(seed[0], 4, out); }

DEVICE void prg_leaf_pair(const u32 (&seed)[2][4], u32 (&a)[16], u32 (&b)[16]) {
    tags(seed[0], 4, a);
    tags(seed[1], 4, b);
}
