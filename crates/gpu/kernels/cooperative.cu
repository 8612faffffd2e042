// The paper's cooperative strategy (Lam et al., "GPU-based Private Information Retrieval for
// On-Device Machine Learning Inference", section III-C, optimisation 4): all blocks expand one key
// and multiply its shares with the table, and wait for each other in between.
//
// Macros: PRG, GROUP_ID, TILES.
//
// The floor is the scan's of multiply.cu, and before it a chain of `depth` + 1 calls of the
// generator and a barrier of the grid for each level below `top`.
#include "product.cuh"
#include "tree.cuh"

#define PAIRS ((TILES + 1) / 2)

// Levels above `top` are walked by each thread for itself, from the root: waiting would take longer
// than expanding what others expand too. nodes: 2^depth twice; shares: 2^depth leaves.
KERNEL_BOUNDS(256, 2)
cooperative(const u8 *table, const u32 *key, u32 *nodes_a, u32 *nodes_b, u32 *shares, u32 *sums,
            u32 *barrier, u32 depth, u32 top, u32 table_height, u32 strips, u32 leaves, u32 steps) {
    SHARED(shared);
    prg_prepare(shared);
    block_sync();
    const u32 *levels = key + NODE_WORDS;
    u32 first = block_index() * block_threads() + thread_index(),
        threads = grid_blocks() * block_threads();
    u32 *nodes = nodes_a, *other = nodes_b;
    for (u32 i = first; i < 1u << top; i += threads) {
        Node node = load_of_key(key);
        for (u32 level = 0; level < top; level++) {
            Node left, right;
            expand_node(node, levels + LEVEL_WORDS * level, left, right);
            // By the thread's number, which is no secret.
            node = i >> (top - 1 - level) & 1 ? right : left;
        }
        store_node(nodes + NODE_WORDS * i, node);
    }
    grid_sync(barrier);
    for (u32 level = top; level < depth; level++) {
        for (u32 i = first; i < 1u << level; i += threads) {
            Node left, right;
            expand_node(load_node(nodes + NODE_WORDS * i), levels + LEVEL_WORDS * level, left,
                        right);
            store_node(other + 2 * NODE_WORDS * i, left);
            store_node(other + 2 * NODE_WORDS * i + NODE_WORDS, right);
        }
        u32 *swap = nodes;
        nodes = other, other = swap;
        grid_sync(barrier);
    }
    for (u32 i = first; i < 1u << depth; i += threads) {
        u32 leaf[LEAF_WORDS];
        Node node = load_node(nodes + NODE_WORDS * i);
        convert_leaf(node, leaf);
        correct_leaf<GROUP_ID>(node, levels + LEVEL_WORDS * depth, leaf);
        UNROLL for (int word = 0; word < 16; word += 4)
            store_4(shares + (u64)LEAF_WORDS * i + word, leaf[word], leaf[word + 1], leaf[word + 2],
                    leaf[word + 3]);
    }
    grid_sync(barrier);
    Shape shape = {table_height, strips, 0};
    Product product = {table, shares, sums, 0, 1, leaves, steps};
    u32 warp = first / 32, places = strips * PAIRS, stride = threads / 32 / places;
    // A grid too small for a row of places goes over them in turn.
    for (u32 place = warp; place < places || place / places < stride; place += threads / 32) {
        u32 at = place % places;
        multiply_steps<1, 1, 4>(product, shape, 0, at / PAIRS, at % PAIRS, place / places,
                                stride ? stride : 1);
    }
}
