//! The native build on crafted segments: which values come out, and which must not.

use flame_module::testing::{Native, Parameters, RowBytes};
use flame_module::{Descriptor, flags, tcp};
use flame_rtt::{Histogram, Rtt};

const MS: u64 = 1_000_000;
const SYN: u8 = tcp::SYN;
const SYNACK: u8 = tcp::SYN | tcp::ACK;
const ACK: u8 = tcp::ACK;

/// Segments of one connection, client 10.0.0.1:1000 and server 10.0.0.2:80.
#[derive(Default)]
struct Trace {
    descriptors: Vec<Descriptor>,
    memory: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Peer {
    Client,
    Server,
}
use Peer::{Client, Server};

impl Trace {
    /// `clocks` are the TCP timestamps, value and echo.
    #[allow(clippy::too_many_arguments)]
    fn add(
        &mut self,
        ms: u64,
        from: Peer,
        tcp_flags: u8,
        seq: u32,
        ack: u32,
        len: u16,
        clocks: Option<(u32, u32)>,
    ) {
        let (src, dst, sport, dport) = match from {
            Client => (1, 2, 1000u16, 80u16),
            Server => (2, 1, 80, 1000),
        };
        let header: u16 = if clocks.is_some() { 32 } else { 20 };
        let mut b = vec![0x45, 0];
        b.extend((20 + header + len).to_be_bytes());
        b.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, src, 10, 0, 0, dst]);
        b.extend(sport.to_be_bytes());
        b.extend(dport.to_be_bytes());
        b.extend(seq.to_be_bytes());
        b.extend(ack.to_be_bytes());
        b.extend([(header * 4) as u8, tcp_flags, 0, 0, 0, 0, 0, 0]);
        if let Some((value, echo)) = clocks {
            b.extend([1, 1, 8, 10]);
            b.extend(value.to_be_bytes());
            b.extend(echo.to_be_bytes());
        }
        self.descriptors.push(Descriptor {
            ts_ns: 1_000_000 * MS + ms * MS,
            addr: self.memory.len() as u32,
            hash: 99,
            wire_len: b.len() as u32 + u32::from(len),
            cap_len: b.len() as u32,
            l4: 20,
            l4_len: header as u8,
            proto: 6,
            flags: flags::IPV4 | flags::TRANSPORT,
            tcp_flags,
            ..Descriptor::default()
        });
        self.memory.extend(b);
    }

    fn run(&self, parameters: &Parameters) -> Vec<RowBytes> {
        let mut native = Native::<Rtt, Histogram>::with_slow(parameters, 0);
        native.packets(&self.descriptors, &self.memory);
        native.tick(0);
        native.end(0);
        assert_eq!(native.lost, 0);
        native.rows
    }

    /// Milliseconds and retransmitted SYNs of each handshake, and how many were ambiguous.
    fn handshakes(&self) -> (Vec<(u64, u64)>, u64) {
        let rows = self.run(&parameters());
        let values = rows.iter().filter(|r| r.table == 0).map(|r| {
            assert_eq!((r.bytes.len(), r.integer(17, 2), r.integer(36, 2)), (58, 1000, 80));
            (r.integer(46, 8) / MS, r.integer(54, 4))
        });
        let state = rows.last().filter(|r| r.table == 3).expect("ends with the state");
        (values.collect(), state.integer(8, 8))
    }

    /// The copies by the capture in the row of `state`.
    fn copies(&self) -> u64 {
        self.run(&parameters()).last().map_or(0, |row| row.integer(32, 8))
    }

    /// Sender's port, milliseconds and method of each sample.
    fn samples(&self) -> Vec<(u64, u64, u64)> {
        let rows = self.run(&parameters());
        let samples = rows.iter().filter(|r| r.table == 1);
        samples.map(|r| (r.integer(17, 2), r.integer(46, 8) / MS, r.integer(54, 1))).collect()
    }
}

fn parameters() -> Parameters {
    with_synack(1)
}

fn with_synack(required: i64) -> Parameters {
    Parameters::default()
        .integer("max_handshakes", 64)
        .integer("max_connections", 64)
        .integer("handshake_timeout", 120_000 * MS as i64)
        .integer("require_synack", required)
        .integer("samples", 1)
}

#[test]
fn syn_to_first_ack_of_the_same_direction() {
    let mut t = Trace::default();
    t.add(0, Client, SYN, 100, 0, 0, None);
    t.add(20, Server, SYNACK, 900, 101, 0, None);
    t.add(30, Server, ACK, 901, 101, 0, None);
    t.add(50, Client, ACK, 101, 901, 0, None);
    t.add(60, Client, ACK, 101, 901, 0, None);
    assert_eq!(t.handshakes(), (vec![(50, 0)], 0));
    let rows = t.run(&parameters());
    let bins: Vec<_> =
        rows.iter().filter(|r| r.table == 2).map(|r| [0, 8, 16].map(|at| r.integer(at, 8))).collect();
    assert_eq!(bins, [[41_943_040, 50_331_648, 1]]);
}

#[test]
fn sequence_numbers_wrap_and_data_may_ride_on_the_ack() {
    let mut t = Trace::default();
    t.add(0, Client, SYN, u32::MAX, 0, 0, None);
    t.add(20, Server, SYNACK, 900, 0, 0, None);
    t.add(50, Client, ACK | tcp::PSH, 0, 901, 10, None);
    assert_eq!(t.handshakes(), (vec![(50, 0)], 0));
}

#[test]
fn a_refused_or_unanswered_syn_has_no_value() {
    let mut t = Trace::default();
    t.add(0, Client, SYN, 100, 0, 0, None);
    t.add(20, Server, ACK | tcp::RST, 0, 101, 0, None);
    t.add(30, Client, ACK, 101, 0, 0, None);
    assert_eq!(t.handshakes(), (vec![], 0));
}

#[test]
fn a_syn_after_a_refusal_is_a_new_attempt() {
    let mut t = Trace::default();
    t.add(0, Client, SYN, 100, 0, 0, None);
    t.add(20, Server, ACK | tcp::RST, 0, 101, 0, None);
    t.add(520, Client, SYN, 100, 0, 0, None);
    t.add(540, Server, SYNACK, 900, 101, 0, None);
    t.add(550, Client, ACK, 101, 901, 0, None);
    assert_eq!(t.handshakes(), (vec![(30, 0)], 0));
}

#[test]
fn one_direction_is_enough_if_asked_for() {
    let mut t = Trace::default();
    t.add(0, Client, SYN, 100, 0, 0, None);
    t.add(50, Client, ACK, 101, 901, 0, None);
    assert_eq!(t.handshakes(), (vec![], 0));
    let rows = t.run(&with_synack(0));
    assert_eq!((rows[0].table, rows[0].integer(46, 8)), (0, 50 * MS));
}

#[test]
fn timestamps_tell_which_syn_was_answered() {
    for (echo, expected) in [(2000, 50), (1000, 1050)] {
        let mut t = Trace::default();
        t.add(0, Client, SYN, 100, 0, 0, Some((1000, 0)));
        t.add(1000, Client, SYN, 100, 0, 0, Some((2000, 0)));
        t.add(1020, Server, SYNACK, 900, 101, 0, Some((7, echo)));
        t.add(1050, Client, ACK, 101, 901, 0, Some((2050, 7)));
        assert_eq!(t.handshakes(), (vec![(expected, 1)], 0), "{echo}");
    }
}

#[test]
fn without_timestamps_a_retransmitted_syn_gives_no_value() {
    for clocks in [[None, None], [Some((5, 0)), Some((5, 0))]] {
        let mut t = Trace::default();
        t.add(0, Client, SYN, 100, 0, 0, clocks[0]);
        t.add(1000, Client, SYN, 100, 0, 0, clocks[1]);
        t.add(1020, Server, SYNACK, 900, 101, 0, clocks[0].map(|_| (7, 5)));
        t.add(1050, Client, ACK, 101, 901, 0, clocks[0].map(|_| (6, 7)));
        assert_eq!(t.handshakes(), (vec![], 1));
    }
}

#[test]
fn a_lost_synack_does_not_count_its_timeout() {
    // Sent again by the server's own clock: 20 ms to the server, 30 ms to the client.
    let mut t = Trace::default();
    t.add(0, Client, SYN, 100, 0, 0, Some((1000, 0)));
    t.add(20, Server, SYNACK, 900, 101, 0, Some((7, 1000)));
    t.add(1020, Server, SYNACK, 900, 101, 0, Some((8, 1000)));
    t.add(1050, Client, ACK, 101, 901, 0, Some((2050, 8)));
    assert_eq!(t.handshakes(), (vec![(50, 0)], 0));
    // And asked for again by the client.
    let mut t = Trace::default();
    t.add(0, Client, SYN, 100, 0, 0, Some((1000, 0)));
    t.add(20, Server, SYNACK, 900, 101, 0, Some((7, 1000)));
    t.add(1000, Client, SYN, 100, 0, 0, Some((2000, 0)));
    t.add(1020, Server, SYNACK, 900, 101, 0, Some((8, 1000)));
    t.add(1050, Client, ACK, 101, 901, 0, Some((2050, 8)));
    assert_eq!(t.handshakes(), (vec![(50, 1)], 0));
}

#[test]
fn packets_captured_twice_are_no_retransmissions() {
    let mut t = Trace::default();
    for _ in 0..2 {
        t.add(0, Client, SYN, 100, 0, 0, None);
    }
    for _ in 0..2 {
        t.add(20, Server, SYNACK, 900, 101, 0, None);
    }
    t.add(50, Client, ACK, 101, 901, 0, None);
    assert_eq!(t.handshakes(), (vec![(50, 0)], 0));
    assert_eq!(t.copies(), 2);
}

#[test]
fn fast_open_moves_the_first_ack_behind_the_data() {
    for taken in [0, 10] {
        let mut t = Trace::default();
        t.add(0, Client, SYN, 100, 0, 10, None);
        t.add(20, Server, SYNACK, 900, 101 + taken, 0, None);
        t.add(50, Client, ACK, 101 + taken, 901, 0, None);
        assert_eq!(t.handshakes(), (vec![(50, 0)], 0), "{taken}");
    }
}

#[test]
fn a_forgotten_syn_has_no_value() {
    let mut t = Trace::default();
    t.add(0, Client, SYN, 100, 0, 0, None);
    t.add(20, Server, SYNACK, 900, 101, 0, None);
    t.add(120_001, Client, ACK, 101, 901, 0, None);
    assert_eq!(t.handshakes(), (vec![], 0));
}

#[test]
fn both_methods_sample_both_directions() {
    let mut t = Trace::default();
    t.add(0, Client, ACK, 101, 901, 100, Some((10, 5)));
    t.add(1, Client, ACK, 201, 901, 100, Some((11, 5)));
    t.add(20, Server, ACK, 901, 301, 50, Some((30, 10)));
    t.add(25, Server, ACK, 951, 301, 0, Some((31, 10)));
    t.add(50, Client, ACK, 301, 951, 0, Some((60, 30)));
    assert_eq!(t.samples(), [(1000, 20, 0), (1000, 20, 1), (80, 30, 0), (80, 30, 1)]);
}

#[test]
fn a_repeated_segment_gives_no_sample_by_sequence() {
    let mut t = Trace::default();
    t.add(0, Client, ACK, 101, 901, 100, Some((10, 5)));
    t.add(300, Client, ACK, 101, 901, 100, Some((310, 5)));
    t.add(320, Server, ACK, 901, 201, 0, Some((30, 310)));
    assert_eq!(t.samples(), []);
}

#[test]
fn data_captured_twice_give_the_samples_of_one_copy() {
    let mut t = Trace::default();
    for _ in 0..2 {
        t.add(0, Client, ACK, 100, 1, 10, None);
    }
    for _ in 0..2 {
        t.add(30, Server, ACK, 1, 110, 0, None);
    }
    assert_eq!(t.samples(), [(1000, 30, 1)]);
    // Acknowledgements without data are often equal.
    assert_eq!(t.copies(), 1);
}

#[test]
fn packets_without_a_time_measure_nothing() {
    let mut t = Trace::default();
    t.add(0, Client, SYN, 99, 0, 0, None);
    t.add(5, Client, ACK, 100, 1, 0, None);
    t.descriptors.iter_mut().for_each(|d| d.ts_ns = 0);
    assert_eq!(t.handshakes(), (vec![], 0));
}

#[test]
fn an_echo_that_was_passed_over_gives_no_sample() {
    let mut t = Trace::default();
    t.add(0, Client, ACK, 101, 901, 0, Some((10, 5)));
    t.add(1, Client, ACK, 101, 901, 100, Some((11, 5)));
    t.add(20, Server, ACK, 901, 101, 0, Some((30, 10)));
    t.add(21, Server, ACK, 901, 101, 0, Some((31, 12)));
    t.add(22, Server, ACK, 901, 201, 0, Some((31, 11)));
    assert_eq!(t.samples(), [(1000, 21, 1)]);
}

#[test]
fn a_new_connection_on_the_same_ports_starts_anew() {
    let mut t = Trace::default();
    t.add(0, Client, ACK, 101, 901, 100, None);
    t.add(10, Client, SYN, 5_000_000, 0, 0, None);
    t.add(20, Server, ACK, 901, 5_000_001, 0, None);
    assert_eq!(t.samples(), []);
}

#[test]
fn attempts_on_the_same_ports_take_four_places_and_evictions_are_counted() {
    let mut t = Trace::default();
    for n in 0..20 {
        t.add(n, Client, SYN, 1000 * n as u32, 0, 0, None);
    }
    let rows = t.run(&parameters());
    assert_eq!(rows.last().map(|r| r.integer(16, 8)), Some(16));
}

#[test]
fn the_manifest_is_valid() {
    let manifest = flame_abi::manifest::Manifest::parse(include_bytes!("../module.toml")).expect("valid");
    assert_eq!(manifest.tables.iter().map(|t| t.columns.len()).collect::<Vec<_>>(), [7, 7, 3, 5]);
}
