//! Bytes as they are in files: AEGIS-256 (draft-irtf-cfrg-aegis-aead), with nonces drawn at random.

use std::io;

use aegis::aegis256::Aegis256;
use hushtable_mpc::{EntropyError, fill_random};
use zeroize::Zeroizing;

use super::identity::{IDENTITY_BYTES, Identity};
use super::spec::{Cause, Head, RECORDS_MAX, Role};

const NONCE_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
/// Bytes that sealing adds: nonce and tag, before the text.
pub(super) const SEAL_BYTES: usize = NONCE_BYTES + TAG_BYTES;
/// Bytes of a record that are sealed and written at a time: they stay in the cache.
const PIECE_BYTES: usize = 1 << 16;
/// What a key's file begins with: its kind and version.
const MAGIC: [u8; 8] = *b"htprec\x00\x02";
/// Bytes of a key's file before the sizes, without seal and magic.
const FIXED_BYTES: usize = ORIGIN_BYTES + 32 + 32 + 1 + 1 + 4;
const ORIGIN_BYTES: usize = 16 + 8 + IDENTITY_BYTES;
/// Most bytes of a key's file.
pub(super) const KEY_FILE_BYTES_MAX: usize =
    MAGIC.len() + SEAL_BYTES + FIXED_BYTES + 8 * RECORDS_MAX;

/// What a folder's files are sealed by.
pub(super) struct Seals {
    pub(super) key: Zeroizing<[u8; 32]>,
    /// The folder's id.
    pub(super) store: [u8; 16],
}

/// What is bound to a key's file, so that it is none in another place.
pub(super) struct Origin {
    /// Its number in the ledger.
    pub(super) number: u64,
    /// The file's own identity.
    pub(super) file: Identity,
}

/// A precompute's key, what it is of, and where its records are.
pub(super) struct Contents {
    pub(super) head: Head,
    key: Zeroizing<[u8; 32]>,
    /// Where each record's seal begins in the data, and where the last one's ends.
    offsets: Vec<u64>,
}

impl Contents {
    /// With a new key.
    pub(super) fn new(head: Head, record_bytes: &[u64]) -> Result<Self, EntropyError> {
        let mut key = Zeroizing::new([0; 32]);
        fill_random(&mut *key)?;
        Ok(Self { head, key, offsets: offsets(record_bytes.iter().copied()) })
    }

    pub(super) fn records(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Bytes of a record, where there is one of that number.
    pub(super) fn record_bytes(&self, record: usize) -> Option<usize> {
        let (start, end) = (self.offsets.get(record)?, self.offsets.get(record + 1)?);
        usize::try_from(end - start).ok()?.checked_sub(SEAL_BYTES)
    }

    pub(super) fn offset(&self, record: usize) -> u64 {
        self.offsets[record]
    }

    /// Bytes of the data's file.
    pub(super) fn data_bytes(&self) -> u64 {
        self.offsets[self.records()]
    }

    /// Bytes of both files.
    pub(super) fn bytes(&self) -> u64 {
        self.data_bytes().saturating_add(key_file_bytes(self.records()))
    }

    /// The key's file.
    pub(super) fn to_file(&self, seals: &Seals, origin: &Origin) -> Result<Vec<u8>, EntropyError> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(FIXED_BYTES + 8 * self.records()));
        bytes.extend_from_slice(&seals.store);
        bytes.extend(origin.number.to_le_bytes());
        bytes.extend_from_slice(&origin.file);
        bytes.extend_from_slice(&*self.key);
        bytes.extend_from_slice(&self.head.plan);
        bytes.push(u8::from(self.head.client_garbles));
        bytes.push(role_byte(self.head.role));
        bytes.extend((self.records() as u32).to_le_bytes());
        for pair in self.offsets.windows(2) {
            bytes.extend((pair[1] - pair[0] - SEAL_BYTES as u64).to_le_bytes());
        }
        let mut file = MAGIC.to_vec();
        file.extend(seal(&seals.key, &file_place(&self.head.id), &bytes)?);
        Ok(file)
    }

    /// Reads a key's file, of this identity; with it its number in the ledger.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of_file(
        seals: &Seals,
        id: [u8; 16],
        file: &[u8],
        own: &Identity,
    ) -> Result<(Self, u64), Cause> {
        let other_kind =
            Cause::Damaged("its key's file is of another kind, or of an older version");
        let sealed = file.strip_prefix(&MAGIC).ok_or(other_kind)?;
        let changed = Cause::Damaged("its key's file was changed or cut");
        let (before, text) = sealed.split_first_chunk::<SEAL_BYTES>().ok_or(changed)?;
        let mut bytes = Zeroizing::new(text.to_vec());
        if !open(&seals.key, &file_place(&id), before, &mut bytes) {
            return Err(changed);
        }
        let short = Cause::Damaged("its key's file is too short");
        let (store, rest) = bytes.split_first_chunk::<16>().ok_or(short)?;
        let (number, rest) = rest.split_first_chunk::<8>().ok_or(short)?;
        let (file, rest) = rest.split_first_chunk::<IDENTITY_BYTES>().ok_or(short)?;
        if *store != seals.store || file != own {
            return Err(Cause::Copied);
        }
        let (key, rest) = rest.split_first_chunk::<32>().ok_or(short)?;
        let (plan, rest) = rest.split_first_chunk::<32>().ok_or(short)?;
        let ([garbles, role], rest) = rest.split_first_chunk::<2>().ok_or(short)?;
        let (count, rest) = rest.split_first_chunk::<4>().ok_or(short)?;
        let (sizes, odd) = rest.as_chunks::<8>();
        let is_counted = sizes.len() == u32::from_le_bytes(*count) as usize && odd.is_empty();
        let role = ROLES.into_iter().find(|it| role_byte(*it) == *role);
        let (true, Some(role), true) = (*garbles < 2, role, is_counted) else {
            return Err(Cause::Damaged("its key's file is malformed"));
        };
        let sizes = sizes.iter().map(|size| u64::from_le_bytes(*size));
        let own = Self {
            head: Head { id, plan: *plan, client_garbles: *garbles == 1, role },
            key: Zeroizing::new(*key),
            offsets: offsets(sizes),
        };
        Ok((own, u64::from_le_bytes(*number)))
    }

    /// Writes a record as it is in the data: `write` takes bytes and where they go.
    ///
    /// # Errors
    /// What `write` says, or that there is no entropy.
    pub(super) fn seal(
        &self,
        record: usize,
        bytes: &[u8],
        mut write: impl FnMut(&[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut nonce = [0; NONCE_BYTES];
        fill_random(&mut nonce).map_err(io::Error::other)?;
        let cipher = Aegis256::<TAG_BYTES>::new(&self.key, &nonce);
        let mut encryptor = cipher.encryptor(&self.place(record));
        let mut sealed = vec![0; PIECE_BYTES.min(bytes.len())];
        let mut place = self.offset(record) + SEAL_BYTES as u64;
        for piece in bytes.chunks(PIECE_BYTES) {
            let sealed = &mut sealed[..piece.len()];
            encryptor.update(piece, sealed);
            write(sealed, place)?;
            place += piece.len() as u64;
        }
        let mut before = [0; SEAL_BYTES];
        before[..NONCE_BYTES].copy_from_slice(&nonce);
        before[NONCE_BYTES..].copy_from_slice(&encryptor.finalize());
        write(&before, self.offset(record))
    }

    /// Opens a record of what is in the data, in place; whether it is what was kept.
    pub(super) fn open(&self, record: usize, before: &[u8; SEAL_BYTES], text: &mut [u8]) -> bool {
        open(&self.key, &self.place(record), before, text)
    }

    fn place(&self, record: usize) -> Vec<u8> {
        let mut place = b"record".to_vec();
        place.extend(self.head.id);
        place.extend(self.head.plan);
        place.extend([u8::from(self.head.client_garbles), role_byte(self.head.role)]);
        place.extend((record as u64).to_le_bytes());
        place
    }
}

/// Bytes of the files of a precompute of records of these sizes.
pub(super) fn bytes_of(record_bytes: &[u64]) -> u64 {
    let data = offsets(record_bytes.iter().copied()).last().copied().unwrap_or_default();
    data.saturating_add(key_file_bytes(record_bytes.len()))
}

fn key_file_bytes(records: usize) -> u64 {
    (MAGIC.len() + SEAL_BYTES + FIXED_BYTES + 8 * records) as u64
}

/// What a folder keeps to know its key by.
pub(super) fn check_of(store_key: &[u8; 32]) -> [u8; 32] {
    blake3::keyed_hash(store_key, b"hushtable precomputes v1").into()
}

/// What a folder keeps to know its own id by, in a file of this identity.
pub(super) fn id_file(store_key: &[u8; 32], id: &[u8; 16], file: &Identity) -> [u8; 48] {
    let text = [b"hushtable precomputes, the folder's id".as_slice(), id, file].concat();
    let mut bytes = [0; 48];
    bytes[..16].copy_from_slice(id);
    bytes[16..].copy_from_slice(blake3::keyed_hash(store_key, &text).as_bytes());
    bytes
}

fn offsets(record_bytes: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut end = 0_u64;
    let ends = record_bytes.map(|bytes| {
        // A sum past all numbers is past every bound too.
        end = end.saturating_add(bytes).saturating_add(SEAL_BYTES as u64);
        end
    });
    std::iter::once(0).chain(ends).collect()
}

const ROLES: [Role; 4] = [Role::Client, Role::Server, Role::Left, Role::Right];

fn role_byte(role: Role) -> u8 {
    match role {
        Role::Client => 1,
        Role::Server => 2,
        Role::Left => 3,
        Role::Right => 4,
    }
}

fn file_place(id: &[u8; 16]) -> Vec<u8> {
    [b"precompute".as_slice(), id].concat()
}

fn seal(key: &[u8; 32], place: &[u8], bytes: &[u8]) -> Result<Vec<u8>, EntropyError> {
    let mut nonce = [0; NONCE_BYTES];
    fill_random(&mut nonce)?;
    let (text, tag) = Aegis256::<TAG_BYTES>::new(key, &nonce).encrypt(bytes, place);
    Ok([nonce.as_slice(), &tag, &text].concat())
}

/// Opens in place; whether the bytes are those that were sealed.
fn open(key: &[u8; 32], place: &[u8], before: &[u8; SEAL_BYTES], text: &mut [u8]) -> bool {
    let (mut nonce, mut tag) = ([0; NONCE_BYTES], [0; TAG_BYTES]);
    nonce.copy_from_slice(&before[..NONCE_BYTES]);
    tag.copy_from_slice(&before[NONCE_BYTES..]);
    Aegis256::<TAG_BYTES>::new(key, &nonce).decrypt_in_place(text, &tag, place).is_ok()
}
