//! Private inference: a model computed on features that the server never sees.

#![forbid(unsafe_code)]

pub mod dlrm;
