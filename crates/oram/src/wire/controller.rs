//! The controller's half of one user's round.

use std::hint::black_box;

use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, OpModeR, setup_receiver};
use hushtable_prg::valgrind::{declassify, mark_secret};
use hushtable_prg::{Secret, fill_random};
use zeroize::Zeroizing;

use super::enrolment::{CREDENTIAL_BYTES, check_credential};
use super::message::{
    ENCAPSULATED_BYTES, MessageKey, NONCE_BYTES, REPLY_LABEL, UPLOAD_LABEL, all_finite, is_weight,
    read_numbers,
};
use super::{Context, ControllerKey, DUMMY, Error, PublicKey, RefusedReason, Shape};

/// One user at the controller, from its opened request on.
pub struct ControllerSession {
    shape: Shape,
    sender: Option<PublicKey>,
    reply_key: MessageKey,
    upload_key: MessageKey,
}

/// What a user learnt.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Upload {
    /// Slots × dim finite numbers, in the slots' order.
    pub gradients: Vec<f32>,
    /// The user's weight among the others, 0 to [`WEIGHT_MAX`](crate::aggregate::WEIGHT_MAX).
    pub weight: f32,
}

impl ControllerSession {
    /// Opens a request: the session, and the ids of all slots, [`DUMMY`] in the empty ones.
    ///
    /// Whether all ids are rows is looked at branch-free; that a request is refused becomes known.
    ///
    /// # Errors
    /// [`Error::Refused`], whatever is wrong with it.
    pub fn open(
        key: &ControllerKey,
        context: &Context,
        sealed: &[u8],
    ) -> Result<(Self, Zeroizing<Vec<u32>>), Error> {
        let refused = |reason| Error::Refused { what: "request", reason };
        if sealed.len() != context.terms().request_bytes() {
            return Err(refused(RefusedReason::NotOpened));
        }
        Self::open_sized(key, context, sealed).map_err(refused)
    }

    fn open_sized(
        key: &ControllerKey,
        context: &Context,
        sealed: &[u8],
    ) -> Result<(Self, Zeroizing<Vec<u32>>), RefusedReason> {
        let not_opened = RefusedReason::NotOpened;
        let terms = context.terms();
        let (sender, mode, sealed) = match terms.authority() {
            None => (None, OpModeR::Base, sealed),
            Some(authority) => {
                let (credential, sealed) =
                    sealed.split_at_checked(CREDENTIAL_BYTES).ok_or(not_opened)?;
                let sender = check_credential(key, terms, authority, credential)
                    .ok_or(RefusedReason::Enrolment)?;
                (
                    Some(sender),
                    OpModeR::Auth(sender.to_kem().map_err(|_| RefusedReason::Enrolment)?),
                    sealed,
                )
            }
        };
        let (encapsulated, sealed) =
            sealed.split_at_checked(ENCAPSULATED_BYTES).ok_or(not_opened)?;
        let encapsulated = <X25519HkdfSha256 as Kem>::EncappedKey::from_bytes(encapsulated)
            .map_err(|_| not_opened)?;
        let mut receiver = setup_receiver::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &mode,
            &key.secret,
            &encapsulated,
            &context.info(),
        )
        .map_err(|_| not_opened)?;
        let mut text = Zeroizing::new(receiver.open(sealed, &[]).map_err(|_| not_opened)?);
        mark_secret(&mut text[12..]);
        let export = |label: &[u8]| {
            let mut key = Secret::new([0; 32]);
            receiver.export(label, key.expose_mut()).map_err(|_| not_opened)?;
            Ok(key)
        };
        let reply_key = MessageKey::new("reply", export(REPLY_LABEL)?);
        let upload_key = MessageKey::new("upload", export(UPLOAD_LABEL)?);

        // Round and user are bound by the keys already; a user that says otherwise is confused.
        let said = (&text[..8], &text[8..12]);
        if said != (&context.round().to_le_bytes()[..], &context.user().to_le_bytes()[..]) {
            return Err(RefusedReason::Ids);
        }
        let (chunks, _) = text[12..].as_chunks::<4>();
        let ids: Vec<u32> = chunks.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let ids = Zeroizing::new(ids);
        match are_rows(&ids, terms.rows()) {
            true => Ok((Self { shape: terms.shape(), sender, reply_key, upload_key }, ids)),
            false => Err(RefusedReason::Ids),
        }
    }

    /// The enrolled user whose request it was; None where users are not enrolled.
    pub fn sender(&self) -> Option<&PublicKey> {
        self.sender.as_ref()
    }

    /// Seals a user's rows: slots × dim numbers, and whether each slot's row is the table's.
    ///
    /// # Errors
    /// [`Error::Numbers`] for another number of them, [`Error::Entropy`].
    pub fn reply(&self, rows: &[f32], found: &[bool]) -> Result<Vec<u8>, Error> {
        check_count("rows", rows.len(), self.shape.numbers())?;
        check_count("flags", found.len(), self.shape.slots())?;
        let mut text = Zeroizing::new(Vec::with_capacity(self.shape.reply_text_bytes()));
        text.extend(found.iter().map(|&found| u8::from(found)));
        for number in rows {
            text.extend_from_slice(&number.to_le_bytes());
        }
        let mut nonce = [0; NONCE_BYTES];
        fill_random(&mut nonce)?;
        self.reply_key.seal(&nonce, &text)
    }

    /// Opens a user's upload.
    ///
    /// # Errors
    /// [`Error::Refused`], whatever is wrong with it.
    pub fn upload(&self, sealed: &[u8]) -> Result<Upload, Error> {
        let text = self.upload_key.open(sealed, self.shape.upload_text_bytes())?;
        let (weight, gradients) = text.split_at(4);
        let gradients = read_numbers(gradients);
        let weight = read_numbers(weight)[0];
        // That an upload is refused is told, and which of the two it is.
        let refused = |reason| Err(Error::Refused { what: "upload", reason });
        match (all_finite(&gradients), is_weight(weight)) {
            (true, true) => Ok(Upload { gradients, weight }),
            (false, _) => refused(RefusedReason::NotFinite),
            (true, false) => refused(RefusedReason::Weight),
        }
    }
}

/// Whether each id is a row or [`DUMMY`], looking at all of them alike.
pub(super) fn are_rows(ids: &[u32], rows: u64) -> bool {
    let bad = ids.iter().fold(0, |bad, &id| {
        let is_row = (u64::from(id).wrapping_sub(rows)) >> 63;
        // The sum is 2^32 for DUMMY alone.
        let is_dummy = (u64::from(id) + u64::from(u32::MAX - DUMMY) + 1) >> 32;
        bad | (1 ^ (is_row | is_dummy))
    });
    // That a request is refused is told, and no more than that of its ids.
    let mut bad = black_box(bad);
    declassify(&mut bad);
    bad == 0
}

fn check_count(what: &'static str, found: usize, expected: usize) -> Result<(), Error> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::Numbers { what, expected, found }),
    }
}
