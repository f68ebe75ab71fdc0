use crate::{ShownFilter, TrustedFilter};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What a module sees. Two equal values are computed once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ViewSpec {
    /// Filters evaluated on the true packet; a packet must pass all of them.
    pub select: Vec<TrustedFilter>,
    /// Filters evaluated on the packet as it is shown: whoever may not see a byte may not ask for it either.
    pub select_shown: Vec<ShownFilter>,
    /// What is shown to those, if it is more than the module asks to see.
    pub select_expose: Option<Expose>,
    pub expose: Expose,
    pub transforms: Transforms,
    /// Time stamps are rounded down to multiples of it; 0 and 1 keep them.
    pub resolution_ns: u64,
    /// One packet in so many is shown; 0 and 1 show all.
    pub sample: u32,
    /// Sampling is decided for each multiple of this time and place in it, so that narrower views of one
    /// credential, whose `resolution_ns` may be longer, show no other packets; 0 stands for `resolution_ns`.
    pub sample_ns: u64,
    /// The key of sampling, one for all views of a node. Without one, [`ViewSpec::key`] and then the run's.
    pub sample_key: Option<ViewKey>,
    /// The key of the transforms, and of the flow hash where anything is hidden. Without one the run's key
    /// counts.
    pub key: Option<ViewKey>,
    /// Longest part of a packet that is shown whole where everything is exposed; 0 is
    /// [`flame_abi::MAX_PACKET`].
    pub snaplen: u32,
}

/// Bytes of headers that are exposed, at most: link header, tags, tunnels and options. What is longer is cut.
pub const MAX_HEADERS: u32 = 512;

impl ViewSpec {
    /// Bytes of a packet that this view shows, at most: views cut there, and bounds of modules rest on it.
    pub fn longest(&self) -> u32 {
        self.expose.longest(self.snaplen)
    }
}

/// A time as a view of this resolution shows it.
#[inline]
pub fn quantize(ts_ns: u64, resolution_ns: u64) -> u64 {
    if resolution_ns > 1 { ts_ns - ts_ns % resolution_ns } else { ts_ns }
}

/// A secret that goes with a view: views under different keys are different.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ViewKey(pub [u8; 32]);

impl fmt::Debug for ViewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ViewKey(…)")
    }
}

/// Which bytes are visible, from the start of the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Expose {
    /// That a packet came, and when: its descriptor says nothing else.
    Count,
    /// The descriptor only.
    None,
    /// Through the transport header; through the link header if the packet is not IP.
    #[default]
    Headers,
    /// Headers and this many bytes more.
    Payload(u32),
    All,
}

impl Expose {
    /// Bytes of a packet that are exposed, at most, of which `snaplen` (0: no limit of its own) were
    /// captured.
    pub fn longest(self, snaplen: u32) -> u32 {
        let snaplen = if snaplen == 0 { u32::MAX } else { snaplen }.min(flame_abi::MAX_PACKET as u32);
        match self {
            Self::Count | Self::None => 0,
            Self::Headers => MAX_HEADERS.min(snaplen),
            Self::Payload(n) => MAX_HEADERS.saturating_add(n).min(snaplen),
            Self::All => snaplen,
        }
    }

    /// The smaller of the two: the order of the variants is the order of exposure.
    pub fn meet(self, other: Self) -> Self {
        self.min(other)
    }
}

impl FromStr for Expose {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match (s, s.strip_prefix("payload:").map(str::parse)) {
            ("count", _) => Ok(Self::Count),
            ("none", _) => Ok(Self::None),
            ("headers", _) => Ok(Self::Headers),
            ("all", _) => Ok(Self::All),
            (_, Some(Ok(n))) => Ok(Self::Payload(n)),
            _ => Err(format!("{s:?}: expected count, none, headers, payload:N or all")),
        }
    }
}

impl fmt::Display for Expose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count => f.write_str("count"),
            Self::None => f.write_str("none"),
            Self::Headers => f.write_str("headers"),
            Self::Payload(n) => write!(f, "payload:{n}"),
            Self::All => f.write_str("all"),
        }
    }
}

/// A field that a view can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Field {
    MacSrc,
    MacDst,
    IpSrc,
    IpDst,
    PortSrc,
    PortDst,
}

impl Field {
    pub const ALL: [Self; 6] =
        [Self::MacSrc, Self::MacDst, Self::IpSrc, Self::IpDst, Self::PortSrc, Self::PortDst];

    pub fn name(self) -> &'static str {
        match self {
            Self::MacSrc => "mac.src",
            Self::MacDst => "mac.dst",
            Self::IpSrc => "ip.src",
            Self::IpDst => "ip.dst",
            Self::PortSrc => "port.src",
            Self::PortDst => "port.dst",
        }
    }

    /// `mac.src` is one field, `mac` both.
    pub fn parse(s: &str) -> Result<Vec<Self>, String> {
        let fields: Vec<Self> = Self::ALL
            .into_iter()
            .filter(|f| f.name() == s || f.name().split('.').next() == Some(s))
            .collect();
        if fields.is_empty() {
            return Err(format!(
                "{s:?} is no field: expected mac, ip or port, or one side as in mac.src, ip.dst, port.src"
            ));
        }
        Ok(fields)
    }
}

/// What happens to a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Action {
    #[default]
    Keep,
    /// Prefix-preserving (Crypto-PAn); IP addresses only.
    Prefix,
    /// A keyed hash of the same width.
    Hash,
    /// Keep this many leading bits, zero the rest.
    Truncate(u8),
    Zero,
}

impl FromStr for Action {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match (s, s.strip_prefix("truncate:").map(str::parse)) {
            ("keep", _) => Ok(Self::Keep),
            ("prefix", _) => Ok(Self::Prefix),
            ("hash", _) => Ok(Self::Hash),
            ("zero", _) => Ok(Self::Zero),
            (_, Some(Ok(bits))) if bits <= 128 => Ok(Self::Truncate(bits)),
            _ => Err(format!("{s:?}: expected keep, zero, truncate:BITS, hash or prefix")),
        }
    }
}

impl Action {
    /// What tells no more than either. `keep` tells all; `prefix` tells which addresses are the same and
    /// share prefixes, `hash` only which are the same; `truncate` tells true bits, the more the longer;
    /// `zero` tells nothing. Nothing but `zero` is below both a pseudonym and true bits.
    pub fn meet(self, other: Self) -> Self {
        match (self, other) {
            (Self::Keep, a) | (a, Self::Keep) => a,
            (Self::Truncate(a), Self::Truncate(b)) => Self::Truncate(a.min(b)),
            (Self::Prefix, Self::Prefix) => Self::Prefix,
            (Self::Prefix | Self::Hash, Self::Prefix | Self::Hash) => Self::Hash,
            _ => Self::Zero,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep => f.write_str("keep"),
            Self::Prefix => f.write_str("prefix"),
            Self::Hash => f.write_str("hash"),
            Self::Truncate(bits) => write!(f, "truncate:{bits}"),
            Self::Zero => f.write_str("zero"),
        }
    }
}

/// The action per field; fields not named are kept.
pub type Transforms = BTreeMap<Field, Action>;
