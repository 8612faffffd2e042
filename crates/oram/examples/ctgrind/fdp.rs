//! How many rows a round reads: the union's size and the draws are secret.

use crate::secret::{SecretRng, secret};
use hushtable_oram::fdp::{FdpSpec, Mechanism, MechanismSpec, Protects, Shape};
use hushtable_prg::valgrind::declassify;

pub fn samples() {
    let mechanisms = [
        MechanismSpec::Geometric,
        MechanismSpec::Shifted { by: 5, least: 3 },
        MechanismSpec::Exponential { shape: Shape::Uniform },
        MechanismSpec::Exponential { shape: Shape::Square { low: 2, high: 40 } },
        MechanismSpec::Exponential { shape: Shape::Power { exponent: 5.0 } },
        MechanismSpec::Exponential { shape: Shape::Delta { at: None } },
    ];
    let mut random = SecretRng::new(1);
    for mechanism in mechanisms {
        for epsilon in [0.0, 0.01, 1.0, 5.0, f64::INFINITY] {
            for protects in [Protects::Value, Protects::Count { values: 3 }] {
                for requests in [40, 333, 3_000] {
                    let spec = FdpSpec { epsilon, mechanism, protects };
                    let sampler = Mechanism::new(&spec, requests).expect("a mechanism");
                    for k_union in [0, 1, requests / 2, requests] {
                        let k_union = secret([k_union])[0];
                        let mut k = sampler.sample(k_union, &mut random);
                        declassify(&mut k);
                        let mut k_union = k_union;
                        declassify(&mut k_union);
                        // A draw that could not have been would show that the code did something else.
                        assert!(sampler.probability(k_union, k) > 0.0);
                    }
                }
            }
        }
    }
}
