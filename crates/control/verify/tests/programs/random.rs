//! A deterministic pseudorandom generator.

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
    /// Returns a number, more often one at a boundary.
    pub fn number(&mut self) -> u64 {
        let near = (self.next() % 5).wrapping_sub(2);
        match self.below(7) {
            0 | 1 => self.next() % 20,
            2 => near,
            3 => (1u64 << self.below(64)).wrapping_add(near),
            4 => 0u64.wrapping_sub(self.next() % 300),
            5 => self.one(&[1u64 << 31, 1 << 32, 1 << 63, 255, 256, 262_144, 65_535]).wrapping_add(near),
            _ => self.next() >> self.below(64),
        }
    }
}
