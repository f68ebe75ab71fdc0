//! Which records a grant lets out.

use flame_abi::manifest::{Column, ColumnType, Manifest};
use flame_plan::Release;

/// One module's way out.
pub struct Gate {
    release: Release,
    /// Per table: its columns, and which of them count packets.
    tables: Vec<Vec<(ColumnType, bool)>>,
    left: Left,
    /// Packet time since the last second began.
    since_ns: u64,
    /// Nothing is held back.
    open: bool,
}

/// Of this second.
#[derive(Clone, Copy)]
struct Left {
    records: u64,
    bytes: u64,
    transmit: u64,
}

const SECOND_NS: u64 = 1_000_000_000;

/// What `ns` are worth.
fn worth(rate: u64, ns: u64) -> u64 {
    let all = u128::from(rate) * u128::from(ns) / u128::from(SECOND_NS);
    u64::try_from(all).unwrap_or(u64::MAX)
}

impl Gate {
    pub fn new(manifest: &Manifest, release: Release) -> Self {
        let column = |c: &Column| (c.kind, c.unit.as_deref() == Some("packets"));
        let tables = manifest.tables.iter().map(|t| t.columns.iter().map(column).collect()).collect();
        let left = Left { records: 0, bytes: 0, transmit: 0 };
        let open = release == Release::default();
        let mut gate = Self { release, tables, left, since_ns: 0, open };
        gate.refill(SECOND_NS);
        gate
    }

    /// So much packet time has gone by. However often this is told, a second's worth comes with each second.
    pub fn refill(&mut self, ns: u64) {
        self.since_ns = self.since_ns.saturating_add(ns);
        if self.since_ns < SECOND_NS {
            return;
        }
        let ns = std::mem::take(&mut self.since_ns);
        let Release { records, bytes, transmit, .. } = self.release;
        self.left =
            Left { records: worth(records, ns), bytes: worth(bytes, ns), transmit: worth(transmit, ns) };
    }

    /// Whether this record goes out; if so, it is counted.
    #[inline]
    pub fn lets(&mut self, table: u16, row: &[u8]) -> bool {
        if self.open {
            return true;
        }
        let bytes = row.len() as u64;
        if self.packets(table, row) < self.release.group || self.left.records == 0 || self.left.bytes < bytes
        {
            return false;
        }
        self.left.records -= 1;
        self.left.bytes -= bytes;
        true
    }

    /// Whether a packet of so many bytes is written.
    #[inline]
    pub fn lets_packet(&mut self, bytes: u64) -> bool {
        if self.left.transmit < bytes {
            return false;
        }
        // Without a limit there is nothing to count down.
        if self.release.transmit != u64::MAX {
            self.left.transmit -= bytes;
        }
        true
    }

    /// Packets that a record stands for.
    fn packets(&self, table: u16, mut row: &[u8]) -> u64 {
        let mut most = 0;
        for (kind, counts) in self.tables.get(usize::from(table)).into_iter().flatten() {
            let width = match kind {
                ColumnType::Bool | ColumnType::U8 | ColumnType::Enum => 1,
                ColumnType::U16 => 2,
                ColumnType::U32 => 4,
                ColumnType::Mac => 6,
                ColumnType::Ip => 17,
                ColumnType::Text => row.first_chunk().map_or(2, |n| 2 + usize::from(u16::from_le_bytes(*n))),
                _ => 8,
            };
            let Some((value, rest)) = row.split_at_checked(width) else { break };
            row = rest;
            let integer =
                !matches!(kind, ColumnType::F64 | ColumnType::Text | ColumnType::Mac | ColumnType::Ip);
            if *counts && integer {
                let mut bytes = [0; 8];
                bytes[..width].copy_from_slice(value);
                most = most.max(u64::from_le_bytes(bytes));
            }
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(release: Release) -> Gate {
        let text = "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n[[tables]]\nname = \"t\"\ncolumns = [\
            { name = \"who\", type = \"text\" }, { name = \"a\", type = \"ip\" }, \
            { name = \"n\", type = \"u32\", unit = \"packets\" }, { name = \"m\", type = \"u64\", unit = \"packets\" }]\n\
            [[tables]]\nname = \"u\"\ncolumns = [{ name = \"x\", type = \"u64\" }]";
        Gate::new(&Manifest::parse(text.as_bytes()).unwrap(), release)
    }

    fn row(n: u32, m: u64) -> Vec<u8> {
        [&[3, 0][..], b"abc", &[4; 17], &n.to_le_bytes(), &m.to_le_bytes()].concat()
    }

    #[test]
    fn a_record_stands_for_the_most_packets_that_it_counts() {
        let mut gate = gate(Release { group: 10, ..Release::default() });
        assert!(gate.lets(0, &row(10, 0)) && gate.lets(0, &row(0, 11)));
        assert!(!gate.lets(0, &row(9, 9)));
        assert!(!gate.lets(1, &99u64.to_le_bytes()), "it counts no packets");
        assert!(!gate.lets(0, &[1, 2]) && !gate.lets(7, &[]), "what is malformed or unknown counts none");
    }

    #[test]
    fn rates_are_per_second_of_packet_time() {
        let mut gate = gate(Release { records: 2, bytes: 90, transmit: 100, ..Release::default() });
        let row = row(1, 1);
        assert_eq!(row.len(), 34);
        assert!(gate.lets(0, &row) && gate.lets(0, &row) && !gate.lets(0, &row));
        assert!(gate.lets_packet(100) && !gate.lets_packet(1));
        gate.refill(SECOND_NS);
        assert!(gate.lets(0, &row) && gate.lets_packet(60) && !gate.lets_packet(60));
        gate.refill(10 * SECOND_NS);
        assert_eq!((0..30).filter(|_| gate.lets(0, &row)).count(), 20);
        // Short ticks give no more.
        let let_out = (0..20).filter(|_| {
            gate.refill(SECOND_NS / 10);
            gate.lets(0, &row)
        });
        assert_eq!(let_out.count(), 3, "two with the tenth, one with the last");
    }

    #[test]
    fn without_a_grant_everything_goes_out() {
        let mut gate = gate(Release::default());
        assert!((0..1000).all(|_| gate.lets(0, &[]) && gate.lets_packet(u64::MAX)));
    }
}
