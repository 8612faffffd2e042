// What kernels say instead of CUDA's own words, so that the same text runs on a GPU and, in tests,
// on the host shim (shim/shim.h).
//
// Rules for kernels:
// - all shared memory is dynamic: one SHARED(name) at the top of the kernel;
// - block_sync() and the warp_* functions are reached by every thread of the block or warp;
// - no branch and no address depends on a share, a seed or a control bit.
#pragma once

#ifdef HUSHTABLE_SHIM
#include "shim.h"
#else

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void
#define KERNEL_BOUNDS(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define DEVICE static __device__ __forceinline__
#define CONSTANT static __device__ __constant__
#define SHARED(name) extern __shared__ __align__(16) u8 name[]
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

struct alignas(16) Vec4 {
    u32 x, y, z, w;
};
struct alignas(8) Vec2 {
    u32 x, y;
};

DEVICE u32 thread_index() { return threadIdx.x; }
DEVICE u32 block_index() { return blockIdx.x; }
DEVICE u32 block_index_y() { return blockIdx.y; }
DEVICE u32 block_threads() { return blockDim.x; }
DEVICE u32 grid_blocks() { return gridDim.x; }

DEVICE void block_sync() { __syncthreads(); }
DEVICE void warp_sync() { __syncwarp(); }
DEVICE u32 warp_shuffle(u32 value, u32 lane) { return __shfl_sync(0xffffffffu, value, lane); }
DEVICE u32 warp_shuffle_xor(u32 value, u32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

DEVICE u32 rotate_left(u32 x, int n) {
    // By whole bytes it is a permutation of bytes, on another pipe than the shifter.
    if (n == 16) return __byte_perm(x, x, 0x1032);
    if (n == 8) return __byte_perm(x, x, 0x2103);
    if (n == 24) return __byte_perm(x, x, 0x0321);
    return __funnelshift_l(x, x, n);
}
// Byte i of the result is the one of a (0 to 3) and b (4 to 7) that hexadecimal digit i of `which`,
// from the lowest, names.
DEVICE u32 permute_bytes(u32 a, u32 b, u32 which) { return __byte_perm(a, b, which); }
// x, but the compiler does not know.
DEVICE u32 opaque(u32 x) {
    asm volatile("" : "+r"(x));
    return x;
}
DEVICE u32 multiply_high(u32 a, u32 b) { return __umulhi(a, b); }

// c + the sum of the four products of bytes.
DEVICE u32 dot_bytes(u32 a, u32 b, u32 c) { return __dp4a(a, b, c); }

DEVICE void atomic_add(u32 *to, u32 value) { atomicAdd(to, value); }
DEVICE void atomic_xor(u32 *to, u32 value) { atomicXor(to, value); }

// d += a x b over bytes: m16n8k32 (PTX ISA, mma.sync.aligned.m16n8k32). Lane = 4 g + t:
// a[0]: row g, columns 4t..4t+3; a[1]: row g+8; a[2]: row g, columns 16+4t..; a[3]: row g+8, same.
// b[0]: rows 4t..4t+3 of column g; b[1]: rows 16+4t... of column g.
// d[0], d[1]: row g, columns 2t, 2t+1; d[2], d[3]: row g+8.
DEVICE void multiply_tile(u32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Copies of 16 bytes to shared memory that go on while the threads work.
DEVICE void copy_async(void *shared, const void *global) {
    u32 to = (u32)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> DEVICE void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// All blocks of a cooperative launch wait for each other. `barrier` is a word that was zero when the
// launch began and is used for nothing else.
DEVICE void grid_sync(u32 *barrier) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        u32 before = atomicAdd(barrier, 1);
        u32 until = before - before % gridDim.x + gridDim.x;
        while (*(volatile u32 *)barrier < until) {
        }
        __threadfence();
    }
    __syncthreads();
}

// What the shim counts, and a GPU does not: calls of the generator, accesses of memory.
DEVICE void count_calls(u32) {}
DEVICE void count_read(const void *, u32) {}
DEVICE void count_write(const void *, u32) {}

#endif

// Accesses of 16, 8 and 4 bytes. Kernels whose bytes are counted read and write device memory by
// these alone.
DEVICE Vec4 load_4(const void *from) {
    count_read(from, 16);
    return *(const Vec4 *)from;
}
DEVICE Vec2 load_2(const void *from) {
    count_read(from, 8);
    return *(const Vec2 *)from;
}
DEVICE u32 load_1(const u32 *from) {
    count_read(from, 4);
    return *from;
}
DEVICE void store_4(void *to, u32 x, u32 y, u32 z, u32 w) {
    count_write(to, 16);
    *(Vec4 *)to = Vec4{x, y, z, w};
}
DEVICE void store_1(u32 *to, u32 x) {
    count_write(to, 4);
    *to = x;
}

// WORDS words from an address that is a multiple of 16.
template <int WORDS> DEVICE void load_words(u32 (&to)[WORDS], const void *from) {
    UNROLL for (int i = 0; i < WORDS / 4; i++) {
        Vec4 words = load_4((const u8 *)from + 16 * i);
        to[4 * i] = words.x, to[4 * i + 1] = words.y, to[4 * i + 2] = words.z,
               to[4 * i + 3] = words.w;
    }
}
