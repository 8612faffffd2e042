//! What fronts of any scheme need of their shards: where the servers are and how they are, and passes over all of
//! them.
//!
//! A front's pass goes to a server of every shard ([`passes`]); the fleet knows which are ready ([`fleet`],
//! [`replica`]) and reads again who they are when that changes ([`file`]). What is asked, and how a shard says what
//! it holds, is the scheme's: [`ShardQuestion`], and what a [`FleetSpec`] says.

mod error;
mod file;
mod fleet;
mod hedge;
mod metrics;
mod passes;
mod replica;

pub use self::error::{Owner, ShardError, front_name, shard_name};
pub(crate) use self::fleet::{Fleet, FleetSpec, InUse};
pub(crate) use self::metrics::FrontMetrics;
pub(crate) use self::passes::{NoShard, ShardQuestion, Won};
pub(crate) use self::replica::{Replica, Unheld};
