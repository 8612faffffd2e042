//! The generated messages and services of `proto/hushtable/v1`.
#![allow(missing_docs, clippy::all, reason = "generated")]

tonic::include_proto!("hushtable.v1");

/// What is used of etcd's own API, by `crates/serve/proto`.
#[allow(dead_code, reason = "generated")]
pub(crate) mod etcd {
    tonic::include_proto!("etcdserverpb");
}
