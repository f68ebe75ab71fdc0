//! The native build on crafted packets: which records come out, and nothing else.

use flame_flow::{Flow, tables};
use flame_module::testing::{Native, Parameters, RowBytes};
use flame_module::{Descriptor, flags, tcp};

const SECOND: u64 = 1_000_000_000;
const ENDS: [&str; 7] = ["idle", "active", "fin", "rst", "evicted", "end", "reused"];

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

    fn parameters(&self, max_flows: i64) -> Parameters {
        Parameters::default()
            .integer("max_flows", max_flows)
            .integer("idle_timeout", 60 * SECOND as i64)
            .integer("active_timeout", 1800 * SECOND as i64)
            .integer("linger", 5 * SECOND as i64)
            .integer("late", 10 * SECOND as i64)
            .integer("tags", 0)
    }

    fn run(&self, max_flows: i64, ticks: &[u64]) -> Native<Flow> {
        let mut native = Native::new(&self.parameters(max_flows), 0);
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
    assert_eq!((row.table, row.bytes.len()), (0, 125));
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
fn a_silent_flow_ends_and_a_later_packet_begins_another_of_its_direction() {
    let mut p = Packets::default();
    p.v4(0, 17, A, B, 0);
    p.v4(60 * SECOND, 17, A, B, 0);
    p.v4(120 * SECOND + 1, 17, B, A, 0);
    assert_eq!(p.records(), ["17 1:1000 2:80 2/0 0/0 idle", "17 1:1000 2:80 0/1 0/0 end"]);
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

/// A record waits for late packets as long as `late` states.
#[test]
fn the_wait_for_late_packets_is_a_parameter() {
    let mut p = Packets::default();
    p.v4(0, 17, A, B, 0);
    for (late, ended) in [(0, 60), (10, 70), (30, 90)] {
        let parameters = Parameters::default()
            .integer("max_flows", 16)
            .integer("idle_timeout", 60 * SECOND as i64)
            .integer("active_timeout", 1800 * SECOND as i64)
            .integer("linger", 5 * SECOND as i64)
            .integer("late", late * SECOND as i64)
            .integer("tags", 0);
        let mut native = Native::<Flow>::new(&parameters, 0);
        native.packets(&p.descriptors, &p.memory);
        native.tick(ended * SECOND);
        assert!(native.rows.is_empty(), "{late}");
        native.tick(ended * SECOND + 1);
        assert_eq!(native.rows.len(), 1, "{late}");
    }
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
    let fragment = flags::IPV4 | flags::FRAGMENT | flags::LATER_FRAGMENT;
    p.v4(1, 17, A, B, 0).flags = fragment;
    p.v4(1, 50, A, B, 0).flags = fragment;
    let cut = p.v4(2, 6, A, B, 0);
    (cut.flags, cut.cap_len) = (flags::IPV4 | flags::TRUNCATED, 23);
    let short = p.v4(3, 6, A, B, 0);
    (short.flags, short.cap_len) = (flags::IPV4 | flags::TRUNCATED, 24);
    p.v4(4, 1, A, B, 0);
    let expected = [
        "17 1:0 2:0 1/0 0/0 end",
        "50 1:0 2:0 1/0 0/0 end",
        "6 1:0 2:0 1/0 0/0 end",
        "6 1:1000 2:80 1/0 0/0 end",
        "1 1:0 2:0 1/0 0/0 end",
    ];
    assert_eq!(p.records(), expected);
    let unknown: Vec<_> = p.run(16, &[]).of::<tables::Flow>().iter().map(|flow| flow.unknown_ports).collect();
    assert_eq!(unknown, [true, false, true, false, false]);
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
fn bytes_of_ip_are_those_that_its_header_states() {
    let mut p = Packets::default();
    // Headers and trailers of the link, and the length that IP states of the 100 bytes between.
    let packets = [
        (A, B, 14, 6, 100),
        (A, B, 18, 0, 100),
        (B, A, 14, 70_000, 100),
        (B, A, 7, 4, 0),
        (A, B, 200, 0, 90),
    ];
    for (at, (src, dst, link, trailer, stated)) in packets.into_iter().enumerate() {
        let before = p.memory.len() as u32;
        p.memory.extend(vec![0; link]);
        let start = p.memory.len();
        let d = p.v4(at as u64, 17, src, dst, 0);
        (d.addr, d.l3, d.l4) = (before, link as u16, link as u16 + 20);
        (d.cap_len, d.wire_len) = (d.cap_len + link as u32, link as u32 + 100 + trailer);
        p.memory[start + 2..start + 4].copy_from_slice(&u16::to_be_bytes(stated));
    }
    let run = p.run(16, &[]);
    let [row] = run.of::<tables::Flow>()[..] else { panic!("{} rows", run.rows.len()) };
    // Where IP states nothing, its bytes are the frame's from IP on.
    assert_eq!((row.ip_bytes_fwd, row.ip_bytes_rev, row.unstated_lengths), (290, 204, 1));
    assert_eq!((row.bytes_fwd, row.bytes_rev), (120 + 118 + 300, 70_114 + 111));
}

#[test]
fn many_small_frames_are_counted_in_full() {
    let mut p = Packets::default();
    for at in 0..5000 {
        p.v4(at, 17, A, B, 0).wire_len = 114;
    }
    // A frame that is shorter than its packet states.
    p.v4(5000, 17, A, B, 0).wire_len = 60;
    let run = p.run(16, &[]);
    let row = &run.of::<tables::Flow>()[0];
    assert_eq!((row.bytes_fwd, row.ip_bytes_fwd), (5000 * 114 + 60, 5001 * 100));
}

/// Adds a packet of TCP with its numbers.
fn tcp_packet(p: &mut Packets, at: u64, (src, dst): ((u8, u16), (u8, u16)), flags: u8, numbers: [u32; 2]) {
    p.v4(at, 6, src, dst, flags);
    p.memory.extend(numbers.map(u32::to_be_bytes).concat());
    p.descriptors.last_mut().expect("just pushed").cap_len += 8;
}

#[test]
fn a_syn_with_another_number_is_another_connection() {
    const SYN_ACK: u8 = tcp::SYN | tcp::ACK;
    let mut p = Packets::default();
    tcp_packet(&mut p, 10, (A, B), tcp::SYN, [100, 0]);
    tcp_packet(&mut p, 11, (A, B), tcp::SYN, [100, 0]);
    tcp_packet(&mut p, 20, (A, B), tcp::SYN, [200, 0]);
    tcp_packet(&mut p, 30, (A, B), tcp::SYN, [300, 0]);
    tcp_packet(&mut p, 31, (B, A), SYN_ACK, [7, 301]);
    tcp_packet(&mut p, 32, (A, B), tcp::ACK, [301, 8]);
    // The server opens a connection between the same ports. At first only the answer is seen.
    tcp_packet(&mut p, 40, (A, B), SYN_ACK, [900, 5_000_001]);
    tcp_packet(&mut p, 41, (A, B), tcp::RST, [901, 0]);
    // Their SYN came late, and belongs to the connection that acknowledged it.
    tcp_packet(&mut p, 39, (B, A), tcp::SYN, [5_000_000, 0]);
    assert_eq!(
        p.records(),
        [
            "6 1:1000 2:80 2/0 2/0 reused",
            "6 1:1000 2:80 1/0 2/0 reused",
            "6 1:1000 2:80 2/1 12/12 reused",
            "6 2:80 1:1000 1/2 2/16 rst"
        ]
    );
    assert_eq!(p.run(16, &[]).of::<tables::Flow>()[3].first_ns, 39);
}

#[test]
fn a_connection_without_its_syn_takes_the_late_one_and_no_other() {
    let mut p = Packets::default();
    tcp_packet(&mut p, 10, (A, B), tcp::ACK, [101, 8]);
    tcp_packet(&mut p, 11, (A, B), tcp::SYN, [100, 0]);
    tcp_packet(&mut p, 12, (A, B), tcp::SYN, [4711, 0]);
    assert_eq!(p.records(), ["6 1:1000 2:80 2/0 12/0 reused", "6 1:1000 2:80 1/0 2/0 end"]);
}

#[test]
fn a_clock_that_is_set_back_makes_no_duration() {
    let mut p = Packets::default();
    for at in [4000, 4001, 3991, 300, 301] {
        p.v4(at * SECOND, 17, A, B, 0);
    }
    assert_eq!(p.records(), ["17 1:1000 2:80 3/0 0/0 active", "17 1:1000 2:80 2/0 0/0 end"]);
    let times =
        p.run(16, &[]).of::<tables::Flow>().iter().map(|f| (f.first_ns, f.last_ns)).collect::<Vec<_>>();
    assert_eq!(times, [(3991, 4001), (300, 301)].map(|(a, b)| (a * SECOND, b * SECOND)));
}

#[test]
fn a_flow_that_rests_keeps_its_direction() {
    let records = |after: u64| {
        let mut p = Packets::default();
        p.v4(SECOND, 17, A, B, 0);
        p.v4(after, 17, B, A, 0);
        let mut native = Native::<Flow>::new(&p.parameters(16), 0);
        native.packets(&p.descriptors[..1], &p.memory);
        (0..40).for_each(|_| native.tick(after));
        native.packets(&p.descriptors[1..], &p.memory);
        native.end(after);
        native.rows.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(records(600 * SECOND), ["17 1:1000 2:80 1/0 0/0 idle", "17 1:1000 2:80 0/1 0/0 end"]);
    // After the longest time of a flow, the direction is the packet's.
    assert_eq!(records(1802 * SECOND), ["17 1:1000 2:80 1/0 0/0 idle", "17 2:80 1:1000 1/0 0/0 end"]);
    assert_eq!(records(1815 * SECOND), ["17 1:1000 2:80 1/0 0/0 idle", "17 2:80 1:1000 1/0 0/0 end"]);
}

#[test]
fn protocols_with_ports_have_the_fields_of_the_hash() {
    for proto in 0..=255 {
        let mut p = Packets::default();
        p.v4(1, proto, A, B, 0);
        let run = p.run(16, &[]);
        let row = &run.of::<tables::Flow>()[0];
        let ports = if flame_abi::has_ports(proto) { (1000, 80) } else { (0, 0) };
        assert_eq!((row.sport, row.dport), ports, "{proto}");
    }
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
    assert_eq!(manifest.tables.iter().map(|t| t.columns.len()).collect::<Vec<_>>(), [24, 4]);
}
