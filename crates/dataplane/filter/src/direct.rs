//! Shortens the paths of a checked program.
//!
//! libpcap's generator writes each term on its own, so `host A or host B` tests the type of the packet
//! twelve times. A jump to a test whose outcome is known from the tests before it leads to the outcome
//! directly. The bytes of a packet do not change, so a fact about them holds on all paths from the test that
//! established it, and that test has also shown that the bytes were captured.

use crate::program::{Alu, Op, Operand, Program, Size, Test};

/// The number of facts that are kept at one instruction. The earliest are kept: they concern the type and the
/// protocol of the packet, on which most later tests depend.
const MOST_FACTS: usize = 16;

/// Bits at a fixed place of the packet.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Field {
    size: Size,
    at: u32,
    mask: u32,
}

/// A value that a field is known to have (`is`), or not to have.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fact {
    field: Field,
    value: u32,
    is: bool,
}

impl Fact {
    /// Returns the fact that holds where a branch on the value of `field` leads to its first target.
    fn of(mut field: Field, test: Test, value: u32) -> Option<Self> {
        match test {
            Test::Eq => Some(Self { field, value, is: true }),
            Test::Set => {
                field.mask &= value;
                Some(Self { field, value: 0, is: false })
            }
            Test::Gt | Test::Ge => None,
        }
    }

    fn not(self) -> Self {
        Self { is: !self.is, ..self }
    }
}

/// A load from a fixed place, an optional mask, and a branch on the result.
struct Tested {
    field: Field,
    test: Test,
    value: u32,
    yes: usize,
    no: usize,
}

impl Program {
    /// Returns a program with the same results and shorter paths.
    pub(crate) fn direct(&self) -> Self {
        let mut ops = self.ops().to_vec();
        let mut targets = vec![false; ops.len()];
        for op in &ops {
            match *op {
                Op::Jump(to) | Op::Keep(_, to) => targets[to] = true,
                Op::Branch(_, _, yes, no) | Op::BranchSet(_, yes, no) => {
                    (targets[yes], targets[no]) = (true, true)
                }
                _ => {}
            }
        }
        // The facts at each instruction that was reached (yet). All predecessors come before.
        let mut known: Vec<Option<Vec<Fact>>> = vec![None; ops.len()];
        known[0] = Some(Vec::new());
        for at in 0..ops.len() {
            let Some(facts) = known[at].take() else { continue };
            match ops[at] {
                Op::Branch(test, operand, yes, no) => {
                    let found = match operand {
                        Operand::K(value) => {
                            compared(&ops, &targets, at).and_then(|field| Fact::of(field, test, value))
                        }
                        Operand::X => None,
                    };
                    let with = |fact: Option<Fact>| {
                        let mut facts = facts.clone();
                        facts.extend(fact.filter(|_| facts.len() < MOST_FACTS));
                        facts
                    };
                    let (on_yes, on_no) = (with(found), with(found.map(Fact::not)));
                    let (yes, no) = (follow(&ops, yes, &on_yes), follow(&ops, no, &on_no));
                    ops[at] = Op::Branch(test, operand, yes, no);
                    reach(&mut known[yes], on_yes);
                    reach(&mut known[no], on_no);
                }
                Op::Jump(to) => {
                    let to = follow(&ops, to, &facts);
                    ops[at] = Op::Jump(to);
                    reach(&mut known[to], facts);
                }
                Op::Keep(_, to) => reach(&mut known[to], facts),
                Op::BranchSet(number, yes, no) => {
                    let (yes, no) = (follow(&ops, yes, &facts), follow(&ops, no, &facts));
                    ops[at] = Op::BranchSet(number, yes, no);
                    reach(&mut known[yes], facts.clone());
                    reach(&mut known[no], facts);
                }
                Op::ReturnImm(_) | Op::ReturnA => {}
                // The last instruction returns.
                _ => reach(&mut known[at + 1], facts),
            }
        }
        Self::of(ops, self.sets().clone())
    }
}

/// Keeps the facts that hold on all paths to an instruction.
fn reach(known: &mut Option<Vec<Fact>>, facts: Vec<Fact>) {
    match known {
        None => *known = Some(facts),
        Some(known) => known.retain(|fact| facts.contains(fact)),
    }
}

/// Returns the field that `A` holds at a branch, if only one path leads from its load to there.
fn compared(ops: &[Op], targets: &[bool], branch: usize) -> Option<Field> {
    let before = |at: usize| (!targets[at]).then(|| at.checked_sub(1)).flatten();
    let last = before(branch)?;
    match ops[last] {
        Op::LoadAbs(size, at) => Some(Field { size, at, mask: u32::MAX }),
        Op::Alu(Alu::And, Operand::K(mask)) => match ops[before(last)?] {
            Op::LoadAbs(size, at) => Some(Field { size, at, mask }),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the instruction at which a path continues that jumps to `to` with these facts: the last one behind
/// tests with known outcomes, at which `A`, which those tests would have set, is not read.
fn follow(ops: &[Op], mut to: usize, facts: &[Fact]) -> usize {
    let (mut end, mut is_unset) = (to, false);
    loop {
        if !is_unset || sets_a(ops, to) {
            end = to;
        }
        to = match ops[to] {
            Op::Jump(next) => next,
            _ => match tested(ops, to).and_then(|t| Some((outcome(facts, &t)?, t))) {
                Some((holds, t)) => {
                    is_unset = true;
                    if holds { t.yes } else { t.no }
                }
                None => return end,
            },
        };
    }
}

/// Returns whether `A` is set or the program ends before `A` is read.
fn sets_a(ops: &[Op], from: usize) -> bool {
    for op in &ops[from..] {
        match op {
            Op::LoadXImm(_) | Op::LoadXLen | Op::LoadXScratch(_) | Op::LoadXHeader(_) | Op::StoreX(_) => {}
            Op::LoadAbs(..) | Op::LoadInd(..) | Op::LoadFamily(_) | Op::LoadLen => return true,
            Op::LoadImm(_) | Op::LoadScratch(_) | Op::MoveToA | Op::ReturnImm(_) => return true,
            _ => return false,
        }
    }
    false
}

fn tested(ops: &[Op], from: usize) -> Option<Tested> {
    let &Op::LoadAbs(size, at) = ops.get(from)? else { return None };
    let (mask, branch) = match ops.get(from + 1)? {
        Op::Alu(Alu::And, Operand::K(mask)) => (*mask, ops.get(from + 2)?),
        branch => (u32::MAX, branch),
    };
    match *branch {
        Op::Branch(test, Operand::K(value), yes, no) => {
            Some(Tested { field: Field { size, at, mask }, test, value, yes, no })
        }
        _ => None,
    }
}

/// Returns whether a test holds, if the facts decide it.
fn outcome(facts: &[Fact], tested: &Tested) -> Option<bool> {
    let Field { size, at, mask } = tested.field;
    let is_known = |fact: &&Fact| {
        let known = fact.field;
        fact.is && (known.size, known.at) == (size, at) && known.mask & mask == mask
    };
    if let Some(fact) = facts.iter().find(is_known) {
        return Some(tested.test.holds(fact.value & mask, tested.value));
    }
    let fact = Fact::of(tested.field, tested.test, tested.value)?;
    match (facts.contains(&fact), facts.contains(&fact.not())) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}
