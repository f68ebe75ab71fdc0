//! Tests of the prover, sums and values against every assignment of small boxes, and of results that they
//! must be able to state.

use crate::programs::random::Random;
use flame_verify::linear::{Fact, LENGTH, Linear, Symbol, Symbols, Upper, gcd};
use flame_verify::state::State;
use flame_verify::value::{Known, Sum, Values, mask, signed};
use std::rc::Rc;

type Box_ = Vec<(u64, u64)>;

/// Returns every assignment of a box.
fn assignments(of: &Box_) -> Vec<Vec<u64>> {
    of.iter().fold(vec![Vec::new()], |all, (low, high)| {
        let longer = |a: &Vec<u64>| (*low..=*high).map(|n| [&a[..], &[n]].concat()).collect::<Vec<_>>();
        all.iter().flat_map(longer).collect()
    })
}

fn value(form: &Linear, at: &[u64]) -> i128 {
    form.terms.iter().fold(form.constant, |sum, (s, n)| sum + n * i128::from(at[*s as usize]))
}

fn sum_value(sum: &Sum, at: &[u64]) -> u64 {
    let each = sum.terms.iter();
    each.fold(sum.constant, |all, (s, n)| all.wrapping_add(n.wrapping_mul(at[*s as usize]))) & mask(sum.bits)
}

fn form(r: &mut Random, symbols: usize) -> Linear {
    let small = |r: &mut Random, most: u64| i128::from(r.next() % (2 * most + 1)) - i128::from(most);
    let terms = (0..symbols as Symbol).map(|s| (s, small(r, 3))).filter(|t| t.1 != 0).collect();
    Linear { constant: small(r, 12), terms }
}

fn symbols(of: &Box_) -> Symbols {
    let mut symbols = Symbols::new(1 << 40);
    for (low, high) in of {
        symbols.add(*low, *high);
    }
    symbols
}

#[test]
fn what_is_proved_holds_for_every_assignment() {
    let (mut proved, mut refuted, mut direct) = (0, 0, 0);
    for seed in 0..20_000 {
        let r = &mut Random(seed);
        let bounds: Box_ =
            (0..3).map(|_| (r.next() % 4, r.next() % 4)).map(|(low, more)| (low, low + more)).collect();
        let symbols = symbols(&bounds);
        let facts: Vec<Fact> = (0..r.below(4)).map(|_| Rc::new(form(r, 3))).collect();
        let goal = form(r, 3);
        let all = assignments(&bounds);
        let holding: Vec<_> = all.iter().filter(|a| facts.iter().all(|f| value(f, a) >= 0)).collect();
        let what = || format!("seed {seed}: {goal:?} from {facts:?} in {bounds:?}");
        let ways = [
            symbols.proves(&goal, &facts),
            symbols.proves_nearly(&goal, &facts),
            symbols.proves_directly(&goal, &facts),
        ];
        if ways.contains(&true) {
            proved += 1;
            assert!(holding.iter().all(|a| value(&goal, a) >= 0), "{}", what());
        }
        direct += usize::from(ways[2]);
        // More steps prove more.
        assert!(ways[0] >= ways[1] && ways[1] >= ways[2], "{}", what());
        if symbols.refutes(&goal, &facts) {
            refuted += 1;
            assert!(holding.iter().all(|a| value(&goal, a) < 0), "{}", what());
        }
        if let Some(Upper { constant, slope, divisor }) = symbols.upper(&goal, &facts) {
            assert!(divisor > 0);
            for a in &holding {
                let most = constant + slope * i128::from(a[LENGTH as usize]);
                assert!(value(&goal, a) * divisor <= most, "{}", what());
            }
        }
        let (fewest, most) = (symbols.fewest(&goal, &facts).unwrap(), symbols.most(&goal, &facts).unwrap());
        assert!(holding.iter().all(|a| (fewest..=most).contains(&value(&goal, a))), "{}", what());
        // Without facts, intervals alone are exact.
        let (least, greatest) = (symbols.least(&goal).unwrap(), symbols.greatest(&goal).unwrap());
        assert_eq!(all.iter().map(|a| value(&goal, a)).min(), Some(least));
        assert_eq!(all.iter().map(|a| value(&goal, a)).max(), Some(greatest));
        assert_eq!((symbols.fewest(&goal, &[]), symbols.most(&goal, &[])), (Some(least), Some(greatest)));
        assert_eq!(symbols.proves(&goal, &[]), least >= 0);
        assert_eq!(symbols.refutes(&goal, &[]), greatest < 0);
        // A multiple of a fact, and more, follows at once; so do the bounds of a negative one.
        if let Some(fact) = facts.first().filter(|f| !f.terms.is_empty()) {
            let more = fact
                .combined(1 + i128::from(r.next() % 3), &Linear::constant(i128::from(r.next() % 2)), 1)
                .unwrap();
            assert!(symbols.proves_directly(&more, &facts[..1]), "{more:?} from {fact:?}");
            let negative = Linear::default().combined(1, fact, -1).unwrap();
            assert!(symbols.most(&negative, &facts[..1]).unwrap() <= 0);
            assert!(symbols.fewest(fact, &facts[..1]).unwrap() >= 0);
            assert!(symbols.refutes(&negative.shifted(-1).unwrap(), &facts[..1]));
        }
    }
    assert!(proved > 5_000 && refuted > 4_000 && direct < proved, "{proved} {direct} {refuted}");
}

/// `x0 ≤ x1 ≤ … ≤ xn`: each question combines its stated number of facts.
#[test]
fn as_many_facts_are_combined_as_are_said() {
    let symbols = symbols(&vec![(0, 1_000_000); 8]);
    let below = |a: Symbol, b: Symbol| Linear {
        constant: 0,
        terms: if a < b { vec![(a, -1), (b, 1)] } else { vec![(b, 1), (a, -1)] },
    };
    let chain: Vec<Fact> = (0..7).map(|n| Rc::new(below(n, n + 1))).collect();
    for length in 1..6 {
        let goal = below(0, length);
        assert_eq!(symbols.proves_directly(&goal, &chain), length <= 1);
        assert_eq!(symbols.proves_nearly(&goal, &chain), length <= 2);
        assert_eq!(symbols.proves(&goal, &chain), length <= 3);
    }
    // `x1 ≤ 7` bounds x0 in one step and, where one question takes three, in more.
    let known = [vec![Rc::new(Linear { constant: 7, terms: vec![(1, -1)] })], chain[..1].to_vec()].concat();
    let x0 = Linear::symbol(0);
    assert_eq!(symbols.most(&Linear::symbol(1), &known), Some(7));
    assert_eq!(symbols.most(&x0, &known), Some(1_000_000));
    // 0 is the length: x1 is at most the length, for any length.
    let at_least = Rc::new(Linear { constant: 5, terms: vec![(0, 1), (1, -2)] });
    assert_eq!(
        symbols.upper(&Linear::symbol(1), &[at_least]),
        Some(Upper { constant: 5, slope: 1, divisor: 2 })
    );
    assert_eq!(symbols.upper(&x0, &[]), Some(Upper { constant: 0, slope: 1, divisor: 1 }));
    // The lesser of two, at a length of 1514: by a constant, and by the length.
    let small = Rc::new(Linear { constant: 100, terms: vec![(1, -1)] });
    let by_length = Rc::new(Linear { constant: 0, terms: vec![(0, 1), (1, -1)] });
    for facts in [[small.clone(), by_length.clone()], [by_length.clone(), small]] {
        assert_eq!(
            symbols.upper(&Linear::symbol(1), &facts),
            Some(Upper { constant: 100, slope: 0, divisor: 1 })
        );
    }
    let large = Rc::new(Linear { constant: 4_000, terms: vec![(1, -2)] });
    for facts in [[large.clone(), by_length.clone()], [by_length, large]] {
        assert_eq!(
            symbols.upper(&Linear::symbol(1), &facts),
            Some(Upper { constant: 0, slope: 1, divisor: 1 })
        );
    }
}

/// Results that would exceed 128 bits, or need too many terms or steps, are not returned.
#[test]
fn limits_of_forms_are_kept() {
    let huge = Linear { constant: i128::MAX, terms: vec![(0, 1 << 62)] };
    assert_eq!(huge.shifted(1), None);
    assert_eq!(huge.combined(2, &Linear::default(), 1), None);
    assert_eq!(Linear { constant: 0, ..huge.clone() }.combined(2, &Linear::default(), 1), None);
    assert!(Linear { constant: 0, ..huge.clone() }.combined(-1, &Linear::default(), 1).is_some());
    let many =
        |from: Symbol, n: Symbol| Linear { constant: 0, terms: (from..from + n).map(|s| (s, 1)).collect() };
    assert!(many(0, 4).combined(1, &many(4, 4), 1).is_some());
    assert_eq!(many(0, 4).combined(1, &many(4, 5), 1), None);
    let mut few = Symbols::new(10);
    let (a, b) = (few.add(0, 9), few.add(0, 9));
    let fact = Rc::new(Linear { constant: 0, terms: vec![(a, -1), (b, 1)] });
    let goal = Linear { constant: 0, terms: vec![(a, -1), (b, 1)] };
    assert_eq!((few.steps_left(), few.len(), few.is_empty()), (2, 2, false));
    assert!(few.proves(&goal, std::slice::from_ref(&fact)) && few.steps_left() == 1);
    assert!(few.proves(&goal, std::slice::from_ref(&fact)) && few.steps_left() == 0);
    assert!(!few.proves(&goal, std::slice::from_ref(&fact)), "no steps are left");
    few.limit(a, 4);
    assert_eq!((few.interval(a), few.interval(b), few.interval(99)), ((0, 4), (0, 9), (0, u64::MAX)));
    few.limit(b, 20);
    assert_eq!(few.interval(b), (0, 9));
    assert!(Symbols::new(1).is_empty());
    assert_eq!([gcd(0, 0), gcd(-4, 6), gcd(6, -4), gcd(0, -5), gcd(7, 3)], [0, 2, 2, 5, 1]);
}

/// A question takes a limited number of steps: the newest facts first, of which only the last one leads to a
/// result.
#[test]
fn a_question_has_an_end() {
    let symbols = symbols(&vec![(0, 1_000_000); 4]);
    let x = |n: i128, constant: i128| Rc::new(Linear { constant, terms: vec![(1, n)] });
    let facts = |good: Fact, useless: i128, n: i128| -> Vec<Fact> {
        let others = (1..useless).map(|c| x(n, if n > 0 { -c } else { 2_000 + c }));
        std::iter::once(good).chain(others).collect()
    };
    let goal = Linear { constant: -1_000, terms: vec![(1, 1)] };
    for steps in 1..450 {
        let above = facts(x(1, -1_000), steps, 1);
        assert_eq!(symbols.proves_directly(&goal, &above), steps <= 24, "{steps}");
        assert_eq!(symbols.proves_nearly(&goal, &above), steps <= 48, "{steps}");
        assert_eq!(symbols.proves(&goal, &above), steps <= 400, "{steps}");
        let below = facts(x(-1, 1_000), steps, -1);
        let most = if steps <= 24 { 1_000 } else { 2_001 + steps - 24 - 1 };
        assert_eq!(symbols.most(&Linear::symbol(1), &below), Some(most), "{steps}");
        let found = symbols.upper(&Linear::symbol(1), &below).unwrap();
        assert_eq!(found.constant == 1_000, steps <= 400, "{steps}");
    }
}

#[test]
fn forms_and_sums_compute() {
    for seed in 0..20_000 {
        let r = &mut Random(seed ^ 0xabc);
        let (a, b) = (form(r, 4), form(r, 4));
        let at: Vec<u64> = (0..4).map(|_| r.next() % 1000).collect();
        let (x, y) = (value(&a, &at), value(&b, &at));
        let (p, q) = (i128::from(r.next() % 7) - 3, i128::from(r.next() % 7) - 3);
        let both = a.combined(p, &b, q).unwrap();
        assert_eq!(value(&both, &at), p * x + q * y);
        assert!(both.terms.is_sorted() && both.terms.iter().all(|t| t.1 != 0), "{both:?}");
        assert_eq!(value(&a.minus(&b).unwrap(), &at), x - y);
        assert_eq!(value(&a.shifted(p).unwrap(), &at), x + p);
        let mut with = at.clone();
        with[1] = 17;
        let replaced = a.substitute(1, &Linear::constant(17)).unwrap();
        assert_eq!((value(&replaced, &at), replaced.coefficient(1)), (value(&a, &with), 0));

        let bits = r.one(&[32, 64]);
        let at: Vec<u64> = (0..4).map(|_| r.number()).collect();
        let sum = |r: &mut Random| {
            let without = r.next() % 5;
            let terms = (0..4)
                .map(|s| (s, r.number() & mask(bits)))
                .filter(|t| t.1 != 0 && u64::from(t.0) != without)
                .collect();
            Sum { bits, constant: r.number() & mask(bits), terms }
        };
        let (a, b, n) = (sum(r), sum(r), r.number());
        let (x, y) = (sum_value(&a, &at), sum_value(&b, &at));
        let well = |sum: &Sum| {
            assert!(
                sum.terms.is_sorted() && sum.terms.iter().all(|t| t.1 != 0 && t.1 <= mask(sum.bits)),
                "{sum:?}"
            );
            assert!(sum.constant <= mask(sum.bits), "{sum:?}");
        };
        let added = a.add(&b, n).unwrap();
        well(&added);
        assert_eq!(sum_value(&added, &at), x.wrapping_add(n.wrapping_mul(y)) & mask(bits));
        assert_eq!(sum_value(&a.minus(&b).unwrap(), &at), x.wrapping_sub(y) & mask(bits));
        let scaled = a.scaled(n);
        well(&scaled);
        assert_eq!(sum_value(&scaled, &at), x.wrapping_mul(n) & mask(bits));
        let narrow = a.wrapped(32);
        well(&narrow);
        assert_eq!(sum_value(&narrow, &at), x & mask(32));
        assert_eq!(a.as_constant(), a.terms.is_empty().then_some(a.constant));
        let whole = Linear { constant: signed(n, bits), terms: form(r, 4).terms };
        let folded = Sum::from_linear(bits, &whole);
        well(&folded);
        assert_eq!(i128::from(sum_value(&folded, &at)), value(&whole, &at).rem_euclid(1 << bits));
        let power = 1 << r.below(bits.into());
        let multiple = a.scaled(power);
        assert!(multiple.is_multiple_of(power) && sum_value(&multiple, &at).is_multiple_of(power));
        if a.is_multiple_of(power) {
            assert_eq!(x % power, 0);
        }
        let odd = a.terms.iter().any(|t| t.1 % 2 == 1) || a.constant % 2 == 1;
        assert_eq!((a.is_multiple_of(2), a.is_multiple_of(6)), (!odd, false));
        for (s, _) in &a.terms {
            assert_eq!(a.coefficient(*s), a.terms.iter().find(|t| t.0 == *s).unwrap().1);
        }
        assert_eq!(a.add(&Sum::constant(96 - bits, 1), 1), None, "of different widths");
    }
    assert!(!Sum::constant(32, 0).is_multiple_of(1 << 32) && Sum::constant(32, 0).is_multiple_of(1 << 31));
    let many = |from: Symbol, n: Symbol| Sum {
        bits: 32,
        constant: 0,
        terms: (from..from + n).map(|s| (s, 1)).collect(),
    };
    assert!(many(0, 3).add(&many(3, 3), 1).is_some() && many(0, 3).add(&many(3, 4), 1).is_none());
}

/// Sums near the ends of 0 .. 2^bits, which wrap for some assignments.
#[test]
fn a_sum_is_an_integer_only_where_it_cannot_wrap() {
    let (mut exact, mut wraps, mut by_facts) = (0, 0, 0);
    for seed in 0..30_000 {
        let r = &mut Random(seed ^ 0x77);
        let bits = r.one(&[32, 64]);
        let top = mask(bits);
        let mut values = Values::default();
        values.symbols = Symbols::new(1 << 40);
        let bounds: Box_ = (0..2)
            .map(|_| (r.one(&[0, 1, 7, top / 2 - 1, top - 4]), r.next() % 5))
            .map(|(low, n)| (low, low + n))
            .collect();
        for (low, high) in &bounds {
            values.symbols.add(*low, *high);
        }
        let terms: Vec<(Symbol, u64)> =
            (0..2).map(|s| (s, r.one(&[0, 1, 1, 2, 4, top, top - 1]))).filter(|t| t.1 != 0).collect();
        let sum = Rc::new(Sum { bits, constant: r.one(&[0, 1, 2, 5, top, top - 3, top / 2]), terms });
        let facts: Vec<Fact> = if r.below(2) == 0 {
            let s = r.below(2) as Symbol;
            let (low, _) = bounds[s as usize];
            vec![Rc::new(Linear { constant: i128::from(low) + 1, terms: vec![(s, -1)] })]
        } else {
            vec![Rc::new(form(r, 2))]
        };
        let all = assignments(&bounds);
        let holding: Vec<_> = all.iter().filter(|a| facts.iter().all(|f| value(f, a) >= 0)).collect();
        let what = || format!("seed {seed}: {sum:?} with {facts:?} in {bounds:?}");
        let alone = values.exact(&sum, &[]);
        if let Some(form) = &alone {
            exact += 1;
            assert!(all.iter().all(|a| value(form, a) == sum_value(&sum, a).into()), "{}", what());
        }
        let found = values.exact(&sum, &facts);
        if let Some(form) = &found {
            by_facts += usize::from(alone.is_none());
            assert!(holding.iter().all(|a| value(form, a) == sum_value(&sum, a).into()), "{}", what());
        }
        // Every sum that does not wrap with small coefficients, with a signed or unsigned constant, is found.
        let signs: Vec<(Symbol, i128)> = sum.terms.iter().map(|(s, n)| (*s, signed(*n, bits))).collect();
        let forms = [signed(sum.constant, bits), sum.constant.into()]
            .map(|constant| Linear { constant, terms: signs.clone() });
        let inside = |f: &Linear| all.iter().all(|a| (0..=i128::from(top)).contains(&value(f, a)));
        assert_eq!(alone.is_some(), forms.iter().any(inside), "{}", what());
        wraps += usize::from(alone.is_none());
        // Its range contains it; without facts and wrapping it is the smallest such range.
        let before = values.symbols.len();
        let (low, high) = values.range(&sum, &facts);
        assert!(holding.iter().all(|a| (low..=high).contains(&sum_value(&sum, a))), "{}", what());
        let (low, high) = values.range(&sum, &[]);
        if alone.is_some() {
            let found = all.iter().map(|a| sum_value(&sum, a));
            assert_eq!((Some(low), Some(high)), (found.clone().min(), found.max()), "{}", what());
        }
        // A sum that may wrap has one name.
        let name = values.integer(&sum, &[]);
        assert_eq!(values.integer(&sum, &[]), name);
        if alone.is_none() {
            assert!(values.symbols.len() == before + 1 || found.is_none(), "{}", what());
            let (symbol, by) = name.terms[0];
            let quotient = values.named[&symbol].clone();
            let named = |a: &Vec<u64>| i128::from(sum_value(&quotient, a)) * by;
            assert!(all.iter().all(|a| named(a) == sum_value(&sum, a).into()), "{}", what());
            assert_eq!(values.symbols.interval(symbol), (0, top / by as u64));
        }
        // A sum that is not 0.
        if let Some(form) = values.positive(&sum, &facts) {
            let at = |a: &&&Vec<u64>| sum_value(&sum, a) != 0;
            assert!(holding.iter().filter(at).all(|a| value(&form, a) >= 0), "{}", what());
        }
        if !sum.terms.is_empty() {
            let sure = |s: i128| all.iter().all(|a| s * value(&forms[0], a) >= 0);
            assert_eq!(values.positive(&sum, &[]).is_some(), sure(1) || sure(-1), "{}", what());
        }
    }
    assert!(exact > 5_000 && wraps > 5_000 && by_facts > 500, "{exact} {wraps} {by_facts}");
}

#[test]
fn what_is_not_0_is_as_much_as_all_its_parts_have_in_common() {
    let mut values = Values::default();
    values.symbols = Symbols::new(1 << 20);
    let (x, y) = (values.symbols.add(0, 100), values.symbols.add(0, 100));
    let sum = |constant: u64, terms: &[(Symbol, i64)]| Sum {
        bits: 32,
        constant,
        terms: terms.iter().map(|(s, n)| (*s, *n as u64 & mask(32))).collect(),
    };
    let least = |sum: &Sum, facts: &[Fact]| values.positive(sum, facts).map(|f| f.constant);
    assert_eq!(least(&sum(0, &[(x, 1)]), &[]), Some(-1));
    assert_eq!(least(&sum(0, &[(x, 4), (y, 6)]), &[]), Some(-2));
    assert_eq!(least(&sum(8, &[(x, 4)]), &[]), Some(8 - 4));
    assert_eq!(least(&sum(0, &[(x, -3)]), &[]), Some(-3), "the negative");
    assert_eq!(least(&sum(0, &[(x, 1), (y, -1)]), &[]), None);
    let above = [Rc::new(Linear { constant: 0, terms: vec![(x, 1), (y, -1)] })];
    assert_eq!(least(&sum(0, &[(x, 1), (y, -1)]), &above), Some(-1));
    // New symbols, or constants.
    let mut values = Values::default();
    values.symbols = Symbols::new(1 << 20);
    assert_eq!(*values.within(32, 7, 7), Sum::constant(32, 7));
    let some = values.within(32, 7, 1 << 40);
    assert_eq!(values.symbols.interval(some.terms[0].0), (7, mask(32)));
    let any = values.any(64);
    assert_eq!((any.bits, values.symbols.interval(any.terms[0].0)), (64, (0, u64::MAX)));
    assert_eq!(
        [signed(5, 32), signed(1 << 31, 32), signed(mask(32), 32), signed(u64::MAX, 64)],
        [5, -(1 << 31), -1, -1]
    );
    assert_eq!([mask(8), mask(32), mask(64)], [255, u64::from(u32::MAX), u64::MAX]);
}

fn empty() -> State {
    State {
        locals: Vec::new(),
        stack: Vec::new(),
        globals: Vec::new(),
        memory: Vec::new(),
        facts: Vec::new(),
        nonzero: Vec::new(),
        choices: Vec::new(),
        cost: flame_verify::Cost::ZERO,
        marked: false,
    }
}

/// A join relates a limited number of values that differ and of which something is known.
#[test]
fn a_join_relates_so_many_values() {
    let related = |locals: usize, high: u64| {
        let mut values = Values::default();
        values.symbols = Symbols::new(1 << 20);
        flame_verify::abi::symbols(&mut values);
        let (mut one, mut two) = (empty(), empty());
        for _ in 0..locals {
            let (x, y) = (values.within(32, 0, high), values.within(32, 0, high));
            let below = Linear { constant: 0, terms: vec![(x.terms[0].0, 1), (y.terms[0].0, -1)] };
            for state in [&mut one, &mut two] {
                state.learn(Rc::new(below.clone()));
            }
            one.locals.push(flame_verify::value::Value::Sum(x));
            two.locals.push(flame_verify::value::Value::Sum(y));
        }
        let joined = one.join(two, &mut values);
        (joined.locals.len(), joined.facts.len() - locals)
    };
    // Each is at most the greater and at least the lesser.
    assert_eq!([1, 7, 8, 9, 20].map(|n| related(n, 100)), [(1, 2), (7, 14), (8, 16), (9, 16), (20, 16)]);
    assert_eq!(related(3, mask(32)), (3, 0), "nothing is known of them");
}

/// A state learns no fact twice and none that always holds; it keeps a limited number of the newest.
#[test]
fn states_keep_what_is_new() {
    let mut values = Values::default();
    values.symbols = Symbols::new(1 << 20);
    let x = values.symbols.add(0, 1 << 40);
    let mut state = empty();
    assert!(state.is_empty());
    state.globals.push(flame_verify::value::Value::Any);
    assert_eq!((state.is_empty(), state.len()), (false, 1));
    let fact = |n: i128| Rc::new(Linear { constant: n, terms: vec![(x, 1)] });
    for n in [1, 2, 1] {
        state.learn(fact(n));
    }
    state.learn(Rc::new(Linear::constant(0)));
    assert_eq!(state.facts, [fact(1), fact(2)]);
    let never = Rc::new(Linear::constant(-1));
    state.learn(never.clone());
    assert_eq!(state.facts, [fact(1), fact(2), never]);
    (3..200).for_each(|n| state.learn(fact(n)));
    assert_eq!((state.facts.len(), &state.facts[79]), (80, &fact(199)));
    let sum = |n: u64| Rc::new(Sum { bits: 64, constant: n, terms: vec![(x, 1)] });
    let nonzero = |all: &[u64]| Known { facts: Vec::new(), nonzero: all.iter().map(|n| sum(*n)).collect() };
    let _ = state.assume(&nonzero(&[5, 6, 5]), &values);
    assert_eq!(state.nonzero, [sum(5), sum(6)]);
    let _ = state.assume(&nonzero(&(10..30).collect::<Vec<_>>()), &values);
    assert_eq!((state.nonzero.len(), &state.nonzero[11]), (12, &sum(29)));
}
