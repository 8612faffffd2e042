//! One server's view must not tell indices apart; a view with a planted leak must be caught.
//!
//! The published GPU artifact of the paper draws the correction words off the path from 32 bits, so
//! one key alone shows the path. Any such flaw is linear in the key's bits, and the classifier finds
//! it.

use crate::classifier;

use std::sync::Arc;

use classifier::{CHANCE_MAX, accuracy};
use hushtable_pir::TableShape;
use hushtable_pir::batch;
use hushtable_pir::dpf::{Client, Domain, Group, Key, KeyPair, Side, reference};
use hushtable_prg::{Platform, Prg, PrgKind};
use hushtable_table::layout::{DropRule, Layout, LayoutMap, LayoutSpec, PartSpec, Planner};
use hushtable_table::{DType, Shape, Version};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

fn key(prg: PrgKind, domain: Domain, index: u64, side: Side, rng: &mut impl Rng) -> Key {
    let seeds = [rng.random(), rng.random()];
    let prg = Prg::new(prg, Platform::detect());
    let pair = KeyPair::from_seeds(prg, domain, index, &seeds).unwrap();
    if side == Side::Left { pair.left } else { pair.right }
}

#[test]
fn a_key_tells_nothing_of_its_index() {
    let mut rng = ChaCha12Rng::seed_from_u64(11);
    let rows = 1 << 20;
    for group in Group::ALL {
        let domain = Domain::new(rows, group).unwrap();
        for prg in PrgKind::ALL {
            for side in Side::BOTH {
                for (a, b) in [(0, rows - 1), (123_456, 123_457)] {
                    let score = accuracy(|class| {
                        key(prg, domain, if class { b } else { a }, side, &mut rng).to_bytes()
                    });
                    assert!(score < CHANCE_MAX, "{prg:?} {group:?} {side} {a} {b}: {score}");
                }
            }
        }
    }
}

#[test]
fn expanded_shares_tell_nothing_of_the_index() {
    let mut rng = ChaCha12Rng::seed_from_u64(12);
    for group in Group::ALL {
        let domain = Domain::new(96, group).unwrap();
        for side in Side::BOTH {
            let score = accuracy(|class| {
                let key = key(PrgKind::Aes128, domain, if class { 90 } else { 7 }, side, &mut rng);
                (0..96).flat_map(|row| reference::share(&key, row).to_le_bytes()).collect()
            });
            assert!(score < CHANCE_MAX, "{group:?} {side}: {score}");
        }
    }
}

#[test]
fn correction_words_of_32_bits_are_caught() {
    let mut rng = ChaCha12Rng::seed_from_u64(13);
    let domain = Domain::new(1 << 20, Group::Bits).unwrap();
    let score = accuracy(|class| {
        // Indices that differ at one level only, like the artifact's: there the word of the branch
        // off the path has 32 random bits and 96 zeros.
        let index = if class { 1 << 15 } else { 0 };
        let mut bytes = key(PrgKind::Aes128, domain, index, Side::Left, &mut rng).to_bytes();
        let level = 20 - 1 - 15;
        if !class {
            bytes[24 + 16 * level + 4..24 + 16 * (level + 1)].fill(0);
        }
        bytes
    });
    assert!(score > 0.99, "the planted leak went unseen: {score}");
}

#[test]
fn a_request_tells_nothing_of_the_number_of_ids_unless_dummies_are_skipped() {
    let shape = TableShape::new(5000, 16).unwrap();
    let client = Client::new(shape, Version::from([0; 32]), PrgKind::Aes128).unwrap();
    let mut rng = ChaCha12Rng::seed_from_u64(14);
    let mut view = |ids: u64, max_ids: usize| {
        let ids: Vec<u64> = (0..ids).map(|_| rng.random_range(0..5000)).collect();
        client.query(&ids, max_ids).unwrap().0.right.concat()
    };
    let score = accuracy(|class| view(if class { 4 } else { 0 }, 4));
    assert!(score < CHANCE_MAX, "padded requests differ: {score}");
    let score = accuracy(|class| if class { view(4, 4) } else { view(1, 1) });
    assert!(score > 0.99, "skipped dummies went unseen: {score}");
}

/// What a server sees of a bag: its whole request.
fn batch_view(layout: &Arc<Layout>, side: Side) -> impl FnMut(&[u64]) -> Vec<u8> + use<> {
    let planner = Planner::new(Arc::clone(layout));
    let client = batch::Client::new(batch::Geometry::new(layout), PrgKind::Aes128);
    move |ids| {
        let plan = planner.plan_vartime(ids, 0).unwrap();
        let (request, _) = client.query(&plan).unwrap();
        match side {
            Side::Left => request.left.clone(),
            Side::Right => request.right.clone(),
        }
    }
}

#[test]
fn a_bag_request_tells_nothing_of_the_bag() {
    let full = |rows, bins| PartSpec { rows, bins, queries: 1, hashes: 1, companions: 0 };
    // Bins of one leaf, and of several.
    for (rows, hot_bins, bins) in [(2_000, 4, 8), (20_000, 1, 3)] {
        let spec = LayoutSpec {
            hot: Some(full(64, hot_bins)),
            full: Some(full(rows, bins)),
            ids_max: 64,
            drop: DropRule::Earliest,
            seed: [1; 32],
        };
        let map = LayoutMap { hot_ids: (0..64).collect(), ..LayoutMap::default() };
        let shape = Shape::new(rows, 4, DType::F32).unwrap();
        let layout = Layout::new(spec, map, shape, Version::from([0; 32])).unwrap();
        let layout = Arc::new(layout);
        for side in Side::BOTH {
            let mut view = batch_view(&layout, side);
            let (none, hot): (Vec<u64>, Vec<u64>) = (Vec::new(), (0..40).collect());
            let score = accuracy(|class| view(if class { &hot } else { &none }));
            assert!(score < CHANCE_MAX, "{side}: an empty bag and a hot one: {score}");
            let score = accuracy(|class| view(&[if class { 7 } else { rows - 1 }]));
            assert!(score < CHANCE_MAX, "{side}: two rows: {score}");
        }
        // A client that leaves out the keys of bins that it needs nothing of.
        let mut view = batch_view(&layout, Side::Right);
        let score = accuracy(|class| {
            let mut bytes = view(&[1]);
            if !class {
                bytes.truncate(bytes.len() - 16);
            }
            bytes
        });
        assert!(score > 0.99, "left-out keys went unseen: {score}");
        // A vector sent without the mask that left's seed makes.
        let score = accuracy(|class| {
            let mut bytes = vec![0; 64];
            bytes[usize::from(class)] = 1;
            bytes
        });
        assert!(score > 0.99, "a bare vector went unseen: {score}");
    }
}
