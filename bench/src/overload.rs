//! Overload of a worker on a veth pair: one light module of high priority and three costly ones of low
//! priority, at the load that they sustain and at twice that load, with and without the control.
//!
//! Useful work is the number of packets that each module processed, weighted by what it takes for one, in
//! the time from the first packet to the end of the run. The worker runs on one core and the sender on
//! another. A run is long enough to fill the kernel's ring, which holds some seconds of the load.

use crate::live::{await_socket, within_namespace};
use crate::row::{Row, Target};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const GROUP: &str = "overload: one worker at twice the load that it sustains";
/// The steps of the modules for a packet: the one of high priority, and three others.
const STEPS: [(&str, u32); 4] = [("top", 500), ("low", 16_000), ("lower", 16_000), ("lowest", 16_000)];

/// Sends so many packets a second for so many seconds, in bursts of a millisecond.
const SENDER: &str = "
import socket, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('tx0', 0))
head = bytes.fromhex('02000000000202000000000108004500005600000000401100000a0000010a000002')
frames = [head + bytes([4, i, 0, 53, 0, 66, 0, 0]) + bytes(58) for i in range(64)]
rate, seconds = float(sys.argv[1]), float(sys.argv[2])
start, sent = time.monotonic(), 0
while (passed := time.monotonic() - start) < seconds:
    while sent < rate * passed:
        try: s.send(frames[sent % 64])
        except OSError: pass
        sent += 1
    time.sleep(0.001)
print(sent)
";

pub fn rows(flame: &Path, rounds: usize) -> Vec<Row> {
    within_namespace("overload", &["tx0 rx0"], |namespace| measure(namespace, flame, rounds))
}

/// Writes a module that takes `steps` steps for each packet, within a bound.
fn module(folder: &Path, name: &str, steps: u32) -> io::Result<()> {
    use wasm_encoder::{CustomSection, Section};
    let text = format!(
        r#"(module (memory (export "memory") 1)
            (func (export "flame_batch") (param $batch i32) (result i64)
                (local $left i32) (local $i i32)
                (local.set $left (i32.load offset=4 (local.get $batch)))
                (block $done
                    (loop $packets
                        (br_if $done (i32.eqz (local.get $left)))
                        (local.set $i (i32.const {steps}))
                        (loop $again
                            (br_if $again (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
                        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
                        (br $packets)))
                (i64.const 0)))"#
    );
    let manifest = format!(
        "abi = 1\nname = \"{name}\"\nversion = \"1\"\ndescription = \"busy\"\n[needs]\nexpose = \"none\"\n\
         [limits]\npacket_budget = 100000000\n"
    );
    let mut wasm = wat::parse_str(text).map_err(io::Error::other)?;
    CustomSection { name: "flame.manifest".into(), data: manifest.as_bytes().into() }.append_to(&mut wasm);
    std::fs::write(folder.join(format!("{name}.wasm")), wasm)
}

/// The outcome of one run.
struct Outcome {
    /// Steps of useful work per second.
    work: f64,
    /// Packets per second that all modules took, if none was shed.
    rate: f64,
    /// The part of the sent packets that the module of high priority did not process.
    lost: f64,
    kernel_drops: u64,
}

fn measure(namespace: &str, flame: &Path, rounds: usize) -> io::Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    for (name, steps) in STEPS {
        module(folder.path(), name, steps)?;
    }
    let files: Vec<_> = STEPS.iter().map(|(name, _)| folder.path().join(format!("{name}.wasm"))).collect();
    let files: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
    let flame = flame.display().to_string();
    let run = |overload: &str, rate: f64, seconds: f64| -> io::Result<Outcome> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, "taskset", "-c", "0", &flame, "run", &files.join(",")]);
        command.args(["-i", "rx0", "--stats", "json", "--overload", overload]);
        command.args(["--priority", "top=9,low=3,lower=2,lowest=1"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let waited = await_socket(namespace, &mut child);
        let start = Instant::now();
        let mut sender = Command::new("ip");
        sender.args(["netns", "exec", namespace, "taskset", "-c", "1", "python3", "-c", SENDER]);
        let sent = waited.and_then(|_| sender.args([rate.to_string(), seconds.to_string()]).output());
        crate::live::run(&["kill", "-INT", &child.id().to_string()])?;
        let out = child.wait_with_output()?;
        let passed = start.elapsed().as_secs_f64();
        let sent: f64 = String::from_utf8_lossy(&sent?.stdout).trim().parse().map_err(io::Error::other)?;
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        let account = text.lines().find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let account = account.ok_or_else(|| io::Error::other(format!("no account in {text}")))?;
        let processed = |name: &str| account["modules"][name]["processed"].as_f64().unwrap_or(0.0);
        Ok(Outcome {
            work: STEPS.iter().map(|(name, steps)| processed(name) * f64::from(*steps)).sum::<f64>() / passed,
            rate: processed("lowest") / passed,
            lost: 1.0 - processed("top") / sent,
            kernel_drops: account["kernel_drops"].as_u64().unwrap_or(0),
        })
    };
    let seconds = if rounds > 3 { 30.0 } else { 3.0 };
    // Far more than is sustained. The first run compiles the modules, and does not count.
    run("off", 1_000.0, 0.5)?;
    let full = run("off", 60_000.0, seconds / 3.0)?;
    let sustained = full.rate;
    let peak = run("off", sustained, seconds / 3.0)?.work.max(full.work);
    let mut rows = Vec::new();
    for (overload, name) in [("50%", "with the control"), ("off", "without it")] {
        let double = run(overload, 2.0 * sustained, seconds)?;
        let detail = format!(
            "{:.0} packets a second, {:.0} are sustained; kernel drops {}",
            2.0 * sustained,
            sustained,
            double.kernel_drops
        );
        let is_on = overload != "off";
        let target = |target| is_on.then_some(target);
        rows.push(Row {
            target: target(Target::AtLeast(0.95)),
            ..Row::ratio(GROUP, format!("useful work / peak, {name}"), double.work / peak, detail.clone())
        });
        rows.push(Row {
            target: target(Target::AtMost(0.0)),
            ..Row::ratio(GROUP, format!("loss of the highest priority, {name}"), double.lost, detail)
        });
    }
    Ok(rows)
}
