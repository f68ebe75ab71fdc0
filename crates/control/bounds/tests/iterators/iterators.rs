//! Loops over ranges, arrays, slices and iterators, as authors write them.
#![no_std]
#![allow(unsafe_code)] // Slices from memory, as modules get them.

use core::slice::from_raw_parts;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(no_mangle)]
pub extern "C" fn range_of_constants(p: *const u8) -> u64 {
    let s = unsafe { from_raw_parts(p, 400) };
    let mut x = 0u64;
    for i in 12..268 {
        x = x.rotate_left(3) ^ s[i] as u64;
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn get_in_range(p: *const u8, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n) };
    let mut x = 0u64;
    for i in 12..268 {
        x = x.rotate_left(3) ^ s.get(i).copied().unwrap_or(0) as u64;
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn take(p: *const u16, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n) };
    let mut x = 0u64;
    for b in s.iter().take(256) {
        x = x.rotate_left(3) ^ *b as u64;
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn take_sum(p: *const u16, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n) };
    let mut x = 0u64;
    for b in s.iter().take(256) {
        x += (*b == 7) as u64;
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn slice_min(p: *const u32, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n) };
    let mut x = 0u64;
    for b in &s[..n.min(256)] {
        x = x.rotate_left(3) ^ *b as u64;
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn slice_min_sum(p: *const u32, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n) };
    let mut x = 0u64;
    for b in &s[..n.min(256)] {
        x += (*b == 7) as u64;
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn array(p: &mut [u32; 64], h: u32) {
    for b in p {
        *b = b.wrapping_add(h).rotate_left(3);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn array_max(p: &[u32; 64]) -> u32 {
    p.iter().copied().max().unwrap_or(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn bytes(p: *const u8, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n.min(1500)) };
    let mut x = 0u64;
    for b in s {
        x = x.wrapping_mul(31) ^ *b as u64;
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn bytes_sum(p: *const u8, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n.min(1500)) };
    let mut x = 0u64;
    for b in s {
        x += *b as u64;
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn chunks(p: *const u8, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n.min(1500)) };
    let mut x = 0u64;
    for b in s.chunks_exact(2) {
        x ^= (b[0] as u64) << (b[1] % 8);
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn chunks_any(p: *const u8, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n.min(1500)) };
    let mut x = 0u64;
    for b in s.chunks(7) {
        x = x.rotate_left(3) ^ b.len() as u64 ^ b[0] as u64;
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn enumerate_step(p: *const u8, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n.min(1500)) };
    let mut x = 0u64;
    for (i, b) in s.iter().enumerate().skip(3).step_by(7) {
        x ^= (i as u64) << (b % 8);
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn windows_rev(p: *const u8, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n.min(1500)) };
    let mut x = 0u64;
    for b in s.windows(2).rev() {
        x = x.rotate_left(1) ^ (b[0] ^ b[1]) as u64;
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn index_min(h: u32, n: usize) -> u64 {
    let mut x = 0u64;
    for i in 0..n.min(100) {
        x = x.rotate_left(5) ^ (i as u64 * h as u64);
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn zip(t: &[u32; 64], p: *const u8, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n.min(1500)) };
    t.iter().zip(s).filter(|(a, b)| **a == **b as u32).count() as u64
}

#[unsafe(no_mangle)]
pub extern "C" fn inclusive(h: u32) -> u64 {
    let mut x = 0u64;
    for i in 1..=h % 32 {
        x = x.rotate_left(5) ^ i as u64;
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn while_less(p: *const u8, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n.min(1500)) };
    let mut at = 0;
    let mut x = 0;
    while at < s.len() {
        x += s[at] as u64;
        at += 1 + (s[at] & 7) as usize;
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn position(p: *const u8, n: usize) -> usize {
    let s = unsafe { from_raw_parts(p, n.min(1500)) };
    s.iter().position(|b| *b == b'\n').unwrap_or(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn rev(p: *const u32, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n.min(300)) };
    let mut x = 0u64;
    for b in s.iter().rev() {
        x = x.rotate_left(3) ^ *b as u64;
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn skip_take(p: *const u32, n: usize, k: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n) };
    let mut x = 0u64;
    for b in s.iter().skip(k).take(16) {
        x = x.rotate_left(3) ^ *b as u64;
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn take_while(p: *const u8, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n.min(1500)) };
    s.iter().take_while(|b| **b != 0).map(|b| *b as u64).sum()
}

/// The form that `flame check` advises: a constant number of iterations, whatever the compiler makes of it.
#[unsafe(no_mangle)]
pub extern "C" fn advised(p: *const u32, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n) };
    let mut x = 0u64;
    for i in 0..256 {
        if let Some(b) = s.get(i) {
            x += u64::from(*b == 7);
        }
    }
    x
}

#[unsafe(no_mangle)]
pub extern "C" fn advised_for_bytes(p: *const u8, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n) };
    let mut x = 0u64;
    for i in 0..256 {
        if let Some(b) = s.get(i) {
            x = x.wrapping_mul(31) ^ u64::from(*b);
        }
    }
    x
}

/// A `break` in its place is a minimum to the compiler, and the loop is vectorised.
#[unsafe(no_mangle)]
pub extern "C" fn second_exit(p: *const u32, n: usize) -> u64 {
    let s = unsafe { from_raw_parts(p, n) };
    let mut x = 0u64;
    for i in 0..256 {
        let Some(b) = s.get(i) else { break };
        x += u64::from(*b == 7);
    }
    x
}
