//! Shared parts of the measurements: decoded blocks of the trace, plans, instances over a pool.

use flame_abi::{Descriptor, LinkType, MAX_BATCH, layout};
use flame_admit::Protection;
use flame_block::{Pool, SLOT_DESCRIPTORS};
use flame_compile::{Cache, Compiler};
use flame_node::{RunRequest, Submission};
use flame_plan::{Discipline, Expose, Limits, ModulePlan, ViewSpec, longest_call};
use flame_run::{Call, Engines, Instance, Loaded, Mapping, Role};
use flame_source::{FileOptions, Next, RawBlock};
use flame_view::View;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub type Error = Box<dyn std::error::Error>;

/// The folder in which compiled modules are kept while the benchmarks run: several compile the same ones.
pub static COMPILED: OnceLock<PathBuf> = OnceLock::new();

/// The greatest budget of a packet that a manifest may request.
const BUDGET: u64 = 100_000_000;

/// A block with its descriptors.
pub struct Decoded {
    pub block: RawBlock,
    pub descriptors: Vec<Descriptor>,
}

pub fn decode(block: &RawBlock, into: &mut Vec<Descriptor>) {
    into.clear();
    into.extend(block.packets.iter().map(|p| {
        let bytes = &block.data[p.offset as usize..(p.offset + p.cap_len) as usize];
        let d = flame_decode::decode(p.link, bytes, p.wire_len, flame_decode::Options::default());
        Descriptor { ts_ns: p.ts_ns, addr: p.offset, ..d }
    }));
}

/// Returns the first `blocks` blocks of a trace.
pub fn blocks(trace: &Path, blocks: usize) -> Result<Vec<Decoded>, Error> {
    let mut source = flame_source::open(&[trace.to_owned()], &FileOptions::default())?;
    let mut all = Vec::new();
    while all.len() < blocks {
        let mut block = RawBlock::default();
        if source.next(&mut block)? != Next::Packets {
            break;
        }
        // The data is copied, because the source reuses its memory.
        block.data = block.data.to_vec().into();
        let mut descriptors = Vec::new();
        decode(&block, &mut descriptors);
        all.push(Decoded { block, descriptors });
    }
    Ok(all)
}

/// Returns the address of a slot's packets in a module's memory.
pub fn base(slot: usize) -> u32 {
    layout::VIEW + (Pool::offset(slot) + SLOT_DESCRIPTORS) as u32
}

/// Copies the view of a block into a slot, and returns the number of packets that passed.
pub fn view_into(pool: &mut Pool, slot: usize, view: &mut View, of: &Decoded) -> Result<usize, Error> {
    let (descriptors, data) = pool.slot(slot);
    let link = |i: usize| of.block.packets[i].link;
    let written = view.copy(&of.descriptors, link, &of.block.data, descriptors, data, base(slot))?;
    Ok(written.packets as usize)
}

/// Returns the plan of a module, as `flame run` builds it.
pub fn plan(wasm: &[u8], protection: Protection, settings: &[(&str, &str)]) -> Result<ModulePlan, Error> {
    plan_for(wasm, protection, settings, 0)
}

/// Returns the plan of a module like [`plan`], for packets of at most `longest` bytes, or any for 0.
pub fn plan_for(
    wasm: &[u8],
    protection: Protection,
    settings: &[(&str, &str)],
    longest: u32,
) -> Result<ModulePlan, Error> {
    const NAME: &str = "module";
    let values = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let (name, file) = (NAME.to_owned(), format!("{NAME}.wasm"));
    let request = RunRequest {
        submissions: vec![Submission { name, file, wasm: wasm.to_vec(), signers: Vec::new() }],
        workers: 1,
        interval_ns: 0,
        discipline: Discipline::File,
        links: Vec::new(),
        // With this view, the manifest's needs decide.
        view: ViewSpec { expose: Expose::All, snaplen: longest, ..ViewSpec::default() },
        narrower: Vec::new(),
        settings: BTreeMap::from([(NAME.to_owned(), values)]),
        restarts: 0,
        // As in `flame run`, a manifest gets the limits that it requests.
        limits: Limits { packet_budget: BUDGET, call_budget: longest_call(BUDGET), ..Limits::default() },
        protection,
        costs: None,
        time_limit: None,
        seed: None,
    };
    let cache = COMPILED.get().map(|folder| Cache::open(folder)).transpose()?;
    let compiler = Compiler::in_process(flame_compile::Engines::new()?, cache);
    let mut built = flame_node::build(&request, None, &compiler)?;
    built.plan.modules.pop().ok_or_else(|| "a plan without modules".into())
}

/// Returns a started fast instance that maps the pool.
pub fn instance(engine: &Engines, plan: &ModulePlan, pool: &Pool) -> Result<Instance, Error> {
    let (fd, offset, bytes) = pool.window();
    let loaded = Loaded::new(engine, plan)?;
    let mut instance = Instance::new(&loaded, &[Mapping { fd, offset, bytes, at: layout::VIEW }], false)?;
    let role = Role::Fast { worker: 0 };
    instance.call(&Call::Init { role, workers: 1, tick_ns: 1_000_000_000, interval_ns: 0 })?;
    Ok(instance)
}

/// Calls an instance of a module that forwards for the first `packets` packets of a slot, from its first
/// input, and for all of its output.
pub fn push_slot(instance: &mut Instance, slot: usize, packets: usize) -> Result<(), Error> {
    let at = layout::VIEW + Pool::offset(slot) as u32;
    for next in (0..packets).step_by(MAX_BATCH) {
        let count = MAX_BATCH.min(packets - next) as u32;
        let (descriptors, link) = (at + (next * Descriptor::SIZE) as u32, LinkType::ETHERNET);
        let mut call = Call::Push { port: 0, descriptors, count, lost: 0, link };
        while instance.call(&call)?.rest {
            call = Call::Rest;
        }
    }
    Ok(())
}

/// Calls an instance for the first `packets` packets of a slot, `batch` at a time.
pub fn run_slot(instance: &mut Instance, slot: usize, packets: usize, batch: usize) -> Result<(), Error> {
    let at = layout::VIEW + Pool::offset(slot) as u32;
    let mut next = 0;
    while next < packets {
        let n = batch.min(packets - next);
        let (descriptors, link) = (at + (next * Descriptor::SIZE) as u32, LinkType::ETHERNET);
        instance.call(&Call::Batch { descriptors, count: n as u32, lost: 0, link, queue: 0 })?;
        next += n;
    }
    Ok(())
}
