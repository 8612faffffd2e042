//! The methods of `PrivateLookup`: which table or model a request is for, and of which version.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use hushtable_table::Version;
use tonic::{Request, Response, Status};

use super::PairRefusal;
use super::bags::{Bags, LayoutStream};
use super::held::Held;
use super::inferences::Inferences;
use super::loader::Loader;
use super::rows::Rows;
use crate::host::admission::Admission;
use crate::host::budget::Reservation;
use crate::host::door::Service;
use crate::host::scheme::Loading;
use crate::host::{Next, Reloaded};
use crate::peer::values::version_from_wire;
use crate::schemes::versions::examine;
use crate::trace::note_version;
use crate::wire::private_lookup_server::PrivateLookup;
use crate::wire::{AnswerBagsReply, AnswerBagsRequest, AnswerReply, AnswerRequest};
use crate::wire::{AnswerModelReply, AnswerModelRequest, CatalogReply, CatalogRequest};
use crate::wire::{LayoutRequest, TableInfoReply, TableInfoRequest};
use crate::{Error, Refusal};

pub(crate) struct LookupService {
    held: RwLock<Arc<Held>>,
    loader: Loader,
    admission: Admission,
}

impl LookupService {
    pub fn new(held: Held, loader: Loader, admission: Admission) -> Arc<Self> {
        Arc::new(Self { held: RwLock::new(Arc::new(held)), loader, admission })
    }

    /// What is held now: a request goes by it to its end, whatever comes meanwhile.
    pub fn held(&self) -> Arc<Held> {
        Arc::clone(&self.held.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn hold(&self, held: Held) {
        held.count(self.loader.metrics());
        let held = Arc::new(held);
        let mut place = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, held);
        // What is dropped is dropped where nobody waits for the lock.
        drop(place);
        drop(before);
    }

    /// The table that is asked. A server of one says which it holds, where another is asked for.
    fn rows(&self, held: &Held, version: &[u8]) -> Result<Arc<Rows>, Refusal> {
        self.admission.check_open()?;
        let found = parse(version)?;
        let rows = held.find_rows(found).cloned().ok_or_else(|| held.unknown(found))?;
        note_version(rows.version());
        Ok(rows)
    }

    /// The layout that is asked: the only one where the request names none and may.
    fn bags(&self, held: &Held, version: &[u8], may_be_empty: bool) -> Result<Arc<Bags>, Refusal> {
        self.admission.check_open()?;
        let (bags, tables) = (&held.newest().bags, held.newest().rows.len());
        if version.is_empty() && may_be_empty {
            return match bags.as_slice() {
                [] if tables == 1 => Err(PairRefusal::NoLayout.into()),
                [only] => Ok(Arc::clone(only)),
                _ => Err(Refusal::UnknownTable { found: None, tables }),
            };
        }
        let found = parse(version);
        if let Some(bags) = found.as_ref().ok().and_then(|&found| held.find_bags(found)) {
            note_version(bags.version());
            return Ok(Arc::clone(bags));
        }
        if let ([], 1) = (bags.as_slice(), tables) {
            return Err(PairRefusal::NoLayout.into());
        }
        let found = found?;
        Err(match bags.as_slice() {
            [only] if tables == 1 => {
                PairRefusal::LayoutSkew { expected: only.version(), found }.into()
            }
            _ => Refusal::UnknownTable { found: Some(found), tables },
        })
    }

    fn model(&self, held: &Held, version: &[u8]) -> Result<Arc<Inferences>, Refusal> {
        self.admission.check_open()?;
        let found = parse(version)?;
        let model = held.find_model(found).cloned().ok_or(Refusal::UnknownModel { found })?;
        note_version(model.version());
        Ok(model)
    }
}

fn parse(version: &[u8]) -> Result<Version, Refusal> {
    let bytes = version.len();
    version_from_wire(version).map_err(|_| Refusal::BadVersion { bytes })
}

impl Service for LookupService {
    fn admission(&self) -> &Admission {
        &self.admission
    }

    fn reload(&self, next: &Next, loading: &Loading) -> Result<Reloaded, Error> {
        let held = self.held();
        let Some(next) = self.loader.next(next, &held, loading)? else {
            return Ok(Reloaded::Unchanged);
        };
        self.hold(held.followed_by(next));
        Ok(Reloaded::Taken)
    }

    fn examine(&self, folder: &Path) -> Result<(), Error> {
        examine(folder)
    }

    fn retire(&self) {
        let held = self.held();
        if let Some(stays) = held.retired(self.loader.keep(), Instant::now()) {
            tracing::info!(
                dropped = held.generations() - stays.generations(),
                "dropped versions that nobody asks for any more"
            );
            drop(held);
            self.hold(stays);
        }
    }
}

/// What a handler made of a request.
fn replied<T>(answered: Result<T, Refusal>) -> Result<Response<T>, Status> {
    answered.map(Response::new).map_err(|refusal| refusal.to_status())
}

#[tonic::async_trait]
impl PrivateLookup for LookupService {
    type LayoutStream = LayoutStream;

    async fn table_info(
        &self,
        request: Request<TableInfoRequest>,
    ) -> Result<Response<TableInfoReply>, Status> {
        let version = &request.get_ref().table_version;
        let version = (!version.is_empty()).then(|| parse(version)).transpose();
        replied(version.and_then(|version| self.held().info(version).cloned()))
    }

    async fn catalog(
        &self,
        _request: Request<CatalogRequest>,
    ) -> Result<Response<CatalogReply>, Status> {
        Ok(Response::new(self.held().catalog().clone()))
    }

    async fn answer_model(
        &self,
        mut request: Request<AnswerModelRequest>,
    ) -> Result<Response<AnswerModelReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let request = request.into_inner();
        let held = self.held();
        let answered = match self.model(&held, &request.model_version) {
            Ok(model) => model.answer(request, reservation.as_deref(), &self.admission).await,
            Err(refusal) => Err(refusal),
        };
        let state = Some(held.state());
        replied(answered.map(|reply| AnswerModelReply { state, ..reply }))
    }

    async fn answer(
        &self,
        mut request: Request<AnswerRequest>,
    ) -> Result<Response<AnswerReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let request = request.into_inner();
        let held = self.held();
        let answered = match self.rows(&held, &request.table_version) {
            Ok(rows) => rows.answer(request, reservation.as_deref(), &self.admission).await,
            Err(refusal) => Err(refusal),
        };
        let state = Some(held.state());
        replied(answered.map(|reply| AnswerReply { state, ..reply }))
    }

    async fn layout(
        &self,
        mut request: Request<LayoutRequest>,
    ) -> Result<Response<LayoutStream>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let bags = self.bags(&self.held(), &request.get_ref().layout_version, true);
        replied(bags.and_then(|bags| bags.layout(reservation.as_deref(), &self.admission)))
    }

    async fn answer_bags(
        &self,
        mut request: Request<AnswerBagsRequest>,
    ) -> Result<Response<AnswerBagsReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let request = request.into_inner();
        let held = self.held();
        let answered = match self.bags(&held, &request.layout_version, false) {
            Ok(bags) => bags.answer(request, reservation.as_deref(), &self.admission).await,
            Err(refusal) => Err(refusal),
        };
        let state = Some(held.state());
        replied(answered.map(|reply| AnswerBagsReply { state, ..reply }))
    }
}
