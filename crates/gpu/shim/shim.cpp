// The scheduler of the shim: see shim.h.
#include "shim.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

namespace shim {
namespace {

constexpr size_t STACK_BYTES = 128 << 10;
constexpr size_t EXCHANGE_BYTES = 64;

struct Warp {
    u8 values[32][EXCHANGE_BYTES];
    u32 lanes = 0, arrived = 0, taken = 0, turn = 0;
};

struct Block {
    std::vector<u8> shared;
    std::vector<Warp> warps;
    u32 arrived = 0, turn = 0, live = 0;
};

struct Fibre {
    ucontext_t context;
    Place place;
    Block *block;
    bool is_done = false;
};

struct Grid {
    std::vector<Fibre> fibres;
    u32 arrived = 0, turn = 0;
    bool is_cooperative = false;
    void (*kernel)(void **);
    void **arguments;
};

thread_local Grid *grid;
thread_local Fibre *current;
thread_local ucontext_t scheduler;
thread_local bool has_moved;
thread_local u64 seed;

u64 draw() {
    seed += 0x9e3779b97f4a7c15;
    u64 z = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

void yield() { swapcontext(&current->context, &scheduler); }

void run_fibre() {
    grid->kernel(grid->arguments);
    current->is_done = true;
    has_moved = true;
    // Those that wait for a thread that has ended wait in vain; see run().
    swapcontext(&current->context, &scheduler);
}

void run() {
    std::vector<u32> order(grid->fibres.size());
    for (u32 i = 0; i < order.size(); i++) order[i] = i;
    size_t live = order.size();
    while (live) {
        for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[draw() % i]);
        has_moved = false;
        for (u32 i : order) {
            Fibre &fibre = grid->fibres[i];
            if (fibre.is_done) continue;
            current = &fibre;
            place = &fibre.place;
            swapcontext(&scheduler, &fibre.context);
            live -= fibre.is_done;
        }
        if (!has_moved && live) fail("some threads wait at a barrier that the others do not reach");
    }
}

} // namespace

thread_local Place *place;

void fail(const char *what) {
    std::fprintf(stderr, "shim: %s", what);
    if (place) std::fprintf(stderr, " (block %u, thread %u)", place->block, place->thread);
    std::fprintf(stderr, "\n");
    std::abort();
}

u8 *dynamic_shared() { return current->block->shared.data(); }

void block_wait() {
    Block &block = *current->block;
    u32 turn = block.turn;
    has_moved = true;
    if (++block.arrived == place->threads) {
        block.arrived = 0;
        block.turn++;
    }
    while (block.turn == turn) yield();
    has_moved = true;
}

void grid_wait() {
    if (!grid->is_cooperative) fail("grid_sync in a launch that is not cooperative");
    u32 turn = grid->turn;
    has_moved = true;
    if (++grid->arrived == grid->fibres.size()) {
        grid->arrived = 0;
        grid->turn++;
    }
    while (grid->turn == turn) yield();
    has_moved = true;
}

void warp_exchange(const void *mine, void *all, size_t bytes) {
    if (bytes > EXCHANGE_BYTES) fail("an exchange of too many bytes");
    Warp &warp = current->block->warps[place->thread / 32];
    u32 turn = warp.turn;
    has_moved = true;
    std::memcpy(warp.values[place->thread % 32], mine, bytes);
    if (++warp.arrived == warp.lanes) {
        warp.arrived = 0;
        warp.turn++;
    }
    while (warp.turn == turn) yield();
    for (u32 lane = 0; lane < 32; lane++)
        std::memcpy(static_cast<u8 *>(all) + lane * bytes, warp.values[lane], bytes);
    // Nobody leaves the next value before all have taken this one.
    turn = warp.turn;
    if (++warp.taken == warp.lanes) {
        warp.taken = 0;
        warp.turn++;
    }
    while (warp.turn == turn) yield();
    has_moved = true;
}

} // namespace shim

using namespace shim;

// Runs a kernel that takes its arguments from pointers to them.
extern "C" void shim_launch(void (*kernel)(void **), u32 blocks, u32 blocks_y, u32 threads,
                            u64 shared_bytes, u32 is_cooperative, u64 order, void **arguments) {
    if (threads == 0 || threads > 1024) fail("a block has 1 to 1,024 threads");
    if (threads % 32 && threads > 32) fail("a block is whole warps");
    seed = order;
    Grid here;
    here.kernel = kernel;
    here.arguments = arguments;
    here.is_cooperative = is_cooperative;
    grid = &here;
    size_t stack = STACK_BYTES * threads * (is_cooperative ? size_t(blocks) * blocks_y : 1);
    void *stacks = mmap(nullptr, stack, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) fail("no memory for stacks");
    std::vector<std::unique_ptr<Block>> running;
    auto start = [&](u32 x, u32 y) {
        running.push_back(std::make_unique<Block>());
        Block *block = running.back().get();
        // Nothing may count on what shared memory holds at first.
        block->shared.assign(shared_bytes + 16, 0xa5);
        block->warps.resize((threads + 31) / 32);
        for (u32 thread = 0; thread < threads; thread++) block->warps[thread / 32].lanes++;
        for (u32 thread = 0; thread < threads; thread++) {
            Fibre fibre{};
            fibre.block = block;
            fibre.place = Place{thread, x, y, threads, blocks};
            here.fibres.push_back(fibre);
        }
    };
    auto begin = [&] {
        u8 *at = static_cast<u8 *>(stacks);
        for (Fibre &fibre : here.fibres) {
            getcontext(&fibre.context);
            fibre.context.uc_stack.ss_sp = at;
            fibre.context.uc_stack.ss_size = STACK_BYTES;
            fibre.context.uc_link = nullptr;
            makecontext(&fibre.context, run_fibre, 0);
            at += STACK_BYTES;
        }
        run();
        here.fibres.clear();
        running.clear();
    };
    for (u32 y = 0; y < blocks_y; y++)
        for (u32 x = 0; x < blocks; x++) {
            start(x, y);
            if (!is_cooperative) begin();
        }
    if (is_cooperative) begin();
    munmap(stacks, stack);
    place = nullptr;
    grid = nullptr;
}
