//! Calls that need no session: each says itself how it is made, and the driver's machine when it is made again.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use hushtable_client::{CallFault, Called, Cause, Limits, Place, Protocol, lone};

use super::drive::{Driver, Outgoing, Servers, Wire, outgoing};
use super::endpoint::Peer;
use super::random_u64;
use crate::{Error, Refusal};

/// What a machine makes of the refusals of a scheme whose calls are made so.
pub(crate) trait Faults: 'static {
    /// Of a refusal that is the scheme's own.
    fn fault(refusal: &Refusal) -> CallFault;
}

/// Calls of the scheme `S` that are answered by an `R`.
pub(crate) struct Direct<S, R>(PhantomData<fn() -> (S, R)>);

/// How a call is made.
pub(crate) struct DirectCall<R>(Arc<dyn Fn(Peer) -> Outgoing<R> + Send + Sync>);

/// A server that did not answer for so long.
#[derive(Debug)]
pub(crate) struct Late(Duration);

impl<R> Clone for DirectCall<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> fmt::Debug for DirectCall<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectCall")
    }
}

impl<S: 'static, R: Send + 'static> Protocol for Direct<S, R> {
    type Call = DirectCall<R>;
    type Reply = R;
    type Failure = Late;

    fn timed_out(_: Place, after: Duration) -> Late {
        Late(after)
    }
}

impl<S: Faults, R: Send + 'static> Wire for Direct<S, R> {
    type Protocol = Self;

    fn send(peer: &Peer, call: DirectCall<R>) -> Outgoing<R> {
        (call.0)(peer.clone())
    }

    fn fault(refusal: &Refusal) -> CallFault {
        S::fault(refusal)
    }

    fn error(Late(after): Late, servers: &Servers) -> Error {
        Error::Timeout { url: servers.url(Place::Single), after }
    }
}

/// Why a call may be made again, beside a server that is busy, drains, or was restarted since the last call.
pub(crate) enum Again<'a> {
    /// A call that failed.
    Fault(&'a CallFault),
    /// A server that was silent for as long as a call may take.
    Late,
}

/// Never for another reason.
pub(crate) fn never(_: Again<'_>, _: u32, _: u64) -> Option<Duration> {
    None
}

impl Peer {
    /// Makes a call of the scheme `S`, again where that may be answered: `again` says after which pause it is for
    /// other reasons, given how often it was and a random number.
    pub async fn ask<S, R, F>(
        &self,
        limits: Limits,
        again: impl Fn(Again<'_>, u32, u64) -> Option<Duration> + Send + 'static,
        call: impl Fn(Self) -> F + Send + Sync + 'static,
    ) -> Result<Called<R>, Error>
    where
        S: Faults,
        R: Send + 'static,
        F: Future<Output = Result<R, Error>> + Send + 'static,
    {
        let driver = Driver::<Direct<S, R>>::new([(Place::Single, vec![self.clone()])]);
        let call = DirectCall(Arc::new(move |peer| outgoing(call(peer))));
        let again = move |cause: Cause<'_, Direct<S, R>>, times, random| match cause {
            Cause::Fault(fault) => again(Again::Fault(fault), times, random),
            Cause::Failure(Late(_)) => again(Again::Late, times, random),
        };
        driver.run(lone(Place::Single, call, limits, again, random_u64()?)).await
    }
}
