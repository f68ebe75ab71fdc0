use super::*;
use flame_module::tcp::{ACK, FIN, PSH, RST, SYN};
use flame_module::testing::{Native, Parameters, Traffic};
use tables::{Connection, ConnectionEnd as End, ConnectionHandshake as Handshake, Interval, Params};

const MS: u64 = 1_000_000;

fn native(interval_ns: u64) -> Native<Tcp, Merge> {
    Native::with_slow(&Parameters::of(Params::DEFAULTS), interval_ns)
}

/// A conversation between two hosts, packet by packet.
#[derive(Default)]
struct Talk {
    traffic: Traffic,
    at: u64,
}

impl Talk {
    /// Adds a segment of the client, or of the server, `ms` after the one before.
    fn add(&mut self, is_client: bool, ms: u64, flags: u8, seq: u32, ack: u32, len: usize) -> &mut Self {
        self.window(is_client, ms, flags, (seq, ack), len, 1000)
    }

    fn window(
        &mut self,
        is_client: bool,
        ms: u64,
        flags: u8,
        (seq, ack): (u32, u32),
        len: usize,
        window: u16,
    ) -> &mut Self {
        let (from, to) =
            if is_client { ("10.0.0.1:9", "10.0.0.2:80") } else { ("10.0.0.2:80", "10.0.0.1:9") };
        self.at += ms * MS;
        let mut packet = self.traffic.tcp(from, to);
        packet.tcp_flags(flags).seq(seq).ack(ack).payload(&vec![7; len]).at(self.at);
        packet.bytes()[48..50].copy_from_slice(&window.to_be_bytes());
        self
    }

    /// Adds a handshake of 20 ms, after which both sides are at 1.
    fn handshake(&mut self) -> &mut Self {
        self.add(true, 1, SYN, 0, 0, 0).add(false, 10, SYN | ACK, 0, 1, 0).add(true, 10, ACK, 1, 1, 0)
    }

    fn run(&self) -> Native<Tcp, Merge> {
        let mut native = native(0);
        native.run(&self.traffic);
        native.end(self.at);
        native
    }
}

fn one(native: &Native<Tcp, Merge>) -> Connection {
    let rows = native.of::<Connection>();
    let [row] = rows[..] else { panic!("{rows:?}") };
    row
}

/// As in Simple Packet Blocks of pcapng.
#[test]
fn packets_without_time_have_no_round_trip() {
    let mut talk = Talk::default();
    talk.add(true, 0, SYN, 0, 0, 0).add(false, 0, SYN | ACK, 0, 1, 0).add(true, 0, ACK, 1, 1, 0);
    talk.add(true, 0, ACK | PSH, 1, 1, 100).add(false, 0, ACK, 1, 101, 0);
    let native = talk.run();
    let row = one(&native);
    assert_eq!((row.handshake, row.packets_fwd, row.rtts), (Handshake::Complete, 3, 0));
    assert_eq!(native.of::<Interval>()[0].rtts, 0);
}

#[test]
fn a_clean_connection_has_no_trouble() {
    let mut talk = Talk::default();
    talk.handshake().add(true, 1, ACK | PSH, 1, 1, 100).add(false, 20, ACK, 1, 101, 0);
    talk.add(false, 5, ACK | PSH, 1, 101, 1000).add(true, 30, ACK, 101, 1001, 0);
    talk.add(true, 1, FIN | ACK, 101, 1001, 0).add(false, 20, FIN | ACK, 1001, 102, 0);
    talk.add(true, 1, ACK, 102, 1002, 0);
    let native = talk.run();
    let row = one(&native);
    assert_eq!(
        (row.handshake, row.end, row.packets_fwd, row.packets_rev),
        (Handshake::Complete, End::Fin, 6, 4)
    );
    assert_eq!((row.in_flight_fwd, row.in_flight_rev, row.rtts), (100, 1000, 6));
    assert_eq!((row.rtt_min_ns, row.rtt_max_ns), (MS as i64, 30 * MS as i64));
    let total = native.of::<Interval>()[0];
    assert_eq!((total.packets, total.connections, total.handshakes, total.rtts), (10, 1, 1, 6));
    let trouble = total.retransmissions + total.out_of_order + total.duplicate_acks + total.lost;
    assert_eq!((trouble, total.zero_windows, total.resets, total.keep_alives), (0, 0, 0, 0));
}

#[test]
fn what_comes_again_is_told_apart() {
    let mut talk = Talk::default();
    talk.handshake();
    for n in [0, 2, 3] {
        talk.add(true, 1, ACK, 1 + n * 100, 1, 100);
    }
    // The second comes late: within the time of the handshake, it is out of order.
    talk.add(true, 1, ACK, 101, 1, 100);
    talk.add(false, 1, ACK, 1, 401, 0);
    // Three duplicates, and then what they ask for.
    talk.add(true, 1, ACK, 501, 1, 100);
    talk.add(false, 1, ACK, 1, 401, 0).add(false, 1, ACK, 1, 401, 0).add(false, 1, ACK, 1, 401, 0);
    talk.add(true, 1, ACK, 401, 1, 100);
    // After a timeout, and what was acknowledged already.
    talk.add(true, 300, ACK, 501, 1, 100).add(false, 1, ACK, 1, 601, 0).add(true, 1, ACK, 401, 1, 50);
    let row = one(&talk.run());
    assert_eq!((row.out_of_order_fwd, row.lost_fwd, row.duplicate_acks_rev), (1, 2, 3));
    assert_eq!(
        (row.retransmissions_fwd, row.fast_retransmissions_fwd, row.spurious_retransmissions_fwd),
        (3, 1, 1)
    );
    assert_eq!((row.retransmissions_rev, row.out_of_order_rev, row.lost_rev), (0, 0, 0));
}

#[test]
fn windows_probes_and_keep_alives_are_no_retransmissions() {
    let mut talk = Talk::default();
    talk.handshake().add(true, 1, ACK, 1, 1, 1000).window(false, 1, ACK, (1, 1001), 0, 0);
    // A probe of the zero window, its answer, and the window that opens.
    talk.add(true, 300, ACK, 1001, 1, 1).window(false, 1, ACK, (1, 1001), 0, 0);
    talk.add(false, 100, ACK, 1, 1001, 0).add(true, 1, ACK, 1001, 1, 100).add(false, 1, ACK, 1, 1101, 0);
    talk.add(true, 9000, ACK, 1100, 1, 1).add(false, 1, ACK, 1, 1101, 0);
    let row = one(&talk.run());
    assert_eq!((row.zero_windows_rev, row.full_windows_fwd, row.keep_alives_fwd), (2, 1, 1));
    assert_eq!((row.retransmissions_fwd, row.out_of_order_fwd, row.duplicate_acks_rev), (0, 0, 0));
}

#[test]
fn handshakes_end_in_four_ways_and_ports_are_used_again() {
    let mut talk = Talk::default();
    talk.add(true, 0, SYN, 7, 0, 0).add(false, 1, RST | ACK, 0, 8, 0);
    talk.add(true, 1, SYN, 70, 0, 0).add(true, 1000, SYN, 70, 0, 0);
    talk.add(true, 1, SYN, 700, 0, 0).add(false, 1, SYN | ACK, 1, 701, 0);
    let native = talk.run();
    let rows = native.of::<Connection>();
    let found: Vec<_> = rows.iter().map(|row| (row.handshake, row.end, row.retransmissions_fwd)).collect();
    assert_eq!(
        found,
        [
            (Handshake::Refused, End::Reused, 0),
            (Handshake::Unanswered, End::Reused, 1),
            (Handshake::Half, End::End, 0)
        ]
    );
    let total = native.of::<Interval>()[0];
    assert_eq!((total.refused, total.unanswered, total.handshakes, total.resets), (1, 1, 0, 1));
}

#[test]
fn intervals_add_up() {
    let mut native = native(1000 * MS);
    let mut sum = 0;
    for round in 0..3u64 {
        let mut traffic = Traffic::default();
        for n in 0..round + 1 {
            traffic.tcp("10.0.0.1:9", "10.0.0.2:80").tcp_flags(ACK).payload(b"xyz").at(round * 1000 * MS + n);
        }
        native.run(&traffic);
        native.tick((round + 1) * 1000 * MS);
        sum += round + 1;
    }
    native.end(3000 * MS);
    let rows = native.of::<Interval>();
    assert_eq!(rows.iter().map(|row| row.packets).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((sum, rows[2].end_ns, rows[2].retransmissions), (6, 3000 * MS, 3));
}

#[test]
fn a_silent_connection_ends_and_the_oldest_gives_way() {
    let mut talk = Talk::default();
    talk.handshake();
    let mut native = native(0);
    native.run(&talk.traffic);
    native.tick(talk.at + 600_000 * MS);
    assert!(native.of::<Connection>().is_empty());
    native.tick(talk.at + 600_001 * MS);
    assert_eq!(one(&native).end, End::Idle);

    let p = Parameters::of(Params::DEFAULTS).integer("max_connections", 8);
    let mut native = Native::<Tcp, Merge>::with_slow(&p, 0);
    let mut traffic = Traffic::default();
    for port in 1..=100 {
        traffic.tcp(&format!("10.0.0.1:{port}"), "10.0.0.2:80").tcp_flags(SYN);
    }
    native.run(&traffic);
    native.end(0);
    let evicted = native.of::<Connection>().iter().filter(|row| row.end == End::Evicted).count();
    assert_eq!(
        (native.of::<Connection>().len(), evicted as u64),
        (100, native.of::<tables::State>()[0].evicted)
    );
}

#[test]
fn any_segment_is_handled() {
    let mut random = 1u64;
    let mut next = || {
        random = flame_module::mix(random);
        random
    };
    let mut traffic = Traffic::default();
    let mut at = 1u64 << 40;
    for _ in 0..30_000 {
        let (a, b) = (next(), next());
        let ports = [("10.0.0.1:9", "10.0.0.2:80"), ("10.0.0.2:80", "10.0.0.1:9")][(a & 1) as usize];
        // Near each other, or anywhere; time may go back.
        let number = |n: u64| if n & 0x300 == 0 { n as u32 } else { n as u32 >> 24 };
        at = (at + (b & 0xff_ffff)).saturating_sub(b >> 32 & 0xff_ffff);
        let mut packet = traffic.tcp(ports.0, ports.1);
        packet.tcp_flags((a >> 8) as u8).seq(number(a >> 16)).ack(number(b >> 16)).at(at);
        packet.payload(&vec![0; (next() % 4) as usize]);
        packet.bytes()[46] = (next() & 0xf0) as u8 | 0x50;
        if b & 15 == 0 {
            let cut = (next() % 60) as u32;
            traffic.last().captured(cut);
        }
    }
    let mut native = native(0);
    native.run(&traffic);
    native.end(at);
    let total = native.of::<Interval>()[0];
    assert!(total.retransmissions > 100 && total.out_of_order > 10 && total.rtts > 0, "{total:?}");
    assert!(native.lost == 0 && native.of::<Connection>().len() > 10);
}
