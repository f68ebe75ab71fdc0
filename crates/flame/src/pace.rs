//! What a packet may take: options that `check` and `run` share.

use crate::command::Error;
use clap::Args;
use flame_compile::Pace;
use flame_plan::PaceLimit;
use std::path::Path;

/// Packets in the blocks that wait for a module.
const BUFFER: u64 = 4 * flame_abi::MAX_BLOCK_PACKETS as u64;

#[derive(Args)]
#[command(next_help_heading = "Pace")]
pub struct Pacing {
    /// Part of a processor that a module may take while the link is full, as 0.5. It is then bounded by what it may
    /// take for a packet, or metered; on an interface it is removed if it keeps taking longer
    #[arg(long, value_name = "PART")]
    cpu_share: Option<f64>,

    /// Speed of the link in bits per second, as 10G or 2.5G [default: what the interface says]
    #[arg(long, value_name = "SPEED")]
    link_speed: Option<String>,

    /// Packets that have room while a module is slow: a batch of the costliest ones may fill it
    #[arg(long, value_name = "PACKETS", default_value_t = BUFFER)]
    buffer_packets: u64,

    /// What a packet may take, as 500ns, whatever share and link say
    #[arg(long, value_name = "TIME")]
    packet_time: Option<String>,

    /// How much longer a module's estimate may be than that, whatever the buffer says
    #[arg(long, value_name = "FACTOR")]
    inflation: Option<f64>,

    /// Batches of a thousand that may take longer than packets may
    #[arg(long, value_name = "BATCHES", default_value_t = 10)]
    slow_batches: u32,
}

impl Pacing {
    /// What a packet may take, if anything says so.
    pub fn pace(&self, interface: Option<&str>, snaplen: u64) -> Result<Option<Pace>, Error> {
        let factor = match self.inflation {
            Some(factor) if factor.is_finite() && factor >= 1.0 => Some(factor),
            Some(factor) => return Err(format!("--inflation {factor}: must be at least 1").into()),
            None => None,
        };
        let derived = match self.cpu_share {
            Some(share) if share > 0.0 && share <= 1.0 => {
                let speed = self.speed(interface)?;
                Some(Pace::of_link(speed, share, self.buffer_packets, snaplen))
            }
            Some(share) => return Err(format!("--cpu-share {share}: must be above 0 and at most 1").into()),
            None => None,
        };
        let given = match &self.packet_time {
            Some(text) => match flame_abi::manifest::duration_ns(text) {
                Ok(ns) if ns > 0 => Some(ns as f64),
                Ok(_) => return Err(format!("--packet-time {text}: must be longer than 0").into()),
                Err(reason) => return Err(format!("--packet-time {reason}").into()),
            },
            None => None,
        };
        let buffered = 1.0 + self.buffer_packets as f64 / flame_abi::MAX_BATCH as f64;
        let packet_ns = given.or(derived.map(|pace| pace.packet_ns));
        let snaplen = snaplen.min(longest(interface));
        Ok(packet_ns.map(|packet_ns| Pace { packet_ns, factor: factor.unwrap_or(buffered), snaplen }))
    }

    /// What a running module is held to.
    pub fn limit(&self, pace: Pace) -> PaceLimit {
        PaceLimit { packet_ns: (pace.packet_ns.ceil() as u64).max(1), over_per_mille: self.slow_batches }
    }

    fn speed(&self, interface: Option<&str>) -> Result<f64, Error> {
        if let Some(text) = &self.link_speed {
            return bits(text).ok_or_else(|| {
                format!("--link-speed {text}: expected bits per second, as 10G, 2.5G or 100M").into()
            });
        }
        let name = interface.ok_or("--cpu-share needs --link-speed, as 10G: a capture file has no link")?;
        // Megabits; virtual interfaces may say -1.
        let megabits = told(name, "speed").filter(|n| *n > 0.0);
        megabits
            .map(|n| n * 1e6)
            .ok_or_else(|| format!("{name} does not say how fast it is: give --link-speed, as 10G").into())
    }
}

/// What the kernel says of an interface.
fn told(interface: &str, what: &str) -> Option<f64> {
    let text = std::fs::read_to_string(Path::new("/sys/class/net").join(interface).join(what));
    text.ok()?.trim().parse().ok()
}

/// The longest frame of a link: segments that the kernel put together count as what they were.
fn longest(interface: Option<&str>) -> u64 {
    const ETHERNET: f64 = 1500.0;
    // Ethernet's header and two tags.
    interface.and_then(|name| told(name, "mtu")).unwrap_or(ETHERNET).max(1.0) as u64 + 22
}

fn bits(text: &str) -> Option<f64> {
    let (number, unit) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1e3),
        (at, 'm' | 'M') => (&text[..at], 1e6),
        (at, 'g' | 'G') => (&text[..at], 1e9),
        (at, 't' | 'T') => (&text[..at], 1e12),
        _ => (text, 1.0),
    };
    number.parse::<f64>().ok().map(|n| n * unit).filter(|n| n.is_finite() && *n > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_as_people_write_them() {
        assert_eq!(bits("10G"), Some(1e10));
        assert_eq!(bits("2.5g"), Some(2.5e9));
        assert_eq!(bits("100M"), Some(1e8));
        assert_eq!(bits("64000"), Some(64_000.0));
        for wrong in ["", "G", "-1G", "0", "ten", "inf", "1e400", "NaN", "1Gé", "é"] {
            assert_eq!(bits(wrong), None, "{wrong}");
        }
    }
}
