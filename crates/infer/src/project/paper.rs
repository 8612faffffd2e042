//! The paper's own program, as a trace.

use crate::trace::{Kind, Operation, Trace};

/// What the paper's models activate with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaperActivation {
    /// ReLU as a composite of polynomials of degrees 15, 15 and 27: 12 bootstraps in all.
    Relu,
    /// SiLU by one polynomial of degree 31: 5 bootstraps in all.
    Silu,
}

/// HE-LRM's Criteo model as Orion runs it: 13-512-256-64-16 and 432-512-256-1 at N = 2^16, one-hots
/// in `ciphertexts` ciphertexts of 32,768 slots (1, 1, 2, 18 and 85 in the paper, from the smallest
/// threshold to the largest).
///
/// From the paper (sections 5.2 and 6.3): 512 diagonals for each ciphertext of one-hots, 12 and 5
/// bootstraps. Not in it, and chosen here: diagonals of the layers (each padded to powers of two, the
/// smaller side), as many baby as giant steps, lookups at level 5 for ReLU and 4 for SiLU (which
/// Lattigo's times and the paper's of 51 and 44 seconds for 18 ciphertexts give), layers at level 6,
/// and a polynomial's products by Paterson and Stockmeyer's count.
pub fn he_lrm(ciphertexts: usize, activation: PaperActivation) -> Trace {
    let mut operations = Vec::new();
    let is_relu = activation == PaperActivation::Relu;
    let lookup_level = if is_relu { 5 } else { 4 };
    for _ in 0..ciphertexts {
        map(&mut operations, "embeddings", lookup_level, 512);
    }
    if ciphertexts > 1 {
        push(&mut operations, "embeddings", Kind::Add, lookup_level, ciphertexts - 1);
    }
    push(&mut operations, "embeddings", Kind::Rescale, lookup_level, 1);
    let layers = [
        ("bottom 1", 16, true),
        ("bottom 2", 256, true),
        ("bottom 3", 64, true),
        ("bottom 4", 16, true),
        ("top 1", 512, true),
        ("top 2", 256, true),
        ("top 3", 1, false),
    ];
    let mut bootstraps = if is_relu { 12 } else { 5 };
    for (name, diagonals, is_activated) in layers {
        map(&mut operations, name, 6, diagonals);
        push(&mut operations, name, Kind::Rescale, 6, 1);
        if !is_activated {
            continue;
        }
        let here = if is_relu { 2 } else { 1 };
        for _ in 0..here.min(bootstraps) {
            push(&mut operations, name, Kind::Bootstrap, 0, 1);
        }
        bootstraps -= here.min(bootstraps);
        let degrees: &[usize] = if is_relu { &[15, 15, 27] } else { &[31] };
        for &degree in degrees {
            let products = products(degree);
            push(&mut operations, name, Kind::Multiply, 8, products);
            push(&mut operations, name, Kind::Rescale, 8, products);
            push(&mut operations, name, Kind::MultiplyConstant, 8, degree);
        }
        if is_relu {
            // x · sign(x), and the half of it.
            push(&mut operations, name, Kind::Multiply, 4, 1);
            push(&mut operations, name, Kind::Rescale, 4, 1);
        }
    }
    Trace {
        name: format!("HE-LRM, {ciphertexts} ciphertexts of one-hots, {activation:?}"),
        degree: 1 << 16,
        levels: 10,
        special_limbs: 3,
        modulus_log2: 1764.0,
        operations,
    }
}

/// Products of ciphertexts that a polynomial of `degree` takes: baby powers up to a power of two
/// about √degree, doublings up to the degree, and a product for each join.
fn products(degree: usize) -> usize {
    let baby = 1usize << (usize::ilog2(degree + 1).div_ceil(2));
    let parts = (degree + 1).div_ceil(baby);
    (baby - 1) + parts.next_power_of_two().ilog2() as usize + parts.saturating_sub(1)
}

fn push(operations: &mut Vec<Operation>, layer: &str, kind: Kind, level: usize, count: usize) {
    operations.push(Operation {
        layer: layer.to_owned(),
        kind,
        count,
        level,
        scale_log2: 40.0,
        inputs: 1,
        diagonals: 0,
        baby_rotations: 0,
        giant_rotations: 0,
    });
}

fn map(operations: &mut Vec<Operation>, layer: &str, level: usize, diagonals: usize) {
    push(operations, layer, Kind::Transform, level, 1);
    let operation = operations.last_mut().expect("one was pushed");
    let babies = 1usize << diagonals.next_power_of_two().ilog2().div_ceil(2);
    operation.diagonals = diagonals;
    operation.baby_rotations = babies.min(diagonals) - 1;
    operation.giant_rotations = diagonals.div_ceil(babies) - 1;
}

#[cfg(test)]
mod tests {
    use super::super::Backend;
    use super::*;

    fn total_s(backend: &str, ciphertexts: usize, activation: PaperActivation) -> f64 {
        let known = Backend::known();
        let backend = known.iter().find(|known| known.name() == backend).unwrap();
        backend.project(&he_lrm(ciphertexts, activation)).unwrap().total_ms / 1e3
    }

    #[test]
    fn bootstraps_are_the_papers() {
        for (activation, bootstraps) in [(PaperActivation::Relu, 12), (PaperActivation::Silu, 5)] {
            assert_eq!(he_lrm(1, activation).count(Kind::Bootstrap), bootstraps);
        }
    }

    #[test]
    fn the_papers_cpu_and_gpu_times_come_out_again() {
        // Section 6.3: about 230 s for the three small models, 489 s for the largest; section 6.4:
        // 1.07 s on the GPU.
        for (ciphertexts, seconds) in [(1, 230.0), (85, 489.0)] {
            let found = total_s("xeon-5218", ciphertexts, PaperActivation::Relu);
            assert!((found / seconds - 1.0).abs() < 0.25, "{found} s, the paper has {seconds}");
        }
        let found = total_s("a100", 85, PaperActivation::Relu);
        assert!((found / 1.07 - 1.0).abs() < 0.25, "{found} s, the paper has 1.07");
    }

    #[test]
    fn a_broken_table_is_refused() {
        for (json, expected) in [
            ("{}", "missing field"),
            (r#"{"name":"x","device":"","sources":[],"degree":8,"costs":{}}"#, "sources"),
            (r#"{"name":"x","device":"","sources":["y"],"degree":7,"costs":{}}"#, "power of two"),
            (
                r#"{"name":"x","device":"","sources":["y"],"degree":8,"costs":{"add":[[2,1],[1,1]]}}"#,
                "rising",
            ),
        ] {
            let error = Backend::parse(json).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let empty = r#"{"name":"x","device":"","sources":["y"],"degree":8,"costs":{}}"#;
        let error = Backend::parse(empty).unwrap().project(&he_lrm(1, PaperActivation::Silu));
        assert!(error.unwrap_err().to_string().contains("no times of HoistedRotate"));
    }

    #[test]
    fn every_known_machine_projects_the_paper() {
        let mut rows = Vec::new();
        for backend in Backend::known() {
            let row = [1, 2, 18, 85].map(|ciphertexts| {
                let relu = backend.project(&he_lrm(ciphertexts, PaperActivation::Relu)).unwrap();
                let silu = backend.project(&he_lrm(ciphertexts, PaperActivation::Silu)).unwrap();
                assert!(silu.total_ms < relu.total_ms && relu.bootstrap_ms < relu.total_ms);
                relu.total_ms
            });
            assert!(row.is_sorted());
            rows.push((backend.name().to_owned(), row));
        }
        assert_eq!(rows.len(), 4);
    }
}
