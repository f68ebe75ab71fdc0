//! Keeps the packets of an interface from the kernel's own stack, while captures still receive them.
//!
//! A program drops and counts each packet at the entry to traffic control (TCX, Linux 6.6), which lies after
//! the captures and before the protocols. The kernel removes it with the descriptor that holds it,
//! so that an interface is never left deaf, not even by a process that was killed.

use super::bpf::{Attached, Count, EXIT, Place, Program, SET, instruction};
use std::io;

/// The result of a program that drops its packet.
const TCX_DROP: i32 = 2;

/// The packets of an interface do not reach the kernel's stack while this value lives.
pub struct Deaf {
    _program: Attached,
}

impl Deaf {
    /// Keeps the packets of `interface` from the kernel's stack until the value is dropped. They are counted
    /// in `dropped`, if it is given.
    ///
    /// # Errors
    ///
    /// Returns an error with its remedy without the rights, or on a kernel that has no TCX.
    pub fn new(interface: u32, dropped: Option<&Count>) -> io::Result<Self> {
        let mut instructions = dropped.map_or(Vec::new(), |count| count.instructions().to_vec());
        instructions.extend([instruction(SET, 0, 0, 0, TCX_DROP), instruction(EXIT, 0, 0, 0, 0)]);
        let program = Program { instructions, name: *b"flame_sniffer\0\0\0", place: Place::Ingress };
        let program = Attached::new(&program, interface).map_err(|error| {
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
