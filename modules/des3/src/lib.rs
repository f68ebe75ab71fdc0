//! Triple DES (NIST SP 800-67) of UDP payloads, in both directions.
//!
//! Cipher block chaining; the bytes after the last whole block are combined with the encrypted last block,
//! so that the length stays the same.

use des::TdesEde3;
use des::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use flame_module::{Batch, Forward, Init, Out, flags, proto};

flame_module::manifest!();

/// The bytes of a block.
const BLOCK: usize = 8;

pub struct Des3 {
    cipher: TdesEde3,
    iv: [u8; BLOCK],
}

/// Reads hexadecimal digits.
///
/// # Panics
/// Panics unless the text has two digits for each byte. The message ends the instance, and is its fault.
fn hex<const N: usize>(name: &str, text: &str) -> [u8; N] {
    let are_digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(are_digits && text.len() == 2 * N, "parameter {name}: expected {} hexadecimal digits", 2 * N);
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let value = |digit: &u8| char::from(*digit).to_digit(16).unwrap_or(0) as u8;
        *byte = digits.iter().fold(0, |byte, digit| byte << 4 | value(digit));
    }
    bytes
}

impl Des3 {
    fn with(key: &[u8; 24], iv: [u8; BLOCK]) -> Self {
        Self { cipher: TdesEde3::new(&(*key).into()), iv }
    }

    // The rounds of a block are long code. In functions of their own they are analysed, and compiled, once.
    #[inline(never)]
    fn encrypted(&self, block: [u8; BLOCK]) -> [u8; BLOCK] {
        let mut block = block.into();
        self.cipher.encrypt_block(&mut block);
        block.into()
    }

    #[inline(never)]
    fn decrypted(&self, block: [u8; BLOCK]) -> [u8; BLOCK] {
        let mut block = block.into();
        self.cipher.decrypt_block(&mut block);
        block.into()
    }

    /// Encrypts or decrypts bytes in place.
    fn apply(&self, bytes: &mut [u8], encrypts: bool) {
        let mut last = self.iv;
        let mut blocks = bytes.chunks_exact_mut(BLOCK);
        for chunk in &mut blocks {
            let mut block = [0; BLOCK];
            block.copy_from_slice(chunk);
            let result =
                if encrypts { self.encrypted(xor(block, last)) } else { xor(self.decrypted(block), last) };
            last = if encrypts { result } else { block };
            chunk.copy_from_slice(&result);
        }
        let rest = blocks.into_remainder();
        if !rest.is_empty() {
            let mask = self.encrypted(last);
            rest.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        }
    }
}

fn xor(mut a: [u8; BLOCK], b: [u8; BLOCK]) -> [u8; BLOCK] {
    a.iter_mut().zip(b).for_each(|(a, b)| *a ^= b);
    a
}

/// Returns the sum of 16-bit words (RFC 1071).
fn sum(bytes: &[u8]) -> u32 {
    let mut sum = 0_u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Sets the checksum of a datagram at `at` between these addresses. One that had none keeps none.
fn set_checksum(addresses: u32, udp: &mut [u8]) {
    if udp[6..8] == [0, 0] {
        return;
    }
    udp[6..8].fill(0);
    let all = addresses + u32::from(proto::UDP) + udp.len() as u32 + sum(udp);
    let all = (all & 0xffff) + (all >> 16);
    let checksum = !((all & 0xffff) + (all >> 16)) as u16;
    let checksum = if checksum == 0 { 0xffff } else { checksum };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
}

impl Forward for Des3 {
    fn new(init: &Init) -> Self {
        let params = Params::from(init);
        Self::with(&hex("key", params.key), hex("iv", params.iv))
    }

    fn push(&mut self, port: u32, batch: &Batch, out: &mut Out) {
        for (index, packet) in batch.packets().enumerate() {
            let is_whole =
                packet.flags & (flags::FRAGMENT | flags::TRUNCATED | flags::TRANSPORT) == flags::TRANSPORT;
            let (at, len) = (usize::from(packet.l4), packet.bytes().len());
            let length =
                packet.bytes().get(at + 4..at + 6).map_or(0, |l| usize::from(l[0]) << 8 | usize::from(l[1]));
            // The second comparison relates the length to that of the packet, for the bound.
            let is_inside = at + length <= len && length <= len;
            if packet.proto != proto::UDP || !is_whole || length < 8 || !is_inside {
                out.send(index, port);
                continue;
            }
            let l3 = usize::from(packet.l3);
            let addresses = match packet.flags & flags::IPV4 {
                0 => l3 + 8..l3 + 40,
                _ => l3 + 12..l3 + 20,
            };
            let addresses = packet.bytes().get(addresses).map_or(0, sum);
            out.send_changed(index, port, packet.bytes(), |bytes| {
                if let Some(udp) = bytes.get_mut(at..at + length) {
                    self.apply(&mut udp[8..], port == 0);
                    set_checksum(addresses, udp);
                }
                bytes.len()
            });
        }
    }
}

flame_module::export!(forward = Des3);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::testing::{self, Parameters, Traffic};

    fn cipher() -> Des3 {
        Des3::with(&hex("key", "0123456789abcdef23456789abcdef01456789abcdef0123"), [0; 8])
    }

    /// The example of NIST SP 800-67, appendix B.
    #[test]
    fn blocks_are_those_of_nist() {
        let plain: [u8; 24] =
            hex("plain", "5468652071756663 6b2062726f776e20 666f78206a756d70".replace(' ', "").as_str());
        let expected: [u8; 24] =
            hex("cipher", "a826fd8ce53b855f cce21c8112256fe6 68d5c05dd9b6b900".replace(' ', "").as_str());
        for (plain, expected) in plain.chunks(8).zip(expected.chunks(8)) {
            let (plain, expected) = (plain.try_into().unwrap(), expected.try_into().unwrap());
            assert_eq!(cipher().encrypted(plain), expected);
            assert_eq!(cipher().decrypted(expected), plain);
        }
        // The variable plaintext test of NIST SP 800-20: one key three times is DES.
        let one = Des3::with(&[1; 24], [0; 8]);
        assert_eq!(one.encrypted([0x80, 0, 0, 0, 0, 0, 0, 0]), hex("cipher", "95f8a5e5dd31d900"));
        assert_eq!(one.encrypted([0x40, 0, 0, 0, 0, 0, 0, 0]), hex("cipher", "dd7f121ca5015619"));
    }

    #[test]
    fn wrong_digits_are_refused_by_name() {
        for wrong in ["", "0011", "+011223344556677", "00112233445566gg", "é011223344556é"] {
            let refused = std::panic::catch_unwind(|| hex::<8>("iv", wrong)).unwrap_err();
            let text = refused.downcast::<String>().unwrap();
            assert_eq!(*text, "parameter iv: expected 16 hexadecimal digits", "{wrong}");
        }
    }

    #[test]
    fn both_directions_are_inverse_for_any_length() {
        let cipher = cipher();
        for length in 0..40 {
            let plain: Vec<u8> = (0..length).collect();
            let mut bytes = plain.clone();
            cipher.apply(&mut bytes, true);
            assert!(length == 0 || bytes != plain, "{length}");
            cipher.apply(&mut bytes, false);
            assert_eq!(bytes, plain);
        }
        // Equal blocks differ when they are chained.
        let mut bytes = [7; 16];
        cipher.apply(&mut bytes, true);
        assert_ne!(bytes[..8], bytes[8..]);
    }

    #[test]
    fn payloads_of_udp_change_and_others_pass() {
        let parameters = Parameters::of(Params::DEFAULTS);
        let mut module = Des3::new(&Init::new(&parameters.init()));
        let mut traffic = Traffic::default();
        traffic.udp("10.0.0.1:4000", "10.0.0.2:53").payload(b"a secret text");
        traffic.tcp("10.0.0.1:4000", "10.0.0.2:80").payload(b"plain");
        let sent = testing::push(&mut module, 0, &traffic);
        assert_eq!((sent.len(), sent[0].port, sent[1].bytes.len()), (2, 0, 0));
        let find = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).any(|w| w == text);
        assert!(!find(&sent[0].bytes, b"secret") && find(traffic.memory(), b"secret"));
    }
}
