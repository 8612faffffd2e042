//! A table on a device, and how keys of it are answered: what an engine has and its passes need.

use std::sync::Arc;

use crate::layout::Layout;
use crate::prg::PrgTuning;
use crate::store::Store;
use crate::{Ablation, Device, Expander, Strategy};

/// A loaded table.
pub(crate) struct Loaded {
    pub device: Arc<dyn Device>,
    pub layout: Layout,
    pub store: Store,
    pub expander: Expander,
    pub strategy: Strategy,
    pub tuning: PrgTuning,
    pub ablation: Option<Ablation>,
    /// Bytes that a lane may take for nodes and shares each.
    pub work_bytes_max: usize,
    /// Bytes that the table leaves of the device's memory.
    pub work_bytes_all: u64,
}
