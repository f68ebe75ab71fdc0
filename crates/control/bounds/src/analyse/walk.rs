//! A walk over a function that keeps, at each point, what is known and the cost of the worst way there.

use super::LoopReport;
use super::body::{MAX_DEPTH, Node};
use super::expr::{Depends, Expr, Sym, Symbols};
use super::module::Module;
use super::pass::Ask;
use super::path::{Path, Place};
use super::poly::Poly;
use super::state::{State, Value, bits};
use super::weights::Weights;
use flame_abi::layout::names;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wasmparser::{BlockType, Operator, ValType};

/// Ways to one place that are kept apart.
const MAX_WAYS: usize = 12;
/// Calls in calls that are walked with what is known of their arguments.
const MAX_CALLS: usize = 6;
/// Walks over one function with what is known of its arguments that find no bound, in one entry.
const MAX_TRIES: u32 = 3;

/// What a function costs, whatever its arguments.
#[derive(Clone, Debug)]
pub struct Summary {
    pub cost: Poly,
    pub packet: Poly,
    /// Whether it comes back; one that does not ends in a trap.
    pub returns: bool,
    /// Whether it, or what it calls, begins packets.
    pub marks: bool,
    /// Whether it may go on for ever, on a way that leads nowhere.
    pub endless: bool,
    /// What it, or what it calls, is without bound for.
    pub why: Option<String>,
    /// What its work depends on.
    pub depends: Depends,
}

/// An open frame: where branches to it go.
pub(super) struct Frame {
    /// Values that a branch carries.
    pub carried: usize,
    pub height: usize,
    pub ways: Vec<State>,
    /// Ways from here on may be joined; those before belong to an outer walk.
    pub mark: usize,
}

pub struct Walk<'m, 'a> {
    pub module: &'m Module<'a>,
    pub summaries: &'m BTreeMap<u32, Summary>,
    pub returning: &'m BTreeSet<u32>,
    pub symbols: Symbols,
    /// Values that loads from addresses of the host's give, which stay the same during a call.
    pub loaded: Vec<(Rc<Expr>, u8, Rc<Expr>)>,
    /// Values without their lowest bits: of what, modulo what, and what is left.
    pub multiples: Vec<(Rc<Expr>, u64, Rc<Expr>)>,
    pub batch: Option<super::memory::Batch>,
    /// Instructions that may still be walked over.
    pub budget: u64,
    /// While there are more, functions are walked that need not be.
    pub plenty: u64,
    pub loops: BTreeMap<usize, LoopReport>,
    /// Of symbols for turns: what they are at most.
    pub most: BTreeMap<Sym, Expr>,
    pub marks: bool,
    pub endless: bool,
    pub why: Option<String>,
    pub weights: Weights<'m>,
    /// Turns of loops.
    pub turning: BTreeSet<Sym>,
    /// Loaded from a line that was at hand.
    pub pointers: BTreeSet<Sym>,
    /// Symbols of the innermost loop are not older than this.
    pub in_loop: Sym,
    /// What the stack's global holds before the call.
    pub stack_pointer: Option<Sym>,
    /// What the work depends on of loops so far.
    pub depends: Depends,
    /// Whether to keep the way that costs most.
    pub traces: bool,
    rare: bool,
    pub(super) frames: Vec<Frame>,
    pub(super) function: u32,
    calls: usize,
    /// Of frames, in all functions that this is in.
    depth: usize,
    tried: BTreeMap<u32, u32>,
    /// Dry walks within which this is.
    pub(super) quick: u8,
}

impl<'m, 'a> Walk<'m, 'a> {
    pub fn new(
        module: &'m Module<'a>,
        (summaries, returning): (&'m BTreeMap<u32, Summary>, &'m BTreeSet<u32>),
        ask: Ask<'m>,
        budget: u64,
    ) -> Self {
        Self {
            module,
            summaries,
            returning,
            symbols: Symbols::default(),
            loaded: Vec::new(),
            multiples: Vec::new(),
            batch: None,
            budget,
            plenty: u64::MAX,
            loops: BTreeMap::new(),
            most: BTreeMap::new(),
            marks: false,
            endless: false,
            why: None,
            weights: ask.weights,
            turning: BTreeSet::new(),
            pointers: BTreeSet::new(),
            in_loop: 0,
            stack_pointer: None,
            depends: Depends::Nothing,
            traces: false,
            rare: ask.rare,
            frames: Vec::new(),
            function: 0,
            calls: 0,
            depth: 0,
            tried: BTreeMap::new(),
            quick: 0,
        }
    }

    /// Walks a whole function; the state behind it, with its results on the stack, if it comes back.
    pub fn function(&mut self, function: u32, arguments: Vec<Value>, before: State) -> Option<State> {
        let State { globals, facts, memory, path, touched, .. } = before;
        let own = self.module.own(function)?;
        let results = self.module.kind_of(function)?.results().len();
        let Some(body) = &own.body else {
            self.unbounded(format!(
                "{} has more locals, or frames in frames, than are analysed",
                self.module.name(function)
            ));
            let stack = self.module.kind_of(function)?.results().iter().map(|t| Value::Any(*t)).collect();
            let cost = Poly::UNBOUNDED;
            return Some(State {
                locals: arguments,
                globals,
                stack,
                facts,
                cost,
                memory: Vec::new(),
                packet: Poly::ZERO,
                marked: false,
                path,
                touched,
            });
        };
        let mut locals: Vec<Value> = arguments.into_iter().map(|value| self.named(value)).collect();
        // Locals begin as 0.
        locals.extend(own.locals.iter().map(|kind| match bits(*kind) {
            Some(bits) => Value::Sum(Rc::new(Expr::constant(bits, 0))),
            None => Value::Any(*kind),
        }));
        let cost = self.weights.entry();
        let state = State {
            locals,
            globals,
            stack: Vec::new(),
            facts,
            memory,
            cost,
            packet: Poly::ZERO,
            marked: false,
            path,
            touched,
        };
        let frames = std::mem::take(&mut self.frames);
        self.depth += own.depth;
        let outer = std::mem::replace(&mut self.function, function);
        let end = self.framed(results, 0, |walk| walk.nodes(body, state));
        self.frames = frames;
        self.depth -= own.depth;
        self.function = outer;
        end
    }

    pub(super) fn unbounded(&mut self, why: String) {
        self.why.get_or_insert(why);
    }

    /// A frame around `inner`: what falls out of it and what branches to it, together.
    fn framed(
        &mut self,
        carried: usize,
        height: usize,
        inner: impl FnOnce(&mut Self) -> Option<State>,
    ) -> Option<State> {
        self.frames.push(Frame { carried, height, ways: Vec::new(), mark: 0 });
        let end = inner(self);
        let frame = self.frames.pop()?;
        let mut ways = frame.ways;
        if let Some(mut end) = end {
            settle(&mut end, carried, height);
            ways.push(end);
        }
        ways.into_iter().reduce(|a, b| a.join(b, &mut self.symbols))
    }

    /// A way to the frame that is `depth` further out.
    fn branch(&mut self, depth: u32, state: &State) {
        let Some(at) = self.frames.len().checked_sub(1 + depth as usize) else { return };
        let mut state = state.clone();
        let frame = &mut self.frames[at];
        settle(&mut state, frame.carried, frame.height);
        frame.ways.push(state);
        if frame.ways.len() - frame.mark > MAX_WAYS && frame.ways.len() >= 2 {
            let (Some(a), Some(b)) = (frame.ways.pop(), frame.ways.pop()) else { return };
            let joined = a.join(b, &mut self.symbols);
            self.frames[at].ways.push(joined);
        }
    }

    pub(super) fn nodes(&mut self, nodes: &[Node<'a>], mut state: State) -> Option<State> {
        for node in nodes {
            state = self.node(node, state)?;
        }
        Some(state)
    }

    fn node(&mut self, node: &Node<'a>, mut state: State) -> Option<State> {
        // Where ways part and meet, all that is known is copied.
        let size = match node {
            Node::Op(Operator::BrIf { .. } | Operator::Br { .. } | Operator::BrTable { .. }, _)
            | Node::If { .. } => 1 + state.locals.len() as u64 / 4,
            _ => 1,
        };
        match self.budget.checked_sub(size) {
            Some(rest) => self.budget = rest,
            None => {
                (self.budget, self.endless) = (0, true);
                self.unbounded("the module takes longer to analyse than is allowed".to_owned());
                return None;
            }
        }
        match node {
            Node::Block { kind, body } => {
                let (takes, gives) = self.arity(*kind);
                let height = state.stack.len().saturating_sub(takes);
                self.framed(gives, height, |walk| walk.nodes(body, state))
            }
            Node::If { kind, place, then, or } => {
                state.cost = state.cost.plus(self.weights.branch());
                self.trace(&mut state, *place, false);
                let test = state.stack.pop()?.test();
                let (takes, gives) = self.arity(*kind);
                let height = state.stack.len().saturating_sub(takes);
                self.framed(gives, height, |walk| {
                    let (mut yes, mut no) = (state.clone(), state);
                    yes.assume(&test.yes);
                    no.assume(&test.no);
                    let yes = if yes.is_impossible(&walk.symbols) { None } else { walk.nodes(then, yes) };
                    let no = if no.is_impossible(&walk.symbols) { None } else { walk.nodes(or, no) };
                    let settled = |state: Option<State>| {
                        state.map(|mut s| {
                            settle(&mut s, gives, height);
                            s
                        })
                    };
                    match (settled(yes), settled(no)) {
                        (Some(a), Some(b)) => Some(a.join(b, &mut walk.symbols)),
                        (a, b) => a.or(b),
                    }
                })
            }
            Node::Loop { kind, body, about } => self.turns(*kind, body, about, state),
            Node::Op(operator, place) => self.operator(operator, *place, state),
        }
    }

    /// Notes that the way leads here.
    pub(super) fn trace(&self, state: &mut State, offset: u32, is_loop: bool) {
        if self.traces && self.quick == 0 {
            let place = Place { function: self.function, offset, cost: state.spent(), is_loop };
            state.path = Some(Path::then(state.path.as_ref(), place));
        }
    }

    fn operator(&mut self, operator: &Operator<'a>, place: u32, mut state: State) -> Option<State> {
        state.cost = state.cost.plus(self.weights.of(operator));
        match operator {
            Operator::Unreachable => None,
            Operator::Br { relative_depth } => {
                self.branch(*relative_depth, &state);
                None
            }
            Operator::BrIf { relative_depth } => {
                self.trace(&mut state, place, false);
                let test = state.stack.pop()?.test();
                let mut taken = state.clone();
                taken.assume(&test.yes);
                if !taken.is_impossible(&self.symbols) {
                    self.branch(*relative_depth, &taken);
                }
                state.assume(&test.no);
                if state.is_impossible(&self.symbols) { None } else { Some(state) }
            }
            Operator::BrTable { targets } => {
                let value = state.stack.pop()?.sum(32, &mut self.symbols);
                let (_, high) = self.symbols.range(&value, &state.facts);
                let mut seen: Vec<u32> = Vec::new();
                let listed = targets
                    .targets()
                    .flatten()
                    .take(usize::try_from(high).unwrap_or(usize::MAX).saturating_add(1));
                for depth in listed.chain([targets.default()]) {
                    if !seen.contains(&depth) {
                        seen.push(depth);
                        self.branch(depth, &state);
                    }
                }
                None
            }
            Operator::Return => {
                self.branch(self.frames.len().checked_sub(1)? as u32, &state);
                None
            }
            Operator::Call { function_index } => {
                let mut end = self.call(*function_index, state)?;
                self.trace(&mut end, place, false);
                Some(end)
            }
            Operator::CallIndirect { type_index, .. } => {
                state.stack.pop()?;
                self.call_any(*type_index, state)
            }
            operator => super::ops::apply(self, operator, state),
        }
    }

    pub(super) fn arity(&self, kind: BlockType) -> (usize, usize) {
        match kind {
            BlockType::Empty => (0, 0),
            BlockType::Type(_) => (0, 1),
            BlockType::FuncType(kind) => {
                self.module.types.get(kind as usize).map_or((0, 0), |t| (t.params().len(), t.results().len()))
            }
        }
    }

    fn call(&mut self, function: u32, mut state: State) -> Option<State> {
        let kind = self.module.kind_of(function)?;
        let at = state.stack.len().checked_sub(kind.params().len())?;
        let arguments = state.stack.split_off(at);
        if self.module.imports(function, names::PACKET) {
            (self.marks, state.marked) = (true, true);
            return Some(state);
        }
        if self.module.imports(function, names::COLD) {
            return self.rare.then_some(state);
        }
        if self.module.own(function).is_none() {
            // The host's own.
            state.stack.extend(kind.results().iter().map(|t| Value::Any(*t)));
            return Some(state);
        }
        if !self.returning.contains(&function) {
            // A panic ends in a trap; what never comes to one goes on for ever.
            self.endless |= !self.module.may_trap(function);
            return None;
        }
        let Some(summary) = self.summaries.get(&function) else {
            self.unbounded(format!("{} calls itself", self.module.name(function)));
            state.cost = Poly::UNBOUNDED;
            return self.returned(kind.results(), state);
        };
        self.marks |= summary.marks;
        self.endless |= summary.endless;
        let known = arguments.iter().any(|a| !matches!(a, Value::Any(_)));
        let tried = self.tried.get(&function).copied().unwrap_or(0);
        // A walk goes as deep as the frames of all functions that it is in.
        let fits = self.depth + self.module.own(function).map_or(0, |own| own.depth) <= MAX_DEPTH;
        let bounded = summary.cost.is_bounded() && summary.packet.is_bounded();
        // From an entry, what is bounded anyhow is looked into for its way, while there is time.
        if (!bounded || self.budget > self.plenty)
            && fits
            && tried < MAX_TRIES
            && known
            && self.calls < MAX_CALLS
            // A dry walk knows too little of them.
            && self.quick == 0
            && self.budget > 0
        {
            self.calls += 1;
            let (why, before) =
                (self.why.clone(), State { locals: Vec::new(), stack: Vec::new(), ..state.clone() });
            let end = self.function(function, arguments, before);
            self.calls -= 1;
            let end = end?;
            if end.cost.is_bounded() && end.packet.is_bounded() {
                self.why = why;
            } else {
                *self.tried.entry(function).or_default() += 1;
            }
            state.cost = state.cost.plus(end.cost);
            state.packet = state.packet.plus(end.packet);
            state.stack.extend(end.stack);
            (state.globals, state.memory) = (end.globals, end.memory);
            (state.path, state.touched) = (end.path, end.touched);
            state.marked |= end.marked;
            return Some(state);
        }
        if let Some(why) = &summary.why {
            self.unbounded(why.clone());
        }
        if self.quick == 0 {
            self.depends = self.depends.max(summary.depends);
        }
        state.cost = state.cost.plus(summary.cost);
        state.packet = state.packet.plus(summary.packet);
        if !summary.returns {
            return None;
        }
        self.returned(kind.results(), state)
    }

    fn returned(&mut self, results: &[ValType], mut state: State) -> Option<State> {
        self.symbols.of = Depends::Unknown;
        let results: Vec<Value> = results.iter().map(|t| self.named(Value::Any(*t))).collect();
        state.stack.extend(results);
        state.memory.clear();
        self.forget_globals(&mut state);
        Some(state)
    }

    pub(super) fn forget_globals(&mut self, state: &mut State) {
        for (value, (kind, mutable, _)) in state.globals.iter_mut().zip(&self.module.globals) {
            if *mutable {
                *value = bits(*kind).map_or(Value::Any(*kind), |bits| Value::Sum(self.symbols.any(bits)));
            }
        }
    }

    /// Before a call from outside.
    pub fn before(&mut self) -> State {
        let mut state = State {
            locals: Vec::new(),
            globals: super::ops::globals(self.module),
            stack: Vec::new(),
            facts: Vec::new(),
            memory: Vec::new(),
            cost: Poly::ZERO,
            packet: Poly::ZERO,
            marked: false,
            path: None,
            touched: Vec::new(),
        };
        self.forget_globals(&mut state);
        // The first global, by LLVM's convention.
        self.stack_pointer = match state.globals.first() {
            Some(Value::Sum(e)) => e.terms.first().map(|(sym, _)| *sym),
            _ => None,
        };
        state
    }

    /// Any function with an address and this type.
    fn call_any(&mut self, number: u32, mut state: State) -> Option<State> {
        let kind = self.module.types.get(number as usize)?;
        let at = state.stack.len().checked_sub(kind.params().len())?;
        state.stack.truncate(at);
        let (mut cost, mut packet, mut returns) = (Poly::ZERO, Poly::ZERO, false);
        let (module, returning) = (self.module, self.returning);
        for function in module.through_tables(number).iter().filter(|f| returning.contains(f)) {
            // One call may reach thousands.
            self.budget = self.budget.saturating_sub(1);
            match self.summaries.get(function) {
                Some(summary) => {
                    if let Some(why) = &summary.why {
                        self.why.get_or_insert(why.clone());
                    }
                    self.marks |= summary.marks;
                    self.endless |= summary.endless;
                    if self.quick == 0 {
                        self.depends = self.depends.max(summary.depends);
                    }
                    cost = cost.max(summary.cost);
                    packet = packet.max(summary.packet);
                    returns |= summary.returns;
                }
                None if self.module.own(*function).is_none() => returns = true,
                None => {
                    let name = self.module.name(*function);
                    self.unbounded(format!("{name} is called through a table by what it calls"));
                    (cost, returns) = (Poly::UNBOUNDED, true);
                }
            }
        }
        if !returns {
            return None;
        }
        state.cost = state.cost.plus(cost);
        state.packet = state.packet.plus(packet);
        self.returned(kind.results(), state)
    }
}

/// Leaves on the stack what a frame's end does.
pub(super) fn settle(state: &mut State, carried: usize, height: usize) {
    let from = state.stack.len().saturating_sub(carried);
    let carried = state.stack.split_off(from);
    state.stack.truncate(height);
    state.stack.extend(carried);
}
