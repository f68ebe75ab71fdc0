//! The search, generic over vectors of 16 bytes.

use super::{Scan, WIDTH};

pub(super) const LANES: usize = 16;

pub(super) trait Vector: Copy {
    fn load(bytes: &[u8; LANES]) -> Self;
    /// Returns, for each lane, the byte of the table with that number; lanes are below 16.
    fn look_up(self, table: Self) -> Self;
    fn low_half(self) -> Self;
    fn high_half(self) -> Self;
    fn and(self, other: Self) -> Self;
    /// Returns a bit for each lane that is not 0.
    fn nonzero(self) -> u32;
}

/// The tables of [`Scan`], loaded.
#[derive(Clone, Copy)]
struct Tables<V> {
    low: [V; WIDTH],
    high: [V; WIDTH],
}

// All of this is inlined into one function, which alone may use the processor's vectors: no closures.

#[inline(always)]
fn place<V: Vector>(tables: &Tables<V>, bytes: &[u8; LANES + WIDTH - 1], place: usize) -> V {
    let mut lanes = [0; LANES];
    lanes.copy_from_slice(&bytes[place..place + LANES]);
    let lanes = V::load(&lanes);
    lanes.low_half().look_up(tables.low[place]).and(lanes.high_half().look_up(tables.high[place]))
}

/// Returns a bit for each of the positions from `start` on where all bytes fit, or `None` if the payload ends
/// before the last of them.
#[inline(always)]
fn look<V: Vector>(tables: &Tables<V>, payload: &[u8], start: usize) -> Option<u32> {
    let bytes = payload.get(start..)?.first_chunk()?;
    Some(place(tables, bytes, 0).and(place(tables, bytes, 1)).and(place(tables, bytes, 2)).nonzero())
}

impl<V: Vector> Tables<V> {
    #[inline(always)]
    fn load(scan: &Scan) -> Self {
        let [a, b, c] = &scan.low;
        let [d, e, f] = &scan.high;
        Self { low: [V::load(a), V::load(b), V::load(c)], high: [V::load(d), V::load(e), V::load(f)] }
    }
}

#[inline(always)]
pub(super) fn places<V: Vector>(scan: &Scan, payload: &[u8], from: usize) -> Option<u32> {
    look(&Tables::<V>::load(scan), payload, from)
}

#[inline(always)]
pub(super) fn find<V: Vector>(scan: &Scan, payload: &[u8], from: usize) -> usize {
    let tables = Tables::<V>::load(scan);
    let mut start = from;
    while let Some(found) = look(&tables, payload, start) {
        if found != 0 {
            return start + found.trailing_zeros() as usize;
        }
        start += LANES;
    }
    // The rest is less than a vector: go back, and ignore positions that were already examined.
    let Some(back) = payload.len().checked_sub(LANES + WIDTH - 1) else { return scan.slowly(payload, start) };
    if start >= payload.len() {
        return payload.len();
    }
    let found = look(&tables, payload, back).unwrap_or(0).checked_shr((start - back) as u32).unwrap_or(0);
    if found != 0 {
        start + found.trailing_zeros() as usize
    } else {
        (payload.len() - (WIDTH - 1)).max(start)
    }
}
