//! The child process. It gives up everything but its standard streams, some memory and some time, and only
//! then reads the module.

use crate::Engines;
use crate::job::{Job, perform};
use crate::limits::Limits;
use crate::step::Step;
use flame_bounds::Size;
use flame_confine::{Filter, Resource, limit};
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// The first argument of a program that is started as a child process of the compiler.
pub const CHILD: &str = "confined-compiler";

/// The exit status of a child that could not confine itself.
pub(crate) const NOT_CONFINED: u8 = 70;

/// Returns the arguments of a child, without the program. It may use `seconds` of processor time.
pub(crate) fn arguments(step: Step, (bytes, size): (usize, Size), seconds: u64) -> Vec<OsString> {
    let Size { functions, instructions, blocks } = size;
    let numbers = [bytes as u64, functions, instructions, blocks, seconds, std::process::id().into()];
    let text = [CHILD.to_owned(), format!("{step:?}")].into_iter();
    text.chain(numbers.map(|n| n.to_string())).map(OsString::from).collect()
}

/// Parses a child's arguments: the step, its limits, and the id of the parent.
fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<(Step, Limits, u32)> {
    let mut next = || arguments.next()?.into_string().ok();
    let step = next()?;
    let all = [Step::Examine, Step::Analyse, Step::Compile, Step::Lines];
    let step = all.into_iter().find(|s| format!("{s:?}") == step)?;
    let mut number = || next()?.parse::<u64>().ok();
    let bytes = usize::try_from(number()?).ok()?;
    let size = Size { functions: number()?, instructions: number()?, blocks: number()? };
    let limits = Limits::of(step, bytes, size).within(Duration::from_secs(number()?));
    Some((step, limits, number()?.try_into().ok()?))
}

/// Does one job as the child of a [`crate::Worker`], if this program was started as one. A program from which
/// workers are started must call this function before anything else.
pub fn serve() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != CHILD {
        return None;
    }
    let served = match parse(arguments) {
        None => Err("this is not for people: `flame check` and `flame run` start it".to_owned()),
        Some((step, limits, parent)) => prepare(step, limits, parent),
    };
    Some(match served {
        Ok(engines) => work(engines.as_ref()),
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(NOT_CONFINED)
        }
    })
}

/// Confines the process, before the module is read.
fn prepare(step: Step, limits: Limits, parent: u32) -> Result<Option<Engines>, String> {
    flame_confine::begin(parent)?;
    let engines = match step {
        Step::Compile => Some(Engines::new().map_err(|e| format!("compiler: {e}"))?),
        _ => None,
    };
    flame_confine::end()?;
    // Reserved address space costs nothing, but nothing here needs it.
    limit(Resource::As, limits.memory + ADDRESS_SPACE, limits.memory + ADDRESS_SPACE)?;
    limit(Resource::Data, limits.memory, limits.memory)?;
    limit(Resource::Stack, STACK, STACK)?;
    limit(Resource::Cpu, limits.cpu, limits.cpu + 1)?;
    limit(Resource::Fsize, ERRORS, ERRORS)?;
    limit(Resource::Nproc, 0, 0)?;
    limit(Resource::Nofile, 0, 0)?;
    filter().map_err(|e| format!("seccomp: {e}"))?.apply()?;
    Ok(engines)
}

/// Address space for the program and its libraries, in bytes. They are mapped, not owned.
const ADDRESS_SPACE: u64 = 512 << 20;
/// Size of the stack in bytes. Nothing recurses by the module's depth, so this is plenty.
const STACK: u64 = 16 << 20;

/// Maximum error output in bytes. It is written to a file in memory.
const ERRORS: u64 = 64 << 10;

/// Returns a filter that permits memory, standard input and output, and the end of the process.
fn filter() -> Result<Filter, flame_confine::BackendError> {
    // Executable memory is not permitted.
    Filter::new()?
        .allow_without(libc::SYS_mmap, 2, libc::PROT_EXEC as u32)?
        .allow_without(libc::SYS_mprotect, 2, libc::PROT_EXEC as u32)?
        .allow_value(libc::SYS_read, 0, 0)?
        .allow_value(libc::SYS_write, 0, 1)?
        .allow_value(libc::SYS_write, 0, 2)?
        .allow_value(libc::SYS_writev, 0, 2)
}

/// Reads the job and the module, and writes the answer.
fn work(engines: Option<&Engines>) -> ExitCode {
    match read_all().and_then(|input| answer(&input, engines)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(input: &[u8], engines: Option<&Engines>) -> io::Result<()> {
    let (job, wasm): (Job, _) = postcard::take_from_bytes(input).map_err(io::Error::other)?;
    let (answer, code) = perform(&job, wasm, engines);
    write_all(&answer.head().map_err(io::Error::other)?)?;
    write_all(&code)
}

fn read_all() -> io::Result<Vec<u8>> {
    // Standard input is read without the standard library, which takes further system calls.
    let mut input = Vec::new();
    loop {
        input.reserve(1 << 16);
        match rustix::io::read(rustix::stdio::stdin(), rustix::buffer::spare_capacity(&mut input)) {
            Ok(0) => return Ok(input),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(rustix::stdio::stdout(), bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
