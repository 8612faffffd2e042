//! Whole inferences by a layout on a GPU, checked and timed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hushtable_gpu::{BinsSpec, Cuda, CudaSpec, GpuBatchEngine};
use hushtable_pir::batch::{BatchBackend, BatchEngine, BatchKeys, Client, Geometry};
use hushtable_pir::dpf::Side;
use hushtable_pir::layout::{Layout, Plan};
use hushtable_pir::{EngineSpec, PrgKind};

use super::{BATCH_MAX, REPEATS_MIN, failed, wrong};
use crate::bench::gpu::{BinsWork, Times, no_gpu};
use crate::bench::parse_prg;
use crate::errors::Failure;
use crate::gpu::DeviceFacts;
use crate::gpu::engine::device_facts;
use crate::layout::made_up_row;

/// The bins of a layout over made-up rows.
pub(crate) struct BinsBench {
    index: u32,
    geometry: Geometry,
    engine: GpuBatchEngine,
    reference: BatchEngine,
    work: BinsWork,
}

impl BinsBench {
    pub fn new(layout: &Layout, index: u32, nvrtc_folders: Vec<PathBuf>) -> Result<Self, Failure> {
        let spec = CudaSpec { index, nvrtc_folders, cache_folder: None };
        let device = Cuda::open(&spec).map_err(no_gpu)?;
        let engine = GpuBatchEngine::new(device, layout, &BinsSpec::default(), made_up_row)
            .map_err(failed)?;
        let reference = BatchEngine::new(layout, &EngineSpec::default(), made_up_row)?;
        let geometry = Geometry::new(layout);
        let costs = geometry.costs(layout);
        let parts = geometry.parts();
        let sum = |of: &dyn Fn(usize, usize) -> usize| -> u64 {
            parts.iter().map(|part| of(part.keys(), part.leaf_count) as u64).sum()
        };
        let work = BinsWork {
            keys: costs.keys,
            inner_nodes: sum(&|keys, leaves| keys * (leaves - 1)),
            // Left expands a leaf for each key of a bin of one leaf; right was sent it.
            leaves: sum(&|keys, leaves| keys * leaves),
            product_bytes: costs.product_bytes,
            stored_bytes: costs.stored_bytes,
        };
        Ok(Self { index, geometry, engine, reference, work })
    }

    pub fn facts(&self) -> DeviceFacts {
        device_facts(self.index, self.engine.device().facts())
    }

    pub fn description(&self) -> String {
        self.engine.description()
    }

    pub fn work(&self) -> BinsWork {
        self.work
    }

    /// Each side's answers are, byte by byte, what the engine for processors answers.
    pub fn check(&self, batch: usize, prg: &str) -> Result<(), Failure> {
        for requests in self.ask(batch, prg)? {
            let mut found = vec![0; requests.len() * self.geometry.answer_bytes()];
            let mut expected = found.clone();
            self.engine.answer(&requests, &mut found)?;
            self.reference.answer(&requests, &mut expected)?;
            if let Some(at) = found.iter().zip(&expected).position(|(a, b)| a != b) {
                let (request, byte) =
                    (at / self.geometry.answer_bytes(), at % self.geometry.answer_bytes());
                let side = requests[request].side();
                return Err(wrong(format!(
                    "byte {byte} of the {side} answer to request {request} came back wrong: {}, and \
                     by the processor {}",
                    found[at], expected[at]
                )));
            }
        }
        Ok(())
    }

    /// Of the two sides' requests those that take longer.
    pub fn answer_ms(&self, batch: usize, prg: &str, seconds: f64) -> Result<Times, Failure> {
        let limit = Duration::try_from_secs_f64(seconds / 2.0).map_err(Failure::config)?;
        let mut answers = vec![0; batch * self.geometry.answer_bytes()];
        let mut slower: Option<Times> = None;
        for requests in self.ask(batch, prg)? {
            // The first compiles, takes memory, and wakes the device up.
            self.engine.answer_timed(&requests, &mut answers).map_err(failed)?;
            let mut times = Times::default();
            let started = Instant::now();
            while times.wall_ms.len() < REPEATS_MIN || started.elapsed() < limit {
                let start = Instant::now();
                let ms = self.engine.answer_timed(&requests, &mut answers).map_err(failed)?;
                times.device_ms.push(ms);
                times.wall_ms.push(start.elapsed().as_secs_f64() * 1e3);
            }
            let median = |times: &Times| {
                let mut sorted = times.device_ms.clone();
                sorted.sort_unstable_by(f64::total_cmp);
                sorted[sorted.len() / 2]
            };
            if slower.as_ref().is_none_or(|known| median(&times) > median(known)) {
                slower = Some(times);
            }
        }
        Ok(slower.unwrap_or_default())
    }

    /// Requests of nothing, which are as long and cost as much as any, for both sides.
    fn ask(&self, batch: usize, prg: &str) -> Result<[Vec<BatchKeys>; 2], Failure> {
        if !(1..=BATCH_MAX).contains(&batch) {
            let text = format!("batch is {batch}, but must be 1 to {BATCH_MAX}");
            return Err(Failure::config(text));
        }
        let prg: PrgKind = parse_prg(prg)?;
        let client = Client::new(self.geometry.clone(), prg);
        let plan = Plan::empty(self.geometry.keys());
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for _ in 0..batch {
            let (request, _) = client.query(&plan)?;
            left.push(BatchKeys::parse(&self.geometry, Side::Left, request.left.clone())?);
            right.push(BatchKeys::parse(&self.geometry, Side::Right, request.right.clone())?);
        }
        Ok([left, right])
    }
}
