use crate::engine::Engines;
use crate::fault::{Fault, FaultKind, Frame, MAX_NAME};
use crate::memory::{Mapping, load, map_window};
use flame_abi::layout::{self, names};
use flame_abi::{BatchHeader, InitHeader, LinkType, batch_flags, output, role};
use flame_block::SharedMemory;
use flame_plan::{Limits, Meters, ModuleClass, ModulePlan};
use flame_record::{FrameCounts, Schema};
use std::fmt::Write;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use wasmtime::{
    Engine, Extern, Global, Linker, Memory, Module, ResourceLimiter, Store, Trap, TypedFunc, Val,
    WasmBacktrace, WasmParams, WasmResults,
};

/// A module's code, loaded once for all its instances.
#[derive(Clone)]
pub struct Loaded {
    engine: Engine,
    module: Module,
    schema: Arc<Schema>,
    limits: Limits,
    parameters: Arc<[u8]>,
    meters: Meters,
    has_slow_path: bool,
    marks_packets: bool,
    class: ModuleClass,
}

/// Which part of a module an instance is, and of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Gets packets on this worker.
    Fast { worker: usize },
    /// Gets the fast instances' messages.
    Slow,
}

/// Checked output of one call, in the module's memory.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    pub bytes: &'a [u8],
    pub counts: FrameCounts,
}

impl Loaded {
    /// Fails only if `plan.code` was not compiled for this engine.
    pub fn new(engines: &Engines, plan: &ModulePlan) -> Result<Self, wasmtime::Error> {
        let engine = engines.of(plan.class);
        let module = load(engine, &plan.code)?;
        let has_slow_path = module.get_export(names::MESSAGE).is_some();
        let marks_packets = module.imports().any(|i| i.name() == names::PACKET);
        Ok(Self {
            engine: engine.clone(),
            has_slow_path,
            marks_packets,
            module,
            schema: Arc::new(Schema::new(&plan.manifest)),
            limits: plan.limits,
            parameters: plan.parameters.as_slice().into(),
            class: plan.class,
            meters: plan.terms.meters.clone(),
        })
    }

    pub fn class(&self) -> ModuleClass {
        self.class
    }

    /// Whether the module merges its fast instances' messages in a slow one.
    pub fn has_slow_path(&self) -> bool {
        self.has_slow_path
    }
}

/// Counts what a store may still allocate.
struct Quota {
    memory: usize,
    table_elements: usize,
    /// Of the credential, with what this store took of its memory.
    meters: Meters,
    held: u64,
}

impl Drop for Quota {
    fn drop(&mut self) {
        self.meters.disown(self.held);
    }
}

impl ResourceLimiter for Quota {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current) as u64;
        if desired > self.memory || !self.meters.own(more) {
            return Ok(false);
        }
        self.held += more;
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        // The quota is over all tables together, so each growth uses it up.
        match self.table_elements.checked_sub(desired.saturating_sub(current)) {
            Some(rest) => self.table_elements = rest,
            None => return Ok(false),
        }
        Ok(true)
    }
}

/// The counters that the rewriter put into the module (see `flame_bounds::rewrite`).
struct Meter {
    fuel: Global,
    packet_budget: Global,
    packet: Global,
    count: Global,
    place: Global,
}

/// One running module: a store of its own, its windows, and the calls.
///
/// After a [`Fault`] the instance must be dropped: its memory may be inconsistent.
pub struct Instance {
    store: Store<Quota>,
    memory: Memory,
    control: SharedMemory,
    init: Option<TypedFunc<(i32, i32), i64>>,
    batch: TypedFunc<i32, i64>,
    tick: Option<TypedFunc<i64, i64>>,
    end: Option<TypedFunc<i64, i64>>,
    message: Option<TypedFunc<(i32, i32), i64>>,
    meter: Option<Meter>,
    panic_text: Option<u32>,
    loaded: Loaded,
    restarted: bool,
    /// Whether Wasmtime counts what is executed.
    counts: bool,
}

/// What a counting store is filled with before each call.
const COUNTED_FROM: u64 = 1 << 62;

const BATCH_AT: i32 = (layout::WINDOW + layout::BATCH_OFFSET) as i32;
const DATA_AT: i32 = (layout::WINDOW + layout::DATA_OFFSET) as i32;

impl Instance {
    /// Instantiates and maps `windows`; [`Instance::start`] comes next.
    pub fn new(loaded: &Loaded, windows: &[Mapping], restarted: bool) -> Result<Self, Fault> {
        let start = |text: String| Fault {
            call: "instantiation",
            kind: FaultKind::Start(text),
            packet: None,
            backtrace: Vec::new(),
            said: None,
        };
        let limits = &loaded.limits;
        let quota = Quota {
            memory: limits.memory as usize,
            table_elements: limits.table_elements as usize,
            meters: loaded.meters.clone(),
            held: 0,
        };
        let mut store = Store::new(&loaded.engine, quota);
        store.limiter(|quota| quota);
        let mut linker = Linker::new(&loaded.engine);
        // The rewriter replaced every direct call; what remains can only come through a table.
        linker.func_wrap(names::IMPORTS, names::PACKET, |_: i32| {}).map_err(|e| start(e.to_string()))?;
        linker.func_wrap(names::IMPORTS, names::RARE, || {}).map_err(|e| start(e.to_string()))?;
        let counts = store.set_fuel(COUNTED_FROM).is_ok();
        if loaded.class == ModuleClass::Metered {
            store.set_epoch_deadline(1);
            store.epoch_deadline_async_yield_and_update(1);
        }
        let instance = to_the_end(linker.instantiate_async(&mut store, &loaded.module))
            .map_err(|e| start(root_cause(&e)))?;
        let memory = instance
            .get_memory(&mut store, names::MEMORY)
            .ok_or_else(|| start(format!("export {:?}: expected a memory", names::MEMORY)))?;
        let base = memory.data_ptr(&store);
        let control = SharedMemory::new(layout::CONTROL_BYTES as usize).map_err(|e| start(e.to_string()))?;
        let own = Mapping { fd: control.fd(), offset: 0, bytes: control.bytes(), at: layout::WINDOW };
        for window in [own].iter().chain(windows) {
            map_window(base, *window).map_err(|e| start(format!("mapping a window: {e}")))?;
        }
        let batch = instance.get_typed_func(&mut store, names::BATCH).map_err(|e| start(e.to_string()))?;
        let mut global = |name: &str| instance.get_global(&mut store, name);
        let meter = match (
            global("flame:fuel"),
            global("flame:packet_budget"),
            global("flame:packet"),
            global("flame:count"),
            global("flame:loop"),
        ) {
            (Some(fuel), Some(packet_budget), Some(packet), Some(count), Some(place)) => {
                Some(Meter { fuel, packet_budget, packet, count, place })
            }
            _ => None,
        };
        if let Some(meter) = &meter {
            let budget = Val::I64(packet_budget(limits));
            meter.packet_budget.set(&mut store, budget).map_err(|e| start(e.to_string()))?;
        }
        let panic_text = match instance.get_export(&mut store, names::PANIC) {
            Some(Extern::Global(g)) => g.get(&mut store).i32().map(|address| address as u32),
            _ => None,
        };
        let init = instance.get_typed_func(&mut store, names::INIT).ok();
        let tick = instance.get_typed_func(&mut store, names::TICK).ok();
        let end = instance.get_typed_func(&mut store, names::END).ok();
        let message = instance.get_typed_func(&mut store, names::MESSAGE).ok();
        let loaded = loaded.clone();
        Ok(Self {
            store,
            memory,
            control,
            init,
            batch,
            tick,
            end,
            message,
            meter,
            panic_text,
            loaded,
            restarted,
            counts,
        })
    }

    /// Calls `flame_init` with the parameters.
    pub fn start(&mut self, who: Role, workers: usize, tick_ns: u64, interval_ns: u64) -> Result<(), Fault> {
        let Some(init) = self.init.clone() else { return Ok(()) };
        let (role, worker) = match who {
            Role::Fast { worker } => (role::FAST, worker as u32),
            Role::Slow => (role::SLOW, 0),
        };
        let header = InitHeader {
            abi: flame_abi::VERSION,
            role,
            worker,
            workers: workers as u32,
            tick_ns,
            interval_ns,
        };
        let parameters = self.loaded.parameters.clone();
        let len = InitHeader::SIZE + parameters.len();
        let area = self.control.slice_mut(layout::DATA_OFFSET as usize, layout::MAX_DATA as usize);
        let Some(area) = area.get_mut(..len) else {
            return Err(self.fault(
                names::INIT,
                FaultKind::Start(format!("parameters of {len} bytes, at most {} fit", layout::MAX_DATA)),
            ));
        };
        area[..InitHeader::SIZE].copy_from_slice(&header.to_bytes());
        area[InitHeader::SIZE..].copy_from_slice(&parameters);
        self.refuel(names::INIT)?;
        let result = self.call(&init, (DATA_AT, len as i32));
        self.output(names::INIT, result).map(drop)
    }

    /// Calls `flame_batch` on `count` descriptors of packets of one link type that begin at
    /// `descriptors` in the window. On a
    /// fault, `Fault::packet` tells how far it came.
    pub fn batch(
        &mut self,
        descriptors: u32,
        count: u32,
        lost: u64,
        link: LinkType,
    ) -> Result<Output<'_>, Fault> {
        self.prepare(descriptors, count, lost, link)?;
        let batch = self.batch.clone();
        let result = self.call(&batch, BATCH_AT);
        self.output(names::BATCH, result).map(|(out, _)| out)
    }

    /// The same for a metered module, whose instance comes back when the batch is done.
    pub fn begin(mut self: Box<Self>, descriptors: u32, count: u32, lost: u64, link: LinkType) -> Running {
        let prepared = self.prepare(descriptors, count, lost, link);
        Running(Box::pin(async move {
            let called = match prepared {
                Ok(()) => {
                    let batch = self.batch.clone();
                    Ok(batch.call_async(&mut self.store, BATCH_AT).await)
                }
                Err(fault) => Err(fault),
            };
            (self, Called(called))
        }))
    }

    /// What a batch that was [begun](Instance::begin) returned.
    pub fn finish(&mut self, called: Called) -> Result<Output<'_>, Fault> {
        self.output(names::BATCH, called.0?).map(|(out, _)| out)
    }

    /// Instructions that the last call executed, by Wasmtime's own count; none unless the engine counts.
    pub fn executed(&self) -> Option<u64> {
        self.store.get_fuel().ok().filter(|_| self.counts).map(|left| COUNTED_FROM - left)
    }

    /// Calls to the end, slice by slice if it is metered.
    fn call<P: WasmParams + Sync, R: WasmResults + Sync>(
        &mut self,
        function: &TypedFunc<P, R>,
        parameters: P,
    ) -> wasmtime::Result<R> {
        if self.counts {
            self.store.set_fuel(COUNTED_FROM)?;
        }
        match self.loaded.class {
            ModuleClass::Bounded => function.call(&mut self.store, parameters),
            ModuleClass::Metered => to_the_end(function.call_async(&mut self.store, parameters)),
        }
    }

    fn prepare(&mut self, descriptors: u32, count: u32, lost: u64, link: LinkType) -> Result<(), Fault> {
        let flags = if self.restarted { batch_flags::RESTARTED } else { 0 };
        self.restarted = false;
        let header = BatchHeader { descriptors, count, lost, flags, link: link.0.into() };
        self.control
            .slice_mut(layout::BATCH_OFFSET as usize, BatchHeader::SIZE)
            .copy_from_slice(&header.to_bytes());
        if let Some(meter) = &self.meter {
            // A module that marks its packets gets each one's budget at its mark; another one all at
            // once for the batch, and its marks need not be set up.
            let budget = packet_budget(&self.loaded.limits);
            let store = &mut self.store;
            let set = if self.loaded.marks_packets {
                let first = meter.fuel.set(&mut *store, Val::I64(budget));
                let second = meter.packet.set(&mut *store, Val::I32(-1));
                first.and(second).and(meter.count.set(&mut *store, Val::I32(count as i32)))
            } else {
                meter.fuel.set(&mut *store, Val::I64(budget * i64::from(count)))
            };
            if let Err(e) = set {
                return Err(self.fault(names::BATCH, FaultKind::Start(e.to_string())));
            }
        }
        Ok(())
    }

    /// Calls `flame_tick` until it has no more output, which `each` gets piece by piece.
    pub fn tick(&mut self, now_ns: u64, each: impl FnMut(Output<'_>)) -> Result<(), Fault> {
        let tick = self.tick.clone();
        self.drain(names::TICK, tick, now_ns, each)
    }

    /// Calls `flame_end` likewise; the instance gets no further call.
    pub fn end(&mut self, now_ns: u64, each: impl FnMut(Output<'_>)) -> Result<(), Fault> {
        let end = self.end.clone();
        self.drain(names::END, end, now_ns, each)
    }

    /// Calls `flame_message` with bytes that another instance of this module sent.
    pub fn message(&mut self, bytes: &[u8]) -> Result<Output<'_>, Fault> {
        let message = self.message.clone();
        let area = self.control.slice_mut(layout::DATA_OFFSET as usize, layout::MAX_DATA as usize);
        let (Some(message), Some(area)) = (message, area.get_mut(..bytes.len())) else {
            let text = format!("a message of {} bytes, at most {} fit", bytes.len(), layout::MAX_DATA);
            return Err(self.fault(names::MESSAGE, FaultKind::Start(text)));
        };
        area.copy_from_slice(bytes);
        self.refuel(names::MESSAGE)?;
        let result = self.call(&message, (DATA_AT, bytes.len() as i32));
        self.output(names::MESSAGE, result).map(|(out, _)| out)
    }

    /// All memory the module owns, for tests that look for what it must not hold.
    pub fn owned_memory(&self) -> &[u8] {
        self.memory.data(&self.store)
    }

    fn drain(
        &mut self,
        call: &'static str,
        function: Option<TypedFunc<i64, i64>>,
        now_ns: u64,
        mut each: impl FnMut(Output<'_>),
    ) -> Result<(), Fault> {
        let Some(function) = function else { return Ok(()) };
        let limit = self.loaded.limits.continuations;
        for _ in 0..=limit {
            self.refuel(call)?;
            let result = self.call(&function, now_ns as i64);
            let (output, more) = self.output(call, result)?;
            each(output);
            if !more {
                return Ok(());
            }
        }
        Err(self.fault(call, FaultKind::Continuations(limit)))
    }

    /// Fills the counters for a call that is not a batch.
    fn refuel(&mut self, call: &'static str) -> Result<(), Fault> {
        let Some(meter) = &self.meter else { return Ok(()) };
        let budget = self.loaded.limits.call_budget.min(i64::MAX as u64) as i64;
        let store = &mut self.store;
        let set = [
            meter.fuel.set(&mut *store, Val::I64(budget)),
            meter.packet.set(&mut *store, Val::I32(-1)),
            meter.count.set(&mut *store, Val::I32(0)),
        ];
        match set.into_iter().find_map(Result::err) {
            Some(e) => Err(self.fault(call, FaultKind::Start(e.to_string()))),
            None => Ok(()),
        }
    }

    /// Finds and checks what a call returned.
    fn output(
        &mut self,
        call: &'static str,
        result: wasmtime::Result<i64>,
    ) -> Result<(Output<'_>, bool), Fault> {
        let value = match result {
            Ok(value) => value as u64,
            Err(error) => return Err(self.trapped(call, &error)),
        };
        let (address, bytes, more) = output::unpack(value);
        let limit = self.loaded.limits.output_per_call;
        let size = self.memory.data_size(&self.store);
        let outside = u64::from(address) + u64::from(bytes) > size as u64;
        if bytes > limit || (bytes > 0 && outside) {
            return Err(self.fault(call, FaultKind::OutputPlace { address, bytes, memory: size, limit }));
        }
        let range = if bytes == 0 { 0..0 } else { address as usize..address as usize + bytes as usize };
        let checked = self
            .loaded
            .schema
            .check(&self.memory.data(&self.store)[range.clone()], self.loaded.has_slow_path);
        match checked {
            Ok(counts) => Ok((Output { bytes: &self.memory.data(&self.store)[range], counts }, more)),
            Err(error) => Err(self.fault(call, FaultKind::Output(Box::new(error)))),
        }
    }

    fn trapped(&mut self, call: &'static str, error: &wasmtime::Error) -> Fault {
        let trap = error.downcast_ref::<Trap>();
        let spent = match &self.meter {
            Some(meter) => meter.fuel.get(&mut self.store).i64().is_some_and(|fuel| fuel < 0),
            None => false,
        };
        let limits = &self.loaded.limits;
        let limit = if call == names::BATCH { limits.packet_budget } else { limits.call_budget };
        let kind = if spent && trap == Some(&Trap::UnreachableCodeReached) {
            let place = self.meter.as_ref().and_then(|m| m.place.get(&mut self.store).i32());
            FaultKind::Budget { limit, place: place.map(|at| at as u32).filter(|at| *at > 0) }
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
                    function: frame
                        .func_name()
                        .map_or_else(|| format!("function {}", frame.func_index()), demangle),
                    offset: frame.func_offset(),
                })
                .collect();
        }
        fault
    }

    fn fault(&mut self, call: &'static str, kind: FaultKind) -> Fault {
        let packet = match &self.meter {
            Some(meter) if self.loaded.marks_packets && call == names::BATCH => {
                meter.packet.get(&mut self.store).i32().and_then(|p| u32::try_from(p).ok())
            }
            _ => None,
        };
        let said = self.panic_text.and_then(|address| {
            let text = self.memory.data(&self.store).get(address as usize..)?;
            let text = &text[..text.iter().take(512).position(|b| *b == 0).unwrap_or(0)];
            // The module wrote it: only printable characters reach a terminal.
            let clean = String::from_utf8_lossy(text).replace(char::is_control, " ");
            (!clean.is_empty()).then_some(clean)
        });
        Fault { call, kind, packet, backtrace: Vec::new(), said }
    }
}

/// A batch of a metered module, on its way.
pub struct Running(Pin<Box<dyn Future<Output = (Box<Instance>, Called)>>>);

/// What a batch returned, not looked at yet: [`Instance::finish`].
pub struct Called(Result<wasmtime::Result<i64>, Fault>);

/// What became of one slice.
pub enum Slice {
    Over(Running),
    Done(Box<Instance>, Called),
}

impl Running {
    /// Goes on until the batch is done, or somebody ends the slice ([`Engines::end_slice`]).
    pub fn resume(mut self) -> Slice {
        match self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready((instance, called)) => Slice::Done(instance, called),
            Poll::Pending => Slice::Over(self),
        }
    }
}

/// Polls until it is done: what it waits for is nothing but its next slice.
fn to_the_end<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
}

/// A packet's budget, such that a batch's does not overflow.
fn packet_budget(limits: &Limits) -> i64 {
    limits.packet_budget.min(i64::MAX as u64 / 512) as i64
}

fn root_cause(error: &wasmtime::Error) -> String {
    error.root_cause().to_string()
}

/// Functions of a backtrace that are told.
const MAX_FRAMES: usize = 20;

/// The readable part of a Rust name: `crate::module::function`, without the hash. Names are the module's, and may be as
/// long as its file: they are cut before anything is made of them, and after, since a short one may stand for more.
fn demangle(name: &str) -> String {
    let end = name.char_indices().nth(MAX_NAME).map_or(name.len(), |(at, _)| at);
    let mut shown = Cut { text: String::new(), left: MAX_NAME };
    // It ends early if it is full.
    let _ = write!(shown, "{:#}", rustc_demangle::demangle(&name[..end]));
    shown.text.replace(char::is_control, " ")
}

/// Takes so many characters and no more.
struct Cut {
    text: String,
    left: usize,
}

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let before = self.text.len();
        self.text.extend(text.chars().take(self.left));
        self.left -= self.text[before..].chars().count();
        if self.left == 0 { Err(std::fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn names_are_cut_whatever_they_stand_for() {
        assert_eq!(demangle("_ZN4core9panicking5panic17h0123456789abcdefE"), "core::panicking::panic");
        assert_eq!(demangle(&"é".repeat(15 << 20)).chars().count(), 200);
        assert_eq!(demangle("a\u{1b}b"), "a b");
        // A name of the new kind that refers back to itself again and again.
        let folded = format!("_RINvC1a1fT{}E", "TB7_B7_E".repeat(20));
        assert!(demangle(&folded).chars().count() <= 200);
    }
}
