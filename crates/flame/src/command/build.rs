use crate::console::say;
use crate::error::Error;
use crate::exit::Status;
use crate::files::read;
use crate::paths;
use clap::Args;
use flame_abi::LinkType;
use flame_abi::layout::names::MANIFEST_SECTION;
use flame_abi::manifest::{Manifest, Needs, Step};
use flame_base::Backoff;
use flame_compile::{Compiler, Worker};
use flame_files::Staged;
use flame_filter::PacketFilter;
use flame_plan::{Expose, ShownFilter, ViewSpec};
use flame_view::View;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The waits for the end of a compiler, or of the command.
const COMPILER_CHECK: Backoff = Backoff::every(Duration::from_millis(10));

/// Compile a module's folder to one .wasm file with its manifest inside
///
/// The folder holds module.toml and either Cargo.toml (Rust) or .c files (C).
#[derive(Args)]
pub struct Build {
    /// Folder of the module
    #[arg(default_value = ".")]
    folder: PathBuf,

    /// Folder in which NAME.wasm is written [default: the module's folder]
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,

    /// Keep source lines, which `flame check` shows; the file becomes several times as large
    #[arg(long)]
    lines: bool,
}

impl Build {
    pub fn run(self) -> Result<Status, Error> {
        let path = self.folder.join("module.toml");
        let text = read(&path)?;
        let manifest = Manifest::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        check_needs(&manifest.needs, &text).map_err(|e| format!("{}: {e}", path.display()))?;
        check_filters(&manifest, &text).map_err(|e| format!("{}: {e}", path.display()))?;
        let stop = crate::compiler::stop_flag()?;
        let wasm = if self.folder.join("Cargo.toml").is_file() {
            rust(&self.folder, self.lines, &stop)?
        } else {
            c(&self.folder, self.lines, &stop)?
        };
        let wasm = with_section(wasm, MANIFEST_SECTION, &text);
        let compiler = Compiler::new(Worker::this_program().stopped_by(stop.clone()), None);
        let examined = compiler.examine(&wasm);
        unless_interrupted(&stop)?;
        examined.map_err(|e| format!("{}: built, but it is no module: {e}", self.folder.display()))?;
        // With the certificate, a node verifies bounds in about the time that it takes to read the module.
        let certificate = flame_bounds::find(&wasm, flame_bounds::Effort::AUTHOR);
        let certificate = certificate.map_err(|e| format!("{}: {e}", self.folder.display()))?;
        unless_interrupted(&stop)?;
        let wasm = with_section(wasm, flame_verify::SECTION, &certificate.to_bytes());
        let folder = self.output.as_deref().unwrap_or(&self.folder);
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let file = folder.join(format!("{}.wasm", manifest.name));
        // An install meanwhile has the old or the new module whole.
        let write = |mut staged: Staged| staged.write_all(&wasm).and_then(|()| staged.finish());
        Staged::new(&file).and_then(write).map_err(|e| format!("{}: {e}", file.display()))?;
        say!("{} ({} bytes)", file.display(), wasm.len());
        Ok(Status::Done)
    }
}

/// Checks the needs of a manifest, which a node reads only when the module is installed.
fn check_needs(needs: &Needs, text: &[u8]) -> Result<(), String> {
    let at = |key: &str, reason: String| {
        let text = String::from_utf8_lossy(text);
        let line = flame_abi::manifest::line(&text, &[Step::Key("needs"), Step::Key(key)]);
        format!("manifest, line {line}: needs.{key}: {reason}")
    };
    if let Some(expose) = &needs.expose {
        expose.parse::<Expose>().map_err(|reason| at("expose", reason))?;
    }
    Ok(())
}

/// A filter of a manifest, and its place there.
struct Stated<'a> {
    path: Vec<Step<'a>>,
    place: String,
    filter: &'a str,
}

impl<'a> Stated<'a> {
    /// Returns the filter `key` in the table `name` of an array of tables.
    fn of(array: &'a str, index: usize, name: &str, (key, filter): (&'a str, &'a str)) -> Self {
        let path = vec![Step::Key(array), Step::Index(index), Step::Key(key)];
        Self { path, place: format!("{array}.{name}.{key}"), filter }
    }
}

/// Checks the filters of a manifest as a run does: those of needs and event queues together, for packets as
/// they are shown, and those of channels together, for Ethernet.
fn check_filters(manifest: &Manifest, text: &[u8]) -> Result<(), String> {
    let needs = Stated {
        path: vec![Step::Key("needs"), Step::Key("select")],
        place: "needs.select".to_owned(),
        filter: manifest.needs.select.as_deref().unwrap_or_default(),
    };
    let queues = manifest.queues.iter().enumerate();
    let queues = queues.map(|(i, q)| Stated::of("queues", i, &q.name, ("select", &q.select)));
    check_together(std::iter::once(needs).chain(queues), text, |filter| {
        let view = ViewSpec { select_shown: vec![filter.clone()], ..ViewSpec::default() };
        View::new(&view, None).map(drop).map_err(|e| e.to_string())
    })?;
    let channels = manifest.channels.iter().enumerate();
    let channels = channels.map(|(i, c)| Stated::of("channels", i, &c.name, ("filter", &c.filter)));
    check_together(channels, text, |filter| {
        PacketFilter::compile(filter, LinkType::ETHERNET).map(drop).map_err(|e| e.to_string())
    })
}

/// Checks filters that apply together, each by `compile`.
fn check_together<'a>(
    filters: impl Iterator<Item = Stated<'a>>,
    text: &[u8],
    compile: impl Fn(&ShownFilter) -> Result<(), String>,
) -> Result<(), String> {
    let mut all = Vec::new();
    for Stated { path, place, filter } in filters {
        let checked = ShownFilter::parse(filter).and_then(|parsed| {
            all.extend(parsed.clone());
            ShownFilter::affordable(&all)?;
            parsed.iter().try_for_each(&compile)
        });
        checked.map_err(|reason| {
            let line = flame_abi::manifest::line(&String::from_utf8_lossy(text), &path);
            format!("manifest, line {line}: {place}: {filter:?}: {reason}")
        })?;
    }
    Ok(())
}

/// Appends a custom section (id 0: length, name, contents).
fn with_section(mut wasm: Vec<u8>, name: &str, data: &[u8]) -> Vec<u8> {
    use wasm_encoder::{CustomSection, Section};
    CustomSection { name: name.into(), data: data.into() }.append_to(&mut wasm);
    wasm
}

/// The variable from which cargo reads compiler flags for this target. The author's own flags come last.
const RUSTFLAGS: &str = "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS";

/// Disables loop strength reduction. It merges several pointers into one and reaches the others by negative
/// offsets, which Wasm's loads do not have. Without this optimization, port takes a fifth less time.
const NO_LSR: &str = "-disable-lsr";

fn rust(folder: &Path, lines: bool, stop: &AtomicBool) -> Result<Vec<u8>, Error> {
    let own = std::env::var(RUSTFLAGS).unwrap_or_default();
    let flags =
        format!("-C target-feature=+simd128 -C link-arg=-zstack-size=131072 -C llvm-args={NO_LSR} {own}");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(folder)
        .args(["build", "--lib", "--target", "wasm32-unknown-unknown", "--release"])
        .args(["--message-format", "json-render-diagnostics"])
        .args(sdk_by_version(folder)?)
        // SIMD is part of the ABI's Wasm. A module is one file, so everything is inlined into it.
        .env(RUSTFLAGS, flags)
        .env("CARGO_PROFILE_RELEASE_LTO", "true")
        // Code in parts has other loops, some of them without a bound.
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_DEBUG", if lines { "line-tables-only" } else { "false" });
    let output = run(&mut cargo, "needs cargo and `rustup target add wasm32-unknown-unknown`", stop)?;
    let files = String::from_utf8_lossy(&output);
    let here = folder.canonicalize()?.join("Cargo.toml");
    // The last artefact of this folder's package: those of dependencies precede it.
    let file = files
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|v| v["reason"] == "compiler-artifact")
        .filter(|v| v["manifest_path"].as_str().is_some_and(|p| Path::new(p) == here))
        .filter_map(|v| v["filenames"].as_array().cloned())
        .flatten()
        .filter_map(|f| f.as_str().filter(|f| f.ends_with(".wasm")).map(PathBuf::from))
        .next_back();
    let file =
        file.ok_or("cargo made no .wasm: Cargo.toml needs [lib] crate-type = [\"cdylib\", \"rlib\"]")?;
    read(&file)
}

/// Returns the arguments by which cargo finds the SDK on this machine, for a module that names it by version.
/// It is nowhere published, so a package of its name elsewhere is another one.
fn sdk_by_version(folder: &Path) -> Result<Vec<String>, Error> {
    let text = String::from_utf8_lossy(&read(&folder.join("Cargo.toml"))?).into_owned();
    // A file that is not TOML is for cargo to explain.
    let named = toml::from_str::<toml::Table>(&text).ok().and_then(|table| {
        let dependency = table.get("dependencies")?.get("flame-module")?.clone();
        Some(dependency.is_str() || dependency.get("version").is_some() && dependency.get("path").is_none())
    });
    if named != Some(true) {
        return Ok(Vec::new());
    }
    let sdk = paths::sdk()?.join("rust");
    Ok(vec![
        "--config".to_owned(),
        format!("patch.crates-io.flame-module.path={:?}", sdk.display().to_string()),
    ])
}

fn c(folder: &Path, lines: bool, stop: &AtomicBool) -> Result<Vec<u8>, Error> {
    let mut sources: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(|e| format!("{}: {e}", folder.display()))?
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "c"))
        .collect();
    sources.sort();
    if sources.is_empty() {
        return Err(format!("{}: neither Cargo.toml nor a .c file", folder.display()).into());
    }
    // Also for clang's own files. A linker that is ended late finds no folder to write to.
    let work = tempfile::tempdir()?;
    let object = work.path().join("module.wasm");
    let mut clang = Command::new(std::env::var_os("FLAME_CLANG").unwrap_or_else(|| "clang".into()));
    clang
        .args(["--target=wasm32", "-std=c11", "-O3", "-flto", "-msimd128", "-mbulk-memory", "-msign-ext"])
        .args(["-mnontrapping-fptoint", "-ffreestanding", "-nostdlib", "-Wall", "-Wextra", "-Werror"])
        .args(["-Wl,--no-entry", "-Wl,--export-dynamic", "-Wl,-z,stack-size=131072", "-Wl,--lto-O3"])
        .arg(format!("-Wl,-mllvm,{NO_LSR}"))
        .arg("-I")
        .arg(paths::sdk()?.join("c"))
        .args(lines.then_some("-gline-tables-only"))
        .args(&sources)
        .arg("-o")
        .arg(&object)
        .env("TMPDIR", work.path());
    run(&mut clang, "needs clang and lld", stop)?;
    read(&object)
}

/// Runs a compiler and returns its output. The first signal ends it.
fn run(command: &mut Command, needs: &str, stop: &AtomicBool) -> Result<Vec<u8>, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| format!("{name}: {e} ({needs})"))?;
    let mut stdout = child.stdout.take().expect("it is piped");
    let reader = thread::spawn(move || {
        let mut output = Vec::new();
        stdout.read_to_end(&mut output).map(|_| output)
    });
    let status = COMPILER_CHECK.sleep_until(|| {
        let ended = child.try_wait().transpose();
        if ended.is_none() && stop.load(Ordering::Relaxed) {
            return child.kill().err().map(Err);
        }
        ended
    })?;
    unless_interrupted(stop)?;
    if !status.success() {
        return Err(format!("{name} failed ({status}), for the reason above").into());
    }
    Ok(reader.join().expect("reading does not panic")?)
}

fn unless_interrupted(stop: &AtomicBool) -> Result<(), Error> {
    if stop.load(Ordering::Relaxed) { Err("interrupted, and nothing was written".into()) } else { Ok(()) }
}
