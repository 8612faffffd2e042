// K leaves of one key at a time, and their product with the table: what fused.cu and ablation.cu have
// in common. A block has one key.
//
// Macros: PRG, GROUP_ID, TILES; ROW_LEAVES: 1 for trees with a leaf for each row, as the paper has
// them (words alone), 0 or none for leaves of as many rows as 512 bits hold.
#pragma once
#include "product.cuh"
#include "tree.cuh"

#ifndef ROW_LEAVES
#define ROW_LEAVES 0
#endif

// SHARE_WORDS: what is kept of a leaf.
#if ROW_LEAVES
#if GROUP_ID != 2
#error "a leaf a row is of words"
#endif
#define LEAF_ROWS 1
#define SHARE_WORDS 1
#elif GROUP_ID == 0
#define LEAF_ROWS 512
#elif GROUP_ID == 1
#define LEAF_ROWS 64
#else
#define LEAF_ROWS 16
#endif
#if !ROW_LEAVES
#define SHARE_WORDS 16
#endif

// A block's warps: TILE_WARPS along a row, STEP_WARPS along the steps, perhaps some left over.
#define TILE_WARPS (TILES < 8 ? TILES : 8)
#define STEP_WARPS (8 / TILE_WARPS)
#define WARP_TILES ((TILES + TILE_WARPS - 1) / TILE_WARPS)

// `count` nodes to twice as many, a thread a node.
DEVICE void expand_all(const Node *from, Node *to, u32 count, const u32 *correction) {
    for (u32 i = thread_index(); i < count; i += block_threads()) {
        Node left, right;
        expand_node(from[i], correction, left, right);
        to[2 * i] = left;
        to[2 * i + 1] = right;
    }
    block_sync();
}

// The shares of rows `row` to `row + 7` of those in shared memory.
DEVICE void find_octet(Octet &octet, const u32 *shares, u32 row) {
#if GROUP_ID == 0
    spread_octet(octet, shares[row / 32] >> row % 32);
#elif GROUP_ID == 1
    octet.w[0] = shares[row / 4], octet.w[1] = shares[row / 4 + 1];
#else
    load_words(octet.w, shares + row);
#endif
}

// Multiplies `rows` rows from `first_row` on (a power of two and a multiple of it), whose shares
// are in shared memory, with the table. Lane 4 n + t reads column n of a tile in the leaves of t.
DEVICE void multiply_rows(u32 (&sums)[WARP_TILES], const u8 *table, const Shape &shape, u32 strip,
                          u32 steps, const u32 *shares, u64 first_row, u32 rows) {
    u32 warp = thread_index() / 32, lane = thread_index() % 32;
    u64 first_leaf = first_row / TABLE_LEAF_ROWS, block = first_leaf >> shape.height >> 2;
    u32 leaves = rows < TABLE_LEAF_ROWS ? 1 : rows / TABLE_LEAF_ROWS, side = 1u << shape.height;
    // Leaves of the same s are of one step: these many steps from `first` on have rows of ours.
    u64 first = block << shape.height;
    u32 count = side;
    if (leaves >= 4 * side) count = leaves / 4;
    if (leaves < side) {
        first += first_leaf & (side - 1);
        count = leaves;
    }
    if (warp >= TILE_WARPS * STEP_WARPS) return;
    for (u64 step = first + warp / TILE_WARPS; step < first + count && step < steps;
         step += STEP_WARPS) {
        u64 leaf = (((step >> shape.height) * 4 + lane % 4) << shape.height) + (step & (side - 1));
        const u8 *lines = step_at(table, shape, strip, (u32)step) + lane * LANE_BYTES;
        for (u32 j = 0; j < 8; j++) {
            u64 row = leaf * TABLE_LEAF_ROWS + 8 * j - first_row;
            if (row >= rows) continue;
            Octet octet;
            find_octet(octet, shares, (u32)row);
            UNROLL for (int i = 0; i < WARP_TILES; i++) {
                u32 tile = warp % TILE_WARPS + i * TILE_WARPS;
                if (tile >= TILES) continue;
                Vec2 words = load_2(lines + j * LINE_BYTES + tile * TILE_BYTES);
                add_products(sums[i], octet, words.x, words.y);
            }
        }
    }
}

// A leaf's shares, from its node.
DEVICE void make_shares(u32 *to, const Node &node, const u32 *correction) {
    u32 leaf[LEAF_WORDS];
    convert_leaf(node, leaf);
    correct_leaf<GROUP_ID>(node, correction, leaf);
#if ROW_LEAVES
    store_1(to, leaf[0]);
#else
    UNROLL for (int word = 0; word < 16; word += 4)
        store_4(to + word, leaf[word], leaf[word + 1], leaf[word + 2], leaf[word + 3]);
#endif
}

// Where a block's nodes, its stacks and its shares are in shared memory: K nodes twice, K / 2 nodes
// for each level below the first that has K, K leaves. K = 2^log_k, at least 2.
struct Chunks {
    const u32 *levels; // corrections
    u32 depth;         // of the tree
    u32 root;          // the level of the node that the block begins at
    u32 top;           // the first level of K nodes, or the leaves
    u32 width;         // K
    Node *nodes, *other, *stack;
    u32 *shares;
};

// Before the first chunk: the nodes of level `top` below node `index` of level `root`.
DEVICE void begin_chunks(Chunks &chunks, u8 *shared, const u32 *key, u32 depth, u32 root, u32 index,
                         u32 log_k) {
    u32 height = depth - root, below = height < log_k ? height : log_k;
    chunks.levels = key + NODE_WORDS, chunks.depth = depth, chunks.root = root;
    chunks.top = root + below, chunks.width = 1u << log_k;
    chunks.nodes = (Node *)(shared + PRG_SHARED_BYTES), chunks.other = chunks.nodes + chunks.width;
    chunks.stack = chunks.other + chunks.width;
    chunks.shares = (u32 *)(chunks.stack + (depth - chunks.top) * (chunks.width / 2));
    if (thread_index() == 0) {
        Key words = {key, depth};
        chunks.nodes[0] = walk(words, root, index);
    }
    block_sync();
    for (u32 level = root; level < chunks.top; level++) {
        expand_all(chunks.nodes, chunks.other, 1u << (level - root),
                   chunks.levels + LEVEL_WORDS * level);
        Node *swap = chunks.nodes;
        chunks.nodes = chunks.other, chunks.other = swap;
    }
}

// Chunks of a block, and leaves of one.
DEVICE u32 chunk_count(const Chunks &chunks) { return 1u << (chunks.depth - chunks.top); }
DEVICE u32 chunk_leaves(const Chunks &chunks) { return 1u << (chunks.top - chunks.root); }

// Leaves the nodes of chunk `chunk`'s leaves in `nodes`; chunks come in their order.
DEVICE void next_chunk(Chunks &chunks, u32 chunk) {
    u32 level = chunks.top, half = chunks.width / 2;
    if (chunk) {
        // The half that waits at the lowest level where one does.
        level = chunks.depth;
        for (u32 rest = chunk; rest % 2 == 0; rest /= 2) level--;
        expand_all(chunks.stack + (level - 1 - chunks.top) * half, chunks.nodes, half,
                   chunks.levels + LEVEL_WORDS * (level - 1));
    }
    for (; level < chunks.depth; level++) {
        for (u32 i = thread_index(); i < half; i += block_threads())
            chunks.stack[(level - chunks.top) * half + i] = chunks.nodes[half + i];
        expand_all(chunks.nodes, chunks.other, half, chunks.levels + LEVEL_WORDS * level);
        Node *swap = chunks.nodes;
        chunks.nodes = chunks.other, chunks.other = swap;
    }
}

// Writes the shares of the chunk's leaves to `to`.
DEVICE void convert_chunk(const Chunks &chunks, u32 *to) {
    for (u32 i = thread_index(); i < chunk_leaves(chunks); i += block_threads())
        make_shares(to + SHARE_WORDS * i, chunks.nodes[i],
                    chunks.levels + LEVEL_WORDS * chunks.depth);
    block_sync();
}

DEVICE void clear_sums(u32 (&sums)[WARP_TILES]) {
    UNROLL for (int i = 0; i < WARP_TILES; i++) sums[i] = 0;
}

// Adds a block's sums to those of its key and strip.
DEVICE void add_sums(const u32 (&sums)[WARP_TILES], u32 *row) {
    UNROLL for (int i = 0; i < WARP_TILES; i++) {
        u32 sum = sums[i];
        UNROLL for (int lanes = 1; lanes < 4; lanes *= 2) {
            u32 others = warp_shuffle_xor(sum, lanes);
            sum = GROUP_ID == 0 ? sum ^ others : sum + others;
        }
        u32 warp = thread_index() / 32, lane = thread_index() % 32,
            tile = warp % TILE_WARPS + i * TILE_WARPS;
        if (tile < TILES && warp < TILE_WARPS * STEP_WARPS && lane % 4 == 0)
            add_sum(row + tile * 8 + lane / 4, sum);
    }
}
