//! The generated messages and services of `proto/hushtable/v1/lookup.proto`.
#![allow(missing_docs, clippy::all, reason = "generated")]

tonic::include_proto!("hushtable.v1");
