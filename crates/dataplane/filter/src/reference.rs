//! An interpreter with the same semantics: the oracle with which tests and fuzzing compare the machine code.
//! Nothing else uses it.

use crate::program::{Alu, Op, Operand, Program, SCRATCH, Size, family};

/// Runs `program`. See [`crate::program`] for the semantics.
pub fn run(program: &Program, bytes: &[u8], wire_len: u32) -> u32 {
    let (mut a, mut x, mut scratch, mut words) = (0u32, 0u32, [0u32; SCRATCH], [0u32; 4]);
    let mut at = 0;
    // Jumps lead only forward, and the last instruction returns.
    loop {
        let op = program.ops()[at];
        at += 1;
        match op {
            Op::LoadAbs(size, k) => match load(bytes, u64::from(k), size) {
                Some(v) => a = v,
                None => return 0,
            },
            Op::LoadInd(size, k) => match load(bytes, u64::from(x) + u64::from(k), size) {
                Some(v) => a = v,
                None => return 0,
            },
            Op::LoadFamily(order) => match load(bytes, 0, Size::Word) {
                Some(v) => a = family(v, order),
                None => return 0,
            },
            Op::LoadXHeader(k) => match load(bytes, u64::from(k), Size::Byte) {
                Some(v) => x = (v & 15) * 4,
                None => return 0,
            },
            Op::LoadLen => a = wire_len,
            Op::LoadImm(k) => a = k,
            Op::LoadScratch(m) => a = scratch[usize::from(m)],
            Op::LoadXImm(k) => x = k,
            Op::LoadXLen => x = wire_len,
            Op::LoadXScratch(m) => x = scratch[usize::from(m)],
            Op::Store(m) => scratch[usize::from(m)] = a,
            Op::StoreX(m) => scratch[usize::from(m)] = x,
            Op::Alu(alu, operand) => match calculate(alu, a, value(operand, x)) {
                Some(v) => a = v,
                None => return 0,
            },
            Op::Negate => a = a.wrapping_neg(),
            Op::Jump(target) => at = target,
            Op::Branch(test, operand, yes, no) => {
                at = if test.holds(a, value(operand, x)) { yes } else { no };
            }
            Op::Keep(word, to) => {
                words[word] = a;
                at = to;
            }
            Op::BranchSet(number, yes, no) => {
                let set = &program.sets()[number];
                words[set.last()] = a;
                at = if set.contains(words) { yes } else { no };
            }
            Op::ReturnImm(k) => return k,
            Op::ReturnA => return a,
            Op::MoveToX => x = a,
            Op::MoveToA => a = x,
        }
    }
}

fn value(operand: Operand, x: u32) -> u32 {
    match operand {
        Operand::K(k) => k,
        Operand::X => x,
    }
}

fn load(bytes: &[u8], at: u64, size: Size) -> Option<u32> {
    let at = usize::try_from(at).ok()?;
    let bytes = bytes.get(at..at.checked_add(size as usize)?)?;
    Some(bytes.iter().fold(0, |v, b| v << 8 | u32::from(*b)))
}

fn calculate(alu: Alu, a: u32, b: u32) -> Option<u32> {
    Some(match alu {
        Alu::Add => a.wrapping_add(b),
        Alu::Sub => a.wrapping_sub(b),
        Alu::Mul => a.wrapping_mul(b),
        Alu::Div => a.checked_div(b)?,
        Alu::Mod => a.checked_rem(b)?,
        Alu::And => a & b,
        Alu::Or => a | b,
        Alu::Xor => a ^ b,
        Alu::Lsh => a.checked_shl(b).unwrap_or(0),
        Alu::Rsh => a.checked_shr(b).unwrap_or(0),
    })
}
