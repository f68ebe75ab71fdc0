//! Modules that forward packets and return anything: nothing crashes, and no packet is lost or made without a
//! count.

use crate::common::{Lines, frame, with_manifest};
use flame_admit::Protection;
use flame_compile::Compiler;
use flame_element::modules::{ModuleArgs, Modules, Notify};
use flame_element::{Account, Environment, Outcome, Router};
use flame_node::{Applicant, Client, Elements, RecordCutOff, RunRequest, Submission};
use flame_plan::{Catalog, Discipline, Limits, ViewSpec};
use flame_record::Sink;
use flame_worker::Runner;
use proptest::prelude::*;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A client with one module, which needs no files.
struct InMemory {
    wasm: Vec<u8>,
    said: Arc<Mutex<Vec<String>>>,
    /// The program that runs the module in a process, if it does not run here.
    runner: Option<Runner>,
}

impl Client for InMemory {
    fn submission(&self, file: &str) -> Result<Submission, String> {
        let (name, file) = (file.to_owned(), file.to_owned());
        Ok(Submission { name, file, wasm: self.wasm.clone(), signers: Vec::new() })
    }

    fn request(&self, args: &ModuleArgs, submission: Submission) -> Result<RunRequest, String> {
        let expose = args.expose.as_deref().unwrap_or("headers").parse()?;
        Ok(RunRequest {
            submissions: vec![submission],
            workers: 1,
            interval_ns: 0,
            discipline: Discipline::WaitingGraph,
            links: Vec::new(),
            view: ViewSpec { expose, ..ViewSpec::default() },
            narrower: Vec::new(),
            settings: Default::default(),
            restarts: args.restarts,
            limits: Limits { call_budget: 10_000_000, ..Limits::default() },
            protection: Protection::Auto,
            costs: None,
            time_limit: None,
            seed: None,
        })
    }

    fn cut_offs(&self) -> RecordCutOff {
        Box::new(|_, _| {})
    }

    fn compiler(&self) -> Compiler<'static> {
        let engines = flame_compile::Engines::new().expect("Wasmtime supports this machine");
        Compiler::in_process(engines, None)
    }

    fn applicant(&self, _: &ModuleArgs) -> Result<Option<Applicant>, String> {
        Ok(None)
    }

    fn sink(&self, _: &Catalog) -> Result<Box<dyn Sink>, String> {
        Ok(Box::new(Lines::default()))
    }

    fn notify(&self) -> Notify {
        let said = self.said.clone();
        Arc::new(move |text| said.lock().unwrap().push(text.to_owned()))
    }

    fn runner(&self) -> Result<Option<Runner>, String> {
        Ok(self.runner.clone())
    }
}

/// The end of a run.
#[derive(Debug, PartialEq)]
pub struct End {
    /// The stats, account, faults, length and held packets of the module.
    pub handlers: Vec<String>,
    pub accounts: Vec<(String, Account)>,
    pub module: usize,
    pub said: bool,
}

/// Runs a graph with the module `m`, here or in a process of a program.
pub fn run(text: &str, wasm: Vec<u8>, runner: Option<&Path>) -> End {
    let said = Arc::default();
    let runner = runner.map(|program| Runner::at(program).unwrap());
    let client = InMemory { wasm, said: Arc::clone(&said), runner };
    let modules: Arc<dyn Modules> = Arc::new(Elements::new(client, false));
    let graph = flame_graph::read(text.as_bytes(), "f", &flame_graph::Options::default()).unwrap();
    let router = Router::new(graph, text, Environment::silent(Some(modules.clone())));
    let router = router.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(router.run(), Outcome::Stopped);
    let read = |handler: &str| router.read(None, handler, "").unwrap();
    let handlers = ["m.stats", "m.account", "m.faults", "m.length", "m.held"].map(read).into();
    router.cleanup();
    modules.finish().unwrap();
    let accounts = (0..router.nodes_count()).map(|at| (router.declaration(at), router.account(at))).collect();
    let said = !said.lock().unwrap().is_empty();
    End { handlers, accounts, module: router.by_name["m"], said }
}

/// Returns a module whose calls return these outputs, one after the other and again from the first.
pub fn module(outputs: &[Vec<u8>], rests: bool, manifest: &str) -> Vec<u8> {
    let (mut data, mut values) = (Vec::new(), Vec::new());
    for output in outputs {
        values.push((4096 + data.len() as u64) | (output.len() as u64) << 32);
        data.extend(output);
    }
    // Every other call says that a rest follows, which is the next output.
    if rests {
        values.iter_mut().step_by(2).for_each(|value| *value |= 1 << 30);
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("\\{b:02x}")).collect::<String>();
    let table: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let next = format!(
        "(local.set $at (i32.load (i32.const 8)))
         (i32.store (i32.const 8) (i32.rem_u (i32.add (local.get $at) (i32.const 1)) (i32.const {})))
         (i64.load (i32.add (i32.const 64) (i32.mul (local.get $at) (i32.const 8))))",
        values.len()
    );
    let text = format!(
        r#"(module (memory (export "memory") 16)
          (data (i32.const 64) "{}") (data (i32.const 4096) "{}")
          (func (export "flame_push") (param i32 i32) (result i64) (local $at i32) {next})
          (func (export "flame_rest") (result i64) (local $at i32) {next})
          (func (export "flame_end") (param i64) (result i64) (i64.const 0)))"#,
        hex(&table),
        hex(&data)
    );
    with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..90);
    let index = prop_oneof![6 => 0..12_u16, 1 => 200..300_u16, 2 => Just(0xffff), 1 => any::<u16>()];
    let port = prop_oneof![8 => 0..2_u16, 1 => 0..5_u16, 1 => any::<u16>()];
    let send =
        (index, port, prop_oneof![2 => Just(Vec::new()), 1 => bytes()]).prop_map(|(index, port, bytes)| {
            frame(0xfffb, &[&index.to_le_bytes()[..], &port.to_le_bytes(), &bytes].concat())
        });
    // Packets that are held, released and copied, mostly within three slots.
    let slot = || prop_oneof![8 => 0..3_u16, 1 => any::<u16>()];
    let index = prop_oneof![6 => 0..12_u16, 1 => any::<u16>()];
    let port = prop_oneof![8 => 0..2_u16, 1 => any::<u16>()];
    let pair = |a: u16, b: u16| [a.to_le_bytes(), b.to_le_bytes()].concat();
    let hold = (index, slot()).prop_map(move |(index, slot)| frame(0xfff7, &pair(index, slot)));
    let release = (prop_oneof![Just(0xfff6), Just(0xfff5)], slot(), port)
        .prop_map(move |(kind, slot, port)| frame(kind, &pair(slot, port)));
    let other = (prop_oneof![Just(0_u16), Just(0xfffb), Just(0xfffe), Just(0xfffd), any::<u16>()], bytes())
        .prop_map(|(kind, bytes)| frame(kind, &bytes));
    prop_oneof![20 => send, 10 => hold, 10 => release, 1 => other, 1 => bytes()]
}

/// Outputs of which most are valid, so that modules live for a while.
fn outputs() -> impl Strategy<Value = Vec<Vec<u8>>> {
    // Each index at most once, in any order.
    let some = || prop::sample::subsequence((0..12_u16).collect::<Vec<_>>(), 0..12).prop_shuffle();
    let valid = (some(), prop::collection::vec((0..2_u16, 0..9_u16), 12), any::<bool>()).prop_map(
        |(all, ports, makes)| {
            let head = |index: u16, port: u16| [index.to_le_bytes(), port.to_le_bytes()].concat();
            // Of three packets, one is held, and one of the slots is released or copied.
            let sent = all.iter().zip(ports).flat_map(|(index, (port, how))| match how {
                0..=2 => frame(0xfff7, &head(*index, how)),
                3..=5 => [frame(0xfffb, &head(*index, port)), frame(0xfff6, &head(how - 3, port))].concat(),
                6 if makes => frame(0xfff5, &head(port, port)),
                _ => frame(0xfffb, &head(*index, port)),
            });
            let made =
                if makes { frame(0xfffb, &[&head(0xffff, 1)[..], b"made"].concat()) } else { Vec::new() };
            sent.chain(made).collect()
        },
    );
    let any = prop::collection::vec(frames(), 0..8).prop_map(|frames| frames.concat());
    prop::collection::vec(prop_oneof![4 => valid, 1 => any], 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn any_output_is_contained(
        outputs in outputs(),
        rests in any::<bool>(),
        (modify, transmit, held) in (any::<bool>(), any::<bool>(), prop_oneof![1 => Just(0), 4 => Just(3)]),
        expose in prop::sample::select(vec!["none", "headers", "all", "payload:4"]),
        restarts in 0..4_u32,
        policy in prop::sample::select(vec!["drop", "pass"]),
        (burst, limit) in (1..12_u32, 1..60_u32),
        back in any::<bool>(),
    ) {
        let manifest = format!(
            "abi = 1\nname = \"any\"\nversion = \"1\"\ndescription = \"test\"\n[needs]\nexpose = \"{expose}\"\n\
             [ports]\ninputs = 2\noutputs = 2\nmodify = {modify}\ntransmit = {transmit}\nheld = {held}\n"
        );
        // Output 1 may lead back to input 1.
        let way = if back { "m [1] -> Loop(2) -> [1] m" } else { "m [1] -> Discard; Idle -> [1] m" };
        let text = format!(
            "InfiniteSource(DATA \\<0200000000010200000000020800450000200000000040110000010101010202020200350035000c0000deadbeef>,
               LIMIT {limit}, BURST {burst}, STOP true)
             -> m :: Module(any, EXPOSE {expose}, RESTART {restarts}, ON_EVICT {policy});
             m [0] -> c :: Counter -> Discard; {way}"
        );
        let wasm = module(&outputs, rests, &manifest);
        let end = run(&text, wasm.clone(), None);
        let End { handlers, accounts, module, said } = &end;
        for (name, account) in accounts {
            prop_assert!(account.adds_up(), "{name}: {account:?}");
        }
        let number = |name: &str| -> u64 {
            let lines = handlers[0].lines().filter(|l| l.starts_with(name));
            lines.map(|l| l.split(' ').nth(1).unwrap().parse::<u64>().unwrap()).sum()
        };
        let m = &accounts[*module].1;
        let count = |at: usize| -> u64 { handlers[at].parse().unwrap() };
        prop_assert_eq!(number("offered"), m.taken - count(3), "{:?} {:?}", handlers, m);
        prop_assert_eq!(m.held, count(3) + count(4), "{:?} {:?}", handlers, m);
        prop_assert!(count(4) <= held, "{:?}", handlers);
        prop_assert_eq!(number("offered"), number("processed") + number("shed"), "{:?}", handlers);
        prop_assert_eq!(number("faults") > 0, *said, "{:?}", handlers);
        if !transmit {
            prop_assert_eq!(m.made, 0);
        }
        // A process changes nothing.
        prop_assert_eq!(&run(&text, wasm, Some(&crate::common::runner())), &end);
    }
}
