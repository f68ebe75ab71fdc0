//! Packets of a session: keys, nonces and authenticators.

use crate::window::{Standing, Window};
use crate::{Cause, HEADER};
use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Tag};
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// The bytes of a packet beside its body.
pub const OVERHEAD: usize = HEADER + TAG;
const TAG: usize = 16;
/// The nonce's bits that count the packets of one key.
const COUNT_BITS: u32 = 20;
/// The milliseconds that a key serves.
const KEY_TIME: u64 = 120_000;
/// How many keys in a row may be lost with all their packets.
const AHEAD: u64 = 8;
const PLAIN: u8 = 0;
const AUTHENTICATED: u8 = 1;
const ENCRYPTED: u8 = 2;

/// What a packet of a session is protected against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Changes, replays and forgery.
    Authenticated,
    /// These, and readers.
    Encrypted,
}

/// The head of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: u8,
    /// The receiver's number of the session or exchange.
    pub number: u32,
    pub nonce: u64,
}

impl Header {
    pub fn read(datagram: &[u8]) -> Result<Self, Cause> {
        let header: &[u8; HEADER] = datagram.first_chunk().ok_or(Cause::Short)?;
        let [b'F', b'L', 1, kind @ 0..=6, numbers @ ..] = header else { return Err(Cause::Foreign) };
        let number = u32::from_le_bytes([numbers[0], numbers[1], numbers[2], numbers[3]]);
        let nonce = numbers[4..].first_chunk().map_or(0, |nonce| u64::from_le_bytes(*nonce));
        let is_of_session = matches!(*kind, AUTHENTICATED | ENCRYPTED);
        let has_number = *kind != PLAIN && *kind != 3;
        if (!is_of_session && nonce != 0) || (!has_number && number != 0) {
            return Err(Cause::Foreign);
        }
        Ok(Self { kind: *kind, number, nonce })
    }

    pub fn write(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&[b'F', b'L', 1, self.kind]);
        into.extend_from_slice(&self.number.to_le_bytes());
        into.extend_from_slice(&self.nonce.to_le_bytes());
    }

    pub fn is_of_session(self) -> bool {
        matches!(self.kind, AUTHENTICATED | ENCRYPTED)
    }
}

/// A key of one direction, and its number.
struct Key {
    number: u64,
    /// The next key follows from it.
    chain: [u8; 32],
    cipher: Aes256Gcm,
    /// The nonces of packets that were received.
    window: Window,
}

/// The packets of both directions.
pub struct Session {
    sends: Key,
    /// The next nonce.
    nonce: u64,
    /// When the current key was first used.
    since: u64,
    receives: Key,
    before: Option<Key>,
}

fn derive(key: &[u8; 32], label: &[u8]) -> [u8; 32] {
    // HMAC fills a key with zeros to a block.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    mac.update(label);
    mac.finalize().into_bytes().into()
}

impl Key {
    fn first(split: &[u8; 32]) -> Self {
        Self::of(0, derive(split, b"first"))
    }

    fn of(number: u64, chain: [u8; 32]) -> Self {
        let cipher = Aes256Gcm::new(&derive(&chain, b"packets").into());
        Self { number, chain, cipher, window: Window::default() }
    }

    fn next(&self) -> Self {
        Self::of(self.number + 1, derive(&self.chain, b"next"))
    }
}

fn nonce(number: u64) -> aes_gcm::aead::Nonce<Aes256Gcm> {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    bytes.into()
}

impl Session {
    pub fn new(sends: &[u8; 32], receives: &[u8; 32], now: u64) -> Self {
        let (sends, receives) = (Key::first(sends), Key::first(receives));
        Self { sends, nonce: 0, since: now, receives, before: None }
    }

    /// Appends a packet. The key changes when it has served its time or its count.
    pub fn seal(
        &mut self,
        number: u32,
        mode: Mode,
        body: &[u8],
        now: u64,
        into: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        if now.saturating_sub(self.since) >= KEY_TIME {
            self.nonce = self.sends.number.checked_add(1).ok_or(Cause::Exhausted)? << COUNT_BITS;
        }
        let next = self.nonce.checked_add(1).filter(|next| *next != u64::MAX).ok_or(Cause::Exhausted)?;
        if self.nonce >> COUNT_BITS != self.sends.number {
            self.sends = self.sends.next();
            self.since = now;
        }
        let start = into.len();
        let kind = if mode == Mode::Encrypted { ENCRYPTED } else { AUTHENTICATED };
        Header { kind, number, nonce: self.nonce }.write(into);
        into.extend_from_slice(body);
        let (header, rest) = into[start..].split_at_mut(HEADER);
        let nonce = nonce(self.nonce);
        let tag = match mode {
            Mode::Encrypted => self.sends.cipher.encrypt_inout_detached(&nonce, header, rest.into()),
            Mode::Authenticated => {
                self.sends.cipher.encrypt_inout_detached(&nonce, &into[start..], (&mut [][..]).into())
            }
        };
        into.extend_from_slice(&tag.map_err(|_| Cause::Long)?);
        self.nonce = next;
        Ok(())
    }

    /// Checks a packet, and returns its body. Only a packet with its authenticator changes the session.
    pub fn open<'a>(&mut self, header: Header, packet: &'a mut [u8]) -> Result<&'a [u8], Cause> {
        let number = header.nonce >> COUNT_BITS;
        let mut ahead = None;
        let key = if number == self.receives.number {
            &mut self.receives
        } else if number < self.receives.number {
            self.before.as_mut().filter(|key| key.number == number).ok_or(Cause::Late)?
        } else if number - self.receives.number <= AHEAD {
            // The keys between have no packets that were received; theirs are late then, but for the last.
            let mut key = self.receives.next();
            let mut before = None;
            while key.number < number {
                let next = key.next();
                before = Some(std::mem::replace(&mut key, next));
            }
            &mut ahead.insert((before, key)).1
        } else {
            return Err(Cause::Ahead);
        };
        match key.window.standing(header.nonce) {
            Standing::New => {}
            Standing::Taken => return Err(Cause::Replayed),
            Standing::Late => return Err(Cause::Late),
        }
        let end = packet.len().checked_sub(TAG).filter(|end| *end >= HEADER).ok_or(Cause::Short)?;
        let tag = Tag::try_from(&packet[end..]).map_err(|_| Cause::Short)?;
        let nonce = nonce(header.nonce);
        let opened = match header.kind {
            ENCRYPTED => {
                let (head, rest) = packet[..end].split_at_mut(HEADER);
                key.cipher.decrypt_inout_detached(&nonce, head, rest.into(), &tag)
            }
            _ => key.cipher.decrypt_inout_detached(&nonce, &packet[..end], (&mut [][..]).into(), &tag),
        };
        opened.map_err(|_| Cause::Forged)?;
        if !key.window.take(header.nonce) {
            return Err(Cause::Replayed);
        }
        if let Some((before, key)) = ahead {
            let last = std::mem::replace(&mut self.receives, key);
            self.before = Some(before.unwrap_or(last));
        }
        Ok(&packet[HEADER..end])
    }
}
