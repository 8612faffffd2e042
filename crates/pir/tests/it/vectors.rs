//! `vectors/dpf.json` and `vectors/batch.json`, which every implementation reads: key generation,
//! parsing, shares; layouts, places, requests.

use hushtable_pir::batch::{BatchKeys, Client, Geometry};
use hushtable_pir::dpf::{Domain, Group, Key, KeyPair, Side, expand_leaves, reference};
use hushtable_prg::{Platform, Prg, PrgKind};
use hushtable_table::layout::{Layout, Plan};
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    format: u32,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    prg: String,
    group: String,
    rows: u64,
    index: u64,
    seeds: [String; 2],
    left_key: String,
    right_key: String,
    share_rows: Vec<u64>,
    left_shares: Vec<u32>,
    right_shares: Vec<u32>,
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

/// The share of `row`, out of a full expansion on `platform`.
fn expanded_shares(key: &Key, platform: Platform, rows: &[u64]) -> Vec<u32> {
    let group = key.params().domain.group();
    let mut leaves = Vec::new();
    expand_leaves(key, platform, 4, |_, words| {
        leaves.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    });
    let share = |&row: &u64| {
        let row = row as usize;
        match group {
            Group::Bits => u32::from(leaves[row / 8] >> (row % 8) & 1),
            Group::Z8 => u32::from(leaves[row]),
            _ => u32::from_le_bytes([0, 1, 2, 3].map(|i| leaves[4 * row + i])),
        }
    };
    rows.iter().map(share).collect()
}

#[test]
fn every_platform_reproduces_the_vectors() {
    let text = include_str!("../../../../vectors/dpf.json");
    let file: File = serde_json::from_str(text).unwrap();
    assert_eq!(file.format, 1);
    assert!(file.vectors.len() >= 72);
    for vector in &file.vectors {
        let prg: PrgKind = vector.prg.parse().unwrap();
        let group = Group::ALL.into_iter().find(|group| group.name() == vector.group).unwrap();
        let domain = Domain::new(vector.rows, group).unwrap();
        let seeds = [0, 1].map(|side| <[u8; 16]>::try_from(bytes(&vector.seeds[side])).unwrap());
        for platform in Platform::available() {
            let prg = Prg::new(prg, platform);
            let pair = KeyPair::from_seeds(prg, domain, vector.index, &seeds).unwrap();
            let sides = [
                (&pair.left, &vector.left_key, &vector.left_shares),
                (&pair.right, &vector.right_key, &vector.right_shares),
            ];
            for (key, key_bytes, shares) in sides {
                assert_eq!(key.to_bytes(), bytes(key_bytes), "{} {}", vector.prg, vector.group);
                let parsed = Key::parse(&bytes(key_bytes)).unwrap();
                let by_reference: Vec<u32> =
                    vector.share_rows.iter().map(|&row| reference::share(&parsed, row)).collect();
                assert_eq!(&by_reference, shares);
                assert_eq!(&expanded_shares(&parsed, platform, &vector.share_rows), shares);
            }
        }
    }
}

#[derive(Deserialize)]
struct BatchFile {
    format: u32,
    vectors: Vec<BatchVector>,
}

#[derive(Deserialize)]
struct BatchVector {
    prg: String,
    layout: String,
    layout_version: String,
    first_and_last_places: Vec<[Vec<[u32; 2]>; 2]>,
    offsets: Vec<Option<u32>>,
    seeds: [String; 2],
    left_request: String,
    right_request: String,
}

#[test]
fn layouts_and_requests_reproduce_the_vectors() {
    let text = include_str!("../../../../vectors/batch.json");
    let file: BatchFile = serde_json::from_str(text).unwrap();
    assert_eq!(file.format, 1);
    assert!(file.vectors.len() >= 8);
    for vector in &file.vectors {
        let layout = Layout::from_bytes(&bytes(&vector.layout)).unwrap();
        assert_eq!(layout.version().to_string(), vector.layout_version);
        for (part, places) in layout.parts().zip(&vector.first_and_last_places) {
            for (index, places) in [0, part.spec().rows - 1].into_iter().zip(places) {
                let found: Vec<_> =
                    part.places(index).map(|place| [place.bin, place.offset]).collect();
                assert_eq!(&found, places);
            }
        }
        let geometry = Geometry::new(&layout);
        let mut plan = Plan::empty(geometry.keys());
        plan.offsets = vector.offsets.iter().map(|offset| offset.unwrap_or(0)).collect();
        let seeds = [0, 1].map(|side| <[u8; 16]>::try_from(bytes(&vector.seeds[side])).unwrap());
        let client = Client::new(geometry.clone(), vector.prg.parse().unwrap());
        let (request, _) = client.query_from_seeds(&plan, &seeds).unwrap();
        assert_eq!(request.left, bytes(&vector.left_request));
        assert_eq!(request.right, bytes(&vector.right_request));
        for (side, request) in [(Side::Left, &request.left), (Side::Right, &request.right)] {
            assert!(BatchKeys::parse(&geometry, side, request.clone()).is_ok());
        }
    }
}
