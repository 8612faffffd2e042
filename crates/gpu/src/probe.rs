//! What a device can do at best, as it measures it itself: the floors of its engines.

use std::sync::Arc;

use crate::{Arg, Device, Error, Kernel, Launch, ModuleSpec, Stream, alloc};

/// Rates of a device, the best of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Probe {
    /// Bytes read from its memory a second.
    pub read_bytes_per_s: f64,
    /// Multiply-adds of bytes a second on the tensor cores, by products of 16 by 8 by 32.
    pub multiply_adds_per_s: f64,
    /// Additions, exclusive ors and rotations of 32 bits a second, in equal parts.
    pub operations_per_s: f64,
}

/// The amount of work of one run.
#[derive(Clone, Copy, Debug)]
struct Work {
    read_bytes: usize,
    rounds: u32,
}

impl Probe {
    /// Measures a device: some 100 ms of it, and at most 1 GiB of its memory.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`], [`Error::Compile`], the driver's.
    pub fn measure(device: &Arc<dyn Device>) -> Result<Self, Error> {
        // Far beyond any cache; rounds for some milliseconds, in which a launch's own time is lost.
        let free = usize::try_from(device.free_bytes()? / 2).unwrap_or(usize::MAX);
        Self::of(device, Work { read_bytes: free.min(1 << 30), rounds: 1 << 14 })
    }

    fn of(device: &Arc<dyn Device>, work: Work) -> Result<Self, Error> {
        let stream = device.stream()?;
        let read = Probed::load(device, stream, "probe_read")?;
        let vectors = (work.read_bytes / 16).max(1);
        let table = alloc(device, 16 * vectors)?;
        device.clear(stream, &table, 0, table.bytes())?;
        let sum = alloc(device, 4)?;
        device.clear(stream, &sum, 0, sum.bytes())?;
        let arguments = [table.at(0), Arg::U64(vectors as u64), sum.at(0)];
        let read_bytes_per_s = table.bytes() as f64 / read.best_seconds(&arguments)?;

        let alu = Probed::load(device, stream, "probe_alu")?;
        let mma = Probed::load(device, stream, "probe_mma")?;
        let out = alloc(device, 4 * alu.threads().max(mma.threads()))?;
        let arguments = [out.at(0), Arg::U32(work.rounds)];
        let rounds = f64::from(work.rounds);
        let operations = alu.threads() as f64 * rounds * OPERATIONS_A_ROUND;
        let multiply_adds = mma.threads() as f64 / 32.0 * rounds * MULTIPLY_ADDS_A_ROUND;
        Ok(Self {
            read_bytes_per_s,
            multiply_adds_per_s: multiply_adds / mma.best_seconds(&arguments)?,
            operations_per_s: operations / alu.best_seconds(&arguments)?,
        })
    }
}

/// A kernel of `probe.cu` on as many blocks as the device runs at once.
struct Probed<'a> {
    device: &'a Arc<dyn Device>,
    stream: Stream,
    kernel: Kernel,
    blocks: u32,
}

impl<'a> Probed<'a> {
    fn load(
        device: &'a Arc<dyn Device>,
        stream: Stream,
        name: &'static str,
    ) -> Result<Self, Error> {
        let module = ModuleSpec { source: "probe.cu", defines: vec![] };
        let kernel = device.kernel(&module, name)?;
        let resident = device.blocks_per_multiprocessor(kernel, THREADS, 0)?.max(1);
        let blocks = resident * device.facts().multiprocessors;
        Ok(Self { device, stream, kernel, blocks })
    }

    /// Threads of a launch.
    fn threads(&self) -> usize {
        self.blocks as usize * THREADS as usize
    }

    /// The shortest of several runs; the first warms up and is not counted.
    fn best_seconds(&self, arguments: &[Arg]) -> Result<f64, Error> {
        let Self { device, stream, kernel, blocks } = *self;
        let launch = Launch {
            blocks: (blocks, 1),
            threads: THREADS,
            shared_bytes: 0,
            is_cooperative: false,
        };
        let mut best = f64::MAX;
        for run in 0..=RUNS {
            let start = device.record(stream)?;
            // SAFETY: a kernel of this crate with what it takes, of buffers that live until the events came.
            unsafe { device.launch(stream, kernel, launch, arguments) }?;
            let end = device.record(stream)?;
            let milliseconds = f64::from(device.elapsed_ms(start, end)?);
            if run > 0 {
                best = best.min(milliseconds);
            }
        }
        // A device's clock has steps of half a microsecond.
        Ok(best.max(5e-4) / 1e3)
    }
}

const THREADS: u32 = 256;
const RUNS: usize = 5;
/// 8 words, each added to, XORed and rotated.
const OPERATIONS_A_ROUND: f64 = 24.0;
/// Operations of one warp: 8 products of 16 by 8 by 32.
const MULTIPLY_ADDS_A_ROUND: f64 = 8.0 * 4096.0;

#[cfg(test)]
mod tests {
    use super::{Probe, Work};
    use crate::shim::Shim;

    #[test]
    fn every_rate_is_measured() {
        let device = Shim::new(1);
        let rates = Probe::of(&device, Work { read_bytes: 5000, rounds: 3 }).expect("rates");
        for rate in [rates.read_bytes_per_s, rates.multiply_adds_per_s, rates.operations_per_s] {
            assert!(rate.is_finite() && rate > 0.0, "{rates:?}");
        }
    }
}
