//! Where the table is: in device memory, or in the host's and sent along part by part.

use std::sync::{Arc, Mutex, PoisonError};

use crate::layout::{CopyRows, Layout};
use crate::{Arg, Buffer, Device, Error, Event, PinnedBuffer, Stream, alloc, alloc_pinned};

/// Bytes that are packed and sent at a time when a table is loaded.
const CHUNK_BYTES: usize = 64 << 20;

/// A table's superblocks.
pub(crate) enum Store {
    /// All on the device.
    Resident(Buffer),
    /// In pinned memory, with two buffers on the device that parts come to in turn.
    Streamed { host: PinnedBuffer, part_blocks: u32, stage: Mutex<Stage> },
}

/// The device's part of a streamed table; one pass has it at a time.
pub(crate) struct Stage {
    copies: Stream,
    buffers: [Buffer; 2],
}

/// Superblocks that are on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub first: u32,
    pub blocks: u32,
    pub table: Arg,
}

impl Store {
    /// Loads a table into device memory.
    pub(crate) fn resident(
        device: &Arc<dyn Device>,
        layout: &Layout,
        copy: &CopyRows<'_>,
    ) -> Result<Self, Error> {
        let table = alloc(device, layout.table_bytes() as usize)?;
        let stream = device.stream()?;
        let at_once =
            (CHUNK_BYTES / layout.block_bytes()).clamp(1, layout.blocks() as usize) as u32;
        let bytes = at_once as usize * layout.block_bytes();
        let mut staging = alloc_pinned(device, bytes)?;
        for first in (0..layout.blocks()).step_by(at_once as usize) {
            let blocks = at_once.min(layout.blocks() - first) as usize;
            let chunk = &mut staging.as_mut_slice()[..blocks * layout.block_bytes()];
            layout.pack(first, chunk, copy)?;
            device.copy_in(stream, &table, first as usize * layout.block_bytes(), chunk)?;
            device.synchronize(stream)?;
        }
        Ok(Self::Resident(table))
    }

    /// Loads a table into pinned memory, to be sent in parts of `part_blocks` superblocks.
    pub(crate) fn streamed(
        device: &Arc<dyn Device>,
        layout: &Layout,
        part_blocks: u32,
        copy: &CopyRows<'_>,
    ) -> Result<Self, Error> {
        let mut host = alloc_pinned(device, layout.table_bytes() as usize)?;
        layout.pack(0, host.as_mut_slice(), copy)?;
        let bytes = part_blocks as usize * layout.block_bytes();
        let buffers = [alloc(device, bytes)?, alloc(device, bytes)?];
        let stage = Mutex::new(Stage { copies: device.stream()?, buffers });
        Ok(Self::Streamed { host, part_blocks, stage })
    }

    /// Superblocks that a part may have.
    pub(crate) fn part_blocks(&self, layout: &Layout) -> u32 {
        match self {
            Self::Resident(_) => layout.blocks(),
            Self::Streamed { part_blocks, .. } => *part_blocks,
        }
    }

    /// Hands the table to `work`, in parts of `part_blocks` superblocks in order, in the stream's
    /// order. When it returns, a streamed table's parts have all been worked on.
    pub(crate) fn each_part(
        &self,
        device: &Arc<dyn Device>,
        stream: Stream,
        layout: &Layout,
        part_blocks: u32,
        mut work: impl FnMut(Part) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let parts = (0..layout.blocks()).step_by(part_blocks as usize);
        let mut parts = parts.map(|first| (first, part_blocks.min(layout.blocks() - first)));
        match self {
            Self::Resident(table) => {
                for (first, blocks) in parts {
                    let table = table.at(first as usize * layout.block_bytes());
                    work(Part { first, blocks, table })?;
                }
                Ok(())
            }
            Self::Streamed { host, stage, .. } => {
                let stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
                let mut marks: Vec<(Event, Event)> = Vec::new();
                let send = |(first, blocks): (u32, u32)| {
                    let buffer = &stage.buffers[marks.len() % 2];
                    // The part before last has been worked on.
                    if let Some((_, worked)) = marks.len().checked_sub(2).map(|i| marks[i]) {
                        device.wait(stage.copies, worked)?;
                    }
                    let start = first as usize * layout.block_bytes();
                    let bytes = &host.as_slice()[start..][..blocks as usize * layout.block_bytes()];
                    device.copy_in(stage.copies, buffer, 0, bytes)?;
                    let sent = device.record(stage.copies)?;
                    device.wait(stream, sent)?;
                    work(Part { first, blocks, table: buffer.at(0) })?;
                    marks.push((sent, device.record(stream)?));
                    Ok(())
                };
                let outcome = parts.try_for_each(send);
                // Before others have the buffers, even if something failed.
                let settled = device.synchronize(stage.copies).and(device.synchronize(stream));
                for (sent, worked) in marks {
                    device.forget(sent);
                    device.forget(worked);
                }
                outcome.and(settled)
            }
        }
    }
}
