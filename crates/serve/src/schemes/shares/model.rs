//! A bundle's model as left or right computes it, and the tables that its lookups read.

use std::path::Path;
use std::sync::Arc;

use hushtable_infer::dlrm::Weights;
use hushtable_infer::shares::session::{LOOKUP_PRG, Terms};
use hushtable_infer::shares::{DealtBy, Half, Network, SCHEME, SharesPlan};
use hushtable_pir::dpf::{Group, Key, Server as Tables, Side};
use hushtable_pir::{CpuEngine, EngineSpec, TableShape, Threads};
use hushtable_table::model::Model;

use super::SharesInfo;
use crate::Error;
use crate::endpoint::SOFTWARE;
use crate::schemes::plans::choose;

/// One server's model.
pub(super) struct SharedModel {
    pub info: SharesInfo,
    pub network: Arc<Network>,
    /// One a feature.
    tables: Vec<Tables>,
}

pub(super) fn half_of(side: Side) -> Half {
    match side {
        Side::Left => Half::Left,
        Side::Right => Half::Right,
    }
}

pub(super) fn side_of(half: Half) -> Side {
    match half {
        Half::Left => Side::Left,
        Half::Right => Side::Right,
    }
}

impl SharedModel {
    /// Opens the model at `path` and the plan of that name, or its only one for shares.
    pub fn open(
        path: &Path,
        plan: Option<&str>,
        side: Side,
        dealer: DealtBy,
        threads: &Threads,
    ) -> Result<Self, Error> {
        let broken = |source| Error::Model { path: path.to_owned(), source: Box::new(source) };
        let model = Model::open(path).map_err(broken)?;
        let compiled = choose(path, &model, plan, SCHEME)?;
        let plan = SharesPlan::parse(&compiled.json)?;
        let dlrm = plan.dlrm()?;
        let weights = Weights::from_bundle(&dlrm, &model)?;
        let network = plan.network(&weights)?;
        let version = model.manifest().version();
        let tables = network.tables().iter().map(|table| {
            let shape = TableShape::new(table.rows() as u64, table.row_bytes())?;
            let spec = EngineSpec { shared: Some(threads.clone()), ..EngineSpec::default() };
            let engine = CpuEngine::from_rows(shape, &table.bytes, &spec)?;
            Ok(Tables::new(side, version, Arc::new(engine)))
        });
        let tables = tables.collect::<Result<Vec<_>, hushtable_pir::Error>>()?;
        let info = SharesInfo::new(
            model.manifest().name().to_owned(),
            version,
            compiled.version,
            half_of(side),
            Terms { dlrm, dealer, outline: network.outline().clone() },
            SOFTWARE.into(),
        );
        Ok(Self { info, network: Arc::new(network), tables })
    }

    /// Reads an inference's lookup keys: feature after feature.
    ///
    /// # Errors
    /// What is wrong with one, in words.
    pub fn accept<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Vec<Key>>, String> {
        let (expected, found) = (self.info.key_count(), keys.len());
        if expected != found {
            return Err(format!("{found} lookup keys, where the model looks up {expected} rows"));
        }
        let mut rest = keys;
        let of_feature = |(table, lookup): (&Tables, usize)| {
            let (own, after) = rest.split_at(lookup);
            rest = after;
            own.iter().map(|key| accept_key(table, key.as_ref())).collect()
        };
        let rows = self.info.outline.lookups.iter().map(|it| it.rows);
        self.tables.iter().zip(rows).map(of_feature).collect()
    }

    /// This server's XOR shares of each inference's rows, feature after feature. A table is passed once for all.
    ///
    /// # Errors
    /// As [`Backend::answer`](hushtable_pir::Backend::answer).
    pub fn look_up(
        &self,
        asked: &mut [Vec<Vec<Key>>],
    ) -> Result<Vec<Vec<u8>>, hushtable_pir::Error> {
        let bytes = self.info.outline.looked_bits() / 8;
        let mut rows: Vec<Vec<u8>> = asked.iter().map(|_| Vec::with_capacity(bytes)).collect();
        for (feature, table) in self.tables.iter().enumerate() {
            let counts: Vec<usize> = asked.iter().map(|keys| keys[feature].len()).collect();
            let keys: Vec<Key> =
                asked.iter_mut().flat_map(|keys| std::mem::take(&mut keys[feature])).collect();
            let row_bytes = table.backend().shape().row_bytes();
            let mut answers = vec![0; keys.len() * row_bytes];
            table.answer(&keys, &mut answers)?;
            let mut rest = &answers[..];
            for (rows, count) in rows.iter_mut().zip(counts) {
                let (own, after) = rest.split_at(count * row_bytes);
                rows.extend(own);
                rest = after;
            }
            zeroize::Zeroize::zeroize(&mut answers);
        }
        Ok(rows)
    }
}

/// A key for a table's rows. Those of another group or generator than clients use take many times the work, and a pass of
/// their own.
fn accept_key(table: &Tables, bytes: &[u8]) -> Result<Key, String> {
    let key = table.accept(bytes).map_err(|error| error.to_string())?;
    let (group, prg) = (key.params().domain.group(), key.params().prg);
    match (group, prg) == (Group::Bits, LOOKUP_PRG) {
        true => Ok(key),
        false => Err(format!(
            "a lookup key of group {} by {prg}: this server takes group {} by {LOOKUP_PRG}",
            group.name(),
            Group::Bits.name()
        )),
    }
}
