//! The batch backend for GPUs: whole inferences by a layout, whose bins are many short tables.

mod plan;

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use hushtable_pir::batch::{BatchBackend, BatchKeys, Geometry, PartGeometry, PartRows};
use hushtable_pir::dpf::Side;
use hushtable_pir::layout::Layout;
use hushtable_pir::{PrgKind, Table};

use crate::clock::Clock;
use crate::lane::{Lane, Lanes};
use crate::{Arg, Buffer, Device, Error, PrgTuning, alloc, alloc_pinned, expand};
pub(crate) use plan::modules;
use plan::{TreePlan, VECTOR_BYTES};

/// How a [`GpuBatchEngine`] runs.
#[derive(Clone, Debug, Default)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct BinsSpec {
    /// Most requests of one pass over the bins; larger batches take several. 0 for the default, 256.
    pub batch_requests_max: usize,
    /// Most bytes of device memory to take; `None` for what is free.
    pub memory_bytes_max: Option<u64>,
    /// Which of two ways kernels go where a measurement must tell.
    pub tuning: PrgTuning,
}

/// Requests of a pass by default: each block has keys of 64 for a bin, and four such blocks read it
/// from the cache after the first. A count of operations, not a measurement, says that more gain
/// little.
const BATCH_REQUESTS_MAX: usize = 256;
/// Batches at work at once.
const LANES: usize = 2;
/// Bytes of rows that are padded and sent at a time when bins are loaded.
const CHUNK_BYTES: usize = 32 << 20;
/// Bytes of a key's shares of one leaf.
const LEAF_BYTES: usize = 64;

/// A layout's bins on a GPU, and what answers requests from them.
///
/// A pass takes two launches for each part, whatever its bins are: one expands the keys of all bins,
/// the other multiplies each bin with the shares of all requests' keys for it. Answers are those of
/// [`BatchEngine`](hushtable_pir::batch::BatchEngine), byte for byte. No time, branch or address of
/// a kernel depends on a key's secrets; keys and shares are wiped from device memory after each pass.
pub struct GpuBatchEngine {
    device: Arc<dyn Device>,
    geometry: Geometry,
    /// Each part's rows, padded to whole vectors.
    tables: Vec<Buffer>,
    tuning: PrgTuning,
    batch_requests_max: usize,
    lanes: Lanes,
}

impl GpuBatchEngine {
    /// Loads the bins of `layout` with the rows of `table`, and checks each row against its sum as it
    /// is loaded.
    ///
    /// # Errors
    /// [`Error::Pir`] as [`BatchEngine::from_table`](hushtable_pir::batch::BatchEngine::from_table)
    /// has them; [`Error::DeviceMemory`] with what is needed and what there is, for bins that do not
    /// fit the device; the device's.
    pub fn from_table(
        device: Arc<dyn Device>,
        table: &Table,
        layout: &Layout,
        spec: &BinsSpec,
    ) -> Result<Self, Error> {
        if layout.table_version() != table.version() {
            let (expected, found) = (table.version(), layout.table_version());
            return Err(hushtable_pir::Error::LayoutTable { expected, found }.into());
        }
        let rows = table.checked_rows().map_err(hushtable_pir::Error::of_table)?;
        Self::new(device, layout, spec, |id, row| {
            rows.copy_rows(id, row).map_err(hushtable_pir::Error::of_table)
        })
    }

    /// Loads the bins of `layout` with rows that `copy(id, row)` writes.
    ///
    /// # Errors
    /// As [`from_table`](Self::from_table), and those of `copy`.
    pub fn new(
        device: Arc<dyn Device>,
        layout: &Layout,
        spec: &BinsSpec,
        copy: impl Fn(u64, &mut [u8]) -> Result<(), hushtable_pir::Error> + Send + Sync,
    ) -> Result<Self, Error> {
        let geometry = Geometry::new(layout);
        let free = device.free_bytes()?;
        let budget = spec.memory_bytes_max.map_or(free, |most| most.min(free));
        let stored: u64 = geometry.parts().iter().map(|part| plan::table_bytes(part) as u64).sum();
        let request: usize = Side::BOTH
            .map(|side| plan::request_bytes(&geometry, side))
            .into_iter()
            .max()
            .unwrap_or(0);
        // As much again stays free: the engine of the table's rows takes what its batches need when
        // they come.
        let least = stored + (2 * LANES * request) as u64;
        if least > budget {
            return Err(Error::DeviceMemory { asked: least, free: budget });
        }
        let fitting = (budget - stored) / (2 * LANES * request.max(1)) as u64;
        let wanted = match spec.batch_requests_max {
            0 => BATCH_REQUESTS_MAX,
            requests => requests,
        };
        // A launch has at most 65,535 blocks of keys.
        let wanted = wanted.min(plan::requests_max(&geometry));
        let batch_requests_max = wanted.min(usize::try_from(fitting).unwrap_or(usize::MAX));
        let tables = layout
            .parts()
            .zip(geometry.parts())
            .map(|(part, shape)| load(&device, &PartRows::new(layout, part, shape), shape, &copy))
            .collect::<Result<_, _>>()?;
        let lanes = Lanes::new(&device, LANES)?;
        Ok(Self { device, geometry, tables, tuning: spec.tuning, batch_requests_max, lanes })
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Bytes of the stored bins.
    pub fn stored_bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes() as u64).sum()
    }

    /// Compiles all kernels that requests of a generator take, so that no client waits for the
    /// compiler.
    ///
    /// # Errors
    /// The compiler's and the device's.
    pub fn warm_up(&self, prg: PrgKind) -> Result<(), Error> {
        self.device.kernel(&expand::module(prg, self.tuning), "expand_trees")?;
        for queries in plan::FORMS {
            self.device.kernel(&plan::product_module(queries), "multiply_bins")?;
        }
        Ok(())
    }

    /// Answers requests of one side and generator as [`BatchBackend::answer`] does, and gives the
    /// milliseconds that the device took: from the beginning of the first copy of keys to it until
    /// the last sums are in its memory. For benchmarks.
    ///
    /// # Errors
    /// As [`BatchBackend::answer`]; [`Error::Geometry`] for requests of several kinds, or none.
    pub fn answer_timed(&self, requests: &[BatchKeys], answers: &mut [u8]) -> Result<f64, Error> {
        let kinds = kinds(requests.iter());
        let [(kind, numbers)] = &kinds[..] else {
            let reason = format!("requests of {} sides and generators are timed: one", kinds.len());
            return Err(Error::Geometry { reason });
        };
        self.check(requests.len(), answers)?;
        let mut clock = Clock::default();
        let requests: Vec<&BatchKeys> = requests.iter().collect();
        self.answer_kind(*kind, &requests, numbers, answers, Some(&mut clock))?;
        clock.milliseconds(&self.device)
    }

    fn check(&self, requests: usize, answers: &[u8]) -> Result<(), hushtable_pir::Error> {
        let (expected, found) = (requests * self.geometry.answer_bytes(), answers.len());
        if expected != found {
            return Err(hushtable_pir::Error::AnswerBytes { expected, found });
        }
        Ok(())
    }

    /// Answers those of `requests` that `numbers` names, which are of one kind, pass by pass.
    fn answer_kind(
        &self,
        kind: Kind,
        requests: &[&BatchKeys],
        numbers: &[usize],
        answers: &mut [u8],
        mut clock: Option<&mut Clock>,
    ) -> Result<(), Error> {
        let passes = numbers.len().div_ceil(self.batch_requests_max);
        for numbers in numbers.chunks(numbers.len().div_ceil(passes)) {
            let chosen: Vec<&BatchKeys> = numbers.iter().map(|&i| requests[i]).collect();
            let mut taken = self.lanes.wait();
            let pass = Pass { engine: self, kind, requests: &chosen, lane: taken.lane() };
            pass.run(clock.as_deref_mut(), |number, answer| {
                let at = numbers[number] * answer.len();
                answers[at..at + answer.len()].copy_from_slice(answer);
            })?;
        }
        Ok(())
    }
}

/// What requests of one pass have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    prg: PrgKind,
    side: Side,
}

/// The kinds of some requests, and the numbers of each kind's.
fn kinds<'a>(requests: impl Iterator<Item = &'a BatchKeys>) -> Vec<(Kind, Vec<usize>)> {
    let mut found: Vec<(Kind, Vec<usize>)> = Vec::new();
    let mut known: HashMap<Kind, usize> = HashMap::new();
    for (number, request) in requests.enumerate() {
        let kind = Kind { prg: request.prg(), side: request.side() };
        let at = *known.entry(kind).or_insert_with(|| {
            found.push((kind, Vec::new()));
            found.len() - 1
        });
        found[at].1.push(number);
    }
    found
}

/// Sends a part's rows to the device, padded to whole vectors.
fn load(
    device: &Arc<dyn Device>,
    rows: &PartRows<'_>,
    shape: &PartGeometry,
    copy: &(impl Fn(u64, &mut [u8]) -> Result<(), hushtable_pir::Error> + Send + Sync),
) -> Result<Buffer, Error> {
    let padded = plan::vectors(shape) as usize * VECTOR_BYTES;
    let table = alloc(device, rows.count() * padded)?;
    let stream = device.stream()?;
    let at_once = (CHUNK_BYTES / padded).clamp(1, rows.count());
    let mut staging = alloc_pinned(device, at_once * padded)?;
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    for first in (0..rows.count()).step_by(at_once) {
        let count = at_once.min(rows.count() - first);
        let chunk = &mut staging.as_mut_slice()[..count * padded];
        let share = count.div_ceil(cores);
        thread::scope(|scope| {
            let pieces = chunk.chunks_mut(share * padded).enumerate();
            let pieces = pieces.map(|(number, piece)| {
                scope.spawn(move || {
                    let mut entry = vec![0; shape.entry_bytes];
                    for (i, to) in piece.chunks_exact_mut(padded).enumerate() {
                        rows.copy((first + number * share + i) as u64, &mut entry, copy)?;
                        to[..entry.len()].copy_from_slice(&entry);
                    }
                    Ok(())
                })
            });
            // All are started before one is waited for.
            let pieces: Vec<_> = pieces.collect();
            let done = pieces
                .into_iter()
                .map(|piece| piece.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            done.collect::<Result<(), hushtable_pir::Error>>()
        })?;
        device.copy_in(stream, &table, first * padded, chunk)?;
        device.synchronize(stream)?;
    }
    Ok(table)
}

/// One pass over all bins for requests of one kind.
struct Pass<'a> {
    engine: &'a GpuBatchEngine,
    kind: Kind,
    requests: &'a [&'a BatchKeys],
    lane: &'a mut Lane,
}

impl Pass<'_> {
    /// Answers the requests: `take` gets each one's answer by its number in the pass. After an error
    /// the lane is as before.
    fn run(
        mut self,
        clock: Option<&mut Clock>,
        take: impl FnMut(usize, &[u8]),
    ) -> Result<(), Error> {
        let outcome = self.launch(clock).and_then(|()| self.collect(take));
        let Self { engine, lane, .. } = &mut self;
        if outcome.is_err() {
            // What was put in the stream may still read the host's keys.
            let _ = engine.device.synchronize(lane.stream);
        }
        lane.keys_out.wipe();
        let wiped = lane.wipe(&engine.device);
        outcome.and(wiped)
    }

    fn launch(&mut self, clock: Option<&mut Clock>) -> Result<(), Error> {
        let Self { engine, kind, requests, ref mut lane } = *self;
        let (device, geometry) = (&engine.device, &engine.geometry);
        let bytes = |part: &PartGeometry| plan::key_bytes(part, kind.side) * requests.len();
        let staged = lane.keys_out.of(device, geometry.parts().iter().map(bytes).sum())?;
        let mut rest = &mut *staged;
        for (number, part) in geometry.parts().iter().enumerate() {
            let (own, behind) = rest.split_at_mut(bytes(part));
            let each = own.chunks_exact_mut(plan::key_bytes(part, kind.side));
            each.zip(requests).for_each(|(to, request)| request.pack(geometry, number, to));
            rest = behind;
        }
        let began = clock.as_ref().map(|_| device.record(lane.stream)).transpose()?;
        let words = lane.keys.of(device, staged.len())?;
        device.copy_in(lane.stream, words, 0, staged)?;
        let sum_bytes = plan::sum_bytes(geometry) * requests.len();
        device.clear(lane.stream, lane.sums.of(device, sum_bytes)?, 0, sum_bytes)?;
        let (mut key_at, mut sum_at) = (0, 0);
        for (part, table) in geometry.parts().iter().zip(&engine.tables) {
            self.part(part, table, key_at, sum_at)?;
            key_at += bytes(part);
            sum_at += plan::part_sum_bytes(part) * self.requests.len();
        }
        match (clock, began) {
            (Some(clock), Some(began)) => clock.ended(&self.engine.device, self.lane.stream, began),
            _ => Ok(()),
        }
    }

    /// Expands a part's keys, which begin at byte `key_at`, and adds its bins' products to the sums
    /// at byte `sum_at`.
    fn part(
        &mut self,
        part: &PartGeometry,
        table: &Buffer,
        key_at: usize,
        sum_at: usize,
    ) -> Result<(), Error> {
        let Self { engine, kind, requests, ref mut lane } = *self;
        let device = &engine.device;
        let words = lane.keys.of(device, 0)?.at(key_at);
        let shares = match part.has_shares(kind.side) {
            true => words,
            false => {
                let keys = part.keys() * requests.len();
                let shares = lane.shares.of(device, keys * part.leaf_count * LEAF_BYTES)?.at(0);
                let module = expand::module(kind.prg, engine.tuning);
                let kernel = device.kernel(&module, "expand_trees")?;
                let plan = TreePlan::new(part, keys, engine.tuning, kind.prg, device.facts());
                let arguments = [
                    words,
                    Arg::U32((part.device_key_bytes(kind.side) / 4) as u32),
                    Arg::U32(keys as u32),
                    Arg::U32(part.depth() as u32),
                    Arg::U32(plan.split),
                    Arg::U32(plan.pieces),
                    Arg::U32(part.leaf_count as u32),
                    shares,
                ];
                // SAFETY: a kernel of this crate with what it takes: words of `keys` keys, and a
                // buffer of their leaves, which the lane keeps until the stream is through.
                unsafe { device.launch(lane.stream, kernel, plan.launch, &arguments) }?;
                shares
            }
        };
        let plan = plan::product(part, requests.len(), device.facts());
        let kernel = device.kernel(&plan::product_module(plan.form), "multiply_bins")?;
        let arguments = [
            table.at(0),
            shares,
            lane.sums.of(device, 0)?.at(sum_at),
            Arg::U32(part.leaf_count as u32),
            Arg::U32((part.leaf_rows / plan::GROUP_ROWS) as u32),
            Arg::U32(plan::vectors(part)),
            Arg::U32(part.queries as u32),
            Arg::U32(part.keys() as u32),
            Arg::U32((requests.len() * part.queries) as u32),
            Arg::U32(plan.chunks),
            Arg::U32(plan.strips),
            Arg::U32(plan.width),
            Arg::U32(plan.query_warps),
        ];
        // SAFETY: a kernel of this crate with what it takes: the part's bins, a key's shares of each
        // leaf of them and its sums, in buffers that `launch` sized for this pass.
        unsafe { device.launch(lane.stream, kernel, plan.launch, &arguments) }
    }

    /// Waits for the sums and hands each request's entries over.
    fn collect(&mut self, mut take: impl FnMut(usize, &[u8])) -> Result<(), Error> {
        let Self { engine, requests, ref mut lane, .. } = *self;
        let (device, geometry) = (&engine.device, &engine.geometry);
        let bytes = plan::sum_bytes(geometry) * requests.len();
        let found = lane.answers_in.of(device, bytes)?;
        device.copy_out(lane.stream, found, lane.sums.of(device, bytes)?, 0)?;
        let mut answer = vec![0; geometry.answer_bytes()];
        for number in 0..requests.len() {
            let (mut rest, mut to) = (&*found, &mut answer[..]);
            for part in geometry.parts() {
                let own = plan::part_sum_bytes(part);
                let (sums, behind) = rest.split_at(own * requests.len());
                let (entries, after) = to.split_at_mut(part.keys() * part.entry_bytes);
                let sums = sums[number * own..][..own].chunks_exact(own / part.keys());
                for (entry, sum) in entries.chunks_exact_mut(part.entry_bytes).zip(sums) {
                    entry.copy_from_slice(&sum[..part.entry_bytes]);
                }
                (rest, to) = (behind, after);
            }
            take(number, &answer);
        }
        Ok(())
    }
}

impl BatchBackend for GpuBatchEngine {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn answer(
        &self,
        requests: &[BatchKeys],
        answers: &mut [u8],
    ) -> Result<(), hushtable_pir::Error> {
        let requests: Vec<&BatchKeys> = requests.iter().collect();
        self.answer_each(&requests, answers)
    }

    fn answer_each(
        &self,
        requests: &[&BatchKeys],
        answers: &mut [u8],
    ) -> Result<(), hushtable_pir::Error> {
        self.check(requests.len(), answers)?;
        for (kind, numbers) in kinds(requests.iter().copied()) {
            self.answer_kind(kind, requests, &numbers, answers, None)?;
        }
        Ok(())
    }

    fn batch_requests_best(&self) -> usize {
        self.batch_requests_max
    }

    fn description(&self) -> String {
        format!(
            "{}, {} bins, {:.1} MiB resident",
            self.device.facts().name,
            self.geometry.parts().iter().map(|part| part.bins).sum::<usize>(),
            self.stored_bytes() as f64 / f64::from(1 << 20)
        )
    }
}

impl std::fmt::Debug for GpuBatchEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the rows.
        f.debug_struct("GpuBatchEngine").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hushtable_pir::DType;
    use hushtable_pir::batch::Client;
    use hushtable_pir::layout::{DropRule, LayoutMap, LayoutSpec, PartSpec, Planner};

    use crate::shim::Shim;

    #[test]
    fn nothing_secret_stays_after_a_pass() {
        let table = Table::from_weight("t", 900, 2, DType::F32, &[1.0; 1800]).expect("a table");
        let full = PartSpec { rows: 900, bins: 1, queries: 1, hashes: 1, companions: 0 };
        let hot = PartSpec { rows: 20, bins: 2, ..full };
        let spec = LayoutSpec {
            hot: Some(hot),
            full: Some(full),
            ids_max: 9,
            drop: DropRule::MostFrequent,
            seed: [1; 32],
        };
        let map = LayoutMap {
            hot_ids: (0..20).collect(),
            hot_companions: Vec::new(),
            full_companions: Vec::new(),
        };
        let layout = Layout::new(spec, map, table.shape(), table.version()).expect("a layout");
        let engine =
            GpuBatchEngine::from_table(Shim::new(0), &table, &layout, &BinsSpec::default());
        let engine = engine.expect("it fits");
        let geometry = engine.geometry().clone();
        let client = Client::new(geometry.clone(), PrgKind::ChaCha20);
        let planner = Planner::new(Arc::new(layout));
        let (request, _) =
            client.query(&planner.plan_vartime(&[3, 700], 0).expect("a plan")).expect("a request");
        for (side, bytes) in [(Side::Left, &request.left), (Side::Right, &request.right)] {
            let request = BatchKeys::parse(&geometry, side, bytes.clone()).expect("a request");
            engine.answer(&[request], &mut vec![0; geometry.answer_bytes()]).expect("answers");
            // Lanes are taken from the end: the one that was used is the next.
            let mut taken = engine.lanes.wait();
            let lane = taken.lane();
            for room in [&lane.keys, &lane.shares] {
                let buffer = room.buffer().expect("it was used");
                let mut bytes = vec![1; buffer.bytes()];
                engine.device.copy_out(lane.stream, &mut bytes, buffer, 0).expect("in bounds");
                assert!(bytes.iter().all(|byte| *byte == 0), "{side}");
            }
            assert_eq!(lane.keys_out.of(&engine.device, 1).expect("memory"), [0]);
        }
    }
}
