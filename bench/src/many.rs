//! Many sessions of one module each on a node, each with a process of its own: the time of their installs,
//! their memory, and the processor time of a module for a packet, compared to ten sessions.

use crate::fixture::Error;
use crate::net::seconds_of;
use crate::node::{Holder, Node, bursts};
use crate::row::{Row, Target};
use std::path::Path;
use std::time::{Duration, Instant};

const GROUP: &str = "sessions: one module each on a node";
const FEW: usize = 10;
/// The packets of a burst, and the time between two of them in milliseconds.
const BURST: (u32, u32) = (1000, 100);

const CONFIG: &str = "[sources.tap]\nfile = \"bursts.pcap\"\nrepeat = true\n\
    [limits]\nmodules = 1000\nrequests_per_second = 100000\nconnections = 4096\n";

/// The sum of the processor time of a node's processes in seconds, and the packets of its first module.
struct Look {
    seconds: f64,
    packets: f64,
}

struct Sessions<'a> {
    node: &'a Node,
    wasm: &'a [u8],
    holders: Vec<Holder>,
}

impl Sessions<'_> {
    /// Installs one more, and returns the time that it took.
    fn add(&mut self) -> Result<Duration, Error> {
        let holder = self.node.principal(&format!("p{}", self.holders.len()), &[])?;
        let begin = Instant::now();
        self.node.session(&holder)?.install("module", self.wasm, None)?;
        self.holders.push(holder);
        Ok(begin.elapsed())
    }

    /// Returns the numbers of the node's processes.
    fn processes(&self) -> Result<Vec<u32>, Error> {
        let all = self.node.connect()?.request("GET", "/v1/status/security", None)?;
        let all = all["processes"].as_array().ok_or("no processes")?;
        Ok(all.iter().filter_map(|process| u32::try_from(process["pid"].as_u64()?).ok()).collect())
    }

    fn look(&self) -> Result<Look, Error> {
        let packets = match self.holders.first() {
            Some(_) => self.node.show("module", "p0")?["account"]["offered"].as_f64().unwrap_or(0.0),
            None => 0.0,
        };
        let seconds = self.processes()?.into_iter().map(seconds_of).sum::<std::io::Result<f64>>()?;
        Ok(Look { seconds, packets })
    }

    /// Returns the seconds of processor time for a second of traffic, and the packets in it.
    fn rate(&self, time: Duration) -> Result<(f64, f64), Error> {
        // The first blocks come with the next bursts.
        std::thread::sleep(time / 4);
        let (begin, before) = (Instant::now(), self.look()?);
        std::thread::sleep(time);
        let (passed, after) = (begin.elapsed().as_secs_f64(), self.look()?);
        Ok(((after.seconds - before.seconds) / passed, (after.packets - before.packets) / passed))
    }

    /// Returns the resident memory of all processes in MiB, in which a shared page counts once.
    fn memory(&self) -> Result<f64, Error> {
        let kib = |pid: u32| -> Result<f64, Error> {
            let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss")?;
            Ok(line.split_whitespace().next().ok_or("no Pss")?.parse()?)
        };
        Ok(self.processes()?.into_iter().map(kib).sum::<Result<f64, Error>>()? / 1024.0)
    }
}

pub fn rows(flame: &Path, folder: &Path, rounds: usize) -> Result<Vec<Row>, Error> {
    let (many, time) = if rounds > 3 { (200, 5) } else { (20, 1) };
    let time = Duration::from_secs(time);
    let wasm = std::fs::read(folder.join("flow.wasm"))?;
    let node = Node::start(flame, CONFIG, &[("bursts.pcap", &bursts(BURST.0, BURST.1))])?;
    // The first install compiles the module.
    let first = node.principal("first", &[])?;
    let mut session = node.session(&first)?;
    session.install("module", &wasm, None)?;
    session.request("DELETE", "/v1/modules/module", None)?;
    let mut sessions = Sessions { node: &node, wasm: &wasm, holders: Vec::new() };
    let nothing = sessions.rate(time)?.0;
    let mut installs = Duration::ZERO;
    while sessions.holders.len() < FEW {
        installs += sessions.add()?;
    }
    let few = sessions.rate(time)?;
    while sessions.holders.len() < many {
        installs += sessions.add()?;
    }
    let memory = sessions.memory()?;
    let all = sessions.rate(time)?;
    let mut shed = 0.0;
    for n in 0..many {
        let shown = node.show("module", &format!("p{n}"))?;
        let causes = shown["account"]["shed"].as_object().into_iter().flat_map(|causes| causes.values());
        shed += causes.filter_map(serde_json::Value::as_f64).fold(0.0, |sum, n| sum + n);
    }
    for holder in sessions.holders.drain(FEW..) {
        node.session(&holder)?.request("DELETE", "/v1/modules/module", None)?;
    }
    let again = sessions.rate(time)?;
    // A module does not pay for reading and decoding. Noise can make it appear free.
    let of = |(seconds, packets): (f64, f64), modules: usize| {
        ((seconds - nothing) * 1e9 / packets / modules as f64).max(0.01)
    };
    let (less, more) = ((of(few, FEW) + of(again, FEW)) / 2.0, of(all, many));
    let detail = format!("{more:.1} / {less:.1} ns, {shed} packets of all modules were shed");
    Ok(vec![
        Row::ratio(GROUP, format!("installs of {many}"), installs.as_secs_f64(), "from the cache".into())
            .unit("s")
            .target(Target::AtMost(10.0)),
        Row::ratio(
            GROUP,
            format!("memory of {many}"),
            memory,
            "flow; all processes, shared pages once".into(),
        )
        .unit("MiB")
        .target(Target::AtMost(2048.0)),
        Row::ratio(GROUP, format!("processor time, {many} / {FEW}"), more / less, detail)
            .target(Target::AtMost(1.3)),
    ])
}
