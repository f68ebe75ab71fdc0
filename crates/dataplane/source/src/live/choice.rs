//! The choice between AF_PACKET, which copies the packets of an interface, and AF_XDP, which takes them away
//! from the machine's own stack and from other captures.

use super::card::Card;
use super::interface::{ANY, Interface};
use super::xdp::{self, Manner, chunk};
use super::{LiveOptions, open_found, open_group};
use crate::{Source, SourceError};
use ::xdp::nic::NicIndex;
use std::ffi::CString;
use std::fmt;
use std::fs;

/// The way in which an interface is to be captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capture {
    /// AF_XDP where no other program would miss the packets and they are complete, else AF_PACKET.
    Auto,
    /// AF_PACKET: packets are copied.
    #[default]
    Packet,
    /// AF_XDP: packets are taken away.
    Xdp,
    /// AF_XDP in the kernel's stack, without the driver's part.
    XdpGeneric,
}

impl Capture {
    pub const ALL: [Self; 4] = [Self::Auto, Self::Packet, Self::Xdp, Self::XdpGeneric];

    /// Returns the name that options and files have.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Packet => "packet",
            Self::Xdp => "xdp",
            Self::XdpGeneric => "xdp-generic",
        }
    }
}

impl std::str::FromStr for Capture {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|capture| capture.name() == text)
            .ok_or_else(|| format!("{text:?}: expected {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The way in which an interface is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Packet,
    Xdp(Manner),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packet => f.write_str("AF_PACKET (TPACKET_V3)"),
            Self::Xdp(manner) => manner.fmt(f),
        }
    }
}

/// An interface that was opened.
pub struct Opened {
    /// One source for all workers, or one for each of them.
    pub sources: Vec<Box<dyn Source>>,
    pub way: Way,
    /// The reason why AF_PACKET was chosen, if it was not asked for.
    pub reason: Option<String>,
}

/// Opens an interface for `workers` workers in the way that `capture` states. A source that takes packets
/// away states this in its first notice.
///
/// # Errors
///
/// Returns an error without the rights, if there is no such interface, or if it cannot be captured in this
/// way.
pub fn open_by(
    capture: Capture,
    interface: &Interface,
    options: &LiveOptions,
    workers: usize,
) -> Result<Opened, SourceError> {
    let is_generic = capture == Capture::XdpGeneric;
    let reason = match capture {
        Capture::Packet => None,
        Capture::Xdp | Capture::XdpGeneric => {
            return xdp::open(interface, options, is_generic).map(|source| taken(interface.name(), source));
        }
        Capture::Auto => match objection(interface.name(), options) {
            Some(reason) => Some(reason),
            None => match xdp::open(interface, options, false) {
                Ok(source) => return Ok(taken(interface.name(), source)),
                Err(error) => Some(error.to_string()),
            },
        },
    };
    let sources = match workers {
        1 => vec![open_found(interface, options)?],
        _ => open_group(interface, options, workers)?,
    };
    let boxed = |source| -> Box<dyn Source> { Box::new(source) };
    Ok(Opened { sources: sources.into_iter().map(boxed).collect(), way: Way::Packet, reason })
}

fn taken(interface: &str, mut source: xdp::Xdp) -> Opened {
    let way = Way::Xdp(source.manner());
    source.announce(format!(
        "interface {interface} is captured by {way}: until the end, this machine's own stack and other \
         captures do not receive its packets"
    ));
    Opened { sources: vec![Box::new(source)], way, reason: None }
}

/// Returns the reason why [`Capture::Auto`] does not take the packets of an interface away, if there is one:
/// somebody would miss them, or the capture would not show what AF_PACKET shows.
pub fn objection(interface: &str, options: &LiveOptions) -> Option<String> {
    if interface == ANY {
        return Some("AF_XDP takes one interface, not all".to_owned());
    }
    if options.hardware_timestamps {
        return Some("AF_XDP has no time stamps of the card".to_owned());
    }
    used_by_others(interface).or_else(|| unlike_packet(interface))
}

/// Returns who would miss the packets of an interface.
fn used_by_others(interface: &str) -> Option<String> {
    let name = CString::new(interface).ok()?;
    // A missing interface is an error of its opening.
    let nic = NicIndex::lookup_by_name(&name).ok()??;
    let index = u32::from(nic);
    match nic.addresses() {
        Ok((None, None)) => {}
        Ok(_) => return Some("it has an address, so this machine uses it".to_owned()),
        Err(e) => return Some(format!("its addresses are unknown: {e}")),
    }
    let folder = format!("/sys/class/net/{interface}");
    // The files may be those of another network namespace.
    let stated = fs::read_to_string(format!("{folder}/ifindex")).unwrap_or_default();
    if stated.trim() != index.to_string() {
        return Some(format!("{folder} does not describe it"));
    }
    let mut entries = fs::read_dir(&folder).ok()?.flatten().map(|entry| entry.file_name());
    let other = entries.find_map(|entry| {
        let entry = entry.to_string_lossy().into_owned();
        (entry == "master" || entry.starts_with("upper_")).then_some(entry)
    });
    if let Some(other) = other {
        return Some(format!("another interface is built on it ({folder}/{other})"));
    }
    let sockets = fs::read_to_string("/proc/net/packet").unwrap_or_default();
    is_captured(&sockets, index).then(|| "another program captures it by AF_PACKET".to_owned())
}

/// Returns whether a line of /proc/net/packet is of a socket that receives from the interface.
fn is_captured(sockets: &str, index: u32) -> bool {
    sockets.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(3);
        let (protocol, of) = (words.next(), words.next().and_then(|word| word.parse::<u32>().ok()));
        protocol != Some("0000") && (of == Some(0) || of == Some(index))
    })
}

/// Returns the way in which a capture by AF_XDP would not show what AF_PACKET shows, or would not be better.
fn unlike_packet(interface: &str) -> Option<String> {
    let card = Card::open(interface).ok()?;
    if let Err(e) = chunk(&card) {
        return Some(e.to_string());
    }
    if card.strips_tags().unwrap_or(true) {
        return Some(format!(
            "its driver takes VLAN tags out of the frames, where AF_XDP does not see them (`ethtool -K \
             {interface} rxvlan off`)"
        ));
    }
    let name = CString::new(interface).ok()?;
    let nic = NicIndex::lookup_by_name(&name).ok()??;
    match nic.query_capabilities() {
        Ok(found) if found.xdp_features.basic() && found.xdp_features.redirect() => None,
        Ok(_) => Some("its driver has no XDP".to_owned()),
        Err(e) => Some(format!("the kernel does not state whether its driver has XDP: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_an_interface_or_of_all_are_captures() {
        let table = |proto: &str, index: u32| {
            format!("sk RefCnt Type Proto Iface R Rmem User Inode\n00 3 3 {proto} {index} 1 0 0 77\n")
        };
        assert!(is_captured(&table("0003", 4), 4));
        assert!(is_captured(&table("88cc", 0), 4));
        assert!(!is_captured(&table("0003", 5), 4));
        assert!(!is_captured(&table("0000", 4), 4));
        assert!(!is_captured("", 4));
    }

    #[test]
    fn loopback_is_never_taken_away() {
        assert!(objection("lo", &LiveOptions::default()).is_some());
        assert!(objection(ANY, &LiveOptions::default()).is_some());
    }

    #[test]
    fn names_are_read_back() {
        assert!(Capture::ALL.into_iter().all(|capture| capture.name().parse() == Ok(capture)));
        assert!("dpdk".parse::<Capture>().unwrap_err().contains("packet"));
    }
}
