//! The packets that an installed module processes while an active node beside it is flooded with capsules:
//! all from strangers, each with another program and a bound as large as can be stated, as fast as a thread
//! sends them. Windows take turns in which these go to a socket that drops them (so that the sender is there
//! in both), to the active node, and nowhere while many others are busy: the last is the probe, which shows
//! that the figure falls where something is taken from the module. Both nodes have sessions of their own, as
//! services of a machine have: the scheduler divides the processors among sessions first.

use super::Setting;
use super::active::World;
use super::finding::{Finding, short};
use crate::fixture::Error;
use crate::made::spin;
use crate::node::{Node, bursts};
use crate::row::median;
use flame_capsule::{Capsule, Grant, Key, Limits, Message, Payer, Place, hash_of};
use flame_capsule_language::Program;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CONFIG: &str = "[sources.tap]\nfile = \"bursts.pcap\"\nrepeat = true\n";
/// The packets of a burst, and the time between two of them in milliseconds.
const BURST: (u32, u32) = (100, 2);
/// The steps of the module for a packet: a part of a processor that a machine with other work has.
const STEPS: u32 = 6000;
/// The part of its rate that the module keeps at least.
const KEEPS: f64 = 0.98;
/// The busy sessions of the probe, for each processor.
const BUSY: usize = 16;

/// What is there beside the module in a window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Sender,
    Flood,
    Busy,
}

/// Returns datagrams of strangers' capsules, each with another program.
fn hostile() -> Result<Vec<Vec<u8>>, Error> {
    let most = Limits { hops: 255, instructions: u64::MAX, bytes: u64::MAX, copies: u32::MAX };
    let one = |number: usize| {
        // It sends itself to all neighbours, and works as long as it may.
        let text = format!(
            "fun f() = fold x in neighbours() at most 32 with u = skip do OnNeighbor(f(), x, all) end; \
             deliver({number})"
        );
        let program = Program::read(&text)?;
        let capsule = Capsule {
            function: 0,
            limits: most,
            origin: Place(1),
            place: Place::NOWHERE,
            payer: Payer([9; 16]),
            key: Key::default(),
            hash: hash_of(program.code()),
            grant: Grant::ALL,
            arguments: &[],
            code: Some(program.code()),
        };
        // A plain datagram: kind and number are zero.
        let mut datagram = [&b"FL\x01"[..], &[0; 13]].concat();
        Message::Capsule(capsule).write(&mut datagram);
        Ok(datagram)
    };
    (0..256).map(one).collect()
}

/// An active node, in a session of its own.
struct Active {
    child: Child,
    address: SocketAddr,
    said: BufReader<ChildStdout>,
    _folder: tempfile::TempDir,
}

impl Drop for Active {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Active {
    fn start(setting: &Setting<'_>) -> Result<Self, Error> {
        let folder = tempfile::tempdir()?;
        World::new().files(folder.path(), "n1")?;
        let mut command = Command::new("setsid");
        command.arg(setting.flame).args(["active", "-c"]).arg(folder.path().join("n1.toml"));
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut said = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        let address = line.trim().rsplit(' ').next().and_then(|address| address.parse().ok());
        let address = address.ok_or_else(|| format!("no address in {line:?}"))?;
        Ok(Self { child, address, said, _folder: folder })
    }

    /// Returns the processor time of all its threads in nanoseconds.
    fn used(&self) -> Result<f64, Error> {
        let mut used = 0.0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let stat = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            used += stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0);
        }
        Ok(used)
    }

    /// Ends it, and returns its words on accounts and refusals.
    fn end(mut self) -> Result<String, Error> {
        Command::new("kill").args(["-INT", &self.child.id().to_string()]).status()?;
        let mut said = String::new();
        self.said.read_to_string(&mut said)?;
        Ok(said)
    }
}

/// Busy processes, each in a session of its own, until this value is dropped.
struct Busy(Vec<Child>);

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It ends only by this.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Busy {
    fn start() -> Result<Self, Error> {
        let mut all = Self(Vec::new());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..BUSY * cores {
            all.0.push(Command::new("setsid").args(["sh", "-c", "while :; do :; done"]).spawn()?);
        }
        Ok(all)
    }
}

/// Sends capsules until it is stopped, and returns how many.
fn send(target: SocketAddr, capsules: &[Vec<u8>], stop: &AtomicBool) -> u64 {
    let Ok(socket) = UdpSocket::bind(SocketAddr::new(target.ip(), 0)) else { return 0 };
    let sent = capsules.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed));
    sent.filter(|capsule| socket.send_to(capsule, target).is_ok()).count() as u64
}

/// Measures the three.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let (rounds, window) =
        if setting.quick { (1, Duration::from_millis(500)) } else { (7, Duration::from_secs(2)) };
    let mut command = Command::new("setsid");
    command.arg(setting.flame);
    let node = Node::start_by(command, CONFIG, &[("bursts.pcap", &bursts(BURST.0, BURST.1))])?;
    // What comes here beyond its buffer is dropped by the kernel.
    let sink = UdpSocket::bind("127.0.0.1:0")?;
    let nowhere = sink.local_addr()?;
    let holder = node.principal("alice", &[])?;
    node.session(&holder)?.install("busy", &spin("busy", STEPS)?, None)?;
    let capsules = hostile()?;
    let look = || -> Result<(f64, Instant), Error> {
        let shown = node.show("busy", "alice")?;
        Ok((shown["account"]["processed"].as_f64().unwrap_or(0.0), Instant::now()))
    };
    // The module has begun.
    let begun = Instant::now();
    while look()?.0 == 0.0 {
        if begun.elapsed() > Duration::from_secs(30) {
            return Err("the module gets no packets".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let all = [Beside::Sender, Beside::Flood, Beside::Busy];
    let active = Active::start(setting)?;
    let (mut rates, mut sent) = ([const { Vec::new() }; 3], 0);
    for _ in 0..rounds {
        for (beside, rates) in all.into_iter().zip(&mut rates) {
            let stop = AtomicBool::new(beside == Beside::Busy);
            let _busy = if beside == Beside::Busy { Some(Busy::start()?) } else { None };
            let to = if beside == Beside::Flood { active.address } else { nowhere };
            let rate = std::thread::scope(|scope| {
                let sending = scope.spawn(|| send(to, &capsules, &stop));
                let measured = look().and_then(|before| {
                    std::thread::sleep(window);
                    let after = look()?;
                    Ok((after.0 - before.0) / (after.1 - before.1).as_secs_f64())
                });
                stop.store(true, Ordering::Relaxed);
                let count = sending.join().unwrap_or(0);
                sent += if beside == Beside::Flood { count } else { 0 };
                measured
            })?;
            rates.push(rate);
        }
    }
    let used = active.used()?;
    let said = active.end()?;
    drop(sink);
    let [quiet, flood, busy] = rates.map(median);
    println!("flood: packets a second of an installed module beside a flooded active node");
    // Each line of an account or a refusal has its number first.
    let number = |line: &str| line.split([' ', ':']).find_map(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
    let taken: f64 = said.lines().filter(|line| line.starts_with("refused ")).map(number).sum();
    println!(
        "  {sent} capsules sent, of which the kernel let {taken} through; {} us of the node's processor time each",
        short(used / taken / 1000.0)
    );
    said.lines().for_each(|line| println!("  {line}"));
    println!(
        "  without {}, with the flood {} ({:.4} of it, {KEEPS} asked), beside {BUSY} busy sessions a processor {} \
         ({:.3}: the probe)",
        short(quiet),
        short(flood),
        flood / quiet,
        short(busy),
        busy / quiet
    );
    if !setting.quick && busy / quiet >= KEEPS {
        return Err("the probe takes nothing from the module, so the figure cannot fall: raise STEPS".into());
    }
    if !said.contains("beyond") && !said.contains("more than what is left") {
        return Err("the flood did not reach the node".into());
    }
    Ok(Vec::new())
}
