//! The online phase: two halves that use a precompute up for one prediction.
//!
//! Each is told the frames that came ([`push`](OnlineClient::push)) and asked for those that are to be
//! sent ([`pull`](OnlineClient::pull)). How many there are and what each holds follows from the program.

mod client;
mod message;
mod server;

pub use client::OnlineClient;
pub use server::OnlineServer;
