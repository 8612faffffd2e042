//! Servers that announce what a test tells them to, over real gRPC on loopback, and write down
//! everything secret that a client sends them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hushtable_pir::onion::KeyId;
use hushtable_serve::EndpointSpec;
use hushtable_serve::wire::encrypted_inference_server::{
    EncryptedInference, EncryptedInferenceServer,
};
use hushtable_serve::wire::hybrid_inference_server::{HybridInference, HybridInferenceServer};
use hushtable_serve::wire::onion_lookup_server::{OnionLookup, OnionLookupServer};
use hushtable_serve::wire::private_lookup_server::{PrivateLookup, PrivateLookupServer};
use hushtable_serve::wire::{
    AnswerBagsReply, AnswerBagsRequest, AnswerModelReply, AnswerModelRequest, AnswerReply,
    AnswerRequest, CatalogReply, CatalogRequest, HaveKeysReply, HaveKeysRequest, HybridBeginReply,
    HybridBeginRequest, HybridFinishReply, HybridFinishRequest, HybridInfoReply, HybridInfoRequest,
    HybridStepReply, HybridStepRequest, InferInfoReply, InferInfoRequest, KeysChunk, LayoutChunk,
    LayoutRequest, OnionAnswerModelReply, OnionAnswerModelRequest, OnionAnswerReply,
    OnionAnswerRequest, OnionCatalogReply, OnionCatalogRequest, OnionInfoReply, OnionInfoRequest,
    PredictFrame, PredictReply, PredictRequest, PutKeysReply, TableInfoReply, TableInfoRequest,
    UploadKeysReply, UploadKeysRequest,
};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tonic::codegen::{Service, tokio_stream};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

/// A running server.
pub struct Fake {
    pub addr: SocketAddr,
    received: Received,
}

/// What a client sent that an honest server would need: "PutKeys", "Answer" and so on.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<&'static str>>>);

impl Received {
    fn note(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }
}

impl Fake {
    /// A server of one of two, with a layout's chunks.
    pub async fn pair(info: TableInfoReply, layout: Vec<Bytes>) -> Self {
        let received = Received::default();
        let tables = vec![info.clone()];
        let catalog = CatalogReply { tables, ..CatalogReply::default() };
        let service = Pair { info, layout, catalog, received: received.clone() };
        Self { addr: serve(PrivateLookupServer::new(service)).await, received }
    }

    /// A server of one of two, with this catalog.
    pub async fn model(catalog: CatalogReply) -> Self {
        let received = Received::default();
        let (info, layout) = (TableInfoReply::default(), Vec::new());
        let service = Pair { info, layout, catalog, received: received.clone() };
        Self { addr: serve(PrivateLookupServer::new(service)).await, received }
    }

    /// A server that is asked alone. It announces `infos` in turn, the last one from then on, and
    /// says to every query that the table has changed.
    pub async fn onion(infos: Vec<OnionInfoReply>) -> Self {
        let received = Received::default();
        let service = Onion { infos: Mutex::new(infos.into()), received: received.clone() };
        Self { addr: serve(OnionLookupServer::new(service)).await, received }
    }

    /// A server of encrypted inference, which takes any keys and answers no query.
    pub async fn infer(info: InferInfoReply) -> Self {
        let received = Received::default();
        let service = Infer { info, received: received.clone() };
        Self { addr: serve(EncryptedInferenceServer::new(service)).await, received }
    }

    /// A server of hybrid inference, which opens any precompute and makes no step.
    pub async fn hybrid(info: HybridInfoReply) -> Self {
        let received = Received::default();
        let service = Hybrid { info, received: received.clone() };
        Self { addr: serve(HybridInferenceServer::new(service)).await, received }
    }

    pub fn endpoint(&self) -> EndpointSpec {
        EndpointSpec::new(format!("http://{}", self.addr), None)
    }

    /// What came since the start.
    pub fn received(&self) -> Vec<&'static str> {
        self.received.0.lock().unwrap().clone()
    }
}

/// Serves on a free port until the test's runtime ends.
async fn serve<S>(service: S) -> SocketAddr
where
    S: Service<
            http::Request<Incoming>,
            Response = http::Response<tonic::body::Body>,
            Error = Infallible,
        > + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            let call = hyper::service::service_fn(move |request| service.clone().call(request));
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), call),
            );
        }
    });
    addr
}

struct Pair {
    catalog: CatalogReply,
    info: TableInfoReply,
    layout: Vec<Bytes>,
    received: Received,
}

#[tonic::async_trait]
impl PrivateLookup for Pair {
    type LayoutStream = tokio_stream::Iter<std::vec::IntoIter<Result<LayoutChunk, Status>>>;

    async fn table_info(
        &self,
        _: Request<TableInfoRequest>,
    ) -> Result<Response<TableInfoReply>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn catalog(&self, _: Request<CatalogRequest>) -> Result<Response<CatalogReply>, Status> {
        Ok(Response::new(self.catalog.clone()))
    }

    async fn answer_model(
        &self,
        _: Request<AnswerModelRequest>,
    ) -> Result<Response<AnswerModelReply>, Status> {
        self.received.note("AnswerModel");
        Err(Status::internal("seen enough"))
    }

    async fn answer(&self, _: Request<AnswerRequest>) -> Result<Response<AnswerReply>, Status> {
        self.received.note("Answer");
        Err(Status::internal("seen enough"))
    }

    async fn layout(
        &self,
        _: Request<LayoutRequest>,
    ) -> Result<Response<Self::LayoutStream>, Status> {
        let chunks: Vec<_> =
            self.layout.iter().map(|bytes| Ok(LayoutChunk { bytes: bytes.clone() })).collect();
        Ok(Response::new(tokio_stream::iter(chunks)))
    }

    async fn answer_bags(
        &self,
        _: Request<AnswerBagsRequest>,
    ) -> Result<Response<AnswerBagsReply>, Status> {
        self.received.note("AnswerBags");
        Err(Status::internal("seen enough"))
    }
}

struct Onion {
    infos: Mutex<VecDeque<OnionInfoReply>>,
    received: Received,
}

#[tonic::async_trait]
impl OnionLookup for Onion {
    async fn catalog(
        &self,
        _: Request<OnionCatalogRequest>,
    ) -> Result<Response<OnionCatalogReply>, Status> {
        self.received.note("OnionCatalog");
        Err(Status::unimplemented("seen enough"))
    }

    async fn answer_model(
        &self,
        _: Request<OnionAnswerModelRequest>,
    ) -> Result<Response<OnionAnswerModelReply>, Status> {
        self.received.note("OnionAnswerModel");
        Err(Status::unimplemented("seen enough"))
    }

    async fn info(&self, _: Request<OnionInfoRequest>) -> Result<Response<OnionInfoReply>, Status> {
        let mut infos = self.infos.lock().unwrap();
        let info = infos[0].clone();
        if infos.len() > 1 {
            infos.pop_front();
        }
        Ok(Response::new(info))
    }

    async fn put_keys(
        &self,
        request: Request<Streaming<KeysChunk>>,
    ) -> Result<Response<PutKeysReply>, Status> {
        self.received.note("PutKeys");
        let (mut chunks, mut keys) = (request.into_inner(), Vec::new());
        while let Some(chunk) = chunks.message().await? {
            keys.extend_from_slice(&chunk.bytes);
        }
        let key_id = Bytes::copy_from_slice(KeyId::of(&keys).as_bytes());
        Ok(Response::new(PutKeysReply { key_id, evicted: Some(0), held: Some(false) }))
    }

    async fn answer(
        &self,
        _: Request<OnionAnswerRequest>,
    ) -> Result<Response<OnionAnswerReply>, Status> {
        self.received.note("OnionAnswer");
        let facts = ["expected", "found"].map(|name| (name.to_owned(), "00".repeat(32)));
        let skew = ErrorDetails::with_error_info("VERSION_SKEW", "hushtable", facts);
        Err(Status::with_error_details(Code::FailedPrecondition, "seen enough", skew))
    }
}

struct Infer {
    info: InferInfoReply,
    received: Received,
}

#[tonic::async_trait]
impl EncryptedInference for Infer {
    async fn info(&self, _: Request<InferInfoRequest>) -> Result<Response<InferInfoReply>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn have_keys(
        &self,
        _: Request<HaveKeysRequest>,
    ) -> Result<Response<HaveKeysReply>, Status> {
        self.received.note("HaveKeys");
        Ok(Response::new(HaveKeysReply { held: Some(false) }))
    }

    async fn upload_keys(
        &self,
        request: Request<Streaming<UploadKeysRequest>>,
    ) -> Result<Response<UploadKeysReply>, Status> {
        self.received.note("UploadKeys");
        let (mut messages, mut key_id) = (request.into_inner(), Bytes::new());
        while let Some(message) = messages.message().await? {
            key_id = message.head.map_or(key_id, |head| head.key_id);
        }
        Ok(Response::new(UploadKeysReply { key_id, evicted: Some(0), held: Some(false) }))
    }

    async fn predict(&self, _: Request<PredictRequest>) -> Result<Response<PredictReply>, Status> {
        self.received.note("Predict");
        Err(Status::internal("seen enough"))
    }
}

struct Hybrid {
    info: HybridInfoReply,
    received: Received,
}

#[tonic::async_trait]
impl HybridInference for Hybrid {
    type PredictStream = tokio_stream::Empty<Result<PredictFrame, Status>>;

    async fn info(
        &self,
        _: Request<HybridInfoRequest>,
    ) -> Result<Response<HybridInfoReply>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn begin(
        &self,
        _: Request<HybridBeginRequest>,
    ) -> Result<Response<HybridBeginReply>, Status> {
        self.received.note("Begin");
        Ok(Response::new(HybridBeginReply { resumed: Some(false) }))
    }

    async fn step(
        &self,
        _: Request<HybridStepRequest>,
    ) -> Result<Response<HybridStepReply>, Status> {
        self.received.note("Step");
        Err(Status::internal("seen enough"))
    }

    async fn finish(
        &self,
        _: Request<HybridFinishRequest>,
    ) -> Result<Response<HybridFinishReply>, Status> {
        self.received.note("Finish");
        Ok(Response::new(HybridFinishReply {}))
    }

    async fn predict(
        &self,
        _: Request<Streaming<PredictFrame>>,
    ) -> Result<Response<Self::PredictStream>, Status> {
        self.received.note("Predict");
        Err(Status::internal("seen enough"))
    }
}
