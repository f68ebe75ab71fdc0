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

#[derive(Debug)]
struct Node {
    place: Place,
    before: Option<Path>,
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
        Self(Rc::new(Node { place, before: before.cloned() }))
    }

    pub fn steps(&self, name: impl Fn(u32) -> String) -> Vec<Step> {
        let mut all: Vec<Step> = Vec::new();
        let mut at = Some(self);
        while let Some(Path(node)) = at {
            let Place { function, offset, cost, is_loop } = node.place;
            all.push(Step { function: name(function), offset: offset as usize, cost, is_loop });
            at = node.before.as_ref();
        }
        all.reverse();
        all
    }
}

impl Drop for Path {
    /// Drops places one by one: a long path would need as deep a stack.
    fn drop(&mut self) {
        let mut next = Rc::get_mut(&mut self.0).and_then(|node| node.before.take());
        while let Some(mut path) = next {
            next = Rc::get_mut(&mut path.0).and_then(|node| node.before.take());
        }
    }
}
