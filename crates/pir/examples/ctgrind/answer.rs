//! Answers of a server of two: what its keys expand to is secret.

use hushtable_pir::dpf::{Domain, Group, Key, KeyPair, reference};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, Platform, Prg, PrgKind, TableShape};
use hushtable_prg::valgrind::mark_public;

use crate::secret::{below, bytes, number, secret};
use crate::{Check, Work};

/// Two blocks, the second cut short; a whole strip and a narrower one.
const ROWS: u64 = 700;
const ROW_BYTES: usize = 45;
/// Some for a kernel's widest step, and one more.
const KEYS: u64 = 9;

pub fn pair(number_of_secret: u64) -> Work {
    let shape = TableShape::new(ROWS, ROW_BYTES).expect("a shape");
    let rows: Vec<u8> = (0..shape.table_bytes()).map(|at| number(at) as u8).collect();
    let spec = EngineSpec { threads: 1, ..EngineSpec::default() };
    let engine = CpuEngine::from_rows(shape, &rows, &spec).expect("a small table");
    let seeds = move |key: u64| -> [[u8; 16]; 2] {
        [bytes(number_of_secret, 20 + key), bytes(number_of_secret, 40 + key)]
    };
    let index = move |key: u64| below(ROWS, number_of_secret + key);
    let marked: Vec<(Group, Vec<Key>)> = Group::ALL
        .into_iter()
        .map(|group| {
            let key = |at| right(group, secret([index(at)])[0], &seeds(at).map(secret));
            (group, (0..KEYS).map(key).collect())
        })
        .collect();
    Box::new(move || {
        let mut found = Vec::new();
        for (group, keys) in &marked {
            let mut answers = vec![0; keys.len() * ROW_BYTES];
            engine.answer(keys, &mut answers).expect("keys of this table");
            found.push((*group, answers));
        }
        Box::new(move || {
            for (group, mut answers) in found {
                mark_public(&mut answers);
                for (at, answer) in (0..KEYS).zip(answers.chunks_exact(ROW_BYTES)) {
                    let key = right(group, index(at), &seeds(at));
                    let expected = reference::answer(&key, &rows, ROW_BYTES);
                    assert_eq!(answer, expected, "{group:?} {at}");
                }
            }
        }) as Check
    })
}

fn right(group: Group, index: u64, seeds: &[[u8; 16]; 2]) -> Key {
    let prg = Prg::new(PrgKind::Aes128, Platform::detect());
    let domain = Domain::new(ROWS, group).expect("few rows");
    KeyPair::from_seeds(prg, domain, index, seeds).expect("a row").right
}
