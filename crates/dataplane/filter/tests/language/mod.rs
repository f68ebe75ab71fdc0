//! An evaluator of the filter language, written from pcap-filter(7) and the RFCs: it reads the text and the
//! bytes, and knows nothing of BPF. What the manual leaves open is decided as follows.
//!
//! - A packet that ends before a byte which has to be read does not pass, whatever is negated. Terms are
//!   evaluated from left to right, and only as far as needed.
//! - `vlan` and `mpls` move what is read by the rest of the text by one header, also behind `or` and `not`.
//! - `host` and `net` without a protocol concern IPv4, ARP and RARP, or IPv6; source before destination.
//! - `port` and bytes of a transport header are read in the first fragment only (IPv4), and directly behind
//!   the fixed header (IPv6). `proto` looks behind one fragment header of IPv6, and no further extension.
//! - `ip broadcast` knows no netmask: it holds for 0.0.0.0 and 255.255.255.255.
//! - Arithmetic has 32 bits and wraps; a packet for which it divides by 0 does not pass.

mod arithmetic;
mod read;
mod terms;

use std::rc::Rc;

/// The captured bytes of a packet, and its length on the wire.
#[derive(Clone, Debug)]
pub struct Packet {
    pub bytes: Vec<u8>,
    pub wire_len: u32,
}

impl Packet {
    /// Returns a number of `size` bytes, if they were captured.
    fn number(&self, at: u64, size: u64) -> Option<u32> {
        let (at, end) = (usize::try_from(at).ok()?, usize::try_from(at + size).ok()?);
        Some(self.bytes.get(at..end)?.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }
}

/// A test of a packet. `None` if a byte that it needs was not captured.
type Test = Rc<dyn Fn(&Packet) -> Option<bool>>;

/// The headers in front of those for which the next term looks.
#[derive(Clone, Copy)]
pub struct Layers {
    /// The place of the EtherType; none if packets begin with an IP header.
    kind: Option<u64>,
    payload: u64,
    /// The place and size of the kind of a cooked packet: received, or sent by the machine itself.
    direction: Option<(u64, u64)>,
    tags: u64,
    labels: u64,
}

impl Layers {
    const fn new(kind: Option<u64>, payload: u64, direction: Option<(u64, u64)>) -> Self {
        Self { kind, payload, direction, tags: 0, labels: 0 }
    }

    pub const ETHERNET: Self = Self::new(Some(12), 14, None);
    pub const RAW: Self = Self::new(None, 0, None);
    pub const LINUX_SLL: Self = Self::new(Some(14), 16, Some((0, 2)));
    pub const LINUX_SLL2: Self = Self::new(Some(0), 20, Some((10, 1)));

    fn payload(self) -> u64 {
        self.payload + 4 * self.tags + 4 * self.labels
    }
}

/// An expression that was read.
pub struct Expression(Test);

impl Expression {
    /// Reads an expression for packets with these layers. The error is the rest that was not understood.
    pub fn read(text: &str, layers: Layers) -> Result<Self, String> {
        read::read(text, layers).map(Self)
    }

    pub fn matches(&self, packet: &Packet) -> bool {
        (self.0)(packet).unwrap_or(false)
    }
}

fn test(f: impl Fn(&Packet) -> Option<bool> + 'static) -> Test {
    Rc::new(f)
}

fn and(a: Test, b: Test) -> Test {
    test(move |p| if a(p)? { b(p) } else { Some(false) })
}

fn or(a: Test, b: Test) -> Test {
    test(move |p| if a(p)? { Some(true) } else { b(p) })
}

fn not(a: Test) -> Test {
    test(move |p| Some(!a(p)?))
}

/// A field whose bits under `mask` have a value.
fn field(at: u64, size: u64, mask: u32, value: u32) -> Test {
    test(move |p| Some(p.number(at, size)? & mask == value))
}
