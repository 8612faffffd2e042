//! Real servers on loopback and their clients, in one binary: what they are built from takes longer
//! to compile than the tests to run. What counts memory, ends processes or touches files under a map
//! has its own.

#[path = "../common/mod.rs"]
mod common;
#[path = "../model_common/mod.rs"]
mod model_common;
#[path = "../onion_model_common/mod.rs"]
mod onion_model_common;
#[path = "../train_common/mod.rs"]
mod train_common;

mod bags;
mod collector;
mod fleet;
mod groups;
mod hostile;
mod lookup;
mod model;
mod model_client;
mod onion;
mod onion_model;
mod onion_refusals;
mod pushes;
mod refusals;
mod shares;
mod shares_dealt;
mod traces;
mod train;
mod train_audit;
mod train_outcomes;
mod train_places;
