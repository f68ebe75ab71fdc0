//! How fields are changed, and which.
//!
//! | field | where |
//! | --- | --- |
//! | `mac.*` | Ethernet (also in tunnels), Linux cooked headers, ARP, link-layer options of neighbour discovery |
//! | `ip.*` | IPv4 and IPv6 headers (outer, in tunnels, quoted by ICMP errors), ARP, routing headers, home addresses, neighbour discovery, gateways of ICMP redirects |
//! | `port.*` | TCP, UDP, SCTP (outer, in tunnels, quoted) |
//!
//! An address that has no side (a gateway, a hop) is changed as `ip.dst`, or as `ip.src` if that is
//! kept. Addresses in payload (DNS, SIP) are payload.
//!
//! Options of IPv4, IPv6 and TCP, reserved fields and options of tunnels stay only if they are known to hold
//! nothing that is hidden; others become padding. Payload that is a tunnel, by its port or because a packet
//! is found in its first 128 bytes, is not shown unless its headers were changed.
//!
//! Checksums (IPv4, TCP, UDP, ICMP, ICMPv6, GRE) are right for what is shown if all that they cover is shown
//! and they were right; otherwise they are zero. So are those of SCTP, DCCP and UDP-Lite, and the values of
//! authentication headers.
//!
//! Used by views, outside the sandbox, and by the module `anonymize`, inside it: one meaning for both.
#![forbid(unsafe_code)]

mod checksum;
mod hash;
mod headers;
mod key;
mod prefix;
mod truncate;
mod zero;

use flame_abi::LinkType;
use flame_plan::{Action, Field, Transforms};

/// Sources of the transforms, which begin with their manuals.
pub const MANUALS: &[&str] = &[
    include_str!("hash.rs"),
    include_str!("prefix.rs"),
    include_str!("truncate.rs"),
    include_str!("zero.rs"),
];

pub use hash::{FlowHash, Sampler};
pub use key::{Key, KeyError};
pub use prefix::Prefix;

/// Why fields cannot be changed as asked.
#[derive(Debug, thiserror::Error)]
pub enum TransformError {
    #[error("transform {field}={action} needs a key: give one with --key FILE")]
    NoKey { field: &'static str, action: &'static str },
    #[error("transform {field}=prefix: only addresses of IP have prefixes: use hash, truncate:BITS or zero")]
    NotIp { field: &'static str },
    #[error("transform {field}=truncate:{bits}: the field has {width} bits")]
    Width { field: &'static str, bits: u8, width: u8 },
}

/// `FIELD=ACTION`, several separated by commas: `ip=prefix,mac=zero`. The error names the part.
pub fn parse(list: &str) -> Result<Transforms, String> {
    let mut transforms = Transforms::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let wrong = |e: String| format!("{part}: {e}");
        let (field, action) =
            part.split_once('=').ok_or_else(|| wrong("expected FIELD=ACTION".to_owned()))?;
        let action: Action = action.parse().map_err(wrong)?;
        transforms.extend(Field::parse(field).map_err(wrong)?.into_iter().map(|f| (f, action)));
    }
    Ok(transforms)
}

/// Actions per field, with what they need.
pub struct Rewriter {
    actions: [Action; Field::ALL.len()],
    /// Whether one of them changes something.
    any: bool,
    /// Whether what a capture notes of a packet is hidden.
    hides_notes: bool,
    hash: Option<hash::Hash>,
    prefix: Option<Prefix>,
}

impl Rewriter {
    /// Nothing if every field is kept.
    pub fn new(transforms: &Transforms, key: Option<&Key>) -> Result<Option<Self>, TransformError> {
        Self::hiding(transforms, key).map(|r| r.changes_any().then_some(r))
    }

    /// The same for packets of which not all is shown: checksums and options change even if every field is
    /// kept.
    pub fn hiding(transforms: &Transforms, key: Option<&Key>) -> Result<Self, TransformError> {
        let mut r = Self {
            actions: [Action::Keep; Field::ALL.len()],
            any: false,
            hides_notes: false,
            hash: None,
            prefix: None,
        };
        for (field, action) in transforms {
            let keyed = |action| key.ok_or(TransformError::NoKey { field: field.name(), action });
            let width = width(*field);
            match *action {
                Action::Prefix if width != 128 => return Err(TransformError::NotIp { field: field.name() }),
                Action::Prefix => {
                    let key = keyed("prefix")?;
                    r.prefix.get_or_insert_with(|| Prefix::new(key));
                }
                Action::Hash => {
                    let key = keyed("hash")?;
                    r.hash.get_or_insert_with(|| hash::Hash::new(key));
                }
                Action::Truncate(bits) if bits > width => {
                    return Err(TransformError::Width { field: field.name(), bits, width });
                }
                Action::Keep | Action::Zero | Action::Truncate(_) => {}
            }
            r.actions[*field as usize] = *action;
        }
        r.any = r.actions.iter().any(|a| *a != Action::Keep);
        Ok(r)
    }

    /// Hides what some link types note of a packet, too: when it came, as the how manieth, and from whom.
    pub fn hide_notes(&mut self) {
        self.hides_notes = true;
    }

    /// Whether packets of `link` have such notes, which are hidden.
    #[inline]
    pub fn changes_notes(&self, link: LinkType) -> bool {
        self.hides_notes && matches!(link, LinkType::NFLOG | LinkType::IEEE802_11_RADIOTAP)
    }

    /// Changes the packet's fields in place. What lies behind the returned length was not
    /// understood, may hold original addresses, and must not be shown.
    pub fn rewrite(&mut self, link: LinkType, bytes: &mut [u8]) -> usize {
        headers::rewrite(self, link, bytes, usize::MAX)
    }

    /// The same where `ask` bytes are shown at most: what is left in the first of them, as many as it
    /// returns, tells nothing of those behind. `bytes` may end there if the headers do.
    pub fn rewrite_shown(&mut self, link: LinkType, bytes: &mut [u8], ask: usize) -> usize {
        headers::rewrite(self, link, bytes, ask)
    }

    /// Whether any field changes.
    #[inline]
    pub fn changes_any(&self) -> bool {
        self.any
    }

    /// Whether the flow hash changes.
    pub fn changes_flow(&self) -> bool {
        self.changes_ip() || self.changes(Field::PortSrc) || self.changes(Field::PortDst)
    }

    pub(crate) fn changes_ip(&self) -> bool {
        self.changes(Field::IpSrc) || self.changes(Field::IpDst)
    }

    pub(crate) fn changes_mac(&self) -> bool {
        self.changes(Field::MacSrc) || self.changes(Field::MacDst)
    }

    pub(crate) fn changes(&self, field: Field) -> bool {
        self.actions[field as usize] != Action::Keep
    }

    /// What IPv4 address `old` becomes.
    #[inline]
    pub(crate) fn map4(&mut self, field: Field, old: u32) -> u32 {
        match (self.actions[field as usize], &mut self.prefix) {
            (Action::Keep, _) => old,
            (Action::Prefix, Some(prefix)) => prefix.ipv4(old),
            _ => {
                let [a, b, c, d, ..] = self.map(field, &old.to_be_bytes());
                u32::from_be_bytes([a, b, c, d])
            }
        }
    }

    /// What `old` (2, 4, 6 or 16 bytes) becomes, in the first bytes of the result.
    pub(crate) fn map(&mut self, field: Field, old: &[u8]) -> [u8; 16] {
        let mut new = [0; 16];
        new[..old.len()].copy_from_slice(old);
        let value = &mut new[..old.len()];
        match self.actions[field as usize] {
            Action::Keep => {}
            Action::Zero => zero::apply(value),
            Action::Truncate(bits) => truncate::apply(value, bits),
            Action::Hash => match &self.hash {
                Some(hash) => hash.apply(kind(field), value),
                None => zero::apply(value),
            },
            Action::Prefix => match &mut self.prefix {
                Some(prefix) => prefix.apply(value),
                None => zero::apply(value),
            },
        }
        new
    }
}

/// Bits of the widest form of a field.
fn width(field: Field) -> u8 {
    match field {
        Field::MacSrc | Field::MacDst => 48,
        Field::IpSrc | Field::IpDst => 128,
        Field::PortSrc | Field::PortDst => 16,
    }
}

/// Both sides share a number: the same address hashes alike wherever it stands.
fn kind(field: Field) -> u8 {
    match field {
        Field::MacSrc | Field::MacDst => 1,
        Field::IpSrc | Field::IpDst => 2,
        Field::PortSrc | Field::PortDst => 3,
    }
}
