//! Compares the checker's results about random programs with concrete executions. For every execution there
//! must be integers for the symbols such that, at every point that it reaches, every value, interval,
//! condition, fact and cost holds. `FLAME_PROGRAMS` is the number of programs (4,000).

use crate::programs::execute::{Batch, FUEL, MEMORY, Machine, Observer, plan};
use crate::programs::{Binary, CALLEES, Generator, LOCALS, Operand, Random, Step, bits, wasm};
use flame_verify::linear::{COUNT, DESCRIPTORS, Fact, LENGTH, Linear, Symbol};
use flame_verify::loops::Failure;
use flame_verify::module::Module;
use flame_verify::state::{State, Stored};
use flame_verify::value::{Condition, Sum, Value, Values, mask};
use flame_verify::walk::{Guide, LoopBody, Walk};
use flame_verify::{Cost, Form, LoopNote, Measure, Notes, Reference, Template};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The checker's knowledge at a probe.
struct Point {
    state: State,
    /// The ranges of locals, then of globals.
    ranges: Vec<(u64, u64)>,
}

/// Records the states at probes, and writes notes for the loops of a program: guesses, of which it keeps
/// those that the checker confirms.
#[derive(Default)]
struct Recorder {
    seed: u64,
    loops: BTreeMap<u32, Vec<Step>>,
    points: RefCell<BTreeMap<u32, Point>>,
    /// The symbol for the number of completed iterations.
    trips: RefCell<BTreeMap<u32, Symbol>>,
    exploring: Cell<u32>,
    /// The number of confirmed claims.
    confirmed: Cell<u64>,
}

impl Guide for Recorder {
    fn note<'a>(&self, walk: &mut Walk<'_, 'a>, body: &LoopBody<'_, 'a>, entry: &State) -> LoopNote {
        let number = body.about.number;
        if walk.function != PROGRAM {
            return LoopNote::default();
        }
        let note = self.loops.get(&number).map(|steps| self.guess(walk, (body, steps), entry));
        if self.exploring.get() > 0 {
            return note.unwrap_or_default();
        }
        match note {
            Some(note) => {
                self.trips.borrow_mut().insert(number, walk.values.symbols.len() as Symbol);
                let claims = note.facts.len() + note.forms.len();
                self.confirmed.set(self.confirmed.get() + claims as u64);
                note
            }
            None => {
                let mut ranges = Vec::new();
                for value in entry.locals.iter().chain(&entry.globals) {
                    ranges.push(match value {
                        Value::Sum(sum) => walk.values.range(sum, &entry.facts),
                        _ => (0, u64::MAX),
                    });
                }
                self.points.borrow_mut().insert(number, Point { state: entry.clone(), ranges });
                LoopNote::default()
            }
        }
    }

    fn inlines(&self, _: &Walk<'_, '_>, callee: u32, _: &[Value]) -> bool {
        (self.seed >> callee) & 1 == 0
    }
}

impl Recorder {
    fn guess<'a>(
        &self,
        walk: &mut Walk<'_, 'a>,
        (body, steps): (&LoopBody<'_, 'a>, &[Step]),
        entry: &State,
    ) -> LoopNote {
        let mut r = Random(self.seed ^ u64::from(body.about.number) << 32);
        let mut note = LoopNote::default();
        let mut limits = vec![(0, vec![(1, Reference::Length)]), (0, vec![(1, Reference::Count)])];
        for step in steps {
            let Step::Binary(of, w, a, b, to) = step else { continue };
            match (of, b) {
                (Binary::Add, Operand::Constant(by)) => {
                    let by = if *by > mask(*w) / 2 { *by as i64 - mask(*w) as i64 - 1 } else { *by as i64 };
                    let form =
                        if r.below(3) > 0 { Form::Step(by) } else { Form::Range(0, r.number() & mask(*w)) };
                    note.forms.insert(*to as u32, form);
                }
                (of, Operand::Constant(n)) if of.is_comparison() && *n < 1 << 40 => {
                    limits.push((*n as i64, Vec::new()))
                }
                (of, Operand::Local(n)) if of.is_comparison() => {
                    limits.push((0, vec![(1, Reference::Term(*n as u32, 0))]));
                }
                (Binary::Shr | Binary::Div, _) if matches!(a, Operand::Local(n) if n == to) => {
                    note.measure = Some(Measure::Halved(*to as u32))
                }
                (Binary::And, Operand::Local(_)) => note.measure = Some(Measure::Cleared(*to as u32)),
                _ => {}
            }
        }
        if r.below(4) == 0 {
            note.measure = None;
        }
        note.packets = steps.iter().any(|s| matches!(s, Step::Packet(_))) && r.below(2) == 0;
        for local in &body.about.written {
            if r.below(3) == 0 && !note.forms.contains_key(local) {
                let high = r.one(&[1, 7, 255, 0xffff, mask(bits(*local as usize)) >> 1]);
                note.forms.insert(*local, Form::Range(0, high));
            }
        }
        let by = r.one(&[1, 1, 2, 3, 7]);
        for (constant, terms) in &limits {
            for more in
                [-100, -by - 1, -by, -1, 0, 1, by].into_iter().filter(|_| r.below(2) == 0).collect::<Vec<_>>()
            {
                let mut one = Template { constant: constant + more, terms: terms.clone() };
                one.terms.push((-by, Reference::Trip));
                note.facts.push(one);
            }
            for local in body.about.written.iter().take(3) {
                let mut one = Template { constant: constant + r.one(&[-1, 0, 1]), terms: terms.clone() };
                one.terms.push((-1, Reference::Head(*local)));
                note.facts.push(one);
            }
        }
        for local in body.about.written.iter().take(3) {
            let (more, by) = (r.one(&[-1, 0, 0, 1]), r.one(&[-2, -1, 1, 2]));
            note.facts.push(Template {
                constant: more,
                terms: vec![(1, Reference::Head(*local)), (by, Reference::Trip)],
            });
        }
        // Claims that are not confirmed are dropped, until all are.
        loop {
            self.exploring.set(self.exploring.get() + 1);
            let iteration = walk.explore(body, entry, &note);
            self.exploring.set(self.exploring.get() - 1);
            let Ok(iteration) = iteration else { return LoopNote::default() };
            if iteration.failures.is_empty() {
                return note;
            }
            let mut dropped = BTreeSet::new();
            for failure in iteration.failures {
                match failure {
                    Failure::Form(local) => drop(note.forms.remove(&local)),
                    Failure::Entry(n) | Failure::Back(n) => drop(dropped.insert(n)),
                    Failure::Measure => note.measure = None,
                    Failure::Packets => note.packets = false,
                }
            }
            let mut n = 0;
            note.facts.retain(|_| {
                n += 1;
                !dropped.contains(&(n - 1))
            });
        }
    }
}

/// The function that is the program: after the import and the callees.
const PROGRAM: u32 = 1 + CALLEES.len() as u32;

/// A concrete execution, with the integers of the symbols.
struct Execution<'v> {
    values: &'v Values,
    recorder: &'v Recorder,
    symbols: Vec<Option<u64>>,
    count: u64,
    longest: u64,
    /// The executed instructions and begun packets when the current iterations began.
    heads: Vec<(u64, u64)>,
    held: usize,
}

impl Execution<'_> {
    fn symbol(&self, symbol: Symbol) -> Option<u64> {
        self.symbols[symbol as usize].or_else(|| self.sum(self.values.named.get(&symbol)?))
    }

    fn sum(&self, sum: &Sum) -> Option<u64> {
        let value = sum
            .terms
            .iter()
            .try_fold(sum.constant, |all, (s, n)| Some(all.wrapping_add(n.wrapping_mul(self.symbol(*s)?))));
        Some(value? & mask(sum.bits))
    }

    fn form(&self, form: &Linear) -> Option<i128> {
        form.terms.iter().try_fold(form.constant, |all, (s, n)| Some(all + n * i128::from(self.symbol(*s)?)))
    }

    /// Assigns to the only symbol of a sum without an integer the value that makes the sum true, if only one
    /// does.
    fn bind(&mut self, sum: &Sum, value: u64) {
        let unknown: Vec<_> = sum.terms.iter().filter(|(s, _)| self.symbol(*s).is_none()).copied().collect();
        let [(symbol, n)] = unknown[..] else { return };
        let rest =
            Sum { terms: sum.terms.iter().filter(|t| t.0 != symbol).copied().collect(), ..sum.clone() };
        let left = value.wrapping_sub(self.sum(&rest).expect("all known")) & mask(sum.bits);
        let (low, high) = self.values.symbols.interval(symbol);
        // Modulo 2^bits, the integer times `odd × 2^zeros` is `left`.
        let zeros = n.trailing_zeros();
        assert!(
            left.trailing_zeros() >= zeros.min(u32::from(sum.bits)),
            "no symbol {symbol} makes {sum:?} {value}"
        );
        let (odd, width) = (n >> zeros, u32::from(sum.bits) - zeros);
        let inverse = (0..6).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))));
        let integer = (left >> zeros).wrapping_mul(inverse) & mask(width as u8);
        if high > mask(width as u8) {
            return;
        }
        assert!((low..=high).contains(&integer), "symbol {symbol} is {integer}, not in {low}..={high}");
        self.symbols[symbol as usize] = Some(integer);
    }

    fn known(&mut self, facts: &[Fact], nonzero: &[Rc<Sum>], what: &str) {
        for fact in facts {
            if let Some(n) = self.form(fact) {
                assert!(n >= 0, "{what}: {fact:?} is {n}");
                self.held += 1;
            }
        }
        for sum in nonzero {
            assert!(self.sum(sum) != Some(0), "{what}: {sum:?} is 0");
        }
    }

    fn value(&mut self, value: &Value, concrete: u64) {
        match value {
            Value::Sum(sum) => {
                self.bind(sum, concrete);
                if let Some(found) = self.sum(sum) {
                    assert_eq!(found, concrete, "{sum:?}");
                    self.held += 1;
                }
            }
            Value::Condition(condition) => {
                assert!(concrete <= 1, "a condition is {concrete}");
                let Condition { yes, no } = &**condition;
                let known = if concrete == 1 { yes } else { no };
                self.known(&known.facts, &known.nonzero, "condition");
            }
            _ => {}
        }
    }

    /// Checks that the executed instructions are at most the cost.
    fn pays(&self, cost: Cost, executed: u64, begun: u64) {
        let at = |p: flame_verify::Poly, n: u64| p.at(self.longest).map(|c| c * u128::from(n));
        let all = (|| Some(at(cost.call, 1)? + at(cost.each, self.count)? + at(cost.packet, begun)?))();
        assert!(
            all.is_none_or(|all| u128::from(executed) <= all),
            "{executed} executed, {begun} begun: {cost:?}"
        );
    }
}

impl Observer for Execution<'_> {
    fn probe(&mut self, number: u32, machine: &Machine) {
        let points = self.recorder.points.borrow();
        let Some(point) = points.get(&number) else {
            panic!("probe {number} is reached, which is called impossible")
        };
        let (executed, begun) = self.heads.last().copied().unwrap_or_default();
        assert!(!point.state.marked || machine.begun > begun, "no packet was begun");
        self.pays(point.state.cost, machine.executed - executed, machine.begun - begun);
        // Of long loops, only some iterations.
        if machine.fuel < FUEL - 500 && !machine.fuel.is_multiple_of(13) {
            return;
        }
        let concrete = machine.locals.iter().chain(&machine.globals);
        let values = point.state.locals.iter().chain(&point.state.globals);
        for ((value, concrete), (low, high)) in values.zip(concrete).zip(&point.ranges) {
            assert!((low..=high).contains(&concrete), "probe {number}: {concrete} is not in {low}..={high}");
            self.value(value, *concrete);
        }
        for Stored { at, bytes, value } in &point.state.memory {
            let value_bits = if let Value::Sum(sum) = value { sum.bits } else { 0 };
            if value_bits != 0
                && let Some(at) = self.sum(at)
            {
                let found = machine
                    .load(at, (*bytes).into())
                    .unwrap_or_else(|| panic!("nothing can be stored at {at}"));
                assert_eq!(*bytes * 8, value_bits);
                self.value(value, found);
            }
        }
        self.known(&point.state.facts, &point.state.nonzero, &format!("fact at probe {number}"));
        for (symbol, of) in &self.values.cleared {
            if let (Some(n), Some(of)) = (self.symbol(*symbol), self.sum(of)) {
                assert_eq!(n, of & of.wrapping_sub(1), "cleared");
            }
        }
    }

    fn head(&mut self, number: u32, iteration: u64, machine: &Machine) {
        let trips = self.recorder.trips.borrow();
        let trip = *trips.get(&number).expect("a loop is entered that is called impossible");
        // A symbol created within the loop is another integer in each iteration.
        self.symbols[trip as usize..].fill(None);
        self.symbols[trip as usize] = Some(iteration);
        let (low, high) = self.values.symbols.interval(trip);
        assert!((low..=high).contains(&iteration), "iteration {iteration} is not in {low}..={high}");
        let now = (machine.executed, machine.begun);
        if iteration == 0 {
            self.heads.push(now);
        } else if let Some(head) = self.heads.last_mut() {
            *head = now;
        }
    }

    fn left(&mut self) {
        self.heads.pop();
    }
}

/// The tested properties of a number of programs, and the precision of the checker.
#[derive(Debug, Default, PartialEq)]
struct Tested {
    held: u64,
    confirmed: u64,
    bounded: u64,
    impossible: u64,
    /// The number of bits that are known of values.
    bits: u64,
    facts: u64,
    /// The sum of bounds for three packets of 100 bytes, where there is a bound.
    cost: u64,
}

fn check(seed: u64, (executions, memory): (usize, &mut [u8]), tested: &mut Tested) {
    let mut r = Random(seed.wrapping_mul(0x1234_5678_9abc_def1));
    let program = Generator::program(&mut r);
    let mut loops = 0;
    let body = plan(&program, &mut loops);
    let wasm = wasm(&program);
    let module = Module::read(&wasm, flame_verify::SECTION).expect("valid");
    let mut recorder = Recorder { seed: r.next(), ..Recorder::default() };
    body.loops(&mut |number, steps| drop(recorder.loops.insert(number, steps.to_vec())));
    let real = recorder.loops.len();
    let recorder = Rc::new(recorder);
    let (mut summaries, diverging) = (BTreeMap::new(), BTreeSet::new());
    for callee in 1..PROGRAM {
        let mut walk = Walk::new(&module, (&summaries, &diverging), Notes::default(), 1 << 30);
        let outcome = walk.entry(callee, vec![Value::Any]).expect("bounded");
        drop(walk);
        summaries.insert(callee, outcome.summary());
    }
    let mut walk =
        Walk::new(&module, (&summaries, &diverging), Notes::default(), 1 << 30).guided(recorder.clone());
    walk.host.batch = !seed.is_multiple_of(3);
    // Some of the locals are known to be small.
    let highs: Vec<u64> =
        (0..LOCALS).map(|n| [mask(bits(n)), 255, 1500, mask(bits(n)) >> 1, 1][r.below(5)]).collect();
    let header = u64::from(flame_abi::layout::WINDOW + flame_abi::layout::BATCH_OFFSET);
    let arguments: Vec<Value> = (0..LOCALS)
        .map(|n| match n {
            0 => Value::constant(32, header),
            _ => Value::Sum(walk.values.within(bits(n), 0, highs[n])),
        })
        .collect();
    let outcome = match walk.entry(PROGRAM, arguments) {
        Ok(outcome) => outcome,
        Err(why) => panic!("{why}"),
    };
    let told = walk.loops.iter().filter(|l| l.function == PROGRAM).count();
    assert_eq!(told, recorder.points.borrow().len() + recorder.trips.borrow().len(), "loops are told once");
    tested.confirmed += recorder.confirmed.get();
    tested.bounded += u64::from(outcome.cost.is_bounded());
    tested.cost += outcome.cost.at(3, 100).unwrap_or_default().min(1 << 30) as u64;
    tested.impossible += u64::from(loops) - (recorder.points.borrow().len() + real) as u64;
    for point in recorder.points.borrow().values() {
        let known = point.ranges.iter().map(|(low, high)| u64::from((high - low).leading_zeros()));
        tested.bits += known.sum::<u64>();
        tested.facts += point.state.facts.len() as u64;
    }
    for _ in 0..executions {
        let mut locals = [0; LOCALS];
        for (place, high) in locals.iter_mut().zip(&highs) {
            let n = r.number();
            *place = if n > *high { n & *high } else { n };
        }
        locals[0] = header;
        let batch = Batch::new(&mut r);
        // Numbers near those of the batch.
        for (place, high) in locals.iter_mut().zip(&highs).skip(1) {
            let n = u64::from(r.one(&[batch.count, batch.longest])).wrapping_sub(r.next() % 3);
            if r.below(6) == 0 && n <= *high {
                *place = n;
            }
        }
        let mut execution = Execution {
            values: &walk.values,
            recorder: &recorder,
            symbols: vec![None; walk.values.symbols.len()],
            count: batch.count.into(),
            longest: batch.longest.into(),
            heads: Vec::new(),
            held: 0,
        };
        execution.symbols[LENGTH as usize] = Some(batch.longest.into());
        execution.symbols[COUNT as usize] = Some(batch.count.into());
        execution.symbols[DESCRIPTORS as usize] = Some(batch.place.into());
        let mut machine = Machine::new(locals, memory, walk.host.batch.then_some(&batch));
        machine.run(&body, &mut execution);
        execution.pays(outcome.cost, machine.executed, machine.begun);
        tested.held += execution.held as u64;
    }
}

#[test]
fn what_the_checker_says_holds_in_executions() {
    let programs = std::env::var("FLAME_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(4_000);
    let mut memory: Vec<u8> =
        (0..MEMORY).map(|n| (n * 7 % 251) as u8 & if n % 3 == 0 { 0 } else { 255 }).collect();
    let mut tested = Tested::default();
    for seed in 0..programs {
        let run = std::panic::AssertUnwindSafe(|| check(seed, (16, &mut memory), &mut tested));
        std::panic::catch_unwind(run).unwrap_or_else(|_| panic!("program {seed}"));
    }
    println!("{tested:?}");
    assert!(tested.held > programs * 100, "only {tested:?}");
}

/// A weaker rule is sound, and makes modules lose their bounds: the knowledge about the same programs may
/// only grow.
#[test]
fn no_less_is_known_than_before() {
    let mut now = Tested::default();
    for seed in 0..PROGRAMS_KNOWN {
        check(seed, (0, &mut []), &mut now);
    }
    let Tested { confirmed, bounded, impossible, bits, facts, cost, .. } = now;
    let least = Tested { held: 0, ..KNOWN };
    assert!(
        confirmed >= least.confirmed
            && bounded >= least.bounded
            && impossible >= least.impossible
            && bits >= least.bits
            && facts >= least.facts,
        "less is known: {now:?}"
    );
    // More bounded programs have a larger sum of bounds.
    assert!(cost <= least.cost || bounded > least.bounded, "costs are greater: {now:?}");
}

const PROGRAMS_KNOWN: u64 = 2_000;
const KNOWN: Tested = Tested {
    held: 0,
    confirmed: 3924,
    bounded: 1191,
    impossible: 21631,
    bits: 33765177,
    facts: 229005,
    cost: 5755421927,
};
