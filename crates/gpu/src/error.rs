//! What can go wrong with a device, and what to do about it.

/// An error of this crate. Fields carry the facts; `Display` names the remedy.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No CUDA driver on this machine.
    #[error(
        "no CUDA driver was found ({reason}): install NVIDIA's driver, or serve with --device cpu"
    )]
    NoDriver {
        /// What was looked for.
        reason: String,
    },
    /// A driver from before what this crate calls.
    #[error("the CUDA driver is of version {}, this needs {} or later: update it", dotted(*.found), dotted(*.needed))]
    DriverTooOld {
        /// The driver's version, as in 12020 for 12.2.
        found: u32,
        /// The oldest that does.
        needed: u32,
    },
    /// A driver, and no device.
    #[error("the CUDA driver finds no device: look at `nvidia-smi` and CUDA_VISIBLE_DEVICES")]
    NoDevice,
    /// A device's index past the last.
    #[error("there is no CUDA device {index}: there are {devices}, counted from 0")]
    DeviceIndex {
        /// The index asked for.
        index: u32,
        /// Devices there are.
        devices: u32,
    },
    /// A device that lacks what the kernels use.
    #[error(
        "{name} has compute capability {}.{}, the kernels need {}.{}: serve with --device cpu",
        found.0, found.1, needed.0, needed.1
    )]
    Capability {
        /// The device.
        name: String,
        /// What it has.
        found: (u32, u32),
        /// What it takes.
        needed: (u32, u32),
    },
    /// A call of the driver that failed.
    #[error(
        "the CUDA driver failed in {call}: {name} ({code}); if it goes on, restart the process, and \
         look at `dmesg` for the driver's messages"
    )]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// Its answer.
        code: u32,
        /// The driver's name for it, and its words.
        name: String,
    },
    /// No NVRTC to compile kernels by.
    #[error(
        "no NVRTC was found to compile kernels by: `pip install nvidia-cuda-nvrtc` (of the driver's \
         major version), or point HUSHTABLE_NVRTC at a libnvrtc.so; looked for {searched}"
    )]
    NoCompiler {
        /// Where was looked, and what was wrong with what was there.
        searched: String,
    },
    /// A kernel's source that the compiler refuses.
    #[error("{module} does not compile for {target}: {log}")]
    Compile {
        /// The source's name.
        module: &'static str,
        /// The architecture, as in `sm_90a`.
        target: String,
        /// What the compiler said.
        log: String,
    },
    /// A kernel that its module does not have.
    #[error("{module} has no kernel {kernel}: is it left out by a macro?")]
    NoKernel {
        /// The source's name.
        module: &'static str,
        /// The kernel's.
        kernel: &'static str,
    },
    /// Arguments other than what a kernel takes.
    #[error("a kernel was handed arguments of {found:?} bytes and takes {expected:?}")]
    Arguments {
        /// Bytes of each that it takes.
        expected: Vec<usize>,
        /// Bytes of each that there were.
        found: Vec<usize>,
    },
    /// The device's memory does not have room.
    #[error(
        "{asked} bytes of device memory were asked for and {free} are free: serve a smaller table, \
         or give the device to this process alone"
    )]
    DeviceMemory {
        /// Bytes asked for.
        asked: u64,
        /// Bytes free.
        free: u64,
    },
    /// A copy, a launch or a shape that the device cannot have.
    #[error("{reason}")]
    Geometry {
        /// What, and what it would have to be.
        reason: String,
    },
    /// An error of the scheme: a key, a table, an answer.
    #[error(transparent)]
    Pir(#[from] hushtable_pir::Error),
}

impl From<Error> for hushtable_pir::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Pir(error) => error,
            other => hushtable_pir::Error::Device { reason: other.to_string() },
        }
    }
}

/// CUDA's versions as people write them: 12020 is 12.2.
fn dotted(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn a_backend_says_what_the_device_said() {
        let error = Error::DeviceMemory { asked: 7, free: 3 };
        let text = error.to_string();
        assert!(text.contains("7 bytes") && text.contains("3 are free"), "{text}");
        assert_eq!(
            hushtable_pir::Error::from(error),
            hushtable_pir::Error::Device { reason: text }
        );
        let same = hushtable_pir::Error::Rows { rows: 0 };
        assert_eq!(
            hushtable_pir::Error::from(Error::from(hushtable_pir::Error::Rows { rows: 0 })),
            same
        );
    }

    #[test]
    fn versions_read_as_people_write_them() {
        let text = Error::DriverTooOld { found: 11040, needed: 12000 }.to_string();
        assert!(text.contains("version 11.4") && text.contains("12.0 or later"), "{text}");
    }
}
