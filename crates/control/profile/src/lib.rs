//! Rewrites a module so that it counts its execution: instructions, and loads and stores by the memory that
//! they reach. This is for the study of Bunga and Wolf (*A Characterization of High-Performance Network
//! Monitoring Systems and Workloads*, Table I and Fig. 1) with any module.
//!
//! Counts are exact and the same on every machine. They are of WebAssembly: the processor executes other
//! instructions for it.
//!
//! | file | what it does |
//! | --- | --- |
//! | `instrument` | the sections and functions of a module with counters |
//! | `access` | the code that counts one load or store |
#![forbid(unsafe_code)]

mod access;
mod instrument;

pub use instrument::{ACCESSES, InstrumentError, Instrumented, Place, instrument, run_offsets};

use flame_abi::{Descriptor, MAX_BLOCK_PACKETS, layout};
use std::ops::{AddAssign, Sub};

/// The memory that a load or store reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Region {
    /// The bytes of packets, in the first block of the view.
    Packet,
    /// What the host states of packets (descriptors, batch headers), parameters and messages.
    Host,
    /// The module's own memory, and areas that it shares.
    Own,
}

impl Region {
    pub const ALL: [Self; 3] = [Self::Packet, Self::Host, Self::Own];

    /// Returns the addresses of the region, if they are in one piece: all others are the own memory.
    fn range(self) -> Option<(u32, u32)> {
        let packets = layout::VIEW + (MAX_BLOCK_PACKETS * Descriptor::SIZE) as u32;
        match self {
            Self::Packet => Some((packets, layout::VIEW + layout::VIEW_BYTES)),
            Self::Host => Some((layout::WINDOW, packets)),
            Self::Own => None,
        }
    }
}

/// Counts of what was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions of WebAssembly. Each counts 1, as entering a function does; those that only give code its
    /// structure count 0 ([`flame_verify::cost::weight`]).
    pub instructions: u64,
    /// Loads by region ([`Region::ALL`]), in words of 32 bits: a narrower one counts 1, one of 64 bits 2, one
    /// of 128 bits 4, and a copy of n bytes n / 4, rounded up.
    pub loads: [u64; 3],
    /// Stores, likewise.
    pub stores: [u64; 3],
}

impl Counts {
    /// Returns the loads and stores that reach a region.
    pub fn accesses(&self, region: Region) -> u64 {
        let i = region as usize;
        self.loads[i] + self.stores[i]
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let each = |a: [u64; 3], b: [u64; 3]| std::array::from_fn(|i| a[i] - b[i]);
        Self {
            instructions: self.instructions - before.instructions,
            loads: each(self.loads, before.loads),
            stores: each(self.stores, before.stores),
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.instructions += more.instructions;
        for i in 0..3 {
            self.loads[i] += more.loads[i];
            self.stores[i] += more.stores[i];
        }
    }
}
