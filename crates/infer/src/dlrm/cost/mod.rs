//! What operations cost: a table that was measured, and what a plan would take by it.
//!
//! [`operations`] counts what a circuit does, each operation with its level and its kind; a [`CostTable`]
//! prices them, and [`calibrate`] measures one. [`Counted`] records the same of any circuit that is run.

mod clock;
mod counted;
mod gates;
mod kinds;
mod measure;
mod operations;
mod table;

pub use clock::thread_ms;
pub use counted::{Counted, CountedMap, Group, Spent};
pub(super) use gates::{gate_operations, reduction_operations};
pub use kinds::{Kind, Operation};
pub(super) use kinds::{diagonal, is_repeated};
pub use measure::{calibrate, measure};
pub(super) use operations::MapShape;
pub use operations::operations;
pub use table::{CostTable, Entry, FORMAT};
