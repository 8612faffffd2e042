//! Plans and models of encrypted inference in this process.

use std::path::{Path, PathBuf};

use hushtable_infer::Platform;
use hushtable_serve::InferModel;
use hushtable_infer::dlrm::{Compiled, PlanSpec};
use hushtable_table::model::Model;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use serde_json::json;

use crate::errors::Failure;
use crate::infer_client::InferFacts;
