use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What a module sees. Two equal values are computed once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewSpec {
    /// pcap filters; a packet must pass all of them.
    pub select: Vec<String>,
    pub expose: Expose,
    pub transforms: Transforms,
}

/// Which bytes are visible, from the start of the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Expose {
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
    /// The smaller of the two: the order of the variants is the order of exposure.
    pub fn meet(self, other: Self) -> Self {
        self.min(other)
    }
}

impl FromStr for Expose {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match (s, s.strip_prefix("payload:").map(str::parse)) {
            ("none", _) => Ok(Self::None),
            ("headers", _) => Ok(Self::Headers),
            ("all", _) => Ok(Self::All),
            (_, Some(Ok(n))) => Ok(Self::Payload(n)),
            _ => Err(format!("{s:?}: expected none, headers, payload:N or all")),
        }
    }
}

impl fmt::Display for Expose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Headers => f.write_str("headers"),
            Self::Payload(n) => write!(f, "payload:{n}"),
            Self::All => f.write_str("all"),
        }
    }
}

/// A field that a view can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

/// The action per field; fields not named are kept.
pub type Transforms = BTreeMap<Field, Action>;
