//! Datagrams of IP from their fragments (RFC 791, RFC 8200), by the rule of BSD, which is Suricata's default.
//!
//! A fragment leaves to an earlier one what both have, if that begins before it or at the same place, and
//! takes it otherwise. The rest of a fragment counts as a fragment that begins there.
//!
//! The first fragment without the flag for more of them states the length of the datagram. No byte after that
//! is part of it. A fragment that was not captured as a whole, or is hidden in part, is not kept.

use flame_decode::Options;
use flame_module::{Descriptor, Ip, LinkType, Packet, flags};
use std::collections::BTreeMap;

/// The time since the latest fragment after which a datagram is given up, as in Suricata.
const IDLE_NS: u64 = 60_000_000_000;
/// The memory in bytes that incomplete datagrams take together; the oldest one gives way.
pub const MOST: usize = 8 << 20;
/// The memory in bytes that each datagram and each of its pieces takes besides its data.
const DATAGRAM: usize = 320;
const PIECE: usize = 96;
/// The largest number of bytes of a datagram of IPv4, and of the payload of one of IPv6.
const LONGEST: usize = 65_535;
/// The largest number of extension headers before a fragment header, and of tags of VLANs.
const EXTENSIONS: usize = 16;
const TAGS: usize = 3;

/// What fragments of one datagram have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    id: u32,
    /// The protocol of IPv4, whose identifications each protocol has for itself; 0 in IPv6.
    proto: u8,
    /// The numbers of the VLANs, the outermost first.
    tags: u64,
    src: Ip,
    dst: Ip,
}

/// A fragment as its headers state it.
struct Part<'a> {
    id: u32,
    /// The headers before the data of the whole datagram. Of IPv6, they end where the fragment header begins,
    /// and the byte at `next.0` becomes `next.1`.
    head: &'a [u8],
    next: Option<(usize, u8)>,
    offset: usize,
    more: bool,
    /// The data that are visible, and their length as the header states it.
    data: &'a [u8],
    len: usize,
}

impl<'a> Part<'a> {
    /// Returns the place of a packet in its datagram, or `None` if the packet is all of it or headers are
    /// missing.
    fn of(packet: &Packet<'a>) -> Option<Self> {
        let l3 = packet.l3();
        let part = if packet.has(flags::IPV4) { Self::of_v4(l3) } else { Self::of_v6(l3) };
        part.filter(|part| part.more || part.offset > 0)
    }

    fn of_v4(l3: &'a [u8]) -> Option<Self> {
        let header = l3.first_chunk::<20>()?;
        let [length, place] = [2, 6].map(|at| usize::from(u16::from_be_bytes([header[at], header[at + 1]])));
        // A view may show other bytes than those that were decoded.
        let start = (usize::from(header[0] & 15) * 4).max(20);
        let len = length.checked_sub(start)?;
        let rest = l3.get(start..)?;
        Some(Self {
            id: u16::from_be_bytes([header[4], header[5]]).into(),
            head: &l3[..start],
            next: None,
            offset: (place & 0x1fff) * 8,
            more: place & 0x2000 != 0,
            data: &rest[..len.min(rest.len())],
            len,
        })
    }

    fn of_v6(l3: &'a [u8]) -> Option<Self> {
        let header = l3.first_chunk::<40>()?;
        let end = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
        // The offsets of the byte that names the next header, and of that header.
        let (mut named, mut at) = (6, 40);
        for _ in 0..EXTENSIONS {
            let length = match l3[named] {
                44 => break,
                0 | 43 | 60 => 8 + usize::from(*l3.get(at + 1)?) * 8,
                51 => 8 + usize::from(*l3.get(at + 1)?) * 4,
                _ => return None,
            };
            (named, at) = (at, at + length);
            l3.get(at)?;
        }
        let [next, _, high, low, id @ ..] = l3.get(at..)?.first_chunk::<8>()?;
        let place = usize::from(u16::from_be_bytes([*high, *low]));
        let len = end.checked_sub(at + 8)?;
        let rest = &l3[at + 8..];
        (l3[named] == 44).then_some(Self {
            id: u32::from_be_bytes(*id),
            head: &l3[..at],
            next: Some((named, *next)),
            offset: place & 0xfff8,
            more: place & 1 != 0,
            data: &rest[..len.min(rest.len())],
            len,
        })
    }
}

/// Returns whether a packet is a part of a datagram, and not all of it.
#[inline]
pub fn is_part(packet: &Packet<'_>) -> bool {
    packet.has(flags::FRAGMENT) && (packet.has(flags::LATER_FRAGMENT) || Part::of(packet).is_some())
}

/// The headers of a datagram, and the flow hash of the fragment that had them.
struct Head {
    bytes: Vec<u8>,
    hash: u32,
}

struct Partial {
    /// The number by which the oldest datagram is found.
    number: u64,
    seen_ns: u64,
    head: Option<Head>,
    /// The length of the data, if it is known. No piece goes beyond it.
    end: Option<usize>,
    /// Data by their offset; no two pieces overlap.
    pieces: BTreeMap<usize, Vec<u8>>,
    /// The number of bytes in the pieces.
    have: usize,
}

impl Partial {
    fn size(&self) -> usize {
        let head = self.head.as_ref().map_or(0, |head| head.bytes.len());
        DATAGRAM + head + self.have + self.pieces.len() * PIECE
    }

    fn add(&mut self, part: &Part<'_>, hash: u32) {
        if part.offset == 0 && self.head.is_none() {
            let mut bytes = part.head.to_vec();
            if let Some((at, next)) = part.next {
                bytes[at] = next;
            }
            self.head = Some(Head { bytes, hash });
        }
        let (mut start, mut end) = (part.offset, part.offset + part.data.len());
        if !part.more && self.end.is_none() {
            self.end = Some(end);
            self.cut(end);
        }
        end = end.min(self.end.unwrap_or(end));
        if let Some((at, piece)) = self.pieces.range(..=start).next_back() {
            start = start.max(at + piece.len());
        }
        if start >= end {
            return;
        }
        while let Some((&at, _)) = self.pieces.range(start..end).next() {
            let Some(mut piece) = self.pieces.remove(&at) else { break };
            let lost = piece.len().min(end - at);
            self.have -= lost;
            if lost < piece.len() {
                piece.drain(..lost);
                self.pieces.insert(end, piece);
            }
        }
        self.have += end - start;
        self.pieces.insert(start, part.data[start - part.offset..end - part.offset].to_vec());
    }

    /// Removes all data from an offset on.
    fn cut(&mut self, end: usize) {
        self.pieces.split_off(&end);
        if let Some((at, piece)) = self.pieces.range_mut(..end).next_back() {
            piece.truncate(end - at);
        }
        self.have = self.pieces.values().map(Vec::len).sum();
    }

    fn is_complete(&self) -> bool {
        self.head.is_some() && self.end == Some(self.have)
    }

    /// Returns the whole datagram, unless it is longer than one may be.
    fn whole(self, ts_ns: u64, is_v4: bool) -> Option<Box<Datagram>> {
        let mut head = self.head?;
        let bytes = &mut head.bytes;
        bytes.extend(self.pieces.into_values().flatten());
        let length = u16::try_from(bytes.len() - if is_v4 { 0 } else { 40 }).ok()?;
        let at = if is_v4 { 2 } else { 4 };
        bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
        if is_v4 {
            bytes[6..8].fill(0);
        }
        let options = Options { decapsulate: false, without_hash: true };
        let decoded = flame_decode::decode(LinkType::RAW, bytes, bytes.len() as u32, options);
        let descriptor = Descriptor { ts_ns, hash: head.hash, ..decoded };
        Some(Box::new(Datagram { descriptor, bytes: head.bytes }))
    }
}

/// A datagram that was put together.
pub struct Datagram {
    descriptor: Descriptor,
    bytes: Vec<u8>,
}

impl Datagram {
    pub fn packet(&self) -> Packet<'_> {
        Packet::new(&self.descriptor, &self.bytes)
    }
}

/// The datagrams that are not complete yet.
#[derive(Default)]
pub struct Fragments {
    datagrams: BTreeMap<Key, Partial>,
    /// Their keys, in the order of their first fragments.
    order: BTreeMap<u64, Key>,
    next: u64,
    /// The memory that they take.
    size: usize,
    /// The datagrams that were given up.
    lost: u64,
}

impl Fragments {
    /// Notes a fragment, and returns its datagram if it completes it.
    #[cold]
    pub fn see(&mut self, packet: &Packet<'_>) -> Option<Box<Datagram>> {
        let part = Part::of(packet).filter(|part| part.data.len() == part.len && part.len > 0)?;
        let is_v4 = packet.has(flags::IPV4);
        if part.offset + part.len > LONGEST - if is_v4 { 20 } else { 0 } {
            return None;
        }
        let key = Key {
            id: part.id,
            proto: if is_v4 { packet.l3()[9] } else { 0 },
            tags: tags(&packet.bytes()[..usize::from(packet.l3)]),
            src: packet.src()?,
            dst: packet.dst()?,
        };
        if self.datagrams.get(&key).is_some_and(|d| packet.ts_ns.saturating_sub(d.seen_ns) >= IDLE_NS) {
            self.lost += 1;
            self.remove(&key);
        }
        let mut datagram = self.remove(&key).unwrap_or_else(|| {
            self.next += 1;
            let pieces = BTreeMap::new();
            Partial { number: self.next, seen_ns: packet.ts_ns, head: None, end: None, pieces, have: 0 }
        });
        datagram.seen_ns = datagram.seen_ns.max(packet.ts_ns);
        datagram.add(&part, packet.hash);
        if datagram.is_complete() {
            let whole = datagram.whole(packet.ts_ns, is_v4);
            self.lost += u64::from(whole.is_none());
            return whole;
        }
        while self.size + datagram.size() > MOST {
            let Some((_, oldest)) = self.order.first_key_value() else { break };
            let oldest = *oldest;
            self.lost += 1;
            self.remove(&oldest);
        }
        self.size += datagram.size();
        self.order.insert(datagram.number, key);
        self.datagrams.insert(key, datagram);
        None
    }

    fn remove(&mut self, key: &Key) -> Option<Partial> {
        let datagram = self.datagrams.remove(key)?;
        self.order.remove(&datagram.number);
        self.size -= datagram.size();
        Some(datagram)
    }

    /// Returns the number of datagrams that are not complete yet.
    pub fn kept(&self) -> usize {
        self.datagrams.len()
    }

    /// Returns the number of datagrams that were begun and not completed.
    pub fn incomplete(&self) -> u64 {
        self.lost + self.kept() as u64
    }
}

/// Returns the numbers of the VLANs that a link header of Ethernet has.
fn tags(link: &[u8]) -> u64 {
    let tags = link.get(12..).unwrap_or(&[]).chunks_exact(4).take(TAGS);
    let tags = tags.take_while(|tag| matches!(tag[..2], [0x81, 0] | [0x88, 0xa8] | [0x91, 0]));
    // Plus 1, since 0 is a number as well.
    let number = |tag: &[u8]| 1 + u64::from(u16::from_be_bytes([tag[2] & 15, tag[3]]));
    tags.fold(0, |all, tag| (all << 16) | number(tag))
}
