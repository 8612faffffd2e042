//! The requests of an inference: which bins are asked for something, the rows and the seeds are
//! secret.

use hushtable_pir::PrgKind;
use hushtable_pir::batch::{Client, Geometry};
use hushtable_prg::valgrind::{mark_public, mark_secret};
use hushtable_table::layout::{DropRule, Layout, LayoutMap, LayoutSpec, PartSpec, Plan};
use hushtable_table::{DType, Shape, Version};

use crate::secret::{below, bytes, number, secret};
use crate::{Check, Work};

const ROWS: u64 = 6_000;

/// Hot bins of one leaf; ten bins of several leaves, whose rows are no power of two.
pub fn layout() -> Layout {
    let shape = Shape::new(ROWS, 4, DType::F32).expect("a shape");
    let hot = PartSpec { rows: 100, bins: 4, queries: 2, hashes: 1, companions: 0 };
    let full = PartSpec { rows: ROWS, bins: 10, queries: 1, hashes: 1, companions: 0 };
    let map = LayoutMap { hot_ids: (0..100).collect(), ..LayoutMap::default() };
    let (hot, full) = (Some(hot), Some(full));
    let spec = LayoutSpec { hot, full, ids_max: 20, drop: DropRule::MostFrequent, seed: [3; 32] };
    Layout::new(spec, map, shape, Version::from([7; 32])).expect("a layout")
}

pub fn request(secret_number: u64) -> Work {
    let geometry = Geometry::new(&layout());
    assert!(
        geometry
            .parts()
            .iter()
            .any(|part| part.leaf_count > 1 && !part.leaf_rows.is_power_of_two())
    );
    let client = Client::new(geometry.clone(), PrgKind::Aes128);
    // One key in three wants nothing.
    let wanted: Vec<u32> = geometry
        .parts()
        .iter()
        .flat_map(|part| std::iter::repeat_n(part.bin_rows() as u64, part.keys()))
        .enumerate()
        .map(|(key, rows)| {
            let which = if secret_number < 2 { secret_number } else { number(key as u64) };
            let is_wanted = !(key as u64 + secret_number).is_multiple_of(3);
            if is_wanted { below(rows, which) as u32 } else { 0 }
        })
        .collect();
    let mut plan = Plan::empty(geometry.keys());
    let mut marked = Plan::empty(geometry.keys());
    plan.offsets.copy_from_slice(&wanted);
    marked.offsets.copy_from_slice(&wanted);
    mark_secret(&mut marked.offsets);
    let seeds: [[u8; 16]; 2] = [bytes(secret_number, 3), bytes(secret_number, 4)];
    let marked_seeds = seeds.map(secret);
    Box::new(move || {
        let (made, _) = client.query_from_seeds(&marked, &marked_seeds).expect("a plan");
        Box::new(move || {
            let (mut left, mut right) = (made.left.clone(), made.right.clone());
            mark_public(&mut left);
            mark_public(&mut right);
            let (expected, _) = client.query_from_seeds(&plan, &seeds).expect("a plan");
            assert_eq!((&left, &right), (&expected.left, &expected.right));
            let empty = Plan::empty(plan.offsets.len());
            let (other, _) = client.query_from_seeds(&empty, &seeds).expect("a plan");
            assert!(secret_number == 0 || right != other.right, "the rows are in the request");
        }) as Check
    })
}
