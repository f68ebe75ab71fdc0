//! The conditions of a rule on headers.

use super::facts::{Facts, Group};
use crate::rule::{Check, Field, Proto, Rule};
use flame_module::Ip;

/// Returns whether packets of a group can match a rule.
pub fn fits_group(rule: &Rule, group: Group) -> bool {
    match rule.header.proto {
        Proto::Ip => true,
        Proto::Tcp => group == Group::Tcp,
        Proto::Udp => group == Group::Udp,
        Proto::Icmp => group == Group::Icmp,
        Proto::Either => matches!(group, Group::Tcp | Group::Udp),
    }
}

#[inline]
pub fn header(rule: &Rule, f: &Facts<'_>) -> bool {
    let h = &rule.header;
    if h.family.is_some_and(|family| family != f.src.family) || h.number.is_some_and(|n| n != f.proto) {
        return false;
    }
    let of_any_ports = || h.sport.is_all() && h.dport.is_all();
    if !f.has_ports && !of_any_ports() {
        return false;
    }
    let one_way = |src: &Ip, sport: u16, dst: &Ip, dport: u16| {
        h.dport.contains(dport) && h.sport.contains(sport) && h.src.contains(src) && h.dst.contains(dst)
    };
    let (sport, dport) = f.ports;
    one_way(&f.src, sport, &f.dst, dport) || h.both && one_way(&f.dst, dport, &f.src, sport)
}

#[inline]
pub fn checks(rule: &Rule, f: &Facts<'_>) -> bool {
    rule.checks.iter().all(|check| match check {
        Check::Flags(bits) => f.group == Group::Tcp && !f.l4.is_empty() && bits.fit(f.tcp_flags),
        Check::FragmentBits(bits) => f.v4 && bits.fit(f.l3.get(6).map_or(0, |b| b >> 5)),
        Check::SameAddress => f.src == f.dst,
        Check::Number(field, range) => number(*field, f).is_some_and(|n| range.contains(n)),
    })
}

/// Returns the value of a field, or `None` if the packet has no such field.
fn number(field: Field, f: &Facts<'_>) -> Option<u32> {
    let of_v4 = |n: Option<u32>| n.filter(|_| f.v4);
    // Only echo requests and replies have an identifier and a sequence number.
    let is_echo = || matches!((f.proto, f.l4.first()), (1, Some(0 | 8)) | (58, Some(128 | 129)));
    match field {
        Field::PayloadLength => Some(f.payload_len),
        Field::Ttl => Facts::number::<1>(f.l3, if f.v4 { 8 } else { 7 }),
        Field::Tos => of_v4(Facts::number::<1>(f.l3, 1)),
        Field::TosOrClass if f.v4 => Facts::number::<1>(f.l3, 1),
        Field::TosOrClass => Facts::number::<2>(f.l3, 0).map(|n| n >> 4 & 0xff),
        Field::Id => of_v4(Facts::number::<2>(f.l3, 4)),
        Field::FragmentOffset => of_v4(Facts::number::<2>(f.l3, 6)).map(|n| n & 0x1fff),
        Field::Protocol => Some(f.proto.into()),
        Field::Sequence => Facts::number::<4>(f.l4, 4),
        Field::Acknowledgement => Facts::number::<4>(f.l4, 8),
        Field::WindowSize => Facts::number::<2>(f.l4, 14),
        Field::IcmpType => Facts::number::<1>(f.l4, 0),
        Field::IcmpCode => Facts::number::<1>(f.l4, 1),
        Field::IcmpId if is_echo() => Facts::number::<2>(f.l4, 4),
        Field::IcmpSequence if is_echo() => Facts::number::<2>(f.l4, 6),
        Field::IcmpId | Field::IcmpSequence => None,
    }
}
