//! The memory in which zstd finds what a frame repeats (RFC 8878, section 3.1.1.1), which the frame chooses.
//!
//! Files that overlap in time are open together, so their windows together are limited. Windows of up to
//! 8 MiB, which every decoder supports, do not count.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of bytes at the beginning of a file that state the window of its first frame.
pub const HEAD: usize = 18;
/// The largest window in bytes that does not count, as a power of two.
const LEAST_LOG: u32 = 23;
/// The largest window that is read, as a power of two: what `zstd -d` takes without an option.
const MOST_LOG: u32 = 27;
/// The maximum number of bytes of larger windows together.
const MOST: u64 = 512 << 20;

/// The windows of the files of one source.
#[derive(Clone, Default)]
pub struct Windows(Arc<AtomicU64>);

/// The window of one file, which counts as long as this lives.
pub struct Window {
    all: Windows,
    bytes: u64,
    /// The window as a power of two, rounded up. Later frames may have no larger one.
    log: u32,
}

impl Window {
    /// Returns the largest window that the file may have, as a power of two.
    pub fn most(&self) -> u32 {
        self.log.min(MOST_LOG)
    }
}

impl Windows {
    /// Counts the window of a file, by its first bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no room for it.
    pub fn open(&self, head: &[u8]) -> io::Result<Window> {
        let bytes = of_frame(head).unwrap_or(0);
        let log = bytes.max(1).ilog2() + u32::from(!bytes.max(1).is_power_of_two());
        let log = log.max(LEAST_LOG);
        // The decoder refuses larger ones.
        let bytes = if (LEAST_LOG + 1..=MOST_LOG).contains(&log) { bytes } else { 0 };
        let add = |all: u64| all.checked_add(bytes).filter(|all| *all <= MOST || bytes == 0);
        let added = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added.map(|_| Window { all: self.clone(), bytes, log }).map_err(|all| {
            io::Error::other(format!(
                "decompressing takes a window of {} MiB, and files that are open have {} of {} MiB: read fewer \
                 files at once, or compress them without --long",
                bytes >> 20,
                all >> 20,
                MOST >> 20
            ))
        })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Returns the window of the frame with which a file begins, or `None` if its header is cut off.
fn of_frame(head: &[u8]) -> Option<u64> {
    let descriptor = *head.get(4)?;
    let is_single = descriptor & 0x20 != 0;
    if !is_single {
        let window = *head.get(5)?;
        let base = 1_u64 << (10 + u32::from(window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    // Without a window of its own, the frame has the length of its content, after the dictionary's number.
    let at = 5 + [0, 1, 2, 4][usize::from(descriptor & 3)];
    let length = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let mut bytes = [0; 8];
    bytes[..length].copy_from_slice(head.get(at..at + length)?);
    let stated = u64::from_le_bytes(bytes);
    Some(if length == 2 { stated + 256 } else { stated })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Returns the first bytes of a frame.
    fn frame(log: u32, content: &[u8], size: Option<u64>) -> Vec<u8> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.long_distance_matching(true).unwrap();
        encoder.window_log(log).unwrap();
        encoder.set_pledged_src_size(size).unwrap();
        encoder.write_all(content).unwrap();
        let mut frame = encoder.finish().unwrap();
        frame.truncate(HEAD);
        frame
    }

    #[test]
    fn the_window_is_the_one_of_the_frame() {
        let content = vec![7; 3 << 20];
        for log in [17, 20, 23, 25, 27] {
            assert_eq!(of_frame(&frame(log, &content, None)), Some(1 << log));
        }
        // Content of a known length that fits the window is a single segment.
        for length in [1, 255, 256, 70_000, 3 << 20] {
            let found = of_frame(&frame(25, &content[..length], Some(length as u64)));
            assert_eq!(found, Some(length as u64));
        }
        let whole = frame(27, &content, None);
        for length in 0..6 {
            assert_eq!(of_frame(&whole[..length]), None);
        }
        // Any length that a header can state.
        for length in [0, u64::MAX >> 1, u64::MAX] {
            let head = [&[0x28, 0xb5, 0x2f, 0xfd, 0xe0][..], &length.to_le_bytes()].concat();
            assert_eq!(of_frame(&head), Some(length));
            let window = Windows::default().open(&head).unwrap();
            assert!((LEAST_LOG..=64).contains(&window.log), "{length}");
        }
    }

    #[test]
    fn large_windows_are_limited_together() {
        let windows = Windows::default();
        let content = vec![7; 1 << 20];
        let open = |log| windows.open(&frame(log, &content, None));
        let mut large: Vec<_> = (0..4).map(|_| open(27).unwrap()).collect();
        assert!(open(24).is_err_and(|e| e.to_string().contains("window of 16 MiB")));
        let small = open(20).unwrap();
        assert_eq!((large[0].log, small.log, open(23).unwrap().log), (27, 23, 23));
        large.pop();
        open(27).unwrap();
    }
}
