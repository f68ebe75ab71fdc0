//! Tests of overload: while a live source's buffer is full, modules of low priorities receive no packets,
//! lowest first; afterwards they receive all again. What each of them lost is in its account.

use crate::common::{COUNT, Lines, Memory, install, options, request, with_manifest};
use flame_plan::{Account, Discipline, ModulePlan, Plan, Shed, TrustedFilter, ViewKey, ViewSpec};
use flame_run::Engines;
use flame_source::{Next, Progress, RawBlock, Source, SourceError};
use flame_worker::{Input, Observer, Overload, Report, Run};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PACKETS: usize = 100;
/// The blocks of the source's full buffer.
const FULL: u32 = 40;
const MANIFEST: &str = "abi = 1\nname = \"count\"\nversion = \"1\"\ndescription = \"test\"\n\
    [[tables]]\nname = \"count\"\ncolumns = [{ name = \"packets\", type = \"u64\", unit = \"packets\" }]\n";

/// A live source whose buffer is full for [`FULL`] blocks and empty then, until `left` changes have come and
/// some blocks more.
struct Filled {
    blocks: u32,
    more: u32,
    left: Arc<AtomicU32>,
    started: Instant,
}

impl Source for Filled {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        let is_over = self.blocks >= FULL && self.left.load(Ordering::Relaxed) == 0;
        self.more -= u32::from(is_over);
        if self.more == 0 || self.started.elapsed() > Duration::from_secs(60) {
            return Ok(Next::End);
        }
        if self.blocks >= FULL {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.blocks += 1;
        Memory { per_block: PACKETS, ..Memory::tcp(PACKETS, 5) }.next(block)
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn discipline(&self) -> Discipline {
        Discipline::Link
    }

    fn fill(&self) -> u32 {
        if self.blocks <= FULL { 1000 } else { 0 }
    }
}

/// The changes that were told.
#[derive(Clone, Default)]
struct Changes(Arc<Mutex<Vec<(String, bool)>>>, Arc<AtomicU32>);

impl Observer for Changes {
    fn progress(&mut self, _: u64, _: Progress) {}

    fn overload(&mut self, module: &str, worker: usize, begins: bool) {
        assert_eq!(worker, 0);
        self.0.lock().unwrap().push((module.to_owned(), begins));
        let left = self.1.load(Ordering::Relaxed);
        self.1.store(left.saturating_sub(1), Ordering::Relaxed);
    }
}

/// Runs modules of these names, priorities and views.
fn run(modules: &[(&str, u32, ViewSpec)], overload: Overload, changes: u32) -> (Report, Vec<(String, bool)>) {
    let wasm = with_manifest(wat::parse_str(COUNT).unwrap(), MANIFEST.as_bytes());
    let plan = |(name, priority, view): &(&str, u32, ViewSpec)| {
        let mut plan = install(&wasm, &request()).unwrap();
        plan.terms.priority = *priority;
        ModulePlan { name: (*name).to_owned(), view: view.clone(), ..plan }
    };
    let plan = Plan::new(modules.iter().map(plan).collect(), 1, 0);
    let engines = Engines::new().unwrap();
    let run = Run::new(&plan, &[], &engines, options(Arc::default())).unwrap().overload(overload);
    let (mut sink, told) = (Lines::default(), Changes::default());
    told.1.store(changes, Ordering::Relaxed);
    let source = Filled { blocks: 0, more: 20, left: told.1.clone(), started: Instant::now() };
    let report = run.execute(Input::Shared(Box::new(source)), &mut sink, &mut told.clone()).unwrap();
    for (name, account) in &report.accounts {
        assert!(account.adds_up(), "{name}: {account:?}");
        // The module counts what it received.
        let line = format!("{name}.count packets={}", account.processed);
        assert!(sink.lines.contains(&line), "{line}: {:?}", sink.lines);
    }
    let changes = told.0.lock().unwrap().clone();
    (report, changes)
}

fn is_whole(account: &Account) -> bool {
    account.processed + account.filtered == account.offered
}

#[test]
fn the_lowest_loses_first_the_highest_nothing_and_all_return() {
    let _turn = crate::turn();
    let select = TrustedFilter::parse("tcp").unwrap().into_iter().collect();
    let filtered = ViewSpec { select, ..ViewSpec::default() };
    // Under a grant that hides something, blocks are filled independently of the source's.
    let confined = ViewSpec { key: Some(ViewKey([1; 32])), ..ViewSpec::default() };
    let plain = ViewSpec::default();
    for (case, views) in [
        ("one view", [plain.clone(), plain.clone(), plain.clone()]),
        ("two views", [plain.clone(), filtered.clone(), filtered]),
        ("confined views", [confined.clone(), confined.clone(), confined]),
    ] {
        let [of_low, of_top, of_mid] = views;
        let modules = [("low", 1, of_low), ("top", 9, of_top), ("mid", 5, of_mid)];
        let (report, changes) = run(&modules, Overload::default(), 4);
        let told: Vec<_> = changes.iter().map(|(module, begins)| (module.as_str(), *begins)).collect();
        assert_eq!(told, [("low", true), ("mid", true), ("mid", false), ("low", false)], "{case}");
        let account = |name: &str| &report.accounts.iter().find(|(of, _)| of == name).unwrap().1;
        let [low, mid, top] = ["low", "mid", "top"].map(account);
        assert!(is_whole(top), "{case}: {top:?}");
        let lost = [low, mid].map(|account| {
            let lost = account.shed_by(Shed::Overload);
            assert_eq!(account.processed + account.filtered + lost, account.offered, "{case}: {account:?}");
            lost
        });
        // Both lose nearly all of the full buffer, and the lowest a block more, and longer.
        let full = u64::from(FULL) * PACKETS as u64;
        assert!(lost[0] > lost[1] && lost[1] > full * 9 / 10, "{case}: {lost:?}");
        assert!(low.processed > 20 * PACKETS as u64 / 2, "{case}: {low:?}");
    }
}

#[test]
fn without_two_priorities_or_if_it_is_off_the_kernel_alone_drops() {
    let _turn = crate::turn();
    let view = ViewSpec::default;
    for (low, overload) in [(9, Overload::default()), (1, Overload::OFF)] {
        let (report, changes) = run(&[("low", low, view()), ("top", 9, view())], overload, 0);
        assert!(changes.is_empty(), "{changes:?}");
        assert!(report.accounts.iter().all(|(_, account)| is_whole(account)), "{:?}", report.accounts);
    }
}

#[test]
fn the_option_is_a_fill_or_off() {
    let _turn = crate::turn();
    assert_eq!(Overload::default().to_string(), "50%");
    for text in ["off", "10%", "50%", "60%"] {
        assert_eq!(text.parse::<Overload>().unwrap().to_string(), text);
    }
    for wrong in ["", "50", "9%", "61%", "-1%", "1000%", "on", "50 %"] {
        assert!(wrong.parse::<Overload>().unwrap_err().contains("\"10%\" to \"60%\""), "{wrong}");
    }
}
