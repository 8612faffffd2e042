//! What engines ask of a device: memory, modules, launches, streams.
//!
//! [`Cuda`](crate::cuda::Cuda) is one; the tests' host shim is another, so that all of an engine but
//! the driver runs where there is no GPU.

use std::sync::Arc;

use crate::Error;

/// A device's name, its limits and its memory.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceFacts {
    /// Its name, as the driver gives it.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory, in all.
    pub memory_bytes: u64,
    /// Bytes of shared memory that a block can have.
    pub shared_bytes_max: u32,
    /// The driver's version, as in 13000.
    pub driver_version: u32,
}

/// Device memory that is freed when dropped.
///
/// Its first byte is aligned to 256 on a GPU. Engines count on 16 only: the shim puts a buffer's end
/// before a page that may not be touched, and so aligns the start to 16.
pub struct Buffer {
    device: Arc<dyn Device>,
    address: u64,
    bytes: usize,
}

impl Buffer {
    /// Where it is on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where `bytes` from `offset` on are.
    pub(crate) fn range(&self, offset: usize, bytes: usize) -> Result<u64, Error> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            let reason = format!(
                "{bytes} bytes from byte {offset} on do not fit a device buffer of {} bytes",
                self.bytes
            );
            return Err(Error::Geometry { reason });
        }
        Ok(self.address + offset as u64)
    }

    /// A kernel's argument: where its byte `offset` is.
    ///
    /// # Panics
    /// For an offset past the end.
    pub fn at(&self, offset: usize) -> Arg {
        assert!(offset <= self.bytes, "byte {offset} of a buffer of {}", self.bytes);
        Arg::Address(self.address + offset as u64)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: from `take`, in `alloc`, and given back here alone.
        unsafe { self.device.free(self.address) };
    }
}

/// One argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "what kernels take")]
pub enum Arg {
    /// A pointer.
    Address(u64),
    /// `u32`.
    U32(u32),
    /// `u64`.
    U64(u64),
}

/// How many threads, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Launch {
    /// Blocks along x and y.
    pub blocks: (u32, u32),
    /// Threads of a block: whole warps, at most 1,024.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// All blocks run at once and may wait for each other.
    pub is_cooperative: bool,
}

impl Launch {
    /// That the device takes such a launch of a kernel, of which it runs `resident` blocks on each
    /// multiprocessor at once; that is asked only where it matters.
    pub(crate) fn check(
        &self,
        facts: &DeviceFacts,
        resident: impl FnOnce() -> Result<u32, Error>,
    ) -> Result<(), Error> {
        let (x, y) = self.blocks;
        let refuse = |reason: String| Err(Error::Geometry { reason });
        if x == 0 || x > i32::MAX as u32 || y == 0 || y > 65_535 {
            return refuse(format!("a grid of {x} by {y} blocks: at most 2,147,483,647 by 65,535"));
        }
        if self.threads == 0 || self.threads > 1024 || !self.threads.is_multiple_of(32) {
            return refuse(format!("a block of {} threads: 32 to 1,024, by 32", self.threads));
        }
        if self.shared_bytes > facts.shared_bytes_max {
            return refuse(format!(
                "a block of {} bytes of shared memory: {} has {}",
                self.shared_bytes, facts.name, facts.shared_bytes_max
            ));
        }
        if self.is_cooperative {
            let at_once = u64::from(resident()?) * u64::from(facts.multiprocessors);
            if u64::from(x) * u64::from(y) > at_once {
                return refuse(format!(
                    "{x} by {y} blocks that wait for each other: {} runs {at_once} such at once",
                    facts.name
                ));
            }
        }
        Ok(())
    }
}

/// A source and what is defined for it: one module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct ModuleSpec {
    /// The name of the file in `kernels/`, as `tensor.cu`.
    pub source: &'static str,
    /// Macros, by name.
    pub defines: Vec<(&'static str, u32)>,
}

/// A kernel that can be launched on the device that loaded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(pub(crate) u64);

/// An ordered queue of work on a device. Work of different streams may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub(crate) u64);

/// A moment in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(pub(crate) u64);

/// Memory of the host that a device copies to and from without the processor, freed when dropped.
///
/// What a stream still copies from it must stay as it is: write to it only after
/// [`Device::synchronize`], or an event that came after the copy.
pub struct PinnedBuffer {
    device: Arc<dyn Device>,
    address: u64,
    bytes: usize,
}

impl PinnedBuffer {
    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the device gave this many initialised bytes, ours until the drop.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.bytes) }
    }

    /// Its bytes, to write to.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nothing else refers to them while `self` is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: from `take_pinned`, in `alloc_pinned`, and given back here alone.
        unsafe { self.device.free_pinned(self.address, self.bytes) };
    }
}

/// A GPU, or what stands for one in tests.
///
/// Streams, events and kernels are those of this device; nothing outside this crate makes them.
///
/// # Safety
/// Buffers read and write what [`take`](Self::take) and [`take_pinned`](Self::take_pinned) gave: an
/// implementation gives addresses of as many bytes as it was asked for, which are nobody else's until
/// they are given back; those of `take_pinned` are initialised memory of this process.
pub unsafe trait Device: Send + Sync {
    /// What it is.
    fn facts(&self) -> &DeviceFacts;

    /// Bytes that are free now.
    ///
    /// # Errors
    /// The driver's.
    fn free_bytes(&self) -> Result<u64, Error>;

    /// Takes memory, its contents undefined; `alloc` of the `Arc` wraps it.
    #[doc(hidden)]
    fn take(&self, bytes: usize) -> Result<u64, Error>;

    /// Gives memory back.
    ///
    /// # Safety
    /// `address` is from [`take`](Self::take), was not given back before, and is not used again.
    #[doc(hidden)]
    unsafe fn free(&self, address: u64);

    /// Takes memory of the host, zeros, aligned to a page.
    #[doc(hidden)]
    fn take_pinned(&self, bytes: usize) -> Result<u64, Error>;

    /// Gives pinned memory back, once nothing that was asked of the device uses it.
    ///
    /// # Safety
    /// `address` is from [`take_pinned`](Self::take_pinned) of as many bytes, was not given back
    /// before, and is not used again.
    #[doc(hidden)]
    unsafe fn free_pinned(&self, address: u64, bytes: usize);

    /// A new stream; it lives as long as the device.
    ///
    /// # Errors
    /// The driver's.
    fn stream(&self) -> Result<Stream, Error>;

    /// Copies to `to` from byte `offset` on, in the stream's order. From pinned memory it is
    /// asynchronous; other memory may be reused when this returns.
    ///
    /// # Errors
    /// The driver's.
    fn copy_in(&self, stream: Stream, to: &Buffer, offset: usize, from: &[u8])
    -> Result<(), Error>;

    /// Copies from `from` from byte `offset` on, in the stream's order, and waits for it.
    ///
    /// # Errors
    /// The driver's, those of earlier work in the stream included.
    fn copy_out(
        &self,
        stream: Stream,
        to: &mut [u8],
        from: &Buffer,
        offset: usize,
    ) -> Result<(), Error>;

    /// Sets bytes to zero, in the stream's order.
    ///
    /// # Errors
    /// The driver's.
    fn clear(
        &self,
        stream: Stream,
        buffer: &Buffer,
        offset: usize,
        bytes: usize,
    ) -> Result<(), Error>;

    /// Compiles a module, or finds it compiled, and gives one of its kernels. The same again costs a
    /// look into a map.
    ///
    /// # Errors
    /// [`Error::Compile`] with the compiler's words; the driver's.
    fn kernel(&self, module: &ModuleSpec, name: &'static str) -> Result<Kernel, Error>;

    /// Runs a kernel, in the stream's order.
    ///
    /// # Errors
    /// The driver's; [`Error::Arguments`] for arguments of other sizes than the kernel's.
    ///
    /// # Safety
    /// Kernels check nothing. The arguments are what this one takes, in its order: addresses lie in
    /// [`Buffer`]s of this device that live until the stream is past the launch, and with the counts
    /// beside them and `launch` it reads and writes no byte outside of those, nor a byte that work of
    /// another stream writes meanwhile.
    unsafe fn launch(
        &self,
        stream: Stream,
        kernel: Kernel,
        launch: Launch,
        arguments: &[Arg],
    ) -> Result<(), Error>;

    /// Blocks of `kernel` that a multiprocessor runs at once.
    ///
    /// # Errors
    /// The driver's.
    fn blocks_per_multiprocessor(
        &self,
        kernel: Kernel,
        threads: u32,
        shared_bytes: u32,
    ) -> Result<u32, Error>;

    /// Waits for all that is in the stream.
    ///
    /// # Errors
    /// The driver's, those of earlier work in the stream included.
    fn synchronize(&self, stream: Stream) -> Result<(), Error>;

    /// Marks a moment in a stream.
    ///
    /// # Errors
    /// The driver's.
    fn record(&self, stream: Stream) -> Result<Event, Error>;

    /// Has the stream's later work wait for the event.
    ///
    /// # Errors
    /// The driver's.
    fn wait(&self, stream: Stream, event: Event) -> Result<(), Error>;

    /// Has no more use for an event. Work that waits for it does so still.
    fn forget(&self, event: Event);

    /// Milliseconds between two events, once both have come; forgets them.
    ///
    /// # Errors
    /// The driver's.
    fn elapsed_ms(&self, from: Event, to: Event) -> Result<f32, Error>;

    /// One line for logs.
    fn description(&self) -> String;
}

/// Memory on a device, `bytes` of it, at least one.
///
/// # Errors
/// [`Error::DeviceMemory`] with what was asked and what is free.
pub fn alloc(device: &Arc<dyn Device>, bytes: usize) -> Result<Buffer, Error> {
    let bytes = bytes.max(1);
    let address = device.take(bytes)?;
    Ok(Buffer { device: Arc::clone(device), address, bytes })
}

/// Pinned memory of the host, `bytes` of zeros, at least one.
///
/// # Errors
/// The driver's.
pub fn alloc_pinned(device: &Arc<dyn Device>, bytes: usize) -> Result<PinnedBuffer, Error> {
    let bytes = bytes.max(1);
    let address = device.take_pinned(bytes)?;
    Ok(PinnedBuffer { device: Arc::clone(device), address, bytes })
}

impl Arg {
    /// Its bytes: what the kernel's parameter must have.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Arg::Address(_) | Arg::U64(_) => 8,
            Arg::U32(_) => 4,
        }
    }

    /// Its value, in the low bytes of a little-endian word.
    pub(crate) fn word(&self) -> u64 {
        match *self {
            Arg::Address(value) | Arg::U64(value) => value,
            Arg::U32(value) => u64::from(value),
        }
    }
}

/// Checks that the arguments have the sizes that the kernel takes.
pub(crate) fn check_arguments(expected: &[usize], arguments: &[Arg]) -> Result<(), Error> {
    let found: Vec<usize> = arguments.iter().map(Arg::bytes).collect();
    if found != expected {
        return Err(Error::Arguments { expected: expected.to_vec(), found });
    }
    Ok(())
}
