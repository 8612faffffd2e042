// The paper's fused strategy (Lam et al., "GPU-based Private Information Retrieval for On-Device
// Machine Learning Inference", section III-C, optimisations 2 and 3): a block has one key to
// itself, expands K nodes at a time, depth first, and multiplies K leaves with their rows before it
// goes on.
//
// Macros: PRG, GROUP_ID, TILES; ROW_LEAVES (chunks.cuh).
//
// The floor is the expansion's, as in tensor.cu; but every key reads all of the table, so that
// beyond what the L2 cache holds memory binds: table bytes a key. K of at least a superblock's
// leaves reads the table in whole lines; with fewer a line is read in up to four pieces. Rows of
// several strips are expanded once a strip.
#include "chunks.cuh"

// Grid: x: keys; y: (node of level `root`, strip): a block a key where `root` is 0, as the paper's
// fused strategy has it, or 2^root blocks on a key. Shared memory: PRG_SHARED_BYTES and what Chunks
// says.
KERNEL_BOUNDS(256, 2)
fused(const u8 *table, const u32 *keys, u32 *to, u32 key_words, u32 depth, u32 root, u32 log_k,
      u32 table_height, u32 strips, u32 steps) {
    SHARED(shared);
    prg_prepare(shared);
    block_sync();
    Shape shape = {table_height, strips, 0};
    u32 strip = block_index_y() % strips, part = block_index_y() / strips;
    Chunks chunks;
    begin_chunks(chunks, shared, keys + (u64)block_index() * key_words, depth, root, part, log_k);
    u32 sums[WARP_TILES], rows = chunk_leaves(chunks) * LEAF_ROWS;
    clear_sums(sums);
    for (u32 chunk = 0; chunk < chunk_count(chunks); chunk++) {
        next_chunk(chunks, chunk);
        convert_chunk(chunks, chunks.shares);
        u64 first = ((u64)part << (depth - root)) * LEAF_ROWS + (u64)chunk * rows;
        multiply_rows(sums, table, shape, strip, steps, chunks.shares, first, rows);
        block_sync();
    }
    add_sums(sums, to + ((u64)block_index() * strips + strip) * TILES * 8);
}
