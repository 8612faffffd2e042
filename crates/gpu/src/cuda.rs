//! NVIDIA GPUs, by the driver's own interface, loaded at run time.

mod cache;
mod driver;
mod nvrtc;

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys;

use crate::device::check_arguments;
use crate::{
    Arg, Buffer, Device, DeviceFacts, Error, Event, Kernel, Launch, ModuleSpec, Stream, module,
};
use cache::Cache;
pub use cache::user_folder as cache_folder;
use driver::{PARAMETERS_SINCE, call};
pub use nvrtc::{Compiled, NVRTC_VARIABLE, Need, Nvrtc, Resources, target};

/// What the kernels use since compute capability 8.0: asynchronous copies to shared memory, integer
/// products of 16 by 8 by 32.
pub(crate) const CAPABILITY_MIN: (u32, u32) = (8, 0);

/// Which device, and where to find and keep what compiles its kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct CudaSpec {
    /// The device, as the driver counts them from 0.
    pub index: u32,
    /// Folders that may have NVRTC in them, beside those where it is looked for anyway:
    /// `site-packages/nvidia/*/lib` of a Python environment.
    pub nvrtc_folders: Vec<PathBuf>,
    /// Where compiled kernels are kept; the user's cache folder if `None`.
    pub cache_folder: Option<PathBuf>,
}

/// A GPU. Made by [`Cuda::open`]; engines see it as a [`Device`].
pub struct Cuda {
    facts: DeviceFacts,
    device: sys::CUdevice,
    context: sys::CUcontext,
    compiler: Nvrtc,
    cache: Option<Cache>,
    state: Mutex<State>,
}

// SAFETY: the driver's handles may be used from any thread, and those of a context are used with that
// context current, which `Cuda::enter` sees to.
unsafe impl Send for Cuda {}
// SAFETY: as above; the driver locks what it must.
unsafe impl Sync for Cuda {}

#[derive(Default)]
struct State {
    streams: Vec<sys::CUstream>,
    modules: HashMap<ModuleSpec, Module>,
    kernels: Vec<Entry>,
}

struct Module {
    handle: sys::CUmodule,
    kernels: HashMap<&'static str, Kernel>,
}

#[derive(Clone)]
struct Entry {
    function: sys::CUfunction,
    /// Bytes of each argument, where the driver says.
    sizes: Option<Arc<[usize]>>,
}

/// The context is this thread's while it lives; then the one before is again.
struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        let mut context = std::ptr::null_mut();
        // It can fail only for a driver that is being shut down.
        let _ = call!(cuCtxPopCurrent_v2(&mut context));
    }
}

impl Cuda {
    /// The devices that the driver finds, whether the kernels run on them or not.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::DriverTooOld`], [`Error::NoDevice`], the driver's.
    pub fn devices() -> Result<Vec<DeviceFacts>, Error> {
        let version = driver::ready()?;
        let mut count = 0;
        call!(cuDeviceGetCount(&mut count))?;
        if count == 0 {
            return Err(Error::NoDevice);
        }
        (0..count).map(|index| Ok(facts(index, version)?.1)).collect()
    }

    /// Opens a device: takes its primary context, which other libraries of the process share.
    ///
    /// # Errors
    /// Those of [`devices`](Self::devices); [`Error::DeviceIndex`], [`Error::Capability`],
    /// [`Error::NoCompiler`].
    pub fn open(spec: &CudaSpec) -> Result<Arc<dyn Device>, Error> {
        let version = driver::ready()?;
        let mut count = 0;
        call!(cuDeviceGetCount(&mut count))?;
        if spec.index >= count as u32 {
            return Err(Error::DeviceIndex { index: spec.index, devices: count as u32 });
        }
        let (device, facts) = facts(spec.index as c_int, version)?;
        if facts.capability < CAPABILITY_MIN {
            let (name, found) = (facts.name, facts.capability);
            return Err(Error::Capability { name, found, needed: CAPABILITY_MIN });
        }
        let need = Need { driver_version: Some(version), capability: Some(facts.capability) };
        let compiler = Nvrtc::find(&spec.nvrtc_folders, need)?;
        let mut context = std::ptr::null_mut();
        call!(cuDevicePrimaryCtxRetain(&mut context, device))?;
        Ok(Arc::new(Self {
            facts,
            device,
            context,
            compiler,
            cache: spec.cache_folder.clone().or_else(cache::user_folder).map(Cache::new),
            state: Mutex::default(),
        }))
    }

    fn enter(&self) -> Result<Entered, Error> {
        call!(cuCtxPushCurrent_v2(self.context))?;
        Ok(Entered)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, kernel: Kernel) -> Entry {
        self.state().kernels[kernel.0 as usize].clone()
    }

    /// A module's machine code: what is kept of an earlier run, else compiled.
    fn code(&self, spec: &ModuleSpec) -> Result<Vec<u8>, Error> {
        compiled(&self.compiler, self.cache.as_ref(), spec, &target(self.facts.capability))
    }

    /// Takes from a loaded module the kernel of a name.
    fn find(
        &self,
        source: &'static str,
        handle: sys::CUmodule,
        name: &'static str,
    ) -> Result<Entry, Error> {
        let text = CString::new(name).expect("names have no zero bytes");
        let mut function = std::ptr::null_mut();
        call!(cuModuleGetFunction(&mut function, handle, text.as_ptr())).map_err(|error| {
            match error {
                Error::Driver { code, .. }
                    if code == sys::CUresult::CUDA_ERROR_NOT_FOUND as u32 =>
                {
                    Error::NoKernel { module: source, kernel: name }
                }
                other => other,
            }
        })?;
        // A block has 48 KiB of dynamic shared memory unless it is said beforehand that it needs
        // more. Saying so costs nothing: how much is set aside goes by the launch.
        use sys::CUfunction_attribute as Attribute;
        let fixed = Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        let mut fixed_bytes = 0;
        call!(cuFuncGetAttribute(&mut fixed_bytes, fixed, function))?;
        let max = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = self.facts.shared_bytes_max as c_int - fixed_bytes;
        call!(cuFuncSetAttribute(function, max, bytes))?;
        let sizes = (self.facts.driver_version >= PARAMETERS_SINCE).then(|| sizes_of(function));
        Ok(Entry { function, sizes })
    }
}

/// Bytes of each argument of a kernel.
fn sizes_of(function: sys::CUfunction) -> Arc<[usize]> {
    let size = |index| {
        let (mut offset, mut bytes) = (0, 0);
        // Past the last argument it fails, and that is how many there are.
        call!(cuFuncGetParamInfo(function, index, &mut offset, &mut bytes)).ok().map(|()| bytes)
    };
    (0..).map_while(size).collect()
}

/// A module's machine code, from the cache or else into it.
fn compiled(
    compiler: &Nvrtc,
    cache: Option<&Cache>,
    spec: &ModuleSpec,
    target: &str,
) -> Result<Vec<u8>, Error> {
    let version = format!("nvrtc {}.{}", compiler.version().0, compiler.version().1);
    let options = nvrtc::options(spec, target);
    let mut how: Vec<&str> = options.iter().map(String::as_str).collect();
    how.push(&version);
    let key = module::hash(spec, &how)?;
    if let Some(code) = cache.and_then(|cache| cache.load(&key)) {
        return Ok(code);
    }
    let code = compiler.compile(spec, target)?.cubin;
    // A folder that cannot be written to costs time at each start, and nothing else.
    let _ = cache.map(|cache| cache.store(&key, &code));
    Ok(code)
}

/// A device and what it is.
fn facts(index: c_int, driver_version: u32) -> Result<(sys::CUdevice, DeviceFacts), Error> {
    use sys::CUdevice_attribute as Attribute;
    let mut device = 0;
    call!(cuDeviceGet(&mut device, index))?;
    let mut name = [0u8; 256];
    call!(cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int, device))?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let ask = |attribute| {
        let mut value = 0;
        call!(cuDeviceGetAttribute(&mut value, attribute, device)).map(|()| value as u32)
    };
    let mut memory = 0;
    call!(cuDeviceTotalMem_v2(&mut memory, device))?;
    let facts = DeviceFacts {
        name: String::from_utf8_lossy(name).into_owned(),
        capability: (
            ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: ask(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        memory_bytes: memory as u64,
        shared_bytes_max: ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        driver_version,
    };
    Ok((device, facts))
}

// SAFETY: memory is the driver's to give, as many bytes as it is asked for; pinned memory is zeroed.
unsafe impl Device for Cuda {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn free_bytes(&self) -> Result<u64, Error> {
        let _entered = self.enter()?;
        let (mut free, mut all) = (0, 0);
        call!(cuMemGetInfo_v2(&mut free, &mut all))?;
        Ok(free as u64)
    }

    fn take(&self, bytes: usize) -> Result<u64, Error> {
        let _entered = self.enter()?;
        let mut address = 0;
        match call!(cuMemAlloc_v2(&mut address, bytes)) {
            Ok(()) => Ok(address),
            Err(error) if driver::is_out_of_memory(&error) => {
                Err(Error::DeviceMemory { asked: bytes as u64, free: self.free_bytes()? })
            }
            Err(error) => Err(error),
        }
    }

    unsafe fn free(&self, address: u64) {
        // It waits for the device's work. What fails here has failed before and was told then.
        let _ = self.enter().and_then(|_entered| call!(cuMemFree_v2(address)));
    }

    fn take_pinned(&self, bytes: usize) -> Result<u64, Error> {
        let _entered = self.enter()?;
        let mut address: *mut c_void = std::ptr::null_mut();
        call!(cuMemHostAlloc(&mut address, bytes, sys::CU_MEMHOSTALLOC_PORTABLE))?;
        // SAFETY: as many bytes as were asked for, ours alone.
        unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, bytes) };
        Ok(address as u64)
    }

    unsafe fn free_pinned(&self, address: u64, _bytes: usize) {
        // A copy from it may be under way.
        let _ = self.enter().and_then(|_entered| {
            let _ = call!(cuCtxSynchronize());
            call!(cuMemFreeHost(address as *mut c_void))
        });
    }

    fn stream(&self) -> Result<Stream, Error> {
        let _entered = self.enter()?;
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        call!(cuStreamCreate(&mut stream, flags))?;
        self.state().streams.push(stream);
        Ok(Stream(stream as u64))
    }

    fn copy_in(
        &self,
        stream: Stream,
        to: &Buffer,
        offset: usize,
        from: &[u8],
    ) -> Result<(), Error> {
        let at = to.range(offset, from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        let _entered = self.enter()?;
        // From pageable memory the driver returns once it has staged the bytes (CUDA Driver API,
        // "API synchronization behavior").
        call!(cuMemcpyHtoDAsync_v2(at, from.as_ptr().cast(), from.len(), handle(stream)))
    }

    fn copy_out(
        &self,
        stream: Stream,
        to: &mut [u8],
        from: &Buffer,
        offset: usize,
    ) -> Result<(), Error> {
        let at = from.range(offset, to.len())?;
        let _entered = self.enter()?;
        if !to.is_empty() {
            call!(cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), at, to.len(), handle(stream)))?;
        }
        call!(cuStreamSynchronize(handle(stream)))
    }

    fn clear(
        &self,
        stream: Stream,
        buffer: &Buffer,
        offset: usize,
        bytes: usize,
    ) -> Result<(), Error> {
        let at = buffer.range(offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        let _entered = self.enter()?;
        call!(cuMemsetD8Async(at, 0, bytes, handle(stream)))
    }

    fn kernel(&self, module: &ModuleSpec, name: &'static str) -> Result<Kernel, Error> {
        if let Some(kernel) =
            self.state().modules.get(module).and_then(|module| module.kernels.get(name))
        {
            return Ok(*kernel);
        }
        let is_loaded = self.state().modules.contains_key(module);
        // Not under the lock: it may take the compiler seconds.
        let code = if is_loaded { None } else { Some(self.code(module)?) };
        let _entered = self.enter()?;
        let mut state = self.state();
        let state = &mut *state;
        if let Some(code) = code
            && !state.modules.contains_key(module)
        {
            let mut handle = std::ptr::null_mut();
            call!(cuModuleLoadData(&mut handle, code.as_ptr().cast()))?;
            let kernels = HashMap::new();
            state.modules.insert(module.clone(), Module { handle, kernels });
        }
        let loaded = state.modules.get_mut(module).expect("loaded above");
        if let Some(kernel) = loaded.kernels.get(name) {
            return Ok(*kernel);
        }
        let entry = self.find(module.source, loaded.handle, name)?;
        let kernel = Kernel(state.kernels.len() as u64);
        state.kernels.push(entry);
        loaded.kernels.insert(name, kernel);
        Ok(kernel)
    }

    unsafe fn launch(
        &self,
        stream: Stream,
        kernel: Kernel,
        launch: Launch,
        arguments: &[Arg],
    ) -> Result<(), Error> {
        launch.check(&self.facts, || {
            self.blocks_per_multiprocessor(kernel, launch.threads, launch.shared_bytes)
        })?;
        let entry = self.entry(kernel);
        if let Some(sizes) = &entry.sizes {
            check_arguments(sizes, arguments)?;
        }
        let mut words: Vec<u64> = arguments.iter().map(Arg::word).collect();
        let mut pointers: Vec<*mut c_void> =
            words.iter_mut().map(|word| std::ptr::from_mut(word).cast()).collect();
        let (x, y) = launch.blocks;
        let _entered = self.enter()?;
        // The driver copies the arguments before it returns.
        if launch.is_cooperative {
            call!(cuLaunchCooperativeKernel(
                entry.function,
                x,
                y,
                1,
                launch.threads,
                1,
                1,
                launch.shared_bytes,
                handle(stream),
                pointers.as_mut_ptr(),
            ))
        } else {
            call!(cuLaunchKernel(
                entry.function,
                x,
                y,
                1,
                launch.threads,
                1,
                1,
                launch.shared_bytes,
                handle(stream),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            ))
        }
    }

    fn blocks_per_multiprocessor(
        &self,
        kernel: Kernel,
        threads: u32,
        shared_bytes: u32,
    ) -> Result<u32, Error> {
        let entry = self.entry(kernel);
        let _entered = self.enter()?;
        let mut blocks = 0;
        call!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &mut blocks,
            entry.function,
            threads as c_int,
            shared_bytes as usize,
        ))?;
        Ok(blocks as u32)
    }

    fn synchronize(&self, stream: Stream) -> Result<(), Error> {
        let _entered = self.enter()?;
        call!(cuStreamSynchronize(handle(stream)))
    }

    fn record(&self, stream: Stream) -> Result<Event, Error> {
        let _entered = self.enter()?;
        let mut event = std::ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
        call!(cuEventCreate(&mut event, flags))?;
        let recorded = Event(event as u64);
        if let Err(error) = call!(cuEventRecord(event, handle(stream))) {
            self.forget(recorded);
            return Err(error);
        }
        Ok(recorded)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), Error> {
        let _entered = self.enter()?;
        call!(cuStreamWaitEvent(handle(stream), event.0 as sys::CUevent, 0))
    }

    fn forget(&self, event: Event) {
        // The driver keeps one that is waited for until it has come.
        let destroyed =
            self.enter().and_then(|_entered| call!(cuEventDestroy_v2(event.0 as sys::CUevent)));
        let _ = destroyed;
    }

    fn elapsed_ms(&self, from: Event, to: Event) -> Result<f32, Error> {
        let measured = self.enter().and_then(|_entered| {
            let (start, end) = (from.0 as sys::CUevent, to.0 as sys::CUevent);
            let mut milliseconds = 0.0;
            call!(cuEventSynchronize(start))?;
            call!(cuEventSynchronize(end))?;
            call!(cuEventElapsedTime(&mut milliseconds, start, end))?;
            Ok(milliseconds)
        });
        self.forget(from);
        self.forget(to);
        measured
    }

    fn description(&self) -> String {
        let facts = &self.facts;
        format!(
            "{}, sm_{}{}, {} multiprocessors, {} MiB, driver {}.{}, {}",
            facts.name,
            facts.capability.0,
            facts.capability.1,
            facts.multiprocessors,
            facts.memory_bytes >> 20,
            facts.driver_version / 1000,
            facts.driver_version % 1000 / 10,
            self.compiler,
        )
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // Whoever holds memory of the device holds the device, so nothing of it is in use. What fails
        // here fails because the driver is being shut down.
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if call!(cuCtxPushCurrent_v2(self.context)).is_ok() {
            let _entered = Entered;
            for stream in state.streams.drain(..) {
                let _ = call!(cuStreamDestroy_v2(stream));
            }
            for (_, module) in state.modules.drain() {
                let _ = call!(cuModuleUnload(module.handle));
            }
        }
        let _ = call!(cuDevicePrimaryCtxRelease_v2(self.device));
    }
}

/// The driver's own name of a stream.
fn handle(stream: Stream) -> sys::CUstream {
    stream.0 as sys::CUstream
}

#[cfg(test)]
mod tests;
