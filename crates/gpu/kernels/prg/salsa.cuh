// Salsa20 with 128-bit keys (Bernstein, "Salsa20 specification", sections 8 and 9): the seed is the
// key, nonce zero. Children are the first half of block 0, the leaf is block 1.
//
// Floor: 16 steps a round, each an addition, a rotation and an XOR, as ChaCha has (chacha.cuh): 960
// operations for 20 rounds and 576 for 12, of which the additions go to the other pipe: 10 cycles
// (6 for 12 rounds) a block and multiprocessor. No rotation here is by whole bytes.
#pragma once

#ifndef PRG_UNROLL
#define PRG_UNROLL 2
#endif

#define PRG_SHARED_BYTES 0
DEVICE void prg_prepare(u8 *) {}

#if PRG == 4
constexpr int ROUNDS = 20;
#else
constexpr int ROUNDS = 12;
#endif

// "expand 16-byte k"
constexpr u32 TAU_0 = 0x61707865, TAU_1 = 0x3120646e, TAU_2 = 0x79622d36, TAU_3 = 0x6b206574;

template <int N> DEVICE void quarter_round(u32 (&x)[N][16], int a, int b, int c, int d) {
    UNROLL for (int n = 0; n < N; n++) x[n][b] ^= rotate_left(x[n][a] + x[n][d], 7);
    UNROLL for (int n = 0; n < N; n++) x[n][c] ^= rotate_left(x[n][b] + x[n][a], 9);
    UNROLL for (int n = 0; n < N; n++) x[n][d] ^= rotate_left(x[n][c] + x[n][b], 13);
    UNROLL for (int n = 0; n < N; n++) x[n][a] ^= rotate_left(x[n][d] + x[n][c], 18);
}

// The state that the rounds begin with: constants on the diagonal; the key before and after the
// nonce and counter of 64 bits each.
DEVICE void salsa_state(const u32 (&seed)[4], u32 counter, u32 (&x)[16]) {
    x[0] = TAU_0, x[5] = TAU_1, x[10] = TAU_2, x[15] = TAU_3;
    UNROLL for (int k = 0; k < 4; k++) {
        x[1 + k] = seed[k];
        x[11 + k] = seed[k];
    }
    x[6] = x[7] = x[9] = 0;
    x[8] = counter;
}

// The block before the last additions.
template <int N> DEVICE void salsa(const u32 (&seed)[N][4], u32 counter, u32 (&x)[N][16]) {
    UNROLL for (int n = 0; n < N; n++) salsa_state(seed[n], counter, x[n]);
    NO_UNROLL for (int turn = 0; turn < ROUNDS / 2 / PRG_UNROLL; turn++) {
        UNROLL for (int i = 0; i < PRG_UNROLL; i++) {
            quarter_round(x, 0, 4, 8, 12);
            quarter_round(x, 5, 9, 13, 1);
            quarter_round(x, 10, 14, 2, 6);
            quarter_round(x, 15, 3, 7, 11);
            quarter_round(x, 0, 1, 2, 3);
            quarter_round(x, 5, 6, 7, 4);
            quarter_round(x, 10, 11, 8, 9);
            quarter_round(x, 15, 12, 13, 14);
        }
    }
    static_assert(ROUNDS / 2 % PRG_UNROLL == 0, "PRG_UNROLL divides the double rounds");
}

template <int WORDS>
DEVICE void add_state(const u32 (&seed)[4], u32 counter, const u32 (&x)[16], u32 (&out)[WORDS]) {
    u32 state[16];
    salsa_state(seed, counter, state);
    UNROLL for (int k = 0; k < WORDS; k++) out[k] = x[k] + state[k];
}

template <int N> DEVICE void prg_children(const u32 (&seed)[N][4], u32 (&out)[N][8]) {
    u32 x[N][16];
    salsa(seed, 0, x);
    UNROLL for (int n = 0; n < N; n++) add_state(seed[n], 0, x[n], out[n]);
}

DEVICE void prg_leaf(const u32 (&seed)[1][4], u32 (&out)[16]) {
    u32 x[1][16];
    salsa(seed, 1, x);
    add_state(seed[0], 1, x[0], out);
}

DEVICE void prg_leaf_pair(const u32 (&seed)[2][4], u32 (&a)[16], u32 (&b)[16]) {
    u32 x[2][16];
    salsa(seed, 1, x);
    add_state(seed[0], 1, x[0], a);
    add_state(seed[1], 1, x[1], b);
}
