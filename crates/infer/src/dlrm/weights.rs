//! A model's weights, by the names of facebook's DLRM.

use std::collections::BTreeMap;

use hushtable_rlwe::ckks::Approximation;
use hushtable_table::model::{Model, Pooling};
use hushtable_table::{Table, decode_rows, repeated_name};
use safetensors::{Dtype, SafeTensors};

use super::error::Error;
use super::spec::{Activation, Dlrm, DlrmSpec, FeatureSpec, Shape};

/// The largest absolute value of a weight.
pub const WEIGHT_MAX: f64 = 1_048_576.0;
/// The most coefficients of a polynomial activation.
pub const COEFFICIENTS_MAX: usize = 64;
/// Names that an error lists.
const LISTED_MAX: usize = 32;

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
    /// The polynomial that was trained with in ReLU's place, if one was.
    pub relu: Option<Approximation>,
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
    /// Takes a model's weights from named tensors, all of them.
    ///
    /// # Errors
    /// [`Error::MissingTensor`], [`Error::TensorShape`], [`Error::TensorValue`]; [`Error::Unread`] for tensors that the
    /// description has no place for.
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
        let (spec, tensors) = (dlrm.spec(), &mut tensors);
        let (bottom, bottom_trained) = layers(tensors, "bot", dlrm.bottom(), spec)?;
        let (top, top_trained) = layers(tensors, "top", dlrm.top(), spec)?;
        if !tensors.is_empty() {
            return Err(Error::Unread { what: "tensors", names: listed(tensors.keys()) });
        }
        Ok(Self { bottom, top, bottom_trained, top_trained, tables })
    }

    /// Reads a safetensors file's bytes.
    ///
    /// # Errors
    /// [`Error::Safetensors`], [`Error::TensorType`]; as [`new`](Self::new).
    pub fn from_safetensors(dlrm: &Dlrm, bytes: &[u8]) -> Result<Self, Error> {
        Self::new(dlrm, read_safetensors(bytes)?)
    }

    /// Reads a model bundle: its tables are the embeddings, its dense part all else. A feature reads the table that the
    /// description says, or that of the bundle's feature of its name; where a table stands says nothing.
    ///
    /// # Errors
    /// [`Error::NoTable`] for a feature without a table, [`Error::Unread`] for a table without a feature;
    /// [`Error::Table`], [`Error::Io`], [`Error::TensorShape`] with the table's name, [`Error::Spec`] for a bag that is
    /// not summed; as [`from_safetensors`](Self::from_safetensors).
    pub fn from_bundle(dlrm: &Dlrm, model: &Model) -> Result<Self, Error> {
        let features = &dlrm.spec().features;
        let chosen = chosen(dlrm, model)?;
        let mut tables = Vec::new();
        for ((Chosen { table, is_mean }, digits), own) in
            chosen.into_iter().zip(dlrm.digits()).zip(features)
        {
            if own.bag > 1 && is_mean {
                let (field, name) = ("features".to_owned(), &own.name);
                let why = format!(
                    "{name:?} has a bag, whose rows are summed, and the bundle's feature is pooled by mean: build the \
                     bundle with sums, and train with them"
                );
                return Err(Error::Spec { field, why });
            }
            let table = model.table(table)?;
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
/// [`Error::NoTable`], [`Error::Unread`].
pub fn are_whole(dlrm: &Dlrm, model: &Model) -> Result<bool, Error> {
    let tables = model.manifest().tables();
    let mut own = chosen(dlrm, model)?.into_iter().zip(&dlrm.spec().features);
    Ok(own.all(|(chosen, own)| tables[chosen.table].shape.rows() == own.rows))
}

/// What a feature reads of a bundle.
struct Chosen {
    /// The table's place in the manifest.
    table: usize,
    /// Whether whoever trained the model pooled its rows by their mean.
    is_mean: bool,
}

/// The bundle's table of each of the description's features, by name.
fn chosen(dlrm: &Dlrm, model: &Model) -> Result<Vec<Chosen>, Error> {
    let manifest = model.manifest();
    let (tables, features) = (manifest.tables(), manifest.features());
    let of_feature = |own: &FeatureSpec| match &own.table {
        None => manifest.feature(&own.name).map(|at| {
            let found = &features[at];
            Chosen { table: found.table, is_mean: found.pooling == Pooling::Mean }
        }),
        Some(name) => tables.iter().position(|table| table.name == *name).map(|table| {
            let mut readers = features.iter().filter(|feature| feature.table == table);
            Chosen { table, is_mean: readers.any(|reader| reader.pooling == Pooling::Mean) }
        }),
    };
    let named = dlrm.spec().features.iter().map(|own| {
        of_feature(own).ok_or_else(|| Error::NoTable {
            feature: own.name.clone(),
            table: own.table.clone().unwrap_or_else(|| own.name.clone()),
            features: listed(dlrm.spec().features.iter().map(|feature| &feature.name)),
            tables: listed(tables.iter().map(|table| &table.name)),
        })
    });
    let named = named.collect::<Result<Vec<_>, _>>()?;
    let is_read = |at: usize| named.iter().any(|chosen| chosen.table == at);
    let unread = tables.iter().enumerate().filter(|(at, _)| !is_read(*at)).map(|it| &it.1.name);
    match listed(unread) {
        names if names.is_empty() => Ok(named),
        names => Err(Error::Unread { what: "tables", names }),
    }
}

/// Names in a line, the first of many.
fn listed<'n>(names: impl Iterator<Item = &'n String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    let shown = names[..names.len().min(LISTED_MAX)].join(", ");
    match names.len().saturating_sub(LISTED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// All tensors of floats of a safetensors file.
///
/// # Errors
/// [`Error::Safetensors`], [`Error::RepeatedTensor`], [`Error::TensorType`].
pub fn read_safetensors(bytes: &[u8]) -> Result<Tensors, Error> {
    let file = SafeTensors::deserialize(bytes)?;
    let (header_bytes, _) = SafeTensors::read_metadata(bytes)?;
    let header = bytes.get(8..8 + header_bytes).unwrap_or_default();
    if let Some(name) = repeated_name(header) {
        return Err(Error::RepeatedTensor { name });
    }
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
    spec: &DlrmSpec,
) -> Result<(Vec<Affine>, Vec<Trained>), Error> {
    let (mut layers, mut trained) = (Vec::new(), Vec::new());
    let widen = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<f64>>();
    for (index, &Shape { inputs, outputs, is_activated }) in shapes.iter().enumerate() {
        let name = |what: &str| format!("{part}_l.{}.{what}", 2 * index);
        let matrix = widen(take(tensors, &name("weight"), &[outputs, inputs])?);
        let bias = widen(take(tensors, &name("bias"), &[outputs])?);
        layers.push(Affine { inputs, outputs, matrix, bias });
        if is_activated {
            trained.push(take_trained(tensors, part, index, spec)?);
        }
    }
    Ok((layers, trained))
}

fn take_trained(
    tensors: &mut Tensors,
    part: &str,
    index: usize,
    spec: &DlrmSpec,
) -> Result<Trained, Error> {
    let name = |what: &str| format!("{part}_a.{index}.{what}");
    let mut coefficients = Vec::new();
    if spec.activation == Activation::Polynomial {
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
    let relu = match (spec.relu_degree, range) {
        (None, _) => None,
        (Some(degree), Some(range)) => Some(Approximation::nearest_relu(degree, range)?),
        // The polynomial is one of its range.
        (Some(_), None) => return Err(Error::MissingTensor { name, expected: vec![1] }),
    };
    Ok(Trained { coefficients, range, relu })
}
