// The paper's ways to expand keys (Lam et al., "GPU-based Private Information Retrieval for On-Device
// Machine Learning Inference", §III-C): each writes all shares of a batch's keys to a buffer. And the
// frontier, the nodes of one level, from which other kernels go on.
//
// Keys are `key_words` words each (tree.cuh). What is expanded is the subtree below node `index` of
// level `level` (0, 0: the tree), of which leaves from `leaves` on hold no row. Shares are
// [key][share_leaves][16 words]; leaves past `leaves` may be left as they are. `group` is the output
// group's id: not a macro, as it decides some twenty of a thousand instructions a leaf.
#include "tree.cuh"

// A leaf's shares, from its node, to `to`.
DEVICE void write_leaf(const Key &key, const Node &node, u32 group, u32 *to) {
    const u32 *correction = correction_of(key, key.depth);
    u32 leaf[16];
    convert_leaf(node, leaf);
    if (group == 0) correct_leaf<0>(node, correction, leaf);
    if (group == 1) correct_leaf<1>(node, correction, leaf);
    if (group == 2) correct_leaf<2>(node, correction, leaf);
    UNROLL for (int k = 0; k < 16; k += 4) {
        store_4(to + k, leaf[k], leaf[k + 1], leaf[k + 2], leaf[k + 3]);
    }
}

DEVICE u32 *leaf_at(u32 *shares, u32 key, u32 share_leaves, u32 leaf) {
    return shares + LEAF_WORDS * ((u64)key * share_leaves + leaf);
}

// Breadth first in shared memory, in place: `nodes[0]`, of level `level`, becomes its 2^levels
// descendants in order. All threads of the block, before which nodes[0] is written and synced.
DEVICE void go_breadth_first(const Key &key, u32 *nodes, u32 level, u32 levels) {
    NO_UNROLL for (u32 l = 0; l < levels; l++) {
        u32 width = 1u << l;
        // From the last nodes to the first: what a turn writes lies behind what the next ones read,
        // but for what the turn itself reads, which it reads before.
        NO_UNROLL for (u32 end = (width + block_threads() - 1) / block_threads(); end > 0; end--) {
            u32 i = (end - 1) * block_threads() + thread_index();
            Node left, right;
            if (i < width) {
                expand_node(load_node(nodes + NODE_WORDS * i), correction_of(key, level + l), left,
                            right);
            }
            block_sync();
            if (i < width) {
                store_node(nodes + NODE_WORDS * 2 * i, left);
                store_node(nodes + NODE_WORDS * (2 * i + 1), right);
            }
        }
        block_sync();
    }
}

// The nodes of level `level + levels` under node `index` of level `level`: one warp walks there, the
// block goes on from it.
DEVICE void start_block(const Key &key, u32 *nodes, u32 level, u32 index, u32 levels) {
    if (thread_index() < 32) {
        Node node = walk(key, level, index);
        if (thread_index() == 0) store_node(nodes, node);
    }
    block_sync();
    go_breadth_first(key, nodes, level, levels);
}

// Depth first from `node`, a node `height` levels above the leaves: leaves from number `first` on, to
// where a key's `shares` have them, but for those from `leaves` on.
DEVICE void go_depth_first(const Key &key, Node node, u32 height, u32 first, u32 leaves, u32 group,
                           u32 *shares) {
    // stack[h]: the root of the subtree of height h that comes after the current leaf.
    Node stack[32];
    u32 above = height;
    for (u32 leaf = 0; leaf >> height == 0 && first + leaf < leaves; leaf++) {
        if (leaf > 0) {
            above = 0;
            while (!(leaf >> above & 1)) above++;
            node = stack[above];
        }
        NO_UNROLL for (u32 h = above; h > 0; h--) {
            Node left;
            expand_node(node, correction_of(key, key.depth - h), left, stack[h - 1]);
            node = left;
        }
        write_leaf(key, node, group, shares + LEAF_WORDS * (u64)(first + leaf));
    }
}

// a) §III-C1, the base: every thread goes from the root to each of its leaves. Grid: x over leaves
// (1: a block a key, as in the paper; more spread a key over the device), y over keys.
KERNEL_BOUNDS(128, 4) expand_from_root(const u32 *keys, u32 key_words, u32 depth, u32 level,
        u32 index, u32 leaves, u32 group, u32 *shares, u32 share_leaves) {
    SHARED(shared);
    prg_prepare(shared);
    block_sync();
    u32 batch_index = block_index_y();
    const Key key = {keys + (u64)batch_index * key_words, depth};
    u32 step = grid_blocks() * block_threads();
    for (u32 leaf = block_index() * block_threads() + thread_index(); leaf < leaves;
         leaf += step) {
        Node node = walk(key, depth, index << (depth - level) | leaf);
        write_leaf(key, node, group, leaf_at(shares, batch_index, share_leaves, leaf));
    }
}

// b) §III-C2, level by level: three kernels, nodes in device memory, [key][stride][4 words].
//
// The first node of each key.
KERNEL_BOUNDS(128, 4) start_levels(const u32 *keys, u32 key_words, u32 count, u32 level, u32 index,
        u32 *nodes, u32 stride) {
    SHARED(shared);
    prg_prepare(shared);
    block_sync();
    u32 i = block_index() * block_threads() + thread_index();
    if (i >= count) return;
    const Key key = {keys + (u64)i * key_words, 0};
    store_node(nodes + (u64)NODE_WORDS * i * stride, walk(key, level, index));
}

// The children of the first `width` nodes of each of `count` keys; they are of level `level`.
KERNEL_BOUNDS(128, 4) expand_level(const u32 *keys, u32 key_words, u32 count, u32 level, u32 width,
        const u32 *nodes, u32 stride, u32 *children, u32 child_stride) {
    SHARED(shared);
    prg_prepare(shared);
    block_sync();
    u32 i = block_index() * block_threads() + thread_index();
    u32 batch_index = i / width, node = i % width;
    if (batch_index >= count) return;
    const Key key = {keys + (u64)batch_index * key_words, 0};
    Node left, right;
    expand_node(load_node(nodes + NODE_WORDS * ((u64)batch_index * stride + node)),
                correction_of(key, level), left, right);
    // The last node's right child may be beyond what the buffer has room for.
    u32 *to = children + NODE_WORDS * ((u64)batch_index * child_stride + 2 * node);
    store_node(to, left);
    if (2 * node + 1 < child_stride) store_node(to + NODE_WORDS, right);
}

// The leaves of the first `leaves` nodes of each of `count` keys.
KERNEL_BOUNDS(128, 4) convert_level(const u32 *keys, u32 key_words, u32 count, u32 depth,
        u32 leaves, u32 group, const u32 *nodes, u32 stride, u32 *shares, u32 share_leaves) {
    SHARED(shared);
    prg_prepare(shared);
    block_sync();
    u32 i = block_index() * block_threads() + thread_index();
    u32 batch_index = i / leaves, leaf = i % leaves;
    if (batch_index >= count) return;
    const Key key = {keys + (u64)batch_index * key_words, depth};
    write_leaf(key, load_node(nodes + NODE_WORDS * ((u64)batch_index * stride + leaf)), group,
               leaf_at(shares, batch_index, share_leaves, leaf));
}

// c) §III-C3, breadth first to K nodes a key, from each of which one thread then goes depth first.
// Grid: x over the 2^split nodes at which blocks begin, y over keys; a block takes 2^breadth nodes
// further down, K = 2^(split + breadth). Shared memory: those nodes. The stacks are the threads' own.
KERNEL_BOUNDS(128, 4) expand_hybrid(const u32 *keys, u32 key_words, u32 depth, u32 level,
        u32 index, u32 split, u32 breadth, u32 leaves, u32 group, u32 *shares, u32 share_leaves) {
    SHARED(shared);
    prg_prepare(shared);
    block_sync();
    u32 *nodes = (u32 *)(shared + PRG_SHARED_BYTES);
    const Key key = {keys + (u64)block_index_y() * key_words, depth};
    start_block(key, nodes, level + split, index << split | block_index(), breadth);

    u32 height = depth - level - split - breadth;
    for (u32 i = thread_index(); i < 1u << breadth; i += block_threads()) {
        u32 first = (block_index() << breadth | i) << height;
        go_depth_first(key, load_node(nodes + NODE_WORDS * i), height, first, leaves, group,
                       leaf_at(shares, block_index_y(), share_leaves, 0));
    }
}

// d) The nodes of level split + breadth, [key][2^(split + breadth)][4 words]; grid as in c.
KERNEL_BOUNDS(128, 4) expand_frontier(const u32 *keys, u32 key_words, u32 split, u32 breadth,
        u32 *frontier) {
    SHARED(shared);
    prg_prepare(shared);
    block_sync();
    u32 *nodes = (u32 *)(shared + PRG_SHARED_BYTES);
    const Key key = {keys + (u64)block_index_y() * key_words, 0};
    start_block(key, nodes, split, block_index(), breadth);
    u64 at = (u64)block_index_y() << (split + breadth) | block_index() << breadth;
    for (u32 i = thread_index(); i < 1u << breadth; i += block_threads()) {
        store_node(frontier + NODE_WORDS * (at + i), load_node(nodes + NODE_WORDS * i));
    }
}

// e) Many small trees, of a layout's bins: a thread goes from the root to one of the `pieces` nodes
// of level `split` that have leaves with rows below them, and depth first from there. Grid: x over
// keys and pieces. Shares of bits, [key][leaves][16 words].
KERNEL_BOUNDS(128, 4) expand_trees(const u32 *keys, u32 key_words, u32 count, u32 depth, u32 split,
        u32 pieces, u32 leaves, u32 *shares) {
    SHARED(shared);
    prg_prepare(shared);
    block_sync();
    u32 i = block_index() * block_threads() + thread_index();
    u32 batch_index = i / pieces, piece = i % pieces;
    if (batch_index >= count) return;
    const Key key = {keys + (u64)batch_index * key_words, depth};
    go_depth_first(key, walk(key, split, piece), depth - split, piece << (depth - split), leaves,
                   0, leaf_at(shares, batch_index, leaves, 0));
}
