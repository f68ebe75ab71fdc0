//! The calls of an instrumented module: packets as its full view shows them, in full batches and one at a
//! time, and a tick for each second of packet time between them.

use crate::error::Error;
use flame_abi::{Descriptor, LinkType, MAX_BATCH, layout};
use flame_admit::Protection;
use flame_block::{Pool, SLOT_DESCRIPTORS};
use flame_compile::{Compiler, Engines as Compilers};
use flame_node::{RunRequest, Submission};
use flame_plan::{Discipline, Expose, Limits, ModulePlan, ViewSpec, longest_call};
use flame_profile::{ACCESSES, Counts, Place, Region, instrument, run_offsets};
use flame_run::{COUNTER, Call, Engines, Instance, Loaded, Mapping, Role};
use flame_source::{FileOptions, Next, RawBlock};
use flame_view::View;
use std::collections::BTreeMap;
use std::path::PathBuf;

const FORWARDS: &str = "it forwards packets, and only modules that measure can be profiled";
/// The greatest budget of a packet in instructions that a manifest may request: counting takes some ten
/// times as many.
const BUDGET: u64 = 100_000_000;
const TICK_NS: u64 = 1_000_000_000;

/// What is profiled.
pub struct Request {
    /// The name of the module, for errors.
    pub name: String,
    pub wasm: Vec<u8>,
    pub captures: Vec<PathBuf>,
    /// Values of the module's parameters.
    pub settings: BTreeMap<String, String>,
    /// The most packets, of those that the module sees.
    pub most_packets: u64,
    /// Source lines by offset in the file ([`line_offsets`]), as far as they are known.
    pub lines: BTreeMap<usize, String>,
}

/// Returns the offsets in a module of which [`Request::lines`] may have lines.
///
/// # Errors
///
/// Returns an error if the module is not valid.
pub fn line_offsets(wasm: &[u8]) -> Result<Vec<usize>, Error> {
    Ok(run_offsets(wasm)?)
}

/// The number of packets for each value.
pub type Distribution = BTreeMap<u64, u64>;

/// What a module executed.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The packets that the module saw.
    pub packets: u64,
    pub ticks: u64,
    /// The counts of all full batches together: of [`MAX_BATCH`] packets, as in a run over a file.
    pub batches: Counts,
    /// The counts of all batches of one packet together, to which the distributions belong.
    pub singles: Counts,
    /// The counts of all other calls together.
    pub others: Counts,
    pub instructions: Distribution,
    /// Loads and stores of packets' bytes, and what the host states of them.
    pub packet_accesses: Distribution,
    /// Loads and stores of the module's own memory.
    pub own_accesses: Distribution,
    /// The instructions of each function, without those that it calls, most first. Functions that were not
    /// executed are left out.
    pub functions: Vec<(String, u64)>,
    /// The instructions of each source line that is known, likewise.
    pub lines: Vec<(String, u64)>,
}

/// Runs an instrumented module over captures.
///
/// # Errors
///
/// Returns an error if the module is not valid, forwards packets or faults, or if a capture cannot be read.
pub fn profile(request: &Request) -> Result<Profile, Error> {
    let instrumented = instrument(&request.wasm, COUNTER, &request.lines)?;
    let plan = plan(request, instrumented.wasm)?;
    let mut found = Profile::default();
    let engines = Engines::new()?;
    let loaded = Loaded::new(&engines, &plan)?;
    if loaded.forwards() {
        return Err(FORWARDS.into());
    }
    // One instance has full batches, the other one packet in each.
    let mut full = Calls::start(&loaded)?;
    let mut single = Calls::start(&loaded)?;
    let mut view = View::new(&plan.view, None)?;
    let mut source = flame_source::open(&request.captures, &FileOptions::default())?;
    let (mut block, mut descriptors) = (RawBlock::default(), Vec::new());
    while single.packets < request.most_packets && source.next(&mut block)? != Next::End {
        decode(&block, &mut descriptors);
        let mut from = 0;
        // The packets of a batch have one link type.
        for of_link in block.packets.chunk_by(|a, b| a.link == b.link) {
            let some = &descriptors[from..from + of_link.len()];
            from += of_link.len();
            let link = of_link[0].link;
            let mut show = |calls: &mut Calls, some: &[Descriptor]| -> Result<usize, Error> {
                let left = usize::try_from(request.most_packets - calls.packets).unwrap_or(usize::MAX);
                let (out, out_data) = calls.pool.slot(0);
                let written = view.copy(some, |_| link, &block.data, out, out_data, BASE);
                Ok(left.min(written?.packets as usize))
            };
            let shown = show(&mut full, some)?;
            full.batches(shown, MAX_BATCH, link, |_| {})?;
            for one in some {
                let shown = show(&mut single, std::slice::from_ref(one))?;
                single.batches(shown, 1, link, |executed| found.take(&executed))?;
            }
        }
    }
    full.other(&Call::End { now_ns: full.last.unwrap_or(0) })?;
    found.packets = single.packets;
    (found.ticks, found.batches, found.others) = (full.ticks, full.of_batches, full.of_others);
    let places = full.places(&instrumented.places);
    found.functions = sums(places.iter().map(|(place, count)| (place.function.as_str(), *count)));
    found.lines = sums(places.iter().filter_map(|(place, count)| Some((place.line.as_deref()?, *count))));
    Ok(found)
}

/// The address of the packets' bytes.
const BASE: u32 = layout::VIEW + SLOT_DESCRIPTORS as u32;

/// Returns the plan of the module alone, metered, so that it ends.
fn plan(request: &Request, wasm: Vec<u8>) -> Result<ModulePlan, Error> {
    let name = &request.name;
    let run = RunRequest {
        submissions: vec![Submission { name: name.clone(), file: name.clone(), wasm, signers: Vec::new() }],
        workers: 1,
        interval_ns: 0,
        discipline: Discipline::File,
        links: Vec::new(),
        // With this view, the manifest's needs decide.
        view: ViewSpec { expose: Expose::All, ..ViewSpec::default() },
        narrower: Vec::new(),
        settings: BTreeMap::from([(name.clone(), request.settings.clone())]),
        restarts: 0,
        limits: Limits { packet_budget: BUDGET, call_budget: longest_call(BUDGET), ..Limits::default() },
        protection: Protection::Metered,
        costs: None,
        time_limit: None,
        seed: Some(1),
    };
    let compiler = Compiler::in_process(Compilers::new()?, None);
    let mut built = flame_node::build(&run, None, &compiler)?;
    built.plan.modules.pop().ok_or_else(|| format!("{name}: no plan").into())
}

fn decode(block: &RawBlock, into: &mut Vec<Descriptor>) {
    into.clear();
    into.extend(block.packets.iter().map(|p| {
        let bytes = &block.data[p.offset as usize..(p.offset + p.cap_len) as usize];
        let d = flame_decode::decode(p.link, bytes, p.wire_len, flame_decode::Options::default());
        Descriptor { ts_ns: p.ts_ns, addr: p.offset, ..d }
    }));
}

impl Profile {
    /// Counts a batch of one packet.
    fn take(&mut self, executed: &Counts) {
        self.singles += *executed;
        let packet = executed.accesses(Region::Packet) + executed.accesses(Region::Host);
        *self.instructions.entry(executed.instructions).or_default() += 1;
        *self.packet_accesses.entry(packet).or_default() += 1;
        *self.own_accesses.entry(executed.accesses(Region::Own)).or_default() += 1;
    }
}

/// An instance, with counts of its calls.
struct Calls {
    instance: Instance,
    pool: Pool,
    before: Counts,
    packets: u64,
    ticks: u64,
    of_batches: Counts,
    of_others: Counts,
    /// The time of the latest packet.
    last: Option<u64>,
}

impl Calls {
    fn start(loaded: &Loaded) -> Result<Self, Error> {
        let pool = Pool::new(1)?;
        let (fd, offset, bytes) = pool.window();
        let windows = [Mapping { fd, offset, bytes, at: layout::VIEW }];
        let instance = Instance::new(loaded, &windows, false)?;
        let (before, of_batches, of_others) = Default::default();
        let (packets, ticks, last) = (0, 0, None);
        let mut calls = Self { instance, pool, before, packets, ticks, of_batches, of_others, last };
        let role = Role::Fast { worker: 0 };
        calls.other(&Call::Init { role, workers: 1, tick_ns: TICK_NS, interval_ns: 0 })?;
        Ok(calls)
    }

    /// Makes a call and those for the rest of its output, and returns what they executed.
    fn call(&mut self, call: &Call) -> Result<Counts, Error> {
        let (mut next, mut repeats) = (call.clone(), true);
        while repeats {
            let returned = self.instance.call(&next).map_err(|e| e.to_string())?;
            let (more, rest) = (returned.more, returned.rest);
            next = if rest { Call::Rest } else { call.clone() };
            repeats = more || rest;
        }
        let now = self.read();
        let executed = now - self.before;
        self.before = now;
        Ok(executed)
    }

    fn read(&mut self) -> Counts {
        let mut counts = Counts::default();
        self.instance.counters(|i, value| match i {
            0..3 => counts.loads[i] = value,
            3..ACCESSES => counts.stores[i - 3] = value,
            _ => counts.instructions += value,
        });
        counts
    }

    fn other(&mut self, call: &Call) -> Result<(), Error> {
        let executed = self.call(call)?;
        self.of_others += executed;
        Ok(())
    }

    /// Makes the calls for the first packets of the slot, at most `most` in each, and passes what each
    /// executed.
    fn batches(
        &mut self,
        packets: usize,
        most: usize,
        link: LinkType,
        mut each: impl FnMut(Counts),
    ) -> Result<(), Error> {
        for from in (0..packets).step_by(most) {
            let now = self.pool.slot(0).0[from].ts_ns;
            // A gap has one tick: modules are told the time.
            let due = now / TICK_NS * TICK_NS;
            if self.last.is_some_and(|last| last < due) {
                self.other(&Call::Tick { now_ns: due })?;
                self.ticks += 1;
            }
            self.last = self.last.max(Some(now));
            let count = most.min(packets - from) as u32;
            let descriptors = layout::VIEW + (from * Descriptor::SIZE) as u32;
            let executed = self.call(&Call::Batch { descriptors, count, lost: 0, link, queue: 0 })?;
            self.of_batches += executed;
            self.packets += u64::from(count);
            each(executed);
        }
        Ok(())
    }

    /// Returns the instructions of each place that was executed.
    fn places<'a>(&mut self, places: &'a [Place]) -> Vec<(&'a Place, u64)> {
        let mut executed = Vec::new();
        self.instance.counters(|i, value| {
            if let Some(place) = i.checked_sub(ACCESSES).and_then(|i| places.get(i))
                && value > 0
            {
                executed.push((place, value));
            }
        });
        executed
    }
}

/// Returns the sum for each name, the largest first.
fn sums<'a>(of: impl Iterator<Item = (&'a str, u64)>) -> Vec<(String, u64)> {
    let mut sums = BTreeMap::<&str, u64>::new();
    of.for_each(|(name, count)| *sums.entry(name).or_default() += count);
    let mut all: Vec<_> = sums.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all
}
