//! The frames of a prediction: hands those that came to a machine, and sends what it has ready.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::Sender;
use tonic::{Status, Streaming};

use super::machines::{Error as MachineError, OnlineServer};
use crate::wire::PredictFrame;

/// Bytes of payloads each way, and frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Exchanged {
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub frames: usize,
}

/// Why a prediction broke off.
#[derive(Debug)]
pub(super) enum Broken {
    /// The other side's frame is none of the protocol's, or the precompute is damaged.
    Machine(Box<MachineError>),
    /// The stream failed.
    Status(Status),
    /// The other side ended the stream.
    Ended,
    /// The other side was silent for so long.
    Silent(Duration),
    /// Another client needed its place.
    Displaced,
}

/// Runs a machine to its end. `taken` is told the bytes of each message that came and was used. What the
/// machine computes, it computes on this thread, once it has a `turn`.
pub(super) async fn exchange<T>(
    machine: &mut OnlineServer,
    incoming: &mut Streaming<PredictFrame>,
    outgoing: &Sender<Result<PredictFrame, Status>>,
    turn: impl AsyncFn() -> T,
    pause_max: Duration,
    taken: impl Fn(&PredictFrame),
) -> Result<Exchanged, Broken> {
    let (mut found, mut ready) = (Exchanged::default(), None);
    loop {
        if ready.is_none() {
            let _turn = turn().await;
            ready = machine.pull().map_err(broken)?;
        }
        if ready.is_none() && machine.is_done() {
            return Ok(found);
        }
        let has_frame = ready.is_some();
        // Two sides that only sent would wait for each other.
        tokio::select! {
            biased;
            permit = outgoing.reserve(), if has_frame => {
                let permit = permit.map_err(|_| Broken::Ended)?;
                let payload = Bytes::from(ready.take().unwrap_or_default());
                found.sent_bytes += payload.len() as u64;
                found.frames += 1;
                permit.send(Ok(PredictFrame { open: None, payload }));
            }
            message = incoming.message() => {
                let message = message.map_err(Broken::Status)?.ok_or(Broken::Ended)?;
                found.received_bytes += message.payload.len() as u64;
                found.frames += 1;
                if message.open.is_some() {
                    let (what, why) = ("a second opening".to_owned(), "nothing: it was opened");
                    let error = MachineError::Order { what, why };
                    return Err(Broken::Machine(Box::new(error)));
                }
                let _turn = turn().await;
                machine.push(&message.payload).map_err(broken)?;
                taken(&message);
            }
            () = tokio::time::sleep(pause_max) => return Err(Broken::Silent(pause_max)),
        }
    }
}

fn broken(error: MachineError) -> Broken {
    Broken::Machine(Box::new(error))
}
