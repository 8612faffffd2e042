//! The driver's calls, with their answers as errors.

use std::ffi::CStr;
use std::sync::OnceLock;

use cudarc::driver::sys;

use crate::Error;

/// The oldest driver whose calls are those made here: CUDA 12.0.
pub(super) const DRIVER_VERSION_MIN: u32 = 12_000;
/// From this on, the driver tells what arguments a kernel takes.
pub(super) const PARAMETERS_SINCE: u32 = 12_040;

/// Calls a function of the driver by its name: `call!(cuInit(0))?`.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: `ready` has found the driver, so that the function is there; its arguments are as
        // the driver's manual has them, which each use says more of where it is not plain.
        crate::cuda::driver::check(stringify!($name), unsafe {
            cudarc::driver::sys::$name($($argument),*)
        })
    };
}
pub(super) use call;

/// Turns a call's status code into an error that names the call.
pub(super) fn check(call: &'static str, result: sys::CUresult) -> Result<(), Error> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(Error::Driver { call, code: result as u32, name: name(result) })
}

/// Whether a call failed for want of memory.
pub(super) fn is_out_of_memory(error: &Error) -> bool {
    let code = sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32;
    matches!(error, Error::Driver { code: found, .. } if *found == code)
}

fn name(result: sys::CUresult) -> String {
    let (mut name, mut words) = (std::ptr::null(), std::ptr::null());
    // SAFETY: both are there in any driver; they leave a static string or null.
    unsafe {
        let _ = sys::cuGetErrorName(result, &mut name);
        let _ = sys::cuGetErrorString(result, &mut words);
    }
    let text = |at: *const std::ffi::c_char| {
        // SAFETY: a static string of the driver's.
        (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned())
    };
    [text(name), text(words)].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Looks for the driver, starts it, and gives its version. Nothing else of this module may be called
/// before: what calls the driver panics where there is none.
pub(super) fn ready() -> Result<u32, Error> {
    static READY: OnceLock<Result<u32, Error>> = OnceLock::new();
    READY.get_or_init(start).clone()
}

fn start() -> Result<u32, Error> {
    // SAFETY: loading the driver's library has no conditions but that it is the driver's.
    if !unsafe { sys::is_culib_present() } {
        let reason = "no libcuda.so.1 could be loaded".to_owned();
        return Err(Error::NoDriver { reason });
    }
    let mut version = 0;
    call!(cuDriverGetVersion(&mut version))?;
    let version = version as u32;
    if version < DRIVER_VERSION_MIN {
        return Err(Error::DriverTooOld { found: version, needed: DRIVER_VERSION_MIN });
    }
    match call!(cuInit(0)) {
        Err(Error::Driver { code, .. }) if code == sys::CUresult::CUDA_ERROR_NO_DEVICE as u32 => {
            Err(Error::NoDevice)
        }
        other => other.map(|()| version),
    }
}
