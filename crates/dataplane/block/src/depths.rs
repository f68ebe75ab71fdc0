use crate::MAX_QUEUES;
use crate::queue::ENTRIES;

/// The numbers of blocks that a reader may hold at a time, by event queue.
///
/// Each queue has at least one block, and all together have at most 16: a depth beyond that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    each: [u8; MAX_QUEUES],
    queues: usize,
}

impl Depths {
    /// Creates depths, by queue, of at most [`MAX_QUEUES`].
    pub fn new(depths: &[usize]) -> Self {
        let queues = depths.len().clamp(1, MAX_QUEUES);
        let (mut each, mut left) = ([0; MAX_QUEUES], ENTRIES);
        for (n, one) in each[..queues].iter_mut().enumerate() {
            // Those after it have one block each at least.
            let most = left - (queues - 1 - n);
            let depth = depths.get(n).copied().unwrap_or(1).clamp(1, most);
            *one = depth as u8;
            left -= depth;
        }
        Self { each, queues }
    }

    /// Returns the number of queues.
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// Returns the depth of a queue: 0 if it does not exist.
    pub fn of(&self, queue: usize) -> usize {
        self.each.get(queue).map_or(0, |depth| usize::from(*depth))
    }

    /// Returns the number of blocks of all queues together.
    pub fn sum(&self) -> usize {
        self.each.iter().map(|depth| usize::from(*depth)).sum()
    }
}

/// The depth of a reader without queues.
impl From<usize> for Depths {
    fn from(depth: usize) -> Self {
        Self::new(&[depth])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_has_a_block_and_all_have_as_many_as_entries() {
        let of = |depths: &[usize]| {
            let depths = Depths::new(depths);
            (0..depths.queues()).map(|queue| depths.of(queue)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[4]), [4]);
        assert_eq!((of(&[]), of(&[0]), of(&[usize::MAX])), (vec![1], vec![1], vec![16]));
        assert_eq!(of(&[0, 2, 1]), [1, 2, 1]);
        assert_eq!(of(&[99, 99, 99]), [14, 1, 1]);
        assert_eq!(of(&[3; 20]), [3, 3, 3, 3, 1, 1, 1, 1]);
        assert_eq!(Depths::new(&[3; 20]).sum(), 16);
        assert_eq!(Depths::new(&[3, 2]).of(2), 0);
    }
}
