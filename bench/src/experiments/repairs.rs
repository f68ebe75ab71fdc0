//! The cache of `arm` and the part of NACKs that it answers, while the loss of four receivers goes from 25 to
//! 50 %: the experiment of RCANE's Figure 15.
//!
//! A sender sends 500 packets a second. A receiver that lost one asks for it half a second later, and again
//! as long as it loses the repair, too. So NACKs ask for older packets when more are lost, and the module
//! must take more memory to answer nine of ten. Time is that of the packets. What the module does not answer
//! counts as repaired by the sender, past the module.

use super::finding::Finding;
use super::{Figure, Setting};
use crate::fixture::Error;
use crate::generate::Random;
use crate::made::capture;
use crate::send::datagram;
use flame_plot::{Scale, Shape};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const RECEIVERS: u8 = 4;
/// The microseconds between two packets of the sender, and from a loss to its NACK.
const APART: u64 = 2000;
const PATIENCE: u64 = 500_000;
/// The loss in percent, before and after.
const LOSS: [u64; 2] = [25, 50];
const PORT: [u16; 2] = [5030, 5030];
const GROUP: [u8; 4] = [239, 1, 1, 1];

/// Returns the packets of sender and receivers in some seconds, of which the second half has the second loss.
fn packets(seconds: u64) -> Vec<(u64, Vec<u8>)> {
    let (mut all, mut random) = (Vec::new(), Random(1));
    let message = |kind: u8, number: u32| [&[b'A', b'R', 1, kind][..], &number.to_be_bytes()].concat();
    for number in 0..seconds * 1_000_000 / APART {
        let sent = number * APART;
        let data = [message(0, number as u32), vec![7; 200]].concat();
        all.push((sent, datagram([10, 0, 0, 1], GROUP, PORT, &data)));
        for receiver in 0..RECEIVERS {
            // Receivers do not ask all at once.
            let mut at = sent + u64::from(receiver) * 100;
            while random.below(100) < LOSS[usize::from(at >= seconds * 500_000)] {
                at += PATIENCE;
                let nack = [message(1, number as u32), GROUP.to_vec()].concat();
                all.push((at, datagram([10, 0, 1, receiver], [10, 0, 0, 1], PORT, &nack)));
            }
        }
    }
    all.sort_by_key(|(at, _)| *at);
    all
}

/// The module's counts.
#[derive(Clone, Copy, Default)]
struct Counts {
    nacks: f64,
    /// Those of packets that were not in the cache.
    missed: f64,
    cache: f64,
}

/// Returns the counts after these packets.
fn after(setting: &Setting<'_>, folder: &Path, packets: &[(u64, Vec<u8>)]) -> Result<Counts, Error> {
    let file = folder.join("in.pcap");
    std::fs::write(&file, capture(packets.iter().cloned()))?;
    // A NACK that is not answered leaves towards the sender, unless the packet was asked for a moment before.
    let graph = format!(
        "FromDump({}, STOP true) -> c :: Classifier(30/ef010101, -);
         m :: Module({}, EXPOSE all, suppress 0s); c [0] -> m; c [1] -> [1] m;
         m [0] -> Discard; m [1] -> Discard",
        file.display(),
        setting.modules.join("arm.wasm").display()
    );
    let mut command = Command::new(setting.flame);
    let out = command.args(["click", "--simtime", "--format", "json", "-e", &graph]).output()?;
    let said = String::from_utf8_lossy(&out.stdout);
    let mut rows = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let total = rows.find(|row| row["table"] == "total");
    let total = total.ok_or_else(|| format!("no counts: {said}{}", String::from_utf8_lossy(&out.stderr)))?;
    let of = |name: &str| total[name].as_f64().unwrap_or(f64::NAN);
    Ok(Counts { nacks: of("nacks"), missed: of("asked"), cache: of("cache") })
}

/// Measures cache and hits.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let folder = tempfile::tempdir()?;
    let (seconds, windows) = if setting.quick { (4, 2) } else { (40, 20) };
    let all = packets(seconds);
    let (mut before, mut cache, mut hits) = (Counts::default(), Vec::new(), Vec::new());
    println!("repairs: the cache of arm, and answered NACKs in a window (RCANE, Fig. 15)");
    println!("until s  loss  NACKs  cache KiB  hits");
    for window in 1..=windows {
        let until = window * seconds / windows;
        let count = all.partition_point(|(at, _)| *at < until * 1_000_000);
        let now = after(setting, folder.path(), &all[..count])?;
        let nacks = now.nacks - before.nacks;
        let hit = 100.0 * (1.0 - (now.missed - before.missed) / nacks);
        let (kib, loss) = (now.cache / 1024.0, LOSS[usize::from(until * 2 > seconds)]);
        println!("{until:7}  {loss:2} %  {nacks:5.0}  {kib:9.0}  {hit:4.1} %");
        cache.push((until as f64, kib));
        hits.push((until as f64, hit));
        before = now;
    }
    let at = |n: usize| [cache.get(n), hits.get(n)].map(|point| point.map_or(f64::NAN, |(_, y)| *y));
    let (first, last) = (at(windows as usize / 2 - 1), at(windows as usize - 1));
    for (name, title, y, points) in [
        ("repairs", "Cache of arm as the loss goes from 25 to 50 %", "cache [KiB]", cache),
        ("repairs-hits", "NACKs that arm answers", "answered NACKs [%]", hits),
    ] {
        let notes = vec![format!("from {} s on the loss is {} %", seconds / 2, LOSS[1])];
        let (x, y) = (("time [s]", Scale::FromZero), (y, Scale::FromZero));
        Figure { name, title, notes, x, y, series: vec![("arm".to_owned(), Shape::Line(points))] }
            .write(setting.folder)?;
    }
    let item = "SANE Fig. 15";
    Ok(vec![
        Finding::more(
            item,
            "growth of the cache as the loss doubles",
            "times",
            370.0 / 180.0,
            last[0] / first[0],
        ),
        Finding::more(item, "NACKs that the cache answers at the end", "%", 90.0, last[1]),
    ])
}
