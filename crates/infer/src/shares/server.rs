//! One server's half of an inference, as a machine over messages.

use std::sync::Arc;

use hushtable_mpc::Platform;
use hushtable_mpc::compare::Half;
use hushtable_mpc::compare::Prg;
use hushtable_mpc::share::{join, pack, unpack};
use zeroize::Zeroize;

use super::dealt::Dealt;
use super::dense::dense_share;
use super::joint::Precompute;
use super::linear::shrink;
use super::network::{Layer, Network, Slot};
use super::outline::SEED_BYTES;
use super::steps::{Keys, Opened};
use super::stream::{PRG, Zeros, dealt_stream, zero_stream};
use super::words::{mask, take};
use super::{Error, convert};

/// What an inference does next.
#[derive(Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "whoever drives it does both")]
pub enum Progress {
    /// Sends this to the other server and awaits its message.
    Send(Vec<u8>),
    /// Sends this share of the logit to the client. It is over.
    Done(Vec<u8>),
}

/// An inference on this server's shares. Everything that was dealt is used once and wiped with it: after a failure
/// the client deals anew.
pub struct Server {
    network: Arc<Network>,
    half: Half,
    prg: Prg,
    zeros: Zeros,
    dense: Vec<u32>,
    /// Until its bits are opened.
    rows: Option<(convert::Keys, Vec<u64>)>,
    /// Shares of all rows, summed by feature.
    values: Vec<u32>,
    /// Shares of what each step gave.
    outputs: Vec<Vec<u32>>,
    /// In the order of the steps.
    keys: std::vec::IntoIter<Keys>,
    waits: Waits,
    /// By step, what is left of each share where it is rounded: what tests hold the reference to.
    #[cfg(test)]
    pub(super) drawn: Vec<Vec<u32>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.dense.zeroize();
        self.values.zeroize();
        self.outputs.iter_mut().for_each(Zeroize::zeroize);
    }
}

/// What the other server's next message is.
enum Waits {
    /// Shares of X, to these own ones.
    Reveal {
        keys: Keys,
        own: Vec<u64>,
    },
    /// Shares of D.
    Select {
        keys: Keys,
        opened: Vec<u64>,
        own: Vec<u64>,
    },
    Nothing,
}

impl Server {
    /// Begins with what the client dealt to both and to this server, this server's XOR share of the rows (feature
    /// after feature), and a seed that both servers share and use for this inference alone.
    ///
    /// # Errors
    /// [`Error::Bytes`] where something is of another model.
    pub fn start(
        network: Arc<Network>,
        half: Half,
        common: &[u8],
        dealt: &[u8],
        rows: &[u8],
        zero_seed: &[u8; 32],
    ) -> Result<(Self, Progress), Error> {
        let outline = network.outline();
        outline.check_part(half, common, dealt)?;
        let mut given = dealt;
        let mut seed = [0; SEED_BYTES];
        seed.copy_from_slice(take(&mut given, SEED_BYTES)?);
        let own = dealt_stream(&seed);
        seed.zeroize();
        let given = (half == Half::Right).then_some(given);
        let mut dealt = Dealt::new(own, common, given);
        let dense = dealt.numbers(outline.dense)?;
        Self::begin(network, half, dense, dealt, rows, zero_seed)
    }

    /// The same with what the servers made beforehand ([`joint`](super::joint)): of the client is this server's share of
    /// the dense features alone ([`share`](super::client::share)).
    ///
    /// # Errors
    /// [`Error::Precompute`] for one of another model or of the other server, [`Error::Bytes`] where something else is of
    /// another model.
    pub fn start_precomputed(
        network: Arc<Network>,
        half: Half,
        precompute: &Precompute,
        dense: &[u8],
        rows: &[u8],
        zero_seed: &[u8; 32],
    ) -> Result<(Self, Progress), Error> {
        let outline = network.outline();
        precompute.check(outline, half)?;
        let dense = dense_share(outline, half, dense)?;
        let dealt = precompute.dealt();
        Self::begin(network, half, dense, dealt, rows, zero_seed)
    }

    fn begin(
        network: Arc<Network>,
        half: Half,
        dense: Vec<u32>,
        mut dealt: Dealt<'_>,
        rows: &[u8],
        zero_seed: &[u8; 32],
    ) -> Result<(Self, Progress), Error> {
        let outline = network.outline();
        outline.check_rows(rows)?;
        let converting = convert::Keys::take(outline, half, &mut dealt)?;
        let opening = converting.reveal(rows);
        let keys = outline.steps.iter().map(|step| Keys::take(*step, half, &mut dealt));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let mut server = Self {
            half,
            prg: Prg::new(PRG, Platform::detect()),
            zeros: zero_stream(zero_seed, half),
            dense,
            rows: Some((converting, opening)),
            values: Vec::new(),
            outputs: Vec::new(),
            keys: keys.into_iter(),
            waits: Waits::Nothing,
            network,
            #[cfg(test)]
            drawn: Vec::new(),
        };
        let bits = server.rows.as_ref().map(|(_, own)| pack(1, own)).unwrap_or_default();
        // Where the first step reads rows, they are opened in a message of their own.
        let own = match server.network.outline().rows_first {
            true => Vec::new(),
            false => server.reveal(),
        };
        Ok((server, Progress::Send([bits, own].concat())))
    }

    /// Takes the other server's message.
    ///
    /// # Errors
    /// [`Error::Packed`] and [`Error::Bytes`] for one of another length, [`Error::Finished`] after the last. The
    /// inference is over then.
    pub fn step(&mut self, message: &[u8]) -> Result<Progress, Error> {
        let waits = std::mem::replace(&mut self.waits, Waits::Nothing);
        let mut message = message;
        if let Some((converting, own)) = self.rows.take() {
            let bits = take(&mut message, own.len().div_ceil(8))?;
            let opened = joined(1, &own, bits)?;
            self.values = converting.finish(self.network.outline(), &opened);
            if matches!(waits, Waits::Nothing) {
                if !message.is_empty() {
                    let (expected, found) = (0, message.len());
                    return Err(Error::Bytes { what: "the rest of a message", expected, found });
                }
                return Ok(self.next());
            }
        }
        match waits {
            Waits::Reveal { keys, own } => {
                let bits = self.network.steps[self.outputs.len()].0.bits;
                let opened = joined(bits, &own, message)?;
                match keys.opened(self.prg, &opened)? {
                    Opened::Outputs(outputs) => {
                        self.outputs.push(outputs);
                        Ok(self.next())
                    }
                    Opened::Bits(own) => {
                        let packed = pack(1, &own);
                        self.waits = Waits::Select { keys, opened, own };
                        Ok(Progress::Send(packed))
                    }
                }
            }
            Waits::Select { keys, opened, own } => {
                let selected = joined(1, &own, message)?;
                self.outputs.push(keys.selected(&opened, &selected)?);
                Ok(self.next())
            }
            Waits::Nothing => Err(Error::Finished),
        }
    }

    /// Goes on with the layer whose inputs are there.
    fn next(&mut self) -> Progress {
        if self.outputs.len() < self.network.steps.len() {
            return Progress::Send(self.reveal());
        }
        let network = Arc::clone(&self.network);
        let mut logit = self.sums(&network.last);
        // The client sees both shares: fresh ones say nothing but their sum.
        self.zeros.refresh(&mut logit);
        let share = (logit[0] & mask(network.last.bits)).to_le_bytes();
        Progress::Done(share[..network.outline().logit_bytes()].to_vec())
    }

    /// This server's shares of a layer's sums, cut.
    fn sums(&mut self, layer: &Layer) -> Vec<u32> {
        let of = |slot: &Slot| match *slot {
            Slot::Dense => &self.dense[..],
            Slot::Rows => &self.values,
            Slot::Outputs(step) => &self.outputs[step],
        };
        let inputs = layer.reads.iter().map(of).collect::<Vec<_>>().concat();
        let mut sums = layer.sums.apply(self.half, inputs);
        // What is cut off must be uniform in left's share: else rounding is biased.
        self.zeros.refresh(&mut sums);
        #[cfg(test)]
        self.drawn.push(sums.clone());
        shrink(self.half, &mut sums, layer.cut, layer.bits);
        sums
    }

    /// This server's shares of what the next step opens first.
    fn reveal(&mut self) -> Vec<u8> {
        let network = Arc::clone(&self.network);
        let (layer, _) = &network.steps[self.outputs.len()];
        let mut sums = self.sums(layer);
        let keys = self.keys.next().expect("keys for each step, for lengths were checked");
        let own = keys.reveal(&sums);
        sums.zeroize();
        let packed = pack(layer.bits, &own);
        self.waits = Waits::Reveal { keys, own };
        packed
    }
}

/// Opens shares: those of a message and our own.
fn joined(bits: u32, own: &[u64], message: &[u8]) -> Result<Vec<u64>, Error> {
    let other = unpack(bits, own.len(), message)?;
    Ok(join(bits, own, &other))
}
