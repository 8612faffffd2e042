//! What an eviction costs with and without memory on the chip (FEDORA, section 6.6 and Figure 10):
//! `cargo run --release -p hushtable-oram --example scratchpad [SECONDS]`, one JSON line for each of
//! the paper's tables.
//!
//! The paper's controller fills one bucket after the other, and scans all blocks of path and stash for
//! each. A bucket on the chip takes a block at an address that tells which it is; one in DRAM must be
//! rewritten whole for every block that is looked at. hushtable's eviction needs neither: it sorts the
//! blocks and distributes them, by networks whose addresses are the same whatever they move. All
//! three are timed on the same paths; the first two are here to be compared with, and nowhere else.

use std::hint::black_box;
use std::time::Instant;

use hushtable_oram::bucket::{DUMMY, block_bytes, id, leaf, set_head};
use hushtable_oram::evict::Eviction;
use hushtable_oram::geometry::{Geometry, GeometrySpec};
use hushtable_oram::oblivious::{Mask, copy_if};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

/// The paper's tables: name, rows, bytes of a row.
const TABLES: [(&str, u64, usize); 3] =
    [("small", 10_000_000, 64), ("medium", 50_000_000, 128), ("large", 250_000_000, 256)];

/// A path, the leaf's bucket first, and the stash behind it.
#[derive(Clone)]
struct Path {
    geometry: Geometry,
    target: u32,
    blocks: Vec<u8>,
}

impl Path {
    /// A path half full, and a stash with the blocks of one period.
    fn random(geometry: Geometry, random: &mut ChaCha20Rng) -> Self {
        let shape = geometry.shape();
        let stride = block_bytes(geometry.payload_bytes());
        let (levels, slots) = (shape.levels(), geometry.slots());
        let count = levels as usize * slots + geometry.stash_capacity();
        let target = shape.draw(random);
        let mut blocks = vec![0; count * stride];
        for (number, block) in blocks.chunks_exact_mut(stride).enumerate() {
            random.fill_bytes(block);
            let (step, slot) = (number / slots, number % slots);
            let in_stash = step >= levels as usize;
            let is_block = match in_stash {
                true => number - levels as usize * slots < geometry.period(),
                false => slot < slots / 2,
            };
            // A block of a bucket may lie there: its leaf is below it.
            let leaf = match in_stash {
                true => shape.draw(random),
                false => {
                    let level = levels - 1 - step as u32;
                    let below = shape.leaves() / shape.nodes(level);
                    let first = shape.ancestor(u64::from(target), level) * below;
                    (first + random.next_u64() % below) as u32
                }
            };
            set_head(block, if is_block { number as u32 } else { DUMMY }, leaf);
        }
        Self { geometry, target, blocks }
    }

    fn stride(&self) -> usize {
        block_bytes(self.geometry.payload_bytes())
    }

    /// How many levels a block's path has in common with the target's; 0 of what is no block.
    fn depths(&self) -> Vec<u64> {
        let bits = self.geometry.levels() - 2;
        let depth = |block: &[u8]| {
            let differ = leaf(block) ^ self.target;
            let parted = Mask::equal(u64::from(differ >> bits), 0).not().select_u64(1, 0) as u32;
            let within = (differ & ((1 << bits) - 1) | parted << bits) << 1 | 1;
            let common = u64::from(self.geometry.levels() - (31 - within.leading_zeros()));
            Mask::equal(u64::from(id(block)), u64::from(DUMMY)).select_u64(0, common)
        };
        self.blocks.chunks_exact(self.stride()).map(depth).collect()
    }

    /// One scan of all blocks for each bucket, the leaf's first. `put` copies a block to a place of the
    /// bucket, or to the place behind its last.
    fn scan(&self, put: impl Fn(&mut [u8], usize, usize, &[u8])) -> Vec<u8> {
        let (slots, stride) = (self.geometry.slots(), self.stride());
        let mut depths = self.depths();
        let mut path = Vec::with_capacity(self.blocks.len());
        for level in (0..u64::from(self.geometry.levels())).rev() {
            let mut bucket = vec![0xff; (slots + 1) * stride];
            let mut used = 0_u64;
            for (depth, block) in depths.iter_mut().zip(self.blocks.chunks_exact(stride)) {
                let fits = Mask::less(level, *depth).and(Mask::less(used, slots as u64));
                let place = fits.select_u64(used, slots as u64);
                put(&mut bucket, place as usize, stride, block);
                used += fits.select_u64(1, 0);
                *depth = fits.select_u64(0, *depth);
            }
            path.extend_from_slice(&bucket[..slots * stride]);
        }
        path
    }

    /// With the bucket on the chip, where an address may tell.
    fn by_scratchpad(&self) -> Vec<u8> {
        self.scan(|bucket, place, stride, block| {
            bucket[place * stride..][..stride].copy_from_slice(block);
        })
    }

    /// With the bucket in memory that is watched: every place of it is written.
    fn without(&self) -> Vec<u8> {
        self.scan(|bucket, place, stride, block| {
            for (at, slot) in bucket.chunks_exact_mut(stride).enumerate() {
                copy_if(Mask::equal(at as u64, place as u64), slot, block);
            }
        })
    }

    /// By hushtable's eviction, all levels on disk.
    fn by_networks(&self, eviction: &mut Eviction) -> Vec<u8> {
        let (levels, bytes) = (self.geometry.levels() as usize, self.bucket_bytes());
        for (step, bucket) in self.blocks.chunks_exact(bytes).take(levels).enumerate() {
            eviction.bucket_mut(levels - 1 - step).copy_from_slice(bucket);
        }
        eviction.stash_mut().copy_from_slice(&self.blocks[levels * bytes..]);
        eviction.run(self.target).expect("a stash that holds its bound");
        (0..levels).rev().flat_map(|level| eviction.bucket_mut(level).to_vec()).collect()
    }

    fn bucket_bytes(&self) -> usize {
        self.geometry.slots() * self.stride()
    }

    /// How many blocks each bucket got, after a look that each lies on its own path.
    fn counts(&self, path: &[u8]) -> Vec<usize> {
        let (shape, stride) = (self.geometry.shape(), self.stride());
        let buckets = path.chunks_exact(self.bucket_bytes()).enumerate();
        let counted = buckets.map(|(step, bucket)| {
            let level = shape.levels() - 1 - step as u32;
            let blocks = bucket.chunks_exact(stride).filter(|block| id(block) != DUMMY);
            let on_path = shape.ancestor(u64::from(self.target), level);
            blocks
                .inspect(|block| {
                    assert_eq!(shape.ancestor(u64::from(leaf(block)), level), on_path);
                    let original = &self.blocks[id(block) as usize * stride..][..stride];
                    assert!(original == *block, "a block was changed");
                })
                .count()
        });
        counted.collect()
    }
}

/// Microseconds of a call, the least of as many as fit the time.
fn least_us(seconds: f64, mut call: impl FnMut() -> Vec<u8>) -> f64 {
    let started = Instant::now();
    let mut least = f64::INFINITY;
    while started.elapsed().as_secs_f64() < seconds || least.is_infinite() {
        let clock = Instant::now();
        black_box(call());
        least = least.min(clock.elapsed().as_secs_f64() * 1e6);
    }
    least
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(2.0), |argument| argument.parse())?;
    let mut random = ChaCha20Rng::seed_from_u64(10);
    for (name, rows, row_bytes) in TABLES {
        let geometry = Geometry::new(&GeometrySpec::on_disk(rows, row_bytes))?;
        let mut eviction = Eviction::new(&geometry, 0);
        for _ in 0..5 {
            let path = Path::random(geometry, &mut random);
            let counts = path.counts(&path.by_scratchpad());
            assert_eq!(path.counts(&path.without()), counts);
            assert_eq!(path.counts(&path.by_networks(&mut eviction)), counts);
        }
        let path = Path::random(geometry, &mut random);
        let scratchpad_us = least_us(seconds, || path.by_scratchpad());
        let without_us = least_us(seconds, || path.without());
        let networks_us = least_us(seconds, || path.by_networks(&mut eviction));
        let record = serde_json::json!({
            "bench": "scratchpad",
            "params": {
                "table": name,
                "row_bytes": row_bytes,
                "slots": geometry.slots(),
                "period": geometry.period(),
                "levels": geometry.levels(),
            },
            "value": without_us / scratchpad_us,
            "unit": "times",
            "floor": 1.0,
            "of_floor": null,
            "threads": 1,
            "isa": std::env::consts::ARCH,
            "detail": {
                "scratchpad_us": scratchpad_us,
                "without_us": without_us,
                "networks_us": networks_us,
                "networks_ratio": networks_us / scratchpad_us,
            },
        });
        println!("{record}");
    }
    Ok(())
}
