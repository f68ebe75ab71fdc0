#![allow(unsafe_code)] // Talks to the kernel.

use super::interface::{Interface, name};
use super::{Fanout, LiveOptions};
use crate::SourceError;
use flame_abi::LinkType;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A packet socket. Dropping it closes it.
pub struct Socket(OwnedFd);

/// The interface of a socket, and the form of its packets.
pub struct Link {
    pub link: LinkType,
    /// The number of the interface; 0 for all.
    pub index: libc::c_int,
}

// linux/if_packet.h
const PACKET_VNET_HDR: libc::c_int = 15;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// The kernel's `PACKET_FANOUT_FLAG_UNIQUEID`.
const UNIQUE: u32 = 0x2000;

/// The most frames that one call sends.
pub const SENT_AT_ONCE: usize = 64;

/// The use of the packets of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Capture,
    /// They are sent on: the ring states the work that is left on frames. Those that this machine sends are
    /// among them if `is_outgoing`.
    Forward {
        is_outgoing: bool,
    },
}

/// Returns the error of a step of the opening of an interface.
fn failed(interface: &str, step: &str, error: io::Error) -> SourceError {
    let place = format!("interface {interface}: {step}");
    let error = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            io::Error::new(error.kind(), format!("{error} (run as root or with CAP_NET_RAW)"))
        }
        _ => error,
    };
    SourceError::Io { place, error }
}

/// Opens a socket that sends frames to an interface, and receives none.
pub fn open_to_send(interface: &Interface) -> Result<(Socket, Link), SourceError> {
    let io = |step: &str, error: io::Error| failed(interface.name(), step, error);
    let index = interface.index();
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain system call; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io("socket", io::Error::last_os_error()));
    }
    // SAFETY: just created, with no other owner.
    let socket = Socket(unsafe { OwnedFd::from_raw_fd(fd) });
    let link = socket.link(interface)?;
    socket.bind(index, 0).map_err(|e| io("bind", e))?;
    Ok((socket, Link { link, index }))
}

/// Opens and binds a socket whose ring is set up but not mapped.
pub fn open(interface: &Interface, options: &LiveOptions, use_: Use) -> Result<(Socket, Link), SourceError> {
    let io = |step: &str, error: io::Error| failed(interface.name(), step, error);
    let (is_any, index) = (interface.is_all(), interface.index());
    // Without a link header, the packets of all interfaces are alike.
    let kind = if is_any { libc::SOCK_DGRAM } else { libc::SOCK_RAW };
    // With protocol 0, no packet arrives before the ring and the interface are chosen.
    // SAFETY: plain system call; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io("socket", io::Error::last_os_error()));
    }
    // SAFETY: just created, with no other owner.
    let socket = Socket(unsafe { OwnedFd::from_raw_fd(fd) });
    let link = if is_any { LinkType::LINUX_SLL2 } else { socket.link(interface)? };
    let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
    socket.set(libc::PACKET_VERSION, &version).map_err(|e| io("PACKET_VERSION", e))?;
    // Room to restore a VLAN tag in front of the packet, or to write a cooked header.
    let reserve: u32 = if is_any { 24 } else { 4 };
    socket.set(libc::PACKET_RESERVE, &reserve).map_err(|e| io("PACKET_RESERVE", e))?;
    if let Use::Forward { is_outgoing } = use_ {
        let one: libc::c_int = 1;
        socket.set(PACKET_VNET_HDR, &one).map_err(|e| io("PACKET_VNET_HDR", e))?;
        if !is_outgoing {
            socket.set(PACKET_IGNORE_OUTGOING, &one).map_err(|e| io("PACKET_IGNORE_OUTGOING", e))?;
        }
    }
    // The kernel then reads the time of a packet once, when it arrives, and not once for each socket: all
    // captures state the same time, on which the choice of a sample rests.
    let one: libc::c_int = 1;
    socket.set_at(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &one).map_err(|e| io("SO_TIMESTAMPNS", e))?;
    if options.hardware_timestamps {
        let raw = libc::SOF_TIMESTAMPING_RAW_HARDWARE as libc::c_int;
        socket.set(libc::PACKET_TIMESTAMP, &raw).map_err(|e| io("PACKET_TIMESTAMP", e))?;
    }
    match options.fanout {
        Some(_) => socket.cut(0),
        None => socket.admit(options.snaplen),
    }
    .map_err(|e| io("SO_ATTACH_FILTER", e))?;
    let request = libc::tpacket_req3 {
        tp_block_size: options.block_bytes as u32,
        tp_block_nr: options.blocks as u32,
        tp_frame_size: 2048,
        tp_frame_nr: (options.block_bytes / 2048 * options.blocks) as u32,
        tp_retire_blk_tov: options.timeout_ms.max(1),
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    socket.set(libc::PACKET_RX_RING, &request).map_err(|e| io("PACKET_RX_RING", e))?;
    socket.bind(index, libc::ETH_P_ALL as u16).map_err(|e| io("bind", e))?;
    if options.promiscuous && !is_any {
        socket.be_promiscuous(index).map_err(|e| io("promiscuous mode", e))?;
    }
    if let Some(fanout) = options.fanout {
        // The kernel's flow hash is symmetric here: both directions of a flow reach one member. A number that
        // the kernel chooses is of no other group, of any process.
        let (group, flags) = match fanout {
            Fanout::New => (0, UNIQUE),
            Fanout::Of(group) => (group, 0),
        };
        let fanout = u32::from(group) | (libc::PACKET_FANOUT_HASH | flags) << 16;
        socket.set(libc::PACKET_FANOUT, &fanout).map_err(|e| io("PACKET_FANOUT", e))?;
    }
    Ok((socket, Link { link, index }))
}

/// Returns a request about an interface.
fn request(name: &str) -> libc::ifreq {
    // SAFETY: all-zero is a valid request of plain bytes.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request
}

/// Returns the error of a socket whose interface disappeared.
pub fn lost(interface: &str, error: io::Error) -> SourceError {
    let error = match error.raw_os_error() {
        Some(libc::ENETDOWN) => {
            io::Error::new(error.kind(), format!("{error} (it is down: `ip link set {interface} up`)"))
        }
        Some(libc::ENODEV) => io::Error::new(error.kind(), format!("{error} (the interface was removed)")),
        _ => error,
    };
    SourceError::Io { place: format!("interface {interface}: receiving"), error }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Socket {
    /// Wraps any descriptor.
    #[cfg(test)]
    pub fn of(fd: OwnedFd) -> Self {
        Self(fd)
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn set<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        self.set_at(libc::SOL_PACKET, option, value)
    }

    fn set_at<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let size = size_of::<T>() as libc::socklen_t;
        // SAFETY: `value` is a C structure of this option, `size` bytes long.
        match unsafe { libc::setsockopt(self.fd(), level, option, (&raw const *value).cast(), size) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Puts the interface into promiscuous mode as long as the socket lives.
    pub fn be_promiscuous(&self, index: libc::c_int) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// Returns the number of the socket's fanout group.
    pub fn group(&self) -> io::Result<u16> {
        let fanout: u32 = self.get(libc::SOL_PACKET, libc::PACKET_FANOUT, 0)?;
        Ok((fanout & 0xffff) as u16)
    }

    fn get<T: Copy>(&self, level: libc::c_int, option: libc::c_int, mut value: T) -> io::Result<T> {
        let mut size = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `size` bytes of plain numbers into `value`.
        match unsafe { libc::getsockopt(self.fd(), level, option, (&raw mut value).cast(), &mut size) } {
            0 => Ok(value),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Admits packets, with `snaplen` bytes of each.
    pub fn admit(&self, snaplen: u32) -> io::Result<()> {
        if snaplen < flame_abi::MAX_PACKET as u32 {
            return self.cut(snaplen.max(1));
        }
        match self.set_at(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0u32) {
            // There was no filter.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            result => result,
        }
    }

    /// Makes the kernel keep `bytes` bytes of each packet, or no packet if it is 0, by a filter of one
    /// instruction.
    pub fn cut(&self, bytes: u32) -> io::Result<()> {
        let mut program = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: bytes }];
        let filter = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
        self.set_at(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }

    /// Makes the kernel report to the socket that the interface goes down, as an error, and no packet: only
    /// the sockets that receive learn of it.
    pub fn be_told(&self, index: libc::c_int) -> io::Result<()> {
        // An EtherType for experiments (IEEE 802, 2).
        const UNUSED: u16 = 0x88b6;
        self.cut(0)?;
        self.bind(index, UNUSED)
    }

    fn bind(&self, index: libc::c_int, protocol: u16) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol.to_be(),
            sll_ifindex: index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: a whole address of the socket's family.
        match unsafe { libc::bind(self.fd(), (&raw const address).cast(), size) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn link(&self, interface: &Interface) -> Result<LinkType, SourceError> {
        let place = format!("interface {}: SIOCGIFHWADDR", interface.name());
        let mut request = request("");
        // It may have another name by now.
        request.ifr_name = match name(interface.index()) {
            Ok(name) => name,
            Err(error) => return Err(SourceError::Io { place, error }),
        };
        // SAFETY: the kernel reads the name and writes the address of this request.
        if unsafe { libc::ioctl(self.fd(), libc::SIOCGIFHWADDR, &mut request) } < 0 {
            return Err(SourceError::Io { place, error: io::Error::last_os_error() });
        }
        // SAFETY: SIOCGIFHWADDR filled in the address.
        let family = unsafe { request.ifr_ifru.ifru_hwaddr.sa_family };
        match family {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(LinkType::ETHERNET),
            // Tunnels: packets begin with IP.
            libc::ARPHRD_NONE | libc::ARPHRD_PPP | libc::ARPHRD_TUNNEL | libc::ARPHRD_SIT | 519 => {
                Ok(LinkType::RAW)
            }
            other => {
                let text =
                    format!("hardware type {other} is not decoded; what is: Ethernet, loopback, tunnels");
                Err(SourceError::Io { place, error: io::Error::other(text) })
            }
        }
    }

    /// Returns whether the interface with number `index` is up, or an error if it was removed. It may have
    /// another name by now.
    pub fn is_up(&self, index: libc::c_int) -> io::Result<bool> {
        let mut request = request("");
        request.ifr_name = name(index)?;
        // SAFETY: the kernel reads the name and writes the flags of this request.
        if unsafe { libc::ioctl(self.fd(), libc::SIOCGIFFLAGS, &mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: SIOCGIFFLAGS filled in the flags.
        Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0)
    }

    /// Returns whether the interface to which the socket is bound is up, or an error if it was removed. Its
    /// number does not show that: an interface that comes back, from another namespace or made again, may
    /// have it, but the socket is bound to none. The socket must be one of Ethernet, or of frames that begin
    /// with the work that is left on them.
    pub fn is_still_up(&self) -> io::Result<bool> {
        // Nothing is sent, since there is no such frame without a byte. The kernel looks at the interface
        // before the length.
        match self.send(&mut std::iter::once(&[][..])).err().and_then(|e| e.raw_os_error()) {
            Some(libc::ENXIO) => Err(io::Error::from_raw_os_error(libc::ENODEV)),
            Some(libc::ENETDOWN) => Ok(false),
            _ => Ok(true),
        }
    }

    /// Sends frames, as many as there is room for, in one call. Returns how many were sent, or the error of
    /// the first one.
    pub fn send(&self, frames: &mut dyn Iterator<Item = &[u8]>) -> io::Result<usize> {
        // SAFETY: all-zero is a valid value of these structures of numbers and null pointers.
        let mut vectors: [libc::iovec; SENT_AT_ONCE] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; SENT_AT_ONCE] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        for ((frame, vector), message) in frames.zip(&mut vectors).zip(&mut messages) {
            *vector = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (vector, 1);
            count += 1;
        }
        // SAFETY: `count` messages with a vector each, whose frames are borrowed until after the call; the
        // kernel only reads the frames.
        let sent = unsafe { libc::sendmmsg(self.fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }

    /// Waits until a block may be ready or the time is up. Returns an error if the interface is gone or down.
    pub fn wait(&self, timeout_ms: u32) -> io::Result<()> {
        let mut poll = libc::pollfd { fd: self.fd(), events: libc::POLLIN | libc::POLLERR, revents: 0 };
        // SAFETY: one whole structure; the kernel writes `revents`.
        let n = unsafe { libc::poll(&mut poll, 1, timeout_ms as libc::c_int) };
        if n > 0 && poll.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 {
            let code = self.get(libc::SOL_SOCKET, libc::SO_ERROR, 0 as libc::c_int)?;
            if code != 0 {
                return Err(io::Error::from_raw_os_error(code));
            }
        }
        // A signal (EINTR) is a reason to check again, not an error.
        Ok(())
    }

    /// Returns the number of packets that the kernel dropped since the last call.
    pub fn drops(&self) -> u64 {
        let zero = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS, zero).map_or(0, |s| u64::from(s.tp_drops))
    }
}
