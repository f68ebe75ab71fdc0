//! The gate, which releases the records and packets that a grant allows.

use flame_abi::manifest::{Column, ColumnType, Manifest, Table};
use flame_plan::{Release, Terms};
use flame_quota::{Amounts, Meters};

/// The limits of one module's output: its own, and the meters of its credential.
pub struct Gate {
    release: Release,
    meters: Meters,
    /// The columns of each table, and whether they count packets.
    tables: Vec<Vec<(ColumnType, bool)>>,
    left: Amounts,
    /// The texts for the operator that are left in this second.
    left_logs: u64,
    /// The last second of packet time.
    second: u64,
    /// The bytes that a record of each table takes in addition, where column names are written with it.
    names: Vec<u64>,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Gate {
    pub fn new(manifest: &Manifest, terms: &Terms, meters: &Meters) -> Self {
        let column = |c: &Column| (c.kind, c.unit.as_deref() == Some("packets"));
        let tables = manifest.tables.iter().map(|t| t.columns.iter().map(column).collect()).collect();
        let names = |t: &Table| t.columns.iter().map(|c| c.name.len() as u64 + 4).sum();
        // A grant counts records in the encoding of modules; the limit of the operator's own modules is about
        // the size when written.
        let names: Vec<u64> = match meters.granted() {
            true => vec![0; manifest.tables.len()],
            false => manifest.tables.iter().map(names).collect(),
        };
        let mut gate = Self {
            release: terms.release,
            meters: meters.clone(),
            tables,
            left: Amounts::default(),
            left_logs: 0,
            second: 0,
            names,
        };
        gate.fill();
        gate
    }

    fn fill(&mut self) {
        let Release { records, bytes, transmit, logs, .. } = self.release;
        self.left = Amounts { records, bytes, transmit };
        self.left_logs = logs;
    }

    /// Advances packet time to `now_ns`. However large the step, it adds the amounts of one second.
    pub fn tick(&mut self, now_ns: u64) {
        let second = now_ns / SECOND_NS;
        if second > self.second {
            self.second = second;
            self.fill();
            self.meters.tick(now_ns);
        }
    }

    /// Returns whether this record is released, and counts it if so.
    #[inline]
    pub fn lets(&mut self, table: u16, row: &[u8]) -> bool {
        if self.release.group > 0 && self.packets(table, row) < self.release.group {
            return false;
        }
        let names = self.names.get(usize::from(table)).copied().unwrap_or(0);
        self.take(Amounts { records: 1, bytes: row.len() as u64 + names, transmit: 0 })
    }

    /// Returns whether a packet of `bytes` bytes is written, and counts it if so.
    #[inline]
    pub fn lets_packet(&mut self, bytes: u64) -> bool {
        self.take(Amounts { transmit: bytes, ..Amounts::default() })
    }

    /// Returns whether a text of `bytes` bytes for the operator is released, and counts it if so. Under a
    /// grant it counts as a record, too, and as one that represents no packets.
    pub fn lets_log(&mut self, bytes: u64) -> bool {
        let Some(left) = self.left_logs.checked_sub(1).filter(|_| self.release.group == 0) else {
            return false;
        };
        if self.meters.granted() && !self.take(Amounts { records: 1, bytes, transmit: 0 }) {
            return false;
        }
        self.left_logs = left;
        true
    }

    fn take(&mut self, amounts: Amounts) -> bool {
        if !self.left.covers(amounts) || !self.meters.take(amounts) {
            return false;
        }
        self.left = Amounts {
            records: spent(self.left.records, amounts.records),
            bytes: spent(self.left.bytes, amounts.bytes),
            transmit: spent(self.left.transmit, amounts.transmit),
        };
        true
    }

    /// Returns the number of packets that a record represents.
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

/// Subtracts `amount`, except from `u64::MAX`, which means no limit.
fn spent(left: u64, amount: u64) -> u64 {
    if left == u64::MAX { left } else { left - amount }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_quota::{Meter, Quota, ThisRun};
    use std::sync::Arc;

    fn gate(release: Release) -> Gate {
        let text = "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n[[tables]]\nname = \"t\"\ncolumns = [\
            { name = \"who\", type = \"text\" }, { name = \"a\", type = \"ip\" }, \
            { name = \"n\", type = \"u32\", unit = \"packets\" }, { name = \"m\", type = \"u64\", unit = \"packets\" }]\n\
            [[tables]]\nname = \"u\"\ncolumns = [{ name = \"x\", type = \"u64\" }]";
        let unlimited =
            Quota { per_second: Amounts::MAX, per_packet: Amounts::MAX, share: None, memory: u64::MAX };
        let meter = Meter::new(unlimited, Box::new(ThisRun::new(unlimited)));
        let meters = Meters::of_grant(vec![Arc::new(meter)]);
        let manifest = Manifest::parse(text.as_bytes()).unwrap();
        Gate::new(&manifest, &Terms { release, ..Terms::default() }, &meters)
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
        gate.tick(SECOND_NS);
        assert!(gate.lets(0, &row) && gate.lets_packet(60) && !gate.lets_packet(60));
        // A jump forward adds one second, a jump back nothing.
        gate.tick(1000 * SECOND_NS);
        assert_eq!((0..30).filter(|_| gate.lets(0, &row)).count(), 2);
        gate.tick(10 * SECOND_NS);
        gate.tick(1000 * SECOND_NS);
        assert!(!gate.lets(0, &row));
        // Shorter ticks do not add more.
        let let_out = (1..=20).filter(|n| {
            gate.tick(1000 * SECOND_NS + n * (SECOND_NS / 10));
            gate.lets(0, &row)
        });
        assert_eq!(let_out.count(), 3, "two with the tenth, one with the last");
    }

    #[test]
    fn texts_for_the_operator_are_few() {
        let of = |gate: &mut Gate| (0..100).filter(|_| gate.lets_log(5)).count();
        let release = Release { records: 20, ..Release::default() };
        let mut granted = gate(release);
        // Under a grant a text is a record, too.
        assert_eq!((of(&mut granted), granted.lets(1, &[0; 8])), (20, false));
        granted.tick(SECOND_NS);
        assert_eq!(of(&mut granted), 20);
        let mut many = gate(Release::default());
        assert_eq!((of(&mut many), many.lets(1, &[0; 8])), (32, true));
        many.tick(SECOND_NS / 2);
        assert_eq!(of(&mut many), 0);
        assert_eq!(of(&mut gate(Release { logs: 0, ..release })), 0);
        assert_eq!(of(&mut gate(Release { group: 1, ..release })), 0, "a text stands for no packets");
    }

    /// Regression: one packet once filled 975 MB of JSON.
    #[test]
    fn the_operators_own_modules_put_out_so_much_for_a_packet() {
        let text = "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n[[tables]]\nname = \"t\"\ncolumns = [\
            { name = \"a_column_with_a_long_name\", type = \"u8\" }]";
        let mut gate =
            Gate::new(&Manifest::parse(text.as_bytes()).unwrap(), &Terms::default(), &Meters::default());
        assert_eq!((0..10_000_000).take_while(|_| gate.lets(0, &[1])).count(), 65_536);
        assert!(gate.lets_packet(9000), "what is written of packets has its own limits");
    }
}
