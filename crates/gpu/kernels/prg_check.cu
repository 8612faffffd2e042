// The steps of a tree, one node a thread, for tests: what `tree.cuh` gives to kernels is held to the
// known answers here, single and in pairs.
#include "tree.cuh"

// For node i, its own and the one of the thread next to it: the children (8 words) and the corrected
// leaf (16 words, by XOR) from the single functions, then the same from those for pairs, in which
// the node is once first and once second: 24 × 3 words a node.
KERNEL check_prg(const u32 *nodes, const u32 *corrections, u32 count, u32 *out) {
    SHARED(shared);
    prg_prepare(shared);
    block_sync();
    u32 i = block_index() * block_threads() + thread_index();
    if (i >= count) return;
    Node pair[2] = {load_node(nodes + 4 * i), load_node(nodes + 4 * ((i + 1) % count))};
    const u32 *levels[2] = {corrections, corrections};
    const u32 *last = corrections + LEVEL_WORDS;
    u32 *to = out + 72 * i;
    Node left[2], right[2];
    u32 leaves[2][16];
    expand_node(pair[0], corrections, left[0], right[0]);
    convert_leaf(pair[0], leaves[0]);
    correct_leaf<0>(pair[0], last, leaves[0]);
    store_node(to, left[0]);
    store_node(to + 4, right[0]);
    for (u32 k = 0; k < 16; k++) to[8 + k] = leaves[0][k];

    expand_node_pair(pair, levels, left, right);
    convert_leaf_pair(pair, leaves[0], leaves[1]);
    for (u32 n = 0; n < 2; n++) {
        // The second's go to the node whose they are.
        u32 *at = n == 0 ? to + 24 : out + 72 * ((i + 1) % count) + 48;
        correct_leaf<0>(pair[n], last, leaves[n]);
        store_node(at, left[n]);
        store_node(at + 4, right[n]);
        for (u32 k = 0; k < 16; k++) at[8 + k] = leaves[n][k];
    }
}
