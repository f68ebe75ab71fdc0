//! The weight of an instruction: one, or its time.

use crate::Class;
use flame_verify::Poly;
use flame_verify::cost::{BULK, BULK_SHIFT, COPY, ENTRY, GROW, weight};
use wasmparser::Operator;

/// The times of instructions on a machine, in picoseconds.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Costs {
    /// The times by class, in the order of [`Class::ALL`].
    pub classes: [u64; Class::ALL.len()],
    /// The times of loading a line from a working set of this many bytes: pairs, in ascending order.
    pub latency: Vec<(u64, u64)>,
    /// The number of bytes that the module may own.
    pub memory: u64,
    /// The time of calling an entry.
    pub dispatch: u64,
}

impl Costs {
    /// Returns the time for the smallest measured working set that is at least this large.
    fn line(&self, bytes: u64) -> u64 {
        let fits = self.latency.iter().find(|(size, _)| *size >= bytes.min(self.memory));
        let near = self.latency.first().map_or(0, |(_, ps)| *ps);
        // Every load already includes a hit in the first cache.
        fits.or(self.latency.last()).map_or(0, |(_, ps)| ps.saturating_sub(near))
    }

    /// Returns the time of one instruction of a class, in picoseconds.
    pub fn of(&self, class: Class) -> u64 {
        Class::ALL.iter().position(|c| *c == class).map_or(0, |at| self.classes[at])
    }
}

#[derive(Clone, Copy)]
pub enum Weights<'c> {
    Instructions,
    Time(&'c Costs),
}

/// The location of a line that was not touched before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// A packet, which was just written.
    Packet,
    /// A working set of this many bytes in the module's own memory.
    Within(u64),
}

/// The size in bytes of a view block of packets of usual length, which was just written: it must fit in a
/// cache.
const BLOCK: u64 = 512 << 10;

impl Weights<'_> {
    pub fn of(self, operator: &Operator<'_>) -> u64 {
        match self {
            Self::Instructions => weight(operator),
            Self::Time(costs) => costs.of(Class::of(operator)),
        }
    }

    /// Returns the weight of a call by the host.
    pub fn dispatch(self) -> Poly {
        match self {
            Self::Instructions => Poly::ZERO,
            Self::Time(costs) => Poly::constant(costs.dispatch),
        }
    }

    /// Returns the weight of the `if` that begins a frame.
    pub fn branch(self) -> Poly {
        Poly::constant(match self {
            Self::Instructions => 1,
            Self::Time(costs) => costs.of(Class::Branch),
        })
    }

    /// Returns the weight of a function's entry.
    pub fn entry(self) -> Poly {
        match self {
            Self::Instructions => Poly::constant(ENTRY),
            Self::Time(_) => Poly::ZERO,
        }
    }

    /// Returns the weight of a direct call, without its callee.
    pub fn call(self) -> Poly {
        Poly::constant(match self {
            Self::Instructions => 1,
            Self::Time(costs) => costs.of(Class::Call),
        })
    }

    pub fn line(self, line: Line) -> Poly {
        Poly::constant(match (self, line) {
            (Self::Instructions, _) => 0,
            (Self::Time(costs), Line::Packet) => costs.line(BLOCK),
            (Self::Time(costs), Line::Within(bytes)) => costs.line(bytes),
        })
    }

    /// Returns the weight of moving this many bytes by one instruction.
    pub fn bulk(self, bytes: Poly, is_copy: bool) -> Poly {
        match self {
            Self::Instructions if is_copy => {
                bytes.times(Poly::constant(COPY.1)).over(COPY.2).plus(Poly::constant(COPY.0))
            }
            Self::Instructions => bytes.over(1 << BULK_SHIFT).plus(Poly::constant(BULK)),
            Self::Time(costs) => {
                let some = Poly::constant(costs.of(Class::Bulk));
                bytes.times(some).over(1 << BULK_SHIFT).plus(Poly::constant(20 * costs.of(Class::Integer)))
            }
        }
    }

    pub fn grow(self) -> Poly {
        match self {
            Self::Instructions => Poly::constant(GROW),
            Self::Time(_) => Poly::ZERO,
        }
    }
}
