//! Bounds that grow with the length, and costs of them, against exact arithmetic.

use crate::programs::random::Random;
use flame_verify::linear::Upper;
use flame_verify::{Cost, Poly};

/// Returns `(constant + slope × L) / divisor`.
fn poly(constant: i128, slope: i128, divisor: i128) -> Poly {
    Poly::from_upper(Upper { constant, slope, divisor })
}

#[test]
fn no_operation_is_less_than_it_says() {
    for seed in 0..5_000 {
        let r = &mut Random(seed);
        let one = |r: &mut Random| {
            let (a, b, d) = (r.next() % 1_000, r.next() % 50, 1 + r.next() % 9);
            (poly(a.into(), b.into(), d.into()), move |l: u64| (a as f64 + b as f64 * l as f64) / d as f64)
        };
        let ((p, x), (q, y)) = (one(r), one(r));
        let n = 1 + r.next() % 20;
        for l in [0, 1, 60, 1514, 262_144] {
            // At least the exact value, and above it only by the effect of rounding up.
            let holds = |found: Poly, exact: f64, parts: f64| {
                let found = found.at(l).unwrap() as f64;
                let room = 1.0 + parts * (1.0 + l as f64) / 256.0 + exact * 1e-9;
                assert!(
                    found + 1e-6 >= exact && found <= exact + room,
                    "seed {seed} at {l}: {found}, not {exact}"
                );
            };
            holds(p, x(l), 1.0);
            holds(p.plus(q), x(l) + y(l), 2.0);
            holds(p.over(n), x(l) / n as f64, 2.0);
            assert!(p.max(q).at(l) >= p.at(l).max(q.at(l)));
            let product = p.times(q).at(l).unwrap() as f64;
            let room = (1.0 + l as f64) * (x(l) + y(l) + 3.0 + l as f64) / 256.0 + 1.0;
            assert!(
                product + 1e-6 >= x(l) * y(l) && product <= x(l) * y(l) * 1.000_001 + room,
                "seed {seed} at {l}"
            );
        }
        assert_eq!((p.plus(q), p.times(q), p.max(q)), (q.plus(p), q.times(p), q.max(p)));
        assert_eq!(Poly::from_bytes(&p.to_bytes()), p);
    }
}

#[test]
fn constants_lengths_and_none() {
    let n = Poly::constant;
    assert_eq!(
        [poly(10, 0, 3), poly(9, 0, 3), poly(-5, 0, 1)].map(Poly::as_constant),
        [Some(4), Some(3), Some(0)]
    );
    assert_eq!((poly(0, 0, 0), poly(7, -3, 1)), (Poly::ZERO, n(7)));
    assert_eq!(poly(5, 2, 1), Poly::LENGTH.times(n(2)).plus(n(5)));
    assert!(!poly(i128::MAX, 0, 1).is_bounded());
    let (none, square) = (Poly::UNBOUNDED, Poly::LENGTH.times(Poly::LENGTH));
    let cube = square.times(Poly::LENGTH);
    assert_eq!(
        [n(7), Poly::LENGTH, square, cube, none].map(Poly::as_constant),
        [Some(7), None, None, None, None]
    );
    assert_eq!((square.plus(n(1)).at(10), cube.at(10), none.at(1)), (Some(101), Some(1_000), None));
    assert_eq!(square.plus(Poly::LENGTH).times(Poly::LENGTH.plus(n(1))).at(10), Some(1_210));
    assert!(!cube.times(Poly::LENGTH).is_bounded() && !square.times(square).is_bounded());
    assert!([n(7), cube].iter().all(|p| p.is_bounded()));
    for (p, unbounded) in
        [(none.plus(n(1)), true), (none.max(n(1)), true), (none.times(n(1)), true), (n(0).times(none), false)]
    {
        assert_eq!(p.is_bounded(), !unbounded);
    }
    assert_eq!((none.times(n(0)), none.over(4)), (n(0), none));
    assert_eq!((n(7).over(2).as_constant(), n(7).over(0)), (Some(4), n(7)));
    assert!(n(u64::MAX).as_constant().is_some() && n(u64::MAX).plus(n(1)).as_constant().is_none());
    assert_eq!(cube.at(u64::MAX), None, "above 2^128");
    assert_eq!(Poly::from_bytes(&none.to_bytes()), none);
    for (p, text) in [
        (Poly::ZERO, "0"),
        (none, "unbounded"),
        (n(7), "7"),
        (n(10), "10"),
        (poly(1, 0, 2), "1"),
        (poly(0, 1, 2), "0.5 L"),
        (poly(0, 3, 1), "3 L"),
        (poly(0, 20, 1), "20 L"),
        (poly(0, 40, 3), "13.34 L"),
        (poly(0, 100, 3), "34 L"),
        (poly(0, 16, 1), "16 L"),
        (poly(0, 10, 1), "10 L"),
        (poly(100, 16, 1), "16 L + 100"),
        (square.times(n(2)).plus(cube).plus(n(1)), "1 L³ + 2 L² + 1"),
    ] {
        assert_eq!(p.to_string(), text);
    }
}

#[test]
fn costs_of_calls_and_packets() {
    let n = Poly::constant;
    let cost = |call, each, packet| Cost { call: n(call), each: n(each), packet: n(packet) };
    let (a, b) = (cost(10, 3, 7), cost(4, 5, 6));
    // Consecutive paths begin different packets; at a join, the greater counts.
    assert_eq!((a.then(b), a.max(b)), (cost(14, 8, 7), cost(10, 5, 7)));
    assert_eq!((b.then(a), b.max(a)), (cost(14, 8, 7), cost(10, 5, 7)));
    assert_eq!((a.and(n(5)), Cost::ZERO), (cost(15, 3, 7), cost(0, 0, 0)));
    assert_eq!((a.of_packet(), a.at(1, 0), a.at(3, 60)), (n(10), Some(20), Some(40)));
    let length = Cost { packet: Poly::LENGTH, ..a };
    assert_eq!(length.at(2, 100), Some(10 + 2 * 103));
    let none = Poly::UNBOUNDED;
    assert!(a.is_bounded() && length.is_bounded());
    for cost in [Cost { call: none, ..a }, Cost { each: none, ..a }, Cost { packet: none, ..a }] {
        assert!(!cost.is_bounded());
        assert_eq!(cost.at(1, 1), None);
    }
}
