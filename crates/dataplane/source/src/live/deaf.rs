//! Keeps the packets of an interface from the kernel's own stack, while captures still receive them.
//!
//! A program of two instructions drops each packet at the entry to traffic control (TCX, Linux 6.6), which
//! lies after the captures and before the protocols. The kernel removes it with the descriptor that holds it,
//! so that an interface is never left deaf, not even by a process that was killed.

use super::bpf::{Attached, Place};
use std::io;

/// `r0 = TCX_DROP; exit`, as `struct bpf_insn`.
const DROP_ALL: [u64; 2] = [0xb7 | 2 << 32, 0x95];

/// The packets of an interface do not reach the kernel's stack while this value lives.
pub struct Deaf {
    _program: Attached,
}

impl Deaf {
    /// Keeps the packets of `interface` from the kernel's stack until the value is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error with its remedy without the rights, or on a kernel that has no TCX.
    pub fn new(interface: u32) -> io::Result<Self> {
        let attached = Attached::new(&DROP_ALL, *b"flame_sniffer\0\0\0", Place::Ingress, interface);
        let program = attached.map_err(|error| {
            let text = match error.kind() {
                io::ErrorKind::PermissionDenied => "run as root or with CAP_NET_ADMIN and CAP_BPF",
                _ => {
                    "it needs Linux 6.6; else leave SNIFFER out, and let the kernel have no address on this \
                     interface"
                }
            };
            io::Error::new(error.kind(), format!("{error} ({text})"))
        })?;
        Ok(Self { _program: program })
    }
}
