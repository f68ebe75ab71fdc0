//! The costliest path, kept while walking: a list that paths share up to where they part.

use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// Costs along a path are those of a packet of this length.
pub const TYPICAL: u64 = 1500;

/// One place on a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub function: String,
    /// Offset in the file of the branch, call or loop.
    pub offset: usize,
    /// Spent since its function, or the iteration of its loop, began; of a packet of [`TYPICAL`] bytes.
    pub cost: u64,
    /// Set at the end of a loop, behind the places of its costliest iteration.
    pub is_loop: bool,
}

/// Paths in paths, and steps in all, that are told.
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
    /// The path through a function that is called.
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

    /// Returns the path that goes through a callee, as far as calls in calls are told.
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
    /// Drops nodes one by one: a long path would need as deep a stack. Callees are nested less deep.
    fn drop(&mut self) {
        let mut next = Rc::get_mut(&mut self.0).and_then(|node| node.before.take());
        while let Some(mut path) = next {
            next = Rc::get_mut(&mut path.0).and_then(|node| node.before.take());
        }
    }
}
