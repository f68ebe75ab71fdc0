//! The choices of a generator: from a seed, a recorded list that can be shrunk, or a fuzzer's bytes.

/// A source of choices. All choices are recorded, so that a program can be generated again from them.
pub struct Choices {
    state: u64,
    given: Option<Vec<u64>>,
    pub drawn: Vec<u64>,
}

impl Choices {
    pub fn seeded(seed: u64) -> Self {
        // Consecutive seeds must not produce similar programs.
        let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self { state: (state ^ (state >> 31)) | 1, given: None, drawn: Vec::new() }
    }

    /// Returns a source of these choices, and 0 after them.
    pub fn given(given: Vec<u64>) -> Self {
        Self { state: 1, given: Some(given), drawn: Vec::new() }
    }

    pub fn next(&mut self) -> u64 {
        let n = match &self.given {
            Some(given) => given.get(self.drawn.len()).copied().unwrap_or(0),
            None => {
                self.state ^= self.state << 13;
                self.state ^= self.state >> 7;
                self.state ^= self.state << 17;
                self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 3
            }
        };
        self.drawn.push(n);
        n
    }

    /// Returns a number below `n`; 0 is the simplest choice.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// Returns true in `percent` of 100 cases; a choice of 0 is false.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) >= 100 - percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Returns the index of one of several choices with weights.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut n = self.below(weights.iter().sum());
        weights
            .iter()
            .position(|w| match n.checked_sub(*w) {
                Some(rest) => {
                    n = rest;
                    false
                }
                None => true,
            })
            .unwrap_or(0)
    }

    /// Returns a number of `bits` bits: small, near a border where it wraps or changes its sign, or any.
    pub fn border(&mut self, bits: u32) -> u64 {
        let near = [7, 8, 15, 16, 31, 32, 63, 64];
        let n = match self.weighted(&[30, 40, 15, 5]) {
            0 => self.below(40),
            1 => {
                let at = self.pick(&near);
                let power = if at == 64 { 0 } else { 1_u64 << at };
                power.wrapping_add(self.below(7)).wrapping_sub(3)
            }
            2 => self.below(40).wrapping_neg(),
            _ => self.next(),
        };
        if bits == 32 { n & 0xffff_ffff } else { n }
    }
}
