//! A model's weights, by the names of facebook's DLRM.

use std::collections::BTreeMap;

use hushtable_table::model::{Model, Pooling};
use hushtable_table::{Table, decode_rows};
use safetensors::{Dtype, SafeTensors};

use super::error::Error;
use super::spec::{Activation, Dlrm, Shape};

/// The largest absolute value of a weight.
pub const WEIGHT_MAX: f64 = 1_048_576.0;
/// The most coefficients of a polynomial activation.
pub const COEFFICIENTS_MAX: usize = 64;

/// A named array of numbers.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "written out by callers")]
pub struct Tensor {
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Its numbers, the last index fastest.
    pub values: Vec<f32>,
}

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

/// One linear layer: matrix · x + bias.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Affine {
    /// Inputs.
    pub inputs: usize,
    /// Outputs.
    pub outputs: usize,
    /// `outputs` rows of `inputs` numbers.
    pub matrix: Vec<f64>,
    /// `outputs` numbers.
    pub bias: Vec<f64>,
}

impl Affine {
    /// The zero map.
    pub fn zero(inputs: usize, outputs: usize) -> Self {
        Self { inputs, outputs, matrix: vec![0.0; inputs * outputs], bias: vec![0.0; outputs] }
    }

    /// matrix · x + bias.
    pub fn apply(&self, x: &[f64]) -> Vec<f64> {
        let rows = self.matrix.chunks_exact(self.inputs.max(1));
        let product = |row: &[f64]| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
        self.bias.iter().zip(rows).map(|(bias, row)| bias + product(row)).collect()
    }

    /// One row of the matrix.
    pub fn row(&self, output: usize) -> &[f64] {
        &self.matrix[output * self.inputs..][..self.inputs]
    }
}

/// What one layer's activation brings along.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Trained {
    /// A polynomial's coefficients, the constant first; empty for other activations.
    pub coefficients: Vec<f64>,
    /// The r for which inputs were held inside [−r, r], if the training says so.
    pub range: Option<f64>,
}

/// The weights of a model, checked against its architecture.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Weights {
    /// The bottom perceptron's layers.
    pub bottom: Vec<Affine>,
    /// The top perceptron's layers.
    pub top: Vec<Affine>,
    /// What the bottom's activations bring along, layer by layer.
    pub bottom_trained: Vec<Trained>,
    /// What the top's activations bring along.
    pub top_trained: Vec<Trained>,
    /// By feature: the stored table's rows, `dim` numbers each.
    pub tables: Vec<Vec<f32>>,
}

impl Weights {
    /// Takes a model's weights from named tensors; others are left alone.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::TensorShape`], [`Error::TensorValue`].
    pub fn new(dlrm: &Dlrm, mut tensors: Tensors) -> Result<Self, Error> {
        let (dim, mut tables) = (dlrm.spec().dim, Vec::new());
        for (index, digits) in dlrm.digits().iter().enumerate() {
            let shape = [digits.slots(), dim];
            tables.push(take(&mut tensors, &format!("emb_l.{index}.weight"), &shape)?);
        }
        Self::with_tables(dlrm, tensors, tables)
    }

    /// As [`new`](Self::new), with the stored tables given.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_tables(
        dlrm: &Dlrm,
        mut tensors: Tensors,
        tables: Vec<Vec<f32>>,
    ) -> Result<Self, Error> {
        let activation = dlrm.spec().activation;
        let tensors = &mut tensors;
        let (bottom, bottom_trained) = layers(tensors, "bot", dlrm.bottom(), activation)?;
        let (top, top_trained) = layers(tensors, "top", dlrm.top(), activation)?;
        Ok(Self { bottom, top, bottom_trained, top_trained, tables })
    }

    /// Reads a safetensors file's bytes.
    ///
    /// # Errors
    /// [`Error::Safetensors`], [`Error::TensorType`]; as [`new`](Self::new).
    pub fn from_safetensors(dlrm: &Dlrm, bytes: &[u8]) -> Result<Self, Error> {
        Self::new(dlrm, read_safetensors(bytes)?)
    }

    /// Reads a model bundle: its tables are the embeddings, its dense part all else. A feature of the
    /// bundle has the description's name, or, where no name is the same, its place in the order.
    ///
    /// # Errors
    /// [`Error::Table`], [`Error::Io`], [`Error::TensorShape`] with the table's name, [`Error::Spec`] for a bag that is
    /// not summed; as
    /// [`from_safetensors`](Self::from_safetensors).
    pub fn from_bundle(dlrm: &Dlrm, model: &Model) -> Result<Self, Error> {
        let manifest = model.manifest();
        let features = &dlrm.spec().features;
        let order = order(dlrm, model)?;
        let mut tables = Vec::new();
        for ((feature, digits), own) in order.into_iter().zip(dlrm.digits()).zip(features) {
            if own.bag > 1 && manifest.features()[feature].pooling == Pooling::Mean {
                let (field, name) = ("features".to_owned(), &own.name);
                let why = format!(
                    "{name:?} has a bag, whose rows are summed, and the bundle's feature is pooled by mean: build the \
                     bundle with sums, and train with them"
                );
                return Err(Error::Spec { field, why });
            }
            let table = model.table(manifest.features()[feature].table)?;
            let expected = [digits.slots(), dlrm.spec().dim];
            tables.push(read_table(&table, &expected)?);
        }
        let tensors = match model.dense_path() {
            Some(path) => {
                let bytes = std::fs::read(&path)
                    .map_err(|source| Error::Io { path: path.display().to_string(), source })?;
                read_safetensors(&bytes)?
            }
            None => Tensors::new(),
        };
        Self::with_tables(dlrm, tensors, tables)
    }
}

/// Whether a bundle has the whole tables of all features, also of those that the threshold cuts into digits.
///
/// # Errors
/// [`Error::Count`] for a bundle of another count of features.
pub fn are_whole(dlrm: &Dlrm, model: &Model) -> Result<bool, Error> {
    let manifest = model.manifest();
    let mut own = order(dlrm, model)?.into_iter().zip(&dlrm.spec().features);
    Ok(own
        .all(|(at, own)| manifest.tables()[manifest.features()[at].table].shape.rows() == own.rows))
}

/// The bundle's feature of each of the description's: by their names, or in their order.
fn order(dlrm: &Dlrm, model: &Model) -> Result<Vec<usize>, Error> {
    let manifest = model.manifest();
    let features = &dlrm.spec().features;
    let named = features.iter().map(|feature| manifest.feature(&feature.name));
    let named: Option<Vec<usize>> = named.collect();
    match named {
        Some(order) => Ok(order),
        None if manifest.features().len() == features.len() => Ok((0..features.len()).collect()),
        None => {
            let (expected, found) = (features.len(), manifest.features().len());
            Err(Error::Count { what: "features in the bundle", expected, found })
        }
    }
}

/// All tensors of floats of a safetensors file.
///
/// # Errors
/// [`Error::Safetensors`], [`Error::TensorType`].
pub fn read_safetensors(bytes: &[u8]) -> Result<Tensors, Error> {
    let file = SafeTensors::deserialize(bytes)?;
    let mut tensors = Tensors::new();
    for (name, view) in file.iter() {
        let data = view.data();
        let values = match view.dtype() {
            Dtype::F32 => numbers(data, f32::from_le_bytes),
            Dtype::F64 => numbers(data, |bytes| f64::from_le_bytes(bytes) as f32),
            Dtype::F16 => numbers(data, |bytes| half::f16::from_le_bytes(bytes).to_f32()),
            Dtype::BF16 => numbers(data, |bytes| half::bf16::from_le_bytes(bytes).to_f32()),
            other => {
                let (name, found) = (name.to_owned(), format!("{other:?}"));
                return Err(Error::TensorType { name, found });
            }
        };
        tensors.insert(name.to_owned(), Tensor { shape: view.shape().to_vec(), values });
    }
    Ok(tensors)
}

fn numbers<const N: usize>(data: &[u8], read: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    data.as_chunks::<N>().0.iter().map(|&bytes| read(bytes)).collect()
}

fn read_table(table: &Table, expected: &[usize; 2]) -> Result<Vec<f32>, Error> {
    let name = table.name().to_owned();
    let found = vec![table.rows() as usize, table.dim()];
    if found != expected {
        return Err(Error::TensorShape { name, expected: expected.to_vec(), found });
    }
    let mut bytes = vec![0; table.row_bytes() * expected[0]];
    table.copy_rows(0, &mut bytes)?;
    let mut values = vec![0.0; expected[0] * expected[1]];
    decode_rows(table.dtype(), table.dim(), &bytes, &mut values)?;
    check_values(&name, &values)?;
    Ok(values)
}

fn check_values(name: &str, values: &[f32]) -> Result<(), Error> {
    let is_good = |value: &f32| f64::from(value.abs()) < WEIGHT_MAX;
    match values.iter().position(|value| !is_good(value)) {
        Some(index) => {
            let (name, value) = (name.to_owned(), f64::from(values[index]));
            Err(Error::TensorValue { name, index, value })
        }
        None => Ok(()),
    }
}

fn take(tensors: &mut Tensors, name: &str, expected: &[usize]) -> Result<Vec<f32>, Error> {
    let Some(tensor) = tensors.remove(name) else {
        return Err(Error::MissingTensor { name: name.to_owned(), expected: expected.to_vec() });
    };
    let count = tensor.shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
    if tensor.shape != expected || count != Some(tensor.values.len()) {
        let (name, found) = (name.to_owned(), tensor.shape);
        return Err(Error::TensorShape { name, expected: expected.to_vec(), found });
    }
    check_values(name, &tensor.values)?;
    Ok(tensor.values)
}

fn layers(
    tensors: &mut Tensors,
    part: &str,
    shapes: &[Shape],
    activation: Activation,
) -> Result<(Vec<Affine>, Vec<Trained>), Error> {
    let (mut layers, mut trained) = (Vec::new(), Vec::new());
    let widen = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<f64>>();
    for (index, &Shape { inputs, outputs, is_activated }) in shapes.iter().enumerate() {
        let name = |what: &str| format!("{part}_l.{}.{what}", 2 * index);
        let matrix = widen(take(tensors, &name("weight"), &[outputs, inputs])?);
        let bias = widen(take(tensors, &name("bias"), &[outputs])?);
        layers.push(Affine { inputs, outputs, matrix, bias });
        if is_activated {
            trained.push(take_trained(tensors, part, index, activation)?);
        }
    }
    Ok((layers, trained))
}

fn take_trained(
    tensors: &mut Tensors,
    part: &str,
    index: usize,
    activation: Activation,
) -> Result<Trained, Error> {
    let name = |what: &str| format!("{part}_a.{index}.{what}");
    let mut coefficients = Vec::new();
    if activation == Activation::Polynomial {
        let name = name("coefficients");
        let count = tensors.get(&name).map_or(3, |tensor| tensor.values.len());
        if !(2..=COEFFICIENTS_MAX).contains(&count) {
            return Err(Error::TensorShape { name, expected: vec![3], found: vec![count] });
        }
        let values = take(tensors, &name, &[count])?;
        coefficients = values.into_iter().map(f64::from).collect();
    }
    let name = name("range");
    let range = match tensors.contains_key(&name) {
        true => Some(f64::from(take(tensors, &name, &[1])?[0])),
        false => None,
    };
    if let Some(value) = range.filter(|&range| range <= 0.0) {
        return Err(Error::TensorValue { name, index: 0, value });
    }
    Ok(Trained { coefficients, range })
}
