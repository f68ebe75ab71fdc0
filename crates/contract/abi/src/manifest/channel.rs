//! Channels, on which a module sends frames.

use super::check::{Checked, at_most, fault, name, one_line};
use super::{Manifest, Step, duration_ns};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The maximum number of channels of a module.
pub const MAX_CHANNELS: usize = 16;
/// The largest rate in bits per second.
const MAX_RATE: u64 = 1_000_000_000_000;
/// The shortest and the longest period in nanoseconds.
const PERIODS: std::ops::RangeInclusive<i64> = 1_000_000..=1_000_000_000;

/// A way out for frames of one kind, with a bandwidth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// A pcap filter. Frames that do not match are not sent.
    pub filter: String,
    /// The bandwidth that is reserved for it, as `1 Mbit/s`.
    pub rate: String,
    /// The time for which its share of the bandwidth is given out at once, as `10ms`.
    #[serde(default = "period")]
    pub period: String,
    /// Whether frames beyond the rate are sent when the link is idle.
    #[serde(default)]
    pub extra: bool,
}

fn period() -> String {
    "10ms".to_owned()
}

impl Channel {
    /// Returns the rate in bits per second, which is valid in a checked manifest.
    pub fn rate(&self) -> u64 {
        bits_per_second(&self.rate).unwrap_or(0)
    }

    /// Returns the period in nanoseconds, which is valid in a checked manifest.
    pub fn period_ns(&self) -> u64 {
        duration_ns(&self.period).map_or(0, |ns| ns as u64)
    }
}

/// Parses a rate such as `8 bit/s`, `64 kbit/s`, `1 Mbit/s` or `2.5 Gbit/s`, with or without the space, and
/// returns it in bits per second.
///
/// # Errors
///
/// Returns a description of the fault if the number or its unit is missing or unknown, or if the rate is
/// below 1 bit/s or above 1000 Gbit/s.
pub fn bits_per_second(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let unit = match text[digits..].trim_start() {
        "bit/s" => 1.0,
        "kbit/s" => 1e3,
        "Mbit/s" => 1e6,
        "Gbit/s" => 1e9,
        _ => return Err(format!("{text:?}: expected a number and bit/s, kbit/s, Mbit/s or Gbit/s")),
    };
    let number: f64 = text[..digits].parse().map_err(|_| format!("{text:?}: expected a number first"))?;
    let rate = (number * unit).round();
    match (1.0..=MAX_RATE as f64).contains(&rate) {
        true => Ok(rate as u64),
        false => Err(format!("{text:?} is not in 1 bit/s to {} Gbit/s", MAX_RATE / 1_000_000_000)),
    }
}

impl Manifest {
    pub(super) fn check_channels(&self) -> Checked<'_> {
        let channels = [Step::Key("channels")];
        at_most(&channels, "channels", self.channels.len(), MAX_CHANNELS, "entries")?;
        if self.ports.is_some() && !self.channels.is_empty() {
            let reason = "a module with ports sends packets from its outputs: remove it";
            return fault(&channels, "channels", reason);
        }
        let mut names = BTreeSet::new();
        for (index, channel) in self.channels.iter().enumerate() {
            let path = |key| [Step::Key("channels"), Step::Index(index), Step::Key(key)];
            name(&path("name"), "channels", &channel.name)?;
            let place = |key: &str| format!("channels.{}.{key}", channel.name);
            if !names.insert(&channel.name) {
                return fault(&path("name"), place("name"), "appears twice: choose another name");
            }
            one_line(&path("description"), &place("description"), &channel.description)?;
            one_line(&path("filter"), &place("filter"), &channel.filter)?;
            if let Err(reason) = bits_per_second(&channel.rate) {
                return fault(&path("rate"), place("rate"), reason);
            }
            match duration_ns(&channel.period) {
                Ok(ns) if PERIODS.contains(&ns) => {}
                Ok(_) => {
                    let reason = format!("{:?} is not in 1ms to 1s", channel.period);
                    return fault(&path("period"), place("period"), reason);
                }
                Err(reason) => return fault(&path("period"), place("period"), reason),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units() {
        for (text, rate) in
            [("8bit/s", 8), ("64 kbit/s", 64_000), ("1 Mbit/s", 1_000_000), ("2.5 Gbit/s", 2_500_000_000)]
        {
            assert_eq!(bits_per_second(text), Ok(rate));
        }
        for text in ["", "1", "1 MB/s", "Mbit/s", "0 bit/s", "0.1 bit/s", "1001 Gbit/s", "1.2.3 bit/s", "é"]
        {
            assert!(bits_per_second(text).is_err(), "{text}");
        }
    }

    #[test]
    fn each_fault_of_a_channel_is_named() {
        let head = "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n";
        let channel = "[[channels]]\nname = \"a\"\nfilter = \"icmp\"\nrate = \"1 Mbit/s\"\n";
        let parse = |text: &str| Manifest::parse(format!("{head}{text}").as_bytes());
        let good = parse(&format!("{channel}period = \"5ms\"\nextra = true")).unwrap();
        assert_eq!((good.channels[0].rate(), good.channels[0].period_ns()), (1_000_000, 5_000_000));
        assert_eq!(Manifest::from_toml(&good.to_toml().unwrap()).unwrap(), good);
        assert_eq!(parse(channel).unwrap().channels[0].period_ns(), 10_000_000);
        for (text, said) in [
            (channel.replace("1 Mbit/s", "fast"), "line 8: channels.a.rate"),
            (format!("{channel}period = \"0ms\""), "line 9: channels.a.period"),
            (format!("{channel}period = \"2s\""), "is not in 1ms to 1s"),
            (format!("{channel}{channel}"), "line 10: channels.a.name: appears twice"),
            (format!("{channel}{}", channel.replace("\"a\"", "\"A\"")), "is not a name"),
            (format!("[ports]\n{channel}"), "from its outputs"),
            (channel.replace("rate", "rat"), "unknown field"),
            (channel.replace("filter = \"icmp\"\n", ""), "for example filter = \"icmp\""),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let many: String = (0..17).map(|n| channel.replace("\"a\"", &format!("\"a{n}\""))).collect();
        assert!(parse(&many).unwrap_err().to_string().contains("17 entries, at most 16"));
    }
}
