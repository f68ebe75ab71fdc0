use super::{Out, RESERVE};
use crate::record::Record;

/// Room for rows in the current area, see [`Out::reserve`].
pub struct Reserved<'a> {
    out: &'a mut Out,
    /// The end of the room in the area.
    end: usize,
}

impl Out {
    /// Reserves room for rows: begins the next area if the current one has fewer than `bytes` bytes left. A
    /// row that is written with [`Reserved::write`] does not begin an area, so the bound of a packet that
    /// writes several rows contains that cost once, or not at all if the room is reserved for the batch. At
    /// most 128 KiB less a few bytes are sure to fit.
    ///
    /// ```
    /// # use flame_module::*;
    /// # mod tables { flame_module::manifest!("src/example.toml"); }
    /// # use tables::{AllKinds, Total, TotalEnd};
    /// fn batch(batch: &Batch, out: &mut Out) {
    ///     // At most two rows of `all_kinds` for each packet.
    ///     let mut out = out.reserve(batch.len() * 2 * AllKinds::SPACE);
    /// #   let row: AllKinds = unimplemented!();
    ///     for packet in batch.packets() {
    ///         // …
    ///         out.write(&row);
    ///     }
    /// }
    /// ```
    #[inline]
    pub fn reserve(&mut self, bytes: usize) -> Reserved<'_> {
        let is_too_small = self.len.saturating_add(bytes).saturating_add(RESERVE) > self.area.len();
        // The next one may be smaller.
        if is_too_small && self.len > 0 {
            self.next_area();
        }
        let end = self.len.saturating_add(bytes).min(self.area.len().saturating_sub(RESERVE));
        Reserved { out: self, end }
    }
}

impl Reserved<'_> {
    /// Writes a row like [`Out::write`]. A row that the room does not hold is lost, and counted.
    #[inline]
    pub fn write<'a, R: Record<'a>>(&mut self, row: &R) -> bool {
        let size = row.size();
        if size > R::MAX_SIZE || self.out.len + super::FRAME + size > self.end {
            self.out.lose(R::TABLE);
            return false;
        }
        self.out.put(row, size);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Number, frames, numbers};
    use super::*;

    #[test]
    fn reserved_rows_lie_in_one_area() {
        // There is room for three rows and the note of lost records.
        let mut out = Out::with_area(3 * Number::SPACE + RESERVE);
        for n in 0..2 {
            assert!(out.write(&Number(n)));
        }
        let mut two = out.reserve(2 * Number::SPACE);
        assert!(two.write(&Number(2)) && two.write(&Number(3)));
        assert!(!two.write(&Number(4)), "more than was reserved");
        assert_eq!(out.count, 1);
        assert!(out.reserve(Number::SPACE).write(&Number(5)));
        assert_eq!((out.count, out.lost), (1, 1));
        assert_eq!(numbers(&frames(&mut out)[..5]), [0, 1, 2, 3, 5]);
    }

    #[test]
    fn what_no_memory_can_be_reserved_for_is_counted() {
        let mut out = Out::with_area(3 * Number::SPACE + RESERVE);
        out.count = super::super::AREAS;
        let mut all = out.reserve(usize::MAX);
        let written = (0..5).filter(|n| all.write(&Number(*n))).count();
        assert_eq!((written, out.lost), (3, 2));
    }
}
