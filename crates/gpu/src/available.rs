//! What a machine has, for those who ask before they open anything.

use std::fmt;
use std::path::PathBuf;

use crate::cuda::{CAPABILITY_MIN, Cuda, Need, Nvrtc};
use crate::{DeviceFacts, Error};

/// The devices and the compiler that kernels could run with, and what prevents it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Availability {
    /// Devices that the driver finds, in the driver's order.
    pub devices: Vec<DeviceFacts>,
    /// What compiles kernels: NVRTC's version and where it is.
    pub compiler: Option<String>,
    /// Why a device cannot be used, a sentence each with what to do; empty if all can.
    pub obstacles: Vec<String>,
}

impl Availability {
    /// Whether kernels run on the device of that index.
    pub fn is_usable(&self, index: u32) -> bool {
        let device = self.devices.get(index as usize);
        self.compiler.is_some() && device.is_some_and(|device| device.capability >= CAPABILITY_MIN)
    }
}

impl fmt::Display for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = self.devices.iter().enumerate().map(|(index, device)| {
            let (major, minor) = device.capability;
            let mib = device.memory_bytes >> 20;
            format!("CUDA device {index}: {} (sm_{major}{minor}, {mib} MiB)", device.name)
        });
        let lines: Vec<String> =
            devices.chain(self.compiler.clone()).chain(self.obstacles.iter().cloned()).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Looks for a driver, devices and a compiler, the last in `nvrtc_folders` too (see
/// [`Nvrtc::find`]). It starts the driver, and makes no context.
pub fn available(nvrtc_folders: &[PathBuf]) -> Availability {
    look(Cuda::devices(), |need| Nvrtc::find(nvrtc_folders, need).map(|found| found.to_string()))
}

fn look(
    devices: Result<Vec<DeviceFacts>, Error>,
    compiler: impl FnOnce(Need) -> Result<String, Error>,
) -> Availability {
    let mut found = Availability::default();
    match devices {
        Ok(devices) => found.devices = devices,
        // Without a device, that there is no compiler is no news.
        Err(error) => {
            found.obstacles.push(error.to_string());
            return found;
        }
    }
    for device in found.devices.iter().filter(|device| device.capability < CAPABILITY_MIN) {
        let (name, capability) = (device.name.clone(), device.capability);
        let error = Error::Capability { name, found: capability, needed: CAPABILITY_MIN };
        found.obstacles.push(error.to_string());
    }
    let usable = found.devices.iter().find(|device| device.capability >= CAPABILITY_MIN);
    let need = Need {
        driver_version: found.devices.first().map(|device| device.driver_version),
        capability: usable.map(|device| device.capability),
    };
    match compiler(need) {
        Ok(compiler) => found.compiler = Some(compiler),
        Err(error) => found.obstacles.push(error.to_string()),
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{available, look};
    use crate::{DeviceFacts, Error};

    fn device(name: &str, capability: (u32, u32)) -> DeviceFacts {
        DeviceFacts {
            name: name.to_owned(),
            capability,
            multiprocessors: 80,
            memory_bytes: 16 << 30,
            shared_bytes_max: 99 << 10,
            driver_version: 13_000,
        }
    }

    #[test]
    fn each_thing_missing_is_a_sentence() {
        let none = look(Err(Error::NoDevice), |_| panic!("not asked for without a device"));
        assert_eq!(none.obstacles, [Error::NoDevice.to_string()]);
        assert!(!none.is_usable(0));

        let devices = vec![device("old", (7, 0)), device("new", (9, 0))];
        let some = look(Ok(devices.clone()), |need| {
            assert_eq!((need.driver_version, need.capability), (Some(13_000), Some((9, 0))));
            Ok("NVRTC 13.0".to_owned())
        });
        assert_eq!([0, 1, 2].map(|index| some.is_usable(index)), [false, true, false]);
        assert_eq!(some.obstacles.len(), 1);
        assert!(some.obstacles[0].contains("old has compute capability 7.0"));
        let text = some.to_string();
        assert!(text.contains("device 1: new (sm_90, 16384 MiB)\nNVRTC 13.0\nold"), "{text}");

        let uncompiled = look(Ok(devices), |_| Err(Error::NoCompiler { searched: "x".to_owned() }));
        assert!(!uncompiled.is_usable(1));
        assert!(uncompiled.obstacles[1].contains("pip install"));
    }

    #[test]
    fn asking_is_safe_on_any_machine() {
        let found = available(&[]);
        assert!(!found.devices.is_empty() || !found.obstacles.is_empty());
    }
}
