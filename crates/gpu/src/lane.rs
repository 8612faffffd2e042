//! What one batch in work needs of a device: a stream and buffers, kept for the next batch.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use zeroize::Zeroize;

use crate::{Buffer, Device, Error, PinnedBuffer, Stream, alloc, alloc_pinned};

/// Device memory that grows to what is asked of it.
#[derive(Default)]
pub(crate) struct Room {
    buffer: Option<Buffer>,
    /// Bytes asked for since it was wiped.
    used: usize,
}

impl Room {
    /// A buffer of at least `bytes`; what it held is lost if it must grow.
    pub(crate) fn of(&mut self, device: &Arc<dyn Device>, bytes: usize) -> Result<&Buffer, Error> {
        if self.buffer.as_ref().is_some_and(|buffer| buffer.bytes() < bytes) {
            // First: both might not fit.
            self.buffer = None;
        }
        self.used = self.used.max(bytes);
        match &mut self.buffer {
            Some(buffer) => Ok(buffer),
            none => Ok(none.insert(alloc(device, bytes)?)),
        }
    }

    /// The same, taken out; [`put`](Self::put) gives it back.
    pub(crate) fn take(&mut self, device: &Arc<dyn Device>, bytes: usize) -> Result<Buffer, Error> {
        self.of(device, bytes)?;
        match self.buffer.take() {
            Some(buffer) => Ok(buffer),
            None => alloc(device, bytes),
        }
    }

    pub(crate) fn put(&mut self, buffer: Buffer) {
        self.buffer = Some(buffer);
    }

    /// What is there, if anything is.
    pub(crate) fn buffer(&self) -> Option<&Buffer> {
        self.buffer.as_ref()
    }

    /// Clears, in the stream's order, what was used since the last time.
    fn wipe(&mut self, device: &Arc<dyn Device>, stream: Stream) -> Result<(), Error> {
        if let Some(buffer) = &self.buffer {
            device.clear(stream, buffer, 0, self.used.min(buffer.bytes()))?;
        }
        self.used = 0;
        Ok(())
    }
}

/// Pinned memory of the host that grows likewise.
#[derive(Default)]
pub(crate) struct Staging(Option<PinnedBuffer>);

impl Staging {
    pub(crate) fn of(
        &mut self,
        device: &Arc<dyn Device>,
        bytes: usize,
    ) -> Result<&mut [u8], Error> {
        if self.0.as_ref().is_some_and(|buffer| buffer.bytes() < bytes) {
            self.0 = None;
        }
        let buffer = match &mut self.0 {
            Some(buffer) => buffer,
            none => none.insert(alloc_pinned(device, bytes)?),
        };
        Ok(&mut buffer.as_mut_slice()[..bytes])
    }

    /// Wipes what is there; nothing may still be copied from it.
    pub(crate) fn wipe(&mut self) {
        if let Some(buffer) = &mut self.0 {
            buffer.as_mut_slice().zeroize();
        }
    }
}

/// A stream and its buffers.
pub(crate) struct Lane {
    pub stream: Stream,
    /// Keys on their way to the device.
    pub keys_out: Staging,
    /// Answers on their way back.
    pub answers_in: Staging,
    /// Key words.
    pub keys: Room,
    /// Nodes: a frontier, or a level.
    pub nodes: Room,
    /// Shares in natural order, or fragments.
    pub shares: Room,
    pub sums: Room,
    pub answers: Room,
    /// The word at which a cooperative grid waits.
    pub barrier: Room,
}

impl Lane {
    fn new(device: &Arc<dyn Device>) -> Result<Self, Error> {
        Ok(Self {
            stream: device.stream()?,
            keys_out: Staging::default(),
            answers_in: Staging::default(),
            keys: Room::default(),
            nodes: Room::default(),
            shares: Room::default(),
            sums: Room::default(),
            answers: Room::default(),
            barrier: Room::default(),
        })
    }

    /// Wipes, in the stream's order, all that is secret in device memory: keys, nodes and shares.
    ///
    /// It costs one write of those bytes. For 512 keys of a table of 2^20 rows: 0.3 MB of words and 2 MB
    /// of frontier where shares stay in registers, a microsecond at 4.8 TB/s; for one key 1 MB of
    /// shares; for 512 keys of rows of several strips 512 MB of fragments, which also are written
    /// once and read once a strip: less than a third of what memory has to do anyway.
    pub(crate) fn wipe(&mut self, device: &Arc<dyn Device>) -> Result<(), Error> {
        for room in [&mut self.keys, &mut self.nodes, &mut self.shares] {
            room.wipe(device, self.stream)?;
        }
        Ok(())
    }
}

/// Lanes that batches take turns in.
pub(crate) struct Lanes {
    free: Mutex<Vec<Lane>>,
    returned: Condvar,
}

impl Lanes {
    pub(crate) fn new(device: &Arc<dyn Device>, count: usize) -> Result<Self, Error> {
        let lanes: Result<Vec<_>, _> = (0..count).map(|_| Lane::new(device)).collect();
        Ok(Self { free: Mutex::new(lanes?), returned: Condvar::new() })
    }

    fn free(&self) -> MutexGuard<'_, Vec<Lane>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lane, once there is one.
    pub(crate) fn wait(&self) -> Taken<'_> {
        let mut free = self.free();
        loop {
            match free.pop() {
                Some(lane) => return Taken { lanes: self, lane: Some(lane) },
                None => free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Another lane for who has one: none rather than a wait, for two that wait for each other's would
    /// wait for ever.
    pub(crate) fn another(&self) -> Option<Taken<'_>> {
        self.free().pop().map(|lane| Taken { lanes: self, lane: Some(lane) })
    }
}

/// A lane that goes back when dropped.
pub(crate) struct Taken<'a> {
    lanes: &'a Lanes,
    lane: Option<Lane>,
}

impl Taken<'_> {
    pub(crate) fn lane(&mut self) -> &mut Lane {
        self.lane.as_mut().expect("it is taken out in drop alone")
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.lanes.free().extend(self.lane.take());
        self.lanes.returned.notify_one();
    }
}
