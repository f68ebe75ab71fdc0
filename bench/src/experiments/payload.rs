//! The time in which `des3` encrypts a packet, by the bytes of its payload: the experiment of the Figure 5.5
//! of Patel's thesis. Calls alone: native, without counters as the proved bound permits, metered.

use super::finding::Finding;
use super::{Figure, Setting, calls};
use crate::fixture::Error;
use crate::send::frame;
use flame_plot::{Scale, Shape};

/// The bytes before the payload of a datagram.
const HEADERS: usize = 42;
const PAYLOADS: [usize; 7] = [32, 64, 128, 256, 512, 1024, 1400];

/// Measures the payloads.
pub fn run(setting: &Setting<'_>) -> Result<Vec<Finding>, Error> {
    let (payloads, packets) = if setting.quick { (&PAYLOADS[..2], 64) } else { (&PAYLOADS[..], 1024) };
    println!("payload: nanoseconds in which des3 encrypts a packet (Patel, Fig. 5.5)");
    println!("payload  hardwired  hybrid  dynamic  hybrid / hardwired  dynamic / hybrid");
    let mut benefits = Vec::new();
    let mut lines = ["hardwired", "hybrid", "dynamic"].map(|name| (name.to_owned(), Vec::new()));
    for payload in payloads {
        let frames = (0..packets).map(|n| (n, frame(n as u8 % 64, HEADERS + payload)));
        let times = calls::times::<flame_des3::Des3>(setting, "des3", &[], frames)?;
        let calls::Times { hardwired, hybrid, dynamic } = times;
        println!(
            "{payload:7}  {hardwired:9.0}  {hybrid:6.0}  {dynamic:7.0}  {:18.2}  {:16.2}",
            hybrid / hardwired,
            dynamic / hybrid
        );
        benefits.push(dynamic / hybrid);
        for ((_, line), (_, ns)) in lines.iter_mut().zip(times.named()) {
            line.push((*payload as f64, ns / 1e3));
        }
    }
    Figure {
        name: "payload",
        title: "Triple DES by payload",
        notes: vec!["the bound is for packets of at most 1,522 bytes".to_owned()],
        x: ("payload [bytes]", Scale::FromZero),
        y: ("time for a packet [µs]", Scale::FromZero),
        series: lines.into_iter().map(|(name, line)| (name, Shape::Line(line))).collect(),
    }
    .write(setting.folder)?;
    let [first, last] = [benefits.first(), benefits.last()].map(|ratio| ratio.copied().unwrap_or(f64::NAN));
    Ok(vec![Finding::shape(
        "Patel Fig. 5.5",
        "the benefit of hybrid control falls as the payload grows: dynamic over hybrid",
        "falls to about 1",
        format!("{first:.2} to {last:.2}"),
        last < 0.95 * first && last < 1.25,
    )])
}
