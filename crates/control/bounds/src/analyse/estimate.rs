//! Adds up weights along the worst-case path of each function, over the tree of its structured control flow.
//!
//! Trip counts, lengths, lines of memory, and reachable code come from the checker's observations
//! (`observe`); the rules for loops and batches are the checker's own. A loop without a verified trip count
//! has a counter: its cost has no bound. Nothing relies on these sums.

use super::depends::Depends;
use super::observe::{Records, Seen, is_import};
use super::path::{Path, Place, TYPICAL};
use super::weights::Weights;
use flame_abi::layout::names;
use flame_verify::bound::LoopBound;
use flame_verify::module::{About, Module, Node};
use flame_verify::value::Sum;
use flame_verify::{Cost, Poly};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use wasmparser::Operator;

/// The largest number of lines of memory that are remembered on a path.
const MAX_TOUCHED: usize = 24;

/// The parameters of an estimate.
#[derive(Clone, Copy)]
pub struct Ask<'c> {
    pub weights: Weights<'c>,
    /// Whether cold paths are included.
    pub cold: bool,
    /// Whether to keep the worst-case path.
    pub traces: bool,
    /// The loop that goes back no more, or the instruction that moves no bytes, by offset.
    pub without: Option<u32>,
}

/// The sum over all observations of a loop, in any context.
#[derive(Clone, Copy, Debug)]
pub struct LoopSum {
    pub function: u32,
    /// The cost of one iteration.
    pub cost: Poly,
    pub depends: Depends,
}

/// The worst-case path to a place.
#[derive(Clone)]
struct State {
    cost: Cost,
    /// Whether the path has begun a packet since the head of the innermost loop.
    marked: bool,
    path: Option<Path>,
    /// The addresses of lines that the path touched.
    touched: Vec<Rc<Sum>>,
    /// Weights that are still to be added to the cost.
    plain: u64,
}

impl State {
    const NEW: Self = Self { cost: Cost::ZERO, marked: false, path: None, touched: Vec::new(), plain: 0 };

    fn settled(mut self) -> Self {
        if self.plain > 0 {
            self.cost = self.cost.and(Poly::constant(std::mem::take(&mut self.plain)));
        }
        self
    }

    /// Returns the cost so far, for a packet of typical length.
    fn spent(&self) -> u64 {
        let all = self.cost.call.plus(self.cost.of_packet()).at(TYPICAL);
        all.map_or(u64::MAX, |n| u64::try_from(n).unwrap_or(u64::MAX))
    }

    /// Joins two paths at the greater cost; lines and offsets are those of the more expensive one.
    fn join(self, other: Self) -> Self {
        let cost = self.cost.max(other.cost);
        let marked = self.marked && other.marked;
        let distinguishes =
            [&self, &other].iter().any(|s| s.path.is_some()) || self.touched.len() + other.touched.len() > 0;
        let greater = if distinguishes && self.spent() < other.spent() { other } else { self };
        Self { cost, marked, ..greater }
    }

    /// Returns whether a line was touched before, and marks it as touched.
    fn touch(&mut self, line: &Rc<Sum>) -> bool {
        if self.touched.iter().any(|t| Rc::ptr_eq(t, line) || t == line) {
            return true;
        }
        if self.touched.len() == MAX_TOUCHED {
            self.touched.remove(0);
        }
        self.touched.push(line.clone());
        false
    }
}

/// The cost of a function for any arguments.
struct Summary {
    cost: Cost,
    returns: bool,
    path: Option<Path>,
}

pub struct Estimate<'m, 'a> {
    module: &'m Module<'a>,
    returning: &'m BTreeSet<u32>,
    ask: Ask<'m>,
    summaries: HashMap<u32, Summary>,
    /// The costs of calls through tables, by the first type that equals theirs.
    tables: HashMap<u32, Summary>,
    /// The states that have arrived at the end of each open frame, with the loop nesting at which they left.
    frames: Vec<Vec<(usize, State)>>,
    nesting: usize,
    function: u32,
    /// The offset of the last instruction.
    at: u32,
    /// Whether the worst-case path of the current walk is kept.
    traces: bool,
    /// The loops by offset.
    pub loops: BTreeMap<u32, LoopSum>,
}

impl<'m, 'a> Estimate<'m, 'a> {
    pub fn new(module: &'m Module<'a>, returning: &'m BTreeSet<u32>, ask: Ask<'m>) -> Self {
        Self {
            module,
            returning,
            ask,
            summaries: HashMap::new(),
            tables: HashMap::new(),
            frames: Vec::new(),
            nesting: 0,
            function: 0,
            at: 0,
            traces: false,
            loops: BTreeMap::new(),
        }
    }

    /// Walks functions for any arguments. Their callees that were not walked before are without bound.
    pub fn functions(&mut self, functions: impl Iterator<Item = u32>, records: &Records) {
        for function in functions {
            let seen = records.function(function);
            self.traces = self.ask.traces && seen.is_some();
            let end = self.function(function, seen, State::NEW);
            let returns = end.is_some();
            let (cost, path) = end.map_or((Cost::ZERO, None), |end| (end.cost, end.path));
            self.summaries.insert(function, Summary { cost, returns, path });
        }
    }

    /// Returns the cost of a call by the host, and the worst-case path.
    pub fn entry(&mut self, function: u32, seen: Option<&Seen>) -> (Cost, Option<Path>) {
        self.traces = self.ask.traces;
        let end = self.function(function, seen, State::NEW);
        let (cost, path) = end.map_or((Cost::ZERO, None), |end| (end.cost, end.path));
        (cost.and(self.ask.weights.dispatch()), path)
    }

    fn function(&mut self, function: u32, seen: Option<&Seen>, before: State) -> Option<State> {
        let own = self.module.own(function)?;
        let cost = Cost::ZERO.and(self.ask.weights.entry());
        let state = State { cost, marked: false, ..before };
        let Some(body) = &own.body else { return Some(unbounded(state)) };
        let frames = std::mem::take(&mut self.frames);
        let outer = std::mem::replace(&mut self.function, function);
        let end = self.framed(|walk| walk.nodes(body, state, seen));
        self.function = outer;
        self.frames = frames;
        end
    }

    fn framed(&mut self, inner: impl FnOnce(&mut Self) -> Option<State>) -> Option<State> {
        self.frames.push(Vec::new());
        let end = inner(self);
        let arrived = self.frames.pop().unwrap_or_default();
        arrived.into_iter().map(|(_, state)| state).chain(end).reduce(State::join)
    }

    fn branch(&mut self, depth: u32, state: State) {
        let Some(at) = self.frames.len().checked_sub(1 + depth as usize) else { return };
        self.arrive(at, state);
    }

    fn arrive(&mut self, at: usize, state: State) {
        let arrived = &mut self.frames[at];
        let state = match arrived.pop_if(|(nesting, _)| *nesting == self.nesting) {
            Some((_, other)) => other.join(state),
            None => state,
        };
        arrived.push((self.nesting, state));
    }

    fn nodes(&mut self, nodes: &[Node<'a>], mut state: State, seen: Option<&Seen>) -> Option<State> {
        for node in nodes {
            match node {
                Node::Op(operator, offset) if is_plain(operator) => {
                    if seen.is_some_and(|seen| !seen.is_live(*offset)) {
                        return None;
                    }
                    self.at = *offset;
                    state.plain += self.ask.weights.of(operator);
                }
                node => state = self.node(node, state.settled(), seen)?,
            }
        }
        Some(state.settled())
    }

    fn node(&mut self, node: &Node<'a>, mut state: State, seen: Option<&Seen>) -> Option<State> {
        match node {
            Node::Block { body, .. } => self.framed(|walk| walk.nodes(body, state, seen)),
            Node::If { then, or, .. } => {
                state.cost = state.cost.and(self.ask.weights.branch());
                self.trace(&mut state, self.at);
                self.framed(|walk| {
                    let yes = walk.nodes(then, state.clone(), seen);
                    let no = walk.nodes(or, state, seen);
                    yes.into_iter().chain(no).reduce(State::join)
                })
            }
            Node::Loop { body, about, .. } => self.enter_loop(body, about, state, seen),
            Node::Call(callee, number, offset) => {
                if seen.is_some_and(|seen| !seen.is_live(*offset)) {
                    return None;
                }
                state.cost = state.cost.and(self.ask.weights.call());
                let mut end = self.call(*callee, seen.and_then(|seen| seen.calls.get(number)), state)?;
                self.trace(&mut end, *offset);
                Some(end)
            }
            Node::Op(operator, offset) => self.operator(operator, *offset, state, seen),
        }
    }

    /// Records that the path leads here.
    fn trace(&self, state: &mut State, offset: u32) {
        if self.traces {
            let place = Place { function: self.function, offset, cost: state.spent(), is_loop: false };
            state.path = Some(Path::then(state.path.as_ref(), place));
        }
    }

    fn operator(
        &mut self,
        operator: &Operator<'a>,
        offset: u32,
        mut state: State,
        seen: Option<&Seen>,
    ) -> Option<State> {
        if seen.is_some_and(|seen| !seen.is_live(offset)) {
            return None;
        }
        self.at = offset;
        let weights = self.ask.weights;
        let weight = weights.of(operator);
        if weight > 0 {
            state.cost = state.cost.and(Poly::constant(weight));
        }
        match operator {
            Operator::Unreachable => return None,
            Operator::Br { relative_depth } => {
                self.branch(*relative_depth, state);
                return None;
            }
            Operator::BrIf { relative_depth } => {
                self.trace(&mut state, offset);
                self.branch(*relative_depth, state.clone());
            }
            Operator::BrTable { targets } => {
                let all: BTreeSet<u32> = targets.targets().flatten().chain([targets.default()]).collect();
                all.into_iter().for_each(|depth| self.branch(depth, state.clone()));
                return None;
            }
            Operator::Return => {
                self.arrive(0, state);
                return None;
            }
            Operator::CallIndirect { type_index, .. } => return self.call_any(*type_index, state),
            Operator::MemoryGrow { .. } => state.cost = state.cost.and(weights.grow()),
            Operator::MemoryCopy { .. } | Operator::MemoryFill { .. } | Operator::MemoryInit { .. } => {
                let bytes = seen.and_then(|seen| seen.bulk.get(&offset)).copied();
                let is_copy = matches!(operator, Operator::MemoryCopy { .. });
                let bytes = if self.ask.without == Some(offset) {
                    Poly::ZERO
                } else {
                    bytes.unwrap_or(Poly::UNBOUNDED)
                };
                state.cost = state.cost.and(weights.bulk(bytes, is_copy));
            }
            _ => {
                if let Weights::Time(_) = weights
                    && let Some((line, of)) = seen.and_then(|seen| seen.lines.get(&offset))
                    && !state.touch(line)
                {
                    state.cost = state.cost.and(weights.line(*of));
                }
            }
        }
        Some(state)
    }

    fn call(&mut self, callee: u32, seen: Option<&Seen>, mut state: State) -> Option<State> {
        let import = self.module.import(callee);
        if is_import(import, names::PACKET) {
            state.marked = true;
            return Some(state);
        }
        if is_import(import, names::COLD) {
            return self.ask.cold.then_some(state);
        }
        if import.is_some() {
            return Some(state);
        }
        if !self.returning.contains(&callee) {
            return None;
        }
        if seen.is_some() {
            let before =
                State { path: state.path.take(), touched: std::mem::take(&mut state.touched), ..State::NEW };
            let end = self.function(callee, seen, before)?;
            let (cost, marked) = (state.cost.then(end.cost), state.marked || end.marked);
            return Some(State { cost, marked, ..end });
        }
        match self.summaries.get(&callee) {
            Some(summary) => {
                state.cost = state.cost.then(summary.cost);
                if let Some(path) = summary.path.as_ref().filter(|_| self.traces) {
                    state.path = Path::through(state.path.as_ref(), path);
                }
                summary.returns.then_some(state)
            }
            None => Some(unbounded(state)),
        }
    }

    /// Calls any function with an address and this type. Functions are walked after their callees, so the
    /// cost is the same for all callers.
    fn call_any(&mut self, kind: u32, mut state: State) -> Option<State> {
        let kind = self.module.same(kind);
        if !self.tables.contains_key(&kind) {
            let summary = self.any_of(self.module.through_tables(kind));
            self.tables.insert(kind, summary);
        }
        let any = self.tables.get(&kind)?;
        state.cost = state.cost.then(any.cost);
        any.returns.then_some(state)
    }

    /// Returns the greatest costs of these functions.
    fn any_of(&self, functions: &[u32]) -> Summary {
        let (mut cost, mut returns) = (Cost::ZERO, false);
        for callee in functions.iter().filter(|callee| self.returning.contains(callee)) {
            match self.summaries.get(callee) {
                Some(summary) => {
                    cost = cost.max(summary.cost);
                    returns |= summary.returns;
                }
                None if self.module.own(*callee).is_none() => returns = true,
                None => {
                    let cost = Cost::ZERO.and(Poly::UNBOUNDED);
                    return Summary { cost, returns: true, path: None };
                }
            }
        }
        Summary { cost, returns, path: None }
    }

    fn enter_loop(
        &mut self,
        body: &[Node<'a>],
        about: &About,
        entry: State,
        seen: Option<&Seen>,
    ) -> Option<State> {
        let known = seen.and_then(|seen| seen.loops.get(&about.number)).copied();
        let (verified, depends) = known.unwrap_or((self.counted(about), Depends::Nothing));
        self.nesting += 1;
        self.frames.push(Vec::new());
        let head = State { touched: entry.touched.clone(), path: entry.path.clone(), ..State::NEW };
        let end = self.nodes(body, head, seen);
        let backs = self.frames.pop().unwrap_or_default();
        self.nesting -= 1;
        let iteration = backs.iter().map(|(_, back)| back.cost).reduce(Cost::max).unwrap_or(Cost::ZERO);
        let ends = backs.is_empty() || self.ask.without == Some(about.offset);
        let trips = if ends { Poly::ZERO } else { verified.trips };
        let bound = LoopBound { iteration, trips, ..verified };
        self.note_loop(&bound, depends);
        let worst = match self.traces {
            true => {
                backs.into_iter().map(|(_, back)| back).max_by_key(State::spent).and_then(|back| back.path)
            }
            false => None,
        };
        let (traces, function) = (self.traces, self.function);
        let adjust = |mut state: State| {
            state.cost = bound.total(entry.cost, state.cost, state.marked);
            state.marked |= entry.marked;
            if traces {
                let place = Place { function, offset: about.offset, cost: state.spent(), is_loop: true };
                let before = worst.as_ref().or(state.path.as_ref());
                state.path = Some(Path::then(before, place));
            }
            state
        };
        for at in 0..self.frames.len() {
            let nesting = self.nesting;
            let from = self.frames[at].partition_point(|(of, _)| *of <= nesting);
            let left: Vec<State> = self.frames[at].drain(from..).map(|(_, state)| state).collect();
            left.into_iter().map(&adjust).for_each(|state| self.arrive(at, state));
        }
        end.map(adjust)
    }

    /// Returns a loop of which nothing was verified.
    fn counted(&self, about: &About) -> LoopBound {
        LoopBound {
            function: self.function,
            number: about.number,
            offset: about.offset,
            packets: false,
            by_count: false,
            trips: Poly::UNBOUNDED,
            iteration: Cost::ZERO,
        }
    }

    fn note_loop(&mut self, bound: &LoopBound, depends: Depends) {
        let cost = bound.iteration.call.plus(bound.iteration.of_packet());
        let new = LoopSum { function: bound.function, cost, depends };
        let known = self.loops.entry(bound.offset).or_insert(new);
        known.cost = known.cost.max(cost);
        known.depends = known.depends.max(depends);
    }
}

/// Returns whether an instruction only has a weight. That is also true of others, but most code consists of
/// these.
fn is_plain(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::LocalGet { .. }
            | Operator::LocalSet { .. }
            | Operator::LocalTee { .. }
            | Operator::I32Const { .. }
            | Operator::I64Const { .. }
            | Operator::I32Add
            | Operator::I32Sub
            | Operator::I32And
            | Operator::I32Or
            | Operator::I32Eq
            | Operator::I32Ne
            | Operator::I32Eqz
            | Operator::I32Store { .. }
            | Operator::I64Store { .. }
    )
}

fn unbounded(state: State) -> State {
    State { cost: state.cost.and(Poly::UNBOUNDED), ..state }
}
