//! How fast one process answers whole inferences of a model.

use std::sync::Arc;

use hushtable_pir::dpf::{self, Domain, Group, KeyPair, Side};
use hushtable_pir::model::{Feature, Inference, Server};
use hushtable_pir::{CpuEngine, EngineSpec, TableShape, Threads};
use hushtable_prg::{Platform, Prg};
use hushtable_table::Version;
use pyo3::prelude::*;

use super::{BATCH_MAX, parse_prg, repeat};
use crate::errors::Failure;
use crate::machine::{Random, random_rows};

/// Both servers of a model over random rows, one key an inference for each table, to be timed.
#[pyclass(frozen, module = "hushtable._native.bench", name = "ModelBench")]
pub(crate) struct NativeModelBench {
    left: Server,
    right: Server,
    threads: Threads,
    /// Of each table its keys' domain and its rows.
    tables: Vec<(Domain, Vec<u8>)>,
    row_bytes: usize,
}

#[pymethods]
impl NativeModelBench {
    /// Fills a table of so many `row_bytes` for each of `rows`; 0 threads for one a core.
    #[new]
    #[pyo3(signature = (rows, row_bytes, *, threads))]
    fn new(py: Python<'_>, rows: Vec<u64>, row_bytes: usize, threads: usize) -> PyResult<Self> {
        Ok(py.detach(|| Self::fill(&rows, row_bytes, threads))?)
    }

    /// Threads that the tables share.
    #[getter]
    fn threads(&self) -> usize {
        self.threads.count()
    }

    /// Stored bytes that a pass reads.
    #[getter]
    fn read_bytes(&self) -> u64 {
        self.left.read_bytes()
    }

    /// Stored bytes that one inference's keys are multiplied with.
    #[getter]
    fn product_bytes(&self) -> u64 {
        self.left.product_bytes()
    }

    /// Seconds that each of several passes of `batch` inferences took, over at least `seconds`.
    /// Before, both servers' answers are added up and compared with the rows.
    #[pyo3(signature = (batch, *, prg, seconds))]
    fn answer_seconds(
        &self,
        py: Python<'_>,
        batch: usize,
        prg: &str,
        seconds: f64,
    ) -> PyResult<Vec<f64>> {
        let prg = Prg::new(parse_prg(prg)?, Platform::detect());
        if !(1..=BATCH_MAX).contains(&batch) {
            let text = format!("batch is {batch}, but must be 1 to {BATCH_MAX}");
            return Err(Failure::config(text).into());
        }
        let (inferences, mut answers) = py.detach(|| self.check(batch, prg))?;
        repeat(py, seconds, || Ok(self.left.answer(&inferences, &mut answers)?))
    }
}

impl NativeModelBench {
    fn fill(rows: &[u64], row_bytes: usize, threads: usize) -> Result<Self, Failure> {
        let threads = Threads::new(threads)?;
        let spec = EngineSpec { shared: Some(threads.clone()), ..EngineSpec::default() };
        let version = Version::from([0; 32]);
        let (mut left, mut right, mut tables) = (Vec::new(), Vec::new(), Vec::new());
        for &rows in rows {
            let shape = TableShape::new(rows, row_bytes)?;
            let values = random_rows(shape)?;
            let engine = Arc::new(CpuEngine::from_rows(shape, &values, &spec)?);
            for (side, features) in [(Side::Left, &mut left), (Side::Right, &mut right)] {
                let server = dpf::Server::new(side, version, engine.clone());
                features.push(Feature::Rows { server, keys: 1 });
            }
            tables.push((Domain::new(rows, Group::Bits)?, values));
        }
        let left = Server::new(version, left, threads.clone());
        let right = Server::new(version, right, threads.clone());
        Ok(Self { left, right, threads, tables, row_bytes })
    }

    /// Makes inferences of random rows; returns the left server's once they have been seen to work.
    fn check(&self, batch: usize, prg: Prg) -> Result<(Vec<Inference>, Vec<u8>), Failure> {
        let mut random = Random(batch as u64);
        let (mut left, mut right, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..batch {
            let (mut left_parts, mut right_parts) = (Vec::new(), Vec::new());
            for (domain, rows) in &self.tables {
                let id = random.next() % domain.rows();
                let pair = KeyPair::generate(prg, *domain, id)?;
                left_parts.push(pair.left.to_bytes());
                right_parts.push(pair.right.to_bytes());
                expected.extend_from_slice(&rows[id as usize * self.row_bytes..][..self.row_bytes]);
            }
            left.push(self.left.accept(left_parts).map_err(wrong)?);
            right.push(self.right.accept(right_parts).map_err(wrong)?);
        }
        let mut answers = vec![0; expected.len()];
        let mut others = vec![0; expected.len()];
        self.left.answer(&left, &mut answers)?;
        self.right.answer(&right, &mut others)?;
        for (share, other) in others.iter_mut().zip(&answers) {
            *share ^= other;
        }
        if others != expected {
            return Err(wrong("rows came back wrong: do not trust this machine's kernel"));
        }
        Ok((left, answers))
    }
}

fn wrong(what: impl std::fmt::Display) -> Failure {
    Failure::new("Error", what.to_string())
}
