// The scheduler of the shim: see shim.h.
#include "shim.h"

#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

namespace shim {
namespace {

constexpr size_t STACK_BYTES = 128 << 10;
// A guard page a stack is a mapping of its own, and a process may have some 65,000.
constexpr size_t GUARDED_STACKS = 8192;

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// Pages; what is right after `bytes` of them, rounded up to 16, may not be touched.
class Pages {
  public:
    explicit Pages(size_t bytes) : bytes(bytes) {
        size_t page = page_bytes(), used = (bytes + 15) / 16 * 16;
        size_t whole = (used + page - 1) / page * page;
        mapped = whole + page;
        base = map(mapped);
        if (mprotect(base + whole, page, PROT_NONE)) fail("no guard page");
        start = base + whole - used;
        std::memset(base, 0xa5, whole);
    }
    ~Pages() { munmap(base, mapped); }
    Pages(const Pages &) = delete;
    static u8 *map(size_t bytes) {
        void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) fail("no memory");
        return static_cast<u8 *>(at);
    }
    bool has(const u8 *address) const { return address >= start && address < start + bytes; }
    u8 *start;

  private:
    size_t bytes;
    u8 *base;
    size_t mapped;
};

struct Warp {
    // Two, taken in turn: who goes on to the next exchange leaves this one's values as they are, and
    // cannot be two ahead of a lane that has not yet taken them.
    alignas(16) u8 values[2][32 * EXCHANGE_BYTES];
    u32 lanes = 0, arrived = 0, turn = 0;
};

struct Block {
    explicit Block(size_t shared_bytes) : shared(shared_bytes) {}
    Pages shared;
    std::vector<Warp> warps;
    u32 arrived = 0, turn = 0;
};

struct Fibre {
    ucontext_t start;
    jmp_buf place_in_code;
    Place place;
    Block *block;
    bool has_begun, is_done;
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
thread_local jmp_buf scheduler;
thread_local bool has_moved;
thread_local u64 seed;

u64 draw() {
    seed += 0x9e3779b97f4a7c15;
    u64 z = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

// Jumps between stacks by _setjmp and _longjmp: swapcontext asks the system each time.
__attribute__((noinline)) void resume(Fibre &fibre) {
    current = &fibre;
    place = &fibre.place;
    if (_setjmp(scheduler)) return;
    if (fibre.has_begun) _longjmp(fibre.place_in_code, 1);
    fibre.has_begun = true;
    setcontext(&fibre.start);
}

__attribute__((noinline)) void yield() {
    if (!_setjmp(current->place_in_code)) _longjmp(scheduler, 1);
}

void run_fibre() {
    grid->kernel(grid->arguments);
    current->is_done = true;
    has_moved = true;
    // Those that wait for a thread that has ended wait in vain; see run().
    yield();
}

void prepare(Fibre &fibre, u8 *stack) {
    getcontext(&fibre.start);
    fibre.start.uc_stack.ss_sp = stack;
    fibre.start.uc_stack.ss_size = STACK_BYTES;
    fibre.start.uc_link = nullptr;
    makecontext(&fibre.start, run_fibre, 0);
}

void run() {
    std::vector<u32> order(grid->fibres.size());
    for (u32 i = 0; i < order.size(); i++) order[i] = i;
    while (!order.empty()) {
        for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[draw() % i]);
        has_moved = false;
        size_t live = 0;
        for (u32 i : order) {
            resume(grid->fibres[i]);
            if (!grid->fibres[i].is_done) order[live++] = i;
        }
        order.resize(live);
        if (!has_moved && live) fail("some threads wait at a barrier that the others do not reach");
    }
}

struct sigaction before;

// Says which thread touched what it may not, and leaves the rest to who was asked before.
void say_where(int, siginfo_t *, void *) {
    char text[128];
    int bytes = 0;
    if (place)
        bytes = std::snprintf(text, sizeof text,
                              "shim: an address out of bounds (block %u, thread %u)\n",
                              place->block, place->thread);
    if (write(2, text, size_t(bytes)) < 0) std::abort();
    sigaction(SIGSEGV, &before, nullptr);
}

bool listen() {
    struct sigaction action = {};
    action.sa_sigaction = say_where;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    return sigaction(SIGSEGV, &action, &before) == 0;
}

// Counts one more at a barrier of `all`, and waits for the others.
void arrive(u32 &arrived, u32 &turn, size_t all) {
    u32 mine = turn;
    has_moved = true;
    if (++arrived == all) {
        arrived = 0;
        turn++;
    }
    while (turn == mine) yield();
    has_moved = true;
}

} // namespace

__thread Place *place;
__thread Counts *counts;

bool is_device_memory(const void *address) {
    const u8 *at = static_cast<const u8 *>(address);
    const u8 *stack = static_cast<const u8 *>(current->start.uc_stack.ss_sp);
    return !current->block->shared.has(at) && (at < stack || at >= stack + STACK_BYTES);
}

void fail(const char *what) {
    std::fprintf(stderr, "shim: %s", what);
    if (place) std::fprintf(stderr, " (block %u, thread %u)", place->block, place->thread);
    std::fprintf(stderr, "\n");
    std::abort();
}

u8 *dynamic_shared() { return current->block->shared.start; }

void block_wait() { arrive(current->block->arrived, current->block->turn, place->threads); }

void grid_wait() {
    if (!grid->is_cooperative) fail("grid_sync in a launch that is not cooperative");
    arrive(grid->arrived, grid->turn, grid->fibres.size());
}

const u8 *warp_exchange(const void *mine, size_t bytes) {
    Warp &warp = current->block->warps[place->thread / 32];
    u8 *values = warp.values[warp.turn % 2];
    std::memcpy(values + place->thread % 32 * EXCHANGE_BYTES, mine, bytes);
    arrive(warp.arrived, warp.turn, warp.lanes);
    return values;
}

} // namespace shim

using namespace shim;

// Runs a kernel that takes its arguments from pointers to them, and adds what it does to `counted`
// if that is not null.
extern "C" void shim_launch(void (*kernel)(void **), u32 blocks, u32 blocks_y, u32 threads,
                            u64 shared_bytes, u32 is_cooperative, u64 order, void **arguments,
                            Counts *counted) {
    if (threads == 0 || threads > 1024 || threads % 32) fail("a block is 1 to 32 whole warps");
    if (blocks == 0 || blocks_y == 0 || blocks_y > 65535) fail("a grid of no or too many blocks");
    static bool is_listening = listen();
    if (!is_listening) fail("no handler of faults");
    seed = order;
    counts = counted;
    Grid here;
    here.kernel = kernel;
    here.arguments = arguments;
    here.is_cooperative = is_cooperative;
    grid = &here;
    size_t fibres = threads * (is_cooperative ? size_t(blocks) * blocks_y : 1);
    u8 *stacks = Pages::map(STACK_BYTES * fibres);
    if (fibres <= GUARDED_STACKS)
        for (size_t i = 0; i < fibres; i++)
            if (mprotect(stacks + i * STACK_BYTES, page_bytes(), PROT_NONE)) fail("no guard page");
    std::vector<std::unique_ptr<Block>> running;
    auto add = [&](u32 x, u32 y) {
        running.push_back(std::make_unique<Block>(shared_bytes));
        Block *block = running.back().get();
        block->warps.resize(threads / 32);
        for (Warp &warp : block->warps) warp.lanes = 32;
        for (u32 thread = 0; thread < threads; thread++) {
            Fibre &fibre = here.fibres.emplace_back();
            fibre.block = block;
            fibre.place = Place{thread, x, y, threads, blocks};
        }
    };
    auto run_added = [&] {
        for (size_t i = 0; i < here.fibres.size(); i++)
            prepare(here.fibres[i], stacks + i * STACK_BYTES);
        run();
        here.fibres.clear();
        running.clear();
    };
    // Blocks in an order that is drawn too: none may count on another's having run.
    std::vector<u64> all(u64(blocks) * blocks_y);
    for (u64 i = 0; i < all.size(); i++) all[i] = i;
    for (size_t i = all.size(); i > 1; i--) std::swap(all[i - 1], all[draw() % i]);
    for (u64 i : all) {
        add(u32(i % blocks), u32(i / blocks));
        if (!is_cooperative) run_added();
    }
    if (is_cooperative) run_added();
    munmap(stacks, STACK_BYTES * fibres);
    place = nullptr;
    grid = nullptr;
    counts = nullptr;
}
