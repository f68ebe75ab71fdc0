//! Pieces of a stream, put together.

/// The largest number of pieces with gaps between them.
const RUNS: usize = 8;

/// The first `N` bytes of a stream, whose pieces come in any order and may overlap: TCP segments, or frames
/// of QUIC. Bytes up to the first gap do not change any more.
///
/// ```
/// let mut hello = flame_module::Gather::<16>::default();
/// hello.add(4, b"o, all");
/// assert_eq!(hello.prefix(), b"");
/// hello.add(0, b"hell");
/// assert_eq!(hello.prefix(), b"hello, all");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Gather<const N: usize> {
    bytes: [u8; N],
    /// Start and end of each piece. They neither overlap nor touch.
    runs: [(u32, u32); RUNS],
    used: usize,
}

impl<const N: usize> Default for Gather<N> {
    fn default() -> Self {
        Self { bytes: [0; N], runs: [(0, 0); RUNS], used: 0 }
    }
}

impl<const N: usize> Gather<N> {
    /// Forgets all pieces.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Adds the piece at an offset of the stream. Bytes beyond `N` are left out. Returns false, and leaves
    /// the piece out, if there would be more than eight gaps.
    pub fn add(&mut self, offset: usize, piece: &[u8]) -> bool {
        let start = offset.min(N);
        let piece = &piece[..piece.len().min(N - start)];
        if piece.is_empty() {
            return true;
        }
        let whole = self.end();
        let mut new = (start as u32, (start + piece.len()) as u32);
        let (mut kept, mut count) = ([(0, 0); RUNS], 0);
        for at in 0..RUNS {
            let run = self.runs[at];
            if at >= self.used {
                break;
            }
            if run.1 < new.0 || run.0 > new.1 {
                kept[count] = run;
                count += 1;
            } else {
                new = (run.0.min(new.0), run.1.max(new.1));
            }
        }
        let Some(place) = kept.get_mut(count) else { return false };
        *place = new;
        (self.runs, self.used) = (kept, count + 1);
        let known = whole.saturating_sub(start).min(piece.len());
        self.bytes[start + known..start + piece.len()].copy_from_slice(&piece[known..]);
        true
    }

    fn end(&self) -> usize {
        let mut end = 0;
        for (at, run) in self.runs.iter().enumerate() {
            if at < self.used && run.0 == 0 {
                end = run.1 as usize;
            }
        }
        end.min(N)
    }

    /// Returns the bytes up to the first gap.
    pub fn prefix(&self) -> &[u8] {
        &self.bytes[..self.end()]
    }
}

/// The number of marks of [`Partials`]. Flows share one by their hash.
const MARKS: usize = 4096;

/// A beginning that is kept in one of [`Partials`]; the default value refers to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partial {
    /// The place, and the number under which it was taken: 0 refers to nothing.
    place: u32,
    taken: u32,
}

/// A fixed number of [`Gather`]s for flows, each of which needs one for a short time. If all are taken, the
/// oldest is taken again, and its flow finds nothing.
///
/// ```
/// use flame_module::{Partial, Partials};
/// let mut partials = Partials::<1024>::new(2);
/// let (hash, mut kept) = (0x1234, Partial::default());
/// if partials.get(kept).is_none() {
///     kept = partials.take(hash);
/// }
/// assert!(partials.may_have(hash));
/// if let Some(gather) = partials.get(kept) {
///     gather.add(0, b"GET /");
/// }
/// partials.free(kept);
/// assert!(partials.get(kept).is_none() && !partials.may_have(hash));
/// ```
pub struct Partials<const N: usize> {
    places: Box<[Place<N>]>,
    last: u32,
    /// The number of taken places of the flows of each hash.
    marks: Box<[u16; MARKS]>,
    /// The number of places that were taken again before they were freed.
    pub lost: u64,
}

#[derive(Clone, Copy)]
struct Place<const N: usize> {
    taken: u32,
    hash: u32,
    gather: Gather<N>,
}

impl<const N: usize> Partials<N> {
    /// Creates `count` places of `N` bytes each, at least one.
    pub fn new(count: usize) -> Self {
        let place = Place { taken: 0, hash: 0, gather: Gather::default() };
        Self { places: vec![place; count.max(1)].into(), last: 0, marks: Box::new([0; MARKS]), lost: 0 }
    }

    /// Takes a place, which is empty, for a flow.
    pub fn take(&mut self, hash: u32) -> Partial {
        self.last = self.last.wrapping_add(1).max(1);
        let at = self.last as usize % self.places.len();
        let partial = Partial { place: at as u32, taken: self.last };
        let place = &mut self.places[at];
        if place.taken != 0 {
            self.lost += 1;
            let mark = &mut self.marks[place.hash as usize % MARKS];
            *mark = mark.saturating_sub(1);
        }
        (place.taken, place.hash) = (partial.taken, hash);
        place.gather.clear();
        let mark = &mut self.marks[hash as usize % MARKS];
        *mark = mark.saturating_add(1);
        partial
    }

    /// Returns what was kept, or `None` if it was freed or another flow has the place.
    pub fn get(&mut self, partial: Partial) -> Option<&mut Gather<N>> {
        let place = self.places.get_mut(partial.place as usize)?;
        (partial.taken != 0 && place.taken == partial.taken).then_some(&mut place.gather)
    }

    /// Frees a place, unless it was freed or another flow has it.
    pub fn free(&mut self, partial: Partial) {
        if self.get(partial).is_some() {
            let place = &mut self.places[partial.place as usize];
            place.taken = 0;
            let mark = &mut self.marks[place.hash as usize % MARKS];
            *mark = mark.saturating_sub(1);
        }
    }

    /// Returns whether a flow with this hash may have a place. If not, it has none: then a packet need not be
    /// looked up.
    #[inline]
    pub fn may_have(&self, hash: u32) -> bool {
        self.marks[hash as usize % MARKS] != 0
    }

    /// Returns the number of places that are taken.
    pub fn taken(&self) -> usize {
        self.places.iter().filter(|place| place.taken != 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_order_of_pieces_gives_the_stream(
            cuts in proptest::collection::vec(1usize..40, 1..9),
            order in proptest::collection::vec(any::<usize>(), 16),
            overlap in 0usize..10,
        ) {
            let stream: Vec<u8> = (0..cuts.iter().sum()).map(|n: usize| n as u8).collect();
            let mut pieces = Vec::new();
            let mut at = 0;
            for cut in &cuts {
                let start = at.max(overlap) - overlap;
                pieces.push((start, &stream[start..at + cut]));
                at += cut;
            }
            for n in (1..pieces.len()).rev() {
                pieces.swap(n, order[n] % (n + 1));
            }
            let mut gather = Gather::<256>::default();
            for (n, (offset, piece)) in pieces.iter().enumerate() {
                prop_assert!(gather.add(*offset, piece), "piece {n}");
                prop_assert!(stream.starts_with(gather.prefix()) || stream.len() > 256);
            }
            prop_assert_eq!(gather.prefix(), &stream[..stream.len().min(256)]);
        }
    }

    #[test]
    fn the_first_place_is_taken_again() {
        let mut partials = Partials::<4>::new(2);
        let [a, b] = [7, 8].map(|hash| partials.take(hash));
        partials.get(a).expect("is kept").add(0, b"a");
        let c = partials.take(9);
        assert_eq!((partials.get(a).is_none(), partials.get(b).is_some(), partials.lost), (true, true, 1));
        assert_eq!(partials.get(c).expect("is kept").prefix(), b"", "nothing of the flow before");
        assert!(!partials.may_have(7) && partials.may_have(8) && partials.may_have(9));
        partials.free(a);
        assert_eq!((partials.taken(), partials.get(Partial::default()).is_none()), (2, true));
    }

    #[test]
    fn limits_are_kept() {
        let mut gather = Gather::<8>::default();
        assert!(gather.add(6, b"ghij") && gather.add(usize::MAX, b"x") && gather.add(0, b""));
        assert!(gather.add(0, b"abcdef"));
        assert_eq!(gather.prefix(), b"abcdefgh");
        gather.add(0, b"XXXXXXXX");
        assert_eq!(gather.prefix(), b"abcdefgh", "the first copy counts");
        gather.clear();
        assert_eq!(gather.prefix(), b"");
        let mut gather = Gather::<64>::default();
        let added = (1..20).filter(|n| gather.add(n * 2, b"x")).count();
        assert_eq!(added, 8);
        assert!(gather.add(0, &[b'y'; 40]));
        assert_eq!(gather.prefix().len(), 40);
    }
}
