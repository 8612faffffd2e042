//! One connection over which a front asks a server of a shard, call after call.
//!
//! What gRPC says, in HTTP/2 as `h2` speaks it, with no task and no queue between a call and the connection. A
//! pass over 64 shards is 64 calls at once, and the layers of a general client cost it more than its bytes do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{Ping, PingPong, RecvStream};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, TE, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, StatusCode, Uri, Version};
use prost::Message;
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use super::endpoint::{CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, STREAM_WINDOW_BYTES, Stream, Way};
use super::shaper::LinkSpec;
use crate::endpoint::EndpointSpec;
use crate::error::Error;
use crate::refusal::Tables;

/// A server, and the connection to it, made at first use and again when it was lost.
pub(crate) struct Lane {
    url: Arc<str>,
    way: Way,
    authority: Authority,
    connect_max: Duration,
    live: Mutex<Option<Live>>,
    /// Held by the one that connects: the others wait for the same connection.
    connecting: tokio::sync::Mutex<()>,
}

/// A connection, and the task that reads and writes it: that ends by itself once no call needs it.
struct Live {
    send: SendRequest<Bytes>,
    driver: JoinHandle<()>,
}

/// Messages, each with the head that gRPC gives it.
#[derive(Clone, Default)]
pub(crate) struct Body(Vec<Bytes>);

impl Body {
    /// Adds a message that is these parts, one after the other. Long ones are shared, not copied.
    pub fn with(mut self, parts: impl IntoIterator<Item = Bytes>) -> Self {
        let place = self.0.len();
        self.0.push(Bytes::new());
        self.0.extend(parts);
        let bytes = self.0[place + 1..].iter().map(Bytes::len).sum::<usize>();
        let mut head = BytesMut::with_capacity(HEAD_BYTES);
        head.put_u8(0); // not compressed
        head.put_u32(bytes as u32);
        self.0[place] = head.freeze();
        self
    }

    pub fn and(self, message: &impl Message) -> Self {
        self.with([message.encode_to_vec().into()])
    }

    pub fn of(message: &impl Message) -> Self {
        Self::default().and(message)
    }
}

impl Lane {
    /// Checks `spec`; connects when first used. What is asked there is refused by `refusals`. Must be
    /// called within a tokio runtime.
    pub fn new(
        spec: &EndpointSpec,
        insecure: bool,
        connect_max: Duration,
        refusals: Tables,
    ) -> Result<Self, Error> {
        let way = Way::of(spec, insecure, LinkSpec::default(), refusals)?;
        let uri: Uri = spec
            .url
            .parse()
            .map_err(|_| Error::Url { url: spec.url.clone(), reason: "it is no address".into() })?;
        let authority = uri
            .authority()
            .cloned()
            .ok_or_else(|| Error::Url { url: spec.url.clone(), reason: "it has no host".into() })?;
        let url = spec.url.as_str().into();
        let (live, connecting) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { url, way, authority, connect_max, live, connecting })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends `body` to the method at `path` and awaits the one message that comes back.
    pub async fn call<R: Message + Default>(
        &self,
        path: &'static str,
        body: Body,
        reply_bytes_max: usize,
        limit: Duration,
    ) -> Result<R, Error> {
        match tokio::time::timeout(limit, self.call_for(path, body, reply_bytes_max)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(status)) => Err(self.way.error(&self.url, &status)),
            Err(_) => Err(Error::Timeout { url: self.url.to_string(), after: limit }),
        }
    }

    async fn call_for<R: Message + Default>(
        &self,
        path: &'static str,
        body: Body,
        reply_bytes_max: usize,
    ) -> Result<R, Status> {
        let mut send = self.ready().await?;
        let request = self.request(path)?;
        let Body(parts) = body;
        let (reply, mut stream) = send.send_request(request, parts.is_empty()).map_err(of_h2)?;
        let last = parts.len().saturating_sub(1);
        for (place, part) in parts.into_iter().enumerate() {
            // The message is in memory as it is: what the other side's window leaves waits there.
            stream.send_data(part, place == last).map_err(of_h2)?;
        }
        let (head, body) = reply.await.map_err(of_h2)?.into_parts();
        if head.status != StatusCode::OK {
            let (expected, found) = (StatusCode::OK, head.status);
            return Err(Status::unknown(format!("HTTP status {found}, not {expected}")));
        }
        // An error may have no body and say all in its headers.
        if let Some(status) = Status::from_header_map(&head.headers) {
            check(status)?;
        }
        read(body, reply_bytes_max).await
    }

    fn request(&self, path: &'static str) -> Result<Request<()>, Status> {
        let scheme = if self.way.is_tls() { Scheme::HTTPS } else { Scheme::HTTP };
        let uri = Uri::builder()
            .scheme(scheme)
            .authority(self.authority.clone())
            .path_and_query(PathAndQuery::from_static(path));
        let mut request = Request::new(());
        *request.uri_mut() = uri.build().map_err(|error| Status::internal(error.to_string()))?;
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        let headers: [(HeaderName, &str); 3] = [
            (TE, "trailers"),
            (CONTENT_TYPE, "application/grpc"),
            (USER_AGENT, concat!("hushtable/", env!("CARGO_PKG_VERSION"))),
        ];
        for (name, value) in headers {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Ok(request)
    }

    fn live(&self) -> MutexGuard<'_, Option<Live>> {
        // Nothing panics while it holds the lock half-way through a change.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<SendRequest<Bytes>> {
        let mut live = self.live();
        if live.as_ref().is_some_and(|live| live.driver.is_finished()) {
            *live = None;
        }
        live.as_ref().map(|live| live.send.clone())
    }

    /// The connection, once it takes one more call.
    async fn ready(&self) -> Result<SendRequest<Bytes>, Status> {
        if let Some(send) = self.current()
            && let Ok(send) = send.ready().await
        {
            return Ok(send);
        }
        let _connects = self.connecting.lock().await;
        // Another may have connected meanwhile; what is not ready now is lost, or its server is about to stop.
        if let Some(send) = self.current()
            && let Ok(send) = send.ready().await
        {
            return Ok(send);
        }
        let live = tokio::time::timeout(self.connect_max, self.connect()).await;
        let live = live.map_err(|_| {
            Status::unavailable(format!("no connection within {:?}", self.connect_max))
        })??;
        let send = live.send.clone();
        *self.live() = Some(live);
        send.ready().await.map_err(of_h2)
    }

    async fn connect(&self) -> Result<Live, Status> {
        let stream =
            self.way.connect().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES_MAX)
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            .enable_push(false);
        let (send, connection) = builder.handshake::<_, Bytes>(stream).await.map_err(of_h2)?;
        let driver = tokio::spawn(drive(connection));
        Ok(Live { send, driver })
    }
}

/// Reads and writes until the connection ends, or the other side answers no ping.
async fn drive(mut connection: h2::client::Connection<Box<dyn Stream>, Bytes>) {
    let pings = connection.ping_pong();
    tokio::select! {
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection to a shard ended early");
            }
        }
        () = unanswered(pings) => tracing::debug!("a shard's server answers no ping"),
    }
}

async fn unanswered(pings: Option<PingPong>) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        tokio::time::sleep(PING_EVERY).await;
        let mut pong = std::pin::pin!(pings.ping(Ping::opaque()));
        let mut is_answered = false;
        // Twice half the time: where this machine itself stood still, the time is over before what has come is read.
        for _ in 0..2 {
            if let Ok(pong) = tokio::time::timeout(PONG_MAX / 2, &mut pong).await {
                is_answered = pong.is_ok();
                break;
            }
        }
        if !is_answered {
            return;
        }
    }
}

/// The one message of a reply.
async fn read<R: Message + Default>(mut body: RecvStream, bytes_max: usize) -> Result<R, Status> {
    let mut bytes = Bytes::new();
    // More than one frame is put together in one place.
    let mut whole = BytesMut::new();
    while let Some(frame) = body.data().await {
        let frame = frame.map_err(of_h2)?;
        body.flow_control().release_capacity(frame.len()).map_err(of_h2)?;
        if bytes.len() + whole.len() + frame.len() > bytes_max.saturating_add(HEAD_BYTES) {
            return Err(Status::out_of_range(format!("a reply of more than {bytes_max} bytes")));
        }
        match (bytes.is_empty(), whole.is_empty()) {
            (true, true) => bytes = frame,
            (false, true) => {
                let expected = length_of(&bytes).unwrap_or(bytes.len() + frame.len());
                whole.reserve(expected.min(bytes_max) + HEAD_BYTES);
                whole.extend_from_slice(&bytes);
                whole.extend_from_slice(&frame);
                bytes.clear();
            }
            _ => whole.extend_from_slice(&frame),
        }
    }
    let trailers = body.trailers().await.map_err(of_h2)?.unwrap_or_else(HeaderMap::new);
    check(
        Status::from_header_map(&trailers)
            .unwrap_or_else(|| Status::unknown("the call ended without a status")),
    )?;
    let mut bytes = if whole.is_empty() { bytes } else { whole.freeze() };
    let expected =
        length_of(&bytes).ok_or_else(|| Status::internal("a reply without a message"))?;
    if bytes[0] != 0 || bytes.len() - HEAD_BYTES != expected {
        return Err(Status::internal("a reply that is not one plain message"));
    }
    bytes.advance(HEAD_BYTES);
    R::decode(bytes)
        .map_err(|error| Status::internal(format!("a reply that is no message: {error}")))
}

/// What a message's head says of its length.
fn length_of(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(1..HEAD_BYTES)?.try_into().ok()?;
    Some(u32::from_be_bytes(length) as usize)
}

fn check(status: Status) -> Result<(), Status> {
    match status.code() {
        Code::Ok => Ok(()),
        _ => Err(status),
    }
}

fn of_h2(error: h2::Error) -> Status {
    Status::from_error(Box::new(error))
}

/// Of a message: whether it is compressed, and its length.
const HEAD_BYTES: usize = 5;
const SEND_BUFFER_BYTES: usize = 1 << 20;
/// A server that hangs keeps its connection and answers nothing: every pass would wait for it as long as a pass may
/// take. It answers pings beside its passes, however many there are.
const PING_EVERY: Duration = Duration::from_millis(500);
const PONG_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use http::Response;
    use tokio::net::TcpListener;

    use super::*;
    use crate::wire::{HoldsReply, HoldsRequest};

    const PATH: &str = "/hushtable.v1.PrivateShard/Holds";
    const LIMIT: Duration = Duration::from_secs(120);

    /// What a server says to a call.
    struct Said {
        headers: HeaderMap,
        body: Vec<Bytes>,
        trailers: Option<HeaderMap>,
    }

    fn with_status(code: &'static str) -> HeaderMap {
        HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static(code))])
    }

    fn saying(frames: Vec<Bytes>) -> Said {
        Said { headers: HeaderMap::new(), body: frames, trailers: Some(with_status("0")) }
    }

    /// A server that says `said` to the calls of each connection and then closes it, and a lane to it.
    async fn served(connections: Vec<Vec<Said>>) -> (Lane, JoinHandle<Vec<Vec<u8>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let mut heard = Vec::new();
            for calls in connections {
                let (stream, _) = listener.accept().await.unwrap();
                let mut connection = h2::server::handshake(stream).await.unwrap();
                let mut answering = Vec::new();
                for said in calls {
                    let (request, respond) = connection.accept().await.unwrap().unwrap();
                    assert_eq!(request.uri().path(), PATH);
                    answering.push(tokio::spawn(answer(request.into_body(), respond, said)));
                }
                connection.graceful_shutdown();
                // What was queued is written, and read, meanwhile.
                let _ = tokio::time::timeout(LIMIT, connection.accept()).await;
                for answering in answering {
                    heard.push(answering.await.unwrap());
                }
            }
            heard
        });
        let lane = Lane::new(&EndpointSpec::new(url, None), false, LIMIT, &[]).unwrap();
        (lane, serving)
    }

    async fn answer(
        mut body: RecvStream,
        mut respond: h2::server::SendResponse<Bytes>,
        said: Said,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(frame) = body.data().await {
            let frame = frame.unwrap();
            body.flow_control().release_capacity(frame.len()).unwrap();
            bytes.extend_from_slice(&frame);
        }
        let mut head = Response::new(());
        *head.headers_mut() = said.headers;
        let ends = said.body.is_empty() && said.trailers.is_none();
        let mut stream = respond.send_response(head, ends).unwrap();
        for frame in said.body {
            stream.send_data(frame, false).unwrap();
        }
        if let Some(trailers) = said.trailers {
            stream.send_trailers(trailers).unwrap();
        }
        bytes
    }

    fn framed(reply: &HoldsReply) -> Vec<u8> {
        Body::of(reply).0.concat()
    }

    async fn ask(lane: &Lane, bytes_max: usize) -> Result<HoldsReply, Error> {
        lane.call(PATH, Body::of(&HoldsRequest::default()), bytes_max, LIMIT).await
    }

    #[tokio::test]
    async fn a_reply_is_the_same_however_it_is_cut() {
        let reply = HoldsReply { refused: "x".repeat(5000), shard: 7, ..HoldsReply::default() };
        let bytes = Bytes::from(framed(&reply));
        let cuts = [vec![bytes.len()], vec![3, bytes.len()], vec![1, 5, 6, 4000, bytes.len()]];
        let said = cuts.iter().map(|cuts| {
            let starts = std::iter::once(0).chain(cuts.iter().copied());
            saying(starts.zip(cuts).map(|(start, &end)| bytes.slice(start..end)).collect())
        });
        let (lane, serving) = served(vec![said.collect()]).await;
        for _ in &cuts {
            assert_eq!(ask(&lane, bytes.len()).await.unwrap(), reply);
        }
        let heard = serving.await.unwrap();
        assert!(
            heard.iter().all(|it| *it == [0; HEAD_BYTES]),
            "an empty message has its head alone"
        );
    }

    #[tokio::test]
    async fn shared_parts_make_the_message_that_one_piece_makes() {
        let request =
            HoldsRequest { in_use: vec![Bytes::from(vec![1; 32]), Bytes::from(vec![2; 32])] };
        let parts = request
            .in_use
            .iter()
            .map(|map| Bytes::from(HoldsRequest { in_use: vec![map.clone()] }.encode_to_vec()));
        let (lane, serving) =
            served(vec![vec![saying(vec![framed(&HoldsReply::default()).into()])]]).await;
        let body = Body::default().with(parts);
        lane.call::<HoldsReply>(PATH, body, 64, LIMIT).await.unwrap();
        assert_eq!(serving.await.unwrap(), [Body::of(&request).0.concat()]);
    }

    #[tokio::test]
    async fn what_is_no_reply_is_an_error() {
        let reply = HoldsReply { refused: "x".repeat(100), ..HoldsReply::default() };
        let whole = framed(&reply);
        let (mut compressed, mut longer) = (whole.clone(), whole.clone());
        compressed[0] = 1;
        longer.push(0);
        let cut = whole[..whole.len() - 1].to_vec();
        let garbage = [&[0, 0, 0, 0, 3][..], &[0xff; 3]].concat();
        let bad = [Vec::new(), vec![0; 4], compressed, longer, cut, garbage];
        let mut calls: Vec<_> = bad.iter().map(|it| saying(vec![it.clone().into()])).collect();
        calls.push(saying(vec![whole.clone().into()]));
        calls.push(Said { trailers: None, ..saying(vec![whole.into()]) });
        let count = calls.len();
        let (lane, serving) = served(vec![calls]).await;
        for place in 0..count {
            let outcome = match place {
                // The last but one is whole, but longer than what was asked for.
                _ if place == count - 2 => ask(&lane, 50).await,
                _ => ask(&lane, 1000).await,
            };
            assert!(outcome.is_err(), "{place}: {outcome:?}");
        }
        serving.abort();
    }

    #[tokio::test]
    async fn a_status_is_an_error_before_and_after_a_body() {
        let only_headers = Said { headers: with_status("8"), body: Vec::new(), trailers: None };
        let reply = framed(&HoldsReply::default());
        let after = Said { trailers: Some(with_status("13")), ..saying(vec![reply.into()]) };
        let (lane, serving) = served(vec![vec![only_headers, after]]).await;
        for code in ["resource", "internal"] {
            match ask(&lane, 64).await {
                Err(Error::Remote { code: found, .. }) => {
                    assert!(found.to_lowercase().starts_with(code), "{found}");
                }
                other => panic!("{other:?}"),
            }
        }
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_ended_is_made_again() {
        let reply = || saying(vec![framed(&HoldsReply::default()).into()]);
        let (lane, serving) = served(vec![vec![reply()], vec![reply(), reply()]]).await;
        for calls in 0..3 {
            ask(&lane, 64).await.unwrap();
            // Until the end of the connection is here, a call may yet go out on it.
            while (calls == 0 || calls == 2) && lane.current().is_some() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(serving.await.unwrap().len(), 3);
        let gone = ask(&lane, 64).await;
        assert!(matches!(gone, Err(Error::Unavailable { .. })), "{gone:?}");
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let lane = Lane::new(&EndpointSpec::new(url, None), false, LIMIT, &[]).unwrap();
        let limit = Duration::from_millis(100);
        let outcome =
            lane.call::<HoldsReply>(PATH, Body::of(&HoldsRequest::default()), 64, limit).await;
        assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
    }
}
