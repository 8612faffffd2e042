//! Buckets: how Z blocks lie in a sealed page, and in memory while a round works on them.
//!
//! A sealed bucket is a random nonce (16 bytes), the sealed blocks, and the tag (16 bytes):
//!
//! > nonce ‖ AEGIS-256(ids ‖ leaves ‖ payloads) ‖ tag
//!
//! under the AEAD nonce *random ‖ bucket's number ‖ counter* (8 bytes each for the last two), with the
//! name of the [attempt](crate::attempt) as associated data. The
//! counter is how often evictions have passed the bucket, which the one root counter says for all of
//! them (`Shape::passes`), so that an older bucket put back is found out (FEDORA
//! 5.2). A round that was begun, cut short and begun again writes buckets of the same counters twice:
//! the attempt tells those that stand from the others, and the random half sees to it that no two
//! pages are ever sealed under one nonce.
//!
//! In memory a block is id (u32) ‖ leaf (u32) ‖ payload, one behind the other: a *block's bytes*.

use rand::Rng;

use crate::attempt::Version;
use crate::geometry::Geometry;
use crate::seal::{Forged, Key};

/// The id of no row: padding of a request, an empty slot of a bucket.
pub const DUMMY: u32 = u32::MAX;
/// Bytes before the payload in memory: id and leaf.
pub const HEAD_BYTES: usize = 8;
const NONCE_BYTES: usize = 16;
const TAG_BYTES: usize = 16;

/// Bytes of a block in memory.
pub fn block_bytes(payload_bytes: usize) -> usize {
    HEAD_BYTES + payload_bytes
}

/// A block's id.
pub fn id(block: &[u8]) -> u32 {
    u32::from_le_bytes(block[..4].try_into().expect("four bytes"))
}

/// A block's leaf.
pub fn leaf(block: &[u8]) -> u32 {
    u32::from_le_bytes(block[4..8].try_into().expect("four bytes"))
}

/// Writes a block's id and leaf.
pub fn set_head(block: &mut [u8], id: u32, leaf: u32) {
    block[..4].copy_from_slice(&id.to_le_bytes());
    block[4..8].copy_from_slice(&leaf.to_le_bytes());
}

/// Makes every block of `blocks` a dummy of zeros.
pub fn clear(blocks: &mut [u8], block_bytes: usize) {
    blocks.fill(0);
    for block in blocks.chunks_exact_mut(block_bytes) {
        block[..4].fill(0xff);
    }
}

/// Seals and opens the buckets of one tree.
pub struct BucketCodec {
    slots: usize,
    payload_bytes: usize,
    id_bytes: usize,
    leaf_bytes: usize,
    bucket_bytes: usize,
}

impl BucketCodec {
    /// The codec of a tree.
    pub fn new(geometry: &Geometry) -> Self {
        Self {
            slots: geometry.slots(),
            payload_bytes: geometry.payload_bytes(),
            id_bytes: geometry.id_bytes(),
            leaf_bytes: geometry.leaf_bytes(),
            bucket_bytes: geometry.bucket_bytes(),
        }
    }

    /// Bytes of a bucket's blocks in memory.
    pub fn open_bytes(&self) -> usize {
        self.slots * block_bytes(self.payload_bytes)
    }

    /// Opens `page`, sealed as `version`, into `blocks`
    /// ([`open_bytes`](Self::open_bytes)). The page's bytes are used up.
    ///
    /// # Errors
    ///
    /// The page is not what was sealed under this key as this version.
    pub fn open(
        &self,
        key: &Key,
        version: &Version,
        page: &mut [u8],
        blocks: &mut [u8],
    ) -> Result<(), Forged> {
        // What comes from the disk is for everyone to see; of pages that io_uring brought valgrind
        // would not know, and go on taking them for what was opened in that place before.
        hushtable_prg::valgrind::mark_public(page);
        let (random, rest) = page[..self.bucket_bytes].split_at_mut(NONCE_BYTES);
        let (text, tag) = rest.split_at_mut(self.bucket_bytes - NONCE_BYTES - TAG_BYTES);
        let tag: &[u8; TAG_BYTES] = (&*tag).try_into().expect("a tag's bytes");
        key.open_in_place(&nonce(random, version), version.attempt.bytes(), text, tag)?;
        let (ids, rest) = text.split_at(self.slots * self.id_bytes);
        let (leaves, rest) = rest.split_at(self.slots * self.leaf_bytes);
        let none = narrow(DUMMY, self.id_bytes);
        for (slot, block) in blocks.chunks_exact_mut(block_bytes(self.payload_bytes)).enumerate() {
            let id = widen(&ids[slot * self.id_bytes..][..self.id_bytes]);
            // All ones of the narrow width are all ones of the wide one.
            let dummy = (u64::from(id ^ none).wrapping_sub(1) >> 63) as u32;
            let leaf = widen(&leaves[slot * self.leaf_bytes..][..self.leaf_bytes]);
            set_head(block, id | dummy.wrapping_neg(), leaf);
            block[HEAD_BYTES..]
                .copy_from_slice(&rest[slot * self.payload_bytes..][..self.payload_bytes]);
        }
        Ok(())
    }

    /// Seals `blocks` into `page` as `version`.
    pub fn seal(
        &self,
        key: &Key,
        version: &Version,
        blocks: &[u8],
        page: &mut [u8],
        random: &mut impl Rng,
    ) {
        let (nonce_bytes, rest) = page[..self.bucket_bytes].split_at_mut(NONCE_BYTES);
        let (text, tag) = rest.split_at_mut(self.bucket_bytes - NONCE_BYTES - TAG_BYTES);
        random.fill_bytes(nonce_bytes);
        let (ids, rest) = text.split_at_mut(self.slots * self.id_bytes);
        let (leaves, rest) = rest.split_at_mut(self.slots * self.leaf_bytes);
        let (payloads, unused) = rest.split_at_mut(self.slots * self.payload_bytes);
        unused.fill(0);
        for (slot, block) in blocks.chunks_exact(block_bytes(self.payload_bytes)).enumerate() {
            ids[slot * self.id_bytes..][..self.id_bytes].copy_from_slice(&block[..self.id_bytes]);
            leaves[slot * self.leaf_bytes..][..self.leaf_bytes]
                .copy_from_slice(&block[4..4 + self.leaf_bytes]);
            payloads[slot * self.payload_bytes..][..self.payload_bytes]
                .copy_from_slice(&block[HEAD_BYTES..]);
        }
        let nonce = nonce(nonce_bytes, version);
        let sealed = key.seal_in_place(&nonce, version.attempt.bytes(), text);
        tag.copy_from_slice(&sealed);
    }
}

fn nonce(random: &[u8], version: &Version) -> [u8; 32] {
    let mut nonce = [0; 32];
    nonce[..16].copy_from_slice(random);
    nonce[16..24].copy_from_slice(&version.number.to_le_bytes());
    nonce[24..].copy_from_slice(&version.counter.to_le_bytes());
    nonce
}

fn widen(bytes: &[u8]) -> u32 {
    let mut wide = [0; 4];
    wide[..bytes.len()].copy_from_slice(bytes);
    u32::from_le_bytes(wide)
}

fn narrow(id: u32, bytes: usize) -> u32 {
    id & (u32::MAX >> (32 - 8 * bytes as u32))
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha20Rng;

    use super::*;
    use crate::attempt::Attempt;
    use crate::geometry::GeometrySpec;

    #[test]
    fn a_bucket_comes_back_and_only_as_what_it_was() {
        for (rows, payload_bytes) in [(200, 16), (10_000_000, 64), (1 << 20, 100)] {
            let geometry = Geometry::new(&GeometrySpec::on_disk(rows, payload_bytes)).unwrap();
            let codec = BucketCodec::new(&geometry);
            let key = Key::from_bytes([7; 32]);
            let mut random = ChaCha20Rng::seed_from_u64(1);
            let mut blocks = vec![0; codec.open_bytes()];
            for (slot, block) in blocks.chunks_exact_mut(block_bytes(payload_bytes)).enumerate() {
                random.fill_bytes(block);
                let id = if slot % 3 == 0 { DUMMY } else { random.random_range(0..rows as u32) };
                let leaf = random.random_range(0..geometry.leaves() as u32);
                set_head(block, id, leaf);
            }
            let mut page = vec![0; geometry.bucket_bytes()];
            let attempt = Attempt::from_bytes([3; 16]);
            let version = Version { number: 5, counter: 9, attempt };
            codec.seal(&key, &version, &blocks, &mut page, &mut random);
            let mut back = vec![0; codec.open_bytes()];
            codec.open(&key, &version, &mut page.clone(), &mut back).unwrap();
            assert_eq!(back, blocks);
            for other in [
                Version { counter: 8, ..version },
                Version { number: 4, ..version },
                Version { attempt: Attempt::from_bytes([4; 16]), ..version },
            ] {
                assert!(codec.open(&key, &other, &mut page.clone(), &mut back).is_err());
            }
            for at in [0, 15, 16, 100, geometry.bucket_bytes() - 1] {
                let mut flipped = page.clone();
                flipped[at] ^= 1;
                assert!(codec.open(&key, &version, &mut flipped, &mut back).is_err());
            }
            let mut again = vec![0; geometry.bucket_bytes()];
            codec.seal(&key, &version, &blocks, &mut again, &mut random);
            assert_ne!(page, again, "one nonce twice");
        }
    }
}
