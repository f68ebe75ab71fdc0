//! Calls of a module that forwards, over packets that the view wrote before: the same source compiled
//! natively (hardwired), in the sandbox as its proved bound permits (hybrid), and metered (dynamic).

use super::Setting;
use crate::fixture::{Error, blocks, instance, plan_for, push_slot, view_into};
use crate::made::capture;
use crate::modules::each_batch;
use crate::row::{Way, in_turn};
use flame_admit::Protection;
use flame_block::Pool;
use flame_module::{Forward, Init, Out};
use flame_plan::ModuleClass;
use flame_view::View;
use std::cell::RefCell;

/// The most blocks of packets.
const SLOTS: usize = 16;
/// The longest frame of Ethernet, with a tag: bounds are for packets of this length.
const LONGEST: u32 = 1522;

/// The nanoseconds of a packet.
#[derive(Clone, Copy)]
pub struct Times {
    pub hardwired: f64,
    pub hybrid: f64,
    pub dynamic: f64,
}

impl Times {
    /// Returns the names of the times, with each time.
    pub fn named(self) -> [(&'static str, f64); 3] {
        [("hardwired", self.hardwired), ("hybrid", self.hybrid), ("dynamic", self.dynamic)]
    }
}

/// Measures a standard module over frames, each at a time in microseconds.
///
/// Hybrid is the code that a node runs, and must have no counters.
pub fn times<M: Forward>(
    setting: &Setting<'_>,
    name: &str,
    settings: &[(&str, &str)],
    frames: impl IntoIterator<Item = (u64, Vec<u8>)>,
) -> Result<Times, Error> {
    let wasm = std::fs::read(setting.modules.join(format!("{name}.wasm")))?;
    let [hybrid, dynamic] =
        [Protection::Auto, Protection::Metered].map(|how| plan_for(&wasm, how, settings, LONGEST));
    let plans = [hybrid?, dynamic?];
    if plans[0].class != ModuleClass::Bounded {
        return Err(format!("{name} has no bound").into());
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("packets.pcap");
    std::fs::write(&file, capture(frames))?;
    let (pool, engines) = (RefCell::new(Pool::new(SLOTS)?), flame_run::Engines::new()?);
    let mut hybrid = instance(&engines, &plans[0], &pool.borrow())?;
    let mut dynamic = instance(&engines, &plans[1], &pool.borrow())?;
    let (mut view, mut filled) = (View::new(&plans[0].view, None)?, Vec::new());
    for (slot, block) in blocks(&file, SLOTS)?.iter().enumerate() {
        filled.push(view_into(&mut pool.borrow_mut(), slot, &mut view, block)?);
    }
    let header = flame_abi::InitHeader { abi: 1, workers: 1, tick_ns: 1_000_000_000, ..Default::default() };
    let init = [&header.to_bytes()[..], &plans[0].parameters].concat();
    let (mut native, mut out) = (M::new(&Init::new(&init)), Out::default());
    let each = |call: &mut dyn FnMut(usize, usize) -> Result<(), Error>| {
        filled.iter().enumerate().try_for_each(|(slot, packets)| call(slot, *packets))
    };
    let mut ways: [Way<'_, Error>; 3] = [
        Box::new(|| {
            each(&mut |slot, packets| {
                each_batch(&mut pool.borrow_mut(), slot, packets, &mut |batch| {
                    native.push(0, batch, &mut out);
                    out.hand();
                });
                Ok(())
            })
        }),
        Box::new(|| each(&mut |slot, packets| push_slot(&mut hybrid, slot, packets))),
        Box::new(|| each(&mut |slot, packets| push_slot(&mut dynamic, slot, packets))),
    ];
    let (seconds, _) = in_turn(if setting.quick { 1 } else { 25 }, &mut ways)?;
    let packets = filled.iter().sum::<usize>() as f64;
    let [hardwired, hybrid, dynamic] = [0, 1, 2].map(|n| seconds[n] * 1e9 / packets);
    Ok(Times { hardwired, hybrid, dynamic })
}
