//! A sender of UDP packets at a given rate, as fast as `sendmmsg` on a packet socket is.

#![allow(unsafe_code)] // It talks to the kernel.

use crate::ring;
use std::io;
use std::time::{Duration, Instant};

/// The frames of one call.
const BURST: usize = 64;
/// The number of flows.
const FLOWS: u8 = 64;

/// The messages of one call of `sendmmsg`, each of one frame.
pub struct Burst {
    vectors: Box<[libc::iovec; BURST]>,
    messages: Box<[libc::mmsghdr; BURST]>,
}

impl Burst {
    pub fn new() -> Self {
        // SAFETY: all-zero is a valid value of both plain structures.
        let (mut vectors, mut messages): (Box<[libc::iovec; BURST]>, Box<[libc::mmsghdr; BURST]>) =
            unsafe { (Box::new(std::mem::zeroed()), Box::new(std::mem::zeroed())) };
        for (message, vector) in messages.iter_mut().zip(vectors.iter_mut()) {
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (vector, 1);
        }
        Self { vectors, messages }
    }

    /// Sends the next frames, at most a burst, and returns their number. A frame that the interface refuses
    /// is skipped.
    pub fn send(&mut self, socket: i32, frames: &mut dyn Iterator<Item = (*mut u8, usize)>) -> usize {
        let mut count = 0;
        for (vector, (bytes, len)) in self.vectors.iter_mut().zip(frames) {
            *vector = libc::iovec { iov_base: bytes.cast(), iov_len: len };
            count += 1;
        }
        let mut sent = 0;
        while sent < count {
            let rest = &mut self.messages[sent..count];
            // SAFETY: each message has one vector, whose frame the caller keeps until this returns.
            let n = unsafe { libc::sendmmsg(socket, rest.as_mut_ptr(), rest.len() as u32, 0) };
            sent += n.max(1) as usize;
        }
        count
    }
}

/// Returns a UDP packet of a flow in a frame of `length` bytes.
pub fn frame(flow: u8, length: usize) -> Vec<u8> {
    let ports = [u16::from_be_bytes([4, flow]), 53];
    datagram([10, 0, 0, 1], [10, 0, 0, 2], ports, &vec![0; length.max(60) - 42])
}

/// Returns a frame with a UDP datagram.
pub fn datagram(from: [u8; 4], to: [u8; 4], ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 42];
    let of_ip = (28 + payload.len()) as u16;
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17]);
    frame[16..18].copy_from_slice(&of_ip.to_be_bytes());
    frame[26..34].copy_from_slice(&[from, to].concat());
    let words = frame[14..34].as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let sum: u32 = words.sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    // Without a checksum, which UDP permits.
    frame[34..38].copy_from_slice(&ports.map(u16::to_be_bytes).concat());
    frame[38..40].copy_from_slice(&(of_ip - 20).to_be_bytes());
    frame.extend(payload);
    frame
}

/// Sends this many packets in frames of `length` bytes, `rate` a second or, for 0, as many as possible.
/// Prints the number of packets and the seconds that they took.
pub fn send(interface: &str, length: usize, packets: u64, rate: f64) -> io::Result<()> {
    let socket = ring::socket(interface, 0, |_| Ok(()))?;
    let mut frames: Vec<Vec<u8>> = (0..FLOWS).map(|flow| frame(flow, length)).collect();
    let mut next =
        frames.iter_mut().map(|f| (f.as_mut_ptr(), f.len())).collect::<Vec<_>>().into_iter().cycle();
    let (mut burst, mut sent, start) = (Burst::new(), 0, Instant::now());
    while sent < packets {
        let due = if rate > 0.0 { (start.elapsed().as_secs_f64() * rate) as u64 } else { packets };
        let count = due.min(packets) - sent;
        if count == 0 {
            std::thread::sleep(Duration::from_micros(50));
            continue;
        }
        sent += burst.send(socket, &mut next.by_ref().take(count as usize)) as u64;
    }
    println!("{sent} {}", start.elapsed().as_secs_f64());
    Ok(())
}
