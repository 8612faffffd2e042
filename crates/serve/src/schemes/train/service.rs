//! The methods of `FederatedTraining`.

use std::sync::Arc;
use std::time::Duration;

use hushtable_oram::rounds::RoundLimits;
use tokio::sync::watch;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::TrainRefusal;
use super::backup::Backups;
use super::host::Host;
use super::seats::Place;
use super::spec::Settings;
use crate::Refusal;
use crate::host::admission::Admission;
use crate::host::budget::Reservation;
use crate::host::door::{Service, Stopping};
use crate::wire::federated_training_server::FederatedTraining;
use crate::wire::{
    AbandonReply, AbandonRequest, BackupReply, BackupRequest, CloseRequestsReply,
    CloseRequestsRequest, FinishReply, FinishRequest, OpenRoundReply, OpenRoundRequest, RowsReply,
    RowsRequest, TrainInfoReply, TrainInfoRequest, UploadReply, UploadRequest, UserRequest,
    UserRequestReply,
};

pub(super) struct TrainService {
    host: Arc<Host>,
    settings: Settings,
    backups: Arc<Backups>,
    admission: Admission,
    /// What a call may hold beside its request's bytes.
    held_bytes: usize,
}

impl TrainService {
    pub fn new(host: Arc<Host>, settings: Settings) -> Arc<Self> {
        let shape = host.info().terms.shape();
        let held_bytes = shape.upload_bytes() + shape.reply_bytes();
        let admission = Admission::new(Duration::from_millis(10));
        let backups = Arc::new(Backups::new(settings.backup_dir.clone()));
        Arc::new(Self { host, settings, backups, admission, held_bytes })
    }

    /// Lets only the operator on, where one is known.
    fn check_operator(&self, metadata: &MetadataMap) -> Result<(), Refusal> {
        let Some(token) = &self.settings.operator_token else { return Ok(()) };
        let given = metadata.get("authorization").map(|value| value.as_encoded_bytes());
        let given = given.and_then(|value| value.strip_prefix(BEARER));
        match given.is_some_and(|given| token.matches(given)) {
            true => Ok(()),
            false => Err(TrainRefusal::OperatorOnly.into()),
        }
    }

    /// How long a call that asks for `wait_ms` may be held until the round gets there.
    fn wait(&self, wait_ms: Option<u32>) -> Duration {
        let asked = wait_ms.map_or(Duration::MAX, |wait_ms| Duration::from_millis(wait_ms.into()));
        self.settings.wait_max.min(asked)
    }

    /// Counts what a user's call holds until its answer has left.
    fn hold<T>(&self, request: &mut Request<T>) -> Result<Option<Arc<Reservation>>, Refusal> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        self.admission.hold(reservation.as_deref(), self.held_bytes)?;
        Ok(reservation)
    }
}

impl Service for TrainService {
    fn admission(&self) -> &Admission {
        &self.admission
    }

    fn readiness(&self) -> Option<watch::Receiver<bool>> {
        Some(self.host.writable())
    }

    fn stop(self: Arc<Self>) -> Stopping {
        // A round that is still open cannot go on.
        Box::pin(async move {
            self.host.stop().await;
            self.host.note_stopped().await;
        })
    }
}

#[tonic::async_trait]
impl FederatedTraining for TrainService {
    async fn info(
        &self,
        _request: Request<TrainInfoRequest>,
    ) -> Result<Response<TrainInfoReply>, Status> {
        Ok(Response::new(TrainInfoReply::from(&self.host.info())))
    }

    async fn open_round(
        &self,
        request: Request<OpenRoundRequest>,
    ) -> Result<Response<OpenRoundReply>, Status> {
        self.check_operator(request.metadata())?;
        self.admission.check_open()?;
        let OpenRoundRequest { users, users_min, request_ms, upload_ms, finish_ms } =
            request.into_inner();
        let deadline = |name, milliseconds, default| {
            Settings::deadline(name, milliseconds, default).map_err(Refusal::from)
        };
        let limits = RoundLimits {
            users: users as usize,
            users_min: users_min.max(1) as usize,
            request_max: Some(deadline("request_ms", request_ms, self.settings.request)?),
            upload_max: Some(deadline("upload_ms", upload_ms, self.settings.upload)?),
            finish_max: Some(deadline("finish_ms", finish_ms, self.settings.finish)?),
        };
        let round = self.host.open(limits).await?;
        Ok(Response::new(OpenRoundReply { round }))
    }

    async fn request(
        &self,
        mut request: Request<UserRequest>,
    ) -> Result<Response<UserRequestReply>, Status> {
        let place = Place::of(&request, request.get_ref().round, request.get_ref().user);
        let _reservation = self.hold(&mut request)?;
        let sealed = request.into_inner().sealed;
        self.host.request(place, sealed).await?;
        Ok(Response::new(UserRequestReply {}))
    }

    async fn close_requests(
        &self,
        request: Request<CloseRequestsRequest>,
    ) -> Result<Response<CloseRequestsReply>, Status> {
        self.check_operator(request.metadata())?;
        let users = self.host.close(request.into_inner().round).await?;
        Ok(Response::new(CloseRequestsReply { users: users as u32 }))
    }

    async fn rows(&self, mut request: Request<RowsRequest>) -> Result<Response<RowsReply>, Status> {
        let place = Place::of(&request, request.get_ref().round, request.get_ref().user);
        let _reservation = self.hold(&mut request)?;
        let wait_ms = request.into_inner().wait_ms;
        let sealed = self.host.rows(place, self.wait(wait_ms)).await?;
        Ok(Response::new(RowsReply { sealed }))
    }

    async fn upload(
        &self,
        mut request: Request<UploadRequest>,
    ) -> Result<Response<UploadReply>, Status> {
        let place = Place::of(&request, request.get_ref().round, request.get_ref().user);
        let _reservation = self.hold(&mut request)?;
        let sealed = request.into_inner().sealed;
        self.host.upload(place, sealed).await?;
        Ok(Response::new(UploadReply {}))
    }

    async fn finish(
        &self,
        request: Request<FinishRequest>,
    ) -> Result<Response<FinishReply>, Status> {
        self.check_operator(request.metadata())?;
        let FinishRequest { round, now, wait_ms } = request.into_inner();
        let report = self.host.finish(round, now, self.wait(wait_ms)).await?;
        Ok(Response::new(FinishReply::from(&report)))
    }

    async fn abandon(
        &self,
        request: Request<AbandonRequest>,
    ) -> Result<Response<AbandonReply>, Status> {
        self.check_operator(request.metadata())?;
        self.host.abandon(request.into_inner().round).await?;
        Ok(Response::new(AbandonReply {}))
    }

    async fn backup(
        &self,
        request: Request<BackupRequest>,
    ) -> Result<Response<BackupReply>, Status> {
        self.check_operator(request.metadata())?;
        let BackupRequest { name, wait_ms } = request.into_inner();
        let made = self.backups.make(&name, self.host.memory(), self.wait(wait_ms)).await?;
        Ok(Response::new(BackupReply {
            rounds: made.rounds,
            rounds_begun: made.rounds_begun,
            bytes: made.files.values().map(|file| file.bytes).sum(),
        }))
    }
}

/// What comes before the token in the header.
pub(super) const BEARER: &[u8] = b"Bearer ";
