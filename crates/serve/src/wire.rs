//! The generated messages and services of `proto/hushtable/v1`.
#![allow(missing_docs, clippy::all, reason = "generated")]

tonic::include_proto!("hushtable.v1");
