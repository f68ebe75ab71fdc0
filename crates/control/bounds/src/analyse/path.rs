//! The worst-case path, kept during a walk: a list that paths share up to where they diverge.

use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// The packet length in bytes for which costs along a path are given.
pub const TYPICAL: u64 = 1500;

/// One place on a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub function: String,
    /// The offset in the file of the branch, call or loop.
    pub offset: usize,
    /// The cost since the begin of its function or of the loop's iteration, for a packet of [`TYPICAL`]
    /// bytes.
    pub cost: u64,
    /// Set at the end of a loop, after the steps of its most expensive iteration.
    pub is_loop: bool,
}

/// The largest depth of nested paths, and the largest number of all steps, that are reported.
const MAX_DEPTH: u8 = 16;
const MAX_STEPS: usize = 4096;

#[derive(Debug)]
struct Node {
    what: What,
    before: Option<Path>,
    depth: u8,
}

#[derive(Debug)]
enum What {
    Place(Place),
    /// The path through a called function.
    Callee(Path),
}

#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub function: u32,
    pub offset: u32,
    pub cost: u64,
    pub is_loop: bool,
}

#[derive(Clone, Debug)]
pub struct Path(Rc<Node>);

impl Path {
    pub fn then(before: Option<&Self>, place: Place) -> Self {
        Self::with(before, What::Place(place), 0)
    }

    /// Returns the path that continues through a callee, up to the reported depth of calls.
    pub fn through(before: Option<&Self>, callee: &Self) -> Option<Self> {
        match callee.0.depth < MAX_DEPTH {
            true => Some(Self::with(before, What::Callee(callee.clone()), callee.0.depth + 1)),
            false => before.cloned(),
        }
    }

    fn with(before: Option<&Self>, what: What, depth: u8) -> Self {
        let depth = before.map_or(depth, |before| before.0.depth.max(depth));
        Self(Rc::new(Node { what, before: before.cloned(), depth }))
    }

    pub fn steps(&self, name: impl Fn(u32) -> String) -> Vec<Step> {
        let mut all: Vec<Step> = Vec::new();
        let mut todo = vec![self];
        while let Some(Self(node)) = todo.pop().filter(|_| all.len() < MAX_STEPS) {
            todo.extend(&node.before);
            match &node.what {
                What::Callee(path) => todo.push(path),
                What::Place(Place { function, offset, cost, is_loop }) => all.push(Step {
                    function: name(*function),
                    offset: *offset as usize,
                    cost: *cost,
                    is_loop: *is_loop,
                }),
            }
        }
        all.reverse();
        all
    }
}

impl Drop for Path {
    /// Drops nodes one by one, because recursion would need a stack as deep as a long path. Callees are
    /// nested less deep.
    fn drop(&mut self) {
        let mut next = Rc::get_mut(&mut self.0).and_then(|node| node.before.take());
        while let Some(mut path) = next {
            next = Rc::get_mut(&mut path.0).and_then(|node| node.before.take());
        }
    }
}
