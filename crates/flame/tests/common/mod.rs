//! Shared parts of the tests: packets from memory, records into memory, modules from text.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_schema::DataType;
use flame_abi::manifest::Table;
use flame_admit::Protection;
use flame_compile::{Compiler, InstallError, InstallRequest};
use flame_plan::{Limits, ModulePlan, OnFault, Plan, Terms, ViewSpec};
use flame_record::{RecordBatch, Sink, SinkError};
use flame_source::Source;
use flame_worker::{Input, Options, Report, Run, RunError, Silent};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

pub use flame_testing::{Endless, Live, Memory, Paced, Pcap, eventually, pcap, tcp_packet};

pub use crate::wasm::{MANIFEST, frame, with_manifest};

/// Writes a shell script, and returns its file.
pub fn script(program: PathBuf, text: &str) -> PathBuf {
    flame_testing::script(program, &format!("#!/bin/sh\n{text}\n"))
}

/// Returns the name by which this program runs a test in a file, whose `module_path!()` this is.
pub fn test_name(file: &str, test: &str) -> String {
    format!("{}::{test}", file.split_once("::").unwrap().1)
}

/// Writes a program that is the process of a module which has taken it over, and returns its file. It runs a
/// test of this executable, with a variable that says how it behaves.
pub fn taken_over(program: PathBuf, test: &str, (variable, mode): (&str, &str)) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    script(program, &format!("{variable}={mode} exec '{}' --exact {test} --nocapture", own.display()))
}

/// Returns the workspace's folder.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the runner, built by itself: so no feature of other packages brings the compiler into it.
pub fn runner() -> PathBuf {
    static BUILT: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    let build = || {
        // TARGET/PROFILE/deps/TEST
        let test = std::env::current_exe().unwrap();
        let built_in = test.ancestors().nth(2).unwrap();
        let profile = built_in.file_name().unwrap();
        let built = std::process::Command::new(env!("CARGO"))
            .args(["build", "--quiet", "-p", "flame-runner", "--target-dir"])
            .args([built_in.parent().unwrap().as_os_str(), "--profile".as_ref()])
            .arg(if profile == "debug" { "dev".as_ref() } else { profile })
            .current_dir(root())
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        built_in.join("flame-runner")
    };
    BUILT.get_or_init(build).clone()
}

/// Returns the target folder of the modules that tests build: one for all, since these have most of their
/// dependencies in common, and not the folder of the cargo that runs the test.
pub fn modules_target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("target")
}

/// Returns the results for all items, found by several threads. The first item is begun first.
pub fn for_each<T: Sync, U: Send>(items: &[T], find: impl Fn(&T) -> U + Sync) -> Vec<U> {
    let next = Mutex::new(items.iter().enumerate());
    let work = || {
        let mut found = Vec::new();
        loop {
            let Some((at, item)) = next.lock().unwrap().next() else { return found };
            found.push((at, find(item)));
        }
    };
    let mut all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, found)| found).collect()
}

/// Returns the folder of shared captures: `FLAME_TRACES`, or the one beside the checkout. Without it, reports
/// that the test is skipped and returns `None`.
pub fn traces() -> Option<PathBuf> {
    let folder =
        std::env::var_os("FLAME_TRACES").map_or_else(|| root().join("../shared/traces"), PathBuf::from);
    if folder.join("open/TRUTH.tsv").is_file() {
        return Some(folder);
    }
    eprintln!("skipped: no captures in {} (set FLAME_TRACES)", folder.display());
    None
}

/// Returns a standard module that `make build` built, or reports that it is missing and returns `None`.
pub fn module(name: &str) -> Option<Vec<u8>> {
    let folder = PathBuf::from(std::env::var_os("FLAME_MODULES")?);
    match std::fs::read(folder.join(format!("{name}.wasm"))) {
        Ok(wasm) => Some(wasm),
        Err(e) => {
            eprintln!("skipped: {name}.wasm in {}: {e} (run `make build`)", folder.display());
            None
        }
    }
}

/// Returns a value of a column as text, empty if it is absent.
fn shown(array: &dyn Array, row: usize) -> String {
    use arrow_array::types::{Float64Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
    if array.is_null(row) {
        return String::new();
    }
    match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).to_string(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).to_string(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).to_string(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).to_string(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::Utf8 => array.as_string::<i32>().value(row).to_owned(),
        DataType::Dictionary(..) => {
            let words = array.as_dictionary::<UInt8Type>();
            shown(words.values(), words.keys().value(row).into())
        }
        other => panic!("no column of records has the type {other}"),
    }
}

/// Records as text, one line each: `module.table column=value …`, without an order until they are sorted.
#[derive(Default)]
pub struct Lines {
    pub lines: Vec<String>,
}

impl Sink for Lines {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        let batch = flame_record::readable(batch);
        for row in 0..batch.num_rows() {
            let mut line = format!("{module}.{}", table.name);
            for (column, array) in table.columns.iter().zip(batch.columns()) {
                line += &format!(" {}={}", column.name, shown(array, row));
            }
            self.lines.push(line);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// A sink that passes each batch, with the names of its module and its table, to a function.
pub struct Writes<F>(pub F);

impl<F> Sink for Writes<F>
where
    F: FnMut(&str, &Table, &RecordBatch) -> Result<(), SinkError> + Send,
{
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        (self.0)(module, table, batch)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Returns the numbers in the first column of a batch.
pub fn numbers(batch: &RecordBatch) -> &[u64] {
    batch.column(0).as_primitive::<arrow_array::types::UInt64Type>().values()
}

/// A module that counts packets, and reports their number at its end.
pub const COUNT: &str = r#"(module (memory (export "memory") 1)
    (data (i32.const 0) "\08\00\00\00\00\00\00\00")
    (func (export "flame_batch") (param i32) (result i64)
        (i64.store (i32.const 8) (i64.add (i64.load (i32.const 8)) (i64.load32_u offset=4 (local.get 0))))
        (i64.const 0))
    (func (export "flame_end") (param i64) (result i64) (i64.const 0x1000000000)))"#;

pub fn request() -> InstallRequest {
    InstallRequest {
        view: ViewSpec::default(),
        settings: BTreeMap::new(),
        on_fault: OnFault::Stop,
        limits: Limits { call_budget: 10_000_000, ..Limits::default() },
        protection: Protection::Auto,
        costs: None,
        time_limit: None,
        terms: Terms::default(),
    }
}

pub fn install(wasm: &[u8], request: &InstallRequest) -> Result<ModulePlan, InstallError> {
    let engines = flame_compile::Engines::new().expect("Wasmtime supports this machine");
    Ok(Compiler::in_process(engines, None).install(wasm, request)?.plan)
}

/// Installs a module with a given compiler.
pub fn install_by(
    compiler: &Compiler<'_>,
    wasm: &[u8],
    request: &InstallRequest,
) -> Result<ModulePlan, InstallError> {
    Ok(compiler.install(wasm, request)?.plan)
}

/// Runs `modules` and returns the report and the sorted records.
pub fn run(
    engine: &flame_run::Engines,
    modules: Vec<ModulePlan>,
    workers: usize,
    source: Box<dyn Source>,
    batch: usize,
) -> Result<(Report, Vec<String>), RunError> {
    run_with(engine, modules, workers, source, batch, None)
}

/// Returns options of a run without limits.
pub fn options(stop: Arc<AtomicBool>) -> Options {
    Options { stop, ..Options::default() }
}

/// Runs `modules` with a key for transforms.
pub fn run_with(
    engine: &flame_run::Engines,
    modules: Vec<ModulePlan>,
    workers: usize,
    source: Box<dyn Source>,
    batch: usize,
    key: Option<&flame_view::Key>,
) -> Result<(Report, Vec<String>), RunError> {
    let options = Options { batch, key: key.cloned(), ..options(Arc::default()) };
    let mut sink = Lines::default();
    let run = Run::new(&Plan::new(modules, workers, 0), &[], engine, options)?;
    let report = run.execute(Input::Shared(source), &mut sink, &mut Silent)?;
    for (name, account) in &report.accounts {
        assert!(account.adds_up(), "{name}: {account:?}");
    }
    sink.lines.sort();
    Ok((report, sink.lines))
}

/// The sums of the records of each module.
#[derive(Clone, Default)]
pub struct Sums(pub Arc<Mutex<BTreeMap<String, u64>>>);

impl Sums {
    /// Returns a sink that adds to the sums.
    pub fn sink(&self) -> Box<dyn Sink> {
        let sums = self.0.clone();
        Box::new(Writes(move |module: &str, _: &Table, batch: &RecordBatch| {
            let packets: u64 = numbers(batch).iter().sum();
            *sums.lock().unwrap().entry(module.to_owned()).or_default() += packets;
            Ok(())
        }))
    }
}
