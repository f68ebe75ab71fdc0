//! The program that gives each packet of an interface to the socket of its queue, with the time of its
//! reception before it.

use super::queue::STAMP;
use crate::live::bpf::{
    ADD, Attached, CALL, Count, EXIT, LOAD_LONG_VALUE, MAP_BY_DESCRIPTOR, MOVE, Place, Program, SET, Sockets,
    XdpMode, instruction,
};
use std::io;

// linux/bpf_common.h, linux/bpf.h
const LOAD_WORD: u8 = 0x61;
const STORE_LONG: u8 = 0x7b;
const IF_NOT_VALUE: u8 = 0x55;
const IF_GREATER: u8 = 0x2d;
const KTIME_GET_NS: i32 = 5;
const REDIRECT_MAP: i32 = 51;
const ADJUST_META: i32 = 54;
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
/// The offsets of `data`, `data_meta` and `rx_queue_index` in `struct xdp_md`.
const DATA: i16 = 0;
const META: i16 = 8;
const QUEUE: i16 = 16;

/// Returns the program. Where a driver has no room before the packet, there is no time. A packet of a queue
/// without a socket goes its usual way, or is dropped and counted in `dropped`.
fn instructions(sockets: &Sockets, dropped: Option<&Count>) -> Vec<u64> {
    const STAMP_BYTES: i32 = STAMP as i32;
    let otherwise = if dropped.is_some() { XDP_DROP } else { XDP_PASS };
    let mut program = vec![
        instruction(MOVE, 6, 1, 0, 0),
        instruction(SET, 2, 0, 0, -STAMP_BYTES),
        instruction(CALL, 0, 0, 0, ADJUST_META),
        instruction(IF_NOT_VALUE, 0, 0, 7, 0),
        instruction(CALL, 0, 0, 0, KTIME_GET_NS),
        instruction(LOAD_WORD, 3, 6, META, 0),
        instruction(LOAD_WORD, 4, 6, DATA, 0),
        instruction(MOVE, 5, 3, 0, 0),
        instruction(ADD, 5, 0, 0, STAMP_BYTES),
        instruction(IF_GREATER, 5, 4, 1, 0),
        instruction(STORE_LONG, 3, 0, 0, 0),
        instruction(LOAD_WORD, 2, 6, QUEUE, 0),
        instruction(LOAD_LONG_VALUE, 1, MAP_BY_DESCRIPTOR, 0, sockets.fd()),
        0,
        instruction(SET, 3, 0, 0, otherwise),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
    ];
    if let Some(dropped) = dropped {
        let counting = dropped.instructions();
        program.push(instruction(IF_NOT_VALUE, 0, 0, counting.len() as i16 + 1, XDP_DROP));
        program.extend(counting);
        program.push(instruction(SET, 0, 0, 0, XDP_DROP));
    }
    program.push(instruction(EXIT, 0, 0, 0, 0));
    program
}

/// The program on an interface. Dropping it gives the packets back to the kernel.
pub struct Redirect {
    program: Program,
    attached: Attached,
}

impl Redirect {
    /// Attaches the program. As long as a queue has no entry in `sockets`, its packets go their usual way, or
    /// are dropped and counted in `dropped`.
    pub fn new(
        interface: u32,
        sockets: &Sockets,
        dropped: Option<&Count>,
        mode: XdpMode,
    ) -> io::Result<Self> {
        let (instructions, place) = (instructions(sockets, dropped), Place::Xdp(mode));
        let program = Program { instructions, name: *b"flame_redirect\0\0", place };
        let attached = Attached::new(&program, interface)?;
        Ok(Self { program, attached })
    }

    /// Puts the program in its own place: not every driver has it run for receive queues that came later.
    pub fn renew(&self) -> io::Result<()> {
        self.attached.renew(&self.program)
    }
}
