//! Keys that the two servers make themselves, at points that they share by XOR and neither knows.
//!
//! The keys are those that [`deal`](super::deal) makes of the same points and roots, byte for byte (Doerner and Shelat,
//! "Scaling ORAM for Secure Computation", CCS 2017). Each server expands its whole tree, level by level. Off the path both
//! have the same nodes, so of the XOR of all left children, and of all right ones, only the two below the path are left
//! when both servers' sums are added. With D the sum of the two sides, z = R ⊕ bit · D is the side where the path does not
//! go: the level's correction word, of which the servers have shares by two transfers
//! ([`Mutual::multiply`](crate::ot::Mutual::multiply)). The control bits' corrections are linear in what they have. Then
//! they open the word, and correct what they expanded. At the leaves, the sum of all converted ones is the two below the
//! path, and a shared vector with a one at the point's place ([`Units`]) makes the last word of it.
//!
//! **What a server sees.** What [`multiply`](crate::ot::Mutual::multiply) shows is uniform. Of each word that is opened it
//! sees the other's share, which is the word ⊕ its own share. The words are the key's, which say nothing of the point to
//! whoever lacks the other root ([the proof](super)). So a simulator makes a server's view of its root and the words.
//!
//! The work is 2^levels nodes a key, and a key's state as many: whoever makes many takes them in chunks
//! ([`Making::state_bytes`]). Time and memory accesses depend on the count and bits of the keys alone.

use hushtable_prg::Prg;
use zeroize::{Zeroize, Zeroizing};

use super::{Comparisons, Half, LEAF_BITS};
use crate::ot::{Error, Group, Mutual, SharedBits};
use crate::share::{PackError, pack, packed_bytes, unpack};

/// A message of the other server that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MakingError {
    /// Of a transfer.
    #[error(transparent)]
    Transfer(#[from] Error),
    /// Bits that are none.
    #[error(transparent)]
    Packed(#[from] PackError),
}

/// Shares of vectors of bits with a one at each point's place in its leaf, made bit by bit of the place: the vector of
/// j + 1 bits is (u ⊕ b · u) and b · u beside it, u that of j bits and b the next one.
#[allow(missing_debug_implementations, reason = "it holds secrets")]
pub struct Units {
    keys: Comparisons,
    /// Bits of the places that are in the vectors.
    done: u32,
    units: Zeroizing<Vec<u128>>,
    /// b · u, as far as it is known.
    products: Zeroizing<Vec<u32>>,
}

impl Units {
    /// Begins. `points` are the bits of the points, key after key, the lowest first.
    pub fn new(half: Half, keys: Comparisons, points: &SharedBits) -> Self {
        let one = u128::from(half == Half::Left);
        let first = |key: usize| match keys.bits {
            0 => one,
            // The first product is of a public vector.
            bits => {
                let bit = u128::from(points.own()[key * bits as usize]);
                one ^ bit | bit << 1
            }
        };
        let units = Zeroizing::new((0..keys.count).map(first).collect());
        Self { keys, done: keys.bits.min(1), units, products: Zeroizing::default() }
    }

    /// Whether all is done.
    pub fn is_done(&self) -> bool {
        self.done == self.keys.bits.min(LEAF_BITS)
    }

    /// Bytes of the next message, the same both ways.
    pub fn message_bytes(&self) -> usize {
        if self.is_done() { 0 } else { 4 * self.width() * self.keys.count }
    }

    /// The next message.
    pub fn send(&mut self, mutual: &mut Mutual, points: &SharedBits) -> Vec<u8> {
        if self.is_done() {
            return Vec::new();
        }
        let width = self.width();
        let words =
            self.units.iter().flat_map(|unit| (0..width).map(move |word| word_of(*unit, word)));
        let values = Zeroizing::new(words.collect::<Vec<_>>());
        let (products, message) = mutual.multiply(Group::Xor, &self.bits(points), &values);
        self.products = products;
        message
    }

    /// Takes the other server's.
    ///
    /// # Errors
    /// [`Error`] for one of another length.
    pub fn take(
        &mut self,
        mutual: &mut Mutual,
        points: &SharedBits,
        message: &[u8],
    ) -> Result<(), Error> {
        if self.is_done() {
            return Ok(());
        }
        let (bits, width) = (self.bits(points), self.width());
        mutual.multiplied(Group::Xor, &bits, &mut self.products, message)?;
        let places = 1 << self.done;
        let mask = (1_u128 << places) - 1;
        for (unit, words) in self.units.iter_mut().zip(self.products.chunks_exact(width)) {
            let product = block_of(words) & mask;
            *unit = (*unit ^ product) | product << places;
        }
        self.done += 1;
        Ok(())
    }

    /// This server's shares, once all is done.
    pub fn shares(&self) -> &[u128] {
        &self.units
    }

    /// Numbers of a vector.
    fn width(&self) -> usize {
        (1_usize << self.done).div_ceil(32)
    }

    /// The next bit of each place.
    fn bits(&self, points: &SharedBits) -> SharedBits {
        let (bits, next) = (self.keys.bits as usize, self.done as usize);
        points.at((0..self.keys.count).map(move |key| key * bits + next))
    }
}

/// Keys that are being made.
#[allow(missing_debug_implementations, reason = "it holds secrets")]
pub struct Making {
    prg: Prg,
    half: Half,
    keys: Comparisons,
    points: SharedBits,
    units: Zeroizing<Vec<u128>>,
    trees: Vec<Tree>,
    /// Of one tree's nodes.
    room: Zeroizing<Vec<u128>>,
    level: u32,
    stage: Stage,
    made: Made,
}

/// What the next message is of.
enum Stage {
    /// Of the products of bits and sums, whose shares so far are these; R of each key.
    Products {
        shares: Zeroizing<Vec<u32>>,
        right: Zeroizing<Vec<u128>>,
    },
    /// Of these shares of the level's words and of the right control bits' corrections.
    Words {
        left: Vec<u128>,
        right: Vec<u64>,
    },
    /// Of these shares of the leaves' words.
    Leaves(Vec<u128>),
    Done,
}

/// The correction words of keys, level by level.
#[derive(Clone, Debug, Default)]
pub struct Made {
    left: Vec<Vec<u128>>,
    right: Vec<Vec<u64>>,
    leaves: Vec<u128>,
}

impl Making {
    /// Begins. `points` are the bits of the points, key after key, the lowest first; `roots` and `units` are this
    /// server's.
    ///
    /// # Panics
    /// Unless there are as many of each as keys.
    pub fn new(
        prg: Prg,
        half: Half,
        keys: Comparisons,
        points: SharedBits,
        roots: &[u128],
        units: &[u128],
    ) -> Self {
        assert_eq!(points.own().len(), keys.count * keys.bits as usize, "the bits of each key");
        assert_eq!(roots.len(), keys.count, "a root for each key");
        assert_eq!(units.len(), keys.count, "a vector for each key");
        let control = u128::from(half == Half::Right);
        let mut room = Zeroizing::new(vec![0; 1 << keys.levels()]);
        let tree = |root: &u128| Tree::new(prg, (root & !1) | control, keys.levels(), &mut room);
        let trees = roots.iter().map(tree).collect();
        let mut making = Self {
            prg,
            half,
            keys,
            points,
            units: Zeroizing::new(units.to_vec()),
            trees,
            room,
            level: 0,
            stage: Stage::Done,
            made: Made::default(),
        };
        making.stage = making.next();
        making
    }

    /// Bytes that a key's state takes at most while it is made.
    pub fn state_bytes(keys: Comparisons) -> usize {
        // The last nodes, and their parents' control bits.
        20 << keys.levels()
    }

    /// Whether all is done.
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// Bytes of the next message, the same both ways.
    pub fn message_bytes(&self) -> usize {
        match self.stage {
            Stage::Products { .. } => 16 * self.keys.count,
            Stage::Words { .. } => 16 * self.keys.count + packed_bytes(1, self.keys.count),
            Stage::Leaves(_) => self.keys.leaf_bytes() * self.keys.count,
            Stage::Done => 0,
        }
    }

    /// What begins at this level.
    fn next(&self) -> Stage {
        if self.level < self.keys.levels() {
            let (shares, right) = Default::default();
            return Stage::Products { shares, right };
        }
        let shares = self.trees.iter().zip(self.units.iter());
        Stage::Leaves(
            shares.map(|(tree, unit)| (tree.sums[0] ^ unit) & self.keys.leaf_mask()).collect(),
        )
    }

    /// The bit of each point that decides at this level.
    fn bits(&self) -> SharedBits {
        let bits = self.keys.bits as usize;
        let at = bits - 1 - self.level as usize;
        self.points.at((0..self.keys.count).map(move |key| key * bits + at))
    }

    /// The next message.
    pub fn send(&mut self, mutual: &mut Mutual) -> Vec<u8> {
        let bits = self.bits_here();
        match &mut self.stage {
            Stage::Products { shares, right } => {
                let sides = self.trees.iter().map(|tree| tree.sums[0] ^ tree.sums[1]);
                let values = sides.flat_map(|both| (0..4).map(move |word| word_of(both, word)));
                let values = Zeroizing::new(values.collect::<Vec<_>>());
                let message;
                (*shares, message) = mutual.multiply(Group::Xor, &bits, &values);
                *right = Zeroizing::new(self.trees.iter().map(|tree| tree.sums[1]).collect());
                message
            }
            Stage::Words { left, right } => {
                let mut message: Vec<u8> =
                    left.iter().flat_map(|word| word.to_le_bytes()).collect();
                message.extend(pack(1, right));
                message
            }
            Stage::Leaves(shares) => {
                let bytes = self.keys.leaf_bytes();
                shares
                    .iter()
                    .flat_map(|share| share.to_le_bytes().into_iter().take(bytes))
                    .collect()
            }
            Stage::Done => Vec::new(),
        }
    }

    /// The level's bits, or none where it takes none.
    fn bits_here(&self) -> SharedBits {
        match self.stage {
            Stage::Products { .. } => self.bits(),
            _ => SharedBits::default(),
        }
    }

    /// Takes the other server's message.
    ///
    /// # Errors
    /// [`MakingError`] for one of another length, or with bits after its last: the making is over.
    pub fn take(&mut self, mutual: &mut Mutual, message: &[u8]) -> Result<(), MakingError> {
        let (expected, found) = (self.message_bytes(), message.len());
        if expected != found {
            return Err(Error::Length { what: "correction words", expected, found }.into());
        }
        self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Products { mut shares, right } => {
                let bits = self.bits();
                mutual.multiplied(Group::Xor, &bits, &mut shares, message)?;
                self.words(&shares, &right, bits.own())
            }
            Stage::Words { left, right } => {
                let (words, bits) = message.split_at(16 * self.keys.count);
                let other = unpack(1, self.keys.count, bits)?;
                let left = left.iter().zip(words.as_chunks().0);
                let left: Vec<u128> =
                    left.map(|(own, other)| own ^ u128::from_le_bytes(*other)).collect();
                let right: Vec<u64> =
                    right.iter().zip(other).map(|(own, other)| own ^ other).collect();
                let is_last = self.level + 1 == self.keys.levels();
                for ((tree, left), right) in self.trees.iter_mut().zip(&left).zip(&right) {
                    let corrections = [*left, (left & !1) | u128::from(*right)];
                    tree.descend(self.prg, &corrections, is_last, &mut self.room);
                }
                self.made.left.push(left);
                self.made.right.push(right);
                self.level += 1;
                self.next()
            }
            Stage::Leaves(shares) => {
                let words = message.chunks_exact(self.keys.leaf_bytes()).map(|word| {
                    let mut bytes = [0; 16];
                    bytes[..word.len()].copy_from_slice(word);
                    u128::from_le_bytes(bytes) & self.keys.leaf_mask()
                });
                self.made.leaves =
                    shares.iter().zip(words).map(|(own, other)| own ^ other).collect();
                self.trees.clear();
                Stage::Done
            }
            Stage::Done => Stage::Done,
        };
        Ok(())
    }

    /// This server's shares of the level's words.
    fn words(&self, products: &[u32], right: &[u128], bits: &[u8]) -> Stage {
        let one = u128::from(self.half == Half::Left);
        let each = self.trees.iter().zip(products.chunks_exact(4)).zip(right).zip(bits);
        let words = each.map(|(((tree, product), right), bit)| {
            let bit = u128::from(*bit);
            let seed = (right ^ block_of(product)) & !1;
            let left = (tree.sums[0] & 1) ^ bit ^ one;
            (seed | left, ((tree.sums[1] & 1) ^ bit) as u64)
        });
        let (left, right) = words.unzip();
        Stage::Words { left, right }
    }

    /// The correction words, once all is done.
    pub fn made(self) -> Made {
        self.made
    }
}

/// One key's tree, of one server.
struct Tree {
    /// All ones for each set control bit of the lowest level that is corrected.
    controls: Vec<u64>,
    /// The children of its nodes, not corrected.
    children: Vec<u128>,
    /// The XOR of the left ones and of the right ones; at the end, that of the leaves and nothing.
    sums: [u128; 2],
}

impl Tree {
    fn new(prg: Prg, root: u128, levels: u32, room: &mut [u128]) -> Self {
        let mut tree = Self {
            controls: Vec::with_capacity(1 << levels.saturating_sub(1)),
            children: Vec::with_capacity(1 << levels),
            sums: [0; 2],
        };
        tree.children.push(root);
        tree.expand(prg, levels == 0, room);
        tree
    }

    /// Corrects the children, and expands them; the last ones become leaves.
    fn descend(&mut self, prg: Prg, corrections: &[u128; 2], is_last: bool, room: &mut [u128]) {
        let (pairs, _) = self.children.as_chunks_mut::<2>();
        for ([left, right], control) in pairs.iter_mut().zip(&self.controls) {
            let mask = u128::from(*control) | u128::from(*control) << 64;
            *left ^= corrections[0] & mask;
            *right ^= corrections[1] & mask;
        }
        self.expand(prg, is_last, room);
    }

    /// Expands the children in `room` for as many as there can be.
    fn expand(&mut self, prg: Prg, is_last: bool, room: &mut [u128]) {
        self.sums = [0; 2];
        if is_last {
            let mut leaves = [0; 4 * AT_ONCE];
            for nodes in self.children.chunks(AT_ONCE) {
                let leaves = &mut leaves[..4 * nodes.len()];
                prg.convert(nodes, &[0; 4], leaves);
                self.sums[0] ^= leaves.iter().step_by(4).fold(0, |sum, leaf| sum ^ leaf);
            }
            leaves.zeroize();
            return;
        }
        self.controls.clear();
        self.controls.extend(self.children.iter().map(|node| (*node as u64 & 1).wrapping_neg()));
        // Opaque to the compiler, which could otherwise branch where they are used.
        std::hint::black_box(&mut self.controls);
        let children = &mut room[..2 * self.children.len()];
        prg.expand(&self.children, &[0; 2], children);
        for [left, right] in children.as_chunks::<2>().0 {
            self.sums[0] ^= left;
            self.sums[1] ^= right;
        }
        self.children.clear();
        self.children.extend_from_slice(children);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.controls.zeroize();
        self.children.zeroize();
        self.sums.zeroize();
    }
}

/// The correction words of keys that were made in chunks, as [`deal`](super::deal) gives them.
///
/// # Panics
/// Unless the chunks are of all keys.
pub fn words(keys: Comparisons, chunks: &[Made]) -> Vec<u8> {
    let count: usize = chunks.iter().map(|chunk| chunk.leaves.len()).sum();
    assert_eq!(count, keys.count, "chunks of all keys");
    let mut words = Vec::with_capacity(keys.words_bytes());
    for level in 0..keys.levels() as usize {
        words.extend(chunks.iter().flat_map(|it| &it.left[level]).flat_map(|it| it.to_le_bytes()));
        let right: Vec<u64> = chunks.iter().flat_map(|chunk| chunk.right[level].clone()).collect();
        words.extend(pack(1, &right));
    }
    let leaves = chunks.iter().flat_map(|chunk| &chunk.leaves);
    words.extend(leaves.flat_map(|it| it.to_le_bytes().into_iter().take(keys.leaf_bytes())));
    words
}

/// Word `word` of a block, the lowest first.
fn word_of(block: u128, word: usize) -> u32 {
    (block >> (32 * word)) as u32
}

/// The block of these words, the lowest first.
fn block_of(words: &[u32]) -> u128 {
    words.iter().rev().fold(0, |block, word| block << 32 | u128::from(*word))
}

/// Nodes that are converted in one call.
const AT_ONCE: usize = 64;
