//! The gate, which releases the frames that a grant, or the operator's own limits, allow. All output passes
//! it, and whatever leaves costs something.

use crate::check::{Frame, Packet};
use flame_abi::LinkType;
use flame_abi::manifest::{Column, ColumnType, Manifest, Table};
use flame_plan::{Release, Services, Terms};
use flame_quota::{Amounts, Meters, Paid};

/// The limits of one module's output: its own, and the meters of its credential.
pub struct Gate {
    release: Release,
    /// Whether frames leave on channels.
    sends: bool,
    services: Services,
    meters: Meters,
    /// The columns of each table, and whether they count packets.
    tables: Vec<Vec<(ColumnType, bool)>>,
    left: Amounts,
    /// The texts for the operator that are left in this second.
    left_logs: u64,
    /// The last second of packet time, and those whose amounts were given out.
    second: u64,
    paid: Paid,
    /// The bytes that a record of each table takes in addition, where column names are written with it.
    names: Vec<u64>,
    /// The link types of the packets that were released.
    links: Vec<LinkType>,
}

/// The number of link types of a module's packets. Each takes a place in every sink of packets.
const MAX_LINKS: usize = 16;

/// The bytes of a packet's block in a capture file besides the packet's own, padded to 32 bits; those of a
/// link type's block are as many.
const BLOCK: u64 = 32;

const SECOND_NS: u64 = 1_000_000_000;

impl Gate {
    /// Creates the gate of one module, which draws from `meters`.
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
            sends: terms.sending.is_allowed,
            services: terms.services,
            meters: meters.clone(),
            tables,
            left: Amounts::default(),
            left_logs: 0,
            second: 0,
            paid: Paid::default(),
            names,
            links: Vec::new(),
        };
        gate.paid.pay(0);
        gate.fill();
        gate
    }

    fn fill(&mut self) {
        let Release { records, bytes, transmit, logs, .. } = self.release;
        self.left = Amounts { records, bytes, transmit };
        self.left_logs = logs;
    }

    /// Advances packet time to `now_ns`. Each second adds its amounts once, in any order and however far it
    /// is from the last, so that one wrong time does not end the amounts of the right ones.
    pub fn tick(&mut self, now_ns: u64) {
        let second = now_ns / SECOND_NS;
        if second == self.second {
            return;
        }
        self.second = second;
        if self.paid.pay(second) {
            self.fill();
        }
        self.meters.tick(now_ns);
    }

    /// Returns whether a frame is released, and counts what it takes in a sink if so.
    #[inline]
    pub fn lets(&mut self, frame: &Frame<'_>) -> bool {
        match frame {
            Frame::Record { table, row } => self.record(*table, row),
            Frame::Packet(packet) => self.packet(packet),
            Frame::Log(text) => self.log(text.len() as u64),
            Frame::Channel { bytes, .. } => self.sends && self.made(bytes.len() as u64),
            Frame::Call { .. } => self.services.call,
            Frame::Reply { .. } => self.services.serve,
            // They stay here.
            Frame::Message(_) | Frame::Lost { .. } => true,
            // Where a packet was received, its owner compares the bytes, and asks by `changed`.
            Frame::Send { packet: Some(_), .. } => true,
            Frame::Send { packet: None, bytes, .. } => self.made(bytes.len() as u64),
            // The holder of the packets knows their lengths, and asks for each copy by `made`.
            Frame::Held(_) => true,
        }
    }

    #[inline]
    fn record(&mut self, table: u16, row: &[u8]) -> bool {
        if self.release.group > 0 && self.packets(table, row) < self.release.group {
            return false;
        }
        let names = self.names.get(usize::from(table)).copied().unwrap_or(0);
        self.take(Amounts { records: 1, bytes: row.len() as u64 + names, transmit: 0 })
    }

    /// Decides on a packet, which represents no other.
    #[inline]
    fn packet(&mut self, packet: &Packet<'_>) -> bool {
        let is_known = self.links.contains(&packet.link);
        if self.release.group > 1 || (!is_known && self.links.len() == MAX_LINKS) {
            return false;
        }
        let link = if is_known { 0 } else { BLOCK };
        let transmit = link + BLOCK + (packet.bytes.len() as u64).next_multiple_of(4);
        if !self.take(Amounts { transmit, ..Amounts::default() }) {
            return false;
        }
        if !is_known {
            self.links.push(packet.link);
        }
        true
    }

    /// Decides on a new packet of `bytes` bytes, which is sent from an output or on a channel and represents
    /// no other.
    pub fn made(&mut self, bytes: u64) -> bool {
        self.composed(BLOCK + bytes.next_multiple_of(4))
    }

    /// Decides on a received packet of which the module composed `bytes` bytes: those that differ, or are
    /// added. One that it did not change continues in any case.
    pub fn changed(&mut self, bytes: u64) -> bool {
        bytes == 0 || self.composed(bytes.next_multiple_of(4))
    }

    /// Decides on bytes that the module composed and that leave in packets, which represent no others.
    fn composed(&mut self, transmit: u64) -> bool {
        self.release.group <= 1 && self.take(Amounts { transmit, ..Amounts::default() })
    }

    /// Decides on a text of `bytes` bytes for the operator. Under a grant it counts as a record, too, and as
    /// one that represents no packets.
    fn log(&mut self, bytes: u64) -> bool {
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
        assert!(gate.record(0, &row(10, 0)) && gate.record(0, &row(0, 11)));
        assert!(!gate.record(0, &row(9, 9)));
        assert!(!gate.record(1, &99u64.to_le_bytes()), "it counts no packets");
        assert!(!gate.record(0, &[1, 2]) && !gate.record(7, &[]), "what is malformed or unknown counts none");
    }

    #[test]
    fn rates_are_per_second_of_packet_time() {
        let mut gate = gate(Release { records: 2, bytes: 90, transmit: 100, ..Release::default() });
        let row = row(1, 1);
        assert_eq!(row.len(), 34);
        assert!(gate.record(0, &row) && gate.record(0, &row) && !gate.record(0, &row));
        // The first of a link type takes a block for that, too.
        let packet = |gate: &mut Gate, bytes: usize| gate.packet(&packet(1, &vec![0; bytes]));
        assert!(packet(&mut gate, 34) && !packet(&mut gate, 0));
        gate.tick(SECOND_NS);
        assert!(gate.record(0, &row) && packet(&mut gate, 65) && !packet(&mut gate, 0));
        // A jump adds one second, forward or back, and a second that was paid nothing.
        for (second, records) in
            [(1000, 2), (10, 2), (1000, 0), (10, 0), (11, 2), (u64::MAX / SECOND_NS, 2), (12, 2)]
        {
            gate.tick(second * SECOND_NS);
            assert_eq!((0..30).filter(|_| gate.record(0, &row)).count(), records, "{second}");
        }
        gate.tick(1000 * SECOND_NS);
        // Shorter ticks do not add more.
        let let_out = (1..=20).filter(|n| {
            gate.tick(1000 * SECOND_NS + n * (SECOND_NS / 10));
            gate.record(0, &row)
        });
        assert_eq!(let_out.count(), 3, "two with the tenth, one with the last");
    }

    #[test]
    fn texts_for_the_operator_are_few() {
        let of = |gate: &mut Gate| (0..100).filter(|_| gate.log(5)).count();
        let release = Release { records: 20, ..Release::default() };
        let mut granted = gate(release);
        // Under a grant a text is a record, too.
        assert_eq!((of(&mut granted), granted.record(1, &[0; 8])), (20, false));
        granted.tick(SECOND_NS);
        assert_eq!(of(&mut granted), 20);
        let mut many = gate(Release::default());
        assert_eq!((of(&mut many), many.record(1, &[0; 8])), (32, true));
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
        assert_eq!((0..10_000_000).take_while(|_| gate.record(0, &[1])).count(), 65_536);
        assert!(gate.packet(&packet(1, &[0; 9000])), "what is written of packets has its own limits");
        let most = (0..10_000_000_u64).take_while(|_| gate.packet(&packet(1, &[0; 65_000]))).count();
        assert!((500..2000).contains(&most), "{most} packets of 65 kB");
    }

    fn packet(link: u16, bytes: &[u8]) -> Packet<'_> {
        Packet { ts_ns: 0, wire_len: 0, link: LinkType(link), bytes }
    }

    /// Regression: packets without bytes were free, in any number, and so were link types.
    #[test]
    fn every_frame_that_leaves_costs_something() {
        let empty = |link| Frame::Packet(packet(link, &[]));
        let mut none = gate(Release { transmit: 0, ..Release::default() });
        assert!(!none.lets(&empty(1)));
        assert!(none.lets(&Frame::Message(b"stays")) && none.lets(&Frame::Lost { records: 1, table: None }));
        let mut some = gate(Release { transmit: 320, ..Release::default() });
        assert_eq!((0..1000).filter(|_| some.lets(&empty(1))).count(), 9, "and one block for the link type");
        let mut own = Gate::new(
            &Manifest::parse(b"abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"").unwrap(),
            &Terms::default(),
            &Meters::default(),
        );
        assert_eq!((0..=u16::MAX).filter(|link| own.lets(&empty(*link))).count(), MAX_LINKS);
        assert!(own.lets(&empty(0)), "those that came before");
        let most = (0..10_000_000).take_while(|_| own.lets(&empty(0))).count();
        assert!((1 << 20..3 << 20).contains(&most), "{most}");
    }

    #[test]
    fn every_byte_that_a_module_composes_is_charged() {
        let mut some = gate(Release { transmit: 100, ..Release::default() });
        assert!(some.made(20) && some.changed(41), "32 and 20; 41 and 3");
        assert!(!some.changed(5) && some.changed(0) && some.changed(1) && some.changed(0));
        assert!(!some.changed(1), "nothing is left");
        some.tick(SECOND_NS);
        assert!(some.changed(100) && !some.changed(1));
        let mut grouped = gate(Release { group: 2, ..Release::default() });
        assert!(!grouped.changed(1) && grouped.changed(0), "a changed packet represents only itself");
    }

    #[test]
    fn a_packet_represents_only_itself() {
        let lets =
            |group| gate(Release { group, ..Release::default() }).lets(&Frame::Packet(packet(1, b"a")));
        assert_eq!([0, 1, 2, 10].map(lets), [true, true, false, false]);
    }
}
