//! Options for admission by time per packet, shared by `check` and `run`.

use crate::error::Error;
use clap::Args;
use flame_admit::PacketTimeLimit;
use flame_plan::TimeLimit;
use std::path::Path;

/// The default number of packets that can wait for a module: those of four full blocks.
const BUFFER: u64 = 4 * flame_abi::MAX_BLOCK_PACKETS as u64;

/// The heading of the options in help. As a heading of the whole struct it would apply to later options, too.
const HEADING: &str = "Admission by time";

#[derive(Args)]
pub struct AdmissionArgs {
    /// Fraction of one CPU a module may use at full link rate, for example 0.5. Sets the time limit per
    /// packet for admission; on a live interface, modules that keep exceeding it are evicted
    #[arg(long, help_heading = HEADING, value_name = "FRACTION")]
    cpu_share: Option<f64>,

    /// Speed of the link in bits per second, for example 10G or 2.5G [default: the interface's speed]
    #[arg(long, help_heading = HEADING, value_name = "SPEED")]
    link_speed: Option<String>,

    /// Packets that can be buffered while a module falls behind; one worst-case batch may fill the buffer
    #[arg(long, help_heading = HEADING, value_name = "PACKETS", default_value_t = BUFFER)]
    buffer_packets: u64,

    /// Time limit per packet, for example 500ns; overrides --cpu-share and --link-speed
    #[arg(long, help_heading = HEADING, value_name = "TIME")]
    packet_time: Option<String>,

    /// Factor by which a module's estimate may exceed the time limit; overrides --buffer-packets
    #[arg(long, help_heading = HEADING, value_name = "FACTOR")]
    inflation: Option<f64>,

    /// Batches per 1000 that may exceed the time limit
    #[arg(long, help_heading = HEADING, value_name = "BATCHES", default_value_t = 10)]
    max_overruns: u32,
}

impl AdmissionArgs {
    /// Returns whether any option sets a time limit.
    pub fn has_time_limit(&self) -> bool {
        self.cpu_share.is_some() || self.packet_time.is_some()
    }

    /// Returns the time limit per packet, if any option sets one.
    pub fn packet_time_limit(
        &self,
        interface: Option<&str>,
        snaplen: u64,
    ) -> Result<Option<PacketTimeLimit>, Error> {
        let factor = match self.inflation {
            Some(factor) if factor.is_finite() && factor >= 1.0 => Some(factor),
            Some(factor) => return Err(format!("--inflation {factor}: must be at least 1").into()),
            None => None,
        };
        let derived = match self.cpu_share {
            Some(share) if share > 0.0 && share <= 1.0 => {
                let speed = self.speed(interface)?;
                Some(PacketTimeLimit::of_link(speed, share, self.buffer_packets, snaplen))
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
        let packet_ns = given.or(derived.map(|limit| limit.packet_ns));
        let snaplen = snaplen.min(longest(interface));
        Ok(packet_ns.map(|packet_ns| PacketTimeLimit {
            packet_ns,
            factor: factor.unwrap_or(buffered),
            snaplen,
        }))
    }

    /// Returns the limit for a running module's calls.
    pub fn limit(&self, limit: PacketTimeLimit) -> TimeLimit {
        TimeLimit {
            packet_ns: (limit.packet_ns.ceil() as u64).max(1),
            over_per_mille: self.max_overruns,
            share_per_mille: self.cpu_share.map_or(1000, |share| (share * 1000.0).ceil() as u32),
        }
    }

    fn speed(&self, interface: Option<&str>) -> Result<f64, Error> {
        if let Some(text) = &self.link_speed {
            return bits(text).ok_or_else(|| {
                format!("--link-speed {text}: expected bits per second, as 10G, 2.5G or 100M").into()
            });
        }
        let name = interface.ok_or("--cpu-share needs --link-speed, as 10G: a capture file has no link")?;
        // Unit: Mbit/s. Virtual interfaces may report -1.
        let megabits = sysfs_value(name, "speed").filter(|n| *n > 0.0);
        megabits
            .map(|n| n * 1e6)
            .ok_or_else(|| format!("the speed of {name} is unknown: give --link-speed, as 10G").into())
    }
}

/// Reads a number that the kernel publishes about an interface.
fn sysfs_value(interface: &str, file: &str) -> Option<f64> {
    let text = std::fs::read_to_string(Path::new("/sys/class/net").join(interface).join(file));
    text.ok()?.trim().parse().ok()
}

/// Returns the length in bytes of the longest frame of a link. Segments merged by the kernel (GRO) count as
/// before merging.
fn longest(interface: Option<&str>) -> u64 {
    const ETHERNET: f64 = 1500.0;
    // The Ethernet header and two VLAN tags.
    interface.and_then(|name| sysfs_value(name, "mtu")).unwrap_or(ETHERNET).max(1.0) as u64 + 22
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
