//! What circuits are written against.

use super::{Diagonals, Error, Parameters, Split, Transform};

/// Arithmetic on slots, on ciphertexts or on what stands in for them.
///
/// Levels and scales are static: they depend on the operations alone, never on values, and every
/// implementation refuses the same misuse with the same error. Products are not rescaled; their scale
/// is the product of the operands', which the level must hold ([`Error::Scale`] else). Rotations are to the left: slot i gets what slot i + steps had.
pub trait Evaluate {
    /// What is computed on.
    type Ciphertext: Clone;
    /// An encoded vector.
    type Plaintext;
    /// A linear map, prepared.
    type Transform;

    /// The parameters.
    fn parameters(&self) -> &Parameters;

    /// Says which part of a circuit follows, for whoever records or reports it.
    fn enter(&mut self, layer: &str) {
        let _ = layer;
    }

    /// Rescalings left.
    fn level(&self, x: &Self::Ciphertext) -> usize;

    /// What the numbers inside were multiplied with.
    fn scale(&self, x: &Self::Ciphertext) -> f64;

    /// Encodes `values`, which repeat over the slots (a power of two of them).
    ///
    /// # Errors
    /// [`Error::Slots`], [`Error::Value`].
    fn encode(&self, values: &[f64], level: usize, scale: f64) -> Result<Self::Plaintext, Error>;

    /// Prepares a linear map for ciphertexts of `level`, its numbers at `scale`.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    fn prepare(
        &self,
        map: &Diagonals,
        split: Split,
        level: usize,
        scale: f64,
    ) -> Result<Self::Transform, Error>;

    /// Bytes of memory that [`prepare`](Self::prepare) takes for `map` where it is for ciphertexts. All
    /// evaluators say the same, so that what is decided by it is decided alike.
    ///
    /// # Errors
    /// [`Error::Level`], [`Error::Slots`].
    fn prepared_bytes(&self, map: &Diagonals, split: Split, level: usize) -> Result<usize, Error> {
        Transform::bytes(self.parameters(), map, split, level)
    }

    /// x += y, both at one level and scale (to 2^-20, relatively).
    ///
    /// # Errors
    /// [`Error::Level`], [`Error::Scale`].
    fn add_assign(&mut self, x: &mut Self::Ciphertext, y: &Self::Ciphertext) -> Result<(), Error>;

    /// x −= y; as [`add_assign`](Self::add_assign).
    ///
    /// # Errors
    /// [`Error::Level`], [`Error::Scale`].
    fn sub_assign(&mut self, x: &mut Self::Ciphertext, y: &Self::Ciphertext) -> Result<(), Error>;

    /// x += y.
    ///
    /// # Errors
    /// [`Error::Level`], [`Error::Scale`].
    fn add_plain(&mut self, x: &mut Self::Ciphertext, y: &Self::Plaintext) -> Result<(), Error>;

    /// x += y in every slot, at x's scale.
    ///
    /// # Errors
    /// [`Error::Value`].
    fn add_constant(&mut self, x: &mut Self::Ciphertext, y: f64) -> Result<(), Error>;

    /// x *= y, slot by slot.
    ///
    /// # Errors
    /// [`Error::Level`].
    fn multiply_plain(
        &mut self,
        x: &mut Self::Ciphertext,
        y: &Self::Plaintext,
    ) -> Result<(), Error>;

    /// x *= y in every slot, y at `scale`.
    ///
    /// # Errors
    /// [`Error::Value`].
    fn multiply_constant(
        &mut self,
        x: &mut Self::Ciphertext,
        y: f64,
        scale: f64,
    ) -> Result<(), Error>;

    /// x · y, relinearised.
    ///
    /// # Errors
    /// [`Error::Level`].
    fn multiply(
        &mut self,
        x: &Self::Ciphertext,
        y: &Self::Ciphertext,
    ) -> Result<Self::Ciphertext, Error>;

    /// x · x, relinearised.
    ///
    /// # Errors
    /// [`Error::Level`].
    fn square(&mut self, x: &Self::Ciphertext) -> Result<Self::Ciphertext, Error>;

    /// x · y, relinearised and rescaled: the same as one after the other, but for the noise of one
    /// rounding.
    ///
    /// # Errors
    /// [`Error::Level`], [`Error::Exhausted`].
    fn multiply_rescale(
        &mut self,
        x: &Self::Ciphertext,
        y: &Self::Ciphertext,
    ) -> Result<Self::Ciphertext, Error> {
        let mut product = self.multiply(x, y)?;
        self.rescale(&mut product)?;
        Ok(product)
    }

    /// x · x, relinearised and rescaled, as [`multiply_rescale`](Self::multiply_rescale).
    ///
    /// # Errors
    /// [`Error::Exhausted`].
    fn square_rescale(&mut self, x: &Self::Ciphertext) -> Result<Self::Ciphertext, Error> {
        let mut square = self.square(x)?;
        self.rescale(&mut square)?;
        Ok(square)
    }

    /// Divides by the level's prime; the scale goes down by as much, the level by one.
    ///
    /// # Errors
    /// [`Error::Exhausted`] at level 0.
    fn rescale(&mut self, x: &mut Self::Ciphertext) -> Result<(), Error>;

    /// Takes limbs off until `level`, the scale staying.
    ///
    /// # Errors
    /// [`Error::Level`] for a level above the ciphertext's, [`Error::Scale`] for one that does not hold
    /// the scale.
    fn drop_to(&mut self, x: &mut Self::Ciphertext, level: usize) -> Result<(), Error>;

    /// A copy of `x` without the limbs above `level`, as [`drop_to`](Self::drop_to) leaves it.
    ///
    /// # Errors
    /// As [`drop_to`](Self::drop_to).
    fn lowered(&mut self, x: &Self::Ciphertext, level: usize) -> Result<Self::Ciphertext, Error> {
        let mut out = x.clone();
        self.drop_to(&mut out, level)?;
        Ok(out)
    }

    /// `x` rotated to the left.
    ///
    /// # Errors
    /// [`Error::MissingRotation`].
    fn rotate(&mut self, x: &Self::Ciphertext, steps: usize) -> Result<Self::Ciphertext, Error>;

    /// `x` rotated by each of `steps`, its digits cut once.
    ///
    /// # Errors
    /// [`Error::MissingRotation`].
    fn rotate_many(
        &mut self,
        x: &Self::Ciphertext,
        steps: &[usize],
    ) -> Result<Vec<Self::Ciphertext>, Error>;

    /// Σ maps[i](xs[i]), the maps all of one split, level and scale: giant steps and their division by
    /// P are paid for once, however many ciphertexts there are.
    ///
    /// # Errors
    /// [`Error::Level`], [`Error::Scale`], [`Error::MissingRotation`].
    fn transform(
        &mut self,
        maps: &[&Self::Transform],
        xs: &[&Self::Ciphertext],
    ) -> Result<Self::Ciphertext, Error>;

    /// The slots' complex conjugates. Vectors are real but where a map's diagonals are not.
    ///
    /// # Errors
    /// [`Error::MissingKey`].
    fn conjugate(&mut self, x: &Self::Ciphertext) -> Result<Self::Ciphertext, Error>;

    /// x *= `factor`, by its scale: nothing is computed, the scale is divided by the factor.
    ///
    /// # Errors
    /// [`Error::Scale`] for a factor that is not positive, or a scale that the level does not hold.
    fn weigh(&mut self, x: &mut Self::Ciphertext, factor: f64) -> Result<(), Error>;

    /// Raises the modulus from q_0 to that of `level`: every coefficient of the polynomial that x's
    /// slots are the values of gets a multiple of q_0 added, of at most 16 times, which a reduction modulo
    /// q_0 takes off again. `range` is the largest coefficient that the circuit is made for, in units of
    /// the slots' numbers; only who computes on numbers can hold x to it.
    ///
    /// In the clear the multiples are 0.
    ///
    /// # Errors
    /// [`Error::Level`] for a ciphertext above level 0 or a level that there is not,
    /// [`Error::MissingKey`], [`Error::Value`] for a coefficient beyond the range.
    fn raise(
        &mut self,
        x: &Self::Ciphertext,
        level: usize,
        range: f64,
    ) -> Result<Self::Ciphertext, Error>;

    /// As [`transform`](Self::transform), rescaled.
    ///
    /// # Errors
    /// As [`transform`](Self::transform); [`Error::Exhausted`].
    fn transform_rescale(
        &mut self,
        maps: &[&Self::Transform],
        xs: &[&Self::Ciphertext],
    ) -> Result<Self::Ciphertext, Error> {
        let mut image = self.transform(maps, xs)?;
        self.rescale(&mut image)?;
        Ok(image)
    }

    /// Takes a ciphertext that nobody needs any more, to write another over it.
    fn recycle(&mut self, x: Self::Ciphertext) {
        drop(x);
    }

    /// The sum of `x` rotated by 0, `step`, 2 `step`, ..., (`count` − 1) `step`, for a power of two
    /// `count`: log2 `count` rotations, by `step` · 2^i.
    ///
    /// # Errors
    /// [`Error::MissingRotation`].
    fn fold(&mut self, x: &mut Self::Ciphertext, step: usize, count: usize) -> Result<(), Error> {
        assert!(count.is_power_of_two(), "a fold doubles");
        let slots = self.parameters().slots();
        for doubling in 0..count.trailing_zeros() {
            let rotated = self.rotate(x, (step << doubling) % slots)?;
            self.add_assign(x, &rotated)?;
        }
        Ok(())
    }
}
