//! How much noise there is: predicted, as variances, and measured.
//!
//! Plaintexts are taken as uniform and independent of the noise that they multiply, which a public
//! mask makes true of any table (`pir::onion`'s `mask`). Under it a coefficient of a row selection is
//! a sum of independent uniform numbers times that noise, whatever the noise is: its variance is
//! exactly the energy of the noise times a plaintext coefficient's, and its tail is no thicker than a
//! Gaussian's. Without a mask this is false: a constant table adds up what hangs together in the
//! leaves' noise, and for some secrets has several times the variance.
//!
//! Other noise terms are treated as independent, and their sums, of thousands each, as Gaussian. They
//! are not multiplied by plaintexts. Variances are in units of one modulo Q up to
//! [`Noise::drop_limbs`], and of one modulo q after it.

use hushtable_ring::{Gadget, SIGMA};

use super::Parameters;
use crate::{Ciphertext, SecretKey};

/// Variances of one coefficient's noise.
#[derive(Clone, Copy, Debug)]
pub struct Noise<'a> {
    params: &'a Parameters,
}

impl<'a> Noise<'a> {
    /// The noise of `params`.
    pub fn new(params: &'a Parameters) -> Self {
        Self { params }
    }

    /// The mean square of a coefficient of x · s where x's coefficients have mean square 1: N · 2/3.
    fn secret_gain(&self) -> f64 {
        self.params.degree() as f64 * 2.0 / 3.0
    }

    /// Of a digit that is anywhere in −z/2..z/2.
    fn digit(gadget: Gadget) -> f64 {
        2f64.powi(2 * gadget.base_bits() as i32) / 12.0
    }

    /// Of what a gadget drops.
    fn dropped(gadget: Gadget) -> f64 {
        match gadget.dropped_bits() {
            0 => 0.0,
            bits => 2f64.powi(2 * bits as i32) / 12.0,
        }
    }

    /// log2 of the product of the limbs that answers do not keep.
    fn dropped_log2(&self) -> f64 {
        self.params.ring().modulus_log2() - self.params.answer_ring().modulus_log2()
    }

    /// A query: an error, and where limbs are dropped, its body's rounding to a multiple of them.
    pub fn query(&self) -> f64 {
        let rounding = match self.dropped_log2() {
            0.0 => 0.0,
            log2 => (2.0 * log2).exp2() / 12.0,
        };
        SIGMA * SIGMA + rounding
    }

    /// What a key switch from a substituted secret adds: digits times errors, and the dropped part
    /// times that secret.
    pub fn switch(&self) -> f64 {
        self.switch_from(self.secret_gain())
    }

    /// What the key switch from s² adds: the dropped part is multiplied by s², whose coefficients
    /// have mean square N · 8/9 (each pair of s's counts twice).
    pub fn switch_square(&self) -> f64 {
        let degree = self.params.degree() as f64;
        self.switch_from(degree * degree * 8.0 / 9.0)
    }

    /// `gain` is the sum of squares of the coefficients of the secret that is switched from.
    fn switch_from(&self, gain: f64) -> f64 {
        let gadget = self.params.key_switch();
        let terms = (gadget.digits() * self.params.degree()) as f64;
        terms * Self::digit(gadget) * SIGMA * SIGMA + gain * Self::dropped(gadget)
    }

    /// A leaf after `levels` splits: each doubles the noise's energy and adds a switch's.
    pub fn expand(&self, levels: u32) -> f64 {
        (0..levels).fold(self.query(), |noise, _| 2.0 * noise + self.switch())
    }

    /// The leaf times the secret.
    pub fn times_secret(&self, leaf: f64) -> f64 {
        leaf * self.secret_gain() + self.switch_square()
    }

    /// Modulo q, from modulo Q.
    pub fn drop_limbs(&self, noise: f64) -> f64 {
        match self.dropped_log2() {
            0.0 => noise,
            log2 => noise / (2.0 * log2).exp2() + (1.0 + self.secret_gain()) / 12.0,
        }
    }

    /// A sum of `rows` leaves times masked plaintexts.
    ///
    /// Their coefficients have mean square P²/12. The bound takes P²/4, three times as much: what
    /// is left covers secrets that are longer than the mean, and leaves with more noise than it.
    pub fn row_select(&self, leaf: f64, rows: usize) -> f64 {
        let plain = 2f64.powi(2 * (self.params.plain_bits() as i32 - 1));
        leaf * plain * (rows * self.params.degree()) as f64
    }

    /// What one external product adds, for selector rows of the given noise.
    pub fn select(&self, mask_row: f64, body_row: f64) -> f64 {
        let gadget = self.params.selector();
        let terms = (gadget.digits() * self.params.degree()) as f64;
        terms * Self::digit(gadget) * (mask_row + body_row)
            + (1.0 + self.secret_gain()) * Self::dropped(gadget)
    }

    /// What switching to 2^mask_bits adds, modulo q.
    fn compress(&self) -> f64 {
        let log2 = self.params.answer_ring().modulus_log2()
            - f64::from(self.params.spec().response_mask_bits);
        (2.0 * log2).exp2() / 12.0 * self.secret_gain()
    }

    /// A response from `rows` first-dimension leaves expanded by `levels` levels, after `games`
    /// selections.
    pub fn response(&self, rows: usize, levels: u32, games: u32) -> Prediction {
        let leaf = self.expand(levels);
        let body_row = self.drop_limbs(leaf);
        let mask_row = self.drop_limbs(self.times_secret(leaf));
        let row_select = self.row_select(body_row, rows);
        let select = self.select(mask_row, body_row) * f64::from(games);
        Prediction {
            leaf: body_row,
            row_select,
            select,
            compress: self.compress(),
            margin_log2: self.margin_log2(),
            degree: self.params.degree(),
        }
    }

    /// log2 of the noise that just flips a coefficient, less what Δ's and the body's rounding take.
    fn margin_log2(&self) -> f64 {
        let spec = self.params.spec();
        let modulus_log2 = self.params.answer_ring().modulus_log2();
        let body_step = f64::from(spec.plain_bits) - f64::from(spec.response_body_bits);
        // Half a plaintext step, less half a step of the body's (relative to a plaintext step), less
        // P · |Δ − q/P| / 2 ≤ P/4.
        let delta = (f64::from(2 * spec.plain_bits) - 2.0 - modulus_log2).exp2();
        modulus_log2 - f64::from(spec.plain_bits) + (0.5 - body_step.exp2() / 2.0 - delta).log2()
    }
}

/// The noise of a response, predicted: variances modulo q.
#[derive(Clone, Copy, Debug)]
pub struct Prediction {
    /// Of an expanded leaf.
    pub leaf: f64,
    /// After RowSel.
    pub row_select: f64,
    /// What ColTor adds.
    pub select: f64,
    /// What the response's modulus switching adds.
    pub compress: f64,
    margin_log2: f64,
    degree: usize,
}

impl Prediction {
    /// Standard deviation of the whole, log2.
    pub fn deviation_log2(&self) -> f64 {
        (self.row_select + self.select + self.compress).log2() / 2.0
    }

    /// Bits between the standard deviation and the noise that flips a coefficient.
    pub fn budget_bits(&self) -> f64 {
        self.margin_log2 - self.deviation_log2()
    }

    /// log2 of a bound on the chance that any coefficient of a response decodes wrongly:
    /// N · 2 · exp(−x²/2) / (x √(2π)) at x standard deviations.
    pub fn failure_log2(&self) -> f64 {
        let x = self.budget_bits().exp2();
        let tail = -x * x / 2.0 * std::f64::consts::LOG2_E
            - (x * (2.0 * std::f64::consts::PI).sqrt()).log2();
        (tail + 1.0 + (self.degree as f64).log2()).min(0.0)
    }
}

/// log2 of the largest |b + a · s − message| over the coefficients of a ciphertext modulo q, for a
/// message given as numbers modulo q; 0 where there is no noise at all.
///
/// For tests and for whoever holds the secret: a server that learns it learns about the secret.
pub fn measure(
    params: &Parameters,
    secret: &SecretKey,
    ciphertext: &Ciphertext,
    message: impl Fn(usize) -> i128,
) -> Measured {
    let ring = params.answer_ring();
    let phase = secret.phase(ring, ciphertext);
    let product = ring.crt().product().expect("checked with the gadget") as i128;
    let (mut squares, mut largest) = (0.0, 0.0f64);
    for index in 0..ring.degree() {
        let value = ring.crt().compose_signed(|limb| phase.limb(limb)[index]);
        let error = (value - message(index)).rem_euclid(product);
        let error = if error > product / 2 { error - product } else { error } as f64;
        squares += error * error;
        largest = largest.max(error.abs());
    }
    Measured { variance: squares / ring.degree() as f64, largest }
}

/// Noise that was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Mean square over the coefficients.
    pub variance: f64,
    /// Largest absolute value.
    pub largest: f64,
}
