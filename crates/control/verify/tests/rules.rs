//! The rules for intervals, for every interval and every value of four bits.

use flame_verify::rules::{self, Interval};

const TOP: u64 = 15;

fn intervals() -> impl Iterator<Item = Interval> {
    (0..=TOP).flat_map(|low| (low..=TOP).map(move |high| (low, high)))
}

fn holds(
    name: &str,
    (a, b): (Interval, Interval),
    result: Interval,
    value: impl Fn(u64, u64) -> Option<u64>,
) {
    for x in a.0..=a.1 {
        for y in b.0..=b.1 {
            if let Some(value) = value(x, y) {
                assert!((result.0..=result.1).contains(&value), "{name} {x} {y} in {a:?} {b:?}: {result:?}");
            }
        }
    }
}

#[test]
fn every_rule_of_two_operands_holds() {
    for a in intervals() {
        for b in intervals() {
            holds("and", (a, b), rules::and(a, b), |x, y| Some(x & y));
            holds("or", (a, b), rules::or(a, b), |x, y| Some(x | y));
            holds("xor", (a, b), rules::xor(a, b), |x, y| Some(x ^ y));
            holds("divide", (a, b), rules::divide(a, b), |x, y| x.checked_div(y));
            holds("remainder", (a, b), rules::remainder(a, b), |x, y| x.checked_rem(y));
            match rules::multiply(a, b, TOP) {
                Some(result) => holds("multiply", (a, b), result, |x, y| Some(x * y)),
                None => assert!(a.1 * b.1 > TOP, "{a:?} {b:?}"),
            }
        }
    }
}

#[test]
fn every_rule_of_one_operand_holds() {
    for a in intervals() {
        for n in 0..4 {
            let shifted = rules::shift_right(a, n);
            holds("shift", (a, (0, 0)), shifted, |x, _| Some(x >> n));
            assert_eq!(shifted, (a.0 >> n, a.1 >> n), "no more than there is");
            holds("shift by any", (a, (0, 3)), rules::shift_right_any(a), |x, y| Some(x >> y));
        }
        // Of four bits, the highest is the sign.
        if let Some(result) = rules::sign_extend(a, 4) {
            holds("sign", (a, (0, 0)), result, |x, _| Some(if x & 8 == 0 { x } else { x | !TOP }));
        }
        assert_eq!(rules::is_nonnegative(a, 4), (a.0..=a.1).all(|x| x & 8 == 0));
    }
    for x in 0..=300_u64 {
        let ones = rules::ones(x);
        assert!(ones >= x && ones & (ones.wrapping_add(1)) == 0 && (x == 0 || ones / 2 < x), "{x}: {ones}");
    }
    for bits in [32, 64] {
        assert_eq!(rules::count_bits(bits), (0, u64::from(bits)));
    }
}
