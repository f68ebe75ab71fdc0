#![allow(unsafe_code)] // Talks to the kernel.

use super::LiveOptions;
use crate::SourceError;
use flame_abi::LinkType;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A packet socket. Dropping it closes it.
pub struct Socket(OwnedFd);

/// The form of an interface's packets.
pub struct Link {
    pub link: LinkType,
    pub is_loopback: bool,
}

/// Opens and binds a socket whose ring is set up but not mapped.
pub fn open(interface: &str, options: &LiveOptions) -> Result<(Socket, Link), SourceError> {
    let io = |step: &str, error: io::Error| {
        let place = format!("interface {interface}: {step}");
        if error.kind() == io::ErrorKind::PermissionDenied {
            let error = io::Error::new(error.kind(), format!("{error} (run as root or with CAP_NET_RAW)"));
            return SourceError::Io { place, error };
        }
        SourceError::Io { place, error }
    };
    let index = index(interface)?;
    // With protocol 0, no packet arrives before the ring and the interface are chosen.
    // SAFETY: plain system call; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io("socket", io::Error::last_os_error()));
    }
    // SAFETY: just created, with no other owner.
    let socket = Socket(unsafe { OwnedFd::from_raw_fd(fd) });
    let link = socket.link(interface)?;
    let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
    socket.set(libc::PACKET_VERSION, &version).map_err(|e| io("PACKET_VERSION", e))?;
    // Room to restore a VLAN tag in front of the packet.
    socket.set(libc::PACKET_RESERVE, &4u32).map_err(|e| io("PACKET_RESERVE", e))?;
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
    socket.bind(index).map_err(|e| io("bind", e))?;
    if options.promiscuous {
        let request = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        socket.set(libc::PACKET_ADD_MEMBERSHIP, &request).map_err(|e| io("promiscuous mode", e))?;
    }
    if let Some((group, _)) = options.fanout {
        // The kernel's flow hash is symmetric here: both directions of a flow reach one member.
        let fanout = u32::from(group) | libc::PACKET_FANOUT_HASH << 16;
        socket.set(libc::PACKET_FANOUT, &fanout).map_err(|e| io("PACKET_FANOUT", e))?;
    }
    Ok((socket, link))
}

/// Returns the error of a socket whose interface disappeared.
pub fn lost(interface: &str, error: io::Error) -> SourceError {
    let error = match error.raw_os_error() {
        Some(libc::ENETDOWN) => io::Error::new(
            error.kind(),
            format!("{error} (it is down, or was removed: `ip link set {interface} up`)"),
        ),
        _ => error,
    };
    SourceError::Io { place: format!("interface {interface}: receiving"), error }
}

fn index(interface: &str) -> Result<libc::c_int, SourceError> {
    let none = |error: io::Error| {
        let error = io::Error::new(error.kind(), format!("{error}; there are {}", interfaces().join(", ")));
        SourceError::Io { place: format!("interface {interface}"), error }
    };
    let name = CString::new(interface).map_err(|e| none(e.into()))?;
    // SAFETY: a NUL-terminated name that lives through the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(none(io::Error::last_os_error())),
        index => Ok(index as libc::c_int),
    }
}

/// Returns the names of this machine's interfaces.
fn interfaces() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the list is read up to its end mark and freed once.
    unsafe {
        let list = libc::if_nameindex();
        let mut entry = list;
        while !entry.is_null() && !(*entry).if_name.is_null() {
            names.push(std::ffi::CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
            entry = entry.add(1);
        }
        if !list.is_null() {
            libc::if_freenameindex(list);
        }
    }
    names
}

impl Socket {
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

    fn bind(&self, index: libc::c_int) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
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

    fn link(&self, interface: &str) -> Result<Link, SourceError> {
        let place = format!("interface {interface}: SIOCGIFHWADDR");
        // SAFETY: all-zero is a valid request of plain bytes.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = from as libc::c_char;
        }
        // SAFETY: the kernel reads the name and writes the address of this request.
        if unsafe { libc::ioctl(self.fd(), libc::SIOCGIFHWADDR, &mut request) } < 0 {
            return Err(SourceError::Io { place, error: io::Error::last_os_error() });
        }
        // SAFETY: SIOCGIFHWADDR filled in the address.
        let family = unsafe { request.ifr_ifru.ifru_hwaddr.sa_family };
        let (link, is_loopback) = match family {
            libc::ARPHRD_ETHER => (LinkType::ETHERNET, false),
            libc::ARPHRD_LOOPBACK => (LinkType::ETHERNET, true),
            // Tunnels: packets begin with IP.
            libc::ARPHRD_NONE | libc::ARPHRD_PPP | libc::ARPHRD_TUNNEL | libc::ARPHRD_SIT | 519 => {
                (LinkType::RAW, false)
            }
            other => {
                let text =
                    format!("hardware type {other} is not decoded; what is: Ethernet, loopback, tunnels");
                return Err(SourceError::Io { place, error: io::Error::other(text) });
            }
        };
        Ok(Link { link, is_loopback })
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
