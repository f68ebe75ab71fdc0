//! Buffers that are used again once nobody holds them. New memory would be zeroed, and in no cache.

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of buffers that are kept: as many as several workers have in their queue.
const MOST: usize = 80;

/// Buffers for reuse, the oldest first.
#[derive(Default)]
pub struct Spares(Mutex<VecDeque<Bytes>>);

impl Spares {
    fn all(&self) -> MutexGuard<'_, VecDeque<Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a buffer of at least `wanted` bytes.
    pub fn take(&self, wanted: usize) -> BytesMut {
        let mut all = self.all();
        match all.pop_front().map(Bytes::try_into_mut) {
            Some(Ok(old)) if old.len() >= wanted => return old,
            Some(Err(held)) => all.push_front(held),
            Some(Ok(_)) | None => {}
        }
        drop(all);
        BytesMut::zeroed(wanted)
    }

    /// Keeps a whole buffer, of which others may hold parts.
    pub fn give(&self, whole: Bytes) {
        let mut all = self.all();
        all.extend((!whole.is_empty()).then_some(whole));
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
}
