//! The account of an element's packets.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Counts of one element: `taken + made = given + dropped + held`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub taken: u64,
    /// Packets that the element made: those of a source, copies, fragments, replies.
    pub made: u64,
    pub given: u64,
    pub dropped: BTreeMap<&'static str, u64>,
    /// Packets in the element now.
    pub held: u64,
}

impl Account {
    /// Returns whether no packet is missing or counted twice.
    pub fn adds_up(&self) -> bool {
        self.taken + self.made == self.given + self.dropped.values().sum::<u64>() + self.held
    }

    /// Returns a line for each number, with the cause of those dropped.
    pub fn lines(&self) -> String {
        let Self { taken, made, given, dropped, held } = self;
        let mut lines = format!("taken {taken}\nmade {made}\ngiven {given}\nheld {held}\n");
        dropped.iter().for_each(|(cause, n)| lines.push_str(&format!("dropped {n} {cause}\n")));
        lines
    }
}

/// Causes that are neither in the packet nor in the arguments of an element.
const LOST: &[&str] = &[
    "cut off",
    "interrupted",
    "joined segments of a kind that is not known",
    "module gone",
    "queue full",
    "refused by the interface",
    "thread behind",
    "too many joined segments",
];

impl Account {
    /// Returns what the lines of an account state of packets that are still there, if `holds`, and of packets
    /// that were lost.
    pub fn left(lines: &str, holds: bool) -> Vec<String> {
        let packets = |n: u64| if n == 1 { "1 packet".to_owned() } else { format!("{n} packets") };
        let left = |line: &str| match line.split_once(' ')? {
            ("held", n) if holds => match n.parse().ok()? {
                0 => None,
                n => Some(format!("{} left at the end", packets(n))),
            },
            ("dropped", rest) => {
                let (n, cause) = rest.split_once(' ')?;
                let cause = LOST.iter().find(|lost| **lost == cause)?;
                Some(format!("{} dropped: {cause}", packets(n.parse().ok()?)))
            }
            _ => None,
        };
        lines.lines().filter_map(left).collect()
    }
}

#[derive(Default)]
pub struct Counts {
    pub taken: Cell<u64>,
    pub made: Cell<u64>,
    pub given: Cell<u64>,
    pub dropped: RefCell<BTreeMap<&'static str, u64>>,
}

pub fn add(cell: &Cell<u64>, count: usize) {
    cell.set(cell.get().wrapping_add(count as u64));
}

impl Counts {
    pub fn drop(&self, cause: &'static str, count: u64) {
        if count > 0 {
            *self.dropped.borrow_mut().entry(cause).or_default() += count;
        }
    }

    /// Gives up to `count` dropped packets another cause.
    pub fn recount(&self, from: &'static str, to: &'static str, count: u64) {
        let mut dropped = self.dropped.borrow_mut();
        let Some(counted) = dropped.get_mut(from) else { return };
        let moved = count.min(*counted);
        *counted -= moved;
        if *counted == 0 {
            dropped.remove(from);
        }
        drop(dropped);
        self.drop(to, moved);
    }
}
