//! Cookies: an end that receives at an address proves that it does, before this node works for it.
//!
//! A cookie is an authenticator of address and port under a secret of this node. So this node keeps nothing
//! for the addresses that it has asked.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::net::{IpAddr, SocketAddr};

/// The bytes of a cookie.
pub const COOKIE: usize = 16;
/// The milliseconds after which the secret changes. A cookie is good for one to two of them.
const LIFE: u64 = 60_000;

/// The proof of an address; zeros are none.
pub type Cookie = [u8; COOKIE];

/// The secrets under which cookies are made: this one's, and the one before.
#[derive(Default)]
pub struct Cookies {
    secrets: [[u8; 32]; 2],
    /// The number of the [`LIFE`] in which the first secret was made.
    period: u64,
}

fn mac(secret: &[u8; 32], of: SocketAddr) -> Hmac<Sha256> {
    // HMAC fills a key with zeros to a block.
    let mut block = [0; 64];
    block[..32].copy_from_slice(secret);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    match of.ip() {
        IpAddr::V4(ip) => mac.update(&ip.octets()),
        IpAddr::V6(ip) => mac.update(&ip.octets()),
    }
    mac.update(&of.port().to_le_bytes());
    mac
}

impl Cookies {
    /// Changes the secrets if it is time to.
    fn turn(&mut self, now: u64, entropy: &mut dyn FnMut(&mut [u8])) {
        let period = now / LIFE + 1;
        if period == self.period {
            return;
        }
        let mut fresh = || {
            let mut secret = [0; 32];
            entropy(&mut secret);
            secret
        };
        // Of what is older than one period, nothing is good.
        let before = if period == self.period + 1 { self.secrets[0] } else { fresh() };
        *self = Self { secrets: [fresh(), before], period };
    }

    /// Returns the cookie of an address.
    pub fn of(&mut self, from: SocketAddr, now: u64, entropy: &mut dyn FnMut(&mut [u8])) -> Cookie {
        self.turn(now, entropy);
        let whole = mac(&self.secrets[0], from).finalize().into_bytes();
        whole.first_chunk().copied().unwrap_or_default()
    }

    /// Returns whether a cookie is of this address.
    pub fn prove(
        &mut self,
        cookie: &Cookie,
        from: SocketAddr,
        now: u64,
        entropy: &mut dyn FnMut(&mut [u8]),
    ) -> bool {
        if *cookie == [0; COOKIE] {
            return false;
        }
        self.turn(now, entropy);
        self.secrets.iter().any(|secret| mac(secret, from).verify_truncated_left(cookie).is_ok())
    }
}
