use crate::apart::{Apart, Idle};
use crate::areas::Area;
use crate::call::{Allowance, Batches, Call, Function, block_on};
use crate::engine::Engines;
use crate::eviction::Eviction;
use crate::fault::{Fault, FaultKind, Frame};
use crate::memory::{Mapping, load, map_window};
use crate::quota::Quota;
use crate::watch::{Watch, Watchdog};
use flame_abi::layout::{self, names};
use flame_abi::manifest::Access;
use flame_abi::{BatchHeader, InitHeader, batch_flags, output, role};
use flame_block::{BlockError, Region, SharedMemory};
use flame_output::{CheckProgress, FrameCounts, Schema, Sent, first_frames};
use flame_plan::limits::UNIT_MAX;
use flame_plan::{CallName, CutOff, FRAME_UNITS, Limits, ModuleClass, ModulePlan};
use flame_quota::Meters;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::{Engine, Extern, Global, Linker, Memory, Module, Store, Trap, TypedFunc, Val, WasmBacktrace};

/// The code of a module, loaded once for all its instances.
#[derive(Clone)]
pub struct Loaded {
    engine: Engine,
    module: Module,
    schema: Arc<Schema>,
    limits: Limits,
    /// The largest state in bytes.
    most_state: u32,
    /// The seed of the module.
    seed: Option<u64>,
    parameters: Arc<[u8]>,
    /// The large texts among the parameters, in memory that all instances share.
    texts: Option<Arc<SharedMemory>>,
    /// The areas that it shares with other modules, in the order of their numbers.
    areas: Arc<[(Area, Access)]>,
    polling_page: Arc<SharedMemory>,
    region: Option<Region>,
    meters: Meters,
    has_slow_path: bool,
    forwards: bool,
    marks_packets: bool,
    class: ModuleClass,
    hash: [u8; 32],
    /// The processor time of a batch, and of a call for the rest of its output, if nothing interrupts it.
    /// Other calls have the one of the limits.
    deadline_ns: Option<u64>,
    watchdog: Watchdog,
    apart: Apart,
}

/// The role of an instance within its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The instance receives packets on this worker.
    Fast { worker: usize },
    /// The instance receives the messages of the fast instances.
    Slow,
}

/// A piece of the checked output of one call, in the module's memory.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    pub bytes: &'a [u8],
    /// The contents of all pieces.
    pub counts: FrameCounts,
}

/// The output of a call that has returned: its place, and how much of it was checked and delivered. The
/// module's memory does not change before it is called again, so both may wait between two pieces.
pub struct Pending {
    call: CallName,
    place: Range<usize>,
    progress: CheckProgress,
    delivered: usize,
    /// The units that it may cost.
    limit: u64,
    /// Whether the module requests the same call again.
    pub more: bool,
    /// Whether the module requests [`Call::Rest`], before any other call.
    pub rest: bool,
    /// Whether the module refuses the state that it was given.
    pub refused: bool,
}

impl Pending {
    fn nothing(call: CallName) -> Self {
        let (place, progress, delivered, limit) = Default::default();
        Self { call, place, progress, delivered, limit, more: false, rest: false, refused: false }
    }

    /// Returns the units that the output of a batch costs, as far as it was checked.
    pub fn batch_units(&self) -> u64 {
        (self.progress.bytes as u64).saturating_add((self.progress.frames as u64).saturating_mul(FRAME_UNITS))
    }

    /// Returns the units that other output costs: one for each byte.
    pub fn call_units(&self) -> u64 {
        self.place.len() as u64
    }

    /// Returns whether all of it was delivered.
    pub fn is_delivered(&self) -> bool {
        self.delivered == self.place.len()
    }
}

impl Loaded {
    /// Returns the fuel of a call that is no batch and may cost `units`. Of these, a class is only proved of
    /// calls for the rest of a batch's output.
    fn fuel(&self, call: CallName, units: u64) -> i64 {
        if call == CallName::Rest { self.class.fuel(units) } else { ModuleClass::Metered.fuel(units) }
    }

    /// Loads a module of the operator.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Loaded::under`].
    pub fn new(engines: &Engines, plan: &ModulePlan) -> Result<Self, wasmtime::Error> {
        Self::under(engines, plan, &Meters::default(), &Eviction::default(), (None, &[]))
    }

    /// Loads a module under the meters of its credential. If its bound is violated, `eviction` ends its
    /// instances. Shared memory is taken from `region`, or created without one. `areas` are those that
    /// the manifest names, in its order.
    ///
    /// # Errors
    ///
    /// Returns an error if `plan.code` was not compiled for this engine, or if there is no memory for the
    /// module's large texts.
    pub fn under(
        engines: &Engines,
        plan: &ModulePlan,
        meters: &Meters,
        eviction: &Eviction,
        (region, areas): (Option<Region>, &[Area]),
    ) -> Result<Self, wasmtime::Error> {
        let engine = engines.of(plan.class);
        let module = load(engine, &plan.code)?;
        let has_slow_path = module.get_export(names::MESSAGE).is_some();
        let marks_packets = module.imports().any(|i| i.name() == names::PACKET);
        let texts = match plan.texts.len() {
            0 => None,
            bytes => {
                let mut memory = shared(region.as_ref(), bytes)?;
                memory.slice_mut(0, bytes).copy_from_slice(&plan.texts);
                Some(Arc::new(memory))
            }
        };
        // Nothing interrupts these calls.
        let deadline_ns = (plan.class == ModuleClass::Bounded).then_some(plan.limits.deadline_ns);
        if deadline_ns.is_some() {
            engines.watchdog().enter(plan.hash, eviction.clone());
        }
        Ok(Self {
            engine: engine.clone(),
            has_slow_path,
            forwards: module.get_export(names::PUSH).is_some(),
            marks_packets,
            module,
            schema: Arc::new(Schema::new(&plan.manifest).forwarding(plan.terms.forward)),
            limits: plan.limits,
            most_state: plan.manifest.state.map_or(0, |state| state.max),
            seed: plan.seed.map(|seed| seed_of(seed, &plan.name)),
            parameters: plan.parameters.as_slice().into(),
            texts,
            areas: areas.iter().cloned().zip(plan.manifest.shared.iter().map(|area| area.access)).collect(),
            polling_page: engines.polling_page().clone(),
            region,
            class: plan.class,
            hash: plan.hash,
            deadline_ns,
            watchdog: engines.watchdog().clone(),
            apart: engines.apart().clone(),
            meters: meters.clone(),
        })
    }

    /// Returns the bytes of a region that `instances` of a module use at a time.
    pub fn region_size(plan: &ModulePlan, instances: usize) -> usize {
        let control = std::iter::repeat_n(layout::CONTROL_BYTES as usize, instances);
        Region::size(control.chain([plan.texts.len()]))
    }

    pub fn class(&self) -> ModuleClass {
        self.class
    }

    /// Returns whether the module forwards packets. Its batches are calls of `flame_push`.
    pub fn forwards(&self) -> bool {
        self.forwards
    }

    /// Returns the limits of the plan.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the module with this deadline of batches and of calls for the rest of their output, which
    /// nothing interrupts, if its own is later.
    #[must_use]
    pub fn due_in(self, deadline: Duration) -> Self {
        let deadline_ns = self.deadline_ns.map(|own| own.min(deadline.as_nanos() as u64));
        Self { deadline_ns, ..self }
    }

    /// Returns the reason why a call has passed its deadline. Its instructions are not counted, but none
    /// takes longer than [`UNIT_MAX`]. Calls other than batches count theirs.
    fn cut_off(&self, call: CallName, deadline_ns: u64) -> CutOff {
        let proved = self.limits.rests.and_then(|rests| match call {
            CallName::Batch | CallName::Push => Some(rests.of_batch(self.limits.batch)),
            CallName::Rest => Some(rests.each),
            _ => None,
        });
        let longest = proved.map(|units| UNIT_MAX.as_nanos().saturating_mul(units.into()));
        match longest {
            Some(longest) if longest < deadline_ns.into() => CutOff::Bound,
            Some(_) | None => CutOff::Time,
        }
    }

    /// Returns the processor time of a call that nothing interrupts. A call for the rest of the output
    /// follows a batch at once, and has as much.
    pub(crate) fn deadline_ns(&self, call: CallName) -> u64 {
        let follows_packets = call.is_batch() || call == CallName::Rest;
        self.deadline_ns.filter(|_| follows_packets).unwrap_or(self.limits.deadline_ns)
    }

    /// Returns a thread for a call, or `None` where there is none: a confined process starts no threads.
    pub(crate) fn thread(&self) -> Option<Idle> {
        self.region.is_none().then(|| self.apart.take())?
    }

    /// Returns whether the module has a slow instance, which merges the messages of its fast instances.
    pub fn has_slow_path(&self) -> bool {
        self.has_slow_path
    }
}

/// Creates shared memory, or takes it from a region.
fn shared(region: Option<&Region>, bytes: usize) -> Result<SharedMemory, BlockError> {
    region.map_or_else(|| SharedMemory::new(bytes), |region| region.take(bytes))
}

/// The counters that the rewriter put into the module (see `flame_meter::rewrite`).
struct Meter {
    fuel: Global,
    packet_budget: Global,
    packet: Global,
    count: Global,
    place: Global,
}

/// A running module: its store, its windows, and its calls.
///
/// After a [`Fault`] the instance must be dropped: its memory may be inconsistent.
pub struct Instance {
    /// Declared before the store, because it must be dropped before the memory.
    pub(crate) watch: Option<Watching>,
    pub(crate) store: Store<Quota>,
    memory: Memory,
    control: SharedMemory,
    init: Option<TypedFunc<(i32, i32), i64>>,
    /// `flame_batch`, or `flame_push` of a module that forwards packets.
    pub(crate) batch: Batches,
    /// The packets of a batch whose output is taken, of a module that forwards, and which of them it sent.
    sent: Option<Sent>,
    tick: Option<TypedFunc<i64, i64>>,
    end: Option<TypedFunc<i64, i64>>,
    message: Option<TypedFunc<(i32, i32), i64>>,
    serve: Option<TypedFunc<(i32, i32), i64>>,
    done: Option<TypedFunc<(i32, i32), i64>>,
    rest: Option<TypedFunc<(), i64>>,
    export: Option<TypedFunc<(), i64>>,
    import: Option<TypedFunc<(i32, i32), i64>>,
    pressure: Option<TypedFunc<i64, i64>>,
    meter: Option<Meter>,
    panic_text: Option<u32>,
    /// The number of packets in the module's counter of those of a batch.
    counted_packets: u32,
    pub(crate) loaded: Loaded,
    restarted: bool,
    /// Whether Wasmtime counts executed instructions.
    counts: bool,
    /// The counters of a module that counts for itself.
    counters: Vec<Global>,
}

/// The names of the exported globals (i64) of a module that counts for itself begin so; a number from 0
/// follows.
pub const COUNTER: &str = "profile:";

/// The fuel of a counting store before each call.
const COUNTED_FROM: u64 = 1 << 62;

const BATCH_AT: i32 = (layout::WINDOW + layout::BATCH_OFFSET) as i32;
const DATA_AT: i32 = (layout::WINDOW + layout::DATA_OFFSET) as i32;

impl Instance {
    /// Instantiates a module and maps `windows`. [`Call::Init`] must be the next call.
    ///
    /// # Errors
    ///
    /// Returns a fault if the module cannot be instantiated within its limits, or if a window cannot be
    /// mapped.
    pub fn new(loaded: &Loaded, windows: &[Mapping], restarted: bool) -> Result<Self, Fault> {
        let start = |text: String| Fault {
            call: CallName::Instantiation,
            kind: FaultKind::Start(text),
            packet: None,
            backtrace: Vec::new(),
            panic_message: None,
        };
        let limits = &loaded.limits;
        let mut store = Store::new(&loaded.engine, Quota::new(limits, loaded.meters.clone()));
        store.limiter(|quota| quota);
        let mut linker = Linker::new(&loaded.engine);
        // The rewriter replaced every direct call, so these are called only through a table.
        linker.func_wrap(names::IMPORTS, names::PACKET, |_: i32| {}).map_err(|e| start(e.to_string()))?;
        linker.func_wrap(names::IMPORTS, names::COLD, || {}).map_err(|e| start(e.to_string()))?;
        let counts = store.set_fuel(COUNTED_FROM).is_ok();
        if loaded.class == ModuleClass::Metered {
            store.set_epoch_deadline(1);
            store.epoch_deadline_async_yield_and_update(1);
        }
        let instance = block_on(linker.instantiate_async(&mut store, &loaded.module))
            .map_err(|e| start(root_cause(&e)))?;
        let memory = instance
            .get_memory(&mut store, names::MEMORY)
            .ok_or_else(|| start(format!("export {:?}: expected a memory", names::MEMORY)))?;
        let base = memory.data_ptr(&store);
        let control = shared(loaded.region.as_ref(), layout::CONTROL_BYTES as usize)
            .map_err(|e| start(e.to_string()))?;
        let own = Mapping::of(&control, layout::WINDOW);
        let polling_page = Mapping::of(&loaded.polling_page, layout::POLL);
        let texts = loaded.texts.as_ref().map(|texts| Mapping::of(texts, layout::TEXTS));
        let hosts = [&own, &polling_page].into_iter().chain(&texts).chain(windows);
        let areas = loaded.areas.iter().enumerate();
        let areas = areas.map(|(number, (area, access))| (Mapping::of_area(area, number), *access));
        for (window, access) in hosts.map(|window| (*window, Access::Read)).chain(areas) {
            map_window(base, window, access).map_err(|e| start(format!("mapping a window: {e}")))?;
        }
        let watch = loaded.deadline_ns.map(|deadline_ns| {
            // The page lies in the mapping just made.
            let page = base.wrapping_add(layout::POLL as usize);
            loaded.watchdog.watch(page, deadline_ns).map_err(|e| start(format!("watching its calls: {e}")))
        });
        let watch = watch.transpose()?.map(Watching);
        let batch = match loaded.forwards {
            false => instance.get_typed_func(&mut store, names::BATCH).map(Batches::Measure),
            true => instance.get_typed_func(&mut store, names::PUSH).map(Batches::Forward),
        };
        let batch = batch.map_err(|e| start(e.to_string()))?;
        let mut global = |name: &str| instance.get_global(&mut store, name);
        let meter = match (
            global(names::FUEL),
            global(names::PACKET_BUDGET),
            global(names::PACKET_INDEX),
            global(names::PACKET_COUNT),
            global(names::CUT_OFF_LOOP),
        ) {
            (Some(fuel), Some(packet_budget), Some(packet), Some(count), Some(place)) => {
                Some(Meter { fuel, packet_budget, packet, count, place })
            }
            _ => None,
        };
        if let Some(meter) = &meter {
            let budget = Val::I64(loaded.class.fuel(limits.packet_budget));
            meter.packet_budget.set(&mut store, budget).map_err(|e| start(e.to_string()))?;
        }
        let counter = |i| instance.get_global(&mut store, &format!("{}{i}", COUNTER));
        let counters = (0..).map_while(counter).collect();
        let panic_text = match instance.get_export(&mut store, names::PANIC) {
            Some(Extern::Global(g)) => g.get(&mut store).i32().map(|address| address as u32),
            _ => None,
        };
        let init = instance.get_typed_func(&mut store, names::INIT).ok();
        let tick = instance.get_typed_func(&mut store, names::TICK).ok();
        let end = instance.get_typed_func(&mut store, names::END).ok();
        let message = instance.get_typed_func(&mut store, names::MESSAGE).ok();
        let serve = instance.get_typed_func(&mut store, names::SERVE).ok();
        let done = instance.get_typed_func(&mut store, names::DONE).ok();
        let rest = instance.get_typed_func(&mut store, names::REST).ok();
        let export = instance.get_typed_func(&mut store, names::EXPORT).ok();
        let import = instance.get_typed_func(&mut store, names::IMPORT).ok();
        let pressure = instance.get_typed_func(&mut store, names::PRESSURE).ok();
        let loaded = loaded.clone();
        Ok(Self {
            watch,
            store,
            memory,
            control,
            init,
            batch,
            sent: None,
            tick,
            end,
            message,
            serve,
            done,
            rest,
            export,
            import,
            pressure,
            meter,
            panic_text,
            counted_packets: 0,
            loaded,
            restarted,
            counts,
            counters,
        })
    }

    /// Returns whether the module has a function for the call. Without one, the call ends at once.
    pub(crate) fn has(&self, call: &Call) -> bool {
        match call {
            Call::Batch { .. } | Call::Push { .. } => true,
            Call::Init { .. } => self.init.is_some(),
            Call::Message(_) => self.message.is_some(),
            Call::Serve(_) => self.serve.is_some(),
            Call::Done(_) => self.done.is_some(),
            Call::Tick { .. } => self.tick.is_some(),
            Call::End { .. } => self.end.is_some(),
            Call::Rest => self.rest.is_some(),
            Call::Export => self.export.is_some(),
            Call::Import(_) => self.import.is_some(),
            Call::Pressure { .. } => self.pressure.is_some(),
        }
    }

    /// Sets up the control area and the counters for `call`, which may cost `units`. A batch has the budgets
    /// of its packets instead.
    pub(crate) fn prepare(&mut self, call: &Call, units: u64) -> Result<Option<Function>, Fault> {
        if self.counts {
            self.store
                .set_fuel(COUNTED_FROM)
                .map_err(|e| self.fault(call.name(), FaultKind::Start(e.to_string())))?;
        }
        let function = match call {
            Call::Batch { descriptors, count, lost, link, .. }
            | Call::Push { descriptors, count, lost, link, .. } => {
                let flags = if self.restarted { batch_flags::RESTARTED } else { 0 };
                self.restarted = false;
                let (descriptors, count, lost, link) = (*descriptors, *count, *lost, link.0.into());
                let queue = if let Call::Batch { queue, .. } = call { *queue } else { 0 };
                let header = BatchHeader { descriptors, count, lost, flags, link, queue, reserved: 0 };
                self.control
                    .slice_mut(layout::BATCH_OFFSET as usize, BatchHeader::SIZE)
                    .copy_from_slice(&header.to_bytes());
                match (&self.batch, call) {
                    (Batches::Measure(_), Call::Batch { .. }) => {
                        Some(Function::Batch { input: 0, at: BATCH_AT })
                    }
                    (Batches::Forward(_), Call::Push { port, .. }) => {
                        self.sent = Some(Sent::of(count));
                        Some(Function::Batch { input: *port, at: BATCH_AT })
                    }
                    // A defect here: the owner asks for a call that the module has not.
                    _ => return Err(self.fault(call.name(), FaultKind::Start("no such export".to_owned()))),
                }
            }
            Call::Init { role: who, workers, tick_ns, interval_ns } => match self.init.clone() {
                Some(function) => {
                    let (role, worker) = match *who {
                        Role::Fast { worker } => (role::FAST, worker as u32),
                        Role::Slow => (role::SLOW, 0),
                    };
                    let (abi, workers) = (flame_abi::VERSION, *workers as u32);
                    let (tick_ns, interval_ns) = (*tick_ns, *interval_ns);
                    let seed = self.loaded.seed.map_or(0, |seed| instance_seed(seed, *who));
                    let header = InitHeader { abi, role, worker, workers, tick_ns, interval_ns, seed };
                    let parameters = self.loaded.parameters.clone();
                    Some(Function::Data(function, self.data(call, &[&header.to_bytes(), &parameters])?))
                }
                None => None,
            },
            Call::Message(bytes) | Call::Serve(bytes) | Call::Done(bytes) => {
                let function = match call {
                    Call::Serve(_) => &self.serve,
                    Call::Done(_) => &self.done,
                    _ => &self.message,
                };
                match function.clone() {
                    Some(function) => Some(Function::Data(function, self.data(call, &[bytes])?)),
                    None => None,
                }
            }
            Call::Tick { now_ns } => self.tick.clone().map(|f| Function::Number(f, *now_ns as i64)),
            Call::End { now_ns } => self.end.clone().map(|f| Function::Number(f, *now_ns as i64)),
            Call::Rest => self.rest.clone().map(Function::None),
            Call::Export => self.export.clone().map(Function::None),
            Call::Import(state) => match self.import.clone() {
                Some(function) => Some(Function::Data(function, self.data(call, &[state])?)),
                None => None,
            },
            Call::Pressure { free } => self.pressure.clone().map(|f| Function::Number(f, *free as i64)),
        };
        let Some(meter) = &self.meter else { return Ok(function) };
        let store = &mut self.store;
        let set = match call {
            Call::Batch { count, .. } | Call::Push { count, .. } => {
                // A module that marks its packets receives the budget of each packet at its mark. Any other
                // receives the budgets of the whole batch at once, and needs no setup of marks.
                let budget = self.loaded.class.fuel(self.loaded.limits.packet_budget);
                if self.loaded.marks_packets {
                    let first = meter.fuel.set(&mut *store, Val::I64(budget));
                    let second = meter.packet.set(&mut *store, Val::I32(-1));
                    // Only the host changes it.
                    let is_set = std::mem::replace(&mut self.counted_packets, *count) == *count;
                    let third =
                        if is_set { Ok(()) } else { meter.count.set(&mut *store, Val::I32(*count as i32)) };
                    first.and(second).and(third)
                } else {
                    meter.fuel.set(&mut *store, Val::I64(budget * i64::from(*count)))
                }
            }
            _ => {
                let first = meter.fuel.set(&mut *store, Val::I64(self.loaded.fuel(call.name(), units)));
                let second = meter.packet.set(&mut *store, Val::I32(-1));
                self.counted_packets = 0;
                first.and(second).and(meter.count.set(&mut *store, Val::I32(0)))
            }
        };
        set.map_err(|e| self.fault(call.name(), FaultKind::Start(e.to_string())))?;
        Ok(function)
    }

    /// Writes the data of a call into the control area and returns their address and length.
    fn data(&mut self, call: &Call, parts: &[&[u8]]) -> Result<(i32, i32), Fault> {
        let len = parts.iter().map(|part| part.len()).sum();
        let area = self.control.slice_mut(layout::DATA_OFFSET as usize, layout::MAX_DATA as usize);
        let Some(mut area) = area.get_mut(..len) else {
            let text = format!("data of {len} bytes, at most {} fit", layout::MAX_DATA);
            return Err(self.fault(call.name(), FaultKind::Start(text)));
        };
        for part in parts {
            let (place, rest) = area.split_at_mut(part.len());
            place.copy_from_slice(part);
            area = rest;
        }
        Ok((DATA_AT, len as i32))
    }

    /// Returns the units that the last call, which had `units`, counted itself.
    pub(crate) fn counted(&mut self, call: CallName, units: u64) -> u64 {
        let left = self.meter.as_ref().and_then(|meter| meter.fuel.get(&mut self.store).i64());
        left.map_or(0, |left| self.loaded.fuel(call, units).saturating_sub(left).max(0) as u64)
    }

    /// Returns the number of instructions that the last call executed by Wasmtime's own count, or `None`
    /// unless the engine counts.
    pub fn executed(&self) -> Option<u64> {
        self.store.get_fuel().ok().filter(|_| self.counts).map(|left| COUNTED_FROM - left)
    }

    /// Passes the value of each counter of a module that counts for itself ([`COUNTER`]), with its
    /// number from 0. Other modules have none.
    pub fn counters(&mut self, mut each: impl FnMut(usize, u64)) {
        for (i, counter) in self.counters.iter().enumerate() {
            each(i, counter.get(&mut self.store).i64().unwrap_or_default() as u64);
        }
    }

    /// Returns the bytes by which the memory of the instance may still grow, if [`Call::Pressure`] is due: it
    /// is little, or more was refused.
    pub fn pressure(&mut self) -> Option<u64> {
        self.pressure.as_ref()?;
        let size = self.memory.data_size(&self.store);
        self.store.data_mut().pressure(size)
    }

    /// Records that the module was informed about its memory.
    pub(crate) fn note_pressure(&mut self) {
        let size = self.memory.data_size(&self.store);
        self.store.data_mut().note_pressure(size);
    }

    /// Returns all memory that the module owns, for tests that search it for data it must not hold.
    pub fn owned_memory(&self) -> &[u8] {
        self.memory.data(&self.store)
    }

    /// Locates the output of a call, which may cost `limit` units.
    pub(crate) fn locate(
        &mut self,
        call: CallName,
        result: wasmtime::Result<i64>,
        allowance: &Allowance,
        limit: u64,
    ) -> Result<Pending, Fault> {
        let value = match result {
            Ok(value) => value as u64,
            Err(error) => return Err(self.trapped(call, &error, allowance)),
        };
        let nothing = Pending { limit, ..Pending::nothing(call) };
        match call {
            CallName::Import if value == output::TAKEN => return Ok(nothing),
            CallName::Import if value == output::REFUSED => return Ok(Pending { refused: true, ..nothing }),
            CallName::Import => return Err(self.fault(call, FaultKind::Import(value))),
            _ => {}
        }
        let output::Value { address, bytes, more, rest } = output::unpack(value);
        if call == CallName::Export && (more || rest) {
            return Err(self.fault(call, FaultKind::ExportParts));
        }
        if rest && self.rest.is_none() {
            return Err(self.fault(call, FaultKind::NoRest));
        }
        let most_state = self.loaded.most_state;
        let limit = if call == CallName::Export { most_state } else { self.loaded.limits.output_per_call };
        let size = self.memory.data_size(&self.store);
        let outside = u64::from(address) + u64::from(bytes) > size as u64;
        if bytes > limit || (bytes > 0 && outside) {
            return Err(self.fault(call, FaultKind::OutputPlace { address, bytes, memory: size, limit }));
        }
        let place = if bytes == 0 { 0..0 } else { address as usize..address as usize + bytes as usize };
        if call == CallName::Export {
            let progress = CheckProgress { bytes: place.len(), ..CheckProgress::default() };
            return Ok(Pending { place, progress, ..nothing });
        }
        // Packets are sent by the output of their batch, and by the calls for the rest of it.
        if !call.is_batch() && call != CallName::Rest {
            self.sent = None;
        }
        Ok(Pending { place, more, rest, ..nothing })
    }

    /// Checks a further piece of output. Returns whether all of it is checked.
    ///
    /// # Errors
    ///
    /// Returns a fault if the output does not fit the manifest or its limits. The instance must then be
    /// dropped.
    pub fn check(&mut self, pending: &mut Pending, piece: usize) -> Result<bool, Fault> {
        let Pending { call, place, progress, limit, .. } = pending;
        let (call, limit) = (*call, *limit);
        if progress.bytes == place.len() {
            return Ok(true);
        }
        let (bytes, sent) = (&self.memory.data(&self.store)[place.clone()], self.sent.as_mut());
        let has_slow_path = self.loaded.has_slow_path;
        if let Err(error) = self.loaded.schema.check_piece(bytes, progress, piece, has_slow_path, sent) {
            return Err(self.fault(call, FaultKind::Output(Box::new(error))));
        }
        let (bytes, frames, messages) = (progress.bytes, progress.frames, progress.counts.messages);
        let is_over = bytes == place.len();
        let most = self.loaded.limits.messages;
        if is_over && messages > u64::from(most) {
            return Err(self.fault(call, FaultKind::Messages { found: messages, limit: most }));
        }
        let units = pending.batch_units();
        if units > limit {
            return Err(self.fault(call, FaultKind::OutputBudget { bytes, frames, units, limit }));
        }
        Ok(is_over)
    }

    /// Returns the next piece of output that was checked and not delivered, or `None` if all was delivered. A
    /// state is delivered whole.
    pub fn next_piece<'a>(&'a self, pending: &mut Pending, piece: usize) -> Option<Output<'a>> {
        let all = &self.memory.data(&self.store)[pending.place.clone()];
        let rest = all.get(pending.delivered..).filter(|rest| !rest.is_empty())?;
        let is_whole = rest.len() <= piece || pending.call == CallName::Export;
        let length = if is_whole { rest.len() } else { first_frames(rest, piece) };
        pending.delivered += length;
        Some(Output { bytes: &rest[..length], counts: pending.progress.counts })
    }

    fn trapped(&mut self, call: CallName, error: &wasmtime::Error, allowance: &Allowance) -> Fault {
        let trap = error.downcast_ref::<Trap>();
        let spent = match &self.meter {
            Some(meter) => meter.fuel.get(&mut self.store).i64().is_some_and(|fuel| fuel < 0),
            None => false,
        };
        let deadline_ns = self.loaded.deadline_ns(call);
        let is_watched = self.loaded.deadline_ns.is_some() && trap == Some(&Trap::MemoryOutOfBounds);
        let deadline = is_watched.then_some(deadline_ns);
        let revoked = deadline.filter(|_| self.watch.as_ref().is_some_and(|w| w.0.was_revoked()));
        let has_diverged = match &self.meter {
            Some(meter) => meter.packet_budget.get(&mut self.store).i64() == Some(-1),
            None => false,
        };
        let kind = if spent && trap == Some(&Trap::UnreachableCodeReached) {
            let place = self.meter.as_ref().and_then(|m| m.place.get(&mut self.store).i32());
            let place = place.map(|at| at as u32).filter(|at| *at > 0);
            match call {
                _ if has_diverged => FaultKind::Diverged { place },
                CallName::Batch | CallName::Push => {
                    FaultKind::Budget { limit: self.loaded.limits.packet_budget, place, calls: 1 }
                }
                _ => allowance.used_up(place),
            }
        } else if let Some(deadline_ns) = revoked {
            let cause = self.loaded.cut_off(call, deadline_ns);
            self.loaded.watchdog.cut_off(self.loaded.hash, cause);
            FaultKind::CutOff { deadline_ns, cause }
        } else {
            FaultKind::Trap(trap.map_or_else(|| root_cause(error), Trap::to_string))
        };
        let mut fault = self.fault(call, kind);
        if let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() {
            fault.backtrace = backtrace
                .frames()
                .iter()
                .take(MAX_FRAMES)
                .map(|frame| Frame {
                    index: frame.func_index(),
                    function: frame.func_name().map_or_else(
                        || format!("function {}", frame.func_index()),
                        flame_plan::readable_name,
                    ),
                    offset: frame.func_offset(),
                })
                .collect();
        }
        fault
    }

    pub(crate) fn fault(&mut self, call: CallName, kind: FaultKind) -> Fault {
        let packet = match &self.meter {
            Some(meter) if self.loaded.marks_packets && call.is_batch() => {
                meter.packet.get(&mut self.store).i32().and_then(|p| u32::try_from(p).ok())
            }
            _ => None,
        };
        let panic_message = self.panic_text.and_then(|address| {
            let text = self.memory.data(&self.store).get(address as usize..)?;
            let text = &text[..text.iter().take(512).position(|b| *b == 0).unwrap_or(0)];
            // The module wrote this text, so only printable characters may reach a terminal.
            let clean = String::from_utf8_lossy(text).replace(char::is_control, " ");
            (!clean.is_empty()).then_some(clean)
        });
        Fault { call, kind, packet, backtrace: Vec::new(), panic_message }
    }
}

/// The watch of an instance, which must end before the instance's memory.
pub(crate) struct Watching(pub(crate) Arc<Watch>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.retire();
    }
}

/// Returns the next number of a generator. (SplitMix64, by Steele, Lea and Flood, 2014.)
fn next_seed(seed: u64, number: u64) -> u64 {
    let mut n = seed.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// Returns the seed of a module, which follows from that of the run and the module's name there.
fn seed_of(seed: u64, module: &str) -> u64 {
    module.bytes().fold(seed, |seed, byte| next_seed(seed, byte.into()))
}

/// Returns the seed of one instance: a number of its own, which follows from the module's.
fn instance_seed(seed: u64, role: Role) -> u64 {
    match role {
        Role::Slow => next_seed(seed, 0),
        Role::Fast { worker } => next_seed(seed, worker as u64 + 1),
    }
}

fn root_cause(error: &wasmtime::Error) -> String {
    error.root_cause().to_string()
}

/// The maximum number of functions in a backtrace.
const MAX_FRAMES: usize = 20;
