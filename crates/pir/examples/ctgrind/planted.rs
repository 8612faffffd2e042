//! Leaks, to see that they are seen.

use std::hint::black_box;
use std::sync::Arc;

use hushtable_table::layout::Planner;

use crate::bag::layout;
use crate::secret::{below, number, secret};
use crate::{Check, Work};

/// Watched, with nothing to check.
fn watched(work: impl FnOnce() + 'static) -> Work {
    Box::new(move || {
        work();
        Box::new(|| ()) as Check
    })
}

/// A branch on a secret.
pub fn branches(secret_number: u64) -> Work {
    let secrets = secret([number(secret_number), number(secret_number + 1)]);
    watched(move || {
        for value in secrets {
            if value & 1 == 1 {
                black_box(value);
            }
        }
    })
}

/// An address made of a secret.
pub fn indexes(secret_number: u64) -> Work {
    let table: Vec<u64> = (0..256).map(number).collect();
    let [value] = secret([number(secret_number)]);
    watched(move || {
        black_box(table[usize::from(value as u8)]);
    })
}

/// The planner, which is not oblivious and says so.
pub fn plans(secret_number: u64) -> Work {
    let layout = Arc::new(layout());
    let ids = secret([below(layout.rows(), secret_number), 77]);
    let planner = Planner::new(layout);
    watched(move || {
        black_box(planner.plan_vartime(&ids, 0).expect("two rows"));
    })
}

/// A decoder that reads the wanted row alone.
pub fn reads_one_row(secret_number: u64) -> Work {
    let item: Vec<u8> = (0..8192).map(|i| number(i) as u8).collect();
    let [within] = secret([below(27, secret_number) as usize]);
    watched(move || {
        let mut row = [0; 300];
        row.copy_from_slice(&item[300 * within..][..300]);
        black_box(row);
    })
}

/// A place by division, as a bin's row once was found.
pub fn divides(secret_number: u64) -> Work {
    let [offset] = secret([below(2_000, secret_number) as usize]);
    watched(move || {
        let leaf_rows = black_box(400);
        black_box((offset / leaf_rows, offset % leaf_rows));
    })
}

/// The same of bytes, which is another instruction.
pub fn divides_bytes(secret_number: u64) -> Work {
    let [offset] = secret([below(200, secret_number) as u8]);
    watched(move || {
        black_box(offset % black_box(7));
    })
}
