use crate::active_args::HostArgs;
use crate::console::{complain, say};
use crate::error::Error;
use crate::exit::Status;
use clap::{Args, Subcommand};
use flame_active_server::{Question, key_of};
use flame_capsule::{Limits, MAX_CODE, hash_of};
use flame_capsule_language::Program;
use flame_compile::{Compiler, Worker};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Write capsules: programs that active packets carry
#[derive(Args)]
pub struct Capsule {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Compile a program to WebAssembly
    Build {
        /// The text of the program, or WebAssembly to check
        program: PathBuf,
        /// Write the capsule to this file [default: the program's, with .wasm]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Print the functions of a capsule, and the most instructions of each
    Check {
        /// The text of a program, or WebAssembly
        program: PathBuf,
    },
    /// Begin a capsule at the host's node, and print its deliveries as numbers
    ///
    /// Exit status: 0 something was delivered; 1 nothing; 2 wrong usage.
    Run {
        /// The text of a program, or WebAssembly
        program: PathBuf,
        /// Name or number of the function
        function: String,
        /// Arguments: numbers, names of nodes as @NAME, IPv4 addresses, Community IDs, lists as [1,2,@NAME]
        #[arg(allow_negative_numbers = true)]
        arguments: Vec<String>,
        #[command(flatten)]
        host: HostArgs,
        /// Deliveries after which it ends
        #[arg(short, long, default_value_t = 1)]
        number: u32,
    },
}

/// A capsule, and its functions as far as their names are known.
struct Read {
    code: Vec<u8>,
    functions: Vec<String>,
}

/// Reads a program or WebAssembly.
fn read(path: &Path) -> Result<Read, Error> {
    let bytes = crate::files::read(path)?;
    if bytes.starts_with(b"\0asm") {
        return Ok(Read { code: bytes, functions: Vec::new() });
    }
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|e| format!("{}: not text at byte {}", path.display(), e.valid_up_to()))?;
    let program = Program::read(text).map_err(|e| format!("{}, {e}", path.display()))?;
    let functions = program.functions().iter().map(|function| function.name.clone()).collect();
    Ok(Read { code: program.code().to_vec(), functions })
}

/// Checks a capsule in a confined child, and returns the bounds of its functions.
fn checked(path: &Path, code: &[u8]) -> Result<Vec<Option<u64>>, Error> {
    let worker = Worker::this_program().stopped_by(crate::compiler::stop_flag()?);
    let made = Compiler::new(worker, None).capsule(code);
    Ok(made.map_err(|e| format!("{}: {e}", path.display()))?.bounds)
}

impl Capsule {
    pub fn run(self) -> Result<Status, Error> {
        match self.what {
            What::Build { program, output } => {
                let read = read(&program)?;
                checked(&program, &read.code)?;
                let output = output.unwrap_or_else(|| program.with_extension("wasm"));
                std::fs::write(&output, &read.code).map_err(|e| format!("{}: {e}", output.display()))?;
                say!("{}: {} bytes, at most {MAX_CODE}", output.display(), read.code.len());
                Ok(Status::Done)
            }
            What::Check { program } => {
                let read = read(&program)?;
                let bounds = checked(&program, &read.code)?;
                let hash: String = hash_of(&read.code).0.iter().map(|byte| format!("{byte:02x}")).collect();
                say!("{} bytes, SHA-256 {hash}", read.code.len());
                for (number, bound) in bounds.iter().enumerate() {
                    let unnamed = number.to_string();
                    let name = read.functions.get(number).unwrap_or(&unnamed);
                    match bound {
                        Some(most) => say!("{number} {name}: at most {most} instructions, beside the node's"),
                        None => say!("{number} {name}: counted, up to the bound of the capsule"),
                    }
                }
                Ok(Status::Done)
            }
            What::Run { program, function, arguments, host, number } => {
                let read = read(&program)?;
                let of = read.functions.iter().position(|name| *name == function);
                let of = of.and_then(|at| u8::try_from(at).ok()).or_else(|| function.parse().ok());
                let function = of.ok_or_else(|| {
                    format!(
                        "function {function:?}: expected a number, or one of {}",
                        read.functions.join(", ")
                    )
                })?;
                let (config, mut client, _) = host.open()?;
                let mut bytes = Vec::new();
                for argument in &arguments {
                    encode(argument, &|name| config.place(name).0, &mut bytes)?;
                }
                let code = &read.code[..];
                let limits = Limits { hops: 32, instructions: 1_000_000, bytes: 256 << 10, copies: 256 };
                client.send(&Question { code, function, arguments: &bytes, limits, with_code: false })?;
                let (begun, mut delivered) = (Instant::now(), 0);
                while delivered < number && begun.elapsed() < host.patience() {
                    let left = host.patience().saturating_sub(begun.elapsed());
                    if let Some(bytes) = client.receive(Some(code), left)? {
                        say!("{}", decode(&bytes, &config.names));
                        delivered += 1;
                    }
                }
                if delivered == 0 {
                    complain!(
                        "flame: nothing was delivered within {} s: the node prints why when it ends",
                        host.patience().as_secs_f64()
                    );
                }
                Ok(if delivered == 0 { Status::Failed } else { Status::Done })
            }
        }
    }
}

/// Appends an argument.
fn encode(text: &str, place: &dyn Fn(&str) -> u64, into: &mut Vec<u8>) -> Result<(), Error> {
    if let Some(list) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let all: Vec<&str> = list.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
        into.extend_from_slice(&(all.len() as u64).to_le_bytes());
        return all.iter().try_for_each(|one| encode(one, place, into));
    }
    let is_key = text.starts_with("1:") || text.parse::<std::net::Ipv4Addr>().is_ok();
    let number = match text.strip_prefix('@') {
        Some(name) => place(name).cast_signed(),
        None if is_key => key_of(text),
        None => text.parse::<i64>().map_err(|e| {
            let forms = "a number, @NODE, an IPv4 address, a Community ID or a list in brackets";
            format!("argument {text:?}: {e}: expected {forms}")
        })?,
    };
    into.extend_from_slice(&number.to_le_bytes());
    Ok(())
}

/// Returns numbers as text; those that are places have their names.
fn decode(bytes: &[u8], names: &std::collections::BTreeMap<flame_capsule::Place, String>) -> String {
    let number = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().unwrap_or_default());
    let text = |number: u64| match names.get(&flame_capsule::Place(number)) {
        Some(name) => format!("@{name}"),
        None => number.cast_signed().to_string(),
    };
    let all: Vec<String> = bytes.chunks_exact(8).map(|chunk| text(number(chunk))).collect();
    all.join(" ")
}
