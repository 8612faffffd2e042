//! What is joined to paths without the function for it, and why that is no text from outside.

/// By file: the expressions, and why.
pub(super) const KNOWN: &[(&str, &[&str], &str)] = &[
    (
        "crates/gpu/src/cuda/cache.rs",
        &[r#"format!("{}.cubin", key.to_hex())"#],
        "a hash in hexadecimal digits",
    ),
    ("crates/gpu/src/cuda/nvrtc.rs", &["name"], "two numbers in a name of the loader's own"),
    (
        "crates/gpu/src/shim/build.rs",
        &["name", r#"format!("hushtable-shim-{}", &key.to_hex()[..32])"#],
        "files of this crate, and a hash in hexadecimal digits",
    ),
    (
        "crates/infer/src/store/folder.rs",
        &[
            r#"format!("{name}.new")"#,
            "name",
            r#"format!("{}.key", name(id))"#,
            r#"format!("{}.data", name(id))"#,
        ],
        "constants, and ids in hexadecimal digits",
    ),
    (
        "crates/infer/src/store/ledger.rs",
        &[r#"format!("{}.lock", name(&store))"#, r#"format!("{}.ledger", name(&store))"#],
        "ids in hexadecimal digits",
    ),
    (
        "crates/oram/src/round/open/backup.rs",
        &["name"],
        "constants, and what the system lists in the folder",
    ),
    (
        "crates/rlwe/src/ckks/residues.rs",
        &[
            "self.reduce(high), rest",
            "self.join(self.reduce(high), middle as f64), rest",
            "self.reduce(high), middle as f64",
        ],
        "numbers, and no path",
    ),
    (
        "crates/serve/src/batch/scheduler.rs",
        &["Arc::clone(&shared) as Arc<dyn Passes>"],
        "a queue, and no path",
    ),
    (
        "crates/serve/src/host/push/client.rs",
        &["path"],
        "what the system lists in the client's own folder",
    ),
    (
        "crates/serve/src/host/push.rs",
        &[r#"format!("{HIDDEN}{random:016x}")"#, "&name"],
        "a number, and what the system lists in both folders",
    ),
    (
        "crates/serve/src/keys/folder.rs",
        &[r#"format!("{id}{SUFFIX}.{random:016x}{ASIDE}")"#, r#"format!("{id}{SUFFIX}")"#],
        "ids in hexadecimal digits, and a number",
    ),
    (
        "crates/serve/src/schemes/train/controller.rs",
        &["name"],
        "the last part of the path that the operator gives, of which only the comparison is used",
    ),
    (
        "crates/serve/src/shards/file.rs",
        &["&*place"],
        "the operator's own file, which may name certificates anywhere",
    ),
    ("crates/serve/src/trace/parent.rs", &["parent"], "a trace, and no path"),
    ("crates/table/src/bundle.rs", &["name"], "names that are constants"),
    (
        "crates/table/src/listed.rs",
        &["file", "within", "entry.file_name()"],
        "constants, and what the system lists in the folder",
    ),
    ("crates/table/src/model/dense.rs", &["tensor"], "a tensor's pieces, and no path"),
    (
        "crates/table/src/model/shards/files.rs",
        &["self.scheme().place()", "name", "&path"],
        "constants, and places that `places` made",
    ),
    (
        "crates/table/src/model/shards/verify.rs",
        &["self.scheme().place()"],
        "names that are constants",
    ),
    (
        "crates/table/src/model/shards.rs",
        &["scheme.place()", "place", r#"format!(".{place}.{}", std::process::id())"#],
        "constants, and a number",
    ),
    ("crates/table/src/model/writer.rs", &["file"], "names that are constants"),
    ("crates/table/src/patch/apply.rs", &["name"], "names that are constants"),
    (
        "crates/table/src/prepared/writer.rs",
        &["name"],
        "the last part of the path that the user gives, with an ending",
    ),
    (
        "crates/table/src/source/checkpoint.rs",
        &["stored", "index", "name"],
        "a tensor's pieces, and what the system lists in the folder",
    ),
    ("crates/table/src/source/folder.rs", &["name"], "what the system lists in the folder"),
    (
        "crates/table/src/staging.rs",
        &["name"],
        "constants, and the last part of the path that the user gives, with a number",
    ),
    ("crates/table/src/table.rs", &["name"], "names that are constants"),
];
