//! A bare TPACKET_V3 ring, as the simplest program would open it: what the command is compared to.

#![allow(unsafe_code)] // It talks to the kernel.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_interrupt(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Lets Ctrl-C stop the loops of this process.
pub fn stop_on_interrupt() {
    // SAFETY: the handler only stores a word.
    unsafe { libc::signal(libc::SIGINT, on_interrupt as *const () as libc::sighandler_t) };
}

pub fn is_stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Waits for packets of a socket. The wait has a timeout, because a signal may come just before this call.
pub fn wait(socket: i32) {
    let mut poll = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
    // SAFETY: the call writes only to the place passed to it.
    unsafe { libc::poll(&mut poll, 1, 20) };
}

/// The shape of a ring.
#[derive(Clone, Copy)]
pub struct Shape {
    pub block: usize,
    pub blocks: usize,
    pub timeout_ms: u32,
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Opens a packet socket of an interface. `prepare` is called before it is bound.
pub fn socket(
    interface: &str,
    protocol: u16,
    prepare: impl FnOnce(i32) -> io::Result<()>,
) -> io::Result<i32> {
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: the system calls are plain, with complete structures.
    unsafe {
        let fd = check(libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0))?;
        prepare(fd)?;
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        check(libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as libc::socklen_t))?;
        Ok(fd)
    }
}

/// Calls `each` with every block of frames that an interface receives, until Ctrl-C. A block is returned to
/// the kernel after its call.
pub fn receive(interface: &str, shape: Shape, mut each: impl FnMut(Block)) -> io::Result<()> {
    let Shape { block, blocks, timeout_ms } = shape;
    let ring = |fd| {
        let set = |option, value: *const libc::c_void, size| {
            // SAFETY: a plain system call with a complete structure.
            check(unsafe { libc::setsockopt(fd, libc::SOL_PACKET, option, value, size as libc::socklen_t) })
        };
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set(libc::PACKET_VERSION, (&raw const version).cast(), size_of_val(&version))?;
        let request = libc::tpacket_req3 {
            tp_block_size: block as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: 2048,
            tp_frame_nr: (block / 2048 * blocks) as u32,
            tp_retire_blk_tov: timeout_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(libc::PACKET_RX_RING, (&raw const request).cast(), size_of_val(&request)).map(drop)
    };
    let fd = socket(interface, libc::ETH_P_ALL as u16, ring)?;
    stop_on_interrupt();
    // SAFETY: the ring is mapped once and never unmapped; the kernel hands blocks over by their status word.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let ring = libc::mmap(std::ptr::null_mut(), block * blocks, access, libc::MAP_SHARED, fd, 0);
        if ring == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        for number in (0..blocks).cycle() {
            let start = ring.cast::<u8>().add(number * block);
            let status = &*start.add(8).cast::<AtomicU32>();
            while status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                if is_stopped() {
                    return Ok(());
                }
                wait(fd);
            }
            let word = |at: usize| start.add(at).cast::<u32>().read_unaligned();
            each(Block { start, left: word(12), at: word(16) as usize });
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
    }
    Ok(())
}

/// The frames of a block.
pub struct Block {
    start: *mut u8,
    left: u32,
    at: usize,
}

/// A frame: its bytes, and its length on the wire.
pub struct Frame {
    pub bytes: *mut u8,
    pub len: usize,
    pub wire_len: u32,
}

impl Frame {
    pub fn read(&self) -> &[u8] {
        // SAFETY: the kernel has written the frame, which is this process's until its block is returned, and
        // a frame is passed only to a call that ends before that.
        unsafe { std::slice::from_raw_parts(self.bytes, self.len) }
    }
}

impl Iterator for Block {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        self.left = self.left.checked_sub(1)?;
        // SAFETY: the kernel has written the header of the frame, inside the block.
        unsafe {
            let frame = self.start.add(self.at);
            let word = |at: usize| frame.add(at).cast::<u32>().read_unaligned();
            let mac = usize::from(frame.add(24).cast::<u16>().read_unaligned());
            self.at += word(0) as usize;
            Some(Frame { bytes: frame.add(mac), len: word(12) as usize, wire_len: word(16) })
        }
    }
}
