use super::*;
use flame_module::testing::{Native, Parameters, Traffic};
use flame_module::{Ip, tcp};
use tables::ScanKind;

const SECOND: u64 = 1_000_000_000;

fn native() -> Native<Scan, Merge> {
    Native::with_slow(&Parameters::of(Params::DEFAULTS), 0)
}

fn rows(native: &Native<Scan, Merge>) -> Vec<(ScanKind, Ip, u64)> {
    native.of::<tables::Scan>().iter().map(|row| (row.kind, row.src, row.probes)).collect()
}

#[test]
fn many_ports_and_many_hosts_are_found_and_their_answers_are_not() {
    let mut traffic = Traffic::default();
    for n in 1..=100 {
        traffic.tcp("10.0.0.1:999", &format!("10.0.0.2:{n}")).tcp_flags(tcp::SYN);
        traffic.tcp(&format!("10.0.0.2:{n}"), "10.0.0.1:999").tcp_flags(tcp::RST | tcp::ACK);
        traffic.udp("10.0.0.3:5000", &format!("10.1.0.{n}:53"));
        traffic.udp(&format!("10.1.0.{n}:53"), "10.0.0.3:5000");
        // A client with one server, and a server with many clients.
        traffic.tcp(&format!("10.0.0.4:{n}"), "10.0.0.2:80").tcp_flags(tcp::SYN);
        traffic.udp(&format!("10.2.0.{n}:999"), "10.0.0.5:53");
        traffic.udp("10.0.0.5:53", &format!("10.2.0.{n}:999"));
    }
    let mut native = native();
    native.run(&traffic);
    native.end(SECOND);
    let [a, b] = [[10, 0, 0, 1], [10, 0, 0, 3]].map(Ip::v4);
    assert_eq!(rows(&native), [(ScanKind::Hosts, b, 100), (ScanKind::Ports, a, 100)]);
    let all: Vec<tables::Scan> = native.of();
    assert!((90..=110).contains(&all[0].hosts) && (90..=110).contains(&all[1].ports), "{all:?}");
}

#[test]
fn a_window_ends_at_a_tick() {
    let mut native = native();
    for minute in 0..3u64 {
        let mut traffic = Traffic::default();
        // Forty in each window are below the threshold, though eighty are not.
        for n in 1..=40 {
            let port = minute * 40 + n;
            let at = minute * 60 * SECOND + n;
            traffic.tcp("10.0.0.1:999", &format!("10.0.0.2:{port}")).tcp_flags(tcp::SYN).at(at);
        }
        native.run(&traffic);
        for second in 1..=60 {
            native.tick((minute * 60 + second) * SECOND);
        }
    }
    native.end(180 * SECOND);
    assert_eq!(rows(&native), []);
}
