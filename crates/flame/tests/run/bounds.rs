//! Tests of the standard modules over every capture, with Wasmtime's own count of executed instructions: no
//! call costs more than its bound, and bounds are close to the worst call.

use crate::common::{self, install, module, request, traces};
use flame_abi::{Descriptor, layout};
use flame_admit::Protection;
use flame_block::{Pool, SLOT_DESCRIPTORS};
use flame_bounds::{Analysis, Bound, Poly, Rules, analyse};
use flame_compile::InstallRequest;
use flame_plan::{Expose, Limits, ViewSpec};
use flame_run::{Call, Engines, Instance, Loaded, Mapping, Role};
use flame_source::{FileOptions, Next, RawBlock};
use flame_view::View;
use std::path::{Path, PathBuf};

const NAMES: [&str; 15] = [
    "count",
    "port",
    "flow",
    "rtt",
    "trajectory",
    "worm",
    "lrd",
    "anonymize",
    "ids",
    "dns",
    "tls",
    "http",
    "tcp",
    "talkers",
    "scan",
];
const KEY: &str = "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20";
const SECOND: u64 = 1_000_000_000;

fn captures() -> Vec<PathBuf> {
    let mut all = vec![common::root().join("demo/demo.pcap")];
    if let Some(traces) = traces() {
        let files = std::fs::read_dir(traces.join("open/files")).unwrap();
        all.extend(files.map(|f| f.unwrap().path()));
    }
    all.sort();
    all
}

/// Returns parameters for which a module works hardest: small tables, every packet logged, all moments.
fn settings(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "anonymize" => &[("key", KEY)],
        "trajectory" => &[("sampling", "1"), ("payload", "64"), ("max_flows", "16")],
        "port" => &[("base", "payload"), ("width", "4")],
        "flow" => &[("max_flows", "40")],
        "rtt" => &[("max_handshakes", "8"), ("max_connections", "8")],
        "dns" => &[("max_questions", "8"), ("clients", "true"), ("names", "true"), ("max_sums", "16")],
        "tls" => &[("max_connections", "8"), ("max_partial", "4")],
        "http" => &[("max_connections", "8"), ("max_partial", "4"), ("max_requests", "8")],
        "tcp" => &[("max_connections", "8")],
        "talkers" => &[("counters", "16"), ("key", "host")],
        "scan" => &[("max_sources", "16"), ("max_pairs", "16")],
        "lrd" => &[("interval", "1us"), ("lateness", "0s"), ("moments", "4")],
        _ => &[],
    }
}

/// The call of one entry that comes closest to its bound.
#[derive(Default, Clone, Copy)]
struct Worst {
    executed: u64,
    /// The bound of that call.
    bound: u128,
    calls: u64,
}

struct Measured<'a> {
    name: &'a str,
    analysis: Analysis,
    loaded: Loaded,
    instance: Instance,
    view: View,
    pool: Pool,
    batch: Worst,
    rest: Worst,
}

impl<'a> Measured<'a> {
    fn new(engines: &Engines, name: &'a str) -> Option<Self> {
        let wasm = module(name)?;
        let request = InstallRequest {
            view: ViewSpec { expose: Expose::All, ..ViewSpec::default() },
            limits: Limits { packet_budget: 100_000_000, ..Limits::default() },
            settings: settings(name).iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            protection: Protection::Unchecked,
            ..request()
        };
        let mut plan = install(&wasm, &request).unwrap();
        // Bounds are of the module's own instructions, without polls.
        let own = flame_meter::rewrite(&wasm, flame_meter::Metering::Nothing).unwrap();
        plan.code = flame_compile::Engines::counting().unwrap().precompile(plan.class, &own).unwrap().into();
        let pool = Pool::new(1).unwrap();
        let loaded = Loaded::new(engines, &plan).unwrap();
        let instance = started(&loaded, &pool);
        let analysis = analyse(&wasm, &Rules::default(), None).unwrap();
        let view = View::new(&plan.view, None).unwrap();
        Some(Self {
            name,
            analysis,
            loaded,
            instance,
            view,
            pool,
            batch: Worst::default(),
            rest: Worst::default(),
        })
    }

    /// Restarts the module without its state.
    fn restart(&mut self) {
        self.instance = started(&self.loaded, &self.pool);
    }

    /// Returns the bound of calls that return.
    fn bound(&self, entry: &str) -> Bound {
        let returning = |e: &flame_bounds::Entry| {
            let all = e.bound.call;
            let most = all.as_constant().map(|n| Poly::constant(n - e.diverging));
            assert!(e.diverging == 0 || most.is_some(), "the bounds of calls are constants");
            Bound { call: most.unwrap_or(all), ..e.bound }
        };
        self.analysis.entries.iter().find(|e| e.name == entry).map_or(Bound::UNBOUNDED, returning)
    }

    fn block(&mut self, block: &RawBlock, decoded: &[Descriptor], batch: usize) {
        let at = layout::VIEW + Pool::offset(0) as u32;
        let bound = self.bound("flame_batch");
        let mut start = 0;
        for same in block.packets.chunk_by(|a, b| a.link == b.link) {
            let range = start..start + same.len();
            start = range.end;
            let (link, base) = (same[0].link, at + SLOT_DESCRIPTORS as u32);
            let (descriptors, data) = self.pool.slot(0);
            let written =
                self.view.copy(&decoded[range], |_| link, &block.data, descriptors, data, base).unwrap();
            let mut next = 0;
            while next < written.packets as usize {
                let count = batch.min(written.packets as usize - next);
                let shown = &self.pool.slot(0).0[next..next + count];
                let longest = shown.iter().map(|d| u64::from(d.cap_len)).max().unwrap_or(0);
                let place = at + (next * Descriptor::SIZE) as u32;
                let batch = Call::Batch { descriptors: place, count: count as u32, lost: 0, link, queue: 0 };
                self.instance.call(&batch).unwrap();
                let executed = self.instance.executed().unwrap();
                hold(self.name, &mut self.batch, executed, bound.at(count as u64, longest));
                next += count;
            }
        }
    }

    fn end(&mut self, now_ns: u64) {
        let bound = self.bound("flame_tick");
        // If there is much to report, there are several calls. The last one is measured.
        self.instance.call(&Call::Tick { now_ns }).unwrap();
        hold(self.name, &mut self.rest, self.instance.executed().unwrap(), bound.at(0, 0));
    }
}

fn started(loaded: &Loaded, pool: &Pool) -> Instance {
    let (fd, offset, bytes) = pool.window();
    let window = Mapping { fd, offset, bytes, at: layout::VIEW };
    let mut instance = Instance::new(loaded, &[window], false).unwrap();
    let role = Role::Fast { worker: 0 };
    instance.call(&Call::Init { role, workers: 1, tick_ns: SECOND, interval_ns: 0 }).unwrap();
    instance
}

fn hold(name: &str, worst: &mut Worst, executed: u64, bound: Option<u128>) {
    let Some(bound) = bound else { return };
    assert!(
        u128::from(executed) <= bound,
        "{name}: {executed} instructions executed, its bound says {bound}"
    );
    worst.calls += 1;
    if u128::from(executed) * worst.bound >= bound * u128::from(worst.executed) {
        (worst.executed, worst.bound) = (executed, bound);
    }
}

fn each_block(path: &Path, mut each: impl FnMut(&RawBlock, &[Descriptor])) {
    let Ok(mut source) = flame_source::open(&[path.to_owned()], &FileOptions::default()) else { return };
    let mut block = RawBlock::default();
    while let Ok(Next::Packets) = source.next(&mut block) {
        let decode = |p: &flame_source::RawPacket| {
            let bytes = &block.data[p.offset as usize..(p.offset + p.cap_len) as usize];
            let d = flame_decode::decode(p.link, bytes, p.wire_len, flame_decode::Options::default());
            Descriptor { ts_ns: p.ts_ns, addr: p.offset, ..d }
        };
        let decoded: Vec<Descriptor> = block.packets.iter().map(decode).collect();
        each(&block, &decoded);
    }
}

#[test]
fn no_call_of_a_standard_module_costs_more_than_its_bound() {
    let engines = Engines::counting().unwrap();
    let captures = captures();
    let mut rows = Vec::new();
    for name in NAMES {
        let Some(mut module) = Measured::new(&engines, name) else { return };
        let bounded = module.bound("flame_batch").is_bounded();
        // Single packets are the sharpest test, and whole batches are the usual case.
        for path in &captures {
            let mut now = 0;
            if bounded {
                module.restart();
            }
            each_block(path, |block, decoded| {
                module.block(block, decoded, 1);
                module.block(block, decoded, 256);
                now = decoded.last().map_or(now, |d| d.ts_ns);
            });
            module.end(now);
        }
        let Worst { executed, bound, calls } = module.batch;
        let ratio = bound as f64 / executed.max(1) as f64;
        println!(
            "{name:<12} {bounded:<6} {bound:>12} {executed:>10} {ratio:>8.2} ({calls} calls; ticks {} of {})",
            module.rest.executed, module.rest.bound
        );
        if bounded {
            rows.push(ratio);
        }
    }
    rows.sort_by(f64::total_cmp);
    // One capture of everyday traffic is not enough for this test.
    if traces().is_some() {
        assert!(rows.len() >= 7, "bounded so far");
        // A batch may be the one for which memory grows by an output area, which is rare: 1024 units.
        // Each packet of `flow` may have sixteen tags, which none has here.
        assert!(rows[rows.len() / 2] <= 2.2 && rows[rows.len() - 1] <= 5.5, "{rows:?}");
    }
    println!(
        "{} bounded; bound / worst call: median {:.2}, worst {:.2}",
        rows.len(),
        rows[rows.len() / 2],
        rows[rows.len() - 1]
    );
}
