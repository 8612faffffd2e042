// The table on the device, in fragment order.
//
// One stored form serves every group: the table's own bytes, padded with zeros, in the order in
// which the lanes of a warp need them as the right-hand side of multiply_tile(). Row r is byte
// b = r % 4 of word w = r % 64 / 4 of table leaf L = r / 64. A superblock is 4 S leaves, S = 2^h:
// leaf t S + s of it belongs to the lanes 4 n + t and to step s, so that each of the four lanes
// that share a column has a subtree of S leaves to itself. Columns are bytes of a row: tiles of 8,
// in strips of TILES tiles.
//
// A step of a strip is STEP_BYTES in a row, in the order (j, tile, lane, half, b), where w = 2 j +
// half and lane = 4 n + t for column n of the tile. Steps are in the order (superblock, strip, s).
//
// Sums are words, [key][strips x TILES x 8]: the sum of a byte column, of which more than the low
// byte matters in Z_2^32 alone.
#pragma once
#include "platform.cuh"

#define LANE_BYTES 8
#define TILE_BYTES 256
#define LINE_BYTES (TILES * TILE_BYTES)
#define STEP_BYTES (8 * LINE_BYTES)
#define TABLE_LEAF_ROWS 64

// How a launch sees the table: all of it, or the superblocks that are on the device just now.
struct Shape {
    u32 height;      // h: log2 of a superblock's steps
    u32 strips;      // strips of a row
    u32 first_block; // number of the superblock at the table's first byte
};

// Where step `step` of a strip is, counted from the first superblock present.
DEVICE const u8 *step_at(const u8 *table, const Shape &shape, u32 strip, u32 step) {
    u32 block = step >> shape.height;
    u64 at =
        (((u64)block * shape.strips + strip) << shape.height) + (step - (block << shape.height));
    return table + at * STEP_BYTES;
}
