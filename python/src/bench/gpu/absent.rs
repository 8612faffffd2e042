//! A platform that has no engine for GPUs.

use std::path::PathBuf;

use hushtable_pir::layout::Layout;

use super::{BinsWork, How, Times, no_gpu};
use crate::errors::Failure;
use crate::gpu::DeviceFacts;
use crate::gpu::engine::REASON;

/// None can be made.
pub(crate) enum Bench {}

impl Bench {
    pub fn new(_: u64, _: usize, _: u32, _: Vec<PathBuf>) -> Result<Self, Failure> {
        Err(no_gpu(REASON))
    }

    pub fn facts(&self) -> DeviceFacts {
        match *self {}
    }

    pub fn description(&self) -> String {
        match *self {}
    }

    pub fn check(&self, _: usize, _: &How<'_>) -> Result<(), Failure> {
        match *self {}
    }

    pub fn step_bytes(&self, _: usize, _: &How<'_>) -> Result<(u64, u64), Failure> {
        match *self {}
    }

    pub fn answer_ms(&self, _: usize, _: &How<'_>, _: f64) -> Result<Times, Failure> {
        match *self {}
    }
}

/// Nor one of bins.
pub(crate) enum BinsBench {}

impl BinsBench {
    pub fn new(_: &Layout, _: u32, _: Vec<PathBuf>) -> Result<Self, Failure> {
        Err(no_gpu(REASON))
    }

    pub fn facts(&self) -> DeviceFacts {
        match *self {}
    }

    pub fn description(&self) -> String {
        match *self {}
    }

    pub fn work(&self) -> BinsWork {
        match *self {}
    }

    pub fn check(&self, _: usize, _: &str) -> Result<(), Failure> {
        match *self {}
    }

    pub fn answer_ms(&self, _: usize, _: &str, _: f64) -> Result<Times, Failure> {
        match *self {}
    }
}

pub(crate) fn probe(_: u32, _: Vec<PathBuf>) -> Result<(f64, f64, f64), Failure> {
    Err(no_gpu(REASON))
}
