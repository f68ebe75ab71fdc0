//! Keys of the fleet as users of a NATS server, which proves possession by a signature over its nonce.

use crate::signed::{Key, Secret};

/// The first byte of the key of a user, and the letters of base32.
const USER: u8 = 20 << 3;
const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Returns the text of a key as a server's configuration writes it: `U` and 55 letters or digits.
pub fn nkey(key: &Key) -> String {
    let mut bytes = [&[USER][..], &key.0].concat();
    bytes.extend_from_slice(&crc16(&bytes).to_le_bytes());
    let mut text = String::new();
    for group in bytes.chunks(5) {
        let word =
            group.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte)) << (8 * (5 - group.len()));
        text.extend((0..8).map(|n| char::from(LETTERS[(word >> (35 - 5 * n) & 31) as usize])));
    }
    text
}

/// Returns the CRC-16 of XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| crc << 1 ^ if crc >> 15 == 1 { 0x1021 } else { 0 })
    })
}

impl Secret {
    /// Signs the nonce of a server. A server could send anything as its nonce, so a nonce with other
    /// characters than base64 has is refused: what FLAME signs has a space at its sixth byte.
    pub fn answer(&self, nonce: &[u8]) -> Option<[u8; 64]> {
        let is_nonce =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'+' | b'/' | b'=');
        (nonce.len() <= 128 && nonce.iter().all(is_nonce)).then(|| self.sign_bytes(nonce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pair is an example of the crate nkeys.
    #[test]
    fn keys_have_the_servers_form() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        let text = nkey(&Key([0; 32]));
        assert_eq!((text.len(), &text[..1]), (56, "U"));
        assert_ne!(nkey(&Key([1; 32])), text);
    }

    #[test]
    fn only_a_nonce_is_signed() {
        let secret = Secret::new(&[7; 32]);
        assert!(secret.answer(b"yTT8GnWPqCeHKgM").is_some());
        for forged in [&b"flame fleet enrolment 1\0token"[..], b"flame node", b"a\0b"] {
            assert_eq!(secret.answer(forged), None);
        }
    }
}
