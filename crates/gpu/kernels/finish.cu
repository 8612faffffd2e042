// Sums to answers.
//
// Macros: GROUP_ID.
#include "platform.cuh"

// answers[key][row_bytes], a thread a byte, from sums[key][columns]. In the additive groups a right
// server's shares count negatively: its answer is negated here, once, and not share by share. The
// side is the control bit of the key's root.
KERNEL finish(const u32 *sums, const u32 *keys, u8 *answers, u32 key_count, u32 key_words,
              u32 columns, u32 row_bytes) {
    u64 at = (u64)block_index() * block_threads() + thread_index();
    if (at >= (u64)key_count * row_bytes) return;
    u32 key = (u32)(at / row_bytes), column = (u32)(at % row_bytes);
    const u32 *row = sums + (u64)key * columns;
    u32 value = row[column], shift = 0;
#if GROUP_ID == 2
    const u32 *word = row + column / 4 * 4;
    value = word[0] + (word[1] << 8) + (word[2] << 16) + (word[3] << 24);
    shift = column % 4 * 8;
#endif
#if GROUP_ID != 0
    u32 right = 0u - (keys[(u64)key * key_words] & 1);
    value = (value ^ right) - right;
#endif
    answers[at] = (u8)(value >> shift);
}
