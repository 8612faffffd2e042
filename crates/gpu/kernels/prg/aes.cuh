// AES-128 under one fixed public key as a correlation-robust hash: H(x) = AES(σ(x)) ⊕ σ(x) with
// σ(hi ‖ lo) = (hi ⊕ lo) ‖ hi (crates/prg/src/aes). Children are H(s) and H(s ⊕ 1), the leaf is
// H(s ⊕ 2) to H(s ⊕ 5). σ is linear: the blocks of one seed differ in their word 2 alone.
//
// Two ways, both without secret-dependent time; AES_BITSLICED chooses, for which is faster can only
// be measured on a GPU:
//
// - 0: tables in shared memory. The address of a lookup depends on a secret, its time does not: the
//   table (1 KB, SubBytes and MixColumns of a byte) is there 32 times, entry x of lane l at word
//   32 x + l, so that a lane reads its own bank whatever x is, and no two lanes of a warp ever wait
//   for each other. Shared memory has no cache and no lines. Floor: of the 16 lookups of a round,
//   the blocks of one seed share 15 in the first and 12 in the second: 293 for the children and 559
//   for the leaf, at 32 lanes a cycle and multiprocessor; and about 3 operations a lookup at 64.
// - 1: bits. Eight words hold one bit each of the 32 bytes of two blocks; SubBytes is a circuit of
//   113 gates (Boyar and Peralta, "A depth-16 circuit for the AES S-box", 2011); a round of two blocks
//   is some 260 operations, without shared memory.
#pragma once

#ifndef AES_BITSLICED
#define AES_BITSLICED 0
#endif

// σ(s): words 0 and 1 are the seed's high half, words 2 and 3 the sum of both.
DEVICE void sigma(const u32 (&seed)[4], u32 (&x)[4]) {
    x[0] = seed[2], x[1] = seed[3];
    x[2] = seed[2] ^ seed[0], x[3] = seed[3] ^ seed[1];
}

#if !AES_BITSLICED

#define PRG_SHARED_BYTES (32 * 1024)

// The eleven round keys of 243f6a88 85a308d3 13198a2e 03707344, the fraction of π.
CONSTANT u32 ROUND_KEYS[44] = {
    0x886a3f24, 0xd308a385, 0x2e8a1913, 0x44737003, 0xf371b074, 0x207913f1, 0x0ef30ae2, 0x4a807ae1,
    0x0ba77dac, 0x2bde6e5d, 0x252d64bf, 0x6fad1e5e, 0x530fe8da, 0x78d18687, 0x5dfce238, 0x3251fc66,
    0x602c3962, 0x18fdbfe5, 0x45015ddd, 0x7750a1bb, 0x8ad96a40, 0x9224d5a5, 0xd7258878, 0xa07529c3,
    0xa439f7c5, 0x361d2260, 0xe138aa18, 0x414d83db, 0x1dba1469, 0x2ba73609, 0xca9f9c11, 0x8bd21fca,
    0x6987a129, 0x42209720, 0x88bf0b31, 0x036d14fb, 0x66fc9dc8, 0x24dc0ae8, 0xac6301d9, 0xaf0e1522,
    0xf58536a7, 0xd1593c4f, 0x7d3a3d96, 0xd23428b4,
};

CONSTANT u32 SUBSTITUTION[64] = {
    0x7b777c63, 0xc56f6bf2, 0x2b670130, 0x76abd7fe, 0x7dc982ca, 0xf04759fa, 0xafa2d4ad, 0xc072a49c,
    0x2693fdb7, 0xccf73f36, 0xf1e5a534, 0x1531d871, 0xc323c704, 0x9a059618, 0xe2801207, 0x75b227eb,
    0x1a2c8309, 0xa05a6e1b, 0xb3d63b52, 0x842fe329, 0xed00d153, 0x5bb1fc20, 0x39becb6a, 0xcf584c4a,
    0xfbaaefd0, 0x85334d43, 0x7f02f945, 0xa89f3c50, 0x8f40a351, 0xf5389d92, 0x21dab6bc, 0xd2f3ff10,
    0xec130ccd, 0x1744975f, 0x3d7ea7c4, 0x73195d64, 0xdc4f8160, 0x88902a22, 0x14b8ee46, 0xdb0b5ede,
    0x0a3a32e0, 0x5c240649, 0x62acd3c2, 0x79e49591, 0x6d37c8e7, 0xa94ed58d, 0xeaf4566c, 0x08ae7a65,
    0x2e2578ba, 0xc6b4a61c, 0x1f74dde8, 0x8a8bbd4b, 0x66b53e70, 0x0ef60348, 0xb9573561, 0x9e1dc186,
    0x1198f8e1, 0x948ed969, 0xe9871e9b, 0xdf2855ce, 0x0d89a18c, 0x6842e6bf, 0x0f2d9941, 0x16bb54b0,
};

// Fills the table. Every thread of the block calls it, with the beginning of the block's shared
// memory, of which it takes the first PRG_SHARED_BYTES; then block_sync().
DEVICE void prg_prepare(u8 *shared) {
    u32 *table = (u32 *)shared;
    for (u32 i = thread_index(); i < 32 * 256; i += block_threads()) {
        u32 x = i / 32;
        u32 s = SUBSTITUTION[x / 4] >> 8 * (x % 4) & 255;
        u32 twice = s << 1 ^ (0x11b & (0 - (s >> 7)));
        table[i] = twice | s << 8 | s << 16 | (twice ^ s) << 24;
    }
}

// The table as one lane sees it.
struct Table {
    const u8 *shared;
    u32 lane_offset;
};

// The entry of byte BYTE of the word, from the lowest. An entry takes 128 bytes: its address is bits
// of the word where they are wanted.
template <int BYTE> DEVICE u32 look_up(const Table &table, u32 word) {
    u32 at = BYTE == 0 ? word << 7 : word >> (8 * BYTE - 7);
    return *(const u32 *)(table.shared + ((at & 0x7f80) | table.lane_offset));
}

// Column c after SubBytes, ShiftRows, MixColumns.
DEVICE u32 mix_column(const Table &table, const u32 (&s)[4], int c) {
    return look_up<0>(table, s[c]) ^ rotate_left(look_up<1>(table, s[(c + 1) % 4]), 8) ^
           rotate_left(look_up<2>(table, s[(c + 2) % 4]), 16) ^
           rotate_left(look_up<3>(table, s[(c + 3) % 4]), 24);
}

// The same without MixColumns: bytes 1 and 2 of an entry are SubBytes.
DEVICE u32 last_column(const Table &table, const u32 (&s)[4], int c) {
    return (look_up<0>(table, s[c]) >> 8 & 0xff) |
           (look_up<1>(table, s[(c + 1) % 4]) & 0xff00) |
           (look_up<2>(table, s[(c + 2) % 4]) & 0xff0000) |
           (look_up<3>(table, s[(c + 3) % 4]) << 8 & 0xff000000);
}

// H(s ^ (FIRST + n)) for n below N.
template <int FIRST, int N> DEVICE void hash(const u32 (&seed)[4], u32 *out) {
    SHARED(substitution_table);
    const Table table = {substitution_table, 4 * (thread_index() % 32)};
    u32 x[4], s[N][4];
    sigma(seed, x);
    UNROLL for (int n = 0; n < N; n++) {
        UNROLL for (int c = 0; c < 4; c++) {
            s[n][c] = x[c] ^ (c == 2 ? FIRST + n : 0) ^ ROUND_KEYS[c];
        }
    }
    // Two rounds outside the loop, where the compiler sees what blocks share.
    UNROLL for (int round = 1; round < 3; round++) {
        UNROLL for (int n = 0; n < N; n++) {
            u32 next[4];
            UNROLL for (int c = 0; c < 4; c++) {
                next[c] = mix_column(table, s[n], c) ^ ROUND_KEYS[4 * round + c];
            }
            UNROLL for (int c = 0; c < 4; c++) s[n][c] = next[c];
        }
    }
    NO_UNROLL for (int round = 3; round < 10; round++) {
        UNROLL for (int n = 0; n < N; n++) {
            u32 next[4];
            UNROLL for (int c = 0; c < 4; c++) {
                next[c] = mix_column(table, s[n], c) ^ ROUND_KEYS[4 * round + c];
            }
            UNROLL for (int c = 0; c < 4; c++) s[n][c] = next[c];
        }
    }
    UNROLL for (int n = 0; n < N; n++) {
        UNROLL for (int c = 0; c < 4; c++) {
            out[4 * n + c] = last_column(table, s[n], c) ^ x[c] ^ (c == 2 ? FIRST + n : 0) ^
                             ROUND_KEYS[40 + c];
        }
    }
}

#else

#define PRG_SHARED_BYTES 0
DEVICE void prg_prepare(u8 *) {}

// The round keys as bit planes, SubBytes' constant in them from round 1 on: that of all bytes is
// the same after ShiftRows and MixColumns.
CONSTANT u32 ROUND_PLANES[88] = {
    0x0cc03ffc, 0x3cf30ff0, 0xf000030f, 0x333f3300, 0x0cc0f330, 0x30c3cf03, 0xccc3c000, 0x0f300c0c,
    0xfcc0f333, 0x0ccf03cf, 0x30000003, 0xf00cf000, 0x033fcf0f, 0xf0c03c00, 0x3cc03f00, 0x03f003fc,
    0x000cfcc3, 0x30f0330f, 0xf0ffffff, 0xcffccfff, 0x000cc3fc, 0x030cc0cc, 0x3ff3c033, 0x00cf0033,
    0xcc30fff3, 0x3cfcc330, 0x3033cccc, 0x3c33c333, 0xfffcc033, 0x33cf0c0f, 0xc0030c3c, 0x003cff0f,
    0x0fc30003, 0x3ffff33c, 0xf00f3c3c, 0x0c0f3ff0, 0xcccc3ff0, 0x3cf03030, 0x0c33cfc0, 0x000cccfc,
    0xcf0c3333, 0xc0fffc3f, 0x30fc0c0c, 0x0303f330, 0x3cc30c30, 0x3f033cc3, 0xcf3cf00c, 0xff033ccc,
    0x0f303c3c, 0xf3ff003f, 0x0fcc0303, 0x00ff30f0, 0x0c3f03f0, 0xc0ccc0f3, 0x0f3ffc30, 0x3300f3c3,
    0x30c33fc0, 0x0300333f, 0x033cff00, 0xff33f0cf, 0x03f3ff30, 0xf3f0f3fc, 0xcf3fff3c, 0xf0ff30c0,
    0x3c0cc00c, 0x33ccc33f, 0x00f3cc00, 0x33f030c3, 0x0030ccf0, 0xfc03fc00, 0xf03fff3f, 0x30330fc0,
    0x3fcf0ccf, 0x3c0ff33f, 0xffcfc300, 0xf0cf0f3f, 0x000fc330, 0x00ccff33, 0xfcc0ffc0, 0xf00f033f,
    0xc0f0cff0, 0x3fcffcc0, 0x33c33fff, 0x303cfc0c, 0xfffc3ff0, 0xcc0f003c, 0x00f3fff3, 0xcf0300f3,
};

// Bits n of every byte of the eight words, to word n: bit i of byte r of word k to bit k of byte r
// of word i, and so back.
DEVICE void transpose(u32 (&q)[8]) {
#define SWAP(low_mask, shift, x, y)                                                                \
    {                                                                                              \
        u32 a = x, b = y;                                                                          \
        x = (a & low_mask) | (b & low_mask) << shift;                                              \
        y = (a & ~low_mask) >> shift | (b & ~low_mask);                                            \
    }
    UNROLL for (int k = 0; k < 8; k += 2) SWAP(0x55555555u, 1, q[k], q[k + 1])
    UNROLL for (int k = 0; k < 8; k += 4) {
        SWAP(0x33333333u, 2, q[k], q[k + 2])
        SWAP(0x33333333u, 2, q[k + 1], q[k + 3])
    }
    UNROLL for (int k = 0; k < 4; k++) SWAP(0x0f0f0f0fu, 4, q[k], q[k + 4])
#undef SWAP
}

// SubBytes but for its constant.
DEVICE void sub_bytes(u32 (&q)[8]) {
        u32 u7 = q[0], u6 = q[1], u5 = q[2], u4 = q[3], u3 = q[4], u2 = q[5], u1 = q[6], u0 =
        q[7], y14 = u3 ^ u5, y13 = u0 ^ u6, y12 = y13 ^ y14, t1 = u4 ^ y12, y15 = t1 ^ u5, t2 =
        y12 & y15, y6 = y15 ^ u7, y20 = t1 ^ u1, y9 = u0 ^ u3, y11 = y20 ^ y9, t12 = y9 & y11, y7
        = u7 ^ y11, y8 = u0 ^ u5, t0 = u1 ^ u2, y10 = y15 ^ t0, y17 = y10 ^ y11, t13 = y14 & y17,
        t14 = t13 ^ t12, y19 = y10 ^ y8, t15 = y8 & y10, t16 = t15 ^ t12, y16 = t0 ^ y11, y21 =
        y13 ^ y16, t7 = y13 & y16, y18 = u0 ^ y16, y1 = t0 ^ u7, y4 = y1 ^ u3, t5 = y4 & u7, t6 =
        t5 ^ t2, t18 = t6 ^ t16, t22 = t18 ^ y19, y2 = y1 ^ u0, t10 = y2 & y7, t11 = t10 ^ t7, t20
        = t11 ^ t16, t24 = t20 ^ y18, y5 = y1 ^ u6, t8 = y5 & y1, t9 = t8 ^ t7, t19 = t9 ^ t14,
        t23 = t19 ^ y21, y3 = y5 ^ y8, t3 = y3 & y6, t4 = t3 ^ t2, t17 = t4 ^ y20, t21 = t17 ^
        t14, t26 = t21 & t23, t27 = t24 ^ t26, t31 = t22 ^ t26, t25 = t21 ^ t22, t28 = t25 & t27,
        t29 = t28 ^ t22, z14 = t29 & y2, z5 = t29 & y7, t30 = t23 ^ t24, t32 = t31 & t30, t33 =
        t32 ^ t24, t35 = t27 ^ t33, t36 = t24 & t35, t38 = t27 ^ t36, t39 = t29 & t38, t40 = t25 ^
        t39, t43 = t29 ^ t40, z3 = t43 & y16, tc12 = z3 ^ z5, z12 = t43 & y13, z13 = t40 & y5, z4
        = t40 & y1, tc6 = z3 ^ z4, t34 = t23 ^ t33, t37 = t36 ^ t34, t41 = t40 ^ t37, z8 = t41 &
        y10, z17 = t41 & y8, t44 = t33 ^ t37, z0 = t44 & y15, z9 = t44 & y12, z10 = t37 & y3, z1 =
        t37 & y6, tc5 = z1 ^ z0, tc11 = tc6 ^ tc5, z11 = t33 & y4, t42 = t29 ^ t33, t45 = t42 ^
        t41, z7 = t45 & y17, tc8 = z7 ^ tc6, z16 = t45 & y14, z6 = t42 & y11, tc16 = z6 ^ tc8, z15
        = t42 & y9, tc20 = z15 ^ tc16, tc1 = z15 ^ z16, tc2 = z10 ^ tc1, tc21 = tc2 ^ z11, tc3 =
        z9 ^ tc2, s0 = tc3 ^ tc16, s3 = tc3 ^ tc11, s1 = s3 ^ tc16, tc13 = z13 ^ tc1, z2 = t33 &
        u7, tc4 = z0 ^ z2, tc7 = z12 ^ tc4, tc9 = z8 ^ tc7, tc10 = tc8 ^ tc9, tc17 = z14 ^ tc10,
        s5 = tc21 ^ tc17, tc26 = tc17 ^ tc20, s2 = tc26 ^ z17, tc14 = tc4 ^ tc12, tc18 = tc13 ^
        tc14, s6 = tc10 ^ tc18, s7 = z12 ^ tc18, s4 = tc14 ^ s3;
    q[0] = s7, q[1] = s6, q[2] = s5, q[3] = s4, q[4] = s3, q[5] = s2, q[6] = s1, q[7] = s0;
}

// Row r is byte r; in it, column c of block b is bit 2 c + b.
DEVICE u32 shift_rows(u32 x) {
    return (x & 0xff) | (x & 0xfc00) >> 2 | (x & 0x300) << 6 | (x & 0xf00000) >> 4 |
           (x & 0xf0000) << 4 | (x & 0xc0000000) >> 6 | (x & 0x3f000000) << 2;
}

// Rounds 1 to 10 and the keys of two blocks.
DEVICE void encrypt(u32 (&q)[8]) {
    transpose(q);
    UNROLL for (int k = 0; k < 8; k++) q[k] ^= ROUND_PLANES[k];
    NO_UNROLL for (int round = 1; round < 10; round++) {
        sub_bytes(q);
        u32 r[8];
        UNROLL for (int k = 0; k < 8; k++) {
            q[k] = shift_rows(q[k]);
            r[k] = rotate_left(q[k], 24);
        }
        // 2 a + 3 b + c + d, where b, c, d are the next rows: 2 (a + b) + b + (c + d).
        u32 top = q[7] ^ r[7], next[8];
        UNROLL for (int k = 0; k < 8; k++) {
            u32 doubled = k == 0 ? top : q[k - 1] ^ r[k - 1];
            if (k == 1 || k == 3 || k == 4) doubled ^= top;
            next[k] = doubled ^ r[k] ^ rotate_left(q[k] ^ r[k], 16) ^ ROUND_PLANES[8 * round + k];
        }
        UNROLL for (int k = 0; k < 8; k++) q[k] = next[k];
    }
    sub_bytes(q);
    UNROLL for (int k = 0; k < 8; k++) q[k] = shift_rows(q[k]) ^ ROUND_PLANES[80 + k];
    transpose(q);
}

// H(s ^ (FIRST + n)) for n below N.
template <int FIRST, int N> DEVICE void hash(const u32 (&seed)[4], u32 *out) {
    u32 x[4];
    sigma(seed, x);
    UNROLL for (int n = 0; n < N; n += 2) {
        u32 q[8];
        UNROLL for (int c = 0; c < 4; c++) {
            q[2 * c] = x[c] ^ (c == 2 ? FIRST + n : 0);
            q[2 * c + 1] = x[c] ^ (c == 2 ? FIRST + n + 1 : 0);
        }
        u32 whitened[8];
        UNROLL for (int k = 0; k < 8; k++) whitened[k] = q[k];
        encrypt(q);
        UNROLL for (int c = 0; c < 4; c++) {
            out[4 * n + c] = q[2 * c] ^ whitened[2 * c];
            out[4 * n + 4 + c] = q[2 * c + 1] ^ whitened[2 * c + 1];
        }
    }
}

#endif

template <int N> DEVICE void prg_children(const u32 (&seed)[N][4], u32 (&out)[N][8]) {
    UNROLL for (int n = 0; n < N; n++) hash<0, 2>(seed[n], out[n]);
}

DEVICE void prg_leaf(const u32 (&seed)[1][4], u32 (&out)[16]) { hash<2, 4>(seed[0], out); }

DEVICE void prg_leaf_pair(const u32 (&seed)[2][4], u32 (&a)[16], u32 (&b)[16]) {
    hash<2, 4>(seed[0], a);
    hash<2, 4>(seed[1], b);
}
