//! Transforms of fields, and the fields to which they apply.
//!
//! | field | where |
//! | --- | --- |
//! | `mac.*` | Ethernet (also in tunnels), Linux cooked headers, ARP, link-layer options of neighbour discovery |
//! | `ip.*` | IPv4 and IPv6 headers (outer, in tunnels, quoted by ICMP errors), ARP, routing headers, home addresses, neighbour discovery, gateways of ICMP redirects |
//! | `port.*` | TCP, UDP, SCTP (outer, in tunnels, quoted) |
//!
//! An address that has no side (a gateway, a hop) is changed as `ip.dst`, or as `ip.src` if that is kept.
//! Addresses in payload (DNS, SIP) are not changed.
//!
//! Options of IPv4, IPv6 and TCP, reserved fields and options of tunnels stay only if they are known not to
//! hold hidden data; others become padding. Payload that is a tunnel, by its port or because a packet is
//! found in its first 128 bytes, is not shown unless its headers were changed.
//!
//! Some parts of packets contain others: [`TABLE`] states which, and with what they are hidden.
//!
//! Checksums (IPv4, TCP, UDP, ICMP, ICMPv6, GRE) are right for the shown bytes if all the bytes they cover
//! are shown and they were right; otherwise they are zero, and so are those of SCTP, DCCP and UDP-Lite, and
//! the values of authentication headers.
//!
//! Used by views, outside the sandbox, and by the module `anonymize`, inside it, with the same meaning.
#![forbid(unsafe_code)]

mod checksum;
mod contains;
mod cover;
mod hash;
mod headers;
mod hidden;
mod keep;
mod key;
mod prefix;
mod special;
mod truncate;
mod zero;

use flame_abi::{Descriptor, LinkType, flags};
use flame_plan::{Action, Field, Transforms};

/// The text of the transforms, each of which begins with its manual.
pub const MANUALS: &[&str] = &[
    include_str!("hash.rs"),
    include_str!("keep.rs"),
    include_str!("prefix.rs"),
    include_str!("truncate.rs"),
    include_str!("zero.rs"),
];

pub use contains::{Part, Remains, Row, Secrets, TABLE, remains};
pub use hash::{FlowHash, Sampler};
pub use hidden::Hidden;
pub use key::{Key, KeyError};
pub use prefix::Prefix;
pub use special::Kept;

/// The reason why fields cannot be changed as requested.
#[derive(Debug, thiserror::Error)]
pub enum TransformError {
    #[error("transform {field}={action} needs a key: give one with --key FILE")]
    NoKey { field: &'static str, action: &'static str },
    #[error("transform {field}=prefix: only addresses of IP have prefixes: use hash, truncate:BITS or zero")]
    NotIp { field: &'static str },
    #[error("transform {field}=truncate:{bits}: the field has {width} bits")]
    Width { field: &'static str, bits: u8, width: u8 },
}

/// Parses a list of `FIELD=ACTION`, separated by commas, such as `ip=prefix,mac=zero`.
///
/// # Errors
///
/// Returns an error that names the invalid part.
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

/// The actions by field, with their keys.
pub struct Rewriter {
    actions: [Action; Field::ALL.len()],
    /// The data that is hidden: fields that an action changes, and others.
    secrets: Secrets,
    /// The fields that are changed because the other side is, and would be kept by themselves.
    evened: Secrets,
    hash: Option<hash::Fields>,
    prefix: Option<Prefix>,
    kept: Kept,
    /// The list in which bytes that change are noted, if anybody asks.
    pub(crate) hidden: Option<Hidden>,
    /// Whether the payload of the last packet was left out because it contains a packet.
    pub(crate) is_cut: bool,
}

impl Rewriter {
    /// Creates a rewriter, or returns `None` if every field is kept.
    ///
    /// # Errors
    ///
    /// Returns an error if an action lacks the key that it needs, if `prefix` applies to a field that is no
    /// address of IP, or if `truncate` keeps more bits than the field has.
    pub fn new(transforms: &Transforms, key: Option<&Key>) -> Result<Option<Self>, TransformError> {
        Self::hiding(transforms, key).map(|r| r.changes_any().then_some(r))
    }

    /// Creates a rewriter for packets that are not shown completely: checksums and options change even if
    /// every field is kept.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Rewriter::new`].
    pub fn hiding(transforms: &Transforms, key: Option<&Key>) -> Result<Self, TransformError> {
        let mut r = Self {
            actions: [Action::Keep; Field::ALL.len()],
            secrets: Secrets::default(),
            evened: Secrets::default(),
            hash: None,
            prefix: None,
            kept: Kept::default(),
            hidden: None,
            is_cut: false,
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
                    r.hash.get_or_insert_with(|| hash::Fields::new(key));
                }
                Action::Truncate(bits) if bits > width => {
                    return Err(TransformError::Width { field: field.name(), bits, width });
                }
                Action::Keep | Action::Zero | Action::Truncate(_) => {}
            }
            r.actions[*field as usize] = *action;
            if *action != Action::Keep {
                r.hide(Secrets::of(*field));
            }
        }
        Ok(r)
    }

    /// Changes both sides of addresses and of ports as either is. For views that show no header: all that is
    /// left of both is a name of the flow, which does not tell its directions apart. If one side alone were
    /// changed before, it would.
    pub fn even_sides(&mut self) {
        for sides in [[Field::IpSrc, Field::IpDst], [Field::PortSrc, Field::PortDst]] {
            let [one, other] = sides.map(|field| self.actions[field as usize]);
            let both = one.meet(other);
            for field in sides.into_iter().filter(|_| both != Action::Keep) {
                if self.actions[field as usize] == Action::Keep {
                    self.evened = self.evened.with(Secrets::of(field));
                }
                self.actions[field as usize] = both;
                self.hide(Secrets::of(field));
            }
        }
    }

    /// Hides `secrets` in all parts of packets that contain them ([`TABLE`]).
    pub fn hide(&mut self, secrets: Secrets) {
        self.secrets = self.secrets.with(secrets);
    }

    /// Returns whether packets of `link` may be shown in another form although no field changes.
    #[inline]
    pub fn changes_parts(&self, link: LinkType) -> bool {
        let has_notes = matches!(link, LinkType::NFLOG | LinkType::IEEE802_11_RADIOTAP);
        self.hides(Secrets::TIME) || (has_notes && self.loses(Part::Notes))
    }

    /// Returns whether the payload of the last packet was left out because it contains a packet that no
    /// transform would change.
    #[inline]
    pub fn has_cut(&self) -> bool {
        self.is_cut
    }

    /// Changes the packet's fields in place and returns the length that was understood. Bytes after it may
    /// hold original addresses and must not be shown.
    pub fn rewrite(&mut self, link: LinkType, bytes: &mut [u8]) -> usize {
        headers::rewrite(self, link, bytes, usize::MAX)
    }

    /// Changes the packet's fields in place, for showing at most `ask` bytes. Returns the number of bytes
    /// that may be shown: they reveal nothing about the bytes after them. `bytes` may end at `ask` if the
    /// headers do.
    pub fn rewrite_shown(&mut self, link: LinkType, bytes: &mut [u8], ask: usize) -> usize {
        headers::rewrite(self, link, bytes, ask)
    }

    /// Notes which bytes of the following packet change, in `hidden`, which is emptied.
    pub fn record(&mut self, mut hidden: Hidden) {
        hidden.clear();
        self.hidden = Some(hidden);
    }

    /// Returns the notes since [`Rewriter::record`], and ends them.
    pub fn recorded(&mut self) -> Hidden {
        self.hidden.take().unwrap_or_default()
    }

    /// Returns whether any field changes.
    #[inline]
    pub fn changes_any(&self) -> bool {
        self.hides(Secrets::FIELDS)
    }

    /// Returns whether the flow hash of a packet changes. Addresses of IPv6 may contain those of MAC.
    #[inline]
    pub fn changes_flow(&self, d: &Descriptor) -> bool {
        self.hides(Secrets::IP.with(Secrets::PORT)) || (d.has(flags::IPV6) && self.hides(Secrets::MAC))
    }

    pub(crate) fn changes_ip(&self) -> bool {
        self.hides(Secrets::IP)
    }

    pub(crate) fn changes_mac(&self) -> bool {
        self.hides(Secrets::MAC)
    }

    pub(crate) fn changes(&self, field: Field) -> bool {
        self.hides(Secrets::of(field))
    }

    /// Returns the new value of IPv4 address `old`.
    #[inline]
    pub(crate) fn map4(&mut self, field: Field, old: u32) -> u32 {
        match (self.actions[field as usize], &mut self.prefix) {
            (Action::Keep, _) => return old,
            (Action::Prefix, Some(prefix)) => return prefix.ipv4(old),
            _ => {}
        }
        let [a, b, c, d, ..] = self.map(field, &old.to_be_bytes());
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns the new value of `old` (2, 4, 6 or 16 bytes) in the first bytes of the result.
    pub(crate) fn map(&mut self, field: Field, old: &[u8]) -> [u8; 16] {
        let mut new = [0; 16];
        new[..old.len()].copy_from_slice(old);
        if kind(field) == kind(Field::IpSrc)
            && <[u8; 4]>::try_from(old).is_ok_and(|v4| self.keeps4(u32::from_be_bytes(v4)))
        {
            return new;
        }
        let value = &mut new[..old.len()];
        match self.actions[field as usize] {
            Action::Keep => {}
            Action::Zero => zero::apply(value),
            Action::Truncate(bits) => truncate::apply(value, bits),
            Action::Hash => match &mut self.hash {
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

/// Returns the number of bits of the widest form of a field.
fn width(field: Field) -> u8 {
    match field {
        Field::MacSrc | Field::MacDst => 48,
        Field::IpSrc | Field::IpDst => 128,
        Field::PortSrc | Field::PortDst => 16,
    }
}

/// Returns the number of a kind of field. Both sides share it, so that an address hashes alike on either.
fn kind(field: Field) -> u8 {
    match field {
        Field::MacSrc | Field::MacDst => 1,
        Field::IpSrc | Field::IpDst => 2,
        Field::PortSrc | Field::PortDst => 3,
    }
}
