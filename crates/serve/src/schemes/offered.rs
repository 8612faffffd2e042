//! Which scheme a single server speaks, for a client that was not told.

use std::time::Duration;

use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::endpoint::EndpointSpec;
use crate::error::Error;
use crate::peer::endpoint::Peer;
use crate::refusal::Refusal;
use crate::schemes::all::SCHEMES;

/// Longer than any service's terms may be.
const INFO_BYTES_MAX: usize = 16 << 20;

/// The scheme that the server at `spec` speaks, whatever it announces; none where it speaks none of a single server's.
///
/// # Errors
/// What is wrong with `spec`, and for servers out of reach, as the clients' `connect`.
pub async fn offered_scheme(
    spec: &EndpointSpec,
    insecure: bool,
    connect_max: Duration,
    call_max: Duration,
) -> Result<Option<&'static str>, Error> {
    let mut gone = None;
    for peer in Peer::each(spec, insecure, connect_max, &[])? {
        let asked = tokio::time::timeout(call_max, offered_by(&peer, call_max)).await;
        let late = || Error::Timeout { url: peer.url().to_owned(), after: call_max };
        match asked.unwrap_or_else(|_| Err(late())) {
            // Another of the same operator says the same.
            Err(error @ Error::Unavailable { .. }) => gone = Some(error),
            Err(error @ Error::Refused { refusal: Refusal::Draining, .. }) => gone = Some(error),
            decided => return decided,
        }
    }
    Err(gone.unwrap_or_else(|| Error::Client { reason: "there is no server to ask".into() }))
}

async fn offered_by(peer: &Peer, limit: Duration) -> Result<Option<&'static str>, Error> {
    let mut failed = None;
    // Each says what it holds by a call `Info` whose request is empty.
    for scheme in SCHEMES.iter().filter(|scheme| scheme.is_alone) {
        match peer.reconnecting(|| peer.within(limit, info(peer, scheme.service))).await {
            Ok(()) => return Ok(Some(scheme.name)),
            Err(Error::Unserved { .. }) => {}
            // Something before the server may let through what it speaks alone.
            Err(error @ Error::Remote { .. }) => failed = failed.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    failed.map_or(Ok(None), Err)
}

/// Asks a service what it holds, and reads nothing of what it says.
async fn info(peer: &Peer, service: &str) -> Result<(), Status> {
    let path = PathAndQuery::try_from(format!("/{service}/Info"))
        .map_err(|error| Status::internal(error.to_string()))?;
    let mut grpc = Grpc::new(peer.channel.clone()).max_decoding_message_size(INFO_BYTES_MAX);
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    grpc.unary(Request::new(()), path, ProstCodec::<(), ()>::default()).await?;
    Ok(())
}
