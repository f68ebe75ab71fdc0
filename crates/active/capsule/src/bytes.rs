//! Messages as bytes; the head of the crate has the tables.

use crate::{Grant, Hash, Key, Limits, MAX_GRANT, Payer, Place};
use sha2::{Digest, Sha256};

/// The version of the format.
pub const VERSION: u8 = 1;
/// The bytes of a capsule before its grant and arguments.
pub const HEADER: usize = 112;
/// The bytes of a request, and of an answer before its code.
pub const CODE_HEADER: usize = 40;
/// The bytes of a delivery before its own.
pub const DELIVERY_HEADER: usize = 24;
/// The most bytes of arguments, and of a delivery.
pub const MAX_ARGUMENTS: usize = 1024;
/// The most bytes of code.
pub const MAX_CODE: usize = 8191;
/// The most bytes of a message.
pub const MAX_MESSAGE: usize = HEADER + MAX_GRANT + MAX_ARGUMENTS + MAX_CODE;

/// A message between two nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "most are capsules, and reading one allocates nothing")]
pub enum Message<'a> {
    Capsule(Capsule<'a>),
    Request(Request),
    Code(CodeMessage<'a>),
    Delivery(Delivery<'a>),
}

/// A program on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capsule<'a> {
    pub function: u8,
    pub limits: Limits,
    /// The node at which it began.
    pub origin: Place,
    /// The node that evaluates it; [`Place::NOWHERE`] is the receiver.
    pub place: Place,
    pub payer: Payer,
    pub key: Key,
    pub hash: Hash,
    /// What the payer's credential leaves.
    pub grant: Grant,
    pub arguments: &'a [u8],
    /// The code, which may be absent, and has the hash if it was read.
    pub code: Option<&'a [u8]>,
}

/// A request for the code of a capsule, to the node that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The longest code that is taken.
    pub most: u32,
    pub hash: Hash,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeMessage<'a> {
    pub hash: Hash,
    /// The code, which has the hash if it was read.
    pub code: &'a [u8],
}

/// Bytes for a host, from a capsule that it began, or from one of the same payer and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    pub key: Key,
    pub bytes: &'a [u8],
}

/// The first field of a message that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the field \"{field}\" at byte {at} is {found}, expected {expected}: it was damaged, or is of others"
)]
pub struct Malformed {
    pub field: &'static str,
    pub at: usize,
    /// The value, or the number of bytes that are there.
    pub found: u64,
    pub expected: &'static str,
}

/// Returns the hash of code.
#[must_use]
pub fn hash_of(code: &[u8]) -> Hash {
    Hash(Sha256::digest(code).into())
}

impl<'a> Message<'a> {
    /// Reads a message. The work is linear in its length, and nothing is allocated.
    ///
    /// # Errors
    ///
    /// Returns the first field that is wrong if the bytes are no message, or not in its only form.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let version = number::<1>(bytes, 0, "version")?;
        expect("version", 0, version, "1", version == VERSION.into())?;
        match number::<1>(bytes, 1, "kind")? {
            1 => capsule(bytes).map(Self::Capsule),
            2 => {
                let (most, hash, rest) = code_header(bytes)?;
                expect("end", CODE_HEADER, rest.len() as u64, "no more bytes", rest.is_empty())?;
                Ok(Self::Request(Request { most, hash }))
            }
            3 => {
                let (length, hash, code) = code_header(bytes)?;
                let is_whole = code.len() as u64 == length.into() && (1..=MAX_CODE).contains(&code.len());
                expect("code", CODE_HEADER, code.len() as u64, "the stated length, 1 to 8191", is_whole)?;
                check(8, hash, code)?;
                Ok(Self::Code(CodeMessage { hash, code }))
            }
            4 => delivery(bytes).map(Self::Delivery),
            found => Err(Malformed { field: "kind", at: 1, found, expected: "1 to 4" }),
        }
    }

    /// Appends the message's bytes.
    pub fn write(&self, into: &mut Vec<u8>) {
        match self {
            Self::Capsule(capsule) => capsule.write(into),
            Self::Request(request) => write_code_header(into, 2, request.most, request.hash),
            Self::Code(answer) => {
                write_code_header(into, 3, u32::try_from(answer.code.len()).unwrap_or(0), answer.hash);
                into.extend_from_slice(answer.code);
            }
            Self::Delivery(delivery) => {
                into.extend_from_slice(&[VERSION, 4, 0, 0]);
                into.extend_from_slice(&u32::try_from(delivery.bytes.len()).unwrap_or(0).to_le_bytes());
                into.extend_from_slice(&delivery.key.0);
                into.extend_from_slice(delivery.bytes);
            }
        }
    }
}

impl Capsule<'_> {
    /// Returns the number of its bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        HEADER + self.grant.length() + self.arguments.len() + self.code.map_or(0, <[u8]>::len)
    }

    /// Appends the capsule's bytes. A buffer that is used again makes forwarding free of allocations.
    ///
    /// Arguments beyond [`MAX_ARGUMENTS`] and code beyond [`MAX_CODE`] bytes would not be read.
    pub fn write(&self, into: &mut Vec<u8>) {
        let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_le_bytes();
        into.extend_from_slice(&[VERSION, 1, self.function, self.limits.hops]);
        into.extend_from_slice(&length(self.arguments));
        into.extend_from_slice(&length(self.code.unwrap_or_default()));
        into.extend_from_slice(&self.limits.instructions.to_le_bytes());
        into.extend_from_slice(&self.limits.bytes.to_le_bytes());
        into.extend_from_slice(&self.limits.copies.to_le_bytes());
        into.extend_from_slice(&u16::try_from(self.grant.length()).unwrap_or(u16::MAX).to_le_bytes());
        into.extend_from_slice(&[0; 2]);
        into.extend_from_slice(&self.origin.0.to_le_bytes());
        into.extend_from_slice(&self.place.0.to_le_bytes());
        into.extend_from_slice(&self.payer.0);
        into.extend_from_slice(&self.key.0);
        into.extend_from_slice(&self.hash.0);
        self.grant.write(into);
        into.extend_from_slice(self.arguments);
        into.extend_from_slice(self.code.unwrap_or_default());
    }
}

fn capsule(bytes: &[u8]) -> Result<Capsule<'_>, Malformed> {
    let arguments = number::<2>(bytes, 4, "arguments' length")?;
    expect("arguments' length", 4, arguments, "at most 1024", arguments <= MAX_ARGUMENTS as u64)?;
    let code = number::<2>(bytes, 6, "code's length")?;
    expect("code's length", 6, code, "at most 8191", code <= MAX_CODE as u64)?;
    let grant = number::<2>(bytes, 28, "grant's length")?;
    expect("grant's length", 28, grant, "at most 160", grant <= MAX_GRANT as u64)?;
    let reserved = number::<2>(bytes, 30, "reserved")?;
    expect("reserved", 30, reserved, "0", reserved == 0)?;
    let hash = Hash(array(bytes, 80, "hash")?);
    let body = bytes.get(HEADER..).unwrap_or_default();
    let found = body.len() as u64;
    let is_whole = found == grant + arguments + code;
    expect("arguments and code", HEADER, found, "as long as stated", is_whole)?;
    let (grant, body) = body.split_at(usize::try_from(grant).unwrap_or(0).min(body.len()));
    let grant = Grant::read(grant, HEADER)?;
    let (arguments, code) = body.split_at(usize::try_from(arguments).unwrap_or(0).min(body.len()));
    let code = (!code.is_empty()).then_some(code);
    if let Some(code) = code {
        check(80, hash, code)?;
    }
    Ok(Capsule {
        function: array::<1>(bytes, 2, "function")?[0],
        limits: Limits {
            hops: array::<1>(bytes, 3, "hops")?[0],
            instructions: u64::from_le_bytes(array(bytes, 8, "instructions")?),
            bytes: u64::from_le_bytes(array(bytes, 16, "bytes")?),
            copies: u32::from_le_bytes(array(bytes, 24, "copies")?),
        },
        origin: Place(u64::from_le_bytes(array(bytes, 32, "origin")?)),
        place: Place(u64::from_le_bytes(array(bytes, 40, "place")?)),
        payer: Payer(array(bytes, 48, "payer")?),
        key: Key(array(bytes, 64, "key")?),
        hash,
        grant,
        arguments,
        code,
    })
}

fn code_header(bytes: &[u8]) -> Result<(u32, Hash, &[u8]), Malformed> {
    let reserved = number::<2>(bytes, 2, "reserved")?;
    expect("reserved", 2, reserved, "0", reserved == 0)?;
    let length = u32::from_le_bytes(array(bytes, 4, "length")?);
    let hash = Hash(array(bytes, 8, "hash")?);
    Ok((length, hash, bytes.get(CODE_HEADER..).unwrap_or_default()))
}

fn delivery(bytes: &[u8]) -> Result<Delivery<'_>, Malformed> {
    let reserved = number::<2>(bytes, 2, "reserved")?;
    expect("reserved", 2, reserved, "0", reserved == 0)?;
    let length = number::<4>(bytes, 4, "length")?;
    let key = Key(array(bytes, 8, "key")?);
    let bytes = bytes.get(DELIVERY_HEADER..).unwrap_or_default();
    let is_whole = bytes.len() as u64 == length && bytes.len() <= MAX_ARGUMENTS;
    let found = bytes.len() as u64;
    expect("bytes", DELIVERY_HEADER, found, "the stated length, at most 1024", is_whole)?;
    Ok(Delivery { key, bytes })
}

fn write_code_header(into: &mut Vec<u8>, kind: u8, length: u32, hash: Hash) {
    into.extend_from_slice(&[VERSION, kind, 0, 0]);
    into.extend_from_slice(&length.to_le_bytes());
    into.extend_from_slice(&hash.0);
}

/// Refuses code under the hash of other code.
fn check(at: usize, hash: Hash, code: &[u8]) -> Result<(), Malformed> {
    let is_its = hash_of(code) == hash;
    expect("hash", at, u64::from_be_bytes(array(&hash.0, 0, "hash")?), "the SHA-256 of the code", is_its)
}

pub(crate) fn expect(
    field: &'static str,
    at: usize,
    found: u64,
    expected: &'static str,
    holds: bool,
) -> Result<(), Malformed> {
    if holds { Ok(()) } else { Err(Malformed { field, at, found, expected }) }
}

pub(crate) fn array<const N: usize>(
    bytes: &[u8],
    at: usize,
    field: &'static str,
) -> Result<[u8; N], Malformed> {
    let short = Malformed { field, at, found: bytes.len() as u64, expected: "inside the message" };
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(short)
}

pub(crate) fn number<const N: usize>(bytes: &[u8], at: usize, field: &'static str) -> Result<u64, Malformed> {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(&array::<N>(bytes, at, field)?);
    Ok(u64::from_le_bytes(wide))
}
