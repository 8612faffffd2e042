//! The controller's half of all users of a round: who came, what they asked for, who uploaded.

use std::collections::HashSet;

use zeroize::Zeroizing;

use super::{
    Context, ControllerKey, ControllerSession, DUMMY, Error, OrderError, PublicKey, Terms, Upload,
};

/// A round that takes sealed requests until they are closed, and then sealed uploads.
///
/// A user is a number below the round's count of users: a place in this round, not an identity. Where
/// users are enrolled, each of them gets one place at most. The first request that opens takes the
/// place; the same bytes may come again, as they do where a network repeats them. A request or upload
/// that is refused leaves the place as it was, and the other users untouched.
pub struct SealedRound {
    terms: Terms,
    round: u64,
    seats: Vec<Seat>,
    /// The enrolled users that have a place.
    seated: HashSet<PublicKey>,
    /// Users × slots.
    ids: Zeroizing<Vec<u32>>,
    is_closed: bool,
}

#[derive(Default)]
enum Seat {
    #[default]
    Empty,
    Taken {
        session: Box<ControllerSession>,
        request: blake3::Hash,
        upload: Option<blake3::Hash>,
    },
}

impl SealedRound {
    /// A round of `users` under `terms`. `round` is a number that no other round has: see
    /// [`random_round`](super::random_round).
    ///
    /// # Errors
    /// [`Error::Setting`] for no users and for more than 2^32 slots in all.
    pub fn new(terms: &Terms, round: u64, users: usize) -> Result<Self, Error> {
        let slots = terms.shape().slots();
        let users_max = (1usize << 32) / slots;
        if !(1..=users_max).contains(&users) {
            let (value, max) = (users as u64, users_max as u64);
            return Err(Error::Setting { name: "users", value, min: 1, max });
        }
        let mut seats = Vec::new();
        seats.resize_with(users, Seat::default);
        let ids = Zeroizing::new(vec![DUMMY; users * slots]);
        let (terms, seated) = (terms.clone(), HashSet::new());
        Ok(Self { terms, round, seats, seated, ids, is_closed: false })
    }

    /// The round's number.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Places of users.
    pub fn users(&self) -> usize {
        self.seats.len()
    }

    /// Users whose requests were taken.
    pub fn requested(&self) -> usize {
        self.seats.iter().filter(|seat| matches!(seat, Seat::Taken { .. })).count()
    }

    /// Users whose uploads were taken.
    pub fn uploaded(&self) -> usize {
        let has_uploaded = |seat: &&Seat| matches!(seat, Seat::Taken { upload: Some(_), .. });
        self.seats.iter().filter(has_uploaded).count()
    }

    /// Whether requests are closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Takes the request of `user`.
    ///
    /// # Errors
    /// [`Error::UserRange`], [`Error::Order`] once requests are closed, where the place is taken or
    /// the enrolled user has another, and [`Error::Refused`].
    pub fn request(&mut self, key: &ControllerKey, user: u32, sealed: &[u8]) -> Result<(), Error> {
        let is_closed = self.is_closed;
        let seat = self.seat_mut(user)?;
        if let Seat::Taken { request, .. } = seat {
            return match *request == blake3::hash(sealed) {
                true => Ok(()),
                false => Err(OrderError::AlreadyRequested { user }.into()),
            };
        }
        if is_closed {
            return Err(OrderError::Closed { user }.into());
        }
        self.sit(key, user, sealed)
    }

    /// Takes the request of `user` in place of another sender's that was taken before: whose place it is
    /// then. Whether anything has changed: the very same request changes nothing.
    ///
    /// Before requests are closed nothing has come of them: no number of rows was drawn from the ids, no
    /// round was charged, and nobody was given rows. Afterwards a place is its user's to the end: the ids
    /// are part of what was drawn, and rows were sealed for their sender. An enrolled user has one place,
    /// which is what everyone may have, so none is taken from it.
    ///
    /// # Errors
    /// As [`request`](Self::request), and the place stays as it was.
    pub fn displace(
        &mut self,
        key: &ControllerKey,
        user: u32,
        sealed: &[u8],
    ) -> Result<bool, Error> {
        let (is_closed, is_enrolled) = (self.is_closed, self.terms.authority().is_some());
        match self.seat_mut(user)? {
            Seat::Taken { request, .. } if *request == blake3::hash(sealed) => return Ok(false),
            _ if is_closed => return Err(OrderError::Closed { user }.into()),
            Seat::Taken { .. } if is_enrolled => {
                return Err(OrderError::AlreadyRequested { user }.into());
            }
            _ => {}
        }
        self.sit(key, user, sealed).map(|()| true)
    }

    /// Opens a request, and gives its sender the place.
    fn sit(&mut self, key: &ControllerKey, user: u32, sealed: &[u8]) -> Result<(), Error> {
        let slots = self.terms.shape().slots();
        let context = Context::new(&self.terms, self.round, user);
        let (session, ids) = ControllerSession::open(key, &context, sealed)?;
        if let Some(sender) = session.sender()
            && !self.seated.insert(*sender)
        {
            return Err(OrderError::AlreadySeated.into());
        }
        let (session, request) = (Box::new(session), blake3::hash(sealed));
        self.seats[user as usize] = Seat::Taken { session, request, upload: None };
        self.ids[user as usize * slots..][..slots].copy_from_slice(&ids);
        Ok(())
    }

    /// Takes no more requests. The ids of users × slots, [`DUMMY`] for whoever did not come: their
    /// number says nothing of who did.
    pub fn close(&mut self) -> &[u32] {
        self.is_closed = true;
        &self.ids
    }

    /// Seals the rows of `user`, which made a request.
    ///
    /// # Errors
    /// [`Error::UserRange`], [`Error::Order`], and those of [`ControllerSession::reply`].
    pub fn reply(&self, user: u32, rows: &[f32], found: &[bool]) -> Result<Vec<u8>, Error> {
        self.session(user)?.reply(rows, found)
    }

    /// Whether `user` may be given rows.
    ///
    /// # Errors
    /// [`Error::UserRange`]; [`Error::Order`] where the round has not begun, or without the user.
    pub fn check_member(&self, user: u32) -> Result<(), Error> {
        self.session(user).map(|_| ())
    }

    /// Opens the upload of `user`; None where the very same was taken before.
    ///
    /// # Errors
    /// [`Error::UserRange`], [`Error::Order`], and those of [`ControllerSession::upload`].
    pub fn upload(&mut self, user: u32, sealed: &[u8]) -> Result<Option<Upload>, Error> {
        self.session(user)?;
        let Seat::Taken { session, upload, .. } = self.seat_mut(user)? else {
            return Err(OrderError::NotRequested { user }.into());
        };
        if let Some(upload) = upload {
            return match *upload == blake3::hash(sealed) {
                true => Ok(None),
                false => Err(OrderError::AlreadyUploaded { user }.into()),
            };
        }
        let opened = session.upload(sealed)?;
        *upload = Some(blake3::hash(sealed));
        Ok(Some(opened))
    }

    /// Forgets the upload of `user`, which was taken and could not be added: it may come again.
    pub fn forget_upload(&mut self, user: u32) {
        if let Some(Seat::Taken { upload, .. }) = self.seats.get_mut(user as usize) {
            *upload = None;
        }
    }

    fn session(&self, user: u32) -> Result<&ControllerSession, Error> {
        let seat = self.seats.get(user as usize).ok_or_else(|| self.range(user))?;
        match seat {
            _ if !self.is_closed => Err(OrderError::Open.into()),
            Seat::Empty => Err(OrderError::NotRequested { user }.into()),
            Seat::Taken { session, .. } => Ok(session),
        }
    }

    fn seat_mut(&mut self, user: u32) -> Result<&mut Seat, Error> {
        let range = self.range(user);
        self.seats.get_mut(user as usize).ok_or(range)
    }

    fn range(&self, user: u32) -> Error {
        Error::UserRange { user, users: self.seats.len() }
    }
}
