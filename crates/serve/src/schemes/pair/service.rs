//! The methods of `PrivateLookup`: which table or model a request is for.

use std::sync::Arc;

use hushtable_table::Version;
use tonic::{Request, Response, Status};

use super::bags::{Bags, LayoutStream};
use super::inferences::Inferences;
use super::rows::Rows;
use crate::Refusal;
use crate::host::admission::Admission;
use crate::host::budget::Reservation;
use crate::host::door::Service;
use crate::peer::values::version_from_wire;
use crate::wire::private_lookup_server::PrivateLookup;
use crate::wire::{AnswerBagsReply, AnswerBagsRequest, AnswerReply, AnswerRequest};
use crate::wire::{AnswerModelReply, AnswerModelRequest, CatalogReply, CatalogRequest};
use crate::wire::{LayoutRequest, TableInfoReply, TableInfoRequest};

/// What a server holds, each once.
#[derive(Default)]
pub(crate) struct Holdings {
    /// Tables, by their versions.
    pub rows: Vec<Rows>,
    /// Layouts' bins, by the layouts' versions.
    pub bags: Vec<Bags>,
    /// Models.
    pub models: Vec<Inferences>,
    /// What is said of each table: a version that has several names or layouts is there several
    /// times.
    pub infos: Vec<TableInfoReply>,
}

pub(crate) struct LookupService {
    holdings: Holdings,
    catalog: CatalogReply,
    admission: Admission,
}

impl LookupService {
    pub fn new(holdings: Holdings, admission: Admission) -> Arc<Self> {
        let models = holdings.models.iter().map(|model| model.info().clone()).collect();
        let catalog = CatalogReply { tables: holdings.infos.clone(), models };
        Arc::new(Self { holdings, catalog, admission })
    }

    /// The table that is asked. A server of one says which it holds, where another is asked for.
    fn rows(&self, version: &[u8]) -> Result<&Rows, Refusal> {
        self.admission.check_open()?;
        let found = parse(version)?;
        let rows = &self.holdings.rows;
        rows.iter().find(|rows| rows.version() == found).ok_or_else(|| match rows.as_slice() {
            [only] => Refusal::VersionSkew { expected: only.version(), found },
            _ => Refusal::UnknownTable { found: Some(found), tables: rows.len() },
        })
    }

    /// The layout that is asked: the only one where the request names none and may.
    fn bags(&self, version: &[u8], may_be_empty: bool) -> Result<&Bags, Refusal> {
        self.admission.check_open()?;
        let (bags, tables) = (&self.holdings.bags, self.holdings.rows.len());
        if let ([], 1) = (bags.as_slice(), tables) {
            return Err(Refusal::NoLayout);
        }
        if version.is_empty() && may_be_empty {
            return match bags.as_slice() {
                [only] => Ok(only),
                _ => Err(Refusal::UnknownTable { found: None, tables }),
            };
        }
        let found = parse(version)?;
        bags.iter().find(|bags| bags.version() == found).ok_or_else(|| match bags.as_slice() {
            [only] if tables == 1 => Refusal::LayoutSkew { expected: only.version(), found },
            _ => Refusal::UnknownTable { found: Some(found), tables },
        })
    }

    fn model(&self, version: &[u8]) -> Result<&Inferences, Refusal> {
        self.admission.check_open()?;
        let found = parse(version)?;
        let model = self.holdings.models.iter().find(|model| model.version() == found);
        model.ok_or(Refusal::UnknownModel { found })
    }

    fn info(&self, version: &[u8]) -> Result<&TableInfoReply, Refusal> {
        let tables = self.holdings.rows.len();
        if version.is_empty() {
            return match (tables, self.holdings.infos.first()) {
                (1, Some(only)) => Ok(only),
                _ => Err(Refusal::UnknownTable { found: None, tables }),
            };
        }
        let found = parse(version)?;
        let info = self.holdings.infos.iter().find(|info| *info.version == *found.as_bytes());
        info.ok_or_else(|| match self.holdings.rows.as_slice() {
            [only] => Refusal::VersionSkew { expected: only.version(), found },
            _ => Refusal::UnknownTable { found: Some(found), tables },
        })
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
        replied(self.info(&request.get_ref().table_version).cloned())
    }

    async fn catalog(
        &self,
        _request: Request<CatalogRequest>,
    ) -> Result<Response<CatalogReply>, Status> {
        Ok(Response::new(self.catalog.clone()))
    }

    async fn answer_model(
        &self,
        mut request: Request<AnswerModelRequest>,
    ) -> Result<Response<AnswerModelReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let request = request.into_inner();
        replied(match self.model(&request.model_version) {
            Ok(model) => model.answer(request, reservation.as_deref(), &self.admission).await,
            Err(refusal) => Err(refusal),
        })
    }

    async fn answer(
        &self,
        mut request: Request<AnswerRequest>,
    ) -> Result<Response<AnswerReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let request = request.into_inner();
        replied(match self.rows(&request.table_version) {
            Ok(rows) => rows.answer(request, reservation.as_deref(), &self.admission).await,
            Err(refusal) => Err(refusal),
        })
    }

    async fn layout(
        &self,
        mut request: Request<LayoutRequest>,
    ) -> Result<Response<LayoutStream>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let bags = self.bags(&request.get_ref().layout_version, true);
        replied(bags.and_then(|bags| bags.layout(reservation.as_deref(), &self.admission)))
    }

    async fn answer_bags(
        &self,
        mut request: Request<AnswerBagsRequest>,
    ) -> Result<Response<AnswerBagsReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let request = request.into_inner();
        replied(match self.bags(&request.layout_version, false) {
            Ok(bags) => bags.answer(request, reservation.as_deref(), &self.admission).await,
            Err(refusal) => Err(refusal),
        })
    }
}
