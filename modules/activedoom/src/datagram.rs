//! Datagrams of updates: `AD`, version 1, u8 number of updates, then for each u16 player (big-endian), u8
//! length, and as many bytes.

/// The largest payload of a datagram in bytes.
pub const MOST: usize = 1400;
const MAGIC: [u8; 3] = [b'A', b'D', 1];
const HEAD: usize = 4;
/// The bytes of an update before its contents.
const UPDATE: usize = 3;
/// The updates of one datagram: each takes a walk over those that wait.
const MOST_UPDATES: usize = 64;
/// Ethernet with tags, IPv4 with options, UDP.
const MOST_HEADERS: usize = 128;
const UDP: usize = 8;

/// Updates in the form of a datagram, without its head.
#[derive(Clone, Copy)]
pub struct Updates<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Updates<'a> {
    /// Returns the number of bytes of a datagram with these updates alone.
    pub fn len(&self) -> usize {
        HEAD + self.bytes.len()
    }

    /// Returns each update, with its head.
    fn each(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.bytes;
        // A constant number of iterations.
        (0..MOST_UPDATES).take_while(move |at| *at < self.count).map_while(move |_| {
            let (update, after) = first(rest)?;
            rest = after;
            Some(update)
        })
    }
}

fn first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(UPDATE + usize::from(*bytes.get(UPDATE - 1)?))
}

/// Returns the updates in a payload, or `None` if it is no datagram of updates.
pub fn updates(payload: &[u8]) -> Option<Updates<'_>> {
    let (head, bytes) = payload.split_first_chunk::<HEAD>()?;
    let count = usize::from(head[3]);
    if head[..3] != MAGIC || !(1..=MOST_UPDATES).contains(&count) {
        return None;
    }
    let all = Updates { bytes, count };
    let lengths: usize = all.each().map(<[u8]>::len).sum();
    (all.each().count() == count && lengths == bytes.len()).then_some(all)
}

/// A datagram that is being made. It begins with the headers of the first one.
pub struct Datagram {
    bytes: [u8; MOST_HEADERS + MOST],
    /// The offsets of the IPv4 header, the UDP header and the payload.
    ip: usize,
    udp: usize,
    payload: usize,
    len: usize,
}

impl Datagram {
    /// Begins a datagram with the headers of `packet`: IPv4 at `ip` and UDP at `udp`.
    pub fn new(packet: &[u8], ip: usize, udp: usize) -> Option<Self> {
        let payload = udp + UDP;
        let headers = packet.get(..payload).filter(|h| h.len() <= MOST_HEADERS && ip + 20 <= udp)?;
        let mut bytes = [0; MOST_HEADERS + MOST];
        bytes[..payload].copy_from_slice(headers);
        bytes[payload..payload + 3].copy_from_slice(&MAGIC);
        Some(Self { bytes, ip, udp, payload, len: payload + HEAD })
    }

    /// Returns whether a packet whose IPv4 header begins at `ip` goes to the same server by the same way,
    /// with the same service and time to live: no sender decides these for others.
    pub fn is_for(&self, packet: &[u8], ip: usize) -> bool {
        if ip != self.ip || ip > MOST_HEADERS {
            return false;
        }
        // The way is all that precedes the IP header, but for the sender's address.
        let same = |range: std::ops::Range<usize>| packet.get(range.clone()) == self.bytes.get(range);
        let way = if ip >= 14 { same(0..6) && same(12..ip) } else { same(0..ip) };
        let header = same(ip..ip + 2) && same(ip + 8..ip + 9);
        way && header && same(ip + 16..ip + 20)
    }

    /// Returns the number of updates.
    pub fn count(&self) -> u64 {
        u64::from(self.bytes[self.payload + 3])
    }

    /// Returns the number of bytes of the payload if no update of these replaces another.
    pub fn len_with(&self, all: Updates<'_>) -> usize {
        if self.count() + all.count as u64 > MOST_UPDATES as u64 {
            return usize::MAX;
        }
        self.len - self.payload + all.bytes.len()
    }

    /// Adds updates, and returns how many these are and how many older ones they replaced.
    pub fn add(&mut self, all: Updates<'_>) -> (u64, u64) {
        let (mut added, mut replaced) = (0, 0);
        for update in all.each() {
            added += 1;
            if self.remove([update[0], update[1]]) {
                replaced += 1;
            }
            let end = self.len + update.len();
            // The caller has made sure that there is room.
            let Some(place) = self.bytes.get_mut(self.len..end) else { break };
            place.copy_from_slice(update);
            self.len = end;
            self.bytes[self.payload + 3] += 1;
        }
        (added, replaced)
    }

    /// Removes the update of a player.
    fn remove(&mut self, player: [u8; 2]) -> bool {
        let mut at = self.payload + HEAD;
        for _ in 0..MOST_UPDATES {
            let Some((update, _)) = self.bytes.get(at..self.len).and_then(first) else { break };
            let len = update.len();
            if update[..2] == player {
                self.bytes.copy_within(at + len..self.len, at);
                self.len -= len;
                self.bytes[self.payload + 3] -= 1;
                return true;
            }
            at += len;
        }
        false
    }

    /// Returns the packet, with lengths and checksums (RFC 791, RFC 768).
    pub fn finish(&mut self) -> &[u8] {
        let (ip, udp) = (self.ip, self.udp);
        let packet = &mut self.bytes[..self.len];
        let total = packet.len() - ip;
        packet[ip + 2..ip + 4].copy_from_slice(&(total as u16).to_be_bytes());
        packet[ip + 10..ip + 12].fill(0);
        let sum = !sum(&packet[ip..udp], 0);
        packet[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        let length = packet.len() - udp;
        packet[udp + 4..udp + 6].copy_from_slice(&(length as u16).to_be_bytes());
        packet[udp + 6..udp + 8].fill(0);
        // The pseudo header has the addresses, the protocol and the length.
        let pseudo = self::sum(&packet[ip + 12..ip + 20], 17 + length as u32);
        let sum = match !self::sum(&packet[udp..], pseudo.into()) {
            0 => u16::MAX,
            sum => sum,
        };
        packet[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
        packet
    }
}

/// Returns the sum of 16-bit words in ones' complement, of at most a datagram. As a function of its own it
/// has a bound for any bytes.
#[inline(never)]
pub fn sum(bytes: &[u8], more: u32) -> u16 {
    let bytes = &bytes[..flame_module::limit(bytes.len(), MOST_HEADERS + MOST)];
    let (words, last) = bytes.as_chunks::<2>();
    let more = more + last.first().map_or(0, |high| u32::from(*high) << 8);
    let sum = words.iter().fold(more, |sum, word| sum + u32::from(u16::from_be_bytes(*word)));
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}
