use crate::admission_args::AdmissionArgs;
use crate::console::{complain, say, say_json};
use crate::error::Error;
use crate::exit::Status;
use crate::files::read;
use crate::format::OutputFormat;
use crate::remedies::{self, Advice, readable};
use crate::{cache, limits, paths};
use clap::Args;
use flame_abi::layout::names;
use flame_abi::{MAX_BATCH, MAX_PACKET};
use flame_admit::{PacketTimeLimit, Protection, Verdict};
use flame_bounds::{Bound, Entry, LoopReport, TYPICAL, TripCount};
use flame_compile::{Analysed, InstallRequest, Report};
use flame_plan::{CutOff, Expose, Limits, ModuleClass, OnFault, Terms, ViewSpec, longest_call};
use rustc_demangle::demangle;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Show upper bounds on the cost of a module's calls, found without running it
///
/// Bounds are numbers of executed instructions. L is the captured length of a packet. Calls without a bound
/// are metered at run time and stopped at their budget. Times are estimates for this machine, after `flame
/// calibrate`.
#[derive(Args)]
pub struct Check {
    /// A module by name or path
    module: String,

    /// Also list every loop (location, trip count, cost per iteration) and the worst-case path
    #[arg(long)]
    explain: bool,

    /// Fail (exit status 1) unless a batch of 256 packets is proven to cost no more than this
    #[arg(long, value_name = "INSTRUCTIONS")]
    limit: Option<u64>,

    /// Longest packet in bytes, as in `flame run -s`
    #[arg(long, value_name = "BYTES", default_value_t = MAX_PACKET as u32,
        value_parser = clap::value_parser!(u32).range(1..=MAX_PACKET as i64))]
    snaplen: u32,

    /// Bytes that the module may see, as in `flame run --expose` [default: all that its manifest asks for]
    #[arg(long)]
    expose: Option<Expose>,

    /// Maximum work units per packet, as in `flame run --packet-budget`
    #[arg(long, value_name = "UNITS", default_value_t = limits::PACKET_BUDGET)]
    packet_budget: u64,

    /// Maximum memory of one instance, as in `flame run --memory`: estimates of time assume that it uses all
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1024))]
    memory: u32,

    #[command(flatten)]
    admission: AdmissionArgs,

    #[arg(short, long, default_value = "table")]
    format: OutputFormat,
}

/// The findings, with what is needed to print them.
struct Found {
    analysis: Report,
    /// Source lines by offset in the file, where they are known and shown.
    lines: BTreeMap<usize, String>,
    /// The part of each packet that the module sees, and its most bytes.
    expose: Expose,
    visible: u64,
    verdict: Verdict,
    advice: Vec<Advice>,
    /// Instructions that a packet and a call may take.
    budgets: (u64, u64),
    time_limit: Option<PacketTimeLimit>,
}

impl Found {
    fn is_bounded(&self) -> bool {
        self.verdict.class == ModuleClass::Bounded
    }
}

impl Check {
    pub fn run(self) -> Result<Status, Error> {
        let path = paths::module(&self.module)?;
        let wasm = read(&path)?;
        let named = |e: flame_compile::CompileError| format!("{}: {e}", path.display());
        let compiler = crate::compiler::looking()?;
        let examined = compiler.examine(&wasm).map_err(named)?;
        let time_limit = self.admission.packet_time_limit(None, self.snaplen.into())?;
        let conditions = flame_compile::conditions(&examined.manifest, &self.request(time_limit))
            .map_err(|e| format!("{}: {e}", path.display()))?;
        let flame_compile::Conditions { view, limits, admission, .. } = conditions;
        let expose = view.expose;
        let costs = crate::costs::load_calibration(&flame_compile::Engines::new()?, limits.memory.into());
        let analysed = compiler.analyse(&wasm, &examined, costs.as_ref()).map_err(named)?;
        let cut_off = self.cut_off(&examined.hash)?;
        let bounds = || match &analysed {
            Analysed::Report(report) => Ok::<_, Error>(Ok(report.batches())),
            Analysed::Exceeded(why) => Ok(Err(why.clone())),
        };
        let verdict = flame_admit::decide(cut_off, bounds, expose, &admission)?;
        let Analysed::Report(analysis) = analysed else { return self.without_bounds(&verdict) };
        let shown = if self.explain { offsets(&analysis) } else { remedies::offsets(&analysis) };
        let lines = match shown.is_empty() {
            false => compiler.lines(&wasm, &examined, shown).unwrap_or_else(|e| {
                complain!("flame: note: {}: {e}", path.display());
                BTreeMap::new()
            }),
            true => BTreeMap::new(),
        };
        let visible = admission.visible(expose);
        // A batch of 256 packets within the limit: this much for each.
        let limit = self.limit.map(|limit| limit / flame_abi::MAX_BATCH as u64);
        let advice = remedies::advice(&analysis, &verdict, &lines, visible, limit);
        let most = match verdict.class {
            ModuleClass::Bounded => longest_call(admission.packet_budget),
            ModuleClass::Metered => u64::MAX,
        };
        let budgets = (limits.packet_budget, limits.call_budget.min(most));
        let found =
            Found { analysis: *analysis, lines, expose, visible, verdict, advice, budgets, time_limit };
        match self.format {
            OutputFormat::Json => self.json(&found),
            OutputFormat::Table => self.table(&found),
        }
        match self.limit {
            None => {
                Ok(if time_limit.is_none() || found.is_bounded() { Status::Done } else { Status::Failed })
            }
            Some(limit) => within(&found, limit),
        }
    }

    /// Returns the request of a run with the same options.
    fn request(&self, time_limit: Option<PacketTimeLimit>) -> InstallRequest {
        let expose = self.expose.unwrap_or(Expose::All);
        InstallRequest {
            view: ViewSpec { expose, snaplen: self.snaplen, ..ViewSpec::default() },
            settings: BTreeMap::new(),
            on_fault: OnFault::Stop,
            limits: Limits { memory: self.memory << 20, ..limits::with_budget(self.packet_budget) },
            protection: Protection::Auto,
            costs: None,
            time_limit,
            terms: Terms::default(),
        }
    }

    /// Returns the reason why the module was cut off here, and the file that records that.
    fn cut_off(&self, hash: &[u8; 32]) -> Result<Option<(CutOff, PathBuf)>, Error> {
        let folder = paths::cache();
        // A check creates no cache.
        let cache = if folder.is_dir() { cache::open(false) } else { None };
        Ok(cache.and_then(|c| c.cut_off(hash)))
    }

    /// Reports that the analysis was stopped: the module is run with counters.
    fn without_bounds(&self, verdict: &Verdict) -> Result<Status, Error> {
        match self.format {
            OutputFormat::Json => say_json!({"bounded": false, "why": verdict.why.to_string()}),
            OutputFormat::Table => say!("verdict        metered: {}", verdict.why),
        }
        let is_required = self.limit.is_some() || self.admission.has_time_limit();
        Ok(if is_required { Status::Failed } else { Status::Done })
    }

    fn json(&self, found: &Found) {
        for e in &found.analysis.entries {
            let at =
                |p: flame_bounds::Poly| p.at(found.visible).map(|n| u64::try_from(n).unwrap_or(u64::MAX));
            let ns = |p: flame_bounds::Poly| p.at(found.visible).map(|ps| ps as f64 / 1000.0);
            say_json!({"entry": e.name, "call": e.bound.call.to_string(), "call_most": at(e.bound.call),
                    "diverging": e.diverging,
                    "packet": e.bound.packet.to_string(), "packet_most": at(e.bound.packet),
                    "common_call": e.common.call.to_string(), "common_packet": e.common.packet.to_string(),
                    "call_ns": e.time.and_then(|t| ns(t.call)), "packet_ns": e.time.and_then(|t| ns(t.packet)),
                    "proved": e.bound.is_bounded(), "class": e.depends.class(), "why": e.why.as_ref().map(|why| readable(&why.to_string())),
                    "calls_deep": depth(e.stack.calls), "stack_bytes": depth(e.stack.memory),
                    "locals_bytes": depth(e.stack.locals), "grows": e.grows, "imports": e.imports});
        }
        for l in found.analysis.loops.iter().filter(|_| self.explain) {
            let (trips, cost) = (trips(l), l.cost.to_string());
            let line = found.lines.get(&l.offset);
            say_json!({"function": name(&l.function), "offset": l.offset, "line": line, "trip_count": trips,
                    "iteration_cost": cost, "class": l.depends.class(),
                    "why": l.why.as_ref().map(|why| readable(&why.to_string()))});
        }
        for step in self.path(found) {
            say_json!({"step": step.place, "cost": step.cost, "loop": step.is_loop});
        }
        for cycle in &found.analysis.cycles {
            say_json!({"recursion": cycle.iter().map(|f| name(f)).collect::<Vec<_>>()});
        }
        found.advice.iter().for_each(|advice| say_json!(advice.json()));
        say_json!({"bounded": found.is_bounded(), "why": found.verdict.why.to_string(),
            "expose": found.expose.to_string(), "visible": found.visible, "batch": found.verdict.batch});
    }

    fn table(&self, found: &Found) {
        let analysis = &found.analysis;
        say!("{:<14} {:<24} {:<10} bound", "call", "instructions", "time");
        for e in &analysis.entries {
            self.entry(e, found.visible);
        }
        say!();
        if let Some(batch) = analysis.batch() {
            say!("class          {}: {}", batch.depends.class(), depends(batch));
            match depth(batch.stack.calls) {
                Some(calls) => say!(
                    "stack          at most {calls} nested calls, {} bytes in memory, {} of locals",
                    batch.stack.memory,
                    batch.stack.locals
                ),
                None => say!("stack          unbounded (recursive calls)"),
            }
            let grows = if batch.grows { "batches may grow it, up to its limit" } else { "does not grow" };
            say!("memory         {}", if analysis.grows { grows } else { "does not grow" });
            if !batch.imports.is_empty() {
                say!("host calls     {} (replaced by instructions)", batch.imports.join(", "));
            }
        }
        say!(
            "loops          {} have a bound, {} have a counter",
            analysis.bounded_loops,
            analysis.counted_loops
        );
        // A run that shows less of each packet may come to another verdict.
        say!("view           {}, up to {} bytes of a packet", found.expose, found.visible);
        let (packet, call) = found.budgets;
        say!("budgets        {packet} a packet, {call} a call");
        let limit = found.time_limit.map_or("none".to_owned(), |limit| time(limit.most_ns()));
        say!("time limit     {limit}");
        if found.verdict.batch < MAX_BATCH as u32 {
            say!("batches        at most {} packets, which nothing interrupts", found.verdict.batch);
        }
        say!(
            "verdict        {}: {}",
            if found.is_bounded() { "bounded" } else { "metered" },
            found.verdict.why
        );
        if !found.advice.is_empty() {
            say!();
            found.advice.iter().for_each(Advice::say);
            if !found.advice.iter().any(|advice| advice.is_in(&[".rs:", ".c:", ".h:"])) {
                say!("`flame build --lines` keeps the source lines of these places.");
            }
        }
        for cycle in analysis.cycles.iter().filter(|_| self.explain) {
            let names: Vec<_> = cycle.iter().map(|f| name(f)).collect();
            say!("recursion      {}", names.join(" > "));
        }
        if self.explain {
            self.explained(found);
        }
    }

    fn entry(&self, e: &Entry, visible: u64) {
        let most = match e.name.as_str() {
            names::BATCH | names::PUSH => "a packet's budget for each packet",
            names::REST => "the budgets of the batch's packets",
            _ => "the budget of a call",
        };
        let verdict = match &e.why {
            None if e.diverging > 0 => {
                format!("proved, including {} for panics and other code that does not return", e.diverging)
            }
            None if e.bound.is_bounded() => "proved".to_owned(),
            Some(why) => {
                format!("counted, cut off at {most}: {}", readable(&why.to_string()))
            }
            None => format!("counted, cut off at {most}"),
        };
        let ns = |p: flame_bounds::Poly| {
            let ps = e.time.filter(|t| t.is_bounded()).and_then(|_| p.at(visible));
            ps.map_or_else(String::new, |ps| time(ps as f64 / 1000.0))
        };
        let time = e.time.unwrap_or(Bound::UNBOUNDED);
        say!("{:<14} {:<24} {:<10} {verdict}", e.name, e.bound.call.to_string(), ns(time.call));
        if e.bound.call.is_bounded() && e.bound.packet != flame_bounds::Poly::ZERO {
            say!("{:<14} {:<24} {:<10} for each packet", "", e.bound.packet.to_string(), ns(time.packet));
        }
        if e.common != e.bound {
            let Bound { call, packet } = e.common;
            say!("{:<14} {call} and {packet} for each packet, without cold paths", "");
        }
    }

    fn explained(&self, found: &Found) {
        say!();
        for l in &found.analysis.loops {
            let line = found.lines.get(&l.offset).map_or("", String::as_str);
            let (trips, cost) = (trips(l), l.cost.to_string());
            let why = l.why.as_ref().map_or(String::new(), |why| format!(": {}", readable(&why.to_string())));
            say!(
                "loop at byte {:<8} {trips:<14} iterations of {cost:<16} class {}  {} {line}{why}",
                l.offset,
                l.depends.class(),
                name(&l.function)
            );
        }
        let path = self.path(found);
        if !path.is_empty() {
            say!(
                "\nThe worst-case path through {}, for packets of {TYPICAL} bytes:",
                found.analysis.batch().map_or("", |e| &e.name)
            );
        }
        for step in path {
            let what = if step.is_loop { "the whole loop" } else { "" };
            let cost = step.cost.map_or_else(|| "unbounded".to_owned(), |cost| cost.to_string());
            say!("{cost:>12}  {} {what}", step.place);
        }
    }

    /// Returns the places where the cost of the worst-case path of a batch increases.
    fn path(&self, found: &Found) -> Vec<Place> {
        let batch = found.analysis.batch();
        let Some(batch) = batch.filter(|_| self.explain) else { return Vec::new() };
        let mut places: Vec<Place> = Vec::new();
        for step in &batch.path {
            let line = found.lines.get(&step.offset);
            let place = match line {
                Some(line) => format!("{} {line}", name(&step.function)),
                None => name(&step.function),
            };
            let cost = Some(step.cost).filter(|cost| *cost < u64::MAX);
            let new = Place { place, cost, is_loop: step.is_loop, offset: step.offset };
            // Of many branches in one line, or one function without lines, the last includes the cost of all.
            match places.last_mut() {
                Some(last) if last.place == new.place && !last.is_loop && last.at_most(&new) => *last = new,
                _ => places.push(new),
            }
        }
        for place in &mut places {
            place.place = format!("{} (byte {})", place.place, place.offset);
        }
        places
    }
}

/// Returns the offsets in the file that are explained.
fn offsets(analysis: &Report) -> Vec<usize> {
    let steps = analysis.entries.iter().flat_map(|e| &e.path).map(|step| step.offset);
    analysis.loops.iter().map(|l| l.offset).chain(steps).collect()
}

struct Place {
    place: String,
    /// `None` if there is no bound.
    cost: Option<u64>,
    is_loop: bool,
    offset: usize,
}

impl Place {
    /// Returns whether it costs no more than `other`.
    fn at_most(&self, other: &Self) -> bool {
        self.cost.unwrap_or(u64::MAX) <= other.cost.unwrap_or(u64::MAX)
    }
}

fn within(found: &Found, limit: u64) -> Result<Status, Error> {
    let Some(batch) = found.analysis.batch() else {
        return Ok(Status::Failed);
    };
    match batch.bound.at(flame_abi::MAX_BATCH as u64, found.visible) {
        Some(most) if most <= u128::from(limit) => Ok(Status::Done),
        Some(most) => Err(format!("{} may cost {most} instructions, more than {limit}", batch.name).into()),
        None => {
            let why = batch.why.as_ref().map_or("unknown".to_owned(), |why| readable(&why.to_string()));
            Err(format!("{} has no bound: {why}", batch.name).into())
        }
    }
}

fn trips(l: &LoopReport) -> String {
    match l.trips {
        TripCount::AtMost(n) => n.to_string(),
        TripCount::Packets => "each packet".to_owned(),
        TripCount::Counted => "counted".to_owned(),
    }
}

fn depends(e: &Entry) -> &'static str {
    use flame_bounds::Depends as D;
    match e.depends {
        D::Nothing => "the same for every packet",
        D::Length => "by the length of packets",
        D::Headers => "by the length of headers",
        D::Configuration => "by its parameters",
        D::Stored => "by values in its memory",
        D::Field => "by the contents of packets",
        D::Unknown => "without bound, cut off by a counter",
    }
}

fn depth(n: u64) -> Option<u64> {
    (n < u64::MAX).then_some(n)
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns < 9.95 => format!("{ns:.1} ns"),
        ns if ns < 9_950.0 => format!("{ns:.0} ns"),
        ns if ns < 9_950_000.0 => format!("{:.0} µs", ns / 1e3),
        ns => format!("{:.0} ms", ns / 1e6),
    }
}

fn name(function: &str) -> String {
    format!("{:#}", demangle(function))
}
