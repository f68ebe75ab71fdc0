//! The bound of a tree of capsules.

use flame_capsule::{Bound, Exhausted, Limits, Parts, Resource};
use proptest::prelude::*;

/// What capsules do, one after another; each number chooses one of those that are there.
#[derive(Clone, Debug)]
enum Step {
    Run(usize, u64),
    Split(usize, i64, usize),
    Exchange(usize, usize),
    /// A datagram is set aside, a part of it is spent, and the rest comes back.
    Reserve(usize, usize, usize),
    /// A datagram is lost, with its share.
    Lose(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = any::<usize>();
    let step = prop_oneof![
        (at, 0..5000u64).prop_map(|(at, n)| Step::Run(at, n)),
        (at, any::<i64>(), 0..2000usize).prop_map(|(at, parts, n)| Step::Split(at, parts, n)),
        (at, -5..1200i64, 0..200usize).prop_map(|(at, parts, n)| Step::Split(at, parts, n)),
        (at, 0..3000usize).prop_map(|(at, n)| Step::Exchange(at, n)),
        (at, 0..3000usize, 0..3000usize).prop_map(|(at, n, part)| Step::Reserve(at, n, part)),
        at.prop_map(Step::Lose),
    ];
    prop::collection::vec(step, 0..80)
}

fn limits() -> impl Strategy<Value = Limits> {
    let edge = prop_oneof![0..100_000u64, Just(u64::MAX), Just(0)];
    (any::<u8>(), edge.clone(), edge, prop_oneof![0..100u32, Just(u32::MAX)])
        .prop_map(|(hops, instructions, bytes, copies)| Limits { hops, instructions, bytes, copies })
}

/// Adds the numbers of limits, which may be more than fits.
fn sum<'a>(all: impl Iterator<Item = &'a Limits>) -> (u128, u128, u128) {
    all.fold((0, 0, 0), |(i, b, c), l| {
        (i + u128::from(l.instructions), b + u128::from(l.bytes), c + u128::from(l.copies))
    })
}

proptest! {
    #[test]
    fn splits_create_nothing(root in limits(), steps in steps()) {
        let mut all = vec![Bound::begin(root)];
        let mut gone: Vec<Limits> = Vec::new();
        for step in steps {
            let count = all.len();
            match step {
                Step::Run(at, n) => {
                    if all[at % count].run(n).is_ok() {
                        gone.push(Limits { instructions: n, ..Limits::default() });
                    }
                }
                Step::Split(at, parts, length) => {
                    let parent = &mut all[at % count];
                    if let Ok(child) = parent.split(Parts::thousandths(parts), length) {
                        prop_assert_eq!(child.left().hops + 1, parent.left().hops);
                        gone.push(Limits { bytes: length as u64, copies: 1, ..Limits::default() });
                        all.push(child);
                    }
                }
                Step::Exchange(at, length) => {
                    if all[at % count].exchange(length).is_ok() {
                        gone.push(Limits { bytes: length as u64, copies: 1, ..Limits::default() });
                    }
                }
                Step::Reserve(at, length, part) => {
                    if let Ok(mut rest) = all[at % count].reserve(length) {
                        if rest.exchange(part).is_ok() {
                            gone.push(Limits { bytes: part as u64, copies: 1, ..Limits::default() });
                        }
                        all[at % count].take_back(rest);
                    }
                }
                Step::Lose(at) if count > 1 => gone.push(all.swap_remove(at % count).left()),
                Step::Lose(_) => {}
            }
            let left: Vec<Limits> = all.iter().map(Bound::left).collect();
            prop_assert_eq!(sum(left.iter().chain(&gone)), sum([root].iter()));
        }
    }

    #[test]
    fn a_refused_share_changes_nothing(root in limits(), parts in any::<i64>(), n in any::<u64>(), length in any::<usize>()) {
        let mut bound = Bound::begin(root);
        if let Err(Exhausted { needed, left, .. }) = bound.split(Parts::thousandths(parts), length) {
            prop_assert!(left < needed);
            prop_assert_eq!(bound.left(), root);
        }
        let before = bound.left();
        if bound.run(n).is_err() {
            prop_assert_eq!(bound.left(), before);
        }
        let before = bound.left();
        if bound.exchange(length).is_err() {
            prop_assert_eq!(bound.left(), before);
        }
    }
}

#[test]
fn chains_end() {
    let most = Limits { hops: 200, instructions: u64::MAX, bytes: u64::MAX, copies: u32::MAX };
    let mut bound = Bound::begin(most);
    for _ in 0..200 {
        bound = bound.split(Parts::ALL, 10).unwrap();
    }
    let error = bound.split(Parts::ALL, 10).unwrap_err();
    assert_eq!(error, Exhausted { resource: Resource::Hops, needed: 1, left: 0 });
    assert_eq!(bound.left().copies, u32::MAX - 200);
    assert_eq!(
        error.to_string(),
        "the capsule's bound has 0 hops left, and 1 are needed: begin it with more"
    );
}
