//! Compiles the wire contract of `proto/` with protox, so that no `protoc` is needed.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let services = [
        "hybrid",
        "infer",
        "lookup",
        "onion",
        "onion_shard",
        "operate",
        "shard",
        "shares",
        "train",
    ]
    .map(|name| proto.join(format!("hushtable/v1/{name}.proto")));
    println!("cargo:rerun-if-changed={}", proto.display());
    let descriptors = protox::compile(&services, [&proto])?;
    tonic_prost_build::configure()
        // Keys and answers stay slices of the buffers they came in.
        .bytes(".hushtable.v1")
        .compile_fds(descriptors)?;
    // Not ours, so not in the contract: what a root counter needs of etcd.
    let etcd = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    println!("cargo:rerun-if-changed={}", etcd.display());
    let descriptors = protox::compile([etcd.join("etcd.proto")], [&etcd])?;
    tonic_prost_build::configure().build_server(false).compile_fds(descriptors)?;
    Ok(())
}
