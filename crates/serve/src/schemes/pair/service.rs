//! The methods of `PrivateLookup`.

use std::sync::Arc;

use bytes::Bytes;
use hushtable_pir::dpf::{self, Key};
use tonic::{Request, Response, Status};

use super::bags::{Bags, LayoutStream};
use crate::batch::{Answered, Scheduler};
use crate::host::admission::Admission;
use crate::host::budget::Reservation;
use crate::host::door::Service;
use crate::peer::values::version_from_wire;
use crate::wire::private_lookup_server::PrivateLookup;
use crate::wire::{AnswerBagsReply, AnswerBagsRequest, AnswerReply, AnswerRequest};
use crate::wire::{AnswerModelReply, AnswerModelRequest, CatalogReply, CatalogRequest};
use crate::wire::{LayoutRequest, TableInfoReply, TableInfoRequest};
use crate::{KeyDefect, Limit, Refusal, TableInfo};

pub(crate) struct LookupService {
    server: dpf::Server,
    info: TableInfo,
    info_reply: TableInfoReply,
    version: Bytes,
    scheduler: Scheduler<dpf::Server>,
    bags: Option<Bags>,
    admission: Admission,
}

impl LookupService {
    pub fn new(
        server: dpf::Server,
        info: TableInfo,
        scheduler: Scheduler<dpf::Server>,
        bags: Option<Bags>,
    ) -> Arc<Self> {
        let version = Bytes::copy_from_slice(server.version().as_bytes());
        let info_reply = TableInfoReply::from(&info);
        let admission = Admission::new(info.window);
        Arc::new(Self { server, info, info_reply, version, scheduler, bags, admission })
    }

    /// What answers bags, unless the server is about to stop or its table has no layout.
    fn bags(&self) -> Result<&Bags, Refusal> {
        self.admission.check_open()?;
        self.bags.as_ref().ok_or(Refusal::NoLayout)
    }

    fn accept(&self, request: &AnswerRequest) -> Result<Vec<Key>, Refusal> {
        self.admission.check_open()?;
        let found = version_from_wire(&request.table_version)
            .map_err(|_| Refusal::BadVersion { bytes: request.table_version.len() })?;
        let expected = self.server.version();
        if found != expected {
            return Err(Refusal::VersionSkew { expected, found });
        }
        let (keys, keys_max) = (request.keys.len(), self.info.keys_per_request_max);
        if keys == 0 {
            return Err(Refusal::NoKeys);
        }
        if keys > keys_max {
            return Err(Refusal::TooManyKeys { keys, keys_max });
        }
        request.keys.iter().enumerate().map(|(i, bytes)| self.accept_key(i, bytes)).collect()
    }

    fn accept_key(&self, key_index: usize, bytes: &[u8]) -> Result<Key, Refusal> {
        let key = self.server.accept(bytes).map_err(|error| Refusal::of_key(key_index, &error))?;
        let params = key.params();
        let group = params.domain.group();
        if !self.info.groups.contains(&group) {
            let accepted: Vec<_> = self.info.groups.iter().map(|group| group.name()).collect();
            let accepted = accepted.join(", ");
            let message =
                format!("this server takes keys of group {accepted}, not {}", group.name());
            return Err(Refusal::BadKey { key_index, defect: KeyDefect::Group, message });
        }
        if !self.info.prgs.contains(&params.prg) {
            let accepted: Vec<_> = self.info.prgs.iter().map(|prg| prg.name()).collect();
            let message = format!("this server takes {}, not {}", accepted.join(", "), params.prg);
            return Err(Refusal::BadKey { key_index, defect: KeyDefect::Prg, message });
        }
        Ok(key)
    }

    async fn answer_keys(
        &self,
        request: AnswerRequest,
        reservation: Option<&Reservation>,
    ) -> Result<AnswerReply, Refusal> {
        let keys = self.accept(&request)?;
        // The wire's bytes are not needed any more; the parsed keys are counted in their place.
        drop(request);
        self.admission.hold(reservation, keys.len() * self.info.shape.row_bytes())?;
        let Answered { answers, queued, answering } = self
            .scheduler
            .answer(keys)
            .await
            .map_err(|error| Refusal::of_unanswered(error, Limit::QueueKeys))?;
        Ok(AnswerReply {
            table_version: self.version.clone(),
            answers: answers.into(),
            queue_us: Some(queued.as_micros() as u64),
            answer_us: Some(answering.as_micros() as u64),
        })
    }
}

impl Service for LookupService {
    fn admission(&self) -> &Admission {
        &self.admission
    }
}

#[tonic::async_trait]
impl PrivateLookup for LookupService {
    type LayoutStream = LayoutStream;

    async fn table_info(
        &self,
        _request: Request<TableInfoRequest>,
    ) -> Result<Response<TableInfoReply>, Status> {
        Ok(Response::new(self.info_reply.clone()))
    }

    async fn catalog(
        &self,
        _request: Request<CatalogRequest>,
    ) -> Result<Response<CatalogReply>, Status> {
        let tables = vec![self.info_reply.clone()];
        Ok(Response::new(CatalogReply { tables, models: Vec::new() }))
    }

    async fn answer_model(
        &self,
        _request: Request<AnswerModelRequest>,
    ) -> Result<Response<AnswerModelReply>, Status> {
        Err(Status::unimplemented("this server holds no model"))
    }

    async fn answer(
        &self,
        mut request: Request<AnswerRequest>,
    ) -> Result<Response<AnswerReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        match self.answer_keys(request.into_inner(), reservation.as_deref()).await {
            Ok(reply) => Ok(Response::new(reply)),
            Err(refusal) => Err(refusal.to_status()),
        }
    }

    async fn layout(
        &self,
        mut request: Request<LayoutRequest>,
    ) -> Result<Response<LayoutStream>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        self.bags()
            .and_then(|bags| bags.layout(reservation.as_deref(), &self.admission))
            .map(Response::new)
            .map_err(|refusal| refusal.to_status())
    }

    async fn answer_bags(
        &self,
        mut request: Request<AnswerBagsRequest>,
    ) -> Result<Response<AnswerBagsReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let answered = match self.bags() {
            Ok(bags) => {
                bags.answer(request.into_inner(), reservation.as_deref(), &self.admission).await
            }
            Err(refusal) => Err(refusal),
        };
        answered.map(Response::new).map_err(|refusal| refusal.to_status())
    }
}
