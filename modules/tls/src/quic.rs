//! Initial packets of QUIC (RFC 9000, section 17.2.2), whose keys follow from the packets themselves (RFC
//! 9001, section 5.2; version 2: RFC 9369).

use aes::Aes128;
use aes::cipher::BlockCipherEncrypt;
use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes128Gcm, KeyInit};
use hkdf::Hkdf;
use sha2::Sha256;

/// The longest connection ID.
const LONGEST_ID: usize = 20;
/// The largest packet that is decrypted. Initials are 1,200 bytes and a few.
pub const LARGEST: usize = 2048;
const TAG: usize = 16;

/// A connection ID with the version: together they give the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Id {
    version: u32,
    len: u8,
    bytes: [u8; LONGEST_ID],
}

/// The salt and the labels of a version.
struct Version {
    salt: [u8; 20],
    /// The bits of the first byte that state the type of an Initial.
    kind: u8,
    labels: [&'static [u8]; 3],
}

const V1: u32 = 1;
const V2: u32 = 0x6b33_43cf;

fn version(number: u32) -> Option<Version> {
    match number {
        V1 => Some(Version {
            salt: *b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a",
            kind: 0,
            labels: [b"quic key", b"quic iv", b"quic hp"],
        }),
        V2 => Some(Version {
            salt: *b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9",
            kind: 1,
            labels: [b"quicv2 key", b"quicv2 iv", b"quicv2 hp"],
        }),
        _ => None,
    }
}

/// The side that sent a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

/// An Initial packet within a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Initial<'a> {
    /// The destination's connection ID.
    pub id: Id,
    packet: &'a [u8],
    /// The offset of the packet number.
    number: usize,
}

/// Returns a number of variable length (RFC 9000, section 16) and the offset after it.
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let first = *bytes.get(at)?;
    let len = 1 << (first >> 6);
    let mut value = u64::from(first & 0x3f);
    for byte in bytes.get(at + 1..at + len)? {
        value = value << 8 | u64::from(*byte);
    }
    Some((value, at + len))
}

impl<'a> Initial<'a> {
    /// Returns the first packet of a datagram if it is an Initial of a known version, and the rest of the
    /// datagram: other packets, or padding.
    pub fn read(datagram: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let first = *datagram.first()?;
        // The next bit, which is fixed, may be any (RFC 9287).
        if first >> 7 != 1 {
            return None;
        }
        let number = u32::from_be_bytes(*datagram.get(1..)?.first_chunk()?);
        if first >> 4 & 3 != version(number)?.kind {
            return None;
        }
        let len = *datagram.get(5)?;
        let mut id = Id { version: number, len, bytes: [0; LONGEST_ID] };
        id.bytes.get_mut(..len.into())?.copy_from_slice(datagram.get(6..6 + usize::from(len))?);
        let at = 6 + usize::from(len);
        let source = usize::from(*datagram.get(at)?);
        let (token, at) = varint(datagram, at + 1 + source)?;
        let at = at.checked_add(usize::try_from(token).ok()?)?;
        let (length, at) = varint(datagram, at)?;
        let end = at.checked_add(usize::try_from(length).ok()?)?;
        let (packet, rest) = datagram.split_at_checked(end)?;
        Some((Self { id, packet, number: at }, rest))
    }

    /// Decrypts the packet under the keys of `id` and passes its frames to `f`, or returns `None` if it was
    /// not encrypted with them.
    pub fn decrypt<T>(&self, id: &Id, side: Side, f: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let keys = Keys::new(id, side)?;
        // The sample begins four bytes after the packet number (RFC 9001, section 5.4.2).
        let sample: &[u8; 16] = self.packet.get(self.number + 4..)?.first_chunk()?;
        let mut mask = (*sample).into();
        Aes128::new(&keys.mask.into()).encrypt_block(&mut mask);
        let mut buffer = [0; LARGEST];
        let whole = buffer.get_mut(..self.packet.len())?;
        whole.copy_from_slice(self.packet);
        whole[0] ^= mask[0] & 0x0f;
        let len = usize::from(whole[0] & 3) + 1;
        let mut number = 0;
        for n in 0..len {
            whole[self.number + n] ^= mask[n + 1];
            number = number << 8 | u64::from(whole[self.number + n]);
        }
        // Initials are the first packets of a connection, so the number is not cut off.
        let mut nonce = keys.nonce;
        for (byte, of_number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= of_number;
        }
        let (head, rest) = whole.split_at_mut(self.number + len);
        let (text, tag) = rest.split_at_mut(rest.len().checked_sub(TAG)?);
        let tag: [u8; TAG] = (*tag).try_into().ok()?;
        let cipher = Aes128Gcm::new(&keys.key.into());
        cipher.decrypt_inout_detached(&nonce.into(), head, (&mut *text).into(), &tag.into()).ok()?;
        Some(f(text))
    }
}

struct Keys {
    key: [u8; 16],
    nonce: [u8; 12],
    mask: [u8; 16],
}

impl Keys {
    fn new(id: &Id, side: Side) -> Option<Self> {
        let Version { salt, labels, .. } = version(id.version)?;
        let initial = Hkdf::<Sha256>::new(Some(&salt), id.bytes.get(..id.len.into())?);
        let mut secret = [0; 32];
        expand(&initial, if side == Side::Client { b"client in" } else { b"server in" }, &mut secret)?;
        let secret = Hkdf::<Sha256>::from_prk(&secret).ok()?;
        let mut keys = Self { key: [0; 16], nonce: [0; 12], mask: [0; 16] };
        expand(&secret, labels[0], &mut keys.key)?;
        expand(&secret, labels[1], &mut keys.nonce)?;
        expand(&secret, labels[2], &mut keys.mask)?;
        Some(keys)
    }
}

/// Computes HKDF-Expand-Label (RFC 8446, section 7.1) without a context.
fn expand(secret: &Hkdf<Sha256>, label: &[u8], to: &mut [u8]) -> Option<()> {
    let lengths = [0, to.len() as u8, 6 + label.len() as u8];
    secret.expand_multi_info(&[&lengths, b"tls13 ", label, &[0]], to).ok()
}

/// Passes offset and bytes of each CRYPTO frame to `f`. Ends at a frame that no Initial has.
pub fn crypto(frames: &[u8], mut f: impl FnMut(u64, &[u8])) {
    let mut at = 0;
    // Each step takes at least a byte.
    for _ in 0..frames.len() {
        let Some(next) = crypto_frame(frames, at, &mut f) else { return };
        at = next;
    }
}

fn crypto_frame(frames: &[u8], at: usize, f: &mut impl FnMut(u64, &[u8])) -> Option<usize> {
    match *frames.get(at)? {
        // PADDING and PING.
        0 | 1 => Some(at + 1),
        // ACK, and ACK with counts of ECN.
        kind @ (2 | 3) => {
            let (_, at) = varint(frames, at + 1)?;
            let (_, at) = varint(frames, at)?;
            let (ranges, at) = varint(frames, at)?;
            let (_, mut at) = varint(frames, at)?;
            for _ in 0..ranges.saturating_mul(2).min(frames.len() as u64) {
                (_, at) = varint(frames, at)?;
            }
            if kind == 3 {
                for _ in 0..3 {
                    (_, at) = varint(frames, at)?;
                }
            }
            Some(at)
        }
        6 => {
            let (offset, at) = varint(frames, at + 1)?;
            let (len, at) = varint(frames, at)?;
            let end = at.checked_add(usize::try_from(len).ok()?)?;
            f(offset, frames.get(at..end)?);
            Some(end)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(version: u32) -> Id {
        let mut id = Id { version, len: 8, bytes: [0; LONGEST_ID] };
        id.bytes[..8].copy_from_slice(b"\x83\x94\xc8\xf0\x3e\x51\x57\x08");
        id
    }

    /// RFC 9001, appendix A.1, and RFC 9369, appendix A.1.
    #[test]
    fn keys_are_those_of_the_specification() {
        for (version, side, key, nonce, mask) in [
            (
                V1,
                Side::Client,
                "1f369613dd76d5467730efcbe3b1a22d",
                "fa044b2f42a3fd3b46fb255c",
                "9f50449e04a0e810283a1e9933adedd2",
            ),
            (
                V1,
                Side::Server,
                "cf3a5331653c364c88f0f379b6067e37",
                "0ac1493ca1905853b0bba03e",
                "c206b8d9b9f0f37644430b490eeaa314",
            ),
            (
                V2,
                Side::Client,
                "8b1a0bc121284290a29e0971b5cd045d",
                "91f73e2351d8fa91660e909f",
                "45b95e15235d6f45a6b19cbcb0294ba9",
            ),
            (
                V2,
                Side::Server,
                "82db637861d55e1d011f19ea71d5d2a7",
                "dd13c276499c0249d3310652",
                "edf6d05c83121201b436e16877593c3a",
            ),
        ] {
            let keys = Keys::new(&id(version), side).expect("a known version");
            let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
            assert_eq!(
                (hex(&keys.key), hex(&keys.nonce), hex(&keys.mask)),
                (key.into(), nonce.into(), mask.into())
            );
        }
    }

    /// The server's Initial of RFC 9001, appendix A.3.
    #[test]
    fn the_packet_of_the_specification_is_decrypted() {
        let hex = "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a\
                   5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3\
                   dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84\
                   022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc4\
                   2158407dd074ee";
        let bytes: Vec<u8> = (0..hex.len() / 2)
            .map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).expect("digits"))
            .collect();
        let (initial, rest) = Initial::read(&bytes).expect("an Initial");
        assert!(rest.is_empty());
        let mut found = Vec::new();
        let took = initial.decrypt(&id(V1), Side::Server, |frames| {
            crypto(frames, |offset, bytes| found.push((offset, bytes.to_vec())));
        });
        assert!(took.is_some());
        let [(0, hello)] = &found[..] else { panic!("{found:?}") };
        assert_eq!((hello.len(), &hello[..4]), (90, &[2, 0, 0, 86][..]));
        assert!(initial.decrypt(&id(V1), Side::Client, |_| ()).is_none());
        assert!(initial.decrypt(&initial.id, Side::Server, |_| ()).is_none());
        for end in 0..bytes.len() {
            assert!(Initial::read(&bytes[..end]).is_none(), "{end}");
        }
    }
    /// Frames after a whole one, cut off at each length and with changes: no mutated packet is decrypted, so
    /// other tests do not reach them.
    #[test]
    fn any_frames_are_handled() {
        let first = b"\0\x01\x06\0\x03abc";
        let acknowledged = b"\x02\x05\x40\x07\x01\x02\0\x01\x03\x09\0\x01\x01\0\0\x04\x05\x06";
        let rest = &[&acknowledged[..], b"\x06\x40\x03\x02de\x06\x05\x01f\0"].concat();
        let read = |rest: &[u8]| {
            let frames = [&first[..], rest].concat();
            let mut found = Vec::new();
            crypto(&frames, |offset, bytes| found.push((offset, bytes.to_vec())));
            assert_eq!(found[0], (0, b"abc".to_vec()));
            found.len()
        };
        assert_eq!(read(rest), 3);
        for cut in 0..rest.len() {
            assert!(read(&rest[..cut]) <= 3);
        }
        let (mut random, mut counts) = (1u64, [0; 32]);
        for _ in 0..20_000 {
            let mut changed = rest.clone();
            for _ in 0..3 {
                random = flame_module::mix(random);
                let at = random as usize % changed.len();
                changed[at] = (random >> 32) as u8 & [0xff, 7][random as usize >> 20 & 1];
            }
            counts[read(&changed)] += 1;
        }
        assert!(counts[1] > 1000 && counts[2] > 1000 && counts[3] > 1000, "{counts:?}");
    }
}
