//! A model as the servers compute it: in whole numbers.

use super::Error;
use super::calibrate::{BOTTOM, LOGIT, PRODUCTS, Ranges};
use super::linear::{Linear, Sums};
use super::outline::{LookupOutline, Outline, StepOutline};
use crate::dlrm::spec::{Activation, Dlrm};
use crate::dlrm::weights::{Affine, Weights};

/// A compiled model.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    outline: Outline,
    /// What the servers do together, and the layer before each.
    pub(super) steps: Vec<(Layer, StepOutline)>,
    /// The last layer, to the logit.
    pub(super) last: Layer,
    pub(super) tables: Vec<QuantisedTable>,
}

/// Sums, and the ring that they go into.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layer {
    /// What it reads, one after the other.
    pub reads: Vec<Slot>,
    pub sums: Sums,
    /// Bits that its sums lose.
    pub cut: u32,
    /// Bits that are left.
    pub bits: u32,
}

/// What a layer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// The dense features.
    Dense,
    /// All rows' values, summed by feature.
    Rows,
    /// What a step gave.
    Outputs(usize),
}

/// A feature's table in whole numbers: what lookups read.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QuantisedTable {
    /// Values of a row.
    pub dim: usize,
    /// Bits of a value.
    pub value_bits: u32,
    /// What a value is to be multiplied with.
    pub scale: f64,
    /// The rows, each of `dim` little-endian values. Where a feature has a bag, one of zeros comes after them.
    pub bytes: Vec<u8>,
}

impl QuantisedTable {
    fn new(rows: &[f32], dim: usize, value_bits: u32, bag: usize) -> Self {
        let largest = rows.iter().fold(0_f64, |most, x| most.max(f64::from(*x).abs()));
        let steps = f64::from((1_u32 << (value_bits - 1)) - 1);
        let scale = if largest > 0.0 { largest / steps } else { 1.0 };
        let whole = rows.iter().map(|x| (f64::from(*x) / scale).round() as i32);
        let mut bytes: Vec<u8> = match value_bits {
            8 => whole.map(|x| x as i8 as u8).collect(),
            _ => whole.flat_map(|x| (x as i16).to_le_bytes()).collect(),
        };
        if bag > 1 {
            bytes.extend(std::iter::repeat_n(0, dim * value_bits as usize / 8));
        }
        Self { dim, value_bits, scale, bytes }
    }

    /// Rows that lookups read: those of the model's table, and one of zeros where the feature has a bag.
    pub fn rows(&self) -> usize {
        self.bytes.len() / self.row_bytes()
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.dim * self.value_bits as usize / 8
    }

    /// The bytes of row `row`.
    pub fn row(&self, row: usize) -> &[u8] {
        &self.bytes[row * self.row_bytes()..][..self.row_bytes()]
    }

    /// The values of a row's bytes.
    pub fn values(&self, row: &[u8]) -> Vec<i32> {
        match self.value_bits {
            8 => row.iter().map(|x| i32::from(*x as i8)).collect(),
            _ => row.as_chunks().0.iter().map(|x| i32::from(i16::from_le_bytes(*x))).collect(),
        }
    }
}

impl Network {
    /// Compiles a model of ReLU layers: `fraction_bits` after the point of activations, `value_bits` (8 or 16) of
    /// rows' values. Layers between which no activation stands become one.
    ///
    /// # Errors
    /// [`Error::Unsupported`]; [`Error::Range`] and [`Error::Uncalibrated`] name the layer.
    pub fn compile(
        dlrm: &Dlrm,
        weights: &Weights,
        ranges: &Ranges,
        fraction_bits: u32,
        value_bits: u32,
    ) -> Result<Self, Error> {
        let spec = dlrm.spec();
        check_numbers(dlrm, fraction_bits, value_bits)?;
        let tables: Vec<_> = weights
            .tables
            .iter()
            .zip(&spec.features)
            .map(|(rows, it)| QuantisedTable::new(rows, spec.dim, value_bits, it.bag))
            .collect();
        // Rows that are summed for each feature.
        let summed = dlrm.digits().iter().zip(&spec.features).map(|(it, own)| it.count() * own.bag);
        let summed: Vec<usize> = summed.collect();
        let mut compiler = Compiler { ranges, fraction_bits, steps: Vec::new() };
        let mut hidden = Slot::Dense;
        // What no activation follows goes into the layer after it.
        let mut before: Option<Affine> = None;
        for (index, (layer, shape)) in weights.bottom.iter().zip(dlrm.bottom()).enumerate() {
            let layer =
                before.take().map_or_else(|| layer.clone(), |before| composed(&before, layer));
            if shape.is_activated {
                hidden = compiler.relu(&format!("bottom {index}"), &layer, vec![hidden], &[])?;
            } else {
                before = Some(layer);
            }
        }
        let scales: Vec<f64> =
            tables.iter().flat_map(|table| std::iter::repeat_n(table.scale, table.dim)).collect();
        // What the first layer of the top reads: rows come last, with the scale of each value.
        let (mut reads, mut scales) = match dlrm.is_dot() {
            true => (compiler.dots(hidden, before.take(), &tables, &summed)?, Vec::new()),
            false => (vec![hidden, Slot::Rows], scales),
        };
        let mut last = None;
        for (index, (layer, shape)) in weights.top.iter().zip(dlrm.top()).enumerate() {
            let layer = match (index, before.take()) {
                (0, Some(before)) => beside_rows(&before, layer),
                (_, Some(before)) => composed(&before, layer),
                (_, None) => layer.clone(),
            };
            if shape.is_activated {
                let name = format!("top {index}");
                reads = vec![compiler.relu(&name, &layer, reads, &scales)?];
            } else {
                last = Some(compiler.layer(LOGIT, &layer, reads.clone(), &scales, 0)?);
            }
            scales.clear();
        }
        let missing = || Error::Count { what: "layers to a logit", expected: 1, found: 0 };
        let last = last.ok_or_else(missing)?;
        let dim = spec.dim;
        let lookups = summed.iter().map(|&rows| LookupOutline { rows, dim, value_bits });
        let steps = compiler.steps;
        let outline = Outline {
            fraction_bits,
            dense: spec.dense,
            lookups: lookups.collect(),
            rows_first: steps.first().is_none_or(|(layer, _)| layer.reads.contains(&Slot::Rows)),
            steps: steps.iter().map(|(_, step)| *step).collect(),
            logit_bits: last.bits,
        };
        Ok(Self { outline, steps, last, tables })
    }

    /// The sizes, which clients know.
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// The tables that lookups read.
    pub fn tables(&self) -> &[QuantisedTable] {
        &self.tables
    }

    /// Multiplications by weights of one inference.
    pub fn products(&self) -> usize {
        let layers = self.steps.iter().map(|(layer, _)| layer).chain([&self.last]);
        layers.map(|layer| layer.sums.products()).sum()
    }
}

struct Compiler<'a> {
    ranges: &'a Ranges,
    fraction_bits: u32,
    steps: Vec<(Layer, StepOutline)>,
}

impl Compiler<'_> {
    /// Bits before the point that values up to `range` take, and bits after it of the weights that make them, where
    /// `spare` bits are to be left.
    fn bits(&self, name: &str, range: f64, spare: u32) -> Result<(u32, u32), Error> {
        let whole = range.max(1.0).log2().ceil() as i64;
        let left = 31 - i64::from(self.fraction_bits + spare) - whole;
        match u32::try_from(left) {
            Ok(bits) if bits >= WEIGHT_BITS_MIN => Ok((whole as u32, bits.min(WEIGHT_BITS_MAX))),
            _ => Err(Error::Range {
                layer: name.into(),
                range,
                fraction_bits: self.fraction_bits,
                weight_bits: left,
                weight_bits_min: WEIGHT_BITS_MIN,
            }),
        }
    }

    /// The same of values that the calibration data reached, with room.
    fn bits_of(&self, name: &str, spare: u32) -> Result<(u32, u32), Error> {
        self.bits(name, HEADROOM * self.ranges.range(name)?, spare)
    }

    fn linear(&self, layer: &Affine, weight_bits: u32, scales: &[f64]) -> Linear {
        let numbers = layer.inputs - scales.len();
        let one = f64::from(1_u32 << weight_bits);
        // A row's value has no point: the layer's weight brings its scale, and the bits after the point.
        let fraction = f64::from(1_u32 << self.fraction_bits);
        let scale = |input: usize| match input.checked_sub(numbers) {
            None => one,
            Some(value) => one * fraction * scales[value],
        };
        let weights = layer.matrix.chunks_exact(layer.inputs).flat_map(|row| {
            row.iter().enumerate().map(|(input, weight)| (weight * scale(input)).round() as i32)
        });
        Linear {
            inputs: layer.inputs,
            outputs: layer.outputs,
            weights: weights.collect(),
            bias: layer.bias.iter().map(|bias| (bias * one * fraction).round() as i64).collect(),
        }
    }

    /// A layer whose sums have a sign, their bits before the point and those after it.
    fn layer(
        &self,
        name: &str,
        layer: &Affine,
        reads: Vec<Slot>,
        scales: &[f64],
        spare: u32,
    ) -> Result<Layer, Error> {
        let (whole, cut) = self.bits_of(name, spare)?;
        let sums = Sums::Linear(self.linear(layer, cut, scales));
        Ok(Layer { reads, sums, cut, bits: 1 + whole + self.fraction_bits })
    }

    fn push(&mut self, layer: Layer, step: StepOutline) -> Slot {
        self.steps.push((layer, step));
        Slot::Outputs(self.steps.len() - 1)
    }

    fn relu(
        &mut self,
        name: &str,
        layer: &Affine,
        reads: Vec<Slot>,
        scales: &[f64],
    ) -> Result<Slot, Error> {
        let count = layer.outputs;
        let layer = self.layer(name, layer, reads, scales, 0)?;
        let step = StepOutline::Relu { count, bits: layer.bits };
        Ok(self.push(layer, step))
    }

    /// The same without an activation, which takes a bit to spare.
    fn lift(&mut self, layer: Layer, count: usize) -> Slot {
        let bits = layer.bits + LIFT_BITS;
        self.push(Layer { bits, ..layer }, StepOutline::Lift { count, bits })
    }

    /// The dot products of all vectors: what the top reads. `sums` says how many rows a feature sums.
    fn dots(
        &mut self,
        hidden: Slot,
        before: Option<Affine>,
        tables: &[QuantisedTable],
        sums: &[usize],
    ) -> Result<Vec<Slot>, Error> {
        let bottom = match before {
            None => hidden,
            Some(last) => {
                let layer = self.layer(BOTTOM, &last, vec![hidden], &[], LIFT_BITS)?;
                self.lift(layer, last.outputs)
            }
        };
        // Every table has a scale of its own: products are of numbers with one.
        let steps = |table: &QuantisedTable| f64::from((1_u32 << (table.value_bits - 1)) - 1);
        let largest =
            tables.iter().zip(sums).map(|(table, &rows)| table.scale * steps(table) * rows as f64);
        let largest = hushtable_rlwe::largest(largest);
        let (_, cut) = self.bits("rows", largest, LIFT_BITS)?;
        // What a scale is rounded up by counts as often as there are steps and rows.
        let one = |cut: u32| 2_f64.powi((self.fraction_bits + cut) as i32);
        let rounded = tables.iter().zip(sums).map(|(table, &rows)| {
            (table.scale * one(cut)).round() / one(cut) * steps(table) * rows as f64
        });
        let (whole, cut) =
            self.bits("rows", hushtable_rlwe::largest(rounded.chain([largest])), LIFT_BITS)?;
        let one = one(cut);
        let scales: Vec<i32> = tables
            .iter()
            .flat_map(|table| std::iter::repeat_n((table.scale * one).round() as i32, table.dim))
            .collect();
        let values = scales.len();
        let bits = 1 + whole + self.fraction_bits;
        let rows = Layer { reads: vec![Slot::Rows], sums: Sums::Scaled(scales), cut, bits };
        let rows = self.lift(rows, values);
        let dim = tables.first().map_or(0, |table| table.dim);
        let vectors = 1 + tables.len();
        let both = Layer { reads: vec![bottom, rows], sums: Sums::Same, cut: 0, bits: 32 };
        let products = self.push(both, StepOutline::Products { vectors, dim });
        // A product has twice the bits after the point, which must leave room for those before it.
        let (whole, _) = self.bits_of(PRODUCTS, LIFT_BITS)?;
        if whole + 2 * self.fraction_bits > 30 {
            return Err(Error::Range {
                layer: PRODUCTS.into(),
                range: self.ranges.range(PRODUCTS)?,
                fraction_bits: self.fraction_bits,
                weight_bits: 30 - i64::from(whole + self.fraction_bits),
                weight_bits_min: self.fraction_bits,
            });
        }
        let bits = 1 + whole + self.fraction_bits;
        let cut = self.fraction_bits;
        let products = Layer { reads: vec![products], sums: Sums::Same, cut, bits };
        let products = self.lift(products, vectors * (vectors - 1) / 2);
        Ok(vec![bottom, products])
    }
}

/// That a model and its numbers are what shares have.
pub(super) fn check_numbers(dlrm: &Dlrm, fraction_bits: u32, value_bits: u32) -> Result<(), Error> {
    let spec = dlrm.spec();
    if spec.activation != Activation::Relu {
        let found = format!("{:?}", spec.activation).to_lowercase();
        return Err(Error::Unsupported { field: "activation", found, possible: "relu" });
    }
    if let Some(degree) = spec.relu_degree {
        // Shares compute ReLU itself, which is not what the model was trained with.
        let (found, possible) =
            (degree.to_string(), "none: a model that was trained with ReLU itself");
        return Err(Error::Unsupported { field: "relu_degree", found, possible });
    }
    if !matches!(value_bits, 8 | 16) {
        let found = value_bits.to_string();
        return Err(Error::Unsupported {
            field: "bits of a row's value",
            found,
            possible: "8 or 16",
        });
    }
    if !FRACTION_BITS.contains(&fraction_bits) {
        let (found, possible) = (fraction_bits.to_string(), "4 to 20");
        return Err(Error::Unsupported { field: "bits after the point", found, possible });
    }
    Ok(())
}

/// The second layer of the first.
fn composed(first: &Affine, second: &Affine) -> Affine {
    let mut whole = Affine::zero(first.inputs, second.outputs);
    for output in 0..second.outputs {
        let row = second.row(output);
        let to = &mut whole.matrix[output * first.inputs..][..first.inputs];
        for (middle, weight) in row.iter().enumerate() {
            to.iter_mut().zip(first.row(middle)).for_each(|(to, from)| *to += weight * from);
        }
        let bias = row.iter().zip(&first.bias).map(|(weight, bias)| weight * bias).sum::<f64>();
        whole.bias[output] = second.bias[output] + bias;
    }
    whole
}

/// The same where the second layer reads rows beside the first one's outputs.
fn beside_rows(first: &Affine, second: &Affine) -> Affine {
    let rows = second.inputs - first.outputs;
    let part = |columns: std::ops::Range<usize>| {
        let of_row = |output: usize| second.row(output)[columns.clone()].to_vec();
        (0..second.outputs).flat_map(of_row).collect::<Vec<_>>()
    };
    let mut own = Affine::zero(first.outputs, second.outputs);
    own.matrix = part(0..first.outputs);
    own.bias.clone_from(&second.bias);
    let own = composed(first, &own);
    let mut whole = Affine::zero(first.inputs + rows, second.outputs);
    let of_rows = part(first.outputs..second.inputs);
    for output in 0..second.outputs {
        let to = &mut whole.matrix[output * (first.inputs + rows)..][..first.inputs + rows];
        to[..first.inputs].copy_from_slice(own.row(output));
        to[first.inputs..].copy_from_slice(&of_rows[output * rows..][..rows]);
    }
    whole.bias = own.bias;
    whole
}

/// How large a layer's values may become beside the largest that the calibration data had.
const HEADROOM: f64 = 2.0;
/// What a lift takes to spare.
const LIFT_BITS: u32 = 1;
const WEIGHT_BITS_MIN: u32 = 8;
const WEIGHT_BITS_MAX: u32 = 16;
const FRACTION_BITS: std::ops::RangeInclusive<u32> = 4..=20;
