use crate::lease::{Lease, Parts};
use crate::memfd::{PAGE, SIZED, SharedMemory, checked, create_file, seal};
use crate::{BlockError, memfd};
use flame_base::lock;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// The size of the parts that a region consists of, in bytes.
const PART: usize = 256 << 10;
const _: () = assert!(PART.is_multiple_of(PAGE));

/// Memory of fixed size from which a process takes the shared memory that it may not create itself.
///
/// Another process creates it, and thereby limits the shared memory of this one. Pages take up memory only
/// once they are written.
#[derive(Clone)]
pub struct Region {
    fd: Arc<OwnedFd>,
    parts: Arc<Mutex<Parts>>,
}

impl Region {
    /// Returns the bytes of a region for memory of these sizes in bytes.
    pub fn size(of: impl IntoIterator<Item = usize>) -> usize {
        of.into_iter().map(|bytes| bytes.next_multiple_of(PART)).sum()
    }

    /// Creates the file of a region of `bytes`, to be passed to the process that [opens](Self::open) it.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no memory or descriptor left.
    pub fn create(bytes: usize) -> Result<OwnedFd, BlockError> {
        let bytes = bytes.next_multiple_of(PART);
        let fd = create_file(bytes)?;
        seal(&fd, bytes, SIZED)?;
        Ok(fd)
    }

    /// Opens a region that another process created.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not of fixed size.
    pub fn open(fd: OwnedFd) -> Result<Self, BlockError> {
        const NAME: &str = "region";
        let bytes = checked(&fd, NAME, SIZED)?;
        if !bytes.is_multiple_of(PART) {
            let expected = format!("a multiple of {PART} bytes");
            return Err(memfd::unexpected(NAME, expected, format!("{bytes} bytes")));
        }
        let parts = Arc::new(Mutex::new(Parts(vec![(false, false); bytes / PART])));
        Ok(Self { fd: Arc::new(fd), parts })
    }

    /// Takes `bytes` of zeros, until they are dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if the region has fewer left.
    pub fn take(&self, bytes: usize) -> Result<SharedMemory, BlockError> {
        let count = bytes.div_ceil(PART).max(1);
        let (lease, is_dirty) = {
            let mut parts = lock(&self.parts);
            let first = parts.find(count).ok_or_else(|| BlockError::Exhausted {
                bytes,
                free: parts.0.iter().filter(|(used, _)| !used).count() * PART,
            })?;
            let range = &mut parts.0[first..first + count];
            let is_dirty = range.iter().any(|(_, dirty)| *dirty);
            range.fill((true, true));
            (Lease { parts: self.parts.clone(), first, count }, is_dirty)
        };
        let mut memory = SharedMemory::part(self.fd.clone(), lease.first * PART, count * PART, lease)?;
        if is_dirty {
            memory.slice_mut(0, count * PART).fill(0);
        }
        Ok(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_zeroed_and_limited() {
        let region = Region::open(Region::create(Region::size([PART + 1, 5])).unwrap()).unwrap();
        let mut one = region.take(PART + 1).unwrap();
        let mut two = region.take(5).unwrap();
        one.slice_mut(0, 2 * PART).fill(1);
        two.slice_mut(0, PART).fill(2);
        assert!(one.slice(0, 2 * PART).iter().all(|b| *b == 1));
        assert!(two.slice(0, PART).iter().all(|b| *b == 2));
        let error = region.take(1).err().unwrap().to_string();
        assert!(error.contains("1 bytes") && error.contains("0 bytes"), "{error}");
        drop(one);
        let again = region.take(2 * PART).unwrap();
        assert!(again.slice(0, 2 * PART).iter().all(|b| *b == 0));
        assert_eq!((again.offset(), two.offset()), (0, 2 * PART));
    }

    #[test]
    fn a_region_must_have_a_fixed_size_of_whole_parts() {
        let open = |fd| Region::open(fd).err().unwrap().to_string();
        assert!(open(create_file(PART).unwrap()).contains("the seals"));
        let odd = create_file(PAGE).unwrap();
        seal(&odd, PAGE, SIZED).unwrap();
        assert!(open(odd).contains("a multiple of"));
    }
}
