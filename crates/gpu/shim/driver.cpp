// Answers for CUDA's driver by the shim: what src/cuda.rs calls, as the CUDA Driver API manual has it.
// Where a call would be undefined or leak on a GPU, this says so and ends the program.
#include "shim.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

using Lock = std::lock_guard<std::mutex>;
using Clock = std::chrono::steady_clock;
using Kernel = void (*)(void **);

constexpr int INVALID = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500;
constexpr size_t MEMORY_BYTES = size_t(1) << 30;
constexpr int SHARED_MAX = 232448, MULTIPROCESSORS = 4;

struct Function {
    Kernel run;
    std::vector<u32> sizes;
    int dynamic_max = 48 << 10;
};

std::mutex guard;
std::map<u64, size_t> memory, pinned;
size_t taken = 0;
std::set<void *> streams;
std::map<void *, Clock::time_point> events;
std::map<void *, void *> modules;
std::map<void *, Function> functions;
int contexts = 0;
u64 order = 0;
bool has_begun = false;
thread_local std::vector<void *> stack;
char context;

[[noreturn]] void refuse(const char *call, const char *what) {
    std::fprintf(stderr, "stand-in driver: %s: %s\n", call, what);
    std::abort();
}
void enter(const char *call) {
    if (!has_begun) refuse(call, "before cuInit");
    if (stack.empty() || !contexts) refuse(call, "no context is current");
}
void look(const char *call, const std::map<u64, size_t> &in, u64 at, size_t bytes) {
    auto after = in.upper_bound(at);
    if (after == in.begin()) refuse(call, "no such memory");
    auto found = std::prev(after);
    if (at + bytes > found->first + found->second) refuse(call, "past the end of its memory");
}
void look_stream(const char *call, void *stream) {
    if (!streams.count(stream)) refuse(call, "no such stream");
}
void *load(const char *variable, int flags) {
    const char *path = std::getenv(variable);
    void *library = path ? dlopen(path, flags) : nullptr;
    if (!library) refuse(variable, "nothing there to load");
    return library;
}

} // namespace

#define CALL extern "C" __attribute__((visibility("default"))) int
#define ENTER                                                                                      \
    enter(__func__);                                                                               \
    Lock lock(guard)

CALL cuInit(u32 flags) {
    if (flags) refuse(__func__, "flags");
    has_begun = true;
    return 0;
}
CALL cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}
CALL cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}
CALL cuDeviceGet(int *device, int index) {
    *device = 40 + index;
    return index == 0 ? 0 : 101;
}
CALL cuDeviceGetName(char *name, int bytes, int device) {
    std::snprintf(name, size_t(bytes), "stand-in %d", device);
    return 0;
}
CALL cuDeviceGetAttribute(int *value, int attribute, int device) {
    if (device != 40) return 101;
    switch (attribute) {
    case 16: *value = MULTIPROCESSORS; return 0;
    case 75: *value = 9; return 0;
    case 76: *value = 0; return 0;
    case 97: *value = SHARED_MAX; return 0;
    }
    return INVALID;
}
CALL cuDeviceTotalMem_v2(size_t *bytes, int) {
    *bytes = MEMORY_BYTES;
    return 0;
}
CALL cuGetErrorName(int error, const char **name) {
    *name = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_STAND_IN";
    return 0;
}
CALL cuGetErrorString(int, const char **words) {
    *words = "see driver.cpp";
    return 0;
}
CALL cuDevicePrimaryCtxRetain(void **out, int device) {
    Lock lock(guard);
    if (device != 40 || !has_begun) refuse(__func__, "no such device");
    contexts++;
    *out = &context;
    return 0;
}
CALL cuDevicePrimaryCtxRelease_v2(int device) {
    Lock lock(guard);
    if (device != 40 || --contexts < 0) refuse(__func__, "not retained");
    if (!contexts && (memory.size() || pinned.size() || streams.size() || events.size() || modules.size()))
        refuse(__func__, "something of it is left");
    return 0;
}
CALL cuCtxPushCurrent_v2(void *which) {
    if (which != &context) refuse(__func__, "no such context");
    stack.push_back(which);
    return 0;
}
CALL cuCtxPopCurrent_v2(void **which) {
    if (stack.empty()) refuse(__func__, "nothing to pop");
    *which = stack.back();
    stack.pop_back();
    return 0;
}
CALL cuCtxSynchronize() {
    ENTER;
    return 0;
}
CALL cuMemGetInfo_v2(size_t *free, size_t *all) {
    ENTER;
    *free = MEMORY_BYTES - taken;
    *all = MEMORY_BYTES;
    return 0;
}
CALL cuMemAlloc_v2(u64 *address, size_t bytes) {
    ENTER;
    if (bytes == 0) return INVALID;
    if (bytes > MEMORY_BYTES - taken) return OUT_OF_MEMORY;
    size_t whole = (bytes + 255) / 256 * 256;
    void *at = std::aligned_alloc(256, whole);
    std::memset(at, 0xa5, whole);
    *address = reinterpret_cast<u64>(at);
    memory[*address] = bytes;
    taken += bytes;
    return 0;
}
CALL cuMemFree_v2(u64 address) {
    ENTER;
    auto found = memory.find(address);
    if (found == memory.end()) refuse(__func__, "no such memory");
    taken -= found->second;
    memory.erase(found);
    std::free(reinterpret_cast<void *>(address));
    return 0;
}
CALL cuMemHostAlloc(void **out, size_t bytes, u32 flags) {
    ENTER;
    if (flags & ~1u) refuse(__func__, "flags");
    *out = std::malloc(bytes);
    std::memset(*out, 0xa5, bytes);
    pinned[reinterpret_cast<u64>(*out)] = bytes;
    return 0;
}
CALL cuMemFreeHost(void *at) {
    ENTER;
    if (!pinned.erase(reinterpret_cast<u64>(at))) refuse(__func__, "no such memory");
    std::free(at);
    return 0;
}
CALL cuStreamCreate(void **stream, u32 flags) {
    ENTER;
    if (flags != 1) refuse(__func__, "a stream that waits for others");
    streams.insert(*stream = std::malloc(1));
    return 0;
}
CALL cuStreamDestroy_v2(void *stream) {
    ENTER;
    if (!streams.erase(stream)) refuse(__func__, "no such stream");
    std::free(stream);
    return 0;
}
CALL cuStreamSynchronize(void *stream) {
    ENTER;
    look_stream(__func__, stream);
    return 0;
}
CALL cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t bytes, void *stream) {
    ENTER;
    look_stream(__func__, stream);
    look(__func__, memory, to, bytes);
    std::memcpy(reinterpret_cast<void *>(to), from, bytes);
    return 0;
}
CALL cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t bytes, void *stream) {
    ENTER;
    look_stream(__func__, stream);
    look(__func__, memory, from, bytes);
    std::memcpy(to, reinterpret_cast<void *>(from), bytes);
    return 0;
}
CALL cuMemsetD8Async(u64 to, unsigned char byte, size_t bytes, void *stream) {
    ENTER;
    look_stream(__func__, stream);
    look(__func__, memory, to, bytes);
    std::memset(reinterpret_cast<void *>(to), byte, bytes);
    return 0;
}
CALL cuModuleLoadData(void **module, const void *image) {
    ENTER;
    if (std::memcmp(image, "\x7f" "ELF", 4)) refuse(__func__, "no machine code");
    *module = std::malloc(1);
    load("HUSHTABLE_STAND_IN_SCHEDULER", RTLD_NOW | RTLD_GLOBAL);
    modules[*module] = load("HUSHTABLE_STAND_IN_MODULE", RTLD_NOW);
    return 0;
}
CALL cuModuleUnload(void *module) {
    ENTER;
    if (!modules.erase(module)) refuse(__func__, "no such module");
    std::free(module);
    return 0;
}
CALL cuModuleGetFunction(void **function, void *module, const char *name) {
    ENTER;
    if (!modules.count(module)) refuse(__func__, "no such module");
    void *run = dlsym(modules[module], ("launch_" + std::string(name)).c_str());
    void *sizes = dlsym(modules[module], ("sizes_" + std::string(name)).c_str());
    if (!run || !sizes) return NOT_FOUND;
    u32 each[64];
    u32 count = reinterpret_cast<u32 (*)(u32 *)>(sizes)(each);
    Function &made = functions[run];
    made.run = reinterpret_cast<Kernel>(run);
    made.sizes.assign(each, each + count);
    *function = run;
    return 0;
}
CALL cuFuncGetAttribute(int *value, int attribute, void *function) {
    ENTER;
    if (attribute != 1 || !functions.count(function)) return INVALID;
    *value = 0;
    return 0;
}
CALL cuFuncSetAttribute(void *function, int attribute, int value) {
    ENTER;
    if (attribute != 8 || value < 0 || value > SHARED_MAX || !functions.count(function))
        return INVALID;
    functions[function].dynamic_max = value;
    return 0;
}
CALL cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes) {
    ENTER;
    const Function &asked = functions.at(function);
    if (index >= asked.sizes.size()) return INVALID;
    *offset = 0;
    *bytes = asked.sizes[index];
    return 0;
}
CALL cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads,
                                                 size_t shared_bytes) {
    ENTER;
    if (!functions.count(function)) return INVALID;
    size_t by_shared = size_t(SHARED_MAX) / (shared_bytes ? shared_bytes : 1);
    *blocks = int(std::min<size_t>({size_t(2048 / threads), by_shared, 32}));
    return 0;
}

static int launch(const char *call, void *function, u32 x, u32 y, u32 z, u32 threads, u32 ty, u32 tz,
                  u32 shared_bytes, void *stream, void **arguments, bool is_cooperative) {
    // The last is where a launch is counted: nowhere.
    using Launch = void (*)(Kernel, u32, u32, u32, u64, u32, u64, void **, void *);
    Kernel run;
    u64 turn;
    {
        enter(call);
        Lock lock(guard);
        look_stream(call, stream);
        if (!functions.count(function)) refuse(call, "no such kernel");
        if (z != 1 || ty != 1 || tz != 1) refuse(call, "more axes than kernels know");
        const Function &asked = functions[function];
        if (int(shared_bytes) > asked.dynamic_max) return INVALID;
        run = asked.run;
        turn = order++;
    }
    void *scheduler = load("HUSHTABLE_STAND_IN_SCHEDULER", RTLD_NOW | RTLD_GLOBAL);
    reinterpret_cast<Launch>(dlsym(scheduler, "shim_launch"))(run, x, y, threads, shared_bytes,
                                                              is_cooperative, turn, arguments, nullptr);
    return 0;
}
CALL cuLaunchKernel(void *function, u32 x, u32 y, u32 z, u32 threads, u32 ty, u32 tz,
                    u32 shared_bytes, void *stream, void **arguments, void **extra) {
    if (extra) refuse(__func__, "extra");
    return launch(__func__, function, x, y, z, threads, ty, tz, shared_bytes, stream, arguments, false);
}
CALL cuLaunchCooperativeKernel(void *function, u32 x, u32 y, u32 z, u32 threads, u32 ty, u32 tz,
                               u32 shared_bytes, void *stream, void **arguments) {
    return launch(__func__, function, x, y, z, threads, ty, tz, shared_bytes, stream, arguments, true);
}

CALL cuEventCreate(void **event, u32 flags) {
    ENTER;
    if (flags) refuse(__func__, "an event that keeps no time");
    events[*event = std::malloc(1)] = {};
    return 0;
}
CALL cuEventRecord(void *event, void *stream) {
    ENTER;
    look_stream(__func__, stream);
    if (!events.count(event)) refuse(__func__, "no such event");
    events[event] = Clock::now();
    return 0;
}
CALL cuEventSynchronize(void *event) {
    ENTER;
    if (!events.count(event)) refuse(__func__, "no such event");
    return 0;
}
CALL cuStreamWaitEvent(void *stream, void *event, u32 flags) {
    ENTER;
    look_stream(__func__, stream);
    if (flags || !events.count(event)) refuse(__func__, "no such event");
    return 0;
}
CALL cuEventElapsedTime(float *milliseconds, void *from, void *to) {
    ENTER;
    if (!events.count(from) || !events.count(to)) refuse(__func__, "no such event");
    *milliseconds = std::chrono::duration<float, std::milli>(events[to] - events[from]).count();
    return 0;
}
CALL cuEventDestroy_v2(void *event) {
    ENTER;
    if (!events.erase(event)) refuse(__func__, "no such event");
    std::free(event);
    return 0;
}
