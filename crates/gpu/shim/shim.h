// A GPU for tests: runs a grid's blocks one after the other and a block's threads as fibres, so that
// the kernels' own text can be held to the processor's answers where there is no GPU.
//
// A fibre runs until it waits for others. Which one is next is drawn from a seed: a missing barrier
// shows under some seed as a wrong answer. A barrier that some threads miss ends the program with a
// message, and so does a warp function that not all of a warp's threads call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

typedef uint8_t u8;
typedef uint32_t u32;
typedef unsigned long long u64;

// The attribute is what src/shim.rs finds kernels by in the preprocessed text.
#define KERNEL extern "C" __attribute__((used)) void
#define KERNEL_BOUNDS(threads, blocks) KERNEL
#define DEVICE static inline
#define CONSTANT static const
#define SHARED(name) u8 *name = shim::dynamic_shared()
#define UNROLL
#define NO_UNROLL

struct alignas(16) Vec4 {
    u32 x, y, z, w;
};
struct alignas(8) Vec2 {
    u32 x, y;
};

namespace shim {
struct Place {
    u32 thread, block, block_y, threads, blocks;
};
// Of the compiler's own kind, which is read without asking whether it must be constructed first.
extern __thread Place *place;
u8 *dynamic_shared();
void block_wait();
// Leaves `bytes` of `mine` where the warp's other lanes find them, waits for them, and copies all 32
// to `all`.
void warp_exchange(const void *mine, void *all, size_t bytes);
void grid_wait();
[[noreturn]] void fail(const char *what);
// Looks that an access of vector width is aligned, as the hardware does.
inline void check_aligned(const void *address, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(address) % bytes) fail("a misaligned address");
}
// Calls a kernel with what the pointers point at, and says how many bytes each argument has.
template <class... A, size_t... I>
void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
    kernel(*static_cast<A *>(arguments[I])...);
}
template <class... A> void call(void (*kernel)(A...), void **arguments) {
    call(kernel, arguments, std::index_sequence_for<A...>());
}
template <class... A> u32 sizes(void (*)(A...), u32 *bytes) {
    u32 each[] = {sizeof(A)..., 0};
    std::memcpy(bytes, each, sizeof...(A) * sizeof(u32));
    return sizeof...(A);
}
} // namespace shim

DEVICE u32 thread_index() { return shim::place->thread; }
DEVICE u32 block_index() { return shim::place->block; }
DEVICE u32 block_index_y() { return shim::place->block_y; }
DEVICE u32 block_threads() { return shim::place->threads; }
DEVICE u32 grid_blocks() { return shim::place->blocks; }

DEVICE void block_sync() { shim::block_wait(); }
DEVICE void warp_sync() {
    u32 mine = 0, all[32];
    shim::warp_exchange(&mine, all, 4);
}
DEVICE u32 warp_shuffle(u32 value, u32 lane) {
    u32 all[32];
    shim::warp_exchange(&value, all, 4);
    return all[lane % 32];
}
DEVICE u32 warp_shuffle_xor(u32 value, u32 mask) {
    u32 all[32];
    shim::warp_exchange(&value, all, 4);
    return all[(thread_index() ^ mask) % 32];
}

DEVICE u32 rotate_left(u32 x, int n) { return x << n | x >> (32 - n); }
DEVICE u32 permute_bytes(u32 a, u32 b, u32 which) {
    u64 both = (u64)b << 32 | a;
    u32 bytes = 0;
    for (int i = 0; i < 4; i++) bytes |= (u32)(both >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return bytes;
}
DEVICE u32 opaque(u32 x) { return x; }
DEVICE u32 multiply_high(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
DEVICE u32 dot_bytes(u32 a, u32 b, u32 c) {
    for (int i = 0; i < 4; i++) c += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    return c;
}
DEVICE void atomic_add(u32 *to, u32 value) { *to += value; }
DEVICE void atomic_xor(u32 *to, u32 value) { *to ^= value; }

DEVICE void multiply_tile(u32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    u32 mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]}, all[32][6];
    shim::warp_exchange(mine, all, sizeof mine);
    u32 g = thread_index() % 32 / 4, t = thread_index() % 4;
    for (u32 i = 0; i < 4; i++) {
        u32 upper = i / 2, column = 2 * t + i % 2;
        for (u32 lane = 0; lane < 4; lane++) {
            // Lane (g, lane) has this row of a, lane (column, lane) this column of b.
            d[i] = dot_bytes(all[4 * g + lane][upper], all[4 * column + lane][4], d[i]);
            d[i] = dot_bytes(all[4 * g + lane][2 + upper], all[4 * column + lane][5], d[i]);
        }
    }
}

DEVICE void copy_async(void *shared, const void *global) {
    shim::check_aligned(shared, 16);
    shim::check_aligned(global, 16);
    std::memcpy(shared, global, 16);
}
DEVICE void copy_async_commit() {}
template <int PENDING> DEVICE void copy_async_wait() {}

DEVICE void grid_sync(u32 *) { shim::grid_wait(); }
