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
// Leaves `mine` where the warp's other lanes find it, waits for them, and gives the values of all.
// They stay as they are until this lane's next exchange.
constexpr size_t EXCHANGE_BYTES = 64;
const u8 *warp_exchange(const void *mine, size_t bytes);
template <class T> class Lanes {
  public:
    explicit Lanes(const T &mine) : all(warp_exchange(&mine, sizeof mine)) {
        static_assert(sizeof mine <= EXCHANGE_BYTES, "an exchange of too many bytes");
    }
    const T &operator[](u32 lane) const {
        return *reinterpret_cast<const T *>(all + lane % 32 * EXCHANGE_BYTES);
    }

  private:
    const u8 *all;
};
void grid_wait();
// What a launch did, where somebody asked: calls of the generator, bytes of device memory read and
// written. Shared memory and a thread's own are not device memory here.
struct Counts {
    u64 calls, read_bytes, written_bytes;
};
extern __thread Counts *counts;
bool is_device_memory(const void *address);
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
DEVICE void warp_sync() { shim::Lanes<u32>(0); }
DEVICE u32 warp_shuffle(u32 value, u32 lane) { return shim::Lanes<u32>(value)[lane]; }
DEVICE u32 warp_shuffle_xor(u32 value, u32 mask) {
    return shim::Lanes<u32>(value)[thread_index() ^ mask];
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
    return c + (a & 255) * (b & 255) + (a >> 8 & 255) * (b >> 8 & 255) +
           (a >> 16 & 255) * (b >> 16 & 255) + (a >> 24) * (b >> 24);
}
DEVICE void count_calls(u32 calls) {
    if (shim::counts) shim::counts->calls += calls;
}
DEVICE void count_read(const void *from, u32 bytes) {
    if (shim::counts && shim::is_device_memory(from)) shim::counts->read_bytes += bytes;
}
DEVICE void count_write(const void *to, u32 bytes) {
    if (shim::counts && shim::is_device_memory(to)) shim::counts->written_bytes += bytes;
}

DEVICE void atomic_add(u32 *to, u32 value) {
    count_read(to, 4), count_write(to, 4);
    *to += value;
}
DEVICE void atomic_xor(u32 *to, u32 value) {
    count_read(to, 4), count_write(to, 4);
    *to ^= value;
}

DEVICE void multiply_tile(u32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    struct Fragment {
        u32 a[4], b[2];
    };
    shim::Lanes<Fragment> all(Fragment{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
    u32 g = thread_index() % 32 / 4, t = thread_index() % 4;
    for (u32 lane = 0; lane < 4; lane++) {
        // Lane (g, lane) has these rows of a, lane (column, lane) this column of b.
        const u32(&row)[4] = all[4 * g + lane].a;
        for (u32 i = 0; i < 4; i++) {
            const u32(&column)[2] = all[4 * (2 * t + i % 2) + lane].b;
            d[i] = dot_bytes(row[i / 2], column[0], d[i]);
            d[i] = dot_bytes(row[2 + i / 2], column[1], d[i]);
        }
    }
}

DEVICE void copy_async(void *shared, const void *global) {
    shim::check_aligned(shared, 16);
    shim::check_aligned(global, 16);
    count_read(global, 16);
    std::memcpy(shared, global, 16);
}
DEVICE void copy_async_commit() {}
template <int PENDING> DEVICE void copy_async_wait() {}

DEVICE void grid_sync(u32 *) { shim::grid_wait(); }
