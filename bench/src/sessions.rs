//! The shares of four sessions of a node over time, beside what they reserved: the experiment of RCANE's
//! Figure 11 on the kernel's deadline scheduler. All four always have work. One changes its reservation, one
//! gives up its own, and one has none.

use crate::fixture::Error;
use flame_plot::{Axis, Format, Picture, Scale, Series, Shape};
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A module that works on each batch for tens of milliseconds.
const BUSY: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "flame_batch") (param i32) (result i64) (local i32)
    (loop $l
      (i32.store (i32.const 64) (i32.mul (i32.load (i32.const 64)) (i32.const 7)))
      (br_if $l (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 1))) (i32.const 4000000))))
    (i64.const 0)))"#;
const MANIFEST: &str =
    "abi=1\nname=\"busy\"\nversion=\"1\"\ndescription=\"\"\n[limits]\npacket_budget=80000000\n";

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// The reservations in percent, from each time in seconds on. 0 is none.
const PHASES: [(u64, [u64; 4]); 3] = [(0, [10, 20, 30, 0]), (4, [30, 20, 30, 0]), (8, [30, 20, 0, 0])];
const END: u64 = 12;
const WINDOW: Duration = Duration::from_millis(100);

/// A node, which ends when this value is dropped.
struct Node {
    flame: PathBuf,
    folder: tempfile::TempDir,
    child: Option<Child>,
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns a capture of a second with thousands of packets, so that there is always a next one.
fn dense() -> Vec<u8> {
    let mut file = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    for n in 0..5_000 {
        file.extend([1_600_000_000, n * 200, 60, 60].map(u32::to_le_bytes).concat());
        file.extend([0; 60]);
    }
    file
}

/// Returns a number in LEB128.
fn leb(mut n: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n >= 128 {
        bytes.push(n as u8 | 128);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

fn busy() -> Result<Vec<u8>, Error> {
    let mut wasm = wat::parse_str(BUSY)?;
    let name = flame_abi::layout::names::MANIFEST_SECTION;
    let section = [&leb(name.len())[..], name.as_bytes(), MANIFEST.as_bytes()].concat();
    wasm.extend([&[0], &leb(section.len())[..], &section].concat());
    Ok(wasm)
}

impl Node {
    fn start(flame: &Path) -> Result<Self, Error> {
        let mut node = Self { flame: flame.to_owned(), folder: tempfile::tempdir()?, child: None };
        let path = |name: &str| node.folder.path().join(name);
        let root = node.run(&["key", "new", "root.key"])?;
        node.run(&["key", "new", "node.key"])?;
        let policy = format!(
            "[node]\nname = \"node\"\nkey = \"node.key\"\nrevocations = \"revoked\"\naudit = \"audit\"\n\
             [roots]\nroot = \"{root}\"\n[roles.all]\nselect = \"\"\nexpose = \"all\"\ncode = \"any\"\n\
             calls = \"records, messages\"\n"
        );
        std::fs::write(path("policy.toml"), policy)?;
        std::fs::write(path("revoked"), "")?;
        std::fs::write(path("busy.wasm"), busy()?)?;
        let config = "[node]\nstorage = \"state\"\npolicy = \"policy.toml\"\n[socket]\npath = \"sock\"\n\
             [sources.tap]\nfile = \"dense.pcap\"\nrepeat = true\n[isolation]\nscheduler = \"deadline\"\n\
             [capacity]\ncpu = \"400%\"\n";
        std::fs::write(path("node.toml"), config)?;
        std::fs::write(path("dense.pcap"), dense())?;
        for name in NAMES {
            let key = node.run(&["key", "new", &format!("{name}.key")])?;
            let to = ["grant", "mint", "--key", "root.key", "--to", name, "--role", "all", "--code", "any"];
            node.run(&[&to[..], &["--holder", &key, "-o", &format!("{name}.cred")]].concat())?;
        }
        let mut command = Command::new(&node.flame);
        command.args(["node", "run", "-c"]).arg(path("node.toml"));
        let child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn()?;
        node.child = Some(child);
        let begin = Instant::now();
        while node.run(&["node", "status"]).is_err() {
            if begin.elapsed() > Duration::from_secs(60) {
                return Err("the node does not start".into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(node)
    }

    fn run(&self, arguments: &[&str]) -> Result<String, Error> {
        let mut command = Command::new(&self.flame);
        let socket = format!("unix:{}", self.folder.path().join("sock").display());
        command.args(arguments).current_dir(self.folder.path()).env("FLAME_NODE", socket);
        let out = command.output()?;
        match out.status.success() {
            true => Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned()),
            false => Err(format!("{arguments:?}: {}", String::from_utf8_lossy(&out.stderr)).into()),
        }
    }

    /// Runs a command for a session, and returns the process of its module.
    fn of(&self, name: &str, arguments: &[&str]) -> Result<u32, Error> {
        let (credential, key) = (format!("{name}.cred"), format!("{name}.key"));
        self.run(&[arguments, &["--credential", &credential, "--identity", &key]].concat())?;
        let shown = self.run(&["show", "busy", "--principal", name, "--format", "json"])?;
        let module: Value = serde_json::from_str(&shown)?;
        let pid = module["process"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        pid.ok_or_else(|| format!("no process: {shown}").into())
    }

    /// Gives each session its reservation of `now`, if it had another one, and notes its process in `pids`.
    fn reserve(&self, now: &[u64; 4], before: Option<&[u64; 4]>, pids: &mut [u32; 4]) -> Result<(), Error> {
        for (n, name) in NAMES.into_iter().enumerate() {
            let percent = match now[n] {
                0 => "none".to_owned(),
                percent => format!("cpu={percent}%"),
            };
            let arguments = match before.map(|before| before[n]) {
                None => vec!["install", "busy.wasm", "--reserve", &percent],
                Some(same) if same == now[n] => continue,
                // To begin or end a reservation takes an update.
                Some(before) if before == 0 || now[n] == 0 => vec!["update", "busy", "--reserve", &percent],
                Some(_) => vec!["renew", "busy", "--reserve", &percent],
            };
            pids[n] = self.of(name, &arguments)?;
        }
        Ok(())
    }
}

/// Returns the nanoseconds that a process's main thread has run.
fn ran(pid: u32) -> Result<u64, Error> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

/// A window: its end in seconds, and the part of a processor that each session had in percent.
type Window = (f64, [f64; 4]);

fn measure(node: &Node) -> Result<Vec<Window>, Error> {
    let mut pids = [0; 4];
    node.reserve(&PHASES[0].1, None, &mut pids)?;
    // The first batches come with the first packets.
    std::thread::sleep(Duration::from_secs(1));
    let (begin, mut windows, mut phase) = (Instant::now(), Vec::new(), 0);
    let look = |pids: &[u32; 4]| -> Result<[(Instant, u64); 4], Error> {
        let mut all = [(begin, 0); 4];
        for (at, pid) in all.iter_mut().zip(pids) {
            *at = (Instant::now(), ran(*pid)?);
        }
        Ok(all)
    };
    let mut before = look(&pids)?;
    while begin.elapsed() < Duration::from_secs(END) {
        if let Some((at, now)) = PHASES.get(phase + 1)
            && begin.elapsed() >= Duration::from_secs(*at)
        {
            node.reserve(now, Some(&PHASES[phase].1), &mut pids)?;
            phase += 1;
            before = look(&pids)?;
        }
        std::thread::sleep(WINDOW);
        let now = look(&pids)?;
        let mut parts = [0.0; 4];
        for (n, part) in parts.iter_mut().enumerate() {
            let time = (now[n].0 - before[n].0).as_nanos() as f64;
            *part = 100.0 * now[n].1.saturating_sub(before[n].1) as f64 / time;
        }
        windows.push((begin.elapsed().as_secs_f64(), parts));
        before = now;
    }
    Ok(windows)
}

/// Measures, prints a table, and writes `sessions.csv` and `sessions.svg` into a folder.
///
/// # Errors
///
/// Returns an error if the node does not start, refuses a reservation, or runs no process for a module.
pub fn run(flame: &Path, folder: &Path) -> Result<(), Error> {
    let node = Node::start(flame)?;
    let windows = measure(&node)?;
    drop(node);
    std::fs::create_dir_all(folder)?;
    let mut csv = "end_s,a,b,c,d\n".to_owned();
    for (end, parts) in &windows {
        let parts: Vec<_> = parts.iter().map(|part| format!("{part:.2}")).collect();
        writeln!(csv, "{end:.3},{}", parts.join(","))?;
    }
    std::fs::write(folder.join("sessions.csv"), csv)?;
    println!("shares of a processor in percent, over windows of {WINDOW:?}");
    println!("from s  session  reserved   mean  median off by  90 of 100 off by");
    for (n, (from, reserved)) in PHASES.iter().enumerate() {
        let until = PHASES.get(n + 1).map_or(END, |(from, _)| *from);
        // Without the window in which the reservations changed.
        let within = |(end, _): &&Window| *end > *from as f64 + 0.3 && *end <= until as f64;
        for (session, name) in NAMES.iter().enumerate() {
            let mut had: Vec<f64> = windows.iter().filter(within).map(|(_, parts)| parts[session]).collect();
            let mean = had.iter().sum::<f64>() / had.len().max(1) as f64;
            if reserved[session] == 0 {
                println!("{from:6}  {name:7}      none  {mean:5.1}");
                continue;
            }
            let of = reserved[session] as f64;
            had.iter_mut().for_each(|part| *part = (*part / of - 1.0).abs() * 100.0);
            had.sort_by(f64::total_cmp);
            let off = |part: f64| had.get((had.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN);
            println!("{from:6}  {name:7}  {of:6.0} %  {mean:5.1}  {:11.1} %  {:14.1} %", off(0.5), off(0.9));
        }
    }
    let axis = |label: &str, scale| Axis { label: label.to_owned(), scale };
    let series = |(n, name): (usize, &&str)| Series {
        name: format!("session {name}"),
        colour: n,
        shape: Shape::Line(windows.iter().map(|(end, parts)| (*end, parts[n])).collect()),
    };
    let reserved = PHASES.iter().map(|(from, r)| format!("from {from} s: {r:?} %"));
    let picture = Picture {
        title: "Shares of four busy sessions".to_owned(),
        notes: vec![format!("reserved {}", reserved.collect::<Vec<_>>().join(", "))],
        x: axis("time [s]", Scale::FromZero),
        y: axis("share of a processor [%]", Scale::FromZero),
        series: NAMES.iter().enumerate().map(series).collect(),
    };
    let path = folder.join("sessions.svg");
    std::fs::write(&path, flame_plot::render(&[picture], Format::Svg)?)?;
    println!("also in {} and sessions.csv beside it", path.display());
    Ok(())
}
