//! A run that reads packets from a pipe, one by one as the test sends them, and a module with a row for each
//! batch of them.

use crate::common::{MANIFEST, Pcap, eventually, tcp_packet, with_manifest};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// The number of packets that are sent before each look.
const PACKETS: u32 = 4;

/// A module that reports the number of packets of each batch.
pub const EACH: &str = r#"(module (memory (export "memory") 1)
    (data (i32.const 0) "\08\00\00\00\00\00\00\00")
    (func (export "flame_batch") (param i32) (result i64)
        (i64.store (i32.const 8) (i64.load32_u offset=4 (local.get 0)))
        (i64.const 0x1000000000)))"#;

/// Writes [`EACH`] as `each.wasm` and returns its path.
pub fn each(folder: &Path) -> PathBuf {
    let path = folder.join("each.wasm");
    let manifest = MANIFEST.replace("hostile", "each");
    std::fs::write(&path, with_manifest(wat::parse_str(EACH).unwrap(), manifest.as_bytes())).unwrap();
    path
}

/// Returns the header of a pcap file.
pub fn header() -> Vec<u8> {
    Pcap::default().bytes()
}

/// Returns packet `n` with its time, a millisecond after the one before.
fn packet(n: u32) -> (u64, Vec<u8>) {
    let ms = 1_700_000_000_000 + u64::from(n);
    (ms * 1_000_000, tcp_packet((n % 1000) as u16, 80))
}

/// Returns packet `n` as a record of a pcap file.
pub fn record(n: u32) -> Vec<u8> {
    Pcap::default().with([packet(n)]).bytes().split_off(header().len())
}

/// Writes a capture of `packets` packets, a millisecond apart.
pub fn capture(path: &Path, packets: u32) {
    Pcap::default().with((0..packets).map(packet)).write(path);
}

pub fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flame"));
    command.arg("run").arg(each(folder)).args(arguments);
    command.env("FLAME_CACHE", folder.join("cache")).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Sends a signal to a process.
pub fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

/// A run that is fed.
pub struct Fed {
    child: Child,
    stdin: Option<ChildStdin>,
    /// The number of packets sent.
    pub sent: u32,
}

pub struct End {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Fed {
    pub fn new(folder: &Path, arguments: &[&str]) -> Self {
        Self::of(command(folder, &[&["-r", "-"], arguments].concat()))
    }

    pub fn of(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take();
        stdin.as_mut().unwrap().write_all(&header()).unwrap();
        Self { child, stdin, sent: 0 }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends one packet. Returns false if the run has ended.
    pub fn send(&mut self) -> bool {
        let Some(stdin) = &mut self.stdin else { return false };
        let is_taken = stdin.write_all(&record(self.sent)).is_ok();
        self.sent += u32::from(is_taken);
        is_taken
    }

    /// Sends packets until `there` holds, a few before each look.
    pub fn send_until(&mut self, what: &str, mut there: impl FnMut() -> bool) {
        eventually(what, || {
            let is_there = there();
            if !is_there && !(0..PACKETS).all(|_| self.send()) {
                let end = self.wait();
                panic!("waited for {what}: {:?} {}", end.code, end.stderr);
            }
            is_there
        });
    }

    /// Sends packets until the run ends by itself.
    pub fn send_to_the_end(mut self) -> End {
        eventually("the end of the run", || {
            let _ = (0..PACKETS).all(|_| self.send());
            self.child.try_wait().unwrap()
        });
        self.wait()
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Ends the input, and waits for the end of the run.
    pub fn end(mut self) -> End {
        self.stdin = None;
        self.wait()
    }

    fn wait(&mut self) -> End {
        self.stdin = None;
        let read = |pipe: Option<&mut dyn Read>| {
            let mut bytes = Vec::new();
            pipe.map(|pipe| pipe.read_to_end(&mut bytes).unwrap());
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let stdout = read(self.child.stdout.as_mut().map(|pipe| pipe as &mut dyn Read));
        let stderr = read(self.child.stderr.as_mut().map(|pipe| pipe as &mut dyn Read));
        End { code: self.child.wait().unwrap().code(), stdout, stderr }
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the files of a folder whose names begin so, by name, without partial ones.
pub fn complete(folder: &Path, begin: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut found: Vec<_> =
        all.filter(|path| name(path).starts_with(begin) && !name(path).ends_with(".partial")).collect();
    found.sort();
    found
}

/// Returns the partial files of a folder.
pub fn partial(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|e| e == "partial")).collect()
}

/// Returns the sum of the packets in files of JSON, each line of which must be whole.
pub fn packets(files: &[PathBuf]) -> u64 {
    let count = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "{}", path.display());
        let row = |line: &str| -> serde_json::Value { serde_json::from_str(line).unwrap() };
        text.lines().map(|line| row(line)["packets"].as_u64().unwrap()).sum::<u64>()
    };
    files.iter().map(count).sum()
}
