#![allow(unsafe_code)] // Talks to the kernel.

//! Small programs in the kernel, loaded by bpf(2), and where they are attached.
//!
//! All that is here belongs to a descriptor: the kernel removes it with the process, also with a killed
//! process.

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

// linux/bpf.h
const MAP_CREATE: c_long = 0;
const MAP_LOOKUP_ELEM: c_long = 1;
const MAP_UPDATE_ELEM: c_long = 2;
const PROG_LOAD: c_long = 5;
const LINK_CREATE: c_long = 28;
const LINK_UPDATE: c_long = 29;
const ARRAY: u32 = 2;
const XSKMAP: u32 = 17;

/// Returns an instruction, as `struct bpf_insn`.
pub const fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    code as u64
        | (to as u64) << 8
        | (from as u64) << 12
        | (offset as u16 as u64) << 16
        | (value as u32 as u64) << 32
}

// linux/bpf_common.h, linux/bpf.h
pub const CALL: u8 = 0x85;
pub const EXIT: u8 = 0x95;
pub const MOVE: u8 = 0xbf;
pub const SET: u8 = 0xb7;
pub const ADD: u8 = 0x07;
pub const LOAD_LONG_VALUE: u8 = 0x18;
pub const MAP_BY_DESCRIPTOR: u8 = 1;
const STORE_WORD_VALUE: u8 = 0x62;
const ADD_LONG_AT_ONCE: u8 = 0xdb;
const IF_VALUE: u8 = 0x15;
const MAP_LOOKUP: i32 = 1;
/// The register with the end of the stack.
const STACK: u8 = 10;

/// The place of a program, and with it its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The entry to traffic control (TCX).
    Ingress,
    /// The driver, before the kernel has made a packet of the frame.
    Xdp(XdpMode),
}

/// The part of the kernel that runs an XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// The driver.
    Native,
    /// The kernel's stack, for every driver, after it has made a packet of the frame.
    Generic,
}

impl Place {
    /// Returns the type of programs (`BPF_PROG_TYPE_…`), and the type of their attachment.
    fn types(self) -> (u32, u32) {
        match self {
            Self::Ingress => (3, 46),
            Self::Xdp(_) => (6, 37),
        }
    }

    /// Returns the flags of the attachment (linux/if_link.h).
    fn flags(self) -> u32 {
        match self {
            Self::Ingress => 0,
            Self::Xdp(XdpMode::Generic) => 1 << 1,
            Self::Xdp(XdpMode::Native) => 1 << 2,
        }
    }
}

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
struct LinkTo {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
    relative: [u32; 2],
    revision: u64,
}

/// The same for another program of a link.
#[repr(C)]
#[derive(Default)]
struct Update {
    link: u32,
    program: u32,
    flags: u32,
    former: u32,
}

/// The same for a map.
#[repr(C)]
#[derive(Default)]
struct NewMap {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
}

/// The same for an entry of a map.
#[repr(C)]
#[derive(Default)]
struct Entry {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

fn bpf<T>(command: c_long, attributes: &T) -> io::Result<c_long> {
    // SAFETY: the attributes are a whole structure of this command, and what they point to outlives the call.
    match unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size_of::<T>()) } {
        result @ 0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

fn descriptor<T>(command: c_long, attributes: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: these commands return a descriptor, just created, with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Sockets by the number of their receive queue.
pub struct Sockets(OwnedFd);

impl Sockets {
    pub fn new(queues: u32) -> io::Result<Self> {
        let map = NewMap { kind: XSKMAP, key_size: 4, value_size: 4, entries: queues, ..NewMap::default() };
        descriptor(MAP_CREATE, &map).map(Self)
    }

    /// Enters the socket of a queue, which is bound.
    pub fn set(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        let value = socket as u32;
        let (key, value) = (&raw const queue as u64, &raw const value as u64);
        let entry = Entry { map: self.fd() as u32, key, value, ..Entry::default() };
        bpf(MAP_UPDATE_ELEM, &entry).map(drop)
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A number that a program increments.
pub struct Count(OwnedFd);

impl Count {
    pub fn new() -> io::Result<Self> {
        let map = NewMap { kind: ARRAY, key_size: 4, value_size: 8, entries: 1, ..NewMap::default() };
        descriptor(MAP_CREATE, &map).map(Self)
    }

    pub fn get(&self) -> u64 {
        let (key, mut value) = (0_u32, 0_u64);
        let (key, to) = (&raw const key as u64, &raw mut value as u64);
        let entry = Entry { map: self.fd() as u32, key, value: to, ..Entry::default() };
        // An array of one has this entry.
        bpf(MAP_LOOKUP_ELEM, &entry).map_or(0, |_| value)
    }

    /// Returns instructions that increment it. They use the registers 0 to 5 and four bytes of the stack.
    pub fn instructions(&self) -> [u64; 9] {
        [
            instruction(STORE_WORD_VALUE, STACK, 0, -4, 0),
            instruction(MOVE, 2, STACK, 0, 0),
            instruction(ADD, 2, 0, 0, -4),
            instruction(LOAD_LONG_VALUE, 1, MAP_BY_DESCRIPTOR, 0, self.fd()),
            0,
            instruction(CALL, 0, 0, 0, MAP_LOOKUP),
            instruction(IF_VALUE, 0, 0, 2, 0),
            instruction(SET, 1, 0, 0, 1),
            instruction(ADD_LONG_AT_ONCE, 0, 1, 0, 0),
        ]
    }

    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A program, as `struct bpf_insn`, with its name and place.
pub struct Program {
    pub instructions: Vec<u64>,
    pub name: [u8; 16],
    pub place: Place,
}

impl Program {
    fn load(&self) -> io::Result<OwnedFd> {
        let (kind, attach_type) = self.place.types();
        let load = Load {
            kind,
            count: self.instructions.len() as u32,
            instructions: self.instructions.as_ptr() as u64,
            license: c"".as_ptr() as u64,
            name: self.name,
            attach_type,
            ..Load::default()
        };
        descriptor(PROG_LOAD, &load)
    }
}

/// A program at its place. Dropping it removes it.
pub struct Attached {
    link: OwnedFd,
}

impl Attached {
    /// Loads a program, and attaches it to an interface.
    pub fn new(program: &Program, interface: u32) -> io::Result<Self> {
        let (loaded, place) = (program.load()?, program.place);
        let (_, attach_type) = place.types();
        let link = LinkTo {
            program: loaded.as_raw_fd() as u32,
            interface,
            attach_type,
            flags: place.flags(),
            ..LinkTo::default()
        };
        Ok(Self { link: descriptor(LINK_CREATE, &link)? })
    }

    /// Replaces the program by a new load of it.
    pub fn renew(&self, program: &Program) -> io::Result<()> {
        let loaded = program.load()?;
        let (link, program) = (self.link.as_raw_fd() as u32, loaded.as_raw_fd() as u32);
        bpf(LINK_UPDATE, &Update { link, program, ..Update::default() }).map(drop)
    }
}
