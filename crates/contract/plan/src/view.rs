use crate::{ShownFilter, TrustedFilter};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The packets, bytes and form that a module sees. Equal views are computed once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ViewSpec {
    /// The filters that are evaluated on the true packet. A packet must pass all of them.
    pub select: Vec<TrustedFilter>,
    /// The filters of those through whose hands the grant went, each evaluated on the packet as its author
    /// saw it. A packet must pass all of them; the others are hidden, and so is their number.
    pub stages: Vec<Stage>,
    /// The filters of the holder itself, on the packet as the grant shows it before the holder narrows it for
    /// a module. Packets that do not pass count as filtered.
    pub own: Vec<Stage>,
    /// The filters that are evaluated on the packet as it is shown: hidden bytes must not be filtered on
    /// either. Packets that do not pass count as filtered.
    pub select_shown: Vec<ShownFilter>,
    /// The bytes on which `select_shown` is evaluated, if they are more than the module needs.
    pub select_expose: Option<Expose>,
    pub expose: Expose,
    pub transforms: Transforms,
    /// The unit to which time stamps are rounded down; 0 and 1 leave them unchanged.
    pub resolution_ns: u64,
    /// One packet in this many is shown; 0 and 1 show all.
    pub sample: u32,
    /// The form of packets on which sampling decides, so that narrower views of one credential show no other
    /// packets. If it is missing, the packet as it is shown.
    pub sample_seen: Option<Seen>,
    /// The key of sampling, one for all views of a node. If it is missing, [`ViewSpec::key`] is used, and
    /// without that the key of the run.
    pub sample_key: Option<ViewKey>,
    /// The key of the transforms, and of the flow hash if anything is hidden. If it is missing, the key of
    /// the run is used.
    pub key: Option<ViewKey>,
    /// The number of bytes of a packet that are shown if everything is exposed; 0 means
    /// [`flame_abi::MAX_PACKET`].
    pub snaplen: u32,
}

/// The form of packets on which a decision rests that another than the holder of the view took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Seen {
    pub expose: Expose,
    pub transforms: Transforms,
    /// The unit to which time stamps are rounded down; 0 and 1 leave them unchanged.
    pub resolution_ns: u64,
    /// The key of the transforms. If it is missing, the key of the run is used.
    pub key: Option<ViewKey>,
}

/// A filter of somebody who narrowed a grant. It is a value only together with the view of its author: on
/// another form of the packet, an address in it would stand for another host, and a negation would let pass
/// what it was written to exclude.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stage {
    pub filter: ShownFilter,
    pub seen: Seen,
}

/// The maximum number of header bytes that are exposed: link header, tags, tunnels and options. Longer
/// headers are cut.
pub const MAX_HEADERS: u32 = 512;

impl ViewSpec {
    /// Returns the form in which this view shows packets.
    pub fn seen(&self) -> Seen {
        let Self { expose, transforms, resolution_ns, key, .. } = self;
        let (transforms, key) = (transforms.clone(), key.clone());
        Seen { expose: *expose, transforms, resolution_ns: *resolution_ns, key }
    }

    /// Returns the maximum number of bytes of a packet that this view shows. Views cut there, and bounds of
    /// modules rely on it.
    pub fn longest(&self) -> u32 {
        self.expose.longest(self.snaplen)
    }

    /// Returns whether times are shown in steps of more than a nanosecond. The view then shows whole
    /// intervals of a live source only.
    pub fn has_steps(&self) -> bool {
        self.resolution_ns > 1
    }
}

/// Returns `ts_ns` rounded down to a multiple of the resolution.
#[inline]
pub fn quantize(ts_ns: u64, resolution_ns: u64) -> u64 {
    if resolution_ns > 1 { ts_ns - ts_ns % resolution_ns } else { ts_ns }
}

/// The secret key of a view. Views under different keys are different.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ViewKey(pub [u8; 32]);

impl fmt::Debug for ViewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ViewKey(…)")
    }
}

/// The bytes that are visible, from the start of the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Expose {
    /// No bytes, and a descriptor that reveals only that a packet arrived, and when.
    Count,
    /// No bytes, only the descriptor.
    None,
    /// The bytes through the transport header, or through the link header if the packet is not IP.
    #[default]
    Headers,
    /// The headers and this many more bytes.
    Payload(u32),
    All,
}

impl Expose {
    /// Returns the maximum number of bytes of a packet that are exposed if `snaplen` bytes were captured (0
    /// means no limit).
    pub fn longest(self, snaplen: u32) -> u32 {
        let snaplen = if snaplen == 0 { u32::MAX } else { snaplen }.min(flame_abi::MAX_PACKET as u32);
        match self {
            Self::Count | Self::None => 0,
            Self::Headers => MAX_HEADERS.min(snaplen),
            Self::Payload(n) => MAX_HEADERS.saturating_add(n).min(snaplen),
            Self::All => snaplen,
        }
    }

    /// Returns the smaller of the two. The variants are ordered by exposure.
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

    /// Returns the name of the field, such as `mac.src`.
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

    /// Parses the name of one field, such as `mac.src`, or of both sides, such as `mac`.
    ///
    /// # Errors
    ///
    /// Returns a description of the fault, with the names that exist.
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

/// The change that is made to a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Action {
    #[default]
    Keep,
    /// Replaces the address by a prefix-preserving pseudonym (Crypto-PAn). For IP addresses only.
    Prefix,
    /// Replaces the field by a keyed hash of the same width.
    Hash,
    /// Keeps this many leading bits and zeroes the rest.
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
    /// Returns the action that reveals no more than either. `keep` reveals everything; `prefix` reveals which
    /// addresses are equal or share prefixes, `hash` only which are equal; `truncate` reveals leading bits,
    /// more with a larger number; `zero` reveals nothing. Only `zero` is below both a pseudonym and true
    /// bits.
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

/// The actions by field. Fields without one are kept.
pub type Transforms = BTreeMap<Field, Action>;
