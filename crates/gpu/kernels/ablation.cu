// The paper's steps before fusion (Lam et al., "GPU-based Private Information Retrieval for On-Device
// Machine Learning Inference", section III-C), so that each differs from the next in one thing: how
// a key is expanded, then whether its shares go through memory. A block has one key in all of them,
// the same threads, generator, leaves and product; the step after these is fused.cu, and the one
// after that gives it more blocks a key.
//
// Macros: PRG, GROUP_ID, TILES; ROW_LEAVES (chunks.cuh).
//
// Shares are [key][leaf][SHARE_WORDS]. Per key of L leaves and d levels, generator calls: L (d + 1)
// from the root, 2 L - 1 in the others. Device memory beside the table, shares and sums: none from
// the root, 24 bytes a leaf level by level, none by chunks.
#include "chunks.cuh"

DEVICE u32 *shares_of(u32 *shares, u32 leaves) {
    return shares + (u64)block_index() * leaves * SHARE_WORDS;
}

// a) The base: every thread goes from the root to each of its leaves. Grid: x: keys.
KERNEL_BOUNDS(256, 2)
step_from_root(const u32 *keys, u32 *shares, u32 key_words, u32 depth) {
    SHARED(shared);
    prg_prepare(shared);
    block_sync();
    const Key key = {keys + (u64)block_index() * key_words, depth};
    u32 *to = shares_of(shares, 1u << depth);
    for (u32 leaf = thread_index(); leaf < 1u << depth; leaf += block_threads())
        make_shares(to + (u64)SHARE_WORDS * leaf, walk(key, depth, leaf),
                    correction_of(key, depth));
}

// b) Level by level, through device memory: `nodes` has a key's leaves, `others` half as many.
// Grid: x: keys.
KERNEL_BOUNDS(256, 2)
step_by_levels(const u32 *keys, u32 *shares, u32 *nodes, u32 *others, u32 key_words, u32 depth) {
    SHARED(shared);
    prg_prepare(shared);
    block_sync();
    const Key key = {keys + (u64)block_index() * key_words, depth};
    u32 *last = nodes + ((u64)block_index() << depth) * NODE_WORDS,
        *before = others + ((u64)block_index() << depth) / 2 * NODE_WORDS;
    // A tree of one leaf has no level before the last, nor half of a node.
    u32 *from = depth % 2 ? before : last, *to = depth % 2 ? last : before;
    if (thread_index() == 0) store_node(from, load_of_key(key.words));
    block_sync();
    for (u32 level = 0; level < depth; level++) {
        for (u32 i = thread_index(); i < 1u << level; i += block_threads()) {
            Node left, right;
            expand_node(load_node(from + (u64)NODE_WORDS * i), correction_of(key, level), left,
                        right);
            store_node(to + (u64)NODE_WORDS * 2 * i, left);
            store_node(to + (u64)NODE_WORDS * (2 * i + 1), right);
        }
        u32 *swap = from;
        from = to, to = swap;
        block_sync();
    }
    u32 *leaves = shares_of(shares, 1u << depth);
    for (u32 i = thread_index(); i < 1u << depth; i += block_threads())
        make_shares(leaves + (u64)SHARE_WORDS * i, load_node(from + (u64)NODE_WORDS * i),
                    correction_of(key, depth));
}

// c) K nodes at a time, depth first: the expansion of fused.cu. Grid: x: keys.
KERNEL_BOUNDS(256, 2)
step_by_chunks(const u32 *keys, u32 *shares, u32 key_words, u32 depth, u32 log_k) {
    SHARED(shared);
    prg_prepare(shared);
    block_sync();
    Chunks chunks;
    begin_chunks(chunks, shared, keys + (u64)block_index() * key_words, depth, 0, 0, log_k);
    u32 *to = shares_of(shares, 1u << depth);
    for (u32 chunk = 0; chunk < chunk_count(chunks); chunk++) {
        next_chunk(chunks, chunk);
        convert_chunk(chunks, to + (u64)chunk * chunk_leaves(chunks) * SHARE_WORDS);
    }
}

// The product of a), b) and c): that of fused.cu, K leaves at a time, of shares from memory.
// Grid: x: keys; y: strips. Shared memory: K leaves.
KERNEL_BOUNDS(256, 2)
step_multiply(const u8 *table, const u32 *shares, u32 *to, u32 depth, u32 log_k, u32 table_height,
              u32 strips, u32 steps) {
    SHARED(shared);
    u32 *own = (u32 *)shared;
    Shape shape = {table_height, strips, 0};
    u32 leaves = 1u << (depth < log_k ? depth : log_k), rows = leaves * LEAF_ROWS;
    const u32 *from = shares + ((u64)block_index() << depth) * SHARE_WORDS;
    u32 sums[WARP_TILES];
    clear_sums(sums);
    for (u32 chunk = 0; chunk < (1u << depth) / leaves; chunk++) {
        for (u32 i = thread_index(); i < leaves * SHARE_WORDS / 4; i += block_threads()) {
            Vec4 words = load_4(from + (u64)chunk * leaves * SHARE_WORDS + 4 * i);
            store_4(own + 4 * i, words.x, words.y, words.z, words.w);
        }
        block_sync();
        multiply_rows(sums, table, shape, block_index_y(), steps, own, (u64)chunk * rows, rows);
        block_sync();
    }
    add_sums(sums, to + ((u64)block_index() * strips + block_index_y()) * TILES * 8);
}
