//! A namespace with a veth pair `tx0`–`rx0`, a sender on `tx0`, and the command on `rx0`.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

pub use flame_testing::{eventually as wait_for, ipv4};

/// Sends `count` echo requests of the kernel's stack, and prints how many replies came and were right.
pub const PING: &str = r#"
import socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
s.settimeout(10)
def checksum(b):
    n = sum(struct.unpack('!%dH' % (len(b) // 2), b))
    n = (n >> 16) + (n & 0xffff)
    return ~(n + (n >> 16)) & 0xffff
right = 0
for seq in range(int(sys.argv[2])):
    data = struct.pack('!HH', 77, seq) + bytes([seq]) * 56
    head = struct.pack('!BBH', 8, 0, checksum(b'\x08\x00\x00\x00' + data))
    s.sendto(head + data, (sys.argv[1], 0))
    reply = s.recv(2000)[20:]
    right += reply[0] == 0 and reply[4:] == data and checksum(reply) == 0
print(right)
"#;

pub struct Net {
    pub namespace: String,
    folder: tempfile::TempDir,
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Returns the path of the command under test: `FLAME`, or the command that cargo built.
pub fn flame() -> String {
    std::env::var("FLAME").unwrap_or_else(|_| env!("CARGO_BIN_EXE_flame").to_owned())
}

fn ip(words: &str) -> bool {
    Command::new("ip").args(words.split(' ')).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

impl Net {
    /// Creates a namespace. If this is not possible, reports it and returns `None`.
    pub fn new() -> Option<Self> {
        let namespace = format!("flame-t{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        if !ip(&format!("netns add {namespace}")) {
            eprintln!("skipped: no network namespace can be made here (needs root and iproute2)");
            return None;
        }
        let net = Self { namespace, folder: tempfile::tempdir().unwrap() };
        // Packets sent by the kernel itself must not be counted.
        net.shell("for c in all default; do echo 1 > /proc/sys/net/ipv6/conf/$c/disable_ipv6; done");
        net.link();
        Some(net)
    }

    /// Creates the interfaces, again after one of them was deleted.
    pub fn link(&self) {
        self.shell("ip link add tx0 type veth peer name rx0 && ip link set tx0 up && ip link set rx0 up");
    }

    /// Returns a command in the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, program]);
        command
    }

    pub fn shell(&self, script: &str) {
        let status = self.command("sh").args(["-ec", script]).status().unwrap();
        assert!(status.success(), "{script}");
    }

    /// Returns the output of a script, trimmed.
    pub fn said(&self, script: &str) -> String {
        let out = self.command("sh").args(["-ec", script]).output().unwrap();
        assert!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }

    /// Waits until `tx0` sends again after its other end came up. The kernel sets the state after the
    /// carrier, and holds the lock that `ip` needs until it sends.
    pub fn wait_until_tx0_sends(&self) {
        wait_for("tx0 to send", || self.said("ip link show tx0").contains("state UP"));
    }

    /// Sends all `frames` from `tx0`, `times` times.
    pub fn send(&self, frames: &[Vec<u8>], times: usize) {
        assert!(self.sender(frames, times, "").wait().unwrap().success());
    }

    /// Sends `frames` once, and runs a command while the last ones are in a block that the kernel still
    /// fills.
    pub fn send_then(&self, frames: &[Vec<u8>], command: &str) {
        assert!(self.sender(frames, 1, command).wait().unwrap().success());
    }

    /// Starts a sender of `frames` in bursts, until the file [`Net::stop`] exists.
    pub fn bursts(&self, frames: &[Vec<u8>]) -> Child {
        let stop = self.stop();
        self.python(frames, &["1", "", stop.to_str().unwrap()])
    }

    pub fn stop(&self) -> PathBuf {
        self.folder.path().join("stop")
    }

    /// Starts a sender of `frames`.
    pub fn sender(&self, frames: &[Vec<u8>], times: usize, then: &str) -> Child {
        self.python(frames, &[&times.to_string(), then])
    }

    fn python(&self, frames: &[Vec<u8>], arguments: &[&str]) -> Child {
        let path: PathBuf = self.folder.path().join("frames");
        let bytes: Vec<u8> =
            frames.iter().flat_map(|f| [&(f.len() as u16).to_be_bytes()[..], f].concat()).collect();
        std::fs::write(&path, bytes).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/network/send.py");
        let mut python = self.command("python3");
        python.arg(script).arg("tx0").arg(path).args(arguments).spawn().unwrap()
    }

    /// Starts `flame run … -i rx0`, and waits until its `sockets` sockets receive.
    pub fn capture(&self, arguments: &[&str], sockets: usize) -> Capture {
        self.capture_on("rx0", arguments, sockets)
    }

    pub fn capture_on(&self, interface: &str, arguments: &[&str], sockets: usize) -> Capture {
        self.capture_when(interface, arguments, |_| {
            // The sockets are bound to all protocols, and none of them still has the filter that rejects
            // every packet.
            self.said("grep -c ' 0003 ' /proc/net/packet || true") == sockets.to_string()
                && !self.said("ss -0bn").contains("0x06 0 0 0,")
        })
    }

    /// Starts `flame run … -i INTERFACE`, and waits until it is `ready`, which is given its messages so far.
    pub fn capture_when(&self, interface: &str, arguments: &[&str], ready: impl Fn(&str) -> bool) -> Capture {
        let mut flame = self.command(&flame());
        flame.arg("run").args(arguments).args(["-i", interface, "--stats", "json"]);
        let mut child = flame.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdout, stderr) = (Pipe::new(child.stdout.take()), Pipe::new(child.stderr.take()));
        let mut capture = Capture { child, stdout, stderr };
        wait_for("the sockets", || {
            let is_running = capture.is_running();
            let said = capture.stderr.so_far();
            assert!(is_running, "ended early: {said}");
            ready(&said)
        });
        capture
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.namespace));
    }
}

pub struct Capture {
    child: Child,
    stdout: Pipe,
    stderr: Pipe,
}

/// A pipe that another thread reads to its end. A full pipe would block the command.
struct Pipe {
    thread: Option<JoinHandle<()>>,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Pipe {
    fn new(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let thread = pipe.map(|mut pipe| {
            let bytes = bytes.clone();
            std::thread::spawn(move || {
                let mut part = vec![0; 65_536];
                loop {
                    match pipe.read(&mut part).unwrap() {
                        0 => break,
                        n => bytes.lock().unwrap().extend_from_slice(&part[..n]),
                    }
                }
            })
        });
        Self { thread, bytes }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    /// Waits for the end, and returns all bytes.
    fn all(&mut self) -> Vec<u8> {
        self.thread.take().unwrap().join().unwrap();
        std::mem::take(&mut *self.bytes.lock().unwrap())
    }
}

impl Capture {
    /// Returns the output so far: records and messages.
    pub fn so_far(&self) -> (String, String) {
        (self.stdout.so_far(), self.stderr.so_far())
    }

    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends Ctrl-C, and returns the complete output.
    pub fn interrupt(self) -> Output {
        self.signal("INT");
        self.end()
    }

    /// Waits until the command ends by itself, and returns its output.
    pub fn end(mut self) -> Output {
        wait_for("the end", || !self.is_running());
        let status = self.child.wait().unwrap();
        Output { status, stdout: self.stdout.all(), stderr: self.stderr.all() }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that is killed at the end of the test.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
