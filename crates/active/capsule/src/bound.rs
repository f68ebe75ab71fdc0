//! What a capsule may still spend, in the whole network.

use std::fmt;

/// The numbers of a bound, as they stand in a datagram or a configuration. They allow nothing by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The longest chain of nodes from here on.
    pub hops: u8,
    /// Instructions, together with the weights of calls of the node.
    pub instructions: u64,
    /// Bytes of datagrams.
    pub bytes: u64,
    /// Datagrams.
    pub copies: u32,
}

impl Limits {
    /// Returns the smaller of each number.
    #[must_use]
    pub fn meet(self, other: Self) -> Self {
        Self {
            hops: self.hops.min(other.hops),
            instructions: self.instructions.min(other.instructions),
            bytes: self.bytes.min(other.bytes),
            copies: self.copies.min(other.copies),
        }
    }
}

/// The right to spend. It is neither copied nor enlarged: what a child has, its parent has no more.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Bound {
    left: Limits,
}

/// Thousandths of what is left, from 1 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts(u16);

/// A part of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Hops,
    Instructions,
    Bytes,
    Copies,
}

/// The part of a bound that does not suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the capsule's bound has {left} {resource} left, and {needed} are needed: begin it with more")]
pub struct Exhausted {
    pub resource: Resource,
    pub needed: u64,
    pub left: u64,
}

impl Bound {
    /// Makes a bound of limits that the caller answers for: of a capsule that begins here, or that
    /// came with an authenticator and is taken once.
    pub fn begin(limits: Limits) -> Self {
        Self { left: limits }
    }

    /// Returns what is left.
    #[must_use]
    pub fn left(&self) -> Limits {
        self.left
    }

    /// Spends instructions.
    ///
    /// # Errors
    ///
    /// Returns an error, and spends nothing, if fewer are left.
    pub fn run(&mut self, instructions: u64) -> Result<(), Exhausted> {
        self.left.instructions = take(Resource::Instructions, self.left.instructions, instructions)?;
        Ok(())
    }

    /// Spends a datagram of `length` bytes that stays between this node and the next: a request for code, or
    /// its answer.
    ///
    /// # Errors
    ///
    /// Returns an error, and spends nothing, if less is left.
    pub fn exchange(&mut self, length: usize) -> Result<(), Exhausted> {
        let copies = take(Resource::Copies, self.left.copies, 1)?;
        self.left.bytes = take(Resource::Bytes, self.left.bytes, length as u64)?;
        self.left.copies = copies;
        Ok(())
    }

    /// Sets a datagram of `length` bytes aside, which somebody else sends for this capsule.
    ///
    /// # Errors
    ///
    /// Returns an error, and sets nothing aside, if less is left.
    pub fn reserve(&mut self, length: usize) -> Result<Self, Exhausted> {
        self.exchange(length)?;
        Ok(Self { left: Limits { bytes: length as u64, copies: 1, ..Limits::default() } })
    }

    /// Takes back what is left of a part that was set aside.
    pub fn take_back(&mut self, rest: Self) {
        // Of one capsule, these sums are at most what its bound was.
        self.left.bytes = self.left.bytes.saturating_add(rest.left.bytes);
        self.left.copies = self.left.copies.saturating_add(rest.left.copies);
        self.left.instructions = self.left.instructions.saturating_add(rest.left.instructions);
    }

    /// Spends one copy of `length` bytes, and gives it `parts` of what is left then.
    ///
    /// # Errors
    ///
    /// Returns an error, and spends nothing, if the copy itself does not fit.
    pub fn split(&mut self, parts: Parts, length: usize) -> Result<Self, Exhausted> {
        let hops = take(Resource::Hops, self.left.hops, 1)?;
        self.exchange(length)?;
        let part = |whole: u64| {
            let share = u128::from(whole) * u128::from(parts.0) / u128::from(Parts::ALL.0);
            u64::try_from(share).unwrap_or(whole).min(whole)
        };
        let copies = u32::try_from(part(self.left.copies.into())).unwrap_or(0);
        let share =
            Limits { hops, instructions: part(self.left.instructions), bytes: part(self.left.bytes), copies };
        self.left.instructions -= share.instructions;
        self.left.bytes -= share.bytes;
        self.left.copies -= share.copies;
        Ok(Self { left: share })
    }
}

/// Returns what is left of a number.
fn take<N: Copy + Into<u64> + TryFrom<u64>>(
    resource: Resource,
    left: N,
    needed: u64,
) -> Result<N, Exhausted> {
    let rest = left.into().checked_sub(needed).and_then(|rest| N::try_from(rest).ok());
    rest.ok_or(Exhausted { resource, needed, left: left.into() })
}

impl Parts {
    /// All that is left.
    pub const ALL: Self = Self(1000);

    /// Returns the parts, the nearest that there are.
    #[must_use]
    pub fn thousandths(number: i64) -> Self {
        Self(u16::try_from(number.clamp(1, 1000)).unwrap_or(1))
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hops => "hops",
            Self::Instructions => "instructions",
            Self::Bytes => "bytes",
            Self::Copies => "copies",
        })
    }
}
