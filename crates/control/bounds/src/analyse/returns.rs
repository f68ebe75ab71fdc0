//! The functions that can return. Nothing needs to be known of those that diverge, such as a panic's.
//!
//! Each place in the code is reached at most once: a path that arrives at a call waits there until its callee
//! is found to return.

use super::graph::Graph;
use flame_verify::module::{Module, Node};
use std::collections::{BTreeSet, HashMap};
use wasmparser::Operator;

/// Returns the functions that return on some path, for any values. This is the least such set: of mutually
/// recursive functions, one must return without the others.
///
/// If it takes more work than the graph has left, all functions count as returning.
pub fn returning(module: &Module<'_>, graph: &Graph) -> BTreeSet<u32> {
    let own = graph.own();
    let mut search = Search::new(module);
    (0..own.start).for_each(|f| search.learn(f));
    // A function that is not examined may return.
    let bodies = own.clone().map(|f| (f, module.own(f).and_then(|own| own.body.as_deref())));
    for (function, body) in bodies {
        match body {
            Some(body) => {
                let first = search.code.write(function, body);
                search.todo.push(first);
            }
            None => search.learn(function),
        }
    }
    search.reached = vec![false; search.code.places.len()];
    while let Some(place) = search.todo.pop() {
        if !graph.spend(1) {
            return (0..own.end).collect();
        }
        search.reach(place);
    }
    search.known
}

/// The index of a place in [`Code::places`].
type At = u32;
/// The index of a label in [`Code::labels`].
type Label = u32;

/// A place where paths split, wait or end. Others continue to the next place.
enum Place {
    Call(u32),
    /// A call through a table, of functions with this type.
    Table(u32),
    /// A branch that may be taken, to a label.
    May(Label),
    /// A branch that is taken.
    Goes(Label),
    /// A branch to one of the labels from and up to these places in [`Code::several`].
    One(u32, u32),
    /// A trap.
    Ends,
    /// The end of a function.
    Returns(u32),
}

/// The places of all functions.
#[derive(Default)]
struct Code {
    places: Vec<Place>,
    /// The place of each label.
    labels: Vec<At>,
    several: Vec<Label>,
}

impl Code {
    /// Writes the places of a function, and returns the first of them.
    fn write(&mut self, function: u32, body: &[Node<'_>]) -> At {
        let first = self.places.len() as At;
        let end = self.label();
        self.nodes(body, &mut vec![end]);
        self.set(end);
        self.places.push(Place::Returns(function));
        first
    }

    fn label(&mut self) -> Label {
        self.labels.push(0);
        self.labels.len() as Label - 1
    }

    /// Puts a label at the next place.
    fn set(&mut self, label: Label) {
        self.labels[label as usize] = self.places.len() as At;
    }

    /// Writes nodes; `frames` has the label of each open one.
    fn nodes(&mut self, nodes: &[Node<'_>], frames: &mut Vec<Label>) {
        for node in nodes {
            match node {
                Node::Block { body, .. } => {
                    let end = self.label();
                    self.framed(end, body, frames);
                    self.set(end);
                }
                Node::Loop { body, .. } => {
                    let head = self.label();
                    self.set(head);
                    self.framed(head, body, frames);
                }
                Node::If { then, or, .. } => {
                    let (other, end) = (self.label(), self.label());
                    self.places.push(Place::May(other));
                    self.framed(end, then, frames);
                    self.places.push(Place::Goes(end));
                    self.set(other);
                    self.framed(end, or, frames);
                    self.set(end);
                }
                Node::Call(callee, ..) => self.places.push(Place::Call(*callee)),
                Node::Op(operator, _) => self.operator(operator, frames),
            }
        }
    }

    fn framed(&mut self, label: Label, nodes: &[Node<'_>], frames: &mut Vec<Label>) {
        frames.push(label);
        self.nodes(nodes, frames);
        frames.pop();
    }

    fn operator(&mut self, operator: &Operator<'_>, frames: &[Label]) {
        let outermost = frames.len() - 1;
        let label = |depth: u32| frames[outermost.saturating_sub(depth as usize)];
        self.places.push(match operator {
            Operator::Unreachable => Place::Ends,
            Operator::Br { relative_depth } => Place::Goes(label(*relative_depth)),
            Operator::BrIf { relative_depth } => Place::May(label(*relative_depth)),
            Operator::BrTable { targets } => {
                let from = self.several.len() as u32;
                self.several.extend(targets.targets().flatten().chain([targets.default()]).map(label));
                Place::One(from, self.several.len() as u32)
            }
            Operator::Return => Place::Goes(frames[0]),
            Operator::CallIndirect { type_index, .. } => Place::Table(*type_index),
            _ => return,
        });
    }
}

struct Search<'m, 'a> {
    module: &'m Module<'a>,
    code: Code,
    reached: Vec<bool>,
    todo: Vec<At>,
    known: BTreeSet<u32>,
    /// The types of functions with an address of which one returns, by the first type that equals them.
    kinds: BTreeSet<u32>,
    /// The places behind calls of functions that are not known to return, and behind calls through tables by
    /// type.
    callers: HashMap<u32, Vec<At>>,
    by_table: HashMap<u32, Vec<At>>,
}

impl<'m, 'a> Search<'m, 'a> {
    fn new(module: &'m Module<'a>) -> Self {
        Self {
            module,
            code: Code::default(),
            reached: Vec::new(),
            todo: Vec::new(),
            known: BTreeSet::new(),
            kinds: BTreeSet::new(),
            callers: HashMap::new(),
            by_table: HashMap::new(),
        }
    }

    /// Records that a function returns: paths that wait for it continue.
    fn learn(&mut self, function: u32) {
        if !self.known.insert(function) {
            return;
        }
        self.todo.extend(self.callers.remove(&function).into_iter().flatten());
        let Some(kind) = self.module.addressed_as(function) else { return };
        if self.kinds.insert(kind) {
            self.todo.extend(self.by_table.remove(&kind).into_iter().flatten());
        }
    }

    fn reach(&mut self, at: At) {
        let (next, code) = (at + 1, &self.code);
        let place_of = |label: &Label| code.labels[*label as usize];
        let Some(is_reached) = self.reached.get_mut(at as usize) else { return };
        if std::mem::replace(is_reached, true) {
            return;
        }
        match &code.places[at as usize] {
            Place::Call(callee) if self.known.contains(callee) => self.todo.push(next),
            Place::Call(callee) => self.callers.entry(*callee).or_default().push(next),
            Place::Table(kind) => {
                let kind = self.module.same(*kind);
                match self.kinds.contains(&kind) {
                    true => self.todo.push(next),
                    false => self.by_table.entry(kind).or_default().push(next),
                }
            }
            Place::May(label) => self.todo.extend([next, place_of(label)]),
            Place::Goes(label) => self.todo.push(place_of(label)),
            Place::One(from, to) => {
                self.todo.extend(code.several[*from as usize..*to as usize].iter().map(place_of));
            }
            Place::Ends => {}
            Place::Returns(function) => {
                let function = *function;
                self.learn(function);
            }
        }
    }
}
