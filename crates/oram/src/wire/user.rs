//! A user's half of a round.

use hpke::aead::{AeadCtxS, ChaCha20Poly1305};
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{OpModeS, Serializable, setup_sender_with_rng};
use hushtable_prg::{Secret, fill_random};
use rand::Rng;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use zeroize::Zeroizing;

use super::controller::are_rows;
use super::message::{
    MessageKey, NONCE_BYTES, REPLY_LABEL, UPLOAD_LABEL, all_finite, is_weight, read_numbers,
};
use super::{Context, Credential, DUMMY, Error, OrderError, Pin, RefusedReason, Terms};

/// A user in one round: makes a request, opens the reply, makes the upload.
pub struct UserSession {
    context: Context,
    /// What goes before the sealed text: the credential, where users have one, and the encapsulated
    /// key.
    head: Vec<u8>,
    /// Taken by the request: a second one under it would not open.
    sender: Option<AeadCtxS<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>>,
    reply_key: MessageKey,
    upload_key: MessageKey,
    random: ChaCha20Rng,
}

/// The rows that a user asked for.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reply {
    /// Slots × dim numbers, in the slots' order.
    pub rows: Vec<f32>,
    /// Whether a slot's row is the table's. What stands in its place where it is not is the
    /// controller's to say (a row lost to differential privacy; an empty slot).
    pub found: Vec<bool>,
}

impl UserSession {
    /// A session with the controller of `pin`, by the user of `credential` where the controller's
    /// users are enrolled.
    ///
    /// # Errors
    /// [`Error::Pinned`] for a context under other terms, [`Error::NoCredential`] without one that
    /// the terms ask for, [`Error::PublicKey`] for a key that no secret can be shared with,
    /// [`Error::Entropy`].
    pub fn new(
        pin: &Pin,
        context: Context,
        credential: Option<&Credential>,
    ) -> Result<Self, Error> {
        let mut seed = Secret::new([0; 32]);
        fill_random(seed.expose_mut())?;
        Self::from_seed(pin, context, credential, &seed)
    }

    /// A session whose randomness follows from `seed`: for known-answer tests. Two sessions of one
    /// seed and key share all their secrets.
    ///
    /// # Errors
    /// As [`new`](Self::new), but for entropy.
    pub fn from_seed(
        pin: &Pin,
        context: Context,
        credential: Option<&Credential>,
        seed: &Secret<[u8; 32]>,
    ) -> Result<Self, Error> {
        if context.terms().hash() != pin.terms() {
            return Err(Error::Pinned);
        }
        let (mode, mut head) = match (context.terms().authority(), credential) {
            (None, _) => (OpModeS::Base, Vec::new()),
            (Some(_), None) => return Err(Error::NoCredential),
            (Some(_), Some(credential)) => {
                (OpModeS::Auth(credential.key().pair()?), credential.to_bytes().to_vec())
            }
        };
        let mut random = ChaCha20Rng::from_seed(*seed.expose());
        let unusable = |_| Error::PublicKey { bytes: pin.key().as_bytes().len() };
        let (encapsulated, sender) = setup_sender_with_rng::<
            ChaCha20Poly1305,
            HkdfSha256,
            X25519HkdfSha256,
        >(
            &mode, &pin.key().to_kem()?, &context.info(), &mut random
        )
        .map_err(unusable)?;
        let export = |label: &[u8]| {
            let mut key = Secret::new([0; 32]);
            sender.export(label, key.expose_mut()).map_err(unusable)?;
            Ok::<_, Error>(key)
        };
        let reply_key = MessageKey::new("reply", export(REPLY_LABEL)?);
        let upload_key = MessageKey::new("upload", export(UPLOAD_LABEL)?);
        head.extend_from_slice(&encapsulated.to_bytes());
        Ok(Self { context, head, sender: Some(sender), reply_key, upload_key, random })
    }

    /// The session as bytes, its keys among them, to go on in another process of this user's. They
    /// open what the user is sent and speak for it: as secret as the ids.
    ///
    /// # Errors
    /// [`Error::Order`] before the request is made: until then there is nothing to go on with.
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        if self.sender.is_some() {
            return Err(OrderError::NotYetRequested.into());
        }
        let terms = self.context.terms().text();
        let kept_bytes = KEPT_LABEL.len() + 64 + 12 + terms.len();
        let mut bytes = Zeroizing::new(Vec::with_capacity(kept_bytes));
        bytes.extend_from_slice(KEPT_LABEL);
        bytes.extend_from_slice(self.reply_key.expose());
        bytes.extend_from_slice(self.upload_key.expose());
        bytes.extend_from_slice(&self.context.round().to_le_bytes());
        bytes.extend_from_slice(&self.context.user().to_le_bytes());
        bytes.extend_from_slice(terms);
        Ok(bytes)
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// [`Error::Kept`] for any other bytes, [`Error::Entropy`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let kept = || Error::Kept { bytes: bytes.len() };
        let rest = bytes.strip_prefix(KEPT_LABEL).ok_or_else(kept)?;
        let (reply, rest) = rest.split_first_chunk::<32>().ok_or_else(kept)?;
        let (upload, rest) = rest.split_first_chunk::<32>().ok_or_else(kept)?;
        let (round, rest) = rest.split_first_chunk().ok_or_else(kept)?;
        let (user, terms) = rest.split_first_chunk().ok_or_else(kept)?;
        let terms = Terms::read(terms).map_err(|_| kept())?;
        let context = Context::new(&terms, u64::from_le_bytes(*round), u32::from_le_bytes(*user));
        // Fresh, so that an upload here repeats no nonce of one there.
        let mut seed = Secret::new([0; 32]);
        fill_random(seed.expose_mut())?;
        Ok(Self {
            context,
            head: Vec::new(),
            sender: None,
            reply_key: MessageKey::new("reply", Secret::new(*reply)),
            upload_key: MessageKey::new("upload", Secret::new(*upload)),
            random: ChaCha20Rng::from_seed(*seed.expose()),
        })
    }

    /// What the messages are bound to.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Asks for the rows `ids`, at most as many as there are slots; [`DUMMY`] asks for none.
    ///
    /// # Errors
    /// [`Error::TooManyIds`], [`Error::IdRange`], [`Error::Order`] for a second request: then
    /// nothing is sealed.
    pub fn request(&mut self, ids: &[u32]) -> Result<Vec<u8>, Error> {
        let (slots, rows) = (self.context.shape().slots(), self.context.terms().rows());
        if ids.len() > slots {
            return Err(Error::TooManyIds { slots });
        }
        if !are_rows(ids, rows) {
            return Err(Error::IdRange { rows });
        }
        self.seal(ids)
    }

    /// The request for `ids`, which are as many as there are slots at most.
    pub(super) fn seal(&mut self, ids: &[u32]) -> Result<Vec<u8>, Error> {
        let slots = self.context.shape().slots();
        let mut sender = self.sender.take().ok_or(OrderError::Requested)?;
        let mut text =
            Zeroizing::new(Vec::with_capacity(self.context.shape().request_text_bytes()));
        text.extend_from_slice(&self.context.round().to_le_bytes());
        text.extend_from_slice(&self.context.user().to_le_bytes());
        let empty = std::iter::repeat_n(&DUMMY, slots - ids.len());
        for id in ids.iter().chain(empty) {
            text.extend_from_slice(&id.to_le_bytes());
        }
        let refused = |reason| Error::Refused { what: "request", reason };
        let sealed = sender.seal(&text, &[]).map_err(|_| refused(RefusedReason::Failed))?;
        Ok([&self.head[..], &sealed].concat())
    }

    /// Opens the controller's reply.
    ///
    /// # Errors
    /// [`Error::Refused`], whatever is wrong with it.
    pub fn reply(&self, sealed: &[u8]) -> Result<Reply, Error> {
        let shape = self.context.shape();
        let text = self.reply_key.open(sealed, shape.reply_text_bytes())?;
        let (flags, numbers) = text.split_at(shape.slots());
        let mut other_bits = flags.iter().fold(0, |all, flag| all | flag) >> 1;
        // Whether the reply is one that a controller makes, on the user's own device.
        hushtable_prg::valgrind::declassify(&mut other_bits);
        if other_bits != 0 {
            return Err(Error::Refused { what: "reply", reason: RefusedReason::NotOpened });
        }
        Ok(Reply {
            rows: read_numbers(numbers),
            found: flags.iter().map(|&flag| flag == 1).collect(),
        })
    }

    /// Seals what the user learnt: `gradients` of the first slots, row by row (those of the rest are
    /// zero), and the user's `weight` among the others (say, how many examples it has).
    ///
    /// # Errors
    /// [`Error::Gradients`] for gradients that are no whole rows or more than there are slots,
    /// [`Error::NotFinite`], [`Error::Weight`].
    pub fn upload(&mut self, gradients: &[f32], weight: f32) -> Result<Vec<u8>, Error> {
        let shape = self.context.shape();
        let (dim, slots) = (shape.dim(), shape.slots());
        if gradients.len() > shape.numbers() || !gradients.len().is_multiple_of(dim) {
            return Err(Error::Gradients { dim, slots });
        }
        if !all_finite(gradients) {
            return Err(Error::NotFinite);
        }
        if !is_weight(weight) {
            return Err(Error::Weight);
        }
        self.seal_upload(gradients, weight)
    }

    /// Seals an upload that nobody has looked at.
    pub(crate) fn seal_upload(&mut self, gradients: &[f32], weight: f32) -> Result<Vec<u8>, Error> {
        let shape = self.context.shape();
        let mut text = Zeroizing::new(Vec::with_capacity(shape.upload_text_bytes()));
        text.extend_from_slice(&weight.to_le_bytes());
        for number in gradients {
            text.extend_from_slice(&number.to_le_bytes());
        }
        text.resize(shape.upload_text_bytes(), 0);
        let mut nonce = [0; NONCE_BYTES];
        self.random.fill_bytes(&mut nonce);
        self.upload_key.seal(&nonce, &text)
    }
}

const KEPT_LABEL: &[u8] = b"hushtable session 2\0";
