#![allow(unsafe_code)] // Talks to the kernel.

//! Keeps the packets of an interface from the kernel's own stack, while captures still receive them.
//!
//! A program of two instructions drops each packet at the entry to traffic control (TCX, Linux 6.6), which
//! lies after the captures and before the protocols. The kernel removes it with the descriptor that holds it,
//! so that an interface is never left deaf, not even by a process that was killed.

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// linux/bpf.h
const PROG_LOAD: c_long = 5;
const LINK_CREATE: c_long = 28;
const SCHED_CLS: u32 = 3;
const TCX_INGRESS: u32 = 46;

/// `r0 = TCX_DROP; exit`, as `struct bpf_insn`.
const DROP_ALL: [u64; 2] = [0xb7 | 2 << 32, 0x95];

/// The beginning of `union bpf_attr` for the load of a program.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log: [u32; 2],
    log_buffer: u64,
    version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

/// The same for a link, whose last two fields are zero.
#[repr(C)]
#[derive(Default)]
struct Link {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
    relative: [u32; 2],
    revision: u64,
}

fn bpf<T>(command: c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are a whole structure of this command, and what they point to outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size_of::<T>()) };
    match libc::c_int::try_from(fd) {
        // SAFETY: just created, with no other owner.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The packets of an interface do not reach the kernel's stack while this value lives.
pub struct Deaf {
    _link: OwnedFd,
}

impl Deaf {
    /// Keeps the packets of `interface` from the kernel's stack until the value is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error with its remedy without the rights, or on a kernel that has no TCX.
    pub fn new(interface: u32) -> io::Result<Self> {
        let load = Load {
            kind: SCHED_CLS,
            count: DROP_ALL.len() as u32,
            instructions: DROP_ALL.as_ptr() as u64,
            license: c"".as_ptr() as u64,
            name: *b"flame_sniffer\0\0\0",
            attach_type: TCX_INGRESS,
            ..Load::default()
        };
        let remedy = |error: io::Error| {
            let text = match error.kind() {
                io::ErrorKind::PermissionDenied => "run as root or with CAP_NET_ADMIN and CAP_BPF",
                _ => {
                    "it needs Linux 6.6; else leave SNIFFER out, and let the kernel have no address on this \
                     interface"
                }
            };
            io::Error::new(error.kind(), format!("{error} ({text})"))
        };
        let program = bpf(PROG_LOAD, &load).map_err(remedy)?;
        let link = Link {
            program: program.as_raw_fd() as u32,
            interface,
            attach_type: TCX_INGRESS,
            ..Link::default()
        };
        Ok(Self { _link: bpf(LINK_CREATE, &link).map_err(remedy)? })
    }
}
