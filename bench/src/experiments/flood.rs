//! The packets that an installed module processes while an active node beside it is flooded with capsules: all
//! from strangers, each with another program and a bound as large as can be stated, as fast as a thread sends
//! them. Windows without the flood, with it, and with busy threads take turns; these are the probe, which shows
//! that the figure falls where something is taken from the module.

use super::Setting;
use super::active::{World, compile};
use super::finding::{Finding, short};
use crate::fixture::Error;
use crate::made::spin;
use crate::node::{Node, bursts};
use crate::row::median;
use flame_active_link::Clock;
use flame_active_node::{Cause, Services};
use flame_active_server::{Config, Report, clock, serve};
use flame_capsule::{Capsule, Grant, Key, Limits, Message, Payer, Place, hash_of};
use flame_capsule_language::Program;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const CONFIG: &str = "[sources.tap]\nfile = \"bursts.pcap\"\nrepeat = true\n";
/// The packets of a burst, and the time between two of them in milliseconds.
const BURST: (u32, u32) = (100, 2);
/// The steps of the module for a packet: about a third of a processor.
const STEPS: u32 = 12_000;
/// The part of its rate that the module keeps at least, as the issue asks.
const KEEPS: f64 = 0.98;
/// The busy threads of the probe, for each processor.
const BUSY: usize = 16;

struct Without;

impl Services for Without {
    fn service(&mut self, _: Payer, _: u64, _: i64) -> Option<i64> {
        None
    }
}

/// What is there beside the module in a window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
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

/// Runs an active node on a thread, and `work` with its address meanwhile.
fn with_node<T>(work: impl FnOnce(SocketAddr) -> Result<T, Error>) -> Result<(T, Report), Error> {
    let folder = tempfile::tempdir()?;
    World::new().files(folder.path(), "n1")?;
    let config = Config::open(&folder.path().join("n1.toml"), 1_800_000_000)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (told, begun) = mpsc::channel();
        let (stop, started) = (&stop, Instant::now());
        let clock = move || -> Clock { clock(started) };
        let node = scope.spawn(move || {
            let begun = |address| {
                // The other end waits.
                let _ = told.send(address);
            };
            serve(config, compile, Without, clock, stop, begun).map_err(|error| error.to_string())
        });
        let done = begun.recv().map_err(Error::from).and_then(work);
        stop.store(true, Ordering::Relaxed);
        let report = node.join().map_err(|_| "the active node has panicked")??;
        Ok((done?, report))
    })
}

/// Does what stands beside the module until it is stopped.
fn disturb(beside: Beside, target: SocketAddr, capsules: &[Vec<u8>], stop: &AtomicBool) -> u64 {
    let is_over = || stop.load(Ordering::Relaxed);
    match beside {
        Beside::Nothing => 0,
        Beside::Flood => {
            let Ok(socket) = UdpSocket::bind(SocketAddr::new(target.ip(), 0)) else { return 0 };
            let sent = capsules.iter().cycle().take_while(|_| !is_over());
            sent.filter(|capsule| socket.send_to(capsule, target).is_ok()).count() as u64
        }
        Beside::Busy => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            std::thread::scope(|scope| {
                for _ in 0..BUSY * cores {
                    scope.spawn(|| while !is_over() {});
                }
            });
            0
        }
    }
}

/// Measures the three.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let (rounds, window) =
        if setting.quick { (1, Duration::from_millis(500)) } else { (7, Duration::from_secs(2)) };
    let node = Node::start(setting.flame, CONFIG, &[("bursts.pcap", &bursts(BURST.0, BURST.1))])?;
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
    let all = [Beside::Nothing, Beside::Flood, Beside::Busy];
    let measured = with_node(|target| {
        let (mut rates, mut sent) = ([const { Vec::new() }; 3], 0);
        for _ in 0..rounds {
            for (beside, rates) in all.into_iter().zip(&mut rates) {
                let stop = AtomicBool::new(false);
                let rate = std::thread::scope(|scope| {
                    let disturbing = scope.spawn(|| disturb(beside, target, &capsules, &stop));
                    let measured = look().and_then(|before| {
                        std::thread::sleep(window);
                        let after = look()?;
                        Ok((after.0 - before.0) / (after.1 - before.1).as_secs_f64())
                    });
                    stop.store(true, Ordering::Relaxed);
                    sent += disturbing.join().unwrap_or(0);
                    measured
                })?;
                rates.push(rate);
            }
        }
        Ok((rates, sent))
    })?;
    let ((rates, sent), report) = measured;
    let refused: u64 = report.causes.iter().map(|(_, count)| count).sum();
    let of = |cause: Cause| report.causes.iter().find(|(c, _)| *c == cause).map_or(0, |(_, n)| *n);
    let strangers = report.accounts.get(&Payer::BEST_EFFORT).copied().unwrap_or_default();
    let [quiet, flood, busy] = rates.map(median);
    println!("flood: packets a second of an installed module beside a flooded active node");
    println!(
        "  {sent} capsules sent, {} begun, {refused} refused ({} beyond the share), {} copies left",
        strangers.capsules,
        of(Cause::BeyondShare),
        strangers.copies
    );
    println!(
        "  without {}, with the flood {} ({:.4} of it, {KEEPS} asked), beside {BUSY} busy threads a processor {} \
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
    if refused == 0 {
        return Err("the flood did not reach the node".into());
    }
    Ok(Vec::new())
}
