//! The oracle: compares bounds and counters of one module with Wasmtime's own meter.

use super::choices::Choices;
use super::packets::{Call, OWN};
use super::{Export, Program, STACK};
use flame_bounds::{Bound, analyse_exports};
use flame_meter::{Metering, rewrite};
use flame_plan::ModuleClass;
use std::collections::BTreeSet;
use wasmtime::{
    Caller, Config, Engine, Global, Instance, Linker, Memory, Module, OperatorCost, OptLevel, Store, Trap,
    TypedFunc, Val,
};

/// The claims about a module.
pub struct Claims {
    /// The bound of each exported function, if it has one.
    pub bounds: Vec<(String, Option<Bound>)>,
    /// Functions that need no counters.
    pub unmetered: BTreeSet<u32>,
    /// Functions that count their instructions and trap where they would return: the rewriter limits them to
    /// what the bounds contain for them.
    pub diverging: BTreeSet<u32>,
}

impl Claims {
    /// Returns the argument for the node's rewriter.
    pub fn count(&self) -> Metering<'_> {
        Metering::Verified { uncounted: &self.unmetered, diverging: &self.diverging }
    }
}

/// Returns the tested claims; the only place that chooses the analysis under test.
pub fn bounds_of(wasm: &[u8]) -> Claims {
    let analysis = analyse_exports(wasm).expect("a valid module is analysed");
    let bounds =
        analysis.entries.iter().map(|e| (e.name.clone(), Some(e.bound).filter(|b| b.is_bounded()))).collect();
    Claims { bounds, unmetered: analysis.proved.uncounted, diverging: analysis.proved.diverging }
}

/// The number of instructions after which a call is abandoned.
pub const PATIENCE: u64 = 40_000;
/// The number of instructions that a call may execute, once per module, if its bound lies above `PATIENCE`.
const FARTHER: u64 = 4_000_000;
/// The fuel of counted runs that are to be cut off.
const BUDGET: i64 = 4_000;
/// The fuel of counted runs that are not to be cut off, and of calls of a bounded module without a proof.
const PLENTY: i64 = 1 << 50;

/// Returns the fuel with which the node begins a call of a bounded module: the least budget with which such a
/// module is admitted is its bound.
fn node_fuel(bound: Option<u128>) -> i64 {
    bound.map_or(PLENTY, |bound| ModuleClass::Bounded.fuel(u64::try_from(bound).unwrap_or(u64::MAX)))
}

/// The largest number of instructions that counting adds for each that is charged: one check is 12
/// instructions, the charge before a hoisted loop 24, and each charges at least 1, before or after.
const SLACK: u64 = 40;

/// Counts of runs and their outcomes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub programs: u64,
    pub executions: u64,
    pub returned: u64,
    pub trapped: u64,
    /// Calls abandoned after [`PATIENCE`].
    pub given_up: u64,
    /// Calls with a bound, among all calls.
    pub bounded: u64,
    /// Programs in which some entry has a bound.
    pub programs_bounded: u64,
    /// Rewritten calls with the same outcome as the original.
    pub same: u64,
    /// Rewritten calls that were cut off by their counters.
    pub cut_off: u64,
    /// Calls with a bound of programs with functions that diverge, rewritten.
    pub diverging: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.programs += other.programs;
        self.executions += other.executions;
        self.returned += other.returned;
        self.trapped += other.trapped;
        self.given_up += other.given_up;
        self.bounded += other.bounded;
        self.programs_bounded += other.programs_bounded;
        self.same += other.same;
        self.cut_off += other.cut_off;
        self.diverging += other.diverging;
    }
}

/// A violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call that returned executed more than its bound.
    Returned,
    /// A call that trapped executed more than its bound.
    Trapped,
    /// A call that was abandoned had executed more than its bound.
    GivenUp,
    /// The rewritten module computes a different result.
    Differs,
    /// The rewritten module charged less than was executed.
    Undercharged,
    /// The counters of the rewritten module did not end it.
    Endless,
}

#[derive(Clone, Debug)]
pub struct Violation {
    pub kind: Kind,
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Returned(i64),
    Trapped(Trap),
    GivenUp,
}

/// An engine with Wasmtime's meter, and its linker.
pub struct Oracle {
    engine: Engine,
    linker: Linker<Marks>,
}

/// The packets of a batch that have begun: they must begin in order, and be of this batch.
#[derive(Default)]
struct Marks {
    packet: i32,
    count: u32,
}

struct Running {
    store: Store<Marks>,
    memory: Option<Memory>,
    stack: Option<Global>,
    calls: Vec<Function>,
    /// `flame:fuel`, `flame:packet_budget`, `flame:packet`, `flame:count`.
    meter: Option<[Global; 4]>,
}

enum Function {
    Plain(TypedFunc<(i32, i32, i64), i64>),
    Batch(TypedFunc<i32, i64>),
    Tick(TypedFunc<i64, i64>),
    Init(TypedFunc<(i32, i32), i64>),
}

impl Oracle {
    pub fn new() -> Self {
        let mut config = Config::new();
        // Instructions count, not the bytes that they move.
        let mut costs = OperatorCost::new();
        costs.variable.memory_copy_per_byte = 0;
        costs.variable.memory_fill_per_byte = 0;
        costs.variable.memory_init_per_byte = 0;
        config.consume_fuel(true).operator_cost(costs).cranelift_opt_level(OptLevel::None);
        config.memory_init_cow(false).max_wasm_stack(128 << 10);
        let engine = Engine::new(&config).expect("this machine compiles Wasm");
        let mut linker = Linker::new(&engine);
        // The code that the rewriter inserts for a mark.
        let mark = |mut caller: Caller<'_, Marks>, index: i32| {
            let marks = caller.data_mut();
            if index <= marks.packet || index as u32 >= marks.count {
                return Err(Trap::UnreachableCodeReached.into());
            }
            marks.packet = index;
            wasmtime::Result::Ok(())
        };
        linker.func_wrap("flame", "packet", mark).expect("links");
        Self { engine, linker }
    }

    fn start(&self, wasm: &[u8], exports: &[Export]) -> Running {
        let module = Module::new(&self.engine, wasm).expect("compiles");
        let mut store = Store::new(&self.engine, Marks::default());
        store.set_fuel(PATIENCE).expect("counts");
        let instance = self.linker.instantiate(&mut store, &module).expect("instantiates");
        let calls = exports.iter().map(|export| function(&instance, &mut store, *export)).collect();
        let memory = instance.get_memory(&mut store, "memory");
        let stack = instance.get_global(&mut store, "sp");
        let names = ["flame:fuel", "flame:packet_budget", "flame:packet", "flame:count"];
        let meter = names.map(|name| instance.get_global(&mut store, name));
        let meter = match meter {
            [Some(a), Some(b), Some(c), Some(d)] => Some([a, b, c, d]),
            _ => None,
        };
        Running { store, memory, stack, calls, meter }
    }

    /// Compares one program with its claims in these calls of each export. Violations of bounds do not end
    /// the comparison, so that the counters are tested as well.
    pub fn hold(
        &self,
        program: &Program,
        calls: u64,
        choices: &mut Choices,
        tally: &mut Tally,
    ) -> Vec<Violation> {
        let parse = |text: &str| wat::parse_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let declared = parse(&program.text);
        let is_module = program.exports.contains(&Export::Batch);
        let wasm = if is_module { parse(&program.with_window()) } else { declared.clone() };
        let claims = bounds_of(&declared);
        let bounds: Vec<Option<Bound>> = program
            .exports
            .iter()
            .map(|export| claims.bounds.iter().find(|(name, _)| name == export.name()).and_then(|(_, b)| *b))
            .collect();
        let mut found = Vec::new();
        let mut original = self.start(&wasm, &program.exports);
        let counted = rewrite(&wasm, Metering::All).expect("rewrites");
        let mut counted = self.start(&counted, &program.exports);
        // The third one takes a third of the time. Bounds of calls that may diverge hold only for it.
        let covered = claims.diverging.is_empty();
        let mut mixed = (!covered || choices.chance(25)).then(|| {
            let wasm = rewrite(&wasm, claims.count()).expect("rewrites");
            self.start(&wasm, &program.exports)
        });
        tally.programs += 1;
        tally.programs_bounded += u64::from(bounds.iter().any(Option::is_some));
        let mut farther = true;
        for _ in 0..calls {
            for (at, export) in program.exports.iter().enumerate() {
                let call = Call::new(choices, *export == Export::Batch);
                let bound = bounds[at].and_then(|b| b.at(call.packets.len() as u64, call.length()));
                tally.bounded += u64::from(bound.is_some());
                let (end, executed) = original.call(at, &call, PATIENCE);
                tally.executions += 1;
                let mut add = |kind, what: String| {
                    found.push(Violation { kind, what: format!("{}: {what}; {call:?}", export.name()) });
                };
                let over = |executed: u64| bound.filter(|bound| u128::from(executed) > *bound);
                match end {
                    End::Returned(_) => {
                        tally.returned += 1;
                        if let Some(bound) = over(executed) {
                            add(Kind::Returned, format!("{executed} executed, bound {bound}"));
                        }
                    }
                    End::Trapped(trap) => {
                        tally.trapped += 1;
                        if let Some(bound) = over(executed).filter(|_| covered) {
                            add(Kind::Trapped, format!("{executed} executed before {trap}, bound {bound}"));
                        }
                    }
                    End::GivenUp => {
                        tally.given_up += 1;
                        if let Some(bound) = over(executed).filter(|_| covered) {
                            add(Kind::GivenUp, format!("{executed} executed so far, bound {bound}"));
                        } else if let Some(bound) = bound.filter(|b| *b < FARTHER.into() && covered)
                            && std::mem::take(&mut farther)
                        {
                            tally.executions += 1;
                            let (_, executed) = original.call(at, &call, bound as u64 + 2);
                            if u128::from(executed) > bound {
                                add(Kind::GivenUp, format!("{executed} executed so far, bound {bound}"));
                            }
                        }
                    }
                }
                if let (false, Some(bound), Some(mixed)) = (covered, bound, &mut mixed) {
                    // The functions that diverge have counters, which must end it within the bound although
                    // there is fuel for more.
                    mixed.refuel(node_fuel(Some(bound)), &call);
                    let most = u64::try_from(bound).unwrap_or(u64::MAX).saturating_mul(SLACK);
                    tally.executions += 1;
                    tally.diverging += 1;
                    if mixed.call(at, &call, most.min(FARTHER)).0 == End::GivenUp && most < FARTHER {
                        add(Kind::Endless, format!("diverges beyond {most}, bound {bound}"));
                    }
                }
                self.counters(
                    (&mut original, &mut counted, mixed.as_mut()),
                    (at, end, executed, bound),
                    &call,
                    (choices, tally, &mut add),
                );
            }
        }
        found
    }

    /// Makes one call of an unmodified module with a bound; returns how it violates the bound.
    pub fn passes(&self, wasm: &[u8], export: Export, call: &Call, bound: u64) -> Option<Kind> {
        let (end, executed) = self.start(wasm, &[export]).call(0, call, bound + PATIENCE);
        let kind = match end {
            End::Returned(_) => Kind::Returned,
            End::Trapped(_) => Kind::Trapped,
            End::GivenUp => Kind::GivenUp,
        };
        (executed > bound).then_some(kind)
    }

    /// Makes one call of a rewritten module with little fuel; returns whether it executes more than `bound`
    /// and its fuel allow.
    pub fn goes_on(&self, wasm: &[u8], export: Export, call: &Call, bound: u64) -> Option<Kind> {
        let mut running = self.start(wasm, &[export]);
        running.refuel(BUDGET, call);
        let most = bound + BUDGET as u64 * (call.packets.len() as u64 + 1) * SLACK + PATIENCE;
        (running.call(0, call, most).0 == End::GivenUp).then_some(Kind::Endless)
    }

    /// Makes one call of a module that is rewritten as the node does, with the node's fuel; returns whether
    /// it executes more than its bound and its counters allow, as a function that diverges without limit
    /// would.
    pub fn diverges(&self, wasm: &[u8], export: Export, call: &Call, bound: u64) -> Option<Kind> {
        let mut running = self.start(wasm, &[export]);
        running.refuel(node_fuel(Some(bound.into())), call);
        (running.call(0, call, bound.saturating_mul(SLACK)).0 == End::GivenUp).then_some(Kind::Endless)
    }

    /// Checks that the rewritten call computes the same, charges enough, and ends.
    #[allow(clippy::type_complexity)]
    fn counters(
        &self,
        (original, counted, mixed): (&mut Running, &mut Running, Option<&mut Running>),
        (at, end, executed, bound): (usize, End, u64, Option<u128>),
        call: &Call,
        (choices, tally, add): (&mut Choices, &mut Tally, &mut dyn FnMut(Kind, String)),
    ) {
        if end != End::GivenUp {
            let all =
                [(Some(&mut *counted), "counted", PLENTY), (mixed, "as the node runs it", node_fuel(bound))];
            for (running, name, fuel) in all {
                let Some(running) = running else { continue };
                running.refuel(fuel, call);
                let (same, _) = running.call(at, call, SLACK * (PATIENCE + 1000));
                tally.executions += 1;
                // Frames are larger; and a loop that would trap while it wraps around is cut off before it
                // begins.
                let apart =
                    end == End::Trapped(Trap::StackOverflow) || same == End::Trapped(Trap::StackOverflow);
                let before = matches!(end, End::Trapped(_)) && running.fuel() < 0;
                if apart || before {
                    continue;
                }
                if same != end || running.own() != original.own() {
                    add(Kind::Differs, format!("{end:?}, but {name} {same:?}, or memory differs"));
                }
                tally.same += 1;
                let charged = (fuel - running.fuel()) as u64;
                // A trap leaves fuel at its last written value; a mark resets it.
                let tells = name == "counted" && matches!(end, End::Returned(_)) && running.packet() < 0;
                if tells && charged + 1 < executed {
                    add(Kind::Undercharged, format!("{charged} charged, {executed} executed"));
                }
            }
        }
        // Calls that run for too long are cut off, and others if there is too little fuel.
        if end == End::GivenUp || choices.chance(10) {
            counted.refuel(BUDGET, call);
            let most = BUDGET as u64 * (call.packets.len() as u64 + 1) * SLACK + 10_000;
            let (same, executed) = counted.call(at, call, most);
            tally.executions += 1;
            tally.cut_off += u64::from(counted.fuel() < 0);
            if same == End::GivenUp {
                add(Kind::Endless, format!("{executed} executed with counters and fuel for {BUDGET}"));
            }
        }
    }
}

fn function(instance: &Instance, store: &mut Store<Marks>, export: Export) -> Function {
    let name = export.name();
    let typed = "has the type of its export";
    match export {
        Export::Plain => Function::Plain(instance.get_typed_func(store, name).expect(typed)),
        Export::Batch => Function::Batch(instance.get_typed_func(store, name).expect(typed)),
        Export::Tick => Function::Tick(instance.get_typed_func(store, name).expect(typed)),
        Export::Init => Function::Init(instance.get_typed_func(store, name).expect(typed)),
    }
}

impl Running {
    /// Makes one call with this much of Wasmtime's fuel; returns how it ended, and the executed instructions.
    fn call(&mut self, at: usize, call: &Call, fuel: u64) -> (End, u64) {
        let store = &mut self.store;
        if let Some(memory) = &self.memory {
            call.write(memory.data_mut(&mut *store));
        }
        if let Some(stack) = &self.stack {
            stack.set(&mut *store, Val::I32(STACK as i32)).expect("is a mutable i32");
        }
        *store.data_mut() = Marks { packet: -1, count: call.packets.len() as u32 };
        store.set_fuel(fuel).expect("counts");
        let outcome = match &self.calls[at] {
            Function::Plain(f) => f.call(&mut *store, (call.a as i32, call.b as i32, call.q as i64)),
            Function::Batch(f) => f.call(&mut *store, flame_abi::layout::WINDOW as i32),
            Function::Tick(f) => f.call(&mut *store, call.q as i64),
            Function::Init(f) => {
                let (place, bytes) = call.data();
                f.call(&mut *store, (place as i32, bytes as i32))
            }
        };
        let executed = fuel - store.get_fuel().expect("counts");
        let end = match outcome {
            Ok(value) => End::Returned(value),
            Err(e) => match e.downcast_ref::<Trap>() {
                Some(Trap::OutOfFuel) => End::GivenUp,
                Some(trap) => End::Trapped(*trap),
                None => panic!("neither returned nor trapped: {e:?}"),
            },
        };
        (end, executed)
    }

    /// Sets the counters as the host does.
    fn refuel(&mut self, budget: i64, call: &Call) {
        let [fuel, packet_budget, packet, count] = self.meter.as_ref().expect("counts");
        let store = &mut self.store;
        for global in [fuel, packet_budget] {
            global.set(&mut *store, Val::I64(budget)).expect("is a mutable i64");
        }
        packet.set(&mut *store, Val::I32(-1)).expect("is a mutable i32");
        count.set(&mut *store, Val::I32(call.packets.len() as i32)).expect("is a mutable i32");
    }

    fn fuel(&mut self) -> i64 {
        self.meter.as_ref().and_then(|m| m[0].get(&mut self.store).i64()).unwrap_or(0)
    }

    fn packet(&mut self) -> i32 {
        self.meter.as_ref().and_then(|m| m[2].get(&mut self.store).i32()).unwrap_or(0)
    }

    fn own(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory.data(&self.store)[..OWN])
    }
}
