//! `dense.safetensors`: the tensors of a checkpoint that are no tables, a chunk at a time.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use super::writer::{DenseWriter, ModelWriter};
use crate::error::Error;
use crate::source::{Checkpoint, ReadAt, Stored};

/// Bytes that are read at once, where a row is not larger.
const CHUNK_BYTES: u64 = 1 << 20;

/// A tensor in a safetensors header.
#[derive(Serialize)]
struct HeaderEntry {
    dtype: &'static str,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// Writes these tensors as the model's dense file.
///
/// `progress` is called with how many bytes more are done.
pub(super) fn write_dense(
    writer: &mut ModelWriter,
    checkpoint: &Checkpoint,
    tensors: &[&Stored],
    progress: &mut dyn FnMut(u64),
) -> Result<(), Error> {
    let mut sized = Vec::new();
    for tensor in tensors {
        let bytes = checkpoint.size_of(tensor)?;
        let kind = tensor.kind.expect("what has no kind has no size");
        sized.push((*tensor, kind, bytes));
    }
    // Wide values first, so that each value lies at a multiple of its size; then by name, so that
    // the same tensors make the same file.
    sized.sort_by(|(a, a_kind, _), (b, b_kind, _)| {
        (b_kind.value_bytes, &a.info.name).cmp(&(a_kind.value_bytes, &b.info.name))
    });
    let mut header = BTreeMap::new();
    let mut end = 0_u64;
    for (tensor, kind, bytes) in &sized {
        let start = end;
        end = start.saturating_add(*bytes);
        let shape = tensor.info.shape.clone();
        let entry = HeaderEntry { dtype: kind.name, shape, data_offsets: [start, end] };
        header.insert(tensor.info.name.as_str(), entry);
    }
    let mut json = serde_json::to_vec(&header)
        .expect("a map of strings and numbers is always representable as JSON");
    json.resize(json.len().next_multiple_of(8), b' ');

    let path = writer.dense_path();
    let wrong = |error| Error::io("write", &path)(error);
    let mut out = DenseWriter::new(writer.create_dense()?);
    out.write_all(&(json.len() as u64).to_le_bytes()).map_err(wrong)?;
    out.write_all(&json).map_err(wrong)?;
    let mut chunk = Vec::new();
    for (tensor, _, _) in &sized {
        // One at a time: what does not lie in order is put in order in memory.
        let content = checkpoint.join(tensor)?;
        let row_bytes = content.row_bytes().max(1);
        let step = (CHUNK_BYTES / row_bytes).max(1) * row_bytes;
        let mut at = 0;
        while at < content.size() {
            chunk.resize(step.min(content.size() - at) as usize, 0);
            content
                .read_into(&mut chunk, at)
                .map_err(|source| Error::Source { path: checkpoint.path().to_owned(), source })?;
            out.write_all(&chunk).map_err(wrong)?;
            at += chunk.len() as u64;
            progress(chunk.len() as u64);
        }
    }
    writer.adopt_dense(out)
}
