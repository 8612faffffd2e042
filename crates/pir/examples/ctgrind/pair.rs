//! Keys for two servers: the index and the seeds are secret.

use hushtable_pir::dpf::{Domain, Group, KeyPair};
use hushtable_pir::{Platform, Prg, PrgKind};
use hushtable_prg::valgrind::mark_public;

use crate::secret::{below, bytes, secret};
use crate::{Check, Work};

/// Four levels of tree for the group with most rows a leaf.
const ROWS: u64 = 6_000;

pub fn keys(number: u64) -> Work {
    let index = below(ROWS, number);
    let seeds: [[u8; 16]; 2] = [bytes(number, 1), bytes(number, 2)];
    let [marked_index] = secret([index]);
    let marked_seeds = seeds.map(secret);
    Box::new(move || {
        let mut made = Vec::new();
        for group in Group::ALL {
            for kind in [PrgKind::Aes128, PrgKind::ChaCha20] {
                let bytes = pair(group, kind, marked_index, &marked_seeds);
                made.push((group, kind, bytes));
            }
        }
        Box::new(move || {
            for (group, kind, mut bytes) in made {
                mark_public(&mut bytes);
                assert_eq!(bytes, pair(group, kind, index, &seeds), "{group:?} {kind:?}");
                let other = pair(group, kind, (index + 1) % ROWS, &seeds);
                assert_ne!(bytes, other, "the index is in the keys");
            }
        }) as Check
    })
}

fn pair(group: Group, kind: PrgKind, index: u64, seeds: &[[u8; 16]; 2]) -> Vec<u8> {
    let prg = Prg::new(kind, Platform::detect());
    let domain = Domain::new(ROWS, group).expect("few rows");
    let pair = KeyPair::from_seeds(prg, domain, index, seeds).expect("a row");
    let mut bytes = pair.left.to_bytes();
    bytes.extend(pair.right.to_bytes());
    bytes
}
