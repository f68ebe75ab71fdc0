//! Buffers that are used again once all holders have dropped them. New memory would be zeroed, and in no
//! cache.

use bytes::{Bytes, BytesMut};
use flame_base::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The maximum number of buffers that are kept: as many as several workers have in their queue.
const MOST: usize = 80;

/// The size in bytes of a large buffer. Few packets need one, so it does not serve again.
pub const LARGE: usize = 1 << 20;

/// Buffers for reuse, the oldest first.
#[derive(Default)]
pub struct Spares {
    all: Mutex<VecDeque<Bytes>>,
    /// The number of bytes of large buffers that somebody holds.
    large: Arc<AtomicUsize>,
}

/// A large buffer that was filled.
struct Large {
    buffer: BytesMut,
    counted: usize,
    all: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        self.all.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

impl Spares {
    /// Returns the number of bytes of large buffers that somebody holds.
    pub fn large(&self) -> usize {
        self.large.load(Ordering::Relaxed)
    }

    /// Returns a buffer as it is filled, to be held by many. A large one is counted until all holders have
    /// dropped it.
    pub fn freeze(&self, buffer: BytesMut) -> Bytes {
        let counted = buffer.capacity();
        if counted < LARGE {
            return buffer.freeze();
        }
        self.large.fetch_add(counted, Ordering::Relaxed);
        Bytes::from_owner(Large { buffer, counted, all: self.large.clone() })
    }

    /// Returns a buffer of at least `wanted` bytes.
    pub fn take(&self, wanted: usize) -> BytesMut {
        let mut all = lock(&self.all);
        // The buffer that was used last: its memory is the most likely to be in a cache.
        let free = all.iter().rposition(Bytes::is_unique).and_then(|at| all.remove(at));
        match free.map(Bytes::try_into_mut) {
            Some(Ok(old)) if old.len() >= wanted => return old,
            Some(Err(held)) => all.push_front(held),
            Some(Ok(_)) | None => {}
        }
        drop(all);
        BytesMut::zeroed(wanted)
    }

    /// Keeps a whole buffer that is not large, of which others may hold parts.
    pub fn give(&self, whole: Bytes) {
        let mut all = lock(&self.all);
        all.extend((!whole.is_empty() && whole.len() < LARGE).then_some(whole));
        if all.len() > MOST {
            all.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Buffers that are held are not written to, and serve again afterwards.
    #[test]
    fn buffers_are_used_again_once_nobody_holds_them() {
        for held in [0, 1, 7, MOST - 2, MOST + 9] {
            let (spares, mut places) = (Spares::default(), BTreeSet::new());
            let mut parts = VecDeque::new();
            for n in 0..=255 {
                let mut buffer = spares.take(100);
                buffer.fill(n);
                let whole = buffer.freeze();
                places.insert(whole.as_ptr());
                parts.push_back((n, whole.slice(n as usize % 50..60)));
                spares.give(whole);
                while parts.len() > held {
                    let (n, part) = parts.pop_front().unwrap();
                    assert!(part.iter().all(|byte| *byte == n), "{held} held");
                }
            }
            if held < MOST {
                assert!(places.len() <= held + 3, "{held} held: {} buffers", places.len());
            }
        }
        assert!(Spares::default().take(7).len() >= 7);
    }

    /// A capture of long packets, or of long blocks between packets, leaves none of their memory behind.
    #[test]
    fn large_buffers_count_until_nobody_holds_them() {
        let spares = Spares::default();
        let mut parts = Vec::new();
        for n in 1..=3 {
            let whole = spares.freeze(spares.take(n * LARGE));
            parts.push(whole.slice(7..9));
            spares.give(whole);
        }
        assert_eq!(spares.large(), 6 * LARGE);
        parts.remove(1);
        assert_eq!(spares.large(), 4 * LARGE);
        parts.clear();
        assert_eq!((spares.large(), lock(&spares.all).len()), (0, 0));
        let small = spares.freeze(spares.take(LARGE - 1));
        spares.give(small.clone());
        assert_eq!((spares.large(), lock(&spares.all).len()), (0, 1));
    }
}
