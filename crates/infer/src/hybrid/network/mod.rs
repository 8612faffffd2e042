//! Networks.
#![allow(missing_docs, unused)]
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct Error;
