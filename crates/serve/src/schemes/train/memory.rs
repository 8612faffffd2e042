//! What a round needs of the memory below it: the seam to `hushtable_oram`.

use std::path::Path;

use hushtable_oram::round::backup::Backup;
use hushtable_oram::round::{RoundName, RoundReport, Settled};
use hushtable_oram::rounds::BudgetSpent;

/// Why a memory failed: for the server's log. Clients are told that it did.
pub type MemoryError = Box<dyn std::error::Error + Send + Sync>;

/// Why a round was not committed, or may have been.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "there is no third")]
pub enum CommitError {
    /// The table is as it was before the round.
    Failed(MemoryError),
    /// Whether the table is updated shows in [`RoundMemory::settled`] once [`RoundMemory::check`] has
    /// gone well.
    Unsettled(MemoryError),
}

/// A table whose rows are fetched, given out, updated and put back in rounds. Calls may take
/// seconds; they come one at a time, in the order of a round: begin, then rows and add of users, then
/// commit or abandon.
pub trait RoundMemory: Send {
    /// Begins a round for `ids`, users × slots of them. By its name [`settled`](Self::settled) tells
    /// how it ended.
    ///
    /// # Errors
    /// Whatever kept the round from beginning; the memory is then idle again, or gone.
    fn begin(&mut self, name: RoundName, users: usize, ids: &[u32]) -> Result<(), MemoryError>;

    /// The rows of a user's slots (slots × dim numbers), and which of them are the table's.
    ///
    /// # Errors
    /// The memory's own.
    fn rows(
        &mut self,
        user: usize,
        rows: &mut [f32],
        found: &mut [bool],
    ) -> Result<(), MemoryError>;

    /// Adds a user's gradients (slots × dim finite numbers), once a user.
    ///
    /// # Errors
    /// The memory's own.
    fn add(&mut self, user: usize, gradients: &[f32], weight: f32) -> Result<(), MemoryError>;

    /// Updates the rows, durably. What the report says of the round and its users is the caller's to
    /// know, and is not read.
    ///
    /// # Errors
    /// The memory's own, and whether that is the end of the round.
    fn commit(&mut self) -> Result<RoundReport, CommitError>;

    /// Puts the rows back as they were.
    ///
    /// # Errors
    /// The memory's own.
    fn abandon(&mut self) -> Result<(), MemoryError>;

    /// k of the round that has begun, where the memory knows one: how many rows it read.
    fn accesses(&self) -> Option<u64> {
        None
    }

    /// Rounds committed.
    fn rounds(&self) -> u64;

    /// How the last rounds ended, oldest first, those before a restart too.
    fn settled(&self) -> Vec<Settled> {
        Vec::new()
    }

    /// Whether a round of `users` users could be written now; asked between rounds. What has failed is
    /// opened again first.
    ///
    /// # Errors
    /// What keeps rounds from being written.
    fn check(&mut self, users: usize) -> Result<(), MemoryError> {
        let _ = users;
        Ok(())
    }

    /// Begins a backup in the folder `to`, of this moment; none while a round is under way.
    ///
    /// # Errors
    /// The memory's own; it goes on all the same.
    fn start_backup(&mut self, to: &Path) -> Result<Option<Backup>, MemoryError> {
        Err(format!("{} cannot be made: this memory has no backups", to.display()).into())
    }

    /// What says so, once no further round may begin: the privacy that rounds cost is spent.
    fn spent(&self) -> Option<BudgetSpent> {
        None
    }
}
