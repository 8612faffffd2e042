// ChaCha with 128-bit keys (Bernstein, "ChaCha, a variant of Salsa20", 2008): the seed is the key,
// nonce zero. Children are the first half of block 0, the leaf is block 1.
//
// Floor. A round is 4 quarter rounds of 4 additions, 4 XORs and 4 rotations: 48 operations on 32
// bits, of which none can be left out. 20 rounds are 960, the last additions 8 (children: the
// other half is not needed) or 16 (leaf): 968 and 976. A multiprocessor of capability 8.0 to 9.0
// does 64 of each kind a cycle (CUDA C++ programming guide, "Arithmetic instructions"). XORs and
// rotations go through one pipe; additions too, but the compiler makes them multiply-adds, x * 1 + y,
// for which there is another one of 64 lanes. What is left for the first is 640: 10 cycles a block
// and multiprocessor (5 the other, 7.6 to issue at 128 lanes a cycle).
// ROTATE_BY_MULTIPLY = 1 moves one rotation of four as well, as the sum of both halves of the 64-bit
// product with 2^16: 560 for the first pipe; for the second 320, 80 multiply-adds, and 80 upper
// halves, of which each counts twice if they have half the rate: 8.75 cycles. To be measured.
//
// Nothing is indexed at run time, so that all of the state stays in registers. PRG_UNROLL double
// rounds (of 10 or 6) are one turn of the loop: whole unrolled, the two functions of a tree are
// 30 KB of instructions, more than the cache next to the schedulers holds.
#pragma once

#ifndef PRG_UNROLL
#define PRG_UNROLL 2
#endif
#ifndef ROTATE_BY_MULTIPLY
#define ROTATE_BY_MULTIPLY 0
#endif

#define PRG_SHARED_BYTES 0
DEVICE void prg_prepare(u8 *) {}

#if PRG == 2
constexpr int ROUNDS = 20;
#else
constexpr int ROUNDS = 12;
#endif

// "expand 16-byte k"
constexpr u32 TAU_0 = 0x61707865, TAU_1 = 0x3120646e, TAU_2 = 0x79622d36, TAU_3 = 0x6b206574;

// x rotated by 16; `factor` is 2^16, which the compiler does not know.
DEVICE u32 rotate_16(u32 x, u32 factor) {
#if ROTATE_BY_MULTIPLY
    return x * factor + multiply_high(x, factor);
#else
    (void)factor;
    return rotate_left(x, 16);
#endif
}

// Quarter rounds of N blocks at once: what one waits for, the other fills.
template <int N>
DEVICE void quarter_round(u32 (&x)[N][16], int a, int b, int c, int d, u32 factor) {
    UNROLL for (int n = 0; n < N; n++) x[n][a] += x[n][b];
    UNROLL for (int n = 0; n < N; n++) x[n][d] = rotate_16(x[n][d] ^ x[n][a], factor);
    UNROLL for (int n = 0; n < N; n++) x[n][c] += x[n][d];
    UNROLL for (int n = 0; n < N; n++) x[n][b] = rotate_left(x[n][b] ^ x[n][c], 12);
    UNROLL for (int n = 0; n < N; n++) x[n][a] += x[n][b];
    UNROLL for (int n = 0; n < N; n++) x[n][d] = rotate_left(x[n][d] ^ x[n][a], 8);
    UNROLL for (int n = 0; n < N; n++) x[n][c] += x[n][d];
    UNROLL for (int n = 0; n < N; n++) x[n][b] = rotate_left(x[n][b] ^ x[n][c], 7);
}

// The block before the last additions.
template <int N> DEVICE void chacha(const u32 (&seed)[N][4], u32 counter, u32 (&x)[N][16]) {
    UNROLL for (int n = 0; n < N; n++) {
        x[n][0] = TAU_0, x[n][1] = TAU_1, x[n][2] = TAU_2, x[n][3] = TAU_3;
        UNROLL for (int k = 0; k < 4; k++) {
            x[n][4 + k] = seed[n][k];
            x[n][8 + k] = seed[n][k];
            x[n][12 + k] = 0;
        }
        x[n][12] = counter;
    }
    u32 factor = ROTATE_BY_MULTIPLY ? opaque(1 << 16) : 0;
    NO_UNROLL for (int turn = 0; turn < ROUNDS / 2 / PRG_UNROLL; turn++) {
        UNROLL for (int i = 0; i < PRG_UNROLL; i++) {
            quarter_round(x, 0, 4, 8, 12, factor);
            quarter_round(x, 1, 5, 9, 13, factor);
            quarter_round(x, 2, 6, 10, 14, factor);
            quarter_round(x, 3, 7, 11, 15, factor);
            quarter_round(x, 0, 5, 10, 15, factor);
            quarter_round(x, 1, 6, 11, 12, factor);
            quarter_round(x, 2, 7, 8, 13, factor);
            quarter_round(x, 3, 4, 9, 14, factor);
        }
    }
    static_assert(ROUNDS / 2 % PRG_UNROLL == 0, "PRG_UNROLL divides the double rounds");
}

// The lower half of the last additions: constants and the first copy of the key.
template <int N, int WORDS>
DEVICE void add_lower(const u32 (&seed)[N][4], const u32 (&x)[N][16], int n, u32 (&out)[WORDS]) {
    out[0] = x[n][0] + TAU_0, out[1] = x[n][1] + TAU_1;
    out[2] = x[n][2] + TAU_2, out[3] = x[n][3] + TAU_3;
    UNROLL for (int k = 0; k < 4; k++) out[4 + k] = x[n][4 + k] + seed[n][k];
}

template <int N>
DEVICE void add_all(const u32 (&seed)[N][4], const u32 (&x)[N][16], int n, u32 (&out)[16]) {
    add_lower(seed, x, n, out);
    UNROLL for (int k = 0; k < 4; k++) out[8 + k] = x[n][8 + k] + seed[n][k];
    UNROLL for (int k = 0; k < 4; k++) out[12 + k] = x[n][12 + k] + (k == 0);
}

template <int N> DEVICE void prg_children(const u32 (&seed)[N][4], u32 (&out)[N][8]) {
    u32 x[N][16];
    chacha(seed, 0, x);
    UNROLL for (int n = 0; n < N; n++) add_lower(seed, x, n, out[n]);
}

DEVICE void prg_leaf(const u32 (&seed)[1][4], u32 (&out)[16]) {
    u32 x[1][16];
    chacha(seed, 1, x);
    add_all(seed, x, 0, out);
}

DEVICE void prg_leaf_pair(const u32 (&seed)[2][4], u32 (&a)[16], u32 (&b)[16]) {
    u32 x[2][16];
    chacha(seed, 1, x);
    add_all(seed, x, 0, a);
    add_all(seed, x, 1, b);
}
