//! Each module natively, as Wasm without budgets, and as shipped: the same batches over the same view.

#![allow(unsafe_code)] // Batches without the check that Wasm does not make either.

use crate::Row;
use flame_abi::{Descriptor, MAX_BATCH, layout};
use flame_block::{Pool, SLOT_DESCRIPTORS};
use flame_compile::{Compiler, Protection, Request};
use flame_module::{Batch, Init, Module, Out};
use flame_plan::{Limits, OnFault, ViewSpec};
use flame_run::{Engine, Instance, Loaded, Mapping, Role};
use flame_source::{FileOptions, Next, RawBlock};
use flame_view::View;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Blocks of the trace that fit the pool; measured over and over, so that all three see warm memory.
const SLOTS: usize = 16;

pub fn rows(
    engine: &Engine,
    trace: &Path,
    folder: &Path,
    rounds: usize,
) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let mut rows = Vec::new();
    rows.extend(module::<flame_count::Count>(engine, trace, folder, "count", rounds)?);
    rows.extend(module::<flame_flow::Flow>(engine, trace, folder, "flow", rounds)?);
    rows.extend(module::<flame_http::Http>(engine, trace, folder, "http", rounds)?);
    rows.extend(module::<flame_rtt::Rtt>(engine, trace, folder, "rtt", rounds)?);
    for (name, suffix) in [("unchecked", "unchecked / native"), ("shipped", "shipped / native")] {
        let of: Vec<f64> = rows.iter().filter(|r| r.name.ends_with(suffix)).map(|r| r.ratio).collect();
        let mean = (of.iter().map(|r| r.ln()).sum::<f64>() / of.len() as f64).exp();
        rows.push(Row::new(format!("geometric mean: {name} / native"), mean, String::new()));
    }
    Ok(rows)
}

fn module<M: Module>(
    engine: &Engine,
    trace: &Path,
    folder: &Path,
    name: &str,
    rounds: usize,
) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let wasm = std::fs::read(folder.join(format!("{name}.wasm")))?;
    let compiler = Compiler::new(engine, None);
    let plan = |protection| {
        let request = Request {
            view: ViewSpec::default(),
            settings: BTreeMap::new(),
            on_fault: OnFault::Stop,
            limits: Limits::default(),
            protection,
        };
        compiler.install(&wasm, &request).map(|i| i.plan)
    };
    let plans = [plan(Protection::Unchecked)?, plan(Protection::Metered)?];
    let mut pool = Pool::new(SLOTS)?;
    let blocks = fill(&mut pool, trace, &plans[0].view)?;
    let packets: usize = blocks.iter().sum();
    let (fd, offset, bytes) = pool.window();
    let mut instances = Vec::new();
    for plan in &plans {
        let loaded = Loaded::new(engine, plan)?;
        let window = Mapping { fd, offset, bytes, at: layout::VIEW };
        let mut instance = Instance::new(&loaded, &[window], false)?;
        instance.start(Role::Fast { worker: 0 }, 1, 1_000_000_000, 0)?;
        instances.push(instance);
    }
    let header = flame_abi::InitHeader { abi: 1, workers: 1, tick_ns: 1_000_000_000, ..Default::default() };
    let init = [&header.to_bytes()[..], &plans[0].parameters].concat();
    let mut native = M::new(&Init::new(&init));
    let mut out = Out::default();

    let (mut times, mut ratios) = ([const { Vec::new() }; 3], [Vec::new(), Vec::new()]);
    for round in 0..=rounds {
        let mut took = [Duration::ZERO; 3];
        let start = Instant::now();
        for (slot, count) in blocks.iter().enumerate() {
            let (descriptors, data) = pool.slot(slot);
            let base = layout::VIEW + (Pool::offset(slot) + SLOT_DESCRIPTORS) as u32;
            for some in descriptors[..*count].chunks(MAX_BATCH) {
                // SAFETY: the view wrote these descriptors for exactly this memory.
                let batch = unsafe { Batch::new_unchecked(some, data, base) };
                native.batch(&batch, &mut out);
                out.seal();
            }
        }
        took[0] = start.elapsed();
        for (instance, took) in instances.iter_mut().zip(&mut took[1..]) {
            let start = Instant::now();
            for (slot, count) in blocks.iter().enumerate() {
                let at = layout::VIEW + Pool::offset(slot) as u32;
                let mut next = 0;
                while next < *count {
                    let n = MAX_BATCH.min(count - next);
                    instance.batch(at + (next * Descriptor::SIZE) as u32, n as u32, 0)?;
                    next += n;
                }
            }
            *took = start.elapsed();
        }
        // The first round warms up.
        if round > 0 {
            for (i, t) in took.iter().enumerate() {
                times[i].push(t.as_nanos() as f64 / packets as f64);
            }
            for i in 0..2 {
                ratios[i].push(took[i + 1].as_secs_f64() / took[0].as_secs_f64());
            }
        }
    }
    let ns = times.map(crate::median);
    let detail = |i: usize| format!("{:.2} / {:.2} ns a packet", ns[i], ns[0]);
    let [unchecked, shipped] = ratios.map(crate::median);
    Ok(vec![
        Row::new(format!("{name}: unchecked / native"), unchecked, detail(1)),
        Row::new(format!("{name}: shipped / native"), shipped, detail(2)),
    ])
}

/// Views the first blocks of the trace into the pool's slots; the packets of each.
fn fill(pool: &mut Pool, trace: &Path, spec: &ViewSpec) -> Result<Vec<usize>, Box<dyn std::error::Error>> {
    let mut source = flame_source::open(&[trace.to_owned()], &FileOptions::default())?;
    let mut view = View::new(spec, None)?;
    let mut block = RawBlock::default();
    let mut filled = Vec::new();
    while filled.len() < SLOTS && source.next(&mut block)? == Next::Packets {
        let decoded: Vec<Descriptor> = block
            .packets
            .iter()
            .map(|p| {
                let bytes = &block.data[p.offset as usize..(p.offset + p.cap_len) as usize];
                let d = flame_decode::decode(p.link, bytes, p.wire_len, flame_decode::Options::default());
                Descriptor { ts_ns: p.ts_ns, addr: p.offset, ..d }
            })
            .collect();
        let slot = filled.len();
        let base = layout::VIEW + (Pool::offset(slot) + SLOT_DESCRIPTORS) as u32;
        let (descriptors, data) = pool.slot(slot);
        let written = view.copy(&decoded, |i| block.packets[i].link, &block.data, descriptors, data, base)?;
        filled.push(written.packets as usize);
    }
    Ok(filled)
}
