// The product of a layout's bins with the shares of a batch of requests: many short tables, each
// with keys of its own. A part's bins have all the same sizes. Shares come from memory: they are a
// bit a row where the table has a row's bytes, and `expand_trees` (expand.cu), which makes them, is
// spread over keys whatever bin they are for.
//
// Macro: QUERIES (keys a warp: 1, 4 or 8).
//
// The table is [bin][row][vectors of 16 bytes], rows padded with zeros to whole vectors; the bin's
// rows are its leaves' rows, 16 x leaf_groups each. Shares are [request][key of the part][leaf][16
// words], a bit a row from the lowest on. Sums are [request][key of the part][vector][4 words],
// cleared before.
//
// The floor: a batch reads a bin once from memory where a block has keys for all of its requests
// (up to 64 of them), from the L2 cache for the next 64. Per 16 bytes and key there are 4 AND-XORs
// and 3 operations for the row's mask, 7 of the 64 to 128 that a multiprocessor does a cycle: above
// some 30 to 60 keys a bin integer operations bind, and memory below.
#include "platform.cuh"

// Rows that one turn reads: eight loads of 16 bytes a lane are on their way at once.
#define TURN_ROWS 8
#define GROUP_ROWS 16

// A part's bins.
struct Bins {
    u32 leaves;      // of a bin
    u32 leaf_groups; // groups of 16 rows of a leaf
    u32 vectors;     // of a row
    u32 queries;     // keys a bin and request
    u32 keys;        // keys of the part and request
};

// Adds the rows of group `group` of bin `bin` that a key's bits choose to its sums.
DEVICE void multiply_group(u32 (&sums)[QUERIES][4], const u8 *rows, const u32 (&bits)[QUERIES],
                           u32 row_bytes) {
    NO_UNROLL for (u32 first = 0; first < GROUP_ROWS; first += TURN_ROWS) {
        Vec4 row[TURN_ROWS];
        UNROLL for (u32 r = 0; r < TURN_ROWS; r++)
            row[r] = load_4(rows + (u64)(first + r) * row_bytes);
        UNROLL for (u32 q = 0; q < QUERIES; q++) {
            u32 own = bits[q] >> first;
            UNROLL for (u32 r = 0; r < TURN_ROWS; r++) {
                u32 mask = 0 - (own >> r & 1);
                sums[q][0] ^= row[r].x & mask, sums[q][1] ^= row[r].y & mask;
                sums[q][2] ^= row[r].z & mask, sums[q][3] ^= row[r].w & mask;
            }
        }
    }
}

// Grid: x: (bin, chunk of its rows, strip of 32 vectors); y: keys. A warp has QUERIES keys and
// 2^width lanes a row; its other lanes, the block's warps of the same keys and the bin's chunks
// have other rows. `query_warps` warps of a block (1, 2, 4 or 8) have the same rows and other keys.
KERNEL_BOUNDS(256, 2)
multiply_bins(const u8 *table, const u32 *shares, u32 *to, u32 leaves, u32 leaf_groups,
              u32 vectors, u32 queries, u32 keys, u32 key_count, u32 chunks, u32 strips, u32 width,
              u32 query_warps) {
    Bins bins = {leaves, leaf_groups, vectors, queries, keys};
    u32 strip = block_index() % strips, chunk = block_index() / strips % chunks,
        bin = block_index() / strips / chunks;
    u32 warp = thread_index() / 32, lane = thread_index() % 32;
    u32 table_warps = block_threads() / 32 / query_warps;
    u32 first_key = (block_index_y() * query_warps + warp % query_warps) * QUERIES;
    u32 vector = strip * 32 + (lane & ((1u << width) - 1)), slices = 32u >> width;
    u32 place = (chunk * table_warps + warp / query_warps) * slices + (lane >> width);
    u32 stride = chunks * table_warps * slices, groups = bins.leaves * bins.leaf_groups;
    u32 sums[QUERIES][4];
    u64 key[QUERIES];
    UNROLL for (u32 q = 0; q < QUERIES; q++) {
        // Those past the last key do what it does, and leave no sum.
        u32 number = first_key + q < key_count ? first_key + q : key_count - 1;
        u32 request = number / bins.queries, query = number - request * bins.queries;
        key[q] = (u64)request * bins.keys + bin * bins.queries + query;
        UNROLL for (u32 k = 0; k < 4; k++) sums[q][k] = 0;
    }
    u32 row_bytes = bins.vectors * 16;
    const u8 *rows = table + (u64)bin * groups * GROUP_ROWS * row_bytes + vector * 16;
    if (vector < bins.vectors) {
        NO_UNROLL for (u32 group = place; group < groups; group += stride) {
            u32 leaf = group / bins.leaf_groups, within = group - leaf * bins.leaf_groups;
            u32 bits[QUERIES];
            UNROLL for (u32 q = 0; q < QUERIES; q++)
                bits[q] = load_1(shares + (key[q] * bins.leaves + leaf) * 16 + within / 2) >>
                          within % 2 * 16;
            multiply_group(sums, rows + (u64)group * GROUP_ROWS * row_bytes, bits, row_bytes);
        }
    }
    // A row's lanes are next to each other: the others' sums of the same vector lie 2^width apart.
    NO_UNROLL for (u32 apart = 1u << width; apart < 32; apart *= 2) {
        UNROLL for (u32 q = 0; q < QUERIES; q++)
            UNROLL for (u32 k = 0; k < 4; k++)
                sums[q][k] ^= warp_shuffle_xor(sums[q][k], apart);
    }
    if (lane >> width || vector >= bins.vectors) return;
    UNROLL for (u32 q = 0; q < QUERIES; q++) {
        if (first_key + q >= key_count) continue;
        UNROLL for (u32 k = 0; k < 4; k++)
            atomic_xor(to + (key[q] * bins.vectors + vector) * 4 + k, sums[q][k]);
    }
}
