//! Each module compiled natively, as Wasm without budgets, and as shipped: calls alone, and the whole path of
//! a packet from the file.

#![allow(unsafe_code)] // Batches without the check that Wasm does not make either.

use crate::fixture::{Error, base, blocks, decode, instance, plan, run_slot, view_into};
use crate::row::{Row, Target, Way, geometric_mean, in_turn};
use flame_abi::{Descriptor, MAX_BATCH};
use flame_admit::Protection;
use flame_block::Pool;
use flame_module::{Batch, Init, Module, Out};
use flame_plan::{Expose, ViewSpec};
use flame_run::Engines;
use flame_source::{FileOptions, Next, RawBlock};
use flame_view::View;
use std::cell::RefCell;
use std::path::Path;

const CALLS: &str = "modules: calls alone, warm memory";
const WHOLE: &str = "modules: read, decode, view, call";

/// The standard modules.
pub const NAMES: [&str; 9] =
    ["count", "port", "flow", "rtt", "trajectory", "worm", "lrd", "anonymize", "ids"];

/// The key that `anonymize` requires.
pub const KEY: &str = "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20";

/// The number of blocks of the trace that fit the pool. They are measured repeatedly, so that all three
/// variants see warm memory.
const SLOTS: usize = 16;

pub struct Bench<'a> {
    pub engine: &'a Engines,
    pub trace: &'a Path,
    pub folder: &'a Path,
    pub rounds: usize,
}

impl Bench<'_> {
    pub fn rows(&self) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        for group in [WHOLE, CALLS] {
            let mut of_group = Vec::new();
            for name in NAMES {
                of_group.extend(self.measure(group, name)?.rows(group, name));
            }
            for (name, most) in [("unchecked", None), ("shipped", Some(1.05))] {
                let of: Vec<f64> =
                    of_group.iter().filter(|r| r.name.contains(name)).map(|r| r.value).collect();
                let row = Row::ratio(
                    group,
                    format!("geometric mean: {name} / native"),
                    geometric_mean(&of),
                    String::new(),
                );
                of_group.push(match most {
                    Some(most) => row.target(Target::AtMost(most)),
                    None => row,
                });
            }
            rows.extend(of_group);
        }
        Ok(rows)
    }

    /// Measures calls alone of one of [`NAMES`].
    pub fn calls(&self, name: &str) -> Result<Measured, Error> {
        self.measure(CALLS, name)
    }

    fn measure(&self, group: &str, name: &str) -> Result<Measured, Error> {
        match name {
            "count" => self.module::<flame_count::Count>(group, name),
            "port" => self.module::<flame_port::Port>(group, name),
            "flow" => self.module::<flame_flow::Flow>(group, name),
            "rtt" => self.module::<flame_rtt::Rtt>(group, name),
            "trajectory" => self.module::<flame_trajectory::Trajectory>(group, name),
            "worm" => self.module::<flame_worm::Worm>(group, name),
            "lrd" => self.module::<flame_lrd::Lrd>(group, name),
            "ids" => self.module::<flame_ids::Ids>(group, name),
            "anonymize" => self.module::<flame_anonymize::Anonymize>(group, name),
            other => Err(format!("{other} is no module that is measured").into()),
        }
    }

    fn module<M: Module>(&self, group: &str, name: &str) -> Result<Measured, Error> {
        let wasm = std::fs::read(self.folder.join(format!("{name}.wasm")))?;
        let settings: &[_] = if name == "anonymize" { &[("key", KEY)] } else { &[] };
        let plans = [plan(&wasm, Protection::Unchecked, settings)?, plan(&wasm, Protection::Auto, settings)?];
        let pool = RefCell::new(Pool::new(SLOTS)?);
        let mut instances = Vec::new();
        for plan in &plans {
            instances.push(instance(self.engine, plan, &pool.borrow())?);
        }
        let native = RefCell::new((M::new(&Init::new(&init(&plans[0].parameters))), Out::default()));
        let run_native = |slot: usize, packets: usize| {
            let (module, out) = &mut *native.borrow_mut();
            each_batch(&mut pool.borrow_mut(), slot, packets, &mut |batch| {
                module.batch(batch, out);
                out.hand();
            });
        };
        let mut instances = instances.into_iter();
        let [Some(mut unchecked), Some(mut shipped)] = [instances.next(), instances.next()] else {
            return Err("two instances".into());
        };

        let (packets, (times, ratios));
        if group == CALLS {
            let mut view = View::new(&plans[0].view, None)?;
            let mut filled = Vec::new();
            for (slot, block) in blocks(self.trace, SLOTS)?.iter().enumerate() {
                filled.push(view_into(&mut pool.borrow_mut(), slot, &mut view, block)?);
            }
            packets = filled.iter().sum::<usize>();
            let each = |call: &mut dyn FnMut(usize, usize) -> Result<(), Error>| {
                filled.iter().enumerate().try_for_each(|(slot, n)| call(slot, *n))
            };
            let mut ways: [Way<'_, Error>; 3] = [
                Box::new(|| {
                    each(&mut |slot, n| {
                        run_native(slot, n);
                        Ok(())
                    })
                }),
                Box::new(|| each(&mut |slot, n| run_slot(&mut unchecked, slot, n, MAX_BATCH))),
                Box::new(|| each(&mut |slot, n| run_slot(&mut shipped, slot, n, MAX_BATCH))),
            ];
            (times, ratios) = in_turn(self.rounds * 5, &mut ways)?;
        } else {
            let views = [&plans[0], &plans[0], &plans[1]].map(|p| View::new(&p.view, None));
            let [mut a, mut b, mut c] = [None, None, None];
            for (place, view) in [&mut a, &mut b, &mut c].into_iter().zip(views) {
                *place = Some(view?);
            }
            let (Some(mut a), Some(mut b), Some(mut c)) = (a, b, c) else { return Err("three views".into()) };
            let count = std::cell::Cell::new(0);
            let way = |view: &mut View, call: &mut dyn FnMut(usize) -> Result<(), Error>| {
                count.set(whole(self.trace, &pool, view, call)?);
                Ok::<(), Error>(())
            };
            let mut ways: [Way<'_, Error>; 3] = [
                Box::new(|| {
                    way(&mut a, &mut |n| {
                        run_native(0, n);
                        Ok(())
                    })
                }),
                Box::new(|| way(&mut b, &mut |n| run_slot(&mut unchecked, 0, n, MAX_BATCH))),
                Box::new(|| way(&mut c, &mut |n| run_slot(&mut shipped, 0, n, MAX_BATCH))),
            ];
            (times, ratios) = in_turn(self.rounds, &mut ways)?;
            drop(ways);
            packets = count.get();
        }
        let ns = |i: usize| times[i] * 1e9 / packets as f64;
        Ok(Measured { ns: [0, 1, 2].map(ns), unchecked: ratios[1], shipped: ratios[2] })
    }
}

/// The times of a module.
pub struct Measured {
    /// Nanoseconds for a packet: natively, without budgets, as shipped.
    pub ns: [f64; 3],
    /// The median of the ratios to native code.
    unchecked: f64,
    pub shipped: f64,
}

impl Measured {
    fn rows(&self, group: &'static str, name: &str) -> [Row; 2] {
        let detail = |i: usize| format!("{:.2} / {:.2} ns a packet", self.ns[i], self.ns[0]);
        [
            Row::ratio(group, format!("{name}: unchecked / native"), self.unchecked, detail(1)),
            Row::ratio(group, format!("{name}: shipped / native"), self.shipped, detail(2))
                .target(Target::AtMost(1.35)),
        ]
    }
}

/// Shows all packets of a trace to a module that is compiled natively, and calls it with them if `calls`. For
/// a program that counts this process's instructions: the calls take the difference.
pub fn run_native(name: &str, trace: &Path, parameters: &[u8], calls: bool) -> Result<(), Error> {
    match name {
        "count" => native::<flame_count::Count>(trace, parameters, calls),
        "port" => native::<flame_port::Port>(trace, parameters, calls),
        "flow" => native::<flame_flow::Flow>(trace, parameters, calls),
        "ids" => native::<flame_ids::Ids>(trace, parameters, calls),
        "anonymize" => native::<flame_anonymize::Anonymize>(trace, parameters, calls),
        other => Err(format!("{other} is no workload").into()),
    }
}

fn native<M: Module>(trace: &Path, parameters: &[u8], calls: bool) -> Result<(), Error> {
    let mut module = M::new(&Init::new(&init(parameters)));
    let (mut out, mut pool) = (Out::default(), Pool::new(1)?);
    let spec = ViewSpec { expose: Expose::All, ..ViewSpec::default() };
    let mut view = View::new(&spec, None)?;
    for block in blocks(trace, usize::MAX)? {
        let packets = view_into(&mut pool, 0, &mut view, &block)?;
        if calls {
            each_batch(&mut pool, 0, packets, &mut |batch| {
                module.batch(batch, &mut out);
                out.hand();
            });
        }
    }
    Ok(())
}

/// Returns what a module begins with.
fn init(parameters: &[u8]) -> Vec<u8> {
    let header = flame_abi::InitHeader { abi: 1, workers: 1, tick_ns: 1_000_000_000, ..Default::default() };
    [&header.to_bytes()[..], parameters].concat()
}

/// Calls native code for the first `packets` packets of a slot, which the view wrote.
pub fn each_batch(pool: &mut Pool, slot: usize, packets: usize, call: &mut dyn FnMut(&Batch)) {
    let (descriptors, data) = pool.slot(slot);
    for some in descriptors[..packets].chunks(MAX_BATCH) {
        // SAFETY: the view wrote these descriptors for exactly this memory.
        call(&unsafe { Batch::new_unchecked(some, data, base(slot)) });
    }
}

/// Runs the whole trace through slot 0, and returns the number of packets.
pub fn whole(
    trace: &Path,
    pool: &RefCell<Pool>,
    view: &mut View,
    call: &mut dyn FnMut(usize) -> Result<(), Error>,
) -> Result<usize, Error> {
    let mut source = flame_source::open(&[trace.to_owned()], &FileOptions::default())?;
    let (mut block, mut decoded, mut packets) = (RawBlock::default(), Vec::<Descriptor>::new(), 0);
    while source.next(&mut block)? == Next::Packets {
        decode(&block, &mut decoded);
        let written = {
            let mut pool = pool.borrow_mut();
            let (descriptors, data) = pool.slot(0);
            view.copy(&decoded, |i| block.packets[i].link, &block.data, descriptors, data, base(0))?
        };
        packets += decoded.len();
        call(written.packets as usize)?;
    }
    Ok(packets)
}
