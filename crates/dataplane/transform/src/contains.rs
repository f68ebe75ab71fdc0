//! Parts of packets that contain data of others: what is hidden together, and what stays visible.
//!
//! A view that hides a field, or the times of packets, also hides every part in [`TABLE`] that contains it.
//! This is decided here only: each place of the rewriter that changes such a part asks [`Rewriter::loses`]. A
//! part that becomes a pseudonym (`hash`, `prefix`) is one of what is left of it, with one exception: the
//! pseudonym of an IPv6 address is that of the whole, or all hosts of a network whose addresses contain
//! hidden MAC addresses would be one. It shows which addresses are equal, as its own field is granted to.
//! [`remains`] states what no row covers.

use crate::{Rewriter, truncate};
use flame_plan::{Action, Expose, Field, Transforms};

/// A set of data that a view can hide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Secrets(u16);

impl Secrets {
    pub const MAC: Self = Self::of(Field::MacSrc).with(Self::of(Field::MacDst));
    pub const IP: Self = Self::of(Field::IpSrc).with(Self::of(Field::IpDst));
    pub const PORT: Self = Self::of(Field::PortSrc).with(Self::of(Field::PortDst));
    /// The fields that a transform changes.
    pub(crate) const FIELDS: Self = Self::MAC.with(Self::IP).with(Self::PORT);
    /// The times of packets, below the resolution.
    pub const TIME: Self = Self(1 << Field::ALL.len());
    /// The number of packets, of which some are left out.
    pub const NUMBER: Self = Self(2 << Field::ALL.len());

    /// Returns the set of one field.
    pub const fn of(field: Field) -> Self {
        Self(1 << field as u16)
    }

    /// Returns the union of two sets.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A part of packets that contains data of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The MAC address of a group of IP (RFC 1112, RFC 2464).
    GroupMac,
    /// The group of an IPv6 neighbour and its MAC address (RFC 4291, section 2.7.1).
    Neighbour,
    /// A MAC address that a container has from its IPv4 address.
    ContainerMac,
    /// An interface identifier of IPv6 that a host has from its MAC address (RFC 4291, appendix A).
    InterfaceId,
    /// The option "timestamps" of TCP (RFC 7323).
    TcpClock,
    /// Options of IPv4 and IPv6 that hold times, and those that are not known.
    IpClock,
    /// The times in messages of ICMP (RFC 792) and in neighbour discovery (RFC 3971).
    IcmpClock,
    /// The times in headers of tunnels.
    TunnelClock,
    /// Bytes without known meaning in headers of tunnels.
    Opaque,
    /// Notes of the capturing system about a packet.
    Notes,
}

/// A row of the table "hiding X hides Y".
pub struct Row {
    pub part: Part,
    pub name: &'static str,
    pub contains: &'static str,
    /// The data with which the part is hidden, on either side.
    hidden_with: Secrets,
    /// The same in words.
    pub with: &'static str,
    pub becomes: &'static str,
}

/// The rows, in the order of [`Part`]. The table in `docs/operators.md` is the same.
pub const TABLE: [Row; 10] = [
    Row {
        part: Part::GroupMac,
        name: "MAC addresses 01:00:5e:… and 33:33:…",
        contains: "23 bits of an IPv4 group, 32 of an IPv6 group",
        hidden_with: Secrets::IP,
        with: "`ip` of the same side",
        becomes: "these bits 0",
    },
    Row {
        part: Part::Neighbour,
        name: "MAC addresses 33:33:ff:…, groups ff02::1:ff…",
        contains: "24 bits of a neighbour's IPv6 address, and of the MAC address in that",
        hidden_with: Secrets::IP.with(Secrets::MAC),
        with: "`ip` or `mac` of any side",
        becomes: "these bits 0",
    },
    Row {
        part: Part::ContainerMac,
        name: "MAC addresses 02:42:… and 0a:58:…",
        contains: "the IPv4 address of a container",
        hidden_with: Secrets::IP,
        with: "`ip` of the same side",
        becomes: "these 32 bits 0",
    },
    Row {
        part: Part::InterfaceId,
        name: "IPv6 addresses with ff:fe in the middle of the interface identifier",
        contains: "a MAC address",
        hidden_with: Secrets::MAC,
        with: "`mac` of the same side",
        becomes: "that of the MAC address as it is shown; `truncate:N` keeps 64 bits at most",
    },
    Row {
        part: Part::TcpClock,
        name: "the timestamps option of TCP",
        contains: "clocks of both hosts",
        hidden_with: Secrets::TIME,
        with: "`resolution`",
        becomes: "padding",
    },
    Row {
        part: Part::IpClock,
        name: "the timestamp option of IPv4, IOAM and PDM options of IPv6, unknown options of both",
        contains: "clocks of hosts and routers",
        hidden_with: Secrets::TIME.with(Secrets::IP),
        with: "`resolution` or `ip`",
        becomes: "padding",
    },
    Row {
        part: Part::IcmpClock,
        name: "timestamp messages of ICMP, the timestamp of secure neighbour discovery",
        contains: "clocks of hosts",
        hidden_with: Secrets::TIME,
        with: "`resolution`",
        becomes: "0",
    },
    Row {
        part: Part::TunnelClock,
        name: "the timestamps of ERSPAN III",
        contains: "the clock of a switch",
        hidden_with: Secrets::TIME,
        with: "`resolution`",
        becomes: "0",
    },
    Row {
        part: Part::Opaque,
        name: "options of GENEVE, reserved bytes of VXLAN, metadata of NSH, the switch's part of ERSPAN III, \
               numbers and options of GTP-U, LISP, Teredo and TZSP",
        contains: "any data, addresses and clocks among it",
        hidden_with: Secrets::FIELDS.with(Secrets::TIME),
        with: "any transform, or `resolution`",
        becomes: "0",
    },
    Row {
        part: Part::Notes,
        name: "notes of NFLOG, radiotap, PKTAP, PPI, PFLOG and ENC about a packet",
        contains: "its time, its number, its sender",
        hidden_with: Secrets::FIELDS.with(Secrets::TIME).with(Secrets::NUMBER),
        with: "any transform, `resolution`, `sample`, or `select` of policy and root",
        becomes: "0",
    },
];

/// The prefixes of MAC addresses that Docker and the CNI plugins make from IPv4 addresses.
const CONTAINERS: [[u8; 2]; 2] = [[0x02, 0x42], [0x0a, 0x58]];

/// The group of an IPv6 neighbour, whose last 24 bits are those of its address.
pub(crate) const NEIGHBOURS: [u8; 13] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff];

/// The bits of an IPv6 address before its interface identifier.
const NETWORK: u8 = 64;

impl Rewriter {
    /// Returns whether any of `secrets` is hidden.
    #[inline]
    pub(crate) fn hides(&self, secrets: Secrets) -> bool {
        !self.secrets.and(secrets).is_empty()
    }

    /// Returns whether a part is hidden with the data that it contains.
    #[inline]
    pub(crate) fn loses(&self, part: Part) -> bool {
        self.hides(TABLE[part as usize].hidden_with)
    }

    /// Returns whether a part is hidden with data of one side, or of two if the part has none.
    fn loses_of(&self, part: Part, side: Secrets) -> bool {
        self.hides(TABLE[part as usize].hidden_with.and(side))
    }

    /// Returns whether values of MAC addresses or IPv6 addresses may change.
    #[inline]
    pub(crate) fn changes_addresses(&self) -> bool {
        self.hides(Secrets::MAC.with(Secrets::IP))
    }

    /// Returns the new value of a MAC address that is changed as `field`, and may contain addresses of `ip`.
    #[inline]
    pub(crate) fn map_mac(&mut self, field: Field, ip: Secrets, old: [u8; 6]) -> [u8; 6] {
        if self.keeps_group(old) {
            return old;
        }
        let cleared = if may_contain_ip([old[0], old[1]]) { self.clear_mac(ip, old) } else { old };
        match self.actions[field as usize] {
            Action::Keep => cleared,
            Action::Zero => [0; 6],
            _ => {
                let new = first(self.map(field, &cleared));
                self.with_group(old, new)
            }
        }
    }

    /// Clears the bits of hidden addresses of IP in a MAC address.
    #[cold]
    fn clear_mac(&self, ip: Secrets, mut mac: [u8; 6]) -> [u8; 6] {
        match mac {
            [0x33, 0x33, ..] if self.loses_of(Part::GroupMac, ip) => mac[2..].fill(0),
            [0x33, 0x33, 0xff, ..] if self.loses(Part::Neighbour) => mac[3..].fill(0),
            [1, 0, 0x5e, bits, ..] if bits < 0x80 && self.loses_of(Part::GroupMac, ip) => mac[3..].fill(0),
            [a, b, ..] if CONTAINERS.contains(&[a, b]) && self.loses_of(Part::ContainerMac, ip) => {
                mac[2..].fill(0);
            }
            _ => {}
        }
        mac
    }

    /// Returns the new value of an IPv6 address that is changed as `field`, and may contain a MAC address
    /// that is changed as `mac`.
    pub(crate) fn map6(&mut self, field: Field, mac: Field, old: [u8; 16]) -> [u8; 16] {
        let mut new = old;
        if new[0] == NEIGHBOURS[0] && new.starts_with(&NEIGHBOURS) && self.loses(Part::Neighbour) {
            new[NEIGHBOURS.len()..].fill(0);
        }
        let is_evened = !self.evened.and(Secrets::of(field)).is_empty();
        let bits = match self.actions[field as usize] {
            _ if self.keeps6(new) => 128,
            Action::Truncate(bits) => bits,
            Action::Keep => 128,
            Action::Hash | Action::Prefix if is_evened => 128,
            Action::Zero | Action::Hash | Action::Prefix => return self.map(field, &new),
        };
        if self.loses_of(Part::InterfaceId, Secrets::of(mac)) {
            if bits < 128 {
                // Whether ff:fe is there may be hidden as well.
                truncate::apply(&mut new, bits.min(NETWORK));
                return new;
            }
            if let [.., a, b, c, 0xff, 0xfe, d, e, f] = new {
                // The second bit of the first byte is inverted in interface identifiers.
                let [a, b, c, d, e, f] = self.map_mac(mac, twin(mac), [a ^ 2, b, c, d, e, f]);
                new[8..].copy_from_slice(&[a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
            }
        }
        if bits < 128 {
            truncate::apply(&mut new, bits);
        }
        if is_evened { self.map(field, &new) } else { new }
    }
}

/// Returns whether a MAC address that begins with these bytes may contain an address of IP.
#[inline]
pub(crate) fn may_contain_ip(first: [u8; 2]) -> bool {
    first == [0x33, 0x33] || first == [0x01, 0x00] || first == CONTAINERS[0] || first == CONTAINERS[1]
}

fn first(bytes: [u8; 16]) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = bytes;
    [a, b, c, d, e, f]
}

/// Returns the address of IP on the side of a MAC address.
pub(crate) fn twin(mac: Field) -> Secrets {
    Secrets::of(if mac == Field::MacDst { Field::IpDst } else { Field::IpSrc })
}

/// Something that a view hides in one place and shows in another, which no row of [`TABLE`] covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remains {
    pub text: &'static str,
    /// The change that would hide it, if a change leaves the rest of the view as it is.
    pub remedy: Option<&'static str>,
}

/// Returns what stays visible of the data that a view hides.
pub fn remains(expose: Expose, transforms: &Transforms, resolution_ns: u64) -> Vec<Remains> {
    let changes = |field: Field| transforms.get(&field).is_some_and(|action| *action != Action::Keep);
    let [mac_src, mac_dst, ip_src, ip_dst, port_src, port_dst] = Field::ALL.map(changes);
    let (mac, ip) = (mac_src || mac_dst, ip_src || ip_dst);
    let shows_payload = matches!(expose, Expose::Payload(1..) | Expose::All);
    let shows_headers = expose >= Expose::Headers;
    let rows = [
        (
            shows_headers && ip && !(mac_src && mac_dst),
            "hides ip but shows mac: it distinguishes hosts of a link, and is part of many addresses of IPv6",
            Some("add mac=zero or mac=hash to transform"),
        ),
        (
            shows_headers && (mac_src != mac_dst || ip_src != ip_dst || port_src != port_dst),
            "hides one side of a field: packets in the other direction show its values",
            Some("transform both sides"),
        ),
        (shows_payload && (mac || ip), "addresses in payload stay visible (DHCP, DNS, FTP, SIP)", None),
        (
            shows_payload && resolution_ns > 1,
            "clocks in payload stay visible (NTP, RTP, the data of ping)",
            None,
        ),
        (
            shows_headers && resolution_ns > 1,
            "numbers that grow with time stay visible (sequence numbers, identifications of IPv4)",
            None,
        ),
    ];
    rows.into_iter()
        .filter_map(|(applies, text, remedy)| applies.then_some(Remains { text, remedy }))
        .collect()
}
