//! What an instruction counts for: one, or the time that it takes.

use crate::Class;
use flame_verify::Poly;
use flame_verify::cost::{BULK, BULK_SHIFT, COPY, ENTRY, GROW, weight};
use wasmparser::Operator;

/// What a machine takes for instructions, in picoseconds.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Costs {
    /// By class, in the order of [`Class::ALL`].
    pub classes: [u64; Class::ALL.len()],
    /// Loading a line of memory out of so many bytes: pairs in order.
    pub latency: Vec<(u64, u64)>,
    /// Bytes that the module may own.
    pub memory: u64,
    /// Calling an entry.
    pub dispatch: u64,
}

impl Costs {
    /// Of the smallest working set that was measured and is at least so large.
    fn line(&self, bytes: u64) -> u64 {
        let fits = self.latency.iter().find(|(size, _)| *size >= bytes.min(self.memory));
        let near = self.latency.first().map_or(0, |(_, ps)| *ps);
        // A hit in the first cache is what a load costs anyhow.
        fits.or(self.latency.last()).map_or(0, |(_, ps)| ps.saturating_sub(near))
    }

    pub fn of(&self, class: Class) -> u64 {
        Class::ALL.iter().position(|c| *c == class).map_or(0, |at| self.classes[at])
    }
}

#[derive(Clone, Copy)]
pub enum Weights<'c> {
    Instructions,
    Time(&'c Costs),
}

/// Where a load reads that was not touched before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// In a packet, which was written a moment ago.
    Packet,
    /// In so many bytes of the module's own.
    Within(u64),
}

/// A view block of packets of usual length, which was just written: what a cache must hold.
const BLOCK: u64 = 512 << 10;

impl Weights<'_> {
    pub fn of(self, operator: &Operator<'_>) -> u64 {
        match self {
            Self::Instructions => weight(operator),
            Self::Time(costs) => costs.of(Class::of(operator)),
        }
    }

    /// Of a call by the host.
    pub fn dispatch(self) -> Poly {
        match self {
            Self::Instructions => Poly::ZERO,
            Self::Time(costs) => Poly::constant(costs.dispatch),
        }
    }

    /// Of the `if` that a frame begins with.
    pub fn branch(self) -> Poly {
        Poly::constant(match self {
            Self::Instructions => 1,
            Self::Time(costs) => costs.of(Class::Branch),
        })
    }

    /// Of calling a function: of its entry.
    pub fn entry(self) -> Poly {
        match self {
            Self::Instructions => Poly::constant(ENTRY),
            Self::Time(_) => Poly::ZERO,
        }
    }

    /// Of a direct call, apart from what it calls.
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

    /// Of moving so many bytes by one instruction.
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
