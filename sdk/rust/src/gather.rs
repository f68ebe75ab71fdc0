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
