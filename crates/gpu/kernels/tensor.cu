// Batches of byte shares on tensor cores: a warp expands 16 queries' leaves into its registers,
// where they are the left-hand side of multiply_tile() as they come, and multiplies them with the
// table's step, which the block shares.
//
// Macros: PRG; TILES (1 to 32); FUSED: 1 for kernel `tensor`, which is all of it, 0 for `fragments`
// and `tensor_fragments`, which leave the shares in memory in between, for rows of several strips,
// whose expansion would else be done once a strip.
//
// The floor of `tensor` at 256-byte rows and ChaCha20, per (leaf of 64 rows, query), in cycles of a
// multiprocessor of capability 9.0:
// - integer operations: two blocks (a leaf and, as a tree has as many inner nodes, a node) of 80
//   quarter-rounds of 12 operations, 1,920 in all, and some 150 for corrections and the stack. XORs
//   and rotations, two thirds, take 64 lanes a cycle of one pipe: 20 cycles. Additions go beside
//   them as multiply-adds, which the compiler makes of them. 22 cycles with the rest.
// - tensor operations: 64 x 256 products, 4 of the 4,096 of multiply_tile(): 4 cycles at the peak
//   of 4,096 products a cycle, 8 at half of it, should mma.sync not reach more.
// - shared memory: 64 x 256 bytes of table serve a warp's 16 queries: 1,024 bytes, 8 cycles of 128
//   bytes; 128 bytes of stack and corrections, 1 cycle.
// - device memory: the same bytes serve a block's 128 queries: 128 bytes, 6 cycles at 21 bytes a
//   cycle (4.8 TB/s over 132 multiprocessors at 1.75 GHz), less what the L2 cache serves.
// - instructions: 1,920 + 150, and a load and a product for each of 4 tiles, 256 counted by lanes, of
//   128 a cycle: 18 cycles.
// The first binds if the others run beside it: so half of the warps run half a step ahead, and
// expand while the others multiply. 22 cycles x 2^14 leaves over 132 multiprocessors at 1.75 GHz
// are 640,000 queries/s at 2^20 rows.
#include "layout.cuh"
#include "tree.cuh"

#define QUERIES 16 // a warp

// A launch's batch.
struct Batch {
    const u32 *keys; // [key][key_words], see tree.cuh
    u32 key_count;
    u32 key_words;
    u32 depth;  // levels of the tree
    u32 height; // levels that a lane walks, at most the table's
};

DEVICE u32 key_of(const Batch &batch, u32 query) {
    // Absent queries repeat the last one, and are left out of the sums.
    return query < batch.key_count ? query : batch.key_count - 1;
}

// The part of shared memory that a walk needs: see `walk_bytes` in plan.rs.
struct WalkShared {
    u32 *stack;  // [level][query of the lane][thread] nodes
    u32 *levels; // [level][query of the block] 8 words
    u32 *leaves; // [query of the block] 16 words
    u32 queries;
};

DEVICE WalkShared walk_shared(u8 *shared, const Batch &batch) {
    WalkShared walk;
    walk.queries = block_threads() / 32 * QUERIES;
    walk.stack = (u32 *)shared;
    walk.levels = walk.stack + batch.height * 2 * block_threads() * NODE_WORDS;
    walk.leaves = walk.levels + batch.height * walk.queries * LEVEL_WORDS;
    // The last levels' correction words and the leaf's, a key's one after the other.
    u32 level_words = LEVEL_WORDS * batch.height, words = level_words + LEAF_WORDS;
    u32 first = NODE_WORDS + LEVEL_WORDS * (batch.depth - batch.height);
    for (u32 i = thread_index(); i < walk.queries * words; i += block_threads()) {
        u32 query = i / words, word = i - query * words;
        u32 key = key_of(batch, block_index_y() * walk.queries + query);
        u32 value = batch.keys[(u64)key * batch.key_words + first + word];
        if (word < level_words)
            walk.levels[(word / LEVEL_WORDS * walk.queries + query) * LEVEL_WORDS +
                        word % LEVEL_WORDS] = value;
        else
            walk.leaves[query * LEAF_WORDS + word - level_words] = value;
    }
    return walk;
}

DEVICE u32 *slot(const WalkShared &walk, u32 level, u32 query) {
    return walk.stack + ((level * 2 + query) * block_threads() + thread_index()) * NODE_WORDS;
}

// Leaf `s` of the lane's subtree for its two queries, depth first: from the frontier if `s` is 0,
// else from the sibling that waits on the stack. How far down is a matter of `s` alone, the same
// for all. The leaves' words are the lane's fragments: fragment j is {a[2j], b[2j], a[2j+1],
// b[2j+1]}.
DEVICE void walk_to(const WalkShared &walk, const Batch &batch, const Node *frontier,
                    const u64 (&root)[2], u32 s, u32 (&a)[16], u32 (&b)[16]) {
    u32 query = thread_index() / 32 * QUERIES + thread_index() % 32 / 4;
    u32 level = 0;
    Node node[2];
    if (s == 0) {
        UNROLL for (int q = 0; q < 2; q++) node[q] = load_node(frontier[root[q]].w);
    } else {
        level = batch.height;
        for (u32 rest = s; rest % 2 == 0; rest /= 2) level--;
        UNROLL for (int q = 0; q < 2; q++) node[q] = load_node(slot(walk, level - 1, q));
    }
    for (; level < batch.height; level++) {
        const u32 *correction = walk.levels + (level * walk.queries + query) * LEVEL_WORDS;
        const u32 *const corrections[2] = {correction, correction + 8 * LEVEL_WORDS};
        Node left[2], right[2];
        expand_node_pair(node, corrections, left, right);
        UNROLL for (int q = 0; q < 2; q++) {
            store_node(slot(walk, level, q), right[q]);
            node[q] = left[q];
        }
    }
    convert_leaf_pair(node, a, b);
    correct_leaf<1>(node[0], walk.leaves + query * LEAF_WORDS, a);
    correct_leaf<1>(node[1], walk.leaves + (query + 8) * LEAF_WORDS, b);
}

// The lane's two subtrees in unit `unit`, as places in the frontier.
DEVICE void find_roots(const Batch &batch, const Shape &shape, u32 unit, u64 (&root)[2]) {
    u32 query = (block_index_y() * (block_threads() / 32) + thread_index() / 32) * QUERIES +
                thread_index() % 32 / 4;
    u32 top = batch.depth - batch.height, split = shape.height - batch.height;
    u64 block = shape.first_block + (unit >> split), part = unit - (unit >> split << split);
    u64 place = ((4 * block + thread_index() % 4) << split) + part;
    // Beyond the tree any node will do: the table is zero there.
    u64 last = ((u64)1 << top) - 1;
    place = place < last ? place : last;
    UNROLL for (int q = 0; q < 2; q++) root[q] = ((u64)key_of(batch, query + 8 * q) << top) + place;
}

DEVICE void clear_sums(u32 (&sums)[TILES][4]) {
    UNROLL for (int tile = 0; tile < TILES; tile++)
        UNROLL for (int i = 0; i < 4; i++) sums[tile][i] = 0;
}

DEVICE void add_sums(u32 *to, const Batch &batch, const Shape &shape, u32 first_query, u32 strip,
                     const u32 (&sums)[TILES][4]) {
    u32 lane = thread_index() % 32;
    u32 query = first_query + thread_index() / 32 * QUERIES + lane / 4;
    u64 columns = (u64)shape.strips * TILES * 8;
    UNROLL for (int upper = 0; upper < 2; upper++) {
        u32 key = query + 8 * upper;
        if (key >= batch.key_count) continue;
        u32 *row = to + key * columns + strip * TILES * 8 + lane % 4 * 2;
        UNROLL for (int tile = 0; tile < TILES; tile++) {
            atomic_add(row + 8 * tile, sums[tile][2 * upper]);
            atomic_add(row + 8 * tile + 1, sums[tile][2 * upper + 1]);
        }
    }
}

DEVICE void copy_step(u8 *shared, const u8 *table) {
    for (u32 at = 16 * thread_index(); at < STEP_BYTES; at += 16 * block_threads())
        copy_async(shared + at, table + at);
    copy_async_commit();
}

DEVICE void multiply_line(u32 (&sums)[TILES][4], const u32 (&a)[4], const u8 *line) {
    UNROLL for (int tile = 0; tile < TILES; tile++) {
        Vec2 words = load_2(line + tile * TILE_BYTES);
        u32 b[2] = {words.x, words.y};
        multiply_tile(sums[tile], a, b);
    }
}

// Units (walks of 2^batch.height steps) that this block does.
DEVICE void block_units(u32 units, u32 &first, u32 &end) {
    first = (u32)((u64)units * block_index() / grid_blocks());
    end = (u32)((u64)units * (block_index() + 1) / grid_blocks());
}

#if FUSED

// Warps 4 to 7 run half a step ahead of warps 0 to 3: warp w is on quarter w % 4 of the
// multiprocessor, so that each quarter has one that expands while the other multiplies.
DEVICE bool is_ahead() { return thread_index() / 128 % 2; }

KERNEL_BOUNDS(256, 1)
tensor(const u8 *table, const Node *frontier, const u32 *keys, u32 *to, u32 key_count,
       u32 key_words, u32 depth, u32 height, u32 table_height, u32 first_block, u32 units) {
    SHARED(shared);
    Batch batch = {keys, key_count, key_words, depth, height};
    Shape shape = {table_height, 1, first_block};
    prg_prepare(shared);
    u8 *steps = shared + PRG_SHARED_BYTES;
    WalkShared walk = walk_shared(steps + 2 * STEP_BYTES, batch);
    u32 unit, end;
    block_units(units, unit, end);
    if (unit == end) return;
    u32 step = unit << height, steps_end = end << height;
    copy_step(steps, step_at(table, shape, 0, step));
    u32 sums[TILES][4];
    clear_sums(sums);
    u64 root[2];
    // The corrections are there.
    block_sync();
    for (u32 turn = 0; step < steps_end; step++, turn ^= 1) {
        u32 s = step & ((1u << height) - 1);
        if (s == 0) find_roots(batch, shape, step >> height, root);
        u32 a[16], b[16];
        // One barrier a step, before or after the expansion: it says that this step's copy is there
        // and that the other buffer has been read.
        for (u32 half = 0; half < 2; half++) {
            if (half == is_ahead()) {
                copy_async_wait<0>();
                block_sync();
                if (step + 1 < steps_end)
                    copy_step(steps + (turn ^ 1) * STEP_BYTES, step_at(table, shape, 0, step + 1));
            }
            if (half == 0) walk_to(walk, batch, frontier, root, s, a, b);
        }
        const u8 *lines = steps + turn * STEP_BYTES + thread_index() % 32 * LANE_BYTES;
        UNROLL for (int j = 0; j < 8; j++) {
            u32 fragment[4] = {a[2 * j], b[2 * j], a[2 * j + 1], b[2 * j + 1]};
            multiply_line(sums, fragment, lines + j * LINE_BYTES);
        }
    }
    add_sums(to, batch, shape, block_index_y() * walk.queries, 0, sums);
}

#else

// Shares as fragments: [query group of 16][step][j][lane] 16 bytes.
DEVICE u8 *fragment_at(u8 *fragments, u32 steps, u32 step) {
    u64 group = block_index_y() * (block_threads() / 32) + thread_index() / 32;
    return fragments + ((group * steps + step) * 8 * 32 + thread_index() % 32) * 16;
}

KERNEL_BOUNDS(256, 2)
fragments(u8 *to, const Node *frontier, const u32 *keys, u32 key_count, u32 key_words, u32 depth,
          u32 height, u32 table_height, u32 first_block, u32 units) {
    SHARED(shared);
    Batch batch = {keys, key_count, key_words, depth, height};
    Shape shape = {table_height, 1, first_block};
    prg_prepare(shared);
    WalkShared walk = walk_shared(shared + PRG_SHARED_BYTES, batch);
    block_sync();
    u32 unit, end;
    block_units(units, unit, end);
    u64 root[2];
    for (; unit < end; unit++) {
        find_roots(batch, shape, unit, root);
        for (u32 s = 0; s < 1u << height; s++) {
            u32 a[16], b[16];
            walk_to(walk, batch, frontier, root, s, a, b);
            u8 *fragment = fragment_at(to, units << height, (unit << height) + s);
            UNROLL for (int j = 0; j < 8; j++)
                store_4(fragment + 512 * j, a[2 * j], b[2 * j], a[2 * j + 1], b[2 * j + 1]);
        }
    }
}

// One strip of the table.
KERNEL_BOUNDS(256, 1)
tensor_fragments(const u8 *table, u8 *fragments, u32 *to, u32 key_count, u32 table_height,
                 u32 strips, u32 strip, u32 steps) {
    SHARED(shared);
    Batch batch = {nullptr, key_count, 0, 0, 0};
    Shape shape = {table_height, strips, 0};
    u32 step, end;
    block_units(steps, step, end);
    if (step == end) return;
    copy_step(shared, step_at(table, shape, strip, step));
    u32 sums[TILES][4];
    clear_sums(sums);
    Vec4 next[8];
    UNROLL for (int j = 0; j < 8; j++)
        next[j] = load_4(fragment_at(fragments, steps, step) + 512 * j);
    for (u32 turn = 0; step < end; step++, turn ^= 1) {
        copy_async_wait<0>();
        block_sync();
        Vec4 now[8];
        UNROLL for (int j = 0; j < 8; j++) now[j] = next[j];
        if (step + 1 < end) {
            copy_step(shared + (turn ^ 1) * STEP_BYTES, step_at(table, shape, strip, step + 1));
            const u8 *fragment = fragment_at(fragments, steps, step + 1);
            UNROLL for (int j = 0; j < 8; j++) next[j] = load_4(fragment + 512 * j);
        }
        const u8 *lines = shared + turn * STEP_BYTES + thread_index() % 32 * LANE_BYTES;
        UNROLL for (int j = 0; j < 8; j++) {
            u32 fragment[4] = {now[j].x, now[j].y, now[j].z, now[j].w};
            multiply_line(sums, fragment, lines + j * LINE_BYTES);
        }
    }
    add_sums(to, batch, shape, block_index_y() * (block_threads() / 32) * QUERIES, strip, sums);
}

#endif
