//! How a client comes to a session of a model: catalogs, manifest, tables, layouts.

use std::sync::Arc;

use hushtable_client::{Script, Tally, Verdict};
use hushtable_table::Version;
use hushtable_table::model::{ModelManifest, TableRef};

use super::announced::{
    BAG_ANSWER_BYTES_MAX, REQUEST_BYTES, REQUEST_BYTES_MAX, VERSIONS_MAX, newest_of_both, within,
};
use super::catalog::{AnnouncedCatalog, AnnouncedModel, ModelInfo};
use super::model::Session;
use super::pair::check_pin;
use super::table::{Bags, Matched, PairTable, other_call};
use super::{
    Call, CallFault, Failure, LayoutInfo, ModelFacts, ModelSpec, PairTerms, Place, Reply,
    ReplyDefect, Retrieval, Round, TableInfo,
};
use crate::dpf::{Domain, KeyParams, Side};

/// Fetches both catalogs, holds them against each other, and fetches the layouts.
pub(super) struct ModelOpening {
    spec: ModelSpec,
    known: Option<Arc<Session>>,
    has_asked: bool,
    model: Option<Matching>,
}

/// A model whose tables both servers hold; their layouts may still be to fetch.
struct Matching {
    infos: [ModelInfo; 2],
    tables: Vec<(Matched, Option<Bags>)>,
    /// The tables whose layouts are to fetch, the next one last.
    wanted: Vec<(usize, LayoutInfo)>,
    /// The tables whose layouts come now.
    coming: Vec<usize>,
}

impl ModelOpening {
    pub fn new(spec: ModelSpec, known: Option<Arc<Session>>) -> Self {
        Self { spec, known, has_asked: false, model: None }
    }
}

impl Script for ModelOpening {
    type Protocol = Retrieval;
    type Output = Session;

    fn next(&mut self, replies: Vec<Reply>, _: Tally) -> Result<Round<Session>, Failure> {
        if !std::mem::replace(&mut self.has_asked, true) {
            return Ok(Round::Ask(Place::PAIR.map(|place| (place, Call::Catalog)).into()));
        }
        let mut model = match self.model.take() {
            Some(mut model) => {
                model.take_layouts(replies, &self.spec)?;
                model
            }
            None => Matching::new(&catalogs_of(replies)?, &self.spec, self.known.as_deref())?,
        };
        let calls = model.ask_layouts();
        if calls.is_empty() {
            return model.into_session(&self.spec).map(Round::Done);
        }
        self.model = Some(model);
        Ok(Round::Ask(calls))
    }

    fn failed(&mut self, fault: &CallFault) -> Result<Verdict, Failure> {
        if let CallFault::Changed { found } = fault {
            check_pin(self.spec.version, found.map(Version::from))?;
        }
        Ok(Verdict::End)
    }

    // To hash a large layout and to note who carries whom takes seconds.
    fn computes(&self) -> bool {
        self.has_asked
    }
}

impl Matching {
    fn new(
        catalogs: &[AnnouncedCatalog; 2],
        spec: &ModelSpec,
        known: Option<&Session>,
    ) -> Result<Self, Failure> {
        let [left, right] = catalogs;
        let candidates =
            [candidates(Place::Left, left, spec)?, candidates(Place::Right, right, spec)?];
        let versions =
            candidates.each_ref().map(|all| all.iter().map(|it| it.0).collect::<Vec<_>>());
        let wanted = spec.version.or_else(|| newest_of_both(&versions[0], &versions[1]));
        let mut infos = Vec::with_capacity(2);
        for (place, candidates) in Place::PAIR.into_iter().zip(&candidates) {
            let reply = |defect| Failure::Reply { place, defect };
            let found = candidates.iter().find(|(version, _)| Some(*version) == wanted);
            // Where nothing is common, the newest of each say what there is instead.
            let Some((_, announced)) = found.or(candidates.first()) else {
                return Err(other_call(place));
            };
            let info = ModelInfo::check(announced).map_err(reply)?;
            check_pin(spec.version, Some(info.manifest.version()))?;
            infos.push(info);
        }
        let Ok(infos) = <[ModelInfo; 2]>::try_from(infos) else {
            return Err(other_call(Place::Left));
        };
        let versions = infos.each_ref().map(|info| info.manifest.version());
        if versions[0] != versions[1] {
            let model = infos[0].manifest.name().to_owned();
            return Err(Failure::ModelsDiffer { model, versions });
        }
        let known = known.map_or(&[][..], |session| &session.tables);
        let (mut tables, mut wanted) = (Vec::new(), Vec::new());
        let mut layouts_bytes = 0u64;
        for (index, table) in infos[0].manifest.tables().iter().enumerate() {
            let left = find(Place::Left, &catalogs[0], table)?;
            let right = find(Place::Right, &catalogs[1], table)?;
            let terms = PairTerms::check([&left, &right], spec.prg)?;
            let matched = Matched { infos: [left, right], terms };
            let bags = match matched.layout(spec.layout_bytes_max) {
                Ok(Bags::TooLarge { bytes, bytes_max }) => {
                    return Err(Failure::LayoutBytes { place: Place::Left, bytes, bytes_max });
                }
                Ok(bags) => Some(bags),
                Err(layout) if let Some(bags) = matched.known_among(known, layout) => {
                    layouts_bytes = layouts_bytes.saturating_add(layout.bytes);
                    Some(bags)
                }
                Err(layout) => {
                    layouts_bytes = layouts_bytes.saturating_add(layout.bytes);
                    wanted.push((index, layout));
                    None
                }
            };
            tables.push((matched, bags));
        }
        let bytes_max = spec.layout_bytes_max;
        if layouts_bytes > bytes_max {
            let (place, bytes) = (Place::Left, layouts_bytes);
            return Err(Failure::LayoutBytes { place, bytes, bytes_max });
        }
        wanted.reverse();
        Ok(Self { infos, tables, wanted, coming: Vec::new() })
    }

    /// The calls for the next few layouts.
    fn ask_layouts(&mut self) -> Vec<(Place, Call)> {
        let first = self.wanted.len().saturating_sub(LAYOUTS_AT_ONCE);
        let next: Vec<_> = self.wanted.drain(first..).collect();
        self.coming = next.iter().map(|&(index, _)| index).collect();
        let call =
            |layout: LayoutInfo| Call::Layout { version: layout.version, bytes: layout.bytes };
        next.into_iter().map(|(_, layout)| (Place::Left, call(layout))).collect()
    }

    fn take_layouts(&mut self, replies: Vec<Reply>, spec: &ModelSpec) -> Result<(), Failure> {
        for (index, reply) in std::mem::take(&mut self.coming).into_iter().zip(replies) {
            let Reply::Layout(bytes) = reply else { return Err(other_call(Place::Left)) };
            if let Some((matched, bags)) = self.tables.get_mut(index) {
                *bags = Some(matched.read_layout(&bytes, spec.prg)?);
            }
        }
        Ok(())
    }

    fn into_session(self, spec: &ModelSpec) -> Result<Session, Failure> {
        let [left, right] = self.infos;
        let mut terms = Vec::with_capacity(self.tables.len());
        let mut tables = Vec::with_capacity(self.tables.len());
        for (matched, bags) in self.tables {
            terms.push(matched.terms);
            let bags = bags.ok_or_else(|| other_call(Place::Left))?;
            tables.push(matched.into_table(bags, spec.prg)?);
        }
        let sizes = Sizes::of(&left.manifest, &tables, &terms, spec)?;
        for ((place, info), request_bytes) in
            Place::PAIR.into_iter().zip([&left, &right]).zip(sizes.request_bytes)
        {
            let overhead =
                REQUEST_BYTES + PART_OVERHEAD_BYTES * info.manifest.features().len() as u64;
            let room = request_bytes + overhead..=REQUEST_BYTES_MAX;
            within("request_bytes_max", info.request_bytes_max, room)
                .map_err(|defect| Failure::Reply { place, defect })?;
        }
        within("the model's answer_bytes", sizes.answer_bytes, 1..=BAG_ANSWER_BYTES_MAX)
            .map_err(|defect| Failure::Reply { place: Place::Left, defect })?;
        let Sizes { request_bytes, answer_bytes } = sizes;
        let infos = tables.iter().map(PairTable::info).collect();
        let facts =
            ModelFacts { manifest: left.manifest, tables: infos, request_bytes, answer_bytes };
        let keys = facts.manifest.features().iter().map(|feature| feature.max_ids).sum();
        Ok(Session { facts: Arc::new(facts), tables, keys })
    }
}

/// What every inference of a model takes.
struct Sizes {
    request_bytes: [u64; 2],
    answer_bytes: u64,
}

impl Sizes {
    fn of(
        manifest: &ModelManifest,
        tables: &[PairTable],
        terms: &[PairTerms],
        spec: &ModelSpec,
    ) -> Result<Self, Failure> {
        let mut sizes = Self { request_bytes: [0; 2], answer_bytes: 0 };
        for feature in manifest.features() {
            let (table, terms) = (&tables[feature.table], &terms[feature.table]);
            if let Ok(inference) = table.inference() {
                let geometry = inference.client.geometry();
                for (bytes, side) in sizes.request_bytes.iter_mut().zip(Side::BOTH) {
                    *bytes += geometry.request_bytes(side) as u64;
                }
                sizes.answer_bytes += geometry.answer_bytes() as u64;
                continue;
            }
            let shape = table.info.shape;
            let domain = Domain::new(shape.rows(), terms.group)?;
            for (bytes, side) in sizes.request_bytes.iter_mut().zip(Side::BOTH) {
                let key = KeyParams { side, domain, prg: spec.prg };
                *bytes += (key.key_bytes() * feature.max_ids) as u64;
            }
            sizes.answer_bytes += (shape.row_bytes() * feature.max_ids) as u64;
        }
        Ok(sizes)
    }
}

/// The versions of the model that is asked for, by its name or because there is no other; newest first.
fn candidates<'a>(
    place: Place,
    catalog: &'a AnnouncedCatalog,
    spec: &ModelSpec,
) -> Result<Vec<(Version, &'a AnnouncedModel)>, Failure> {
    let reply = |defect| Failure::Reply { place, defect };
    catalog.check().map_err(reply)?;
    let found = match (&spec.model, &catalog.models[..]) {
        (Some(name), models) => models.iter().find(|model| model.name == *name),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    let newest = found.ok_or_else(|| Failure::ModelUnserved {
        place,
        model: spec.model.clone(),
        models: catalog.models.iter().map(|model| model.name.clone()).collect(),
    })?;
    let older = catalog.older.iter().filter(|model| model.name == newest.name);
    let all = std::iter::once(newest).chain(older).take(VERSIONS_MAX as usize);
    all.map(|model| Ok((model.version().map_err(reply)?, model))).collect()
}

/// The announcement of one of the model's tables, which must be what the manifest says.
fn find(place: Place, catalog: &AnnouncedCatalog, table: &TableRef) -> Result<TableInfo, Failure> {
    let reply = |defect| Failure::Reply { place, defect };
    let is = |bytes: &[u8], version: Option<Version>| match version {
        Some(version) => bytes == version.as_bytes(),
        None => bytes.is_empty(),
    };
    // One table may be served by several layouts.
    let found = catalog.tables.iter().find(|announced| {
        is(&announced.version, Some(table.version)) && is(&announced.layout_version, table.layout)
    });
    let Some(announced) = found else {
        return Err(reply(ReplyDefect::ManifestTable { table: table.name.clone() }));
    };
    let info = TableInfo::check(announced.clone()).map_err(reply)?;
    let shape = table.shape;
    let is_the_manifests =
        info.shape.rows() == shape.rows() && info.dim == shape.dim() && info.dtype == shape.dtype();
    match is_the_manifests {
        true => Ok(info),
        false => Err(reply(ReplyDefect::ManifestTable { table: table.name.clone() })),
    }
}

fn catalogs_of(replies: Vec<Reply>) -> Result<[AnnouncedCatalog; 2], Failure> {
    match <[Reply; 2]>::try_from(replies) {
        Ok([Reply::Catalog(left), Reply::Catalog(right)]) => Ok([*left, *right]),
        Ok([Reply::Catalog(_), _]) => Err(other_call(Place::Right)),
        _ => Err(other_call(Place::Left)),
    }
}

/// Layouts that are fetched side by side.
const LAYOUTS_AT_ONCE: usize = 8;
/// What a part has around it in a request: a tag, and a length of at most five bytes.
const PART_OVERHEAD_BYTES: u64 = 6;
