//! The native build on crafted packets: which records come out, and nothing else.

use flame_flow::{CUT, FRAGMENT, Flow};
use flame_module::testing::{Native, Parameters, RowBytes};
use flame_module::{Descriptor, flags, tcp};

const SECOND: u64 = 1_000_000_000;
const ENDS: [&str; 6] = ["idle", "active", "fin", "rst", "evicted", "end"];

/// Packets of one test, all in one memory.
#[derive(Default)]
struct Packets {
    descriptors: Vec<Descriptor>,
    memory: Vec<u8>,
}

impl Packets {
    /// An IPv4 packet between hosts 10.0.0.x, 100 bytes long.
    fn v4(
        &mut self,
        at: u64,
        proto: u8,
        (src, sport): (u8, u16),
        (dst, dport): (u8, u16),
        tcp_flags: u8,
    ) -> &mut Descriptor {
        let mut bytes = vec![0x45, 0, 0, 100, 0, 0, 0, 0, 64, proto, 0, 0, 10, 0, 0, src, 10, 0, 0, dst];
        bytes.extend(sport.to_be_bytes());
        bytes.extend(dport.to_be_bytes());
        self.add(
            at,
            &bytes,
            20,
            proto,
            flags::IPV4,
            // ICMP has no ports that the flow's hash could depend on.
            u32::from(src ^ dst) ^ if proto == 1 { 0 } else { u32::from(sport ^ dport) },
            tcp_flags,
        )
    }

    fn v6(&mut self, at: u64, src: [u8; 16], dst: [u8; 16], sport: u16, dport: u16) -> &mut Descriptor {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 60, 17, 64];
        bytes.extend(src);
        bytes.extend(dst);
        bytes.extend(sport.to_be_bytes());
        bytes.extend(dport.to_be_bytes());
        self.add(at, &bytes, 40, 17, flags::IPV6, 7, 0)
    }

    #[allow(clippy::too_many_arguments)]
    fn add(
        &mut self,
        at: u64,
        bytes: &[u8],
        l4: u16,
        proto: u8,
        ip: u8,
        hash: u32,
        tcp_flags: u8,
    ) -> &mut Descriptor {
        let d = Descriptor {
            ts_ns: at,
            addr: self.memory.len() as u32,
            hash,
            wire_len: 100,
            cap_len: bytes.len() as u32,
            l3: 0,
            l4,
            l4_len: 4,
            proto,
            flags: ip | flags::TRANSPORT,
            tcp_flags,
        };
        self.memory.extend(bytes);
        self.descriptors.push(d);
        self.descriptors.last_mut().expect("just pushed")
    }

    fn run(&self, max_flows: i64, ticks: &[u64]) -> Native<Flow> {
        let parameters = Parameters::default()
            .integer("max_flows", max_flows)
            .integer("idle_timeout", 60 * SECOND as i64)
            .integer("active_timeout", 1800 * SECOND as i64)
            .integer("linger", 5 * SECOND as i64);
        let mut native = Native::new(&parameters, 0);
        native.packets(&self.descriptors, &self.memory);
        for now in ticks {
            native.tick(*now);
        }
        native.end(0);
        assert_eq!(native.lost, 0);
        native
    }

    /// `proto src:sport dst:dport packets fwd/rev flags fwd/rev end` of each record.
    fn records(&self) -> Vec<String> {
        self.run(16, &[]).rows.iter().map(text).collect()
    }
}

fn text(row: &RowBytes) -> String {
    assert_eq!((row.table, row.bytes.len()), (0, 108));
    let host = |at: usize| if row.bytes[at] == 4 { row.bytes[at + 4] } else { row.bytes[at + 16] };
    let n = |at, size| row.integer(at, size);
    format!(
        "{} {}:{} {}:{} {}/{} {:x}/{:x} {}",
        n(0, 1),
        host(1),
        n(18, 2),
        host(20),
        n(37, 2),
        n(55, 8),
        n(63, 8),
        n(87, 1),
        n(88, 1),
        ENDS[row.bytes[89] as usize]
    )
}

const A: (u8, u16) = (1, 1000);
const B: (u8, u16) = (2, 80);

#[test]
fn both_directions_are_one_flow() {
    let mut p = Packets::default();
    p.v4(1, 17, A, B, 0);
    p.v4(2, 17, B, A, 0);
    p.v4(3, 17, A, B, 0);
    let run = p.run(16, &[]);
    assert_eq!(run.rows.iter().map(text).collect::<Vec<_>>(), ["17 1:1000 2:80 2/1 0/0 end"]);
    let row = &run.rows[0];
    assert_eq!([39, 47, 71, 79].map(|at| row.integer(at, 8)), [1, 3, 200, 100], "first, last, bytes");
}

#[test]
fn the_asker_is_the_source_even_if_the_answer_comes_first() {
    let mut p = Packets::default();
    p.v4(1, 6, B, A, tcp::SYN | tcp::ACK);
    p.v4(2, 6, A, B, tcp::ACK);
    assert_eq!(p.records(), ["6 1:1000 2:80 1/1 10/12 end"]);
}

#[test]
fn ipv6_addresses_that_fold_alike_are_told_apart() {
    let (mut a, mut b, mut c) = ([0; 16], [0; 16], [0; 16]);
    (a[15], b[15], c[15]) = (1, 2, 1);
    // Cancels in the fold: word 0 as it is, word 1 turned by 8 bits.
    (c[1], c[4]) = (9, 9);
    let mut p = Packets::default();
    p.v6(1, a, b, 5, 6);
    p.v6(2, b, a, 6, 5);
    p.v6(3, c, b, 5, 6);
    assert_eq!(p.records(), ["17 1:5 2:6 1/1 0/0 end", "17 1:5 2:6 1/0 0/0 end"]);
}

#[test]
fn a_silent_flow_ends_and_a_later_packet_begins_another() {
    let mut p = Packets::default();
    p.v4(0, 17, A, B, 0);
    p.v4(60 * SECOND, 17, A, B, 0);
    p.v4(120 * SECOND + 1, 17, B, A, 0);
    assert_eq!(p.records(), ["17 1:1000 2:80 2/0 0/0 idle", "17 2:80 1:1000 1/0 0/0 end"]);
}

#[test]
fn an_old_flow_is_split_and_keeps_its_direction() {
    let mut p = Packets::default();
    for minute in 0..=30 {
        p.v4(minute * 59 * SECOND, 17, A, B, 0);
    }
    p.v4(1801 * SECOND, 17, B, A, 0);
    assert_eq!(p.records(), ["17 1:1000 2:80 31/0 0/0 active", "17 1:1000 2:80 0/1 0/0 end"]);
}

#[test]
fn a_closed_connection_takes_stragglers_and_a_syn_begins_the_next() {
    let (fin, rst) = (tcp::FIN | tcp::ACK, tcp::RST);
    let mut p = Packets::default();
    p.v4(0, 6, A, B, tcp::SYN);
    p.v4(1, 6, A, B, fin);
    p.v4(2, 6, B, A, fin);
    p.v4(3, 6, A, B, tcp::ACK);
    p.v4(4, 6, A, B, tcp::SYN);
    p.v4(5, 6, B, A, rst | tcp::ACK);
    p.v4(6 * SECOND, 6, A, B, tcp::ACK);
    assert_eq!(
        p.records(),
        ["6 1:1000 2:80 3/1 13/11 fin", "6 1:1000 2:80 1/1 2/14 rst", "6 1:1000 2:80 1/0 10/0 end"]
    );
}

#[test]
fn a_tick_gives_the_same_record_as_a_packet_would() {
    let mut p = Packets::default();
    p.v4(0, 17, A, B, 0);
    p.v4(9 * SECOND, 17, A, (3, 80), 0);
    let run = p.run(16, &[70 * SECOND, 70 * SECOND + 1]);
    let records: Vec<_> = run.rows.iter().map(text).collect();
    assert_eq!(records, ["17 1:1000 2:80 1/0 0/0 idle", "17 1:1000 3:80 1/0 0/0 end"]);
}

#[test]
fn a_full_table_evicts_the_least_recently_active_and_says_so() {
    let mut p = Packets::default();
    for port in 0..5 {
        p.v4(u64::from(port), 17, (1, port), B, 0);
    }
    p.v4(9, 17, (1, 1), B, 0);
    p.v4(10, 17, (1, 77), B, 0);
    let run = p.run(4, &[]);
    let (flows, state): (Vec<_>, Vec<_>) = run.rows.iter().partition(|r| r.table == 0);
    let evicted: Vec<_> = flows.iter().map(|r| text(r)).filter(|t| t.ends_with("evicted")).collect();
    assert_eq!(evicted, ["17 1:0 2:80 1/0 0/0 evicted", "17 1:2 2:80 1/0 0/0 evicted"]);
    let total: u64 = flows.iter().map(|r| r.integer(55, 8)).sum();
    assert_eq!((flows.len(), total), (6, 7), "no packet is lost");
    assert_eq!([4, 12, 20].map(|at| state[0].integer(at, 8)), [4, 2, 0], "peak, evicted, unreadable");
}

#[test]
fn a_chain_is_bounded() {
    let mut p = Packets::default();
    for port in 0..1000 {
        p.v4(u64::from(port), 17, (1, port), B, 0).hash = 42;
    }
    let run = p.run(4096, &[]);
    let evicted = run.rows.iter().filter(|r| r.table == 0 && r.bytes[89] == 4).count();
    assert_eq!((run.rows.len(), evicted), (1001, 1000 - flame_flow::MAX_CHAIN));
}

#[test]
fn packets_without_ports_are_no_conversation_on_port_0() {
    let mut p = Packets::default();
    p.v4(1, 17, A, B, 0).flags = flags::IPV4 | flags::FRAGMENT | flags::LATER_FRAGMENT;
    let cut = p.v4(2, 6, A, B, 0);
    (cut.flags, cut.cap_len) = (flags::IPV4 | flags::TRUNCATED, 23);
    let short = p.v4(3, 6, A, B, 0);
    (short.flags, short.cap_len) = (flags::IPV4 | flags::TRUNCATED, 24);
    p.v4(4, 1, A, B, 0);
    let expected = [
        format!("{FRAGMENT} 1:0 2:0 1/0 0/0 end"),
        format!("{CUT} 1:0 2:0 1/0 0/0 end"),
        "6 1:1000 2:80 1/0 0/0 end".to_owned(),
        "1 1:0 2:0 1/0 0/0 end".to_owned(),
    ];
    assert_eq!(p.records(), expected);
}

/// Returns `type code` of each record, with the packets of both directions.
fn icmp(packets: &Packets) -> Vec<String> {
    let row = |r: &RowBytes| {
        let [kind, code] = [90, 91].map(|at| r.integer(at, 1));
        format!("{kind} {code} {}/{}", r.integer(55, 8), r.integer(63, 8))
    };
    packets.run(16, &[]).rows.iter().map(row).collect()
}

#[test]
fn an_icmp_request_and_its_answer_are_one_flow() {
    let message = |kind: u8, code: u8| u16::from_be_bytes([kind, code]);
    let mut p = Packets::default();
    p.v4(1, 1, (1, message(8, 0)), (2, 7), 0);
    p.v4(2, 1, (2, message(0, 0)), (1, 9), 0);
    p.v4(3, 1, (1, message(8, 0)), (2, 5), 0);
    // A message without an answer is a flow of its own, in each direction.
    p.v4(4, 1, (2, message(3, 1)), (1, 0), 0);
    p.v4(5, 1, (1, message(3, 1)), (2, 0), 0);
    p.v4(6, 1, (2, message(3, 3)), (1, 0), 0);
    assert_eq!(icmp(&p), ["8 0 2/1", "3 1 1/0", "3 1 1/0", "3 3 1/0"]);
    let ports = |row: &RowBytes| (row.integer(18, 2), row.integer(37, 2));
    assert!(p.run(16, &[]).rows.iter().all(|row| ports(row) == (0, 0)), "ICMP has no ports");
}

#[test]
fn type_and_code_that_were_not_captured_are_255() {
    let mut p = Packets::default();
    let cut = p.v4(1, 1, (1, 0x0800), (2, 0), 0);
    (cut.flags, cut.cap_len) = (flags::IPV4 | flags::TRUNCATED, 21);
    let short = p.v4(2, 1, (1, 0x0800), (2, 0), 0);
    (short.flags, short.cap_len) = (flags::IPV4 | flags::TRUNCATED, 22);
    assert_eq!(icmp(&p), ["255 255 1/0", "8 0 1/0"]);
}

#[test]
fn bytes_are_counted_with_and_without_the_link_header() {
    let mut p = Packets::default();
    // Lengths of link headers, and the offsets that the decoder would give; the bytes lie before the packet.
    for (at, (src, dst, link)) in
        [(A, B, 14), (A, B, 18), (B, A, 14), (B, A, 7), (A, B, 200)].iter().enumerate()
    {
        let before = p.memory.len() as u32;
        p.memory.extend(vec![0; *link]);
        let d = p.v4(at as u64, 17, *src, *dst, 0);
        (d.addr, d.l3, d.l4) = (before, *link as u16, *link as u16 + 20);
        (d.cap_len, d.wire_len) = (d.cap_len + *link as u32, 300);
    }
    let run = p.run(16, &[]);
    let row = &run.rows[0];
    assert_eq!((run.rows.len(), row.integer(71, 8), row.integer(79, 8)), (1, 900, 600));
    assert_eq!((row.integer(92, 8), row.integer(100, 8)), (900 - 14 - 18 - 200, 600 - 14 - 7));
}

#[test]
fn hidden_addresses_are_counted() {
    let mut p = Packets::default();
    p.v4(1, 17, A, B, 0).cap_len = 19;
    let run = p.run(4, &[]);
    assert_eq!((run.rows.len(), run.rows[0].table, run.rows[0].integer(20, 8)), (1, 1, 1));
}

#[test]
fn more_flows_than_the_output_holds_all_come_out() {
    let mut p = Packets::default();
    for n in 0..10_000u16 {
        p.v4(1, 17, (1, n), B, 0).hash = u32::from(n).wrapping_mul(0x85eb_ca6b);
    }
    assert_eq!(p.run(16_384, &[]).rows.iter().filter(|r| r.table == 0).count(), 10_000);
}

#[test]
fn the_manifest_is_valid() {
    let manifest = flame_abi::manifest::Manifest::parse(include_bytes!("../module.toml")).expect("valid");
    assert_eq!(manifest.tables.iter().map(|t| t.columns.len()).collect::<Vec<_>>(), [18, 4]);
}
