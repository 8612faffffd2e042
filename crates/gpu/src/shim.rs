//! A device for tests: kernels compiled as C++ and run on the processor.
//!
//! `shim/shim.h` gives the words of `kernels/platform.cuh` a meaning on the host: blocks one after
//! the other, a block's threads as fibres whose turns are drawn from a seed. A module is compiled by
//! the machine's C++ compiler (`CXX`, else `c++`) on first use and kept beside the test's program.
//!
//! What it catches that a GPU may not: a read or write past a buffer or past shared memory, a
//! misaligned vector, a shift by 32, a barrier that some threads miss (each ends the program with a
//! message), a missing barrier (a wrong answer under some seed), use of memory that nobody wrote
//! (bytes of 0xa5), arguments of other sizes than the kernel's (an error). What it cannot show: work
//! of two streams out of order, and anything of time.

mod build;
mod memory;

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use crate::{
    Arg, Buffer, Cuda, CudaSpec, Device, DeviceFacts, Error, Event, Kernel, Launch, ModuleSpec,
    Stream,
};
use build::Entry;
use memory::Mapping;

/// Bytes that [`Shim::new`] has.
const MEMORY_BYTES: u64 = 4 << 30;
const MULTIPROCESSORS: u32 = 4;

/// Names what [`under_test`] gives: `shim`, which is the default, or `cuda`.
pub const TEST_DEVICE_VARIABLE: &str = "HUSHTABLE_TEST_DEVICE";

/// The device that tests run on: the shim, whose turns follow `seed`, or the first GPU where
/// HUSHTABLE_TEST_DEVICE is `cuda`.
/// A test that takes its device from here is the same test on both.
///
/// # Panics
/// For another value, and where there is no GPU that can be used.
pub fn under_test(seed: u64) -> Arc<dyn Device> {
    match std::env::var(TEST_DEVICE_VARIABLE).as_deref() {
        Err(_) | Ok("" | "shim") => Shim::new(seed),
        // One for all tests: what it compiled stays loaded.
        Ok("cuda") => {
            static DEVICE: OnceLock<Arc<dyn Device>> = OnceLock::new();
            let open = || match Cuda::open(&CudaSpec::default()) {
                Ok(device) => device,
                Err(error) => panic!("{TEST_DEVICE_VARIABLE}=cuda: {error}"),
            };
            Arc::clone(DEVICE.get_or_init(open))
        }
        Ok(other) => panic!("{TEST_DEVICE_VARIABLE} is {other}: shim or cuda"),
    }
}

/// Libraries that together answer for CUDA's driver, so that [`Cuda`] itself is tested without a GPU.
#[doc(hidden)]
#[allow(clippy::exhaustive_structs, reason = "for this crate's tests")]
pub struct StandIn {
    /// What is to be found as `libcuda.so`.
    pub driver: PathBuf,
    /// Paths that it takes from the environment: the scheduler, and the one module that it loads
    /// whatever code it is handed.
    pub variables: [(&'static str, PathBuf); 2],
}

/// A driver that runs `module` on the shim.
#[doc(hidden)]
pub fn stand_in(module: &ModuleSpec) -> Result<StandIn, Error> {
    let scheduler = ("HUSHTABLE_STAND_IN_SCHEDULER", build::scheduler_file()?);
    let module = ("HUSHTABLE_STAND_IN_MODULE", build::module_file(module)?);
    Ok(StandIn { driver: build::driver_file()?, variables: [scheduler, module] })
}

/// The host, as a device.
pub struct Shim {
    facts: DeviceFacts,
    order: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    mappings: HashMap<u64, Mapping>,
    taken_bytes: u64,
    kernels: Vec<Entry>,
    known: HashMap<ModuleSpec, HashMap<&'static str, Kernel>>,
    events: HashMap<u64, Instant>,
    next: u64,
    counts: Option<Counts>,
    peak_bytes: u64,
    /// Bytes of device memory that held neither zeros nor what nobody wrote when they were given back.
    left_bytes: u64,
}

/// What kernels did, as the shim counts it: an operation's number says nothing of its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Launches of kernels.
    pub launches: u64,
    /// Calls of the generator: a node to its two children, or to its leaf.
    pub calls: u64,
    /// Bytes that threads asked device memory for, whatever a cache would have served, without the
    /// words of keys.
    pub read_bytes: u64,
    /// Bytes that threads wrote to device memory.
    pub written_bytes: u64,
}

impl Shim {
    /// A device whose threads take turns by `seed`.
    #[allow(clippy::new_ret_no_self, reason = "engines take devices")]
    pub fn new(seed: u64) -> Arc<dyn Device> {
        Self::with_memory(seed, MEMORY_BYTES)
    }

    /// One with so many bytes of memory.
    pub fn with_memory(seed: u64, memory_bytes: u64) -> Arc<dyn Device> {
        Self::counting(seed, memory_bytes)
    }

    /// The same, of whose counts something is asked.
    pub fn counting(seed: u64, memory_bytes: u64) -> Arc<Self> {
        let facts = DeviceFacts {
            name: "host shim".to_owned(),
            capability: (9, 0),
            multiprocessors: MULTIPROCESSORS,
            memory_bytes,
            shared_bytes_max: 232_448,
            driver_version: 0,
        };
        Arc::new(Self { facts, order: AtomicU64::new(seed), state: Mutex::default() })
    }

    /// Counts from now on, and from zero.
    pub fn start_counting(&self) {
        let mut state = self.state();
        state.counts = Some(Counts::default());
        state.peak_bytes = state.taken_bytes;
    }

    /// What was counted since [`start_counting`](Self::start_counting).
    pub fn counts(&self) -> Counts {
        self.state().counts.unwrap_or_default()
    }

    /// Most bytes of device memory that were taken at once since then.
    pub fn peak_bytes(&self) -> u64 {
        self.state().peak_bytes
    }

    /// Bytes of device memory that were given back with something in them.
    pub fn left_bytes(&self) -> u64 {
        self.state().left_bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map(&self, bytes: usize, fill: u8) -> Result<u64, Error> {
        let mut state = self.state();
        let free = self.facts.memory_bytes - state.taken_bytes;
        if bytes as u64 > free {
            return Err(Error::DeviceMemory { asked: bytes as u64, free });
        }
        let mapping =
            Mapping::new(bytes, fill).ok_or(Error::DeviceMemory { asked: bytes as u64, free })?;
        let address = mapping.address();
        state.taken_bytes += bytes as u64;
        state.peak_bytes = state.peak_bytes.max(state.taken_bytes);
        state.mappings.insert(address, mapping);
        Ok(address)
    }

    fn unmap(&self, address: u64) {
        let mut state = self.state();
        let mapping = state.mappings.remove(&address).expect("an address that was given");
        state.taken_bytes -= mapping.bytes() as u64;
        state.left_bytes += mapping.left_bytes() as u64;
    }
}

// SAFETY: memory is of mappings, as many bytes as were asked for; all of them are initialised.
unsafe impl Device for Shim {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn free_bytes(&self) -> Result<u64, Error> {
        Ok(self.facts.memory_bytes - self.state().taken_bytes)
    }

    fn take(&self, bytes: usize) -> Result<u64, Error> {
        self.map(bytes, memory::UNWRITTEN)
    }

    unsafe fn free(&self, address: u64) {
        self.unmap(address);
    }

    fn take_pinned(&self, bytes: usize) -> Result<u64, Error> {
        // Not of the device's memory, but nothing is lost by counting it there as well: tests that
        // bound memory say how much.
        let mapping =
            Mapping::new(bytes, 0).ok_or(Error::DeviceMemory { asked: bytes as u64, free: 0 })?;
        let address = mapping.address();
        self.state().mappings.insert(address, mapping);
        Ok(address)
    }

    unsafe fn free_pinned(&self, address: u64, _bytes: usize) {
        self.state().mappings.remove(&address).expect("an address that was given");
    }

    fn stream(&self) -> Result<Stream, Error> {
        let mut state = self.state();
        state.next += 1;
        Ok(Stream(state.next))
    }

    fn copy_in(&self, _: Stream, to: &Buffer, offset: usize, from: &[u8]) -> Result<(), Error> {
        let at = to.range(offset, from.len())?;
        // SAFETY: the buffer has these bytes, and no Rust reference points into device memory.
        unsafe { std::ptr::copy(from.as_ptr(), at as *mut u8, from.len()) };
        Ok(())
    }

    fn copy_out(
        &self,
        _: Stream,
        to: &mut [u8],
        from: &Buffer,
        offset: usize,
    ) -> Result<(), Error> {
        let at = from.range(offset, to.len())?;
        // SAFETY: as in `copy_in`.
        unsafe { std::ptr::copy(at as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn clear(&self, _: Stream, buffer: &Buffer, offset: usize, bytes: usize) -> Result<(), Error> {
        let at = buffer.range(offset, bytes)?;
        // SAFETY: as in `copy_in`.
        unsafe { std::ptr::write_bytes(at as *mut u8, 0, bytes) };
        Ok(())
    }

    fn kernel(&self, module: &ModuleSpec, name: &'static str) -> Result<Kernel, Error> {
        let known = |state: &State| state.known.get(module)?.get(name).copied();
        if let Some(kernel) = known(&self.state()) {
            return Ok(kernel);
        }
        // Not under the lock: it may take the compiler seconds.
        let entry = build::entry(module, name)?;
        let mut state = self.state();
        if let Some(kernel) = known(&state) {
            return Ok(kernel);
        }
        let kernel = Kernel(state.kernels.len() as u64);
        state.kernels.push(entry);
        state.known.entry(module.clone()).or_default().insert(name, kernel);
        Ok(kernel)
    }

    unsafe fn launch(
        &self,
        _: Stream,
        kernel: Kernel,
        launch: Launch,
        arguments: &[Arg],
    ) -> Result<(), Error> {
        launch.check(&self.facts, || {
            self.blocks_per_multiprocessor(kernel, launch.threads, launch.shared_bytes)
        })?;
        let entry = self.state().kernels[kernel.0 as usize].clone();
        crate::device::check_arguments(&entry.sizes, arguments)?;
        let mut words: Vec<u64> = arguments.iter().map(Arg::word).collect();
        let mut pointers: Vec<*mut c_void> =
            words.iter_mut().map(|word| std::ptr::from_mut(word).cast()).collect();
        let order = self.order.fetch_add(1, Ordering::Relaxed);
        let mut counted = [0; 3];
        let counted_at = match self.state().counts {
            Some(_) => &raw mut counted,
            None => std::ptr::null_mut(),
        };
        // SAFETY: the entry is of this kernel and its arguments are of the sizes that it takes; that
        // addresses are of live buffers is what the caller of `launch` promises, and a page that
        // may not be touched is after each.
        unsafe {
            (build::launcher()?)(
                entry.run,
                launch.blocks.0,
                launch.blocks.1,
                launch.threads,
                u64::from(launch.shared_bytes),
                u32::from(launch.is_cooperative),
                order,
                pointers.as_mut_ptr(),
                counted_at,
            );
        }
        if let Some(counts) = &mut self.state().counts {
            let [calls, read_bytes, written_bytes] = counted;
            counts.launches += 1;
            counts.calls += calls;
            counts.read_bytes += read_bytes;
            counts.written_bytes += written_bytes;
        }
        Ok(())
    }

    fn blocks_per_multiprocessor(
        &self,
        _: Kernel,
        threads: u32,
        shared_bytes: u32,
    ) -> Result<u32, Error> {
        let by_shared = self.facts.shared_bytes_max / shared_bytes.max(1);
        Ok((2048 / threads.max(32)).min(by_shared).min(32))
    }

    fn synchronize(&self, _: Stream) -> Result<(), Error> {
        Ok(())
    }

    fn record(&self, _: Stream) -> Result<Event, Error> {
        let mut state = self.state();
        state.next += 1;
        let event = state.next;
        state.events.insert(event, Instant::now());
        Ok(Event(event))
    }

    fn wait(&self, _: Stream, event: Event) -> Result<(), Error> {
        assert!(self.state().events.contains_key(&event.0), "an event that was forgotten");
        Ok(())
    }

    fn forget(&self, event: Event) {
        self.state().events.remove(&event.0).expect("a recorded event");
    }

    fn elapsed_ms(&self, from: Event, to: Event) -> Result<f32, Error> {
        let mut state = self.state();
        let mut take = |event: Event| state.events.remove(&event.0).expect("a recorded event");
        let (from, to) = (take(from), take(to));
        Ok(to.duration_since(from).as_secs_f32() * 1e3)
    }

    fn description(&self) -> String {
        format!("{}, {} bytes", self.facts.name, self.facts.memory_bytes)
    }
}

#[cfg(test)]
mod tests;
