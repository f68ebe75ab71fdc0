//! The highest rate at which a receiver on a veth pair loses no packet: `flame run` with four modules,
//! compared to a loop over a bare TPACKET_V3 ring that only counts.
//!
//! The kernel hands a packet over either on the sender's core, so that the receiver has its own for itself,
//! or on the receiver's (RPS), as interrupts of a card would. A receiver sustains a rate if it counts all
//! packets of a trial and has nothing left to do soon after it: the kernel's ring alone holds some hundred
//! thousand packets.

use crate::fixture::Error;
use crate::live::{bare_words, counted};
use crate::net::{FRAME, Receiver, inside, send, within_namespace};
use crate::ring;
use crate::row::{Row, Target, median};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

const GROUP: &str = "loss-free: the highest rate without loss on a veth pair";
const MODULES: &str = "count,flow,port,rtt";

/// The time after a trial in which blocks that are not full reach their reader, and that in which it may then
/// work for a fifth at most.
const AFTER: Duration = Duration::from_millis(50);

/// A receiver as a command, and the number of packets that it processed by its output.
pub struct Program {
    pub words: Vec<String>,
    pub processed: fn(&Output) -> Option<f64>,
}

impl Program {
    /// Returns `flame run` with some modules.
    pub fn flame(flame: &Path, modules: &str) -> Self {
        let flame = flame.to_string_lossy();
        let words = ["run", modules, "-i", "rx0", "--capture", "packet", "--overload", "off"];
        let output = ["--stats", "json", "--format", "json", "-o", "/dev/null"];
        let words = [&*flame].into_iter().chain(words).chain(output).map(str::to_owned).collect();
        Self { words, processed: of_account }
    }

    /// Returns the bare loop.
    pub fn bare() -> io::Result<Self> {
        Ok(Self { words: bare_words()?, processed: of_record })
    }

    /// Returns a loop over libpcap, which takes this many steps for each packet.
    pub fn libpcap(steps: u32) -> io::Result<Self> {
        let me = std::env::current_exe()?.to_string_lossy().into_owned();
        let words = [me, "--libpcap".to_owned(), "rx0".to_owned(), steps.to_string()].into();
        Ok(Self { words, processed: of_record })
    }
}

fn of_record(out: &Output) -> Option<f64> {
    counted(&String::from_utf8_lossy(&out.stdout)).map(|packets| packets as f64)
}

/// Returns the packets that every module processed.
fn of_account(out: &Output) -> Option<f64> {
    let text = String::from_utf8_lossy(&out.stderr);
    let account = text.lines().find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())?;
    let of = |module: &serde_json::Value| module["processed"].as_f64().unwrap_or(0.0);
    Some(account["modules"].as_object()?.values().map(of).fold(f64::INFINITY, f64::min))
}

/// The place of a trial.
pub struct Trial<'a> {
    pub namespace: &'a str,
    /// The cores of the receivers, for example `0`, and the sender's core.
    pub receivers: &'a str,
    pub sender: &'a str,
    /// The length of frames in bytes.
    pub frame: usize,
    pub seconds: f64,
}

impl Trial<'_> {
    /// Sends at a rate, 0 for the highest, and returns the rate that the sender reached, and whether all
    /// receivers sustained it.
    pub fn run(&self, programs: &[Program], rate: f64) -> io::Result<(f64, bool)> {
        let start = |program: &Program| Receiver::start(self.namespace, self.receivers, &program.words);
        let mut receivers = programs.iter().map(start).collect::<io::Result<Vec<_>>>()?;
        // More than any sender here reaches.
        let packets = if rate > 0.0 { rate } else { 1e6 } * self.seconds;
        let sent = send(self.namespace, self.sender, self.frame, packets as u64, rate)?;
        std::thread::sleep(AFTER);
        let used = |all: &mut Vec<Receiver>| all.iter_mut().map(Receiver::seconds).sum::<io::Result<f64>>();
        let before = used(&mut receivers)?;
        std::thread::sleep(AFTER);
        let is_idle = used(&mut receivers)? - before < AFTER.as_secs_f64() / 5.0;
        let mut sustained = is_idle;
        for (receiver, program) in receivers.into_iter().zip(programs) {
            // A receiver that has not caught up may take long.
            if is_idle {
                let out = receiver.end()?;
                let processed = (program.processed)(&out).ok_or_else(|| {
                    io::Error::other(format!("{}: {}, and no count", program.words[0], out.status))
                })?;
                sustained &= processed >= sent.packets;
            }
        }
        Ok((sent.packets / sent.seconds, sustained))
    }

    /// Returns the highest rate, in packets a second, that the receivers sustain, to a part of about
    /// 1 / 2^`steps` of the sender's highest.
    pub fn highest(&self, programs: &[Program], steps: u32) -> io::Result<f64> {
        let (most, sustained) = self.run(programs, 0.0)?;
        if sustained {
            return Ok(most);
        }
        let (mut low, mut high): (f64, f64) = (0.0, most);
        for _ in 0..steps {
            // The first steps are larger, because the rate can be a small part of the highest one.
            let rate = if low == 0.0 { high / 2.0 } else { (low + high) / 2.0 };
            match self.run(programs, rate)? {
                (reached, true) => low = reached,
                (_, false) => high = rate,
            }
        }
        if low == 0.0 {
            Err(io::Error::other(format!("packets are lost at {high:.0} a second")))
        } else {
            Ok(low)
        }
    }
}

/// Lets the kernel hand packets over on core 0, or on the sender's.
pub fn hand_over_on_receiver(namespace: &str, is_so: bool) -> io::Result<()> {
    inside(namespace, &format!("echo {} > /sys/class/net/rx0/queues/rx-0/rps_cpus", u8::from(is_so)))
}

pub fn rows(flame: &Path, rounds: usize) -> Vec<Row> {
    within_namespace("loss-free", &["tx0 rx0"], |namespace| {
        let (seconds, steps, rounds) = if rounds > 3 { (2.0, 7, 3) } else { (0.2, 2, 1) };
        let trial = Trial { namespace, receivers: "0", sender: "1", frame: FRAME, seconds };
        let mut rows = Vec::new();
        for (is_on_receiver, name) in [(false, "a core of its own"), (true, "the kernel's part on its core")]
        {
            hand_over_on_receiver(namespace, is_on_receiver)?;
            let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..rounds {
                let bare = trial.highest(&[Program::bare()?], steps)?;
                let four = trial.highest(&[Program::flame(flame, MODULES)], steps)?;
                ratios.push(four / bare);
                ours.push(four / 1e6);
                theirs.push(bare / 1e6);
            }
            let detail = format!("{:.3} / {:.3} million packets a second", median(ours), median(theirs));
            let name = format!("four modules / bare ring, {name}");
            rows.push(Row::ratio(GROUP, name, median(ratios), detail).target(Target::AtLeast(0.8)));
        }
        Ok(rows)
    })
}

/// Takes this many steps.
pub fn spin(steps: u32) {
    for step in 0..steps {
        std::hint::black_box(step);
    }
}

/// Runs a loop over libpcap until Ctrl-C, as LAME's modules were written, then prints the number of packets.
pub fn libpcap(interface: &str, steps: u32) -> Result<(), Error> {
    ring::stop_on_interrupt();
    let capture = pcap::Capture::from_device(interface)?.promisc(true).snaplen(65_535).timeout(20);
    // A signal does not end the wait of libpcap itself.
    let mut capture = capture.buffer_size(64 << 20).open()?.setnonblock()?;
    let mut packets = 0_u64;
    while !ring::is_stopped() {
        match capture.next_packet() {
            Ok(packet) => {
                packets += 1;
                std::hint::black_box(packet.data.first());
                spin(steps);
            }
            Err(pcap::Error::NoMorePackets | pcap::Error::TimeoutExpired) => ring::wait(capture.as_raw_fd()),
            Err(e) => return Err(e.into()),
        }
    }
    println!("{{\"packets\":{packets}}}");
    Ok(())
}
