//! Tells valgrind which bytes are secret.
//!
//! The ctgrind method (Langley, 2010): memcheck reports each branch on, and each address made of,
//! bytes that were never written. Mark the secrets as such and run the optimised code under
//! `valgrind --error-exitcode`: a report is a leak. Memcheck follows bits through arithmetic, through
//! memory and through registers, but does not know of instructions whose time depends on operands:
//! divisions, which [`divisions`](crate::divisions) finds.
//!
//! Outside valgrind each call is a few instructions that change nothing, so [`declassify`] may stand
//! in a protocol's code. The client requests are valgrind's own (`valgrind.h`, `memcheck.h`), written
//! for x86-64; elsewhere the calls do nothing.

/// Plain integers: any bytes are a value of them, and they own nothing.
pub trait Plain: Copy + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! plain {
    ($($integer:ty),*) => { $(impl sealed::Sealed for $integer {} impl Plain for $integer {})* };
}
plain!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);

const RUNNING_ON_VALGRIND: u64 = 0x1001;
/// The letters M and C, as `VG_USERREQ_TOOL_BASE` packs them.
const MEMCHECK: u64 = 0x4d43_0000;
const MAKE_MEM_UNDEFINED: u64 = MEMCHECK + 1;
const MAKE_MEM_DEFINED: u64 = MEMCHECK + 2;

/// Whether the process runs under valgrind, on a platform that this module is written for.
pub fn is_running() -> bool {
    request(RUNNING_ON_VALGRIND, std::ptr::null_mut(), 0) != 0
}

/// From here on, memcheck reports branches on these values and addresses made of them, and of all
/// that is computed from them.
pub fn mark_secret<T: Plain>(values: &mut [T]) {
    request(MAKE_MEM_UNDEFINED, values.as_mut_ptr().cast(), size_of_val(values));
}

/// The reverse of [`mark_secret`]: for a test to look at results.
pub fn mark_public<T: Plain>(values: &mut [T]) {
    request(MAKE_MEM_DEFINED, values.as_mut_ptr().cast(), size_of_val(values));
}

/// Says that the protocol reveals this value here: it was computed from secrets, and is public from
/// now on.
///
/// Call it where the protocol's description reveals the value, with a comment that says why it may
/// (the k that differential privacy noises; the leaf that a position map gives out once), and nowhere
/// else: each call is an exception to what the ctgrind tests check.
#[inline]
pub fn declassify<T: Plain>(value: &mut T) {
    mark_public(std::slice::from_mut(value));
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn request(number: u64, at: *mut u8, bytes: usize) -> u64 {
    let arguments = [number, at as u64, bytes as u64, 0, 0, 0];
    let mut result = 0u64;
    // SAFETY: valgrind's client request. Outside valgrind the rotations of rdi, by 128 bits in all,
    // and the exchange of rbx with itself leave every register as it was, but for the flags. Inside,
    // valgrind reads `arguments` by rax, puts a result in rdx, and changes no byte of the program:
    // only what it itself knows of the `bytes` from `at`, which the callers borrow mutably.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inout("rdx") result,
            options(nostack),
        );
    }
    result
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn request(_number: u64, _at: *mut u8, _bytes: usize) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_change_no_value() {
        let mut values: Vec<u64> = (0..100).collect();
        mark_secret(&mut values);
        mark_public(&mut values);
        assert!(values.iter().copied().eq(0..100));
        let mut value = -7i32;
        declassify(&mut value);
        assert_eq!(value, -7);
        mark_secret::<u8>(&mut []);
    }

    #[test]
    fn tests_do_not_run_under_valgrind_unless_it_is_loaded() {
        let preloaded = std::env::var("LD_PRELOAD").unwrap_or_default();
        assert_eq!(is_running(), preloaded.contains("vgpreload"));
    }
}
