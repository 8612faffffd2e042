// The paper's fused strategy (Lam et al., "GPU-based Private Information Retrieval for On-Device
// Machine Learning Inference", section III-C, optimisations 2 and 3): a block has one key to
// itself, expands K nodes at a time, depth first, and multiplies K leaves with their rows before it
// goes on.
//
// Macros: PRG, GROUP_ID, TILES.
//
// The floor is the expansion's, as in tensor.cu; but every key reads all of the table, so that
// beyond what the L2 cache holds memory binds: table bytes a key. K of at least a superblock's
// leaves reads the table in whole lines; with fewer a line is read in up to four pieces. Rows of
// several strips are expanded once a strip.
#include "product.cuh"
#include "tree.cuh"

#if GROUP_ID == 0
#define LEAF_ROWS 512
#elif GROUP_ID == 1
#define LEAF_ROWS 64
#else
#define LEAF_ROWS 16
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

// Grid: x: keys; y: strips. Shared memory: PRG_SHARED_BYTES, K nodes twice, K / 2 nodes for each
// level below the first that has K, K leaves. K = 2^log_k, at least 2.
KERNEL_BOUNDS(256, 2)
fused(const u8 *table, const u32 *keys, u32 *to, u32 key_words, u32 depth, u32 log_k,
      u32 table_height, u32 strips, u32 steps) {
    SHARED(shared);
    prg_prepare(shared);
    Shape shape = {table_height, strips, 0};
    const u32 *key = keys + (u64)block_index() * key_words, *levels = key + NODE_WORDS;
    u32 top = depth < log_k ? depth : log_k, width = 1u << log_k, count = 1u << top;
    Node *nodes = (Node *)(shared + PRG_SHARED_BYTES), *other = nodes + width,
         *stack = other + width;
    u32 *shares = (u32 *)(stack + (depth - top) * (width / 2));
    if (thread_index() == 0) nodes[0] = load_node(key);
    block_sync();
    for (u32 level = 0; level < top; level++) {
        expand_all(nodes, other, 1u << level, levels + LEVEL_WORDS * level);
        Node *swap = nodes;
        nodes = other, other = swap;
    }
    u32 sums[WARP_TILES];
    UNROLL for (int i = 0; i < WARP_TILES; i++) sums[i] = 0;
    for (u32 chunk = 0; chunk < 1u << (depth - top); chunk++) {
        u32 level = top;
        if (chunk) {
            // The half that waits at the lowest level where one does.
            level = depth;
            for (u32 rest = chunk; rest % 2 == 0; rest /= 2) level--;
            expand_all(stack + (level - 1 - top) * (width / 2), nodes, width / 2,
                       levels + LEVEL_WORDS * (level - 1));
        }
        for (; level < depth; level++) {
            for (u32 i = thread_index(); i < width / 2; i += block_threads())
                stack[(level - top) * (width / 2) + i] = nodes[width / 2 + i];
            expand_all(nodes, other, width / 2, levels + LEVEL_WORDS * level);
            Node *swap = nodes;
            nodes = other, other = swap;
        }
        for (u32 i = thread_index(); i < count; i += block_threads()) {
            u32 leaf[LEAF_WORDS];
            convert_leaf(nodes[i], leaf);
            correct_leaf<GROUP_ID>(nodes[i], levels + LEVEL_WORDS * depth, leaf);
            UNROLL for (int word = 0; word < 16; word += 4)
                store_4(shares + LEAF_WORDS * i + word, leaf[word], leaf[word + 1], leaf[word + 2],
                        leaf[word + 3]);
        }
        block_sync();
        multiply_rows(sums, table, shape, block_index_y(), steps, shares,
                      (u64)chunk * count * LEAF_ROWS, count * LEAF_ROWS);
        block_sync();
    }
    u32 *row = to + (u64)block_index() * strips * TILES * 8 + block_index_y() * TILES * 8;
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
