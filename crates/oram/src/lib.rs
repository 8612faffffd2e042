//! Oblivious memories for federated training of embedding tables: what a round reads and writes says
//! nothing of which rows its users asked for, but for the number of rows, which differential privacy
//! bounds (FEDORA, ASPLOS 2025).
//!
//! # The main path
//!
//! A [`Controller`] is a folder that holds a table; [`Rounds`] takes what its users send, sealed, and
//! says what the controller is to do; each user has a [`UserSession`](wire::UserSession). One round of
//! one user, from a new folder to the trained rows:
//!
//! ```
//! use std::time::Instant;
//!
//! use hushtable_oram::wire::{Context, ControllerKey, Pin, Terms, UserSession, random_round};
//! use hushtable_oram::{Controller, ControllerSpec, Key, Next, Progress, RoundLimits, Rounds};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = tempfile::tempdir()?;
//! // A table of 100 rows of 2 numbers, for rounds of at most 3 users with 4 rows each.
//! let mut spec = ControllerSpec::new("films", (100, 2), (3, 4));
//! spec.fdp.epsilon = f64::INFINITY; // Reads the rows that are asked for, and no others.
//! let (folder, counter) = (scratch.path().join("films"), scratch.path().join("counter"));
//! let key = Key::random()?;
//! let mut first_rows = |_first: u64, rows: &mut [f32]| {
//!     rows.fill(0.5);
//!     Ok(())
//! };
//! Controller::create(&folder, &key, &counter, &spec, &mut first_rows, &mut |_, _| {})?.close()?;
//! let mut controller = Controller::open(&folder, &key, &counter, &mut |_, _| {})?;
//!
//! // What users know the controller by.
//! let (terms, own) = (Terms::of(&spec)?, ControllerKey::generate()?);
//! let pin = Pin::new(own.public(), &terms);
//! let (count, settled) = (controller.round(), controller.settled());
//! let mut rounds = Rounds::new(terms.clone(), own, count, None, settled);
//!
//! let (round, now) = (random_round()?, Instant::now());
//! let of_one =
//!     RoundLimits { users: 1, users_min: 1, request_max: None, upload_max: None, finish_max: None };
//! rounds.open(&of_one, round, now)?;
//! let mut user = UserSession::new(&pin, Context::new(&terms, round, 0), None)?;
//! rounds.request(round, 0, &user.request(&[7])?)?;
//! let Next::Begin { name, users, ids } = rounds.next(now) else { panic!("all have come") };
//! controller.begin_named(name, users, &ids)?;
//! rounds.begun(Ok(()), None, now);
//!
//! let (mut rows, mut found) = ([0.0; 8], [false; 4]);
//! controller.rows(0, &mut rows, &mut found)?;
//! let reply = user.reply(&rounds.seal(round, 0, &rows, &found)?)?;
//! assert_eq!((&reply.rows[..2], reply.found[0]), (&[0.5, 0.5][..], true));
//! let sealed = user.upload(&[0.25, -1.0], 1.0)?;
//! if let Progress::Done(Some(upload)) = rounds.upload(round, 0, &sealed)? {
//!     controller.add(0, &upload.gradients, upload.weight)?;
//! }
//! assert_eq!(rounds.finish(round, false, now)?, Progress::Due);
//! let Next::Commit = rounds.next(now) else { panic!("all users have uploaded") };
//! rounds.committed(Ok(controller.commit()?));
//! let Progress::Done(report) = rounds.finish(round, false, now)? else { panic!("it is over") };
//! assert_eq!((report.uploaded, report.accesses), (1, 1));
//!
//! let mut trained = Vec::new();
//! let mut sink = |_first: u64, rows: &[f32]| {
//!     trained.extend_from_slice(rows);
//!     Ok(())
//! };
//! controller.export(&mut sink, &mut |_, _| {})?;
//! assert_eq!(trained[12..18], [0.5, 0.5, 0.25, 1.5, 0.5, 0.5]);
//! # Ok(())
//! # }
//! ```
//!
//! Whoever asks such a server over a network has a [`Trainer`](session::Trainer).
//! `hushtable_serve` does the same behind gRPC, and the Python package's `Controller` in one process.
//!
//! # The parts
//!
//! The modules below the main path are what a controller is made of. They are public so that their
//! constant time and their speed can be measured one by one, and so that other memories can be built of
//! them; their interfaces follow the controller's needs.
#![deny(unsafe_code)]

// The main path.
pub mod round;
pub mod rounds;
pub mod session;
pub mod wire;

// What a controller is told: what becomes of gradients, how ε is spent, under which key it is sealed,
// where its journal's head is counted.
pub mod aggregate;
pub mod fdp;
pub mod journal;
pub mod seal;

// The parts of a round: the set of its requests, its rows in memory, where each row lies.
pub mod buffer;
pub mod memory;
pub mod position;
pub mod union;

// The tree on disk, from its shape to its pages.
pub mod attempt;
pub mod bucket;
pub mod disk;
pub mod evict;
pub mod geometry;
pub mod instance;
mod layout;
pub mod raw;
pub mod recover;
pub mod shape;
pub mod tree;
pub mod vtree;

// Branch-free building blocks, and the baseline that the tree is measured against, for the laboratory.
pub mod oblivious;
#[cfg(feature = "bench")]
pub mod path;

pub use aggregate::AggregateSpec;
pub use fdp::FdpSpec;
pub use round::{BudgetSpec, Controller, ControllerSpec, RoundReport, RoundStart, Spent};
pub use rounds::{Next, Outcome, Progress, Refused, RoundLimits, Rounds};
pub use seal::Key;
