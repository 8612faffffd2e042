//! What can go wrong with a round.

use std::path::PathBuf;

use crate::aggregate::{AggregateError, GradientError};
use crate::disk::DiskError;
use crate::fdp::FdpError;
use crate::geometry::GeometryError;
use crate::journal::JournalError;
use crate::raw::RawError;
use crate::recover::RecoverError;
use crate::seal::Forged;
use crate::tree::TreeError;
use crate::union::UnionError;

/// Why a controller refuses, or cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A spec's field.
    #[error("the controller's {field}: expected {expected}")]
    Spec {
        /// Which.
        field: &'static str,
        /// What it may be.
        expected: &'static str,
    },
    /// The spec in the folder is not that which the controller was created with.
    #[error(
        "{} is not what this controller was created with: its geometry and its privacy are fixed. Put it \
         back as it was (a backup has it), or restore a backup: `hushtable train restore`",
        path.display()
    )]
    SpecChanged {
        /// The file.
        path: PathBuf,
    },
    /// The folder holds something already.
    #[error("{} exists already: give a new folder, or open the controller that is there", path.display())]
    Exists {
        /// The folder or file.
        path: PathBuf,
    },
    /// Creating it was cut short.
    #[error(
        "{} holds no controller, or one whose creation was cut short. If a round was ever committed in it, \
         `hushtable train recover` says what is left; else remove it and create the controller",
        path.display()
    )]
    Incomplete {
        /// The folder.
        path: PathBuf,
    },
    /// A backup whose making did not end.
    #[error(
        "{} holds no backup, or one whose making was cut short: it cannot be restored. Back up again",
        path.display()
    )]
    BackupIncomplete {
        /// The folder.
        path: PathBuf,
    },
    /// A backup's file is not what was written.
    #[error(
        "{} is not what was backed up: take another backup. If there is none, `hushtable train recover \
         --salvage` on a copy of this one keeps the rows that can be read",
        path.display()
    )]
    BackupDamaged {
        /// The file.
        path: PathBuf,
    },
    /// The controller ended while it was backed up.
    #[error(
        "{} is no backup: the controller ended while it was made. Back up again",
        path.display()
    )]
    BackupCut {
        /// The backup's folder.
        path: PathBuf,
    },
    /// A way to go on that does not fit what is the matter.
    #[error(
        "{asked} does not fit: {found}. What fits is {remedy}; `hushtable train recover FOLDER` says more"
    )]
    Remedy {
        /// What is the matter.
        found: String,
        /// What fits.
        remedy: &'static str,
        /// What was asked for.
        asked: &'static str,
    },
    /// Rounds that are not charged to the budget.
    #[error(
        "rounds that began since count against the privacy budget, and nothing here says how many there \
         were: give the number of all rounds that ever began (--rounds-begun N: `train info` and the \
         operator's log have it), or, restoring a backup, the old root counter (--old-counter)"
    )]
    RoundsUnknown,
    /// A counter that nothing can be put in the place of.
    #[error(
        "{place} is no file, so the new root counter cannot take its place: say where it goes \
         (--new-counter-at), and serve the controller with that one from then on"
    )]
    CounterPlace {
        /// The old counter.
        place: String,
    },
    /// An earlier recovery kept something here.
    #[error(
        "{} is what an earlier recovery kept: move it away, or remove it if the controller has run well since",
        path.display()
    )]
    Kept {
        /// The folder or file.
        path: PathBuf,
    },
    /// Too little is left of the folder.
    #[error(
        "{} has lost its first record, without which no bucket of the tree can be opened: nothing can be \
         salvaged. Restore a backup: `hushtable train restore BACKUP FOLDER`",
        path.display()
    )]
    Unsalvageable {
        /// The journal.
        path: PathBuf,
    },
    /// A file of the folder.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Not the time for it.
    #[error("{call} when the controller is {phase}: {expected}")]
    Phase {
        /// What was called.
        call: &'static str,
        /// Idle or serving.
        phase: &'static str,
        /// What to call first.
        expected: &'static str,
    },
    /// More users than declared.
    #[error("a round of {users} users: this controller was created for 1 to {users_max}")]
    Users {
        /// As given.
        users: usize,
        /// The most.
        users_max: usize,
    },
    /// Not `users` · `slots` ids.
    #[error(
        "{found} ids: expected {expected}, {slots} slots for each user, padded with {}",
        u32::MAX
    )]
    Ids {
        /// As given.
        found: usize,
        /// What they should be.
        expected: usize,
        /// Slots of a user.
        slots: usize,
    },
    /// A round that would cost more than is left. It has not begun.
    #[error(
        "{rounds} rounds have cost epsilon {spent:.4} of {budget:.4}, which leaves {:.4}: this one \
         would make it {needed:.4}. Export the table; to go on, create a controller anew, which \
         loses its users' privacy anew",
        (budget - spent).max(0.0)
    )]
    BudgetSpent {
        /// Rounds begun so far, whatever became of them.
        rounds: u64,
        /// Their ε.
        spent: f64,
        /// What it would be with this round.
        needed: f64,
        /// What it may be.
        budget: f64,
    },
    /// No such user in this round.
    #[error("user {user} of a round of {users}: users are numbered from 0")]
    User {
        /// As given.
        user: usize,
        /// Users of the round.
        users: usize,
    },
    /// A second upload.
    #[error("user {user} has uploaded already: one upload a user and round")]
    Twice {
        /// Which.
        user: usize,
    },
    /// A buffer of the wrong length.
    #[error("{what} have {found} entries: expected {expected}")]
    Length {
        /// The buffer's content.
        what: &'static str,
        /// As given.
        found: usize,
        /// What it should be.
        expected: usize,
    },
    /// A user's gradients; the round's other users are not concerned.
    #[error(transparent)]
    Gradients(#[from] GradientError),
    /// A row of the table to begin with is no number.
    #[error("number {column} of row {row} of the table is not finite: mend the table first")]
    Row {
        /// Which row.
        row: u64,
        /// Which number of it.
        column: usize,
    },
    /// A row that should be there is not.
    #[error(
        "a row that the position map has is not in the tree: its file or this memory was changed"
    )]
    RowMissing,
    /// An earlier error left what is in memory behind what is on disk.
    #[error(
        "an earlier error ended this controller: open it again; the last committed round stands"
    )]
    Ended,
    /// The disk or the counter failed while a round was made to stand, or somewhere behind that.
    #[error(
        "whether the round was committed is not known yet ({source}): open the controller again, which \
         tells. It had {rounds} rounds before"
    )]
    Unsettled {
        /// Rounds committed before it.
        rounds: u64,
        /// What failed.
        source: Box<Error>,
    },
    /// A journal's record that this program did not write.
    #[error(
        "a record of the journal says nothing that fits this controller: it is from another version"
    )]
    Record,
    /// ε.
    #[error(transparent)]
    Fdp(#[from] FdpError),
    /// The aggregate.
    #[error(transparent)]
    Aggregate(#[from] AggregateError),
    /// The tree's shape.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The requests.
    #[error(transparent)]
    Union(#[from] UnionError),
    /// The main memory.
    #[error(transparent)]
    Raw(#[from] RawError),
    /// The tree's file.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The journal and the root counter.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// What is on disk does not make a state.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// Valid bits.
    #[error(transparent)]
    Vtree(#[from] crate::vtree::VtreeError),
    /// Memory that was changed.
    #[error("what is in memory is not what was written last: this machine's memory was changed")]
    Memory(#[from] Forged),
    /// The memories of a round.
    #[error(transparent)]
    MemoryOram(#[from] crate::memory::MemoryError),
    /// No entropy.
    #[error(transparent)]
    Entropy(#[from] hushtable_prg::EntropyError),
}
