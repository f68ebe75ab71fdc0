//! The program that gives each packet of an interface to the socket of its queue, with the time of its
//! reception before it.

use super::queue::STAMP;
use crate::live::bpf::{Attached, Place, Sockets, XdpMode};
use std::io;
use std::os::fd::RawFd;

/// Returns an instruction, as `struct bpf_insn`.
const fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    code as u64
        | (to as u64) << 8
        | (from as u64) << 12
        | (offset as u16 as u64) << 16
        | (value as u32 as u64) << 32
}

// linux/bpf_common.h, linux/bpf.h
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const MOVE: u8 = 0xbf;
const SET: u8 = 0xb7;
const ADD: u8 = 0x07;
const LOAD_WORD: u8 = 0x61;
const STORE_LONG: u8 = 0x7b;
const LOAD_LONG_VALUE: u8 = 0x18;
const IF_NOT_VALUE: u8 = 0x55;
const IF_GREATER: u8 = 0x2d;
const KTIME_GET_NS: i32 = 5;
const REDIRECT_MAP: i32 = 51;
const ADJUST_META: i32 = 54;
const MAP_BY_DESCRIPTOR: u8 = 1;
const XDP_PASS: i32 = 2;
/// The offsets of `data`, `data_meta` and `rx_queue_index` in `struct xdp_md`.
const DATA: i16 = 0;
const META: i16 = 8;
const QUEUE: i16 = 16;

/// Returns the program. Where a driver has no room before the packet, there is no time. A packet of a queue
/// without a socket goes its usual way.
fn instructions(sockets: RawFd) -> [u64; 17] {
    const STAMP_BYTES: i32 = STAMP as i32;
    [
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
        instruction(LOAD_LONG_VALUE, 1, MAP_BY_DESCRIPTOR, 0, sockets),
        0,
        instruction(SET, 3, 0, 0, XDP_PASS),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

/// The program on an interface. Dropping it gives the packets back to the kernel.
pub struct Redirect {
    _program: Attached,
}

impl Redirect {
    /// Attaches the program. As long as a queue has no entry in `sockets`, its packets go their usual way.
    pub fn new(interface: u32, sockets: &Sockets, mode: XdpMode) -> io::Result<Self> {
        let program = instructions(sockets.fd());
        let attached = Attached::new(&program, *b"flame_redirect\0\0", Place::Xdp(mode), interface)?;
        Ok(Self { _program: attached })
    }
}
