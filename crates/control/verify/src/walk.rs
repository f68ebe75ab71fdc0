//! Abstract interpretation of functions, once over their structured control flow.
//!
//! A walk keeps, at each point, the known facts and the cost of the most expensive path there. Paths that end
//! in a trap count as well, because the cost before the trap was spent.

use crate::abi::{self, Host};
use crate::bound::LoopBound;
use crate::certificate::{MAX_INLINE, Notes};
use crate::cost::{Cost, ENTRY, weight};
use crate::linear::Linear;
use crate::module::{About, MAX_DEPTH, Module, Node};
use crate::observe::{Event, Observer};
use crate::poly::Poly;
use crate::state::State;
use crate::value::{Known, Value, Values, bits_of};
use crate::{Refused, Rule};
use flame_abi::layout::names;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wasmparser::{BlockType, Operator, ValType};

/// The cost of a function, for any arguments.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The cost without that of functions that diverge.
    pub cost: Cost,
    pub returns: bool,
    /// Whether a function that diverges may be reached.
    pub diverges: bool,
}

/// Chooses notes while a finder explores; a checker has none.
pub trait Guide {
    /// Returns the note for a loop that is entered with this state.
    fn note<'a>(&self, walk: &mut Walk<'_, 'a>, body: &LoopBody<'_, 'a>, entry: &State) -> crate::LoopNote;
    /// Returns whether a call is to be analysed with its arguments.
    fn inlines(&self, walk: &Walk<'_, '_>, callee: u32, arguments: &[Value]) -> bool;
}

/// The parts of a loop that a walk needs.
#[derive(Clone, Copy)]
pub struct LoopBody<'n, 'a> {
    pub kind: BlockType,
    pub body: &'n [Node<'a>],
    pub about: &'n About,
}

/// An open frame: the target of branches.
pub(crate) struct Frame {
    /// The number of values that a branch carries.
    carried: usize,
    height: usize,
    /// The states that have arrived, joined, with the loop nesting at which they left.
    pub(crate) arrived: Vec<(usize, State)>,
}

/// The most expensive paths into a trap from one loop nesting.
#[derive(Clone, Copy, Default)]
pub(crate) struct Traps {
    /// The costs of paths that have begun a packet in the loop's iteration, and of others.
    pub(crate) marked: Option<Cost>,
    pub(crate) unmarked: Option<Cost>,
}

/// An abstract interpretation in progress.
pub struct Walk<'m, 'a> {
    pub module: &'m Module<'a>,
    pub values: Values,
    pub host: Host,
    pub(crate) summaries: &'m BTreeMap<u32, Summary>,
    pub(crate) diverging: &'m BTreeSet<u32>,
    pub(crate) frames: Vec<Frame>,
    pub(crate) traps: Vec<Traps>,
    /// The notes on the function that is walked: read by a checker, written under a guide.
    pub notes: Notes,
    pub(crate) guide: Option<Rc<dyn Guide + 'm>>,
    /// The number of instructions that may still be walked.
    pub work: u64,
    pub function: u32,
    inlined: usize,
    depth: usize,
    /// Whether a call of a function that diverges was walked.
    diverges: bool,
    /// The first reason found why there is no bound.
    pub why: Option<Refused>,
    /// The loops as they were verified, once for each entry into them.
    pub loops: Vec<LoopBound>,
    pub(crate) exploring: u32,
    pub(crate) observer: Option<&'m dyn Observer>,
}

/// The outcome of a walk: the states that return, and the cost of all paths.
pub struct Outcome {
    /// The cost without that of functions that diverge.
    pub cost: Cost,
    pub returns: bool,
    /// Whether a function that diverges may be reached.
    pub diverges: bool,
}

impl Outcome {
    /// Returns the summary for callers.
    pub fn summary(&self) -> Summary {
        Summary { cost: self.cost, returns: self.returns, diverges: self.diverges }
    }
}

type Walked<T> = Result<T, Refused>;

impl<'m, 'a> Walk<'m, 'a> {
    /// Creates a walk with the summaries of callees and the notes of the certificate, which may walk `work`
    /// instructions and take as many steps of proofs.
    pub fn new(
        module: &'m Module<'a>,
        (summaries, diverging): (&'m BTreeMap<u32, Summary>, &'m BTreeSet<u32>),
        notes: Notes,
        work: u64,
    ) -> Self {
        let mut values = Values::default();
        values.symbols = crate::linear::Symbols::new(work);
        abi::symbols(&mut values);
        Self {
            module,
            values,
            host: Host::default(),
            summaries,
            diverging,
            frames: Vec::new(),
            traps: vec![Traps::default()],
            notes,
            guide: None,
            work,
            function: 0,
            inlined: 0,
            depth: 0,
            diverges: false,
            why: None,
            loops: Vec::new(),
            exploring: 0,
            observer: None,
        }
    }

    /// Sends an event to the observer, if there is one. It cannot change anything.
    pub(crate) fn emit(&self, event: Event<'_>) {
        if let Some(observer) = self.observer {
            observer.see(self, event);
        }
    }

    /// Returns the walk with a guide, which writes the notes.
    #[must_use]
    pub fn guided(mut self, guide: Rc<dyn Guide + 'm>) -> Self {
        self.guide = Some(guide);
        self
    }

    pub(crate) fn refused(&self, rule: Rule, offset: u32) -> Refused {
        Refused { rule, function: self.function, offset }
    }

    /// Walks a function as the host calls it, or with any arguments.
    ///
    /// # Errors
    ///
    /// Returns the first rule that does not hold. No result is given if the work was used up meanwhile.
    pub fn entry(&mut self, function: u32, arguments: Vec<Value>) -> Walked<Outcome> {
        self.function = function;
        self.spend(self.module.globals.len() / 4, 0)?;
        let globals =
            self.module.globals.iter().map(|(kind, mutable, value)| match (bits_of(*kind), mutable, value) {
                (Some(bits), false, Some(n)) => Value::constant(bits, *n),
                (Some(bits), true, _) => Value::Sum(self.values.any(bits)),
                _ => Value::Any,
            });
        let state = State {
            locals: Vec::new(),
            stack: Vec::new(),
            globals: globals.collect(),
            memory: Vec::new(),
            facts: Vec::new(),
            nonzero: Vec::new(),
            choices: Vec::new(),
            cost: Cost::ZERO,
            marked: false,
        };
        self.emit(Event::Begin { function, state: &state });
        let end = self.function(function, arguments, state)?;
        self.emit(Event::End);
        self.spend(0, 0)?;
        let trap = self.traps.pop().unwrap_or_default();
        let paths = [end.as_ref().map(|s| s.cost), trap.marked, trap.unmarked];
        let cost = paths.into_iter().flatten().reduce(Cost::max).unwrap_or(Cost::ZERO);
        Ok(Outcome { cost, returns: end.is_some(), diverges: self.diverges })
    }

    /// Returns arguments of which nothing is known.
    pub fn any_arguments(&self, function: u32) -> Vec<Value> {
        vec![Value::Any; self.module.kind_of(function).map_or(0, |t| t.params().len())]
    }

    fn function(&mut self, function: u32, arguments: Vec<Value>, state: State) -> Walked<Option<State>> {
        let none = || Refused { rule: Rule::TooDeep, function, offset: 0 };
        let module = self.module;
        let (own, kind) = module.own(function).zip(module.kind_of(function)).ok_or_else(none)?;
        // Locals are run-length encoded, so the module's size does not limit their number.
        self.spend((kind.params().len() + own.locals.len() + state.globals.len()) / 4, 0)?;
        let body = own.body.as_deref().filter(|_| self.depth + own.depth <= MAX_DEPTH).ok_or_else(none)?;
        let mut locals = Vec::with_capacity(arguments.len() + own.locals.len());
        for (value, kind) in arguments.into_iter().zip(kind.params()) {
            locals.push(self.named(value, *kind));
        }
        // Locals begin as 0.
        locals.extend(own.locals.iter().map(|t| bits_of(*t).map_or(Value::Any, |b| Value::constant(b, 0))));
        let state = State { locals, stack: Vec::new(), cost: state.cost.and(Poly::constant(ENTRY)), ..state };
        let frames = std::mem::take(&mut self.frames);
        self.depth += own.depth;
        let outer = std::mem::replace(&mut self.function, function);
        let end = self.framed(kind.results().len(), 0, |walk| walk.nodes(body, state));
        self.frames = frames;
        self.depth -= own.depth;
        self.function = outer;
        end
    }

    /// Names an unknown value: it is still the same value wherever it is used.
    fn named(&mut self, value: Value, kind: ValType) -> Value {
        match (value, bits_of(kind)) {
            (Value::Any, Some(bits)) => Value::Sum(self.values.any(bits)),
            (value, _) => value,
        }
    }

    /// Runs `inner` in a frame; the path that falls out of it and the branches to it are joined.
    fn framed(
        &mut self,
        carried: usize,
        height: usize,
        inner: impl FnOnce(&mut Self) -> Walked<Option<State>>,
    ) -> Walked<Option<State>> {
        self.frames.push(Frame { carried, height, arrived: Vec::new() });
        let end = inner(self);
        let frame = self.frames.pop();
        let mut end = end?;
        if let Some(end) = &mut end {
            settle(end, carried, height);
        }
        let arrived = frame.into_iter().flat_map(|f| f.arrived).map(|(_, state)| state);
        Ok(arrived.chain(end).reduce(|a, b| a.join(b, &mut self.values)))
    }

    /// Takes a path to the frame that is `depth` further out.
    fn branch(&mut self, depth: u32, state: &State) {
        let Some(at) = self.frames.len().checked_sub(1 + depth as usize) else { return };
        let mut state = state.clone();
        let layer = self.traps.len();
        let frame = &mut self.frames[at];
        settle(&mut state, frame.carried, frame.height);
        let state = match frame.arrived.pop() {
            Some((of, other)) if of == layer => other.join(state, &mut self.values),
            Some(other) => {
                frame.arrived.push(other);
                state
            }
            None => state,
        };
        self.frames[at].arrived.push((layer, state));
    }

    /// Records that a path ends here in a trap.
    pub(crate) fn trap(&mut self, cost: Cost, marked: bool) {
        if let Some(traps) = self.traps.last_mut() {
            let place = if marked { &mut traps.marked } else { &mut traps.unmarked };
            *place = Some(place.map_or(cost, |other| other.max(cost)));
        }
    }

    pub(crate) fn nodes(&mut self, nodes: &[Node<'a>], mut state: State) -> Walked<Option<State>> {
        for node in nodes {
            match self.node(node, state)? {
                Some(next) => state = next,
                None => return Ok(None),
            }
        }
        Ok(Some(state))
    }

    pub(crate) fn spend(&mut self, n: usize, offset: u32) -> Walked<()> {
        match self.work.checked_sub(n as u64).filter(|_| self.values.symbols.steps_left() > 0) {
            Some(rest) => self.work = rest,
            None => return Err(self.refused(Rule::Work, offset)),
        }
        Ok(())
    }

    fn node(&mut self, node: &Node<'a>, mut state: State) -> Walked<Option<State>> {
        match node {
            Node::Block { kind, body } => {
                let (takes, gives) = self.arity(*kind);
                let height = state.stack.len().saturating_sub(takes);
                self.framed(gives, height, |walk| walk.nodes(body, state))
            }
            Node::If { kind, then, or } => {
                self.spend(1 + state.len() / 4, 0)?;
                state.cost = state.cost.and(Poly::constant(1));
                let test = self.condition(&mut state).ok_or(self.refused(Rule::Invalid, 0))?;
                let (takes, gives) = self.arity(*kind);
                let height = state.stack.len().saturating_sub(takes);
                self.framed(gives, height, |walk| {
                    let (mut yes, mut no) = (state.clone(), state);
                    let yes = match yes.assume(&test.yes, &walk.values) {
                        true => walk.nodes(then, yes)?,
                        false => None,
                    };
                    let no = match no.assume(&test.no, &walk.values) {
                        true => walk.nodes(or, no)?,
                        false => None,
                    };
                    let settled = |state: Option<State>| {
                        state.map(|mut s| {
                            settle(&mut s, gives, height);
                            s
                        })
                    };
                    Ok(match (settled(yes), settled(no)) {
                        (Some(a), Some(b)) => Some(a.join(b, &mut walk.values)),
                        (a, b) => a.or(b),
                    })
                })
            }
            Node::Loop { kind, body, about } => {
                self.spend(1 + state.len(), about.offset)?;
                self.enter_loop(&LoopBody { kind: *kind, body, about }, state)
            }
            Node::Call(callee, number, offset) => {
                self.spend(1, *offset)?;
                self.emit(Event::Call { callee: *callee, offset: *offset, state: &state });
                state.cost = state.cost.and(Poly::constant(1));
                self.call(*callee, *number, *offset, state)
            }
            Node::Op(operator, offset) => self.operator(operator, *offset, state),
        }
    }

    fn operator(&mut self, operator: &Operator<'a>, offset: u32, mut state: State) -> Walked<Option<State>> {
        self.spend(1, offset)?;
        self.emit(Event::Operator { operator, offset, state: &state });
        let weight = weight(operator);
        if weight > 0 {
            state.cost = state.cost.and(Poly::constant(weight));
        }
        match operator {
            Operator::Unreachable => {
                self.trap(state.cost, state.marked);
                Ok(None)
            }
            Operator::Br { relative_depth } => {
                self.spend(state.len() / 4, offset)?;
                self.branch(*relative_depth, &state);
                Ok(None)
            }
            Operator::BrIf { relative_depth } => {
                self.spend(state.len() / 4, offset)?;
                let test = self.condition(&mut state).ok_or(self.refused(Rule::Invalid, offset))?;
                let mut taken = state.clone();
                if taken.assume(&test.yes, &self.values) {
                    self.branch(*relative_depth, &taken);
                }
                Ok(state.assume(&test.no, &self.values).then_some(state))
            }
            Operator::BrTable { targets } => {
                let value = self.pop(&mut state, 32).ok_or(self.refused(Rule::Invalid, offset))?;
                let (low, high) = self.values.range(&value, &state.facts);
                let count = u64::from(targets.len());
                self.spend(targets.len() as usize / 4, offset)?;
                let listed = targets.targets().enumerate().filter_map(|(n, t)| Some((n as u64, t.ok()?)));
                // The least and the greatest value that leads to each target.
                let mut seen: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
                let default = (high >= count).then_some((targets.default(), low.max(count), high));
                let listed = listed.filter(|(n, _)| (low..=high).contains(n)).map(|(n, t)| (t, n, n));
                for (depth, from, to) in listed.chain(default) {
                    let range = seen.entry(depth).or_insert((from, to));
                    *range = (range.0.min(from), range.1.max(to));
                }
                let form = self.values.integer(&value, &state.facts);
                for (depth, (from, to)) in seen {
                    self.spend(1 + state.len() / 4, offset)?;
                    let least = form.shifted(-i128::from(from));
                    let most = Linear::constant(to.into()).minus(&form);
                    let facts = least.into_iter().chain(most).map(Rc::new).collect();
                    let mut taken = state.clone();
                    if taken.assume(&Known { facts, nonzero: Vec::new() }, &self.values) {
                        self.branch(depth, &taken);
                    }
                }
                Ok(None)
            }
            Operator::Return => {
                self.branch(self.frames.len().saturating_sub(1) as u32, &state);
                Ok(None)
            }
            Operator::CallIndirect { type_index, .. } => self.call_any(*type_index, offset, state),
            operator => match self.apply(operator, &mut state) {
                Some(()) => Ok(Some(state)),
                None => Err(self.refused(Rule::Invalid, offset)),
            },
        }
    }

    pub(crate) fn arity(&self, kind: BlockType) -> (usize, usize) {
        match kind {
            BlockType::Empty => (0, 0),
            BlockType::Type(_) => (0, 1),
            BlockType::FuncType(kind) => {
                self.module.types.get(kind as usize).map_or((0, 0), |t| (t.params().len(), t.results().len()))
            }
        }
    }

    fn call(&mut self, callee: u32, number: u32, offset: u32, mut state: State) -> Walked<Option<State>> {
        let module = self.module;
        let invalid = self.refused(Rule::Invalid, offset);
        let kind = module.kind_of(callee).ok_or(invalid)?;
        let at = state.stack.len().checked_sub(kind.params().len()).ok_or(invalid)?;
        let arguments = state.stack.split_off(at);
        match module.import(callee) {
            Some((names::IMPORTS, names::PACKET)) => {
                // Checked at run time: the index exceeds the one before and is below the count. If that
                // fails, no packet has begun, so the cost since the last one is the call's.
                self.trap(state.cost, state.marked);
                state.marked = true;
                if let Some(Value::Sum(index)) = arguments.first() {
                    let index = self.values.integer(index, &state.facts);
                    let below =
                        crate::linear::Linear { constant: -1, terms: vec![(crate::linear::COUNT, 1)] };
                    if let Some(fact) = below.minus(&index) {
                        state.learn(Rc::new(fact));
                    }
                }
                return Ok(Some(state));
            }
            // A hint: no code runs.
            Some((names::IMPORTS, names::COLD)) => return Ok(Some(state)),
            Some(_) => return self.returned(kind.results(), offset, state).map(Some),
            None => {}
        }
        if self.diverging.contains(&callee) {
            // It counts its instructions, so it ends in a trap; it never returns. Its cost is added once, to
            // the cost of the entry.
            self.diverges = true;
            self.trap(state.cost, state.marked);
            return Ok(None);
        }
        let inline = match &self.guide {
            None => self.notes.calls.contains_key(&number),
            Some(guide) => self.inlined < MAX_INLINE && guide.clone().inlines(self, callee, &arguments),
        };
        if inline && self.inlined < MAX_INLINE {
            self.inlined += 1;
            let inner = self.notes.calls.remove(&number).unwrap_or_default();
            let outer = std::mem::replace(&mut self.notes, inner);
            let frame = (std::mem::take(&mut state.locals), std::mem::take(&mut state.stack));
            self.emit(Event::Enter(number));
            let end = self.function(callee, arguments, state);
            self.emit(Event::Leave);
            let inner = std::mem::replace(&mut self.notes, outer);
            self.notes.calls.insert(number, inner);
            self.inlined -= 1;
            return Ok(end?.map(|mut end| {
                let results = std::mem::take(&mut end.stack);
                (end.locals, end.stack) = frame;
                end.stack.extend(results);
                end
            }));
        }
        let Some(summary) = self.summaries.get(&callee) else {
            return Err(Refused { rule: Rule::Unsummarised(callee), ..self.refused(Rule::Work, offset) });
        };
        let (cost, returns) = (summary.cost, summary.returns);
        self.diverges |= summary.diverges;
        self.charge(cost, callee, &mut state);
        if !returns {
            self.trap(state.cost, state.marked);
            return Ok(None);
        }
        self.returned(kind.results(), offset, state).map(Some)
    }

    fn charge(&mut self, cost: Cost, callee: u32, state: &mut State) {
        if !cost.is_bounded() {
            self.why.get_or_insert(Refused { rule: Rule::NoBound, function: callee, offset: 0 });
        }
        state.cost = state.cost.then(cost);
    }

    /// Forgets all values that a call may change, and pushes unknown results.
    fn returned(&mut self, results: &[ValType], offset: u32, mut state: State) -> Walked<State> {
        self.spend(state.globals.len() / 4, offset)?;
        for kind in results {
            let value = self.named(Value::Any, *kind);
            state.stack.push(value);
        }
        state.memory.clear();
        self.forget_globals(&mut state);
        Ok(state)
    }

    pub(crate) fn forget_globals(&mut self, state: &mut State) {
        for (value, (kind, mutable, _)) in state.globals.iter_mut().zip(&self.module.globals) {
            if *mutable {
                *value = bits_of(*kind).map_or(Value::Any, |bits| Value::Sum(self.values.any(bits)));
            }
        }
    }

    /// Calls any function with an address and this type.
    fn call_any(&mut self, kind: u32, offset: u32, mut state: State) -> Walked<Option<State>> {
        let module = self.module;
        let invalid = self.refused(Rule::Invalid, offset);
        let signature = module.types.get(kind as usize).ok_or(invalid)?;
        let at = state.stack.len().checked_sub(signature.params().len() + 1).ok_or(invalid)?;
        state.stack.truncate(at);
        let (mut cost, mut returns) = (Cost::ZERO, false);
        for callee in module.through_tables(kind) {
            self.spend(1, offset)?;
            if self.diverging.contains(callee) {
                self.diverges = true;
                continue;
            }
            match self.summaries.get(callee) {
                Some(summary) => {
                    self.diverges |= summary.diverges;
                    cost = cost.max(summary.cost);
                    returns |= summary.returns;
                }
                // The host's functions return at once when they are called through a table.
                None if module.own(*callee).is_none() => returns = true,
                None => {
                    return Err(Refused {
                        rule: Rule::Unsummarised(*callee),
                        ..self.refused(Rule::Work, offset)
                    });
                }
            }
        }
        self.charge(cost, self.function, &mut state);
        self.trap(state.cost, state.marked);
        match returns {
            true => self.returned(signature.results(), offset, state).map(Some),
            false => Ok(None),
        }
    }

    pub(crate) fn push_frame(&mut self, carried: usize, height: usize) {
        self.frames.push(Frame { carried, height, arrived: Vec::new() });
    }
}

/// Leaves the results of a frame on the stack, as its end does.
pub(crate) fn settle(state: &mut State, carried: usize, height: usize) {
    let from = state.stack.len().saturating_sub(carried);
    let carried = state.stack.split_off(from);
    state.stack.truncate(height);
    state.stack.extend(carried);
}
