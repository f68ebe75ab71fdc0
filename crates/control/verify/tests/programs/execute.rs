//! Executes programs, counting the weight of each instruction.

use super::{Access, Bulk, CALLEES, GLOBALS, LOCALS, Operand, Random, Step, UNARIES, bits, compute};
use flame_abi::{Descriptor, MAX_BATCH, layout};
use flame_verify::value::mask;

/// Steps with the numbers of their loops, probes included, in the order in which they are written.
pub struct Body<'a> {
    first: u32,
    steps: Vec<Planned<'a>>,
}

struct Planned<'a> {
    step: &'a Step,
    number: u32,
    bodies: Vec<Body<'a>>,
    after: u32,
}

pub fn plan<'a>(steps: &'a [Step], next: &mut u32) -> Body<'a> {
    let take = |next: &mut u32| {
        *next += 1;
        *next - 1
    };
    let first = take(next);
    let planned = steps.iter().map(|step| {
        let number = *next;
        let bodies = match step {
            Step::If(_, then, or) => vec![plan(then, next), plan(or, next)],
            Step::Block(body) => vec![plan(body, next)],
            Step::Loop(body) => {
                take(next);
                vec![plan(body, next)]
            }
            _ => Vec::new(),
        };
        Planned { step, number, bodies, after: take(next) }
    });
    Body { first, steps: planned.collect() }
}

impl<'a> Body<'a> {
    /// Calls `each` with every loop that is not a probe, and its number.
    pub fn loops(&self, each: &mut impl FnMut(u32, &'a [Step])) {
        for planned in &self.steps {
            if let Step::Loop(body) = planned.step {
                each(planned.number, body);
            }
            planned.bodies.iter().for_each(|b| b.loops(each));
        }
    }
}

/// Receives the events of an execution.
pub trait Observer {
    fn probe(&mut self, number: u32, machine: &Machine);
    /// Called when an iteration begins, after `iteration` others.
    fn head(&mut self, number: u32, iteration: u64, machine: &Machine);
    /// Called when a loop is left.
    fn left(&mut self);
}

pub enum Flow {
    Next,
    Branch(u32),
    /// The program returned, trapped, or ran out of fuel.
    Over,
}

/// The host's data: a batch of packets.
pub struct Batch {
    pub place: u32,
    pub count: u32,
    pub longest: u32,
    descriptors: Vec<u8>,
}

impl Batch {
    pub fn new(r: &mut Random) -> Self {
        let count = r.one(&[1, 1, 2, 31, 32, 33, 200, 255, MAX_BATCH as u32]);
        let most = r.one(&[0, 1, 60, 1514, flame_abi::MAX_PACKET as u32]);
        let room = layout::VIEW_BYTES - count * Descriptor::SIZE as u32;
        let anywhere = 32 * (r.next() as u32 % (room / 32));
        let place = layout::VIEW + r.one(&[0, room, anywhere]);
        let (mut longest, mut descriptors) = (0, Vec::new());
        for _ in 0..count {
            let length = if r.below(3) == 0 { most } else { r.next() as u32 % (most + 1) };
            longest = longest.max(length);
            let start = r.next() as u32 % (layout::VIEW_BYTES - length);
            let header = |r: &mut Random| (r.next() as u32 % (length + 1)).min(65_535) as u16;
            let (l3, l4) = (header(r), header(r));
            let mut one = [(); 32].map(|()| r.next() as u8);
            one[8..12].copy_from_slice(&(layout::VIEW + start).to_le_bytes());
            one[20..24].copy_from_slice(&length.to_le_bytes());
            one[24..26].copy_from_slice(&l3.to_le_bytes());
            one[26..28].copy_from_slice(&l4.to_le_bytes());
            descriptors.extend(one);
        }
        Self { place, count, longest, descriptors }
    }

    fn byte(&self, at: u32) -> u8 {
        let header = at.wrapping_sub(layout::WINDOW + layout::BATCH_OFFSET) as usize;
        let descriptor = at.wrapping_sub(self.place) as usize;
        match (header, descriptor) {
            (0..4, _) => self.place.to_le_bytes()[header],
            (4..8, _) => self.count.to_le_bytes()[header - 4],
            (_, d) if d < self.descriptors.len() => self.descriptors[d],
            _ => (at.wrapping_mul(0x9e37_79b9) >> 24) as u8,
        }
    }
}

/// The largest number of steps of an execution.
pub const FUEL: u64 = 4_000;

/// The size of memory in bytes.
pub const MEMORY: usize = 65_536;

pub struct Machine<'m> {
    pub locals: [u64; LOCALS],
    pub globals: [u64; 4],
    pub memory: &'m mut [u8],
    /// The batch, or `None` in calls without packets.
    pub batch: Option<&'m Batch>,
    /// The last packet that was begun, and the number of begun packets.
    last: Option<u32>,
    pub begun: u64,
    pub executed: u64,
    pub fuel: u64,
}

impl<'m> Machine<'m> {
    pub fn new(locals: [u64; LOCALS], memory: &'m mut [u8], batch: Option<&'m Batch>) -> Self {
        let globals = GLOBALS.map(|g| g.2);
        Self { locals, globals, memory, batch, last: None, begun: 0, executed: 1, fuel: FUEL }
    }

    fn operand(&mut self, of: Operand) -> u64 {
        self.executed += 1;
        match of {
            Operand::Local(n) => self.locals[n],
            Operand::Constant(n) => n,
        }
    }

    pub fn load(&self, at: u64, bytes: usize) -> Option<u64> {
        let end = at + bytes as u64;
        let value = |byte: &dyn Fn(u64) -> u8| (at..end).rev().fold(0, |n, at| n << 8 | u64::from(byte(at)));
        match at {
            _ if end <= MEMORY as u64 => Some(value(&|at| self.memory[at as usize])),
            _ if at >= layout::WINDOW.into() && end <= 1 << 32 => {
                Some(value(&|at| self.batch.map_or(7, |b| b.byte(at as u32))))
            }
            _ => None,
        }
    }

    fn store(&mut self, at: u64, bytes: usize, value: u64) -> Option<()> {
        let place = self.memory.get_mut(usize::try_from(at).ok()?..)?.get_mut(..bytes)?;
        place.copy_from_slice(&value.to_le_bytes()[..bytes]);
        Some(())
    }

    fn set(&mut self, to: usize, value: u64) {
        self.executed += 1;
        self.locals[to] = value & mask(bits(to));
    }

    pub fn run(&mut self, body: &Body<'_>, observer: &mut impl Observer) -> Flow {
        observer.probe(body.first, self);
        for planned in &body.steps {
            match self.step(planned, observer) {
                Some(Flow::Next) => observer.probe(planned.after, self),
                Some(other) => return other,
                None => return Flow::Over,
            }
        }
        Flow::Next
    }

    /// Executes a step; returns `None` if it traps.
    fn step(&mut self, planned: &Planned<'_>, observer: &mut impl Observer) -> Option<Flow> {
        self.fuel = self.fuel.checked_sub(1)?;
        let out = |flow: Flow| match flow {
            Flow::Branch(0) | Flow::Next => Flow::Next,
            Flow::Branch(n) => Flow::Branch(n - 1),
            Flow::Over => Flow::Over,
        };
        match planned.step {
            Step::Binary(of, w, a, b, to) => {
                let (a, b) = (self.operand(*a), self.operand(*b));
                self.executed += 1;
                self.set(*to, compute(*of, a, b, *w)?);
            }
            Step::Unary(of, a, to) => {
                let a = self.operand(*a);
                self.executed += 1;
                self.set(*to, UNARIES[*of].3(a));
            }
            Step::Select(_, a, b, c, to) => {
                let (a, b, c) = (self.operand(*a), self.operand(*b), self.operand(*c));
                self.executed += 1;
                self.set(*to, if c == 0 { b } else { a });
            }
            Step::Set(a, to) => {
                let a = self.operand(*a);
                self.set(*to, a);
            }
            Step::If(c, ..) => {
                let side = usize::from(self.operand(*c) == 0);
                self.executed += 1;
                return Some(out(self.run(&planned.bodies[side], observer)));
            }
            Step::Choose(_, c, a, b, to) => {
                let chosen = if self.operand(*c) == 0 { *b } else { *a };
                self.executed += 1;
                let value = self.operand(chosen);
                self.set(*to, value);
            }
            Step::Block(_) => return Some(out(self.run(&planned.bodies[0], observer))),
            Step::Loop(_) => {
                for iteration in 0.. {
                    observer.head(planned.number, iteration, self);
                    let flow = self.run(&planned.bodies[0], observer);
                    if !matches!(flow, Flow::Branch(0)) {
                        observer.left();
                        return Some(out(flow));
                    }
                }
            }
            Step::Branch(depth) => {
                self.executed += 1;
                return Some(Flow::Branch(*depth));
            }
            Step::BranchIf(depth, c) => {
                let c = self.operand(*c);
                self.executed += 1;
                return Some(if c == 0 { Flow::Next } else { Flow::Branch(*depth) });
            }
            Step::Table(at, targets) => {
                let at = self.operand(*at);
                self.executed += 1;
                // The last target is the default.
                let last = targets.len() - 1;
                return Some(Flow::Branch(targets[usize::try_from(at).map_or(last, |at| at.min(last))]));
            }
            Step::Load(of, at, to) => {
                let at = self.operand(*at) + u64::from(of.offset);
                self.executed += 1;
                let value = self.load(at, of.bytes.into())?;
                self.set(*to, extended(*of, value));
            }
            Step::Store(of, at, value) => {
                let (at, value) = (self.operand(*at), self.operand(*value));
                self.executed += 1;
                self.store(at + u64::from(of.offset), of.bytes.into(), value)?;
            }
            Step::Move(to, a, from, b) => {
                let (to, from) = (self.operand(*to) + u64::from(*a), self.operand(*from) + u64::from(*b));
                self.executed += 2;
                let (low, high) = (self.load(from, 8)?, self.load(from + 8, 8)?);
                self.memory.get(usize::try_from(to).ok()?..)?.get(..16)?;
                self.store(to, 8, low)?;
                self.store(to + 8, 8, high)?;
            }
            Step::GlobalGet(at, to) => {
                self.executed += 1;
                self.set(*to, self.globals[*at]);
            }
            Step::GlobalSet(at, a) => {
                self.globals[*at] = self.operand(*a);
                self.executed += 1;
            }
            Step::Bulk(bulk, n) => {
                let n = self.operand(*n);
                self.executed += if *bulk == Bulk::Grow { 1 } else { 3 };
                match bulk {
                    Bulk::Grow => self.executed += 1024,
                    Bulk::Fill => {
                        self.memory.get_mut(..n as usize)?.fill(0);
                        self.executed += 8 + n / 16;
                    }
                    Bulk::Copy => {
                        self.memory.get(64..64 + n as usize)?;
                        self.memory.copy_within(64..64 + n as usize, 0);
                        self.executed += 120 + 31 * n / 64;
                    }
                }
            }
            Step::Packet(n) => {
                let n = self.operand(*n) as u32;
                self.executed += 1;
                if self.last.is_some_and(|last| n <= last) || n >= self.batch?.count {
                    return None;
                }
                self.last = Some(n);
                self.begun += 1;
            }
            Step::Call(at, a, to) => {
                let a = self.operand(*a);
                let callee = &CALLEES[*at];
                self.executed += 1 + callee.weight;
                self.globals[0] = callee.sets.unwrap_or(self.globals[0]);
                self.set(*to, (callee.of)(a)?);
            }
            Step::Return => return Some(Flow::Over),
            Step::Unreachable => return None,
        }
        Some(Flow::Next)
    }
}

fn extended(of: Access, value: u64) -> u64 {
    let empty = 64 - 8 * u32::from(of.bytes);
    if of.signed { ((value << empty) as i64 >> empty) as u64 } else { value }
}
