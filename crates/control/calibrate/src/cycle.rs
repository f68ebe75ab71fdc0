//! A cycle of addresses through memory, which loads follow.

/// The bytes of a cache line.
pub const LINE: usize = 64;

/// Writes to each line the address of the next one, in one cycle through all lines (Sattolo's shuffle). The
/// cycle is always the same, so that two calibrations differ only by the machine.
pub fn write_cycle(memory: &mut [u8]) {
    let mut next: Vec<u32> = (0..(memory.len() / LINE) as u32).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for i in (1..next.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        next.swap(i, (random % i as u64) as usize);
    }
    for (line, next) in memory.chunks_exact_mut(LINE).zip(next) {
        line[..4].copy_from_slice(&(next * LINE as u32).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cycle_through_all_lines() {
        for lines in [1, 2, 3, 64, 1000] {
            let mut memory = vec![0; lines * LINE];
            write_cycle(&mut memory);
            let (mut at, mut steps) = (0, 0);
            loop {
                at = u32::from_le_bytes(memory[at..at + 4].try_into().unwrap()) as usize;
                steps += 1;
                if at == 0 {
                    break;
                }
            }
            assert_eq!(steps, lines);
        }
    }
}
