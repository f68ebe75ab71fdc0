#![allow(unsafe_code)] // Talks to the kernel.

//! The settings of a network card that change which packets a capture shows, and interfaces that a program
//! provides itself.

use super::interface;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A function of the card or the kernel that merges packets, so that a capture shows packets that were never
/// on the wire, or shows its own packets before they are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Generic receive offload.
    Gro,
    /// Large receive offload.
    Lro,
    /// Generic segmentation offload.
    Gso,
    /// TCP segmentation offload.
    Tso,
}

impl Offload {
    pub const ALL: [Self; 4] = [Self::Gro, Self::Lro, Self::Gso, Self::Tso];

    /// Returns the name, as `ethtool -K` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gro => "gro",
            Self::Lro => "lro",
            Self::Gso => "gso",
            Self::Tso => "tso",
        }
    }

    /// Returns the kernel's request for the state (linux/ethtool.h), and the bit of the answer.
    fn request(self) -> (u32, u32) {
        const GGRO: u32 = 0x2b;
        const GGSO: u32 = 0x23;
        const GTSO: u32 = 0x1e;
        const GFLAGS: u32 = 0x25;
        const FLAG_LRO: u32 = 1 << 15;
        match self {
            Self::Gro => (GGRO, !0),
            Self::Lro => (GFLAGS, FLAG_LRO),
            Self::Gso => (GGSO, !0),
            Self::Tso => (GTSO, !0),
        }
    }
}

/// The number of packets that the card's receive ring holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize {
    pub now: u32,
    pub most: u32,
}

/// The largest number of queues that is believed.
const MOST_QUEUES: u32 = 4096;

/// A network card.
pub struct Card {
    socket: OwnedFd,
    key: Key,
}

/// The way in which a card is found.
enum Key {
    Name([libc::c_char; libc::IFNAMSIZ]),
    Number(libc::c_int),
}

impl Card {
    /// Opens the settings of `interface`. This needs no rights.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is too long for an interface, or if no socket can be created. That there
    /// is no such interface is an error of the other methods.
    pub fn open(interface: &str) -> io::Result<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        if interface.len() >= name.len() {
            return Err(io::Error::other("the name is too long for an interface"));
        }
        for (to, from) in name.iter_mut().zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: plain system call; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just created, with no other owner.
        Ok(Self { socket: unsafe { OwnedFd::from_raw_fd(fd) }, key: Key::Name(name) })
    }

    /// Finds the card by the number of its interface from now on. The interface may get another name, and
    /// another one its name.
    pub(super) fn by_number(self, index: libc::c_int) -> Self {
        Self { key: Key::Number(index), ..self }
    }

    /// Returns whether an offload is on.
    ///
    /// # Errors
    ///
    /// Returns an error if the card does not have the function.
    pub fn is_on(&self, offload: Offload) -> io::Result<bool> {
        let (command, mask) = offload.request();
        let value: [u32; 2] = self.ask([command, 0])?;
        Ok(value[1] & mask != 0)
    }

    /// Returns the Ethernet address.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such interface, or if it is of another kind.
    pub fn address(&self) -> io::Result<[u8; 6]> {
        let mut request = self.request()?;
        // SAFETY: the kernel reads the name and writes the address of this request.
        if unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: SIOCGIFHWADDR filled in the address.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        match address.sa_family {
            libc::ARPHRD_ETHER => Ok(std::array::from_fn(|i| address.sa_data[i] as u8)),
            _ => Err(io::Error::other("it has no Ethernet address")),
        }
    }

    /// Returns the size of the receive ring.
    ///
    /// # Errors
    ///
    /// Returns an error if the card does not report the size, or if there is no such interface.
    pub fn ring(&self) -> io::Result<RingSize> {
        const GRINGPARAM: u32 = 0x10;
        // Command, the most of four rings (receive first), then their present sizes.
        let values: [u32; 9] = self.ask([GRINGPARAM, 0, 0, 0, 0, 0, 0, 0, 0])?;
        Ok(RingSize { most: values[1], now: values[5] })
    }

    /// Returns whether the card takes VLAN tags out of the frames, and states them beside.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such interface.
    pub fn strips_tags(&self) -> io::Result<bool> {
        const GFLAGS: u32 = 0x25;
        const FLAG_RXVLAN: u32 = 1 << 8;
        let value: [u32; 2] = self.ask([GFLAGS, 0])?;
        Ok(value[1] & FLAG_RXVLAN != 0)
    }

    /// Returns the number of receive queues, 1 for a card that has no such setting.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such interface.
    pub fn queues(&self) -> io::Result<u32> {
        const GCHANNELS: u32 = 0x3c;
        // Command, the most of four kinds (receive, send, other, combined), then their present numbers.
        match self.ask([GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0]) {
            Ok(values) => Ok((values[5] + values[8]).max(1)),
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
            Err(e) => Err(e),
        }
    }

    /// Returns the largest number of receive queues that can be set, at least 1.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such interface.
    pub fn most_queues(&self) -> io::Result<u32> {
        const GCHANNELS: u32 = 0x3c;
        match self.ask([GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0]) {
            Ok(values) => Ok(values[1].saturating_add(values[4]).clamp(1, MOST_QUEUES)),
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
            Err(e) => Err(e),
        }
    }

    /// Returns whether the card has a carrier. A card that does not report it has one.
    pub fn has_carrier(&self) -> bool {
        const GLINK: u32 = 0x0a;
        self.ask([GLINK, 0]).map_or(true, |value| value[1] != 0)
    }

    /// Returns the length of the longest packet without its Ethernet header.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such interface.
    pub fn mtu(&self) -> io::Result<u32> {
        let mut request = self.request()?;
        // SAFETY: the kernel reads the name and writes the number of this request.
        if unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: SIOCGIFMTU filled in the number.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.unsigned_abs())
    }

    /// Returns an empty request about this interface.
    fn request(&self) -> io::Result<libc::ifreq> {
        // SAFETY: all-zero is a valid request of plain bytes.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = match self.key {
            Key::Name(name) => name,
            Key::Number(index) => interface::name(index)?,
        };
        Ok(request)
    }

    /// Sends a request, whose answer has the same length.
    fn ask<const N: usize>(&self, mut values: [u32; N]) -> io::Result<[u32; N]> {
        const SIOCETHTOOL: u64 = 0x8946;
        let mut request = self.request()?;
        request.ifr_ifru.ifru_data = values.as_mut_ptr().cast();
        // SAFETY: `request` names this interface, and `values` is the structure that its command has in
        // linux/ethtool.h: ethtool_value (2 words), ethtool_ringparam or ethtool_channels (9 words). Both
        // live through the call.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, &mut request) } {
            0.. => Ok(values),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Creates an interface whose packets this program sends and receives: reading the file returns an IP packet
/// that the kernel sends, and writing passes one to it. The interface exists as long as the file is open.
/// Reading does not wait. Returns the file and the name of the interface.
///
/// # Errors
///
/// Returns an error if the name is taken or too long, or the right CAP_NET_ADMIN is missing.
pub fn open_tun(name: &str) -> io::Result<(std::fs::File, String)> {
    use std::os::unix::fs::OpenOptionsExt;
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    // SAFETY: all zero is a valid value of this structure of numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::other("the name is too long for an interface"));
    }
    for (to, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request is a valid `ifreq`, which the kernel reads and completes.
    if unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let name: Vec<u8> = request.ifr_name.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    Ok((device, String::from_utf8_lossy(&name).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_offloads_and_unknown_ones_have_none() {
        let card = Card::open("lo").unwrap();
        assert!(Offload::ALL.into_iter().any(|offload| card.is_on(offload).is_ok()));
        assert!(Card::open("nosuch0").unwrap().is_on(Offload::Gro).is_err());
        assert!(Card::open("a-name-that-is-too-long").is_err());
    }
}
