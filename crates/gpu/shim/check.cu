// What tests of the shim run: right kernels, and kernels with the mistakes that it must catch.
#include "platform.cuh"

// Every thread leaves its number where another reads it: right only with the barrier.
KERNEL reverse(u32 *out, u32 is_waiting) {
    SHARED(shared);
    u32 *words = (u32 *)shared;
    words[thread_index()] = thread_index() + 1000 * block_index() + 1000000 * block_index_y();
    if (is_waiting) block_sync();
    u32 threads = block_threads();
    u32 block = block_index_y() * grid_blocks() + block_index();
    out[block * threads + thread_index()] = words[threads - 1 - thread_index()];
}

KERNEL missed_barrier(u32 *out) {
    if (thread_index() != 5) block_sync();
    out[thread_index()] = 1;
}

KERNEL missed_shuffle(u32 *out) {
    u32 value = thread_index();
    if (value % 32 != 7) value = warp_shuffle(value, 0);
    out[thread_index()] = value;
}

KERNEL grid_sync_alone(u32 *barrier) { grid_sync(barrier); }

KERNEL write_word(u32 *out, u64 index) { out[index] = 1; }

KERNEL write_shared(u32 index, u32 *out) {
    SHARED(shared);
    ((volatile u32 *)shared)[index] = 1;
    out[0] = ((volatile u32 *)shared)[0];
}

KERNEL read_vector(const u8 *from, u64 offset, u32 *out) { out[0] = ((const Vec4 *)(from + offset))->x; }

#if !WITH_EXTRA
// A GPU would set this much aside for each thread that it can run.
KERNEL deep(u32 *out, u32 depth) {
    volatile u32 stack[1 << 16];
    for (u32 i = 0; i < depth; i++) stack[i << 8] = i;
    out[0] = stack[0];
}
#endif

// Lane i's value from lane i + 1, then from lane i ^ 5.
KERNEL shuffles(u32 *out) {
    u32 value = 3 * thread_index();
    value = warp_shuffle(value, (thread_index() + 1) % 32);
    out[thread_index()] = warp_shuffle_xor(value, 5);
}

// One product: a is 16 x 32 bytes by rows, b 32 x 8 by columns, d 16 x 8 words by rows, added to.
KERNEL tile(const u32 *a, const u32 *b, u32 *d) {
    u32 g = thread_index() % 32 / 4, t = thread_index() % 4;
    u32 left[4] = {a[8 * g + t], a[8 * (g + 8) + t], a[8 * g + 4 + t], a[8 * (g + 8) + 4 + t]};
    u32 right[2] = {b[8 * g + t], b[8 * g + 4 + t]};
    u32 sums[4];
    for (u32 i = 0; i < 4; i++) sums[i] = d[8 * (g + i / 2 * 8) + 2 * t + i % 2];
    multiply_tile(sums, left, right);
    for (u32 i = 0; i < 4; i++) d[8 * (g + i / 2 * 8) + 2 * t + i % 2] = sums[i];
}

// Blocks pass a sum on: block b's turn r reads what all blocks left in turn r - 1.
KERNEL rounds_of_all(u32 *barrier, u32 *sums, u32 rounds) {
    u32 blocks = grid_blocks();
    for (u32 round = 1; round <= rounds; round++) {
        u32 sum = 0;
        for (u32 i = 0; i < blocks; i++) sum += sums[(round - 1) * blocks + i];
        if (thread_index() == 0) sums[round * blocks + block_index()] = sum + block_index();
        grid_sync(barrier);
    }
}

#if WITH_EXTRA
KERNEL_BOUNDS(32, 1) extra(u64 value, u64 *out) { out[thread_index()] = value + WITH_EXTRA; }
#endif
