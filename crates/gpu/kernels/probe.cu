// What the device itself can do, measured beside the engines: their floors.
#include "platform.cuh"

// Sums `vectors` 16-byte vectors into *sum: read bandwidth. Four loads in flight a thread.
KERNEL probe_read(const Vec4 *from, u64 vectors, u32 *sum) {
    u64 stride = (u64)grid_blocks() * block_threads();
    u64 at = (u64)block_index() * block_threads() + thread_index();
    u32 mine = 0;
    for (; at + 3 * stride < vectors; at += 4 * stride) {
        Vec4 v[4];
        UNROLL for (int i = 0; i < 4; i++) v[i] = from[at + i * stride];
        UNROLL for (int i = 0; i < 4; i++) mine += v[i].x + v[i].y + v[i].z + v[i].w;
    }
    for (; at < vectors; at += stride) {
        Vec4 v = from[at];
        mine += v.x + v.y + v.z + v.w;
    }
    UNROLL for (u32 mask = 16; mask; mask /= 2) mine += warp_shuffle_xor(mine, mask);
    if (thread_index() % 32 == 0) atomic_add(sum, mine);
}

// `rounds` rounds of add, exclusive or and rotation on 8 independent words a thread, as ChaCha and
// Salsa do them: 8 x 3 operations a round. Ends in out[thread of the grid].
KERNEL probe_alu(u32 *out, u32 rounds) {
    u32 thread = block_index() * block_threads() + thread_index();
    u32 a[8], b = thread | 1;
    UNROLL for (u32 i = 0; i < 8; i++) a[i] = thread + i;
    for (u32 round = 0; round < rounds; round++) {
        UNROLL for (int i = 0; i < 8; i++) a[i] = rotate_left((a[i] + b) ^ round, 7);
    }
    u32 sum = 0;
    UNROLL for (int i = 0; i < 8; i++) sum ^= a[i];
    out[thread] = sum;
}

// `rounds` times 8 independent tile products (m16n8k32, 4,096 multiply-adds each) a warp: the tensor
// cores' rate. Ends in out[thread of the grid].
KERNEL probe_mma(u32 *out, u32 rounds) {
    u32 thread = block_index() * block_threads() + thread_index();
    u32 a[4], b[2], d[8][4];
    UNROLL for (u32 i = 0; i < 4; i++) a[i] = thread * 0x9e3779b9u + i;
    UNROLL for (u32 i = 0; i < 2; i++) b[i] = thread * 0x85ebca6bu + i;
    UNROLL for (u32 i = 0; i < 8; i++) UNROLL for (u32 j = 0; j < 4; j++) d[i][j] = i;
    for (u32 round = 0; round < rounds; round++) {
        UNROLL for (int i = 0; i < 8; i++) multiply_tile(d[i], a, b);
    }
    u32 sum = 0;
    UNROLL for (int i = 0; i < 8; i++) UNROLL for (int j = 0; j < 4; j++) sum += d[i][j];
    out[thread] = sum;
}
