use super::*;
use flame_module::testing::{Native, Parameters};

const MS: u64 = 1_000_000;

fn parameters() -> Parameters {
    let set = Parameters::default().integer("interval", 10 * MS as i64).integer("lateness", 100 * MS as i64);
    set.integer("moments", 1)
}

fn packet(ts_ns: u64, tcp_flags: u8) -> Descriptor {
    Descriptor {
        ts_ns,
        wire_len: 100,
        flags: flags::IPV4 | flags::TRANSPORT,
        proto: 6,
        tcp_flags,
        ..Descriptor::default()
    }
}

fn noise(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Runs memoryless arrivals, 300 per second, with ticks between them.
fn run(
    native: &mut Native<Lrd, Estimator>,
    seconds: u64,
    mut also: impl FnMut(&mut Native<Lrd, Estimator>, u64),
) {
    let (mut state, mut now) = (7, 1000 * 1000 * MS);
    for second in 1000..1000 + seconds {
        let mut packets = Vec::new();
        while now < (second + 1) * 1000 * MS {
            packets.push(packet(now, if noise(&mut state).is_multiple_of(3) { tcp::SYN } else { tcp::ACK }));
            let uniform = (noise(&mut state) as f64 + 0.5) / f64::from(1u32 << 31);
            now += (-uniform.ln() / 300.0 * 1e9) as u64;
        }
        native.packets(&packets, &[]);
        also(native, second);
        native.tick((second + 1) * 1000 * MS);
    }
    native.end((1000 + seconds) * 1000 * MS);
}

#[test]
fn poisson_arrivals_depend_on_nothing() {
    let mut native = Native::with_slow(&parameters(), 0);
    run(&mut native, 200, |_, _| ());
    let of = |table| native.rows.iter().filter(move |r| r.table == table);
    assert_eq!((of(0).count(), of(2).count()), (3, 1));
    for (series, row) in of(0).enumerate() {
        let number = |at| f64::from_bits(row.integer(at, 8));
        assert_eq!(row.integer(8, 1), series as u64);
        let (h, low, high) = (number(9), number(17), number(25));
        assert!((h - 0.5).abs() < 0.05 && low < h && h < high, "{series}: {low} {h} {high}");
        // All intervals but the first.
        assert_eq!(row.integer(51, 8), 19_999);
    }
    let state = of(2).next().unwrap();
    assert_eq!([0, 8, 16].map(|at| state.integer(at, 8)), [19_999, 0, 0]);
    // Packets and bytes differ only by a factor of 100.
    let octaves: Vec<_> =
        of(1).map(|r| (r.integer(8, 1), r.integer(9, 1), f64::from_bits(r.integer(18, 8)))).collect();
    let first = |series| octaves.iter().find(|o| (o.0, o.1) == (series, 1)).unwrap().2;
    assert!((first(1) - first(0) - 2.0 * 100f64.log2()).abs() < 1e-9);
}

#[test]
fn late_packets_are_counted_not_used() {
    let mut native = Native::with_slow(&parameters(), 0);
    run(&mut native, 20, |native, second| {
        if second == 1010 {
            // Packets 100 ms before the last tick are still counted, earlier ones are not.
            let tick = second * 1000 * MS;
            native.packets(&[packet(tick - 100 * MS, 0), packet(tick - 100 * MS - 1, 0), packet(5, 0)], &[]);
        }
    });
    let state = native.rows.iter().find(|r| r.table == 2).unwrap();
    assert_eq!(state.integer(8, 8), 2);
}

#[test]
fn intervals_asked_for_get_rows_each() {
    let mut native = Native::with_slow(&parameters(), 1000 * MS);
    run(&mut native, 20, |_, _| ());
    let ends: Vec<_> =
        native.rows.iter().filter(|r| r.table == 0).map(|r| r.integer(0, 8) / (1000 * MS)).collect();
    assert!(ends.is_sorted() && ends.contains(&1010) && ends.contains(&1020), "{ends:?}");
}

#[test]
fn a_jump_of_years_is_no_work_and_no_memory() {
    let mut native = Native::with_slow(&parameters(), 0);
    run(&mut native, 3, |native, second| {
        if second == 1001 {
            native.tick(50 * 365 * 86400 * 1000 * MS);
        }
    });
    assert_eq!(native.rows.iter().filter(|r| r.table == 2).count(), 1);
}

#[test]
fn nothing_seen_is_nothing_said() {
    let mut native = Native::<Lrd, Estimator>::with_slow(&parameters(), 0);
    native.end(0);
    assert_eq!(native.rows.iter().map(|r| r.table).collect::<Vec<_>>(), [2]);
}
