// Shares from memory times the table, on CUDA cores: for few keys, and for the groups that the
// tensor cores have no products for.
//
// Macros: GROUP_ID; TILES; QUERIES (keys a warp); PAIRS (pairs of tiles a warp); LINES (loads a
// pair in flight: 1, 2, 4 or 8).
//
// One key is bound by memory: 16 bytes of table (a lane's load) take 4 integer operations in Z_2^8,
// and 28 with bits, of the 64 to 128 a cycle of a multiprocessor, which gets 21 bytes of memory a
// cycle (4.8 TB/s over 132 multiprocessors at 1.75 GHz). Four loads of 16 bytes a lane in flight
// are 64 KiB a multiprocessor of 1,024 threads, where 36 KiB cover a microsecond of latency.
// Many keys are bound by integer operations, per 4 bytes of table and key: 1 dot product in Z_2^8;
// 1 AND-XOR and 5 / PAIRS for the mask with bits; 8 in Z_2^32.
#include "product.cuh"

#define PAIR_GROUPS (((TILES + 1) / 2 + PAIRS - 1) / PAIRS)

// Warps of a block: `query_warps` of them (1, 2, 4 or 8) have the same table and other keys, so
// that the first-level cache serves all but one. Grid: x: warps over (step, strip, pairs); y: keys.
// As many blocks as keep all in registers: `product_blocks` in plan.rs.
KERNEL_BOUNDS(256, QUERIES > 1 ? 2 : GROUP_ID == 2 ? 3 : 4)
multiply(const u8 *table, const u32 *shares, u32 *sums, u64 share_words, u32 key_count, u32 leaves,
         u32 table_height, u32 strips, u32 first_block, u32 steps, u32 query_warps) {
    Shape shape = {table_height, strips, first_block};
    Product product = {table, shares, sums, share_words, key_count, leaves, steps};
    u32 warp = thread_index() / 32, table_warps = block_threads() / 32 / query_warps;
    u32 first_key = (block_index_y() * query_warps + warp % query_warps) * QUERIES;
    u32 place = block_index() * table_warps + warp / query_warps;
    u32 places = strips * PAIR_GROUPS, stride = grid_blocks() * table_warps / places;
    u32 at = place % places;
    // The last warps, too few for a row of places, have nothing to do.
    if (first_key >= key_count || place / places >= stride) return;
    multiply_steps<QUERIES, PAIRS, LINES>(product, shape, first_key, at / PAIR_GROUPS,
                                          at % PAIR_GROUPS * PAIRS, place / places, stride);
}
