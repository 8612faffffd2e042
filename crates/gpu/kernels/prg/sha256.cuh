// SHA-256 (FIPS 180-4) of the 17 bytes seed ‖ counter, one compression: counter 0 makes the
// children, 1 and 2 the halves of a leaf.
//
// Floor: a round is six rotations, four XORs of two and three (as one three-input operation each),
// choice and majority (one each) and seven additions, of which a three-input addition takes two: 16;
// a word of the schedule is four rotations, two shifts, two XORs and two additions: 10. 64 rounds
// and 48 words are 1,504 a message, at 64 a cycle.
#pragma once

#define PRG_SHARED_BYTES 0
DEVICE void prg_prepare(u8 *) {}

CONSTANT u32 ROUND_CONSTANTS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

DEVICE u32 rotate_right(u32 x, int n) { return rotate_left(x, 32 - n); }
DEVICE u32 swap_bytes(u32 x) { return permute_bytes(x, x, 0x0123); }

// One round; the caller renames the state.
DEVICE void sha_round(u32 a, u32 b, u32 c, u32 &d, u32 e, u32 f, u32 g, u32 &h, u32 word) {
    u32 sum1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
    u32 sum0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
    h += sum1 + ((e & f) ^ (~e & g)) + word;
    d += h;
    h += sum0 + ((a & b) ^ (a & c) ^ (b & c));
}

// 16 rounds with the words of the schedule from `first` on.
DEVICE void sha_rounds(u32 (&s)[8], const u32 (&w)[16], int first) {
    UNROLL for (int i = 0; i < 16; i++) {
        // State word k of round i is s[(k - i) mod 8].
        sha_round(s[(16 - i) % 8], s[(17 - i) % 8], s[(18 - i) % 8], s[(19 - i) % 8],
                  s[(20 - i) % 8], s[(21 - i) % 8], s[(22 - i) % 8], s[(23 - i) % 8],
                  w[i] + ROUND_CONSTANTS[first + i]);
    }
}

DEVICE void digest(const u32 (&seed)[4], u32 counter, u32 *out) {
    const u32 initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    u32 w[16], s[8];
    UNROLL for (int k = 0; k < 4; k++) w[k] = swap_bytes(seed[k]);
    // The counter, the padding's first bit, and at the end the length in bits.
    w[4] = counter << 24 | 0x800000;
    UNROLL for (int k = 5; k < 15; k++) w[k] = 0;
    w[15] = 8 * 17;
    UNROLL for (int k = 0; k < 8; k++) s[k] = initial[k];
    NO_UNROLL for (int first = 0; first < 48; first += 16) {
        sha_rounds(s, w, first);
        UNROLL for (int i = 0; i < 16; i++) {
            u32 x = w[(i + 1) % 16], y = w[(i + 14) % 16];
            u32 sigma0 = rotate_right(x, 7) ^ rotate_right(x, 18) ^ x >> 3;
            u32 sigma1 = rotate_right(y, 17) ^ rotate_right(y, 19) ^ y >> 10;
            w[i] += sigma0 + w[(i + 9) % 16] + sigma1;
        }
    }
    sha_rounds(s, w, 48);
    UNROLL for (int k = 0; k < 8; k++) out[k] = swap_bytes(s[k] + initial[k]);
}

template <int N> DEVICE void prg_children(const u32 (&seed)[N][4], u32 (&out)[N][8]) {
    UNROLL for (int n = 0; n < N; n++) digest(seed[n], 0, out[n]);
}

DEVICE void prg_leaf(const u32 (&seed)[1][4], u32 (&out)[16]) {
    digest(seed[0], 1, out);
    digest(seed[0], 2, out + 8);
}

DEVICE void prg_leaf_pair(const u32 (&seed)[2][4], u32 (&a)[16], u32 (&b)[16]) {
    digest(seed[0], 1, a);
    digest(seed[0], 2, a + 8);
    digest(seed[1], 1, b);
    digest(seed[1], 2, b + 8);
}
