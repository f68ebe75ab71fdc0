//! The three messages, as Noise makes them.

use crate::cookie::{COOKIE, Cookie};
use crate::identity::{Identity, Presented};
use crate::{Cause, TOLERANCE};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};

const PATTERN: &str = "Noise_XX_25519_ChaChaPoly_SHA256";
const PROLOGUE: &[u8] = b"FLAME active link 1";
/// The bytes of message 1 after the header, which an answer does not exceed.
pub const FIRST: usize = 2048 - crate::HEADER;
/// What Noise adds to message 2: two keys and two authenticators.
const SECOND_OVERHEAD: usize = 32 + 48 + 16;
/// The most bytes of an identity.
pub const MAX_IDENTITY: usize = FIRST - SECOND_OVERHEAD - STAMP;
/// Time and number of a sender.
const STAMP: usize = 12;
/// The place of the cookie in message 1, behind `e` and the stamp.
const COOKIE_AT: usize = 32 + STAMP;

/// The keys of both directions: the initiator's, then the responder's.
pub type Split = ([u8; 32], [u8; 32]);

/// Returns the sender's number and the cookie of message 1, which nothing protects.
pub fn of_first(message: &[u8]) -> Option<(u32, Cookie)> {
    let number = message.get(COOKIE_AT - 4..)?.first_chunk()?;
    let cookie = message.get(COOKIE_AT..)?.first_chunk()?;
    Some((u32::from_le_bytes(*number), *cookie))
}

/// One end of an exchange.
pub struct Exchange(Box<HandshakeState>);

/// What an end states about itself in the first two messages.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub time: u64,
    /// The number by which the other end names the session.
    pub number: u32,
}

/// Gives Noise the random bytes of one ephemeral key.
struct Once(Option<[u8; 32]>);

struct Resolver([u8; 32]);

impl Random for Once {
    fn try_fill_bytes(&mut self, into: &mut [u8]) -> Result<(), snow::Error> {
        let bytes = self.0.take().filter(|bytes| bytes.len() == into.len()).ok_or(snow::Error::Rng)?;
        into.copy_from_slice(&bytes);
        Ok(())
    }
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

impl Exchange {
    /// Begins an exchange with the static key and 32 random bytes.
    pub fn begin(is_initiator: bool, key: &[u8; 32], random: [u8; 32]) -> Result<Self, Cause> {
        let build = || {
            let builder = Builder::with_resolver(PATTERN.parse()?, Box::new(Resolver(random)));
            let builder = builder.prologue(PROLOGUE)?.local_private_key(key)?;
            if is_initiator { builder.build_initiator() } else { builder.build_responder() }
        };
        build().map(|state| Self(Box::new(state))).map_err(|_| Cause::Exchange)
    }

    fn write(&mut self, payload: &[u8], into: &mut Vec<u8>) -> Result<(), Cause> {
        let at = into.len();
        into.resize(at + payload.len() + SECOND_OVERHEAD, 0);
        let length = self.0.write_message(payload, &mut into[at..]).map_err(|_| Cause::Exchange)?;
        into.truncate(at + length);
        Ok(())
    }

    fn read(&mut self, message: &[u8]) -> Result<Vec<u8>, Cause> {
        let mut payload = vec![0; message.len()];
        let length = self.0.read_message(message, &mut payload).map_err(|_| Cause::Exchange)?;
        payload.truncate(length);
        Ok(payload)
    }

    /// Appends message 1.
    pub fn write_first(&mut self, stamp: Stamp, cookie: &Cookie, into: &mut Vec<u8>) -> Result<(), Cause> {
        let mut payload = [0; FIRST - 32];
        stamp.write(&mut payload);
        payload[STAMP..STAMP + COOKIE].copy_from_slice(cookie);
        self.write(&payload, into)
    }

    /// Reads message 1.
    pub fn read_first(&mut self, message: &[u8], now: u64) -> Result<Stamp, Cause> {
        let (stamp, zeros) = Stamp::read(&self.read(message)?, now)?;
        let zeros = zeros.get(COOKIE..).ok_or(Cause::Exchange)?;
        if zeros.iter().all(|byte| *byte == 0) { Ok(stamp) } else { Err(Cause::Exchange) }
    }

    /// Appends message 2.
    pub fn write_second(&mut self, stamp: Stamp, own: &Identity, into: &mut Vec<u8>) -> Result<(), Cause> {
        let mut payload = vec![0; STAMP];
        stamp.write(&mut payload);
        own.write(&mut payload);
        self.write(&payload, into)
    }

    /// Reads message 2, and lets `judge` decide about the other end.
    pub fn read_second<T>(
        &mut self,
        message: &[u8],
        now: u64,
        judge: impl FnOnce(&Presented<'_>) -> Result<T, Cause>,
    ) -> Result<(Stamp, T), Cause> {
        let (stamp, identity) = Stamp::read(&self.read(message)?, now)?;
        Ok((stamp, self.judged(&identity, judge)?))
    }

    /// Appends message 3.
    pub fn write_third(&mut self, own: &Identity, into: &mut Vec<u8>) -> Result<(), Cause> {
        let mut payload = Vec::new();
        own.write(&mut payload);
        self.write(&payload, into)
    }

    /// Reads message 3, and lets `judge` decide about the other end.
    pub fn read_third<T>(
        &mut self,
        message: &[u8],
        judge: impl FnOnce(&Presented<'_>) -> Result<T, Cause>,
    ) -> Result<T, Cause> {
        let identity = self.read(message)?;
        self.judged(&identity, judge)
    }

    fn judged<T>(
        &self,
        identity: &[u8],
        judge: impl FnOnce(&Presented<'_>) -> Result<T, Cause>,
    ) -> Result<T, Cause> {
        let key = self.0.get_remote_static().and_then(|key| key.first_chunk()).ok_or(Cause::Exchange)?;
        judge(&Presented::read(identity, key).ok_or(Cause::Exchange)?)
    }

    /// Returns the keys after the third message.
    pub fn finish(mut self) -> Split {
        self.0.dangerously_get_raw_split()
    }
}

impl Stamp {
    fn write(self, into: &mut [u8]) {
        into[..8].copy_from_slice(&self.time.to_le_bytes());
        into[8..STAMP].copy_from_slice(&self.number.to_le_bytes());
    }

    /// Reads a stamp, and returns the rest.
    fn read(payload: &[u8], now: u64) -> Result<(Self, Vec<u8>), Cause> {
        let (time, rest) = payload.split_first_chunk().ok_or(Cause::Exchange)?;
        let (number, rest) = rest.split_first_chunk().ok_or(Cause::Exchange)?;
        let (time, number) = (u64::from_le_bytes(*time), u32::from_le_bytes(*number));
        if time.abs_diff(now) > TOLERANCE {
            return Err(Cause::Skewed);
        }
        Ok((Self { time, number }, rest.to_vec()))
    }
}
