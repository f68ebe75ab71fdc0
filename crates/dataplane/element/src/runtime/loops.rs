//! The counts of passes through each `Loop`, which new packets inherit: a packet that an element makes
//! while it handles others has their largest counts. Otherwise a new packet could go round a cycle for ever
//! in place of the old one. Only sources and timers make packets that start
//! at 0.

use std::cell::Cell;

/// The number of `Loop` elements that a configuration may have.
pub const MAX_LOOPS: usize = 16;

/// The number of times that a packet passed each `Loop`.
pub type Loops = [u8; MAX_LOOPS];

thread_local! {
    /// The counts of packets that are made now.
    static BORN: Cell<Loops> = const { Cell::new([0; MAX_LOOPS]) };
}

/// Returns the counts of a packet that is made now.
pub fn inherited() -> Loops {
    BORN.get()
}

/// Returns the greatest of some packets' counts, at least `least`.
pub fn greatest<'a>(counts: impl IntoIterator<Item = &'a Loops>, least: Loops) -> Loops {
    let mut greatest = least;
    for counts in counts {
        greatest.iter_mut().zip(counts).for_each(|(most, n)| *most = (*most).max(*n));
    }
    greatest
}

/// Raises the counts of packets that are made from now on in this call, since it received packets with these.
pub fn received<'a>(counts: impl IntoIterator<Item = &'a Loops>) {
    BORN.set(greatest(counts, BORN.get()));
}

/// A call of an element, in which packets are made. The counts of the call around it return with its end.
pub struct Call(Loops);

impl Call {
    /// Begins a call that receives packets with these counts.
    pub fn with<'a>(counts: impl IntoIterator<Item = &'a Loops>) -> Self {
        Self(BORN.replace(greatest(counts, [0; MAX_LOOPS])))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        BORN.set(self.0);
    }
}
