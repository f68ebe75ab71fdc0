//! Instructions of classic BPF, and the check of a program.
//!
//! Source: McCanne and Jacobson, "The BSD Packet Filter" (USENIX 1993), with the modulo and xor operations
//! that libpcap added. All arithmetic is on 32 bits and wraps. A load outside the captured bytes and a
//! division by zero end the program with 0 (no match); a shift by 32 or more gives 0. `A`, `X` and the
//! scratch words start as 0. Loads at constant offsets of 2^31 and above, for which the kernel has a meaning
//! of its own, are refused.
//!
//! Comparisons with an address become lookups in a set of addresses where `sets.rs` puts them.

use crate::set::AddressSet;
use flame_abi::LinkType;
use std::sync::Arc;

/// The maximum number of instructions. No program is passed to the kernel, whose limit is 4,096.
pub const MAX_INSTRUCTIONS: usize = 10_000;
/// The number of words of scratch memory.
pub const SCRATCH: usize = 16;

/// An instruction in the encoding of libpcap and the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    /// The number of instructions to skip if the condition holds.
    pub jt: u8,
    /// The number of instructions to skip if the condition does not hold.
    pub jf: u8,
    pub k: u32,
}

/// The number of bytes of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Byte = 1,
    Half = 2,
    Word = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alu {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    And,
    Or,
    Xor,
    Lsh,
    Rsh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Eq,
    Gt,
    Ge,
    Set,
}

impl Test {
    pub(crate) fn holds(self, a: u32, b: u32) -> bool {
        match self {
            Self::Eq => a == b,
            Self::Gt => a > b,
            Self::Ge => a >= b,
            Self::Set => a & b != 0,
        }
    }
}

/// The order of bytes in which libpcap compares an address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Network,
    /// This machine's.
    Native,
}

/// The values of IPv6 as an address family, by system. libpcap compares with the first only.
pub(crate) const FAMILIES_OF_IPV6: [u32; 5] = [10, 23, 24, 28, 30];

/// Returns the value that libpcap compares for the first word of a loopback header. Its bytes are in the
/// order of the machine that captured the packet, and the values of IPv6 differ by system.
pub(crate) fn family(word: u32, order: Order) -> u32 {
    let family = if word > 0xffff { word.swap_bytes() } else { word };
    let family = if FAMILIES_OF_IPV6.contains(&family) { FAMILIES_OF_IPV6[0] } else { family };
    match order {
        Order::Network => family,
        Order::Native => family.to_be(),
    }
}

/// The second operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    K(u32),
    X,
}

/// A decoded instruction. Jump targets are indices into the program, always forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    LoadAbs(Size, u32),
    LoadInd(Size, u32),
    /// Loads the address family of a loopback header, as [`family`] defines it.
    LoadFamily(Order),
    LoadLen,
    LoadImm(u32),
    LoadScratch(u8),
    LoadXImm(u32),
    LoadXLen,
    LoadXScratch(u8),
    /// `X = 4 * (byte & 15)`: the length of an IPv4 header.
    LoadXHeader(u32),
    Store(u8),
    StoreX(u8),
    Alu(Alu, Operand),
    Negate,
    Jump(usize),
    Branch(Test, Operand, usize, usize),
    /// Keeps `A` as a word of an address of IPv6, and jumps.
    Keep(usize, usize),
    /// Jumps to the first target if the set of this number contains `A`, as an address of IPv4 or the last
    /// word of one of IPv6, whose words before were kept.
    BranchSet(usize, usize, usize),
    ReturnImm(u32),
    ReturnA,
    MoveToX,
    MoveToA,
}

/// The reason why a program is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    #[error("the program is empty")]
    Empty,
    #[error(
        "it compiles to {found} instructions, at most {most} are run: join hosts and networks by `or` alone, \
         as in `host A or B or C`, which makes them one set, or use fewer terms"
    )]
    TooLong { found: usize, most: usize },
    #[error("instruction {at}: unknown operation {code:#06x}")]
    Unknown { at: usize, code: u16 },
    #[error("instruction {at}: jumps to {target}, the program ends at {len}")]
    Jump { at: usize, target: u64, len: usize },
    #[error("instruction {at}: scratch word {found}, there are {SCRATCH}")]
    Scratch { at: usize, found: u32 },
    #[error("instruction {at}: divides by the constant 0")]
    Zero { at: usize },
    #[error("instruction {at}: loads at {offset:#x}, where the kernel has what the bytes do not state")]
    Metadata { at: usize, offset: u32 },
    #[error("the last instruction does not return")]
    Open,
}

/// A checked program: its operations are known, its jumps lead forward and stay inside, its scratch accesses
/// are in range, and it ends in a return. It always terminates, after at most as many steps as it has
/// instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    ops: Vec<Op>,
    sets: Arc<[AddressSet]>,
}

impl Program {
    /// Checks a program. There is no other way to obtain one.
    ///
    /// # Errors
    ///
    /// Returns the first violation of the rules of [`Program`].
    pub fn check(code: &[Instruction]) -> Result<Self, ProgramError> {
        if code.len() > MAX_INSTRUCTIONS {
            return Err(ProgramError::TooLong { found: code.len(), most: MAX_INSTRUCTIONS });
        }
        let ops = code.iter().enumerate().map(|(at, i)| decode(at, *i, code.len()));
        let ops = ops.collect::<Result<Vec<_>, _>>()?;
        match ops.last() {
            None => Err(ProgramError::Empty),
            Some(Op::ReturnImm(_) | Op::ReturnA) => Ok(Self::of(ops, Arc::default())),
            Some(_) => Err(ProgramError::Open),
        }
    }

    /// Returns the program that every packet passes.
    pub fn all() -> Self {
        Self::of(vec![Op::ReturnImm(u32::MAX)], Arc::default())
    }

    /// Returns whether the program passes every packet unread.
    pub fn accepts_all(&self) -> bool {
        matches!(self.ops[0], Op::ReturnImm(1..))
    }

    /// Returns whether the program reads the packet's length on the wire.
    pub fn reads_length(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::LoadLen | Op::LoadXLen))
    }

    /// Returns the number of instructions.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns the program for packets of `link`: libpcap's tests of a loopback header expect the byte order
    /// and the families of this machine.
    pub(crate) fn on(mut self, link: LinkType) -> Self {
        let order = match link {
            LinkType::NULL => Order::Native,
            LinkType::LOOP => Order::Network,
            _ => return self,
        };
        for op in &mut self.ops {
            // Bytes that an expression accesses are loaded at an index.
            if *op == Op::LoadAbs(Size::Word, 0) {
                *op = Op::LoadFamily(order);
            }
        }
        self
    }

    /// Creates a program from the operations of a checked one, whose jumps lead forward and stay inside.
    pub(crate) fn of(ops: Vec<Op>, sets: Arc<[AddressSet]>) -> Self {
        Self { ops, sets }
    }

    pub(crate) fn ops(&self) -> &[Op] {
        &self.ops
    }

    pub(crate) fn sets(&self) -> &Arc<[AddressSet]> {
        &self.sets
    }
}

// Masks of fields of an operation code.
const CLASS: u16 = 0x07;
const X: u16 = 0x08;

fn decode(at: usize, i: Instruction, len: usize) -> Result<Op, ProgramError> {
    let unknown = ProgramError::Unknown { at, code: i.code };
    let operand = if i.code & X == 0 { Operand::K(i.k) } else { Operand::X };
    let target = |skip: u32| {
        let target = at as u64 + 1 + u64::from(skip);
        if target < len as u64 { Ok(target as usize) } else { Err(ProgramError::Jump { at, target, len }) }
    };
    let scratch = || {
        if (i.k as usize) < SCRATCH { Ok(i.k as u8) } else { Err(ProgramError::Scratch { at, found: i.k }) }
    };
    let alu = |alu: Alu| Ok(Op::Alu(alu, operand));
    let branch = |test: Test| Ok(Op::Branch(test, operand, target(i.jt.into())?, target(i.jf.into())?));
    let offset = || if i.k < 1 << 31 { Ok(i.k) } else { Err(ProgramError::Metadata { at, offset: i.k }) };
    match i.code & CLASS {
        0 => Ok(match i.code {
            0x20 => Op::LoadAbs(Size::Word, offset()?),
            0x28 => Op::LoadAbs(Size::Half, offset()?),
            0x30 => Op::LoadAbs(Size::Byte, offset()?),
            0x40 => Op::LoadInd(Size::Word, offset()?),
            0x48 => Op::LoadInd(Size::Half, offset()?),
            0x50 => Op::LoadInd(Size::Byte, offset()?),
            0x80 => Op::LoadLen,
            0x00 => Op::LoadImm(i.k),
            0x60 => Op::LoadScratch(scratch()?),
            _ => return Err(unknown),
        }),
        1 => Ok(match i.code {
            0x01 => Op::LoadXImm(i.k),
            0x81 => Op::LoadXLen,
            0x61 => Op::LoadXScratch(scratch()?),
            0xb1 => Op::LoadXHeader(offset()?),
            _ => return Err(unknown),
        }),
        2 if i.code == 0x02 => Ok(Op::Store(scratch()?)),
        3 if i.code == 0x03 => Ok(Op::StoreX(scratch()?)),
        4 => match (i.code & !X, operand) {
            (0x34 | 0x94, Operand::K(0)) => Err(ProgramError::Zero { at }),
            (0x04, _) => alu(Alu::Add),
            (0x14, _) => alu(Alu::Sub),
            (0x24, _) => alu(Alu::Mul),
            (0x34, _) => alu(Alu::Div),
            (0x44, _) => alu(Alu::Or),
            (0x54, _) => alu(Alu::And),
            (0x64, _) => alu(Alu::Lsh),
            (0x74, _) => alu(Alu::Rsh),
            (0x84, Operand::K(_)) => Ok(Op::Negate),
            (0x94, _) => alu(Alu::Mod),
            (0xa4, _) => alu(Alu::Xor),
            _ => Err(unknown),
        },
        5 => match (i.code & !X, operand) {
            (0x05, Operand::K(k)) => Ok(Op::Jump(target(k)?)),
            (0x15, _) => branch(Test::Eq),
            (0x25, _) => branch(Test::Gt),
            (0x35, _) => branch(Test::Ge),
            (0x45, _) => branch(Test::Set),
            _ => Err(unknown),
        },
        6 => match i.code {
            0x06 => Ok(Op::ReturnImm(i.k)),
            0x16 => Ok(Op::ReturnA),
            _ => Err(unknown),
        },
        7 => match i.code {
            0x07 => Ok(Op::MoveToX),
            0x87 => Ok(Op::MoveToA),
            _ => Err(unknown),
        },
        _ => Err(unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn i(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
        Instruction { code, jt, jf, k }
    }

    #[test]
    fn each_fault_is_named() {
        let ret = i(0x06, 0, 0, 1);
        let metadata = ProgramError::Metadata { at: 0, offset: 0xffff_f004 };
        let cases: [(&[Instruction], ProgramError); 10] = [
            (&[i(0x28, 0, 0, 0xffff_f004), ret], metadata.clone()),
            (&[i(0x48, 0, 0, 0xffff_f004), ret], metadata),
            (&[], ProgramError::Empty),
            (&[i(0x20, 0, 0, 0)], ProgramError::Open),
            (&[i(0xffff, 0, 0, 0), ret], ProgramError::Unknown { at: 0, code: 0xffff }),
            (&[i(0x05, 0, 0, u32::MAX), ret], ProgramError::Jump { at: 0, target: 1 << 32, len: 2 }),
            (&[i(0x15, 0, 1, 0), ret], ProgramError::Jump { at: 0, target: 2, len: 2 }),
            (&[i(0x02, 0, 0, 16), ret], ProgramError::Scratch { at: 0, found: 16 }),
            (&[i(0x34, 0, 0, 0), ret], ProgramError::Zero { at: 0 }),
            (&[ret; 10_001], ProgramError::TooLong { found: 10_001, most: 10_000 }),
        ];
        for (code, expected) in cases {
            assert_eq!(Program::check(code), Err(expected));
        }
        assert!(Program::check(&[ret]).unwrap().accepts_all());
        assert!(!Program::check(&[i(0x06, 0, 0, 0)]).unwrap().accepts_all());
    }
}
