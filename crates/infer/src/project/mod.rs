//! What a trace would take on other machines, from tables of their operations' times.
//!
//! The case study of HE-LRM (section 6.4, figure 9) runs its static trace through a GPU library's
//! kernels and an ASIC's cost model. Here every machine is a file of times with its sources, so that
//! one more is a file, too; [`he_lrm`] is the paper's own program, [`crate::trace`] records ours.

mod backend;
mod paper;

pub use backend::{Backend, Error, Primitive};
pub use paper::{PaperActivation, he_lrm};

use std::collections::BTreeSet;

use serde::Serialize;

use crate::trace::{Kind, Operation, Trace};

/// What a trace takes on one machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Projection {
    /// The machine's name.
    pub backend: String,
    /// What it is.
    pub device: String,
    /// In all.
    pub total_ms: f64,
    /// By layer, in the order of the circuit.
    pub layers: Vec<(String, f64)>,
    /// What bootstraps take of it.
    pub bootstrap_ms: f64,
}

impl Backend {
    /// What `trace` takes here.
    ///
    /// # Errors
    /// [`Error::Missing`] where the trace has an operation that the table has not.
    pub fn project(&self, trace: &Trace) -> Result<Projection, Error> {
        let mut projection = Projection {
            backend: self.name().to_owned(),
            device: self.device().to_owned(),
            total_ms: 0.0,
            layers: Vec::new(),
            bootstrap_ms: 0.0,
        };
        // A layer in which a modulus is raised is a bootstrap.
        let raised = trace.operations.iter().filter(|operation| operation.kind == Kind::Raise);
        let raised: BTreeSet<&str> = raised.map(|operation| operation.layer.as_str()).collect();
        for operation in &trace.operations {
            let ms = self.operation_ms(trace.degree, operation)?;
            projection.total_ms += ms;
            if operation.kind == Kind::Bootstrap || raised.contains(operation.layer.as_str()) {
                projection.bootstrap_ms += ms;
            }
            match projection.layers.last_mut() {
                Some((layer, sum)) if *layer == operation.layer => *sum += ms,
                _ => projection.layers.push((operation.layer.clone(), ms)),
            }
        }
        Ok(projection)
    }

    fn operation_ms(&self, degree: usize, operation: &Operation) -> Result<f64, Error> {
        let limbs = operation.level + 1;
        let of = |primitive| self.ms(primitive, degree, limbs);
        let once = match operation.kind {
            Kind::Add | Kind::AddPlain | Kind::AddConstant => of(Primitive::Add)?,
            Kind::Drop => 0.0,
            Kind::MultiplyPlain | Kind::MultiplyConstant => of(Primitive::MultiplyPlain)?,
            Kind::Multiply | Kind::Square => of(Primitive::Multiply)?,
            Kind::Rescale => of(Primitive::Rescale)?,
            // A raise's time is that of the switch back from the sparse secret, which a rotation takes.
            Kind::Rotate | Kind::Raise => of(Primitive::Rotate)?,
            Kind::RotateMany => operation.baby_rotations as f64 * of(Primitive::HoistedRotate)?,
            // Double hoisting (Bossuat et al., EUROCRYPT 2021) as its parts cost one by one, which
            // is what Lattigo's maps take to within 3 %.
            Kind::Transform => {
                operation.baby_rotations as f64 * of(Primitive::HoistedRotate)?
                    + operation.giant_rotations as f64 * of(Primitive::Rotate)?
                    + operation.diagonals as f64 * of(Primitive::MultiplyPlain)?
            }
            Kind::Bootstrap => of(Primitive::Bootstrap)?,
        };
        Ok(once * operation.count as f64)
    }
}
