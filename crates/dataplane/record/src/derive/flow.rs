//! One row of a table of flows, for the formats and columns that are computed from it.

use super::applications;
use crate::cell::{Cell, open};
use crate::{community, number};
use arrow_array::RecordBatch;
use std::net::IpAddr;

/// The columns of a row. A column that the table lacks is 0 or empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Flow<'a> {
    pub(crate) proto: u8,
    pub(crate) src: Address<'a>,
    pub(crate) dst: Address<'a>,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    pub(crate) icmp_type: u8,
    pub(crate) icmp_code: u8,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) packets_fwd: u64,
    pub(crate) packets_rev: u64,
    pub(crate) bytes_fwd: u64,
    pub(crate) bytes_rev: u64,
    pub(crate) ip_bytes_fwd: u64,
    pub(crate) ip_bytes_rev: u64,
    pub(crate) tcp_flags_fwd: u8,
    pub(crate) tcp_flags_rev: u8,
    pub(crate) end: &'a str,
    pub(crate) unknown_ports: bool,
    pub(crate) vlan: u16,
    pub(crate) inner_vlan: u16,
    pub(crate) vni: u32,
    pub(crate) mpls: u32,
}

/// An address of a row, or text in its place, which only a table of another type has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Address<'a> {
    Ip(IpAddr),
    Text(&'a str),
}

impl Default for Address<'_> {
    fn default() -> Self {
        Self::Text("")
    }
}

impl Address<'_> {
    /// Returns the address, if it is one.
    pub(crate) fn ip(self) -> Option<IpAddr> {
        if let Self::Ip(ip) = self { Some(ip) } else { None }
    }

    /// Writes the address, in which nothing has to be escaped, or the text as it is.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Ip(ip) => number::address(out, ip),
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
        }
    }
}

/// The letters of the TCP flags from the highest bit on: CWR, ECE, URG, ACK, PSH, RST, SYN, FIN.
const LETTERS: [u8; 8] = *b"CEUAPRSF";

/// TCP flags as letters.
pub(crate) struct Letters([u8; 8]);

impl Letters {
    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl Flow<'_> {
    pub(crate) fn duration_ns(&self) -> i64 {
        i64::try_from(self.last_ns.saturating_sub(self.first_ns)).unwrap_or(i64::MAX)
    }

    pub(crate) fn is_icmp(&self) -> bool {
        matches!(self.proto, 1 | 58)
    }

    /// Returns whether the ports are known.
    pub(crate) fn has_ports(&self) -> bool {
        flame_abi::has_ports(self.proto) && !self.unknown_ports
    }

    /// Returns TCP flags as letters.
    pub(crate) fn letters(&self, flags: u8) -> Option<Letters> {
        let letter = |bit: usize| if flags >> (7 - bit) & 1 == 1 { LETTERS[bit] } else { b'.' };
        (self.proto == 6).then(|| Letters(std::array::from_fn(letter)))
    }

    /// Returns the ports, or type and code of ICMP.
    pub(crate) fn ports(&self) -> (u16, u16) {
        if self.is_icmp() { (self.icmp_type.into(), self.icmp_code.into()) } else { (self.sport, self.dport) }
    }

    /// Returns the Community ID, unless the ports that are part of it are unknown.
    pub(crate) fn community_id(&self) -> Option<community::Id> {
        (!self.unknown_ports).then_some(())?;
        Some(community::id(self.proto, self.src.ip()?, self.dst.ip()?, self.ports()))
    }

    pub(crate) fn application(&self) -> Option<&'static str> {
        applications::name(self.proto, self.sport, self.dport)
    }
}

/// Returns the rows of a batch. Columns of other types than expected count as 0 or empty.
pub(crate) fn rows(batch: &RecordBatch) -> Vec<Flow<'_>> {
    let mut rows = vec![Flow::default(); batch.num_rows()];
    for (array, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
        let (Some(set), Some(cells)) = (setter(field.name()), open(array)) else { continue };
        rows.iter_mut().enumerate().for_each(|(row, flow)| set(flow, cells.get(row)));
    }
    rows
}

fn setter<'a>(column: &str) -> Option<fn(&mut Flow<'a>, Cell<'a>)> {
    Some(match column {
        "proto" => |flow, cell| flow.proto = number(cell) as u8,
        "src" => |flow, cell| flow.src = address(cell),
        "dst" => |flow, cell| flow.dst = address(cell),
        "sport" => |flow, cell| flow.sport = number(cell) as u16,
        "dport" => |flow, cell| flow.dport = number(cell) as u16,
        "icmp_type" => |flow, cell| flow.icmp_type = number(cell) as u8,
        "icmp_code" => |flow, cell| flow.icmp_code = number(cell) as u8,
        "first_ns" => |flow, cell| flow.first_ns = number(cell),
        "last_ns" => |flow, cell| flow.last_ns = number(cell),
        "packets_fwd" => |flow, cell| flow.packets_fwd = number(cell),
        "packets_rev" => |flow, cell| flow.packets_rev = number(cell),
        "bytes_fwd" => |flow, cell| flow.bytes_fwd = number(cell),
        "bytes_rev" => |flow, cell| flow.bytes_rev = number(cell),
        "ip_bytes_fwd" => |flow, cell| flow.ip_bytes_fwd = number(cell),
        "ip_bytes_rev" => |flow, cell| flow.ip_bytes_rev = number(cell),
        "tcp_flags_fwd" => |flow, cell| flow.tcp_flags_fwd = number(cell) as u8,
        "tcp_flags_rev" => |flow, cell| flow.tcp_flags_rev = number(cell) as u8,
        "end" => |flow, cell| flow.end = text(cell),
        "unknown_ports" => |flow, cell| flow.unknown_ports = matches!(cell, Cell::Bool(true)),
        "vlan" => |flow, cell| flow.vlan = number(cell) as u16,
        "inner_vlan" => |flow, cell| flow.inner_vlan = number(cell) as u16,
        "vni" => |flow, cell| flow.vni = number(cell) as u32,
        "mpls" => |flow, cell| flow.mpls = number(cell) as u32,
        _ => return None,
    })
}

fn number(cell: Cell<'_>) -> u64 {
    match cell {
        Cell::Unsigned(n) => n,
        Cell::Signed(n) => u64::try_from(n).unwrap_or(0),
        _ => 0,
    }
}

fn text(cell: Cell<'_>) -> &str {
    if let Cell::Text(text) = cell { text } else { "" }
}

/// Returns an address. Rows that a node sent have it as text.
pub(crate) fn address(cell: Cell<'_>) -> Address<'_> {
    if let Cell::Address(ip) = cell {
        return Address::Ip(ip);
    }
    let text = text(cell);
    text.parse().map_or(Address::Text(text), Address::Ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_letters_of_tcp_alone() {
        let flow = |proto| Flow { proto, ..Flow::default() };
        for (flags, letters) in [(0x02, "......S."), (0x1b, "...AP.SF"), (0xff, "CEUAPRSF"), (0, "........")]
        {
            assert_eq!(flow(6).letters(flags).unwrap().as_str(), letters);
        }
        assert!(flow(17).letters(0).is_none());
    }

    #[test]
    fn times_that_go_back_have_no_duration() {
        let flow = |first_ns, last_ns| Flow { first_ns, last_ns, ..Flow::default() };
        assert_eq!(flow(5, 9).duration_ns(), 4);
        assert_eq!(flow(9, 5).duration_ns(), 0);
        assert_eq!(flow(0, u64::MAX).duration_ns(), i64::MAX);
    }
}
