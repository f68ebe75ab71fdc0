//! Random small programs: their representation, their form in WebAssembly, and their execution.

pub mod execute;
pub mod random;
mod write;

use flame_verify::value::{mask, signed};
pub use random::Random;
pub use write::wasm;

macro_rules! binaries {
    ($($name:ident $text:literal $of:expr;)*) => {
        /// Operations of two operands: their names, and their results, which are `None` if they trap.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Binary { $($name),* }
        pub const BINARIES: &[Binary] = &[$(Binary::$name),*];
        pub fn text(of: Binary) -> &'static str {
            match of { $(Binary::$name => $text),* }
        }
        pub fn compute(of: Binary, a: u64, b: u64, bits: u8) -> Option<u64> {
            match of { $(Binary::$name => { let f: fn(u64, u64, u8) -> Option<u64> = $of; f(a, b, bits) }),* }
        }
    };
}
fn n(b: u64, bits: u8) -> u32 {
    (b % u64::from(bits)) as u32
}
fn rotated(a: u64, by: u32, bits: u8) -> u64 {
    if bits == 32 { (a as u32).rotate_left(by).into() } else { a.rotate_left(by) }
}
fn divided(a: u64, b: u64, bits: u8, f: fn(i128, i128) -> i128) -> Option<u64> {
    let (a, b) = (signed(a, bits), signed(b, bits));
    (b != 0).then(|| f(a, b)).filter(|n| *n < 1 << (bits - 1)).map(|n| n as u64)
}
binaries! {
    Add "add" |a, b, _| Some(a.wrapping_add(b));
    Sub "sub" |a, b, _| Some(a.wrapping_sub(b));
    Mul "mul" |a, b, _| Some(a.wrapping_mul(b));
    Shl "shl" |a, b, w| Some(a << n(b, w));
    Shr "shr_u" |a, b, w| Some(a >> n(b, w));
    ShrS "shr_s" |a, b, w| Some((signed(a, w) >> n(b, w)) as u64);
    Rotl "rotl" |a, b, w| Some(rotated(a, n(b, w), w));
    Rotr "rotr" |a, b, w| Some(rotated(a, (u32::from(w) - n(b, w)) % u32::from(w), w));
    Div "div_u" |a, b, _| a.checked_div(b);
    DivS "div_s" |a, b, w| divided(a, b, w, |a, b| a / b);
    Rem "rem_u" |a, b, _| a.checked_rem(b);
    RemS "rem_s" |a, b, w| divided(a, b, w, |a, b| a % b);
    And "and" |a, b, _| Some(a & b);
    Or "or" |a, b, _| Some(a | b);
    Xor "xor" |a, b, _| Some(a ^ b);
    Eq "eq" |a, b, _| Some(u64::from(a == b));
    Ne "ne" |a, b, _| Some(u64::from(a != b));
    LtU "lt_u" |a, b, _| Some(u64::from(a < b));
    GtU "gt_u" |a, b, _| Some(u64::from(a > b));
    LeU "le_u" |a, b, _| Some(u64::from(a <= b));
    GeU "ge_u" |a, b, _| Some(u64::from(a >= b));
    LtS "lt_s" |a, b, w| Some(u64::from(signed(a, w) < signed(b, w)));
    GtS "gt_s" |a, b, w| Some(u64::from(signed(a, w) > signed(b, w)));
    LeS "le_s" |a, b, w| Some(u64::from(signed(a, w) <= signed(b, w)));
    GeS "ge_s" |a, b, w| Some(u64::from(signed(a, w) >= signed(b, w)));
}

impl Binary {
    pub fn is_comparison(self) -> bool {
        self as usize >= Self::Eq as usize
    }
}

/// Operations of one operand: name, bits of the operand, bits of the result, function.
pub type Unary = (&'static str, u8, u8, fn(u64) -> u64);
pub const UNARIES: &[Unary] = &[
    ("i32.eqz", 32, 32, |a| u64::from(a == 0)),
    ("i64.eqz", 64, 32, |a| u64::from(a == 0)),
    ("i32.clz", 32, 32, |a| (a as u32).leading_zeros().into()),
    ("i64.clz", 64, 64, |a| a.leading_zeros().into()),
    ("i32.ctz", 32, 32, |a| (a as u32).trailing_zeros().into()),
    ("i64.ctz", 64, 64, |a| a.trailing_zeros().into()),
    ("i32.popcnt", 32, 32, |a| a.count_ones().into()),
    ("i64.popcnt", 64, 64, |a| a.count_ones().into()),
    ("i32.wrap_i64", 64, 32, |a| a),
    ("i64.extend_i32_u", 32, 64, |a| a),
    ("i64.extend_i32_s", 32, 64, |a| i64::from(a as i32) as u64),
    ("i32.extend8_s", 32, 32, |a| i64::from(a as i8) as u64),
    ("i32.extend16_s", 32, 32, |a| i64::from(a as i16) as u64),
    ("i64.extend8_s", 64, 64, |a| i64::from(a as i8) as u64),
    ("i64.extend16_s", 64, 64, |a| i64::from(a as i16) as u64),
    ("i64.extend32_s", 64, 64, |a| i64::from(a as i32) as u64),
];

/// The number of locals. Local 0 is the address of the batch; 0..6 are `i32`, 6..12 `i64`; of each the last
/// four are written at random.
pub const LOCALS: usize = 12;
/// The local that holds the address of the descriptors or of one.
pub const PLACE: usize = 1;
pub fn bits(local: usize) -> u8 {
    if local < LOCALS / 2 { 32 } else { 64 }
}
/// Globals 0 (`i32`) and 1 (`i64`) are mutable, 2 (`i32`) and 3 (`i64`) are not.
pub const GLOBALS: [(u8, bool, u64); 4] =
    [(32, true, 5), (64, true, 6), (32, false, 1234), (64, false, u64::MAX - 1)];

#[derive(Clone, Copy, Debug)]
pub enum Operand {
    Local(usize),
    Constant(u64),
}

/// The properties of a load or store: bits of its value, bytes, whether it extends the sign.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub bits: u8,
    pub bytes: u8,
    pub signed: bool,
    pub offset: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bulk {
    Fill,
    Copy,
    Grow,
}

#[derive(Clone, Debug)]
pub enum Step {
    Binary(Binary, u8, Operand, Operand, usize),
    Unary(usize, Operand, usize),
    Select(u8, Operand, Operand, Operand, usize),
    Set(Operand, usize),
    If(Operand, Vec<Step>, Vec<Step>),
    /// An `if` with a result.
    Choose(u8, Operand, Operand, Operand, usize),
    Block(Vec<Step>),
    Loop(Vec<Step>),
    Branch(u32),
    BranchIf(u32, Operand),
    Table(Operand, Vec<u32>),
    Load(Access, Operand, usize),
    Store(Access, Operand, Operand),
    /// Moves sixteen bytes from the second place to the first.
    Move(Operand, u32, Operand, u32),
    GlobalGet(usize, usize),
    GlobalSet(usize, Operand),
    Bulk(Bulk, Operand),
    Packet(Operand),
    Call(usize, Operand, usize),
    Return,
    Unreachable,
}

/// Functions that may be called, from one `i32` to one: their text, their result, their executed
/// instructions, and whether they set the first global.
pub struct Callee {
    pub text: &'static str,
    pub of: fn(u64) -> Option<u64>,
    pub weight: u64,
    pub sets: Option<u64>,
}
pub const CALLEES: &[Callee] = &[
    Callee { text: "(i32.and (local.get 0) (i32.const 7))", of: |n| Some(n & 7), weight: 4, sets: None },
    Callee { text: "(drop (i32.const 1)) unreachable", of: |_| None, weight: 2, sets: None },
    Callee {
        text: "(global.set 0 (i32.const 77)) (i32.add (local.get 0) (i32.const 1))",
        of: |n| Some((n + 1) & mask(32)),
        weight: 6,
        sets: Some(77),
    },
    Callee {
        text: "(if (result i32) (i32.lt_u (local.get 0) (i32.const 9)) (then (i32.const 3)) (else (return (local.get 0))))",
        of: |n| Some(if n < 9 { 3 } else { n }),
        weight: 6,
        sets: None,
    },
];

pub struct Generator<'r> {
    pub r: &'r mut Random,
    /// The open frames, the innermost last: whether each is a loop.
    frames: Vec<bool>,
}

impl Generator<'_> {
    pub fn program(r: &mut Random) -> Vec<Step> {
        let mut generator = Generator { r, frames: Vec::new() };
        let length = 2 + generator.r.below(12);
        generator.steps(length, 2)
    }

    fn local(&mut self, width: u8, written: bool) -> usize {
        let base = if width == 32 { 0 } else { LOCALS / 2 };
        base + if written { 2 + self.r.below(4) } else { self.r.below(6) }
    }

    fn operand(&mut self, width: u8) -> Operand {
        match self.r.below(3) {
            0 => Operand::Constant(self.r.number() & mask(width)),
            _ => Operand::Local(self.local(width, false)),
        }
    }

    fn steps(&mut self, length: usize, depth: usize) -> Vec<Step> {
        let mut all = Vec::new();
        while all.len() < length {
            self.step(&mut all, depth);
        }
        all
    }

    fn inside(&mut self, is_loop: bool, length: usize, depth: usize) -> Vec<Step> {
        self.frames.push(is_loop);
        let body = self.steps(length, depth);
        self.frames.pop();
        body
    }

    /// Returns a frame further out that is not a loop, by its depth; one more is the function.
    fn target(&mut self) -> u32 {
        let outward: Vec<u32> =
            self.frames.iter().rev().enumerate().filter(|(_, l)| !**l).map(|(n, _)| n as u32).collect();
        if outward.is_empty() { self.frames.len() as u32 } else { self.r.one(&outward) }
    }

    fn step(&mut self, all: &mut Vec<Step>, depth: usize) {
        use Operand::{Constant, Local};
        let width = if self.r.below(3) == 0 { 64 } else { 32 };
        match self.r.below(40) {
            0..4 => {
                let at = self.r.below(UNARIES.len());
                all.push(Step::Unary(at, self.operand(UNARIES[at].1), self.local(UNARIES[at].2, true)));
            }
            4..6 => {
                let (a, b) = (self.operand(width), self.operand(width));
                // Mostly a minimum or maximum: a comparison of the values that it chooses.
                let c = if self.r.below(4) > 0 {
                    let of = BINARIES[Binary::Eq as usize + self.r.below(10)];
                    let c = self.local(32, true);
                    all.push(Step::Binary(of, width, a, b, c));
                    Local(c)
                } else {
                    self.operand(32)
                };
                all.push(Step::Select(width, a, b, c, self.local(width, true)));
            }
            6 => {
                let (a, b, c) = (self.operand(width), self.operand(width), self.operand(32));
                all.push(Step::Choose(width, c, a, b, self.local(width, true)));
            }
            7..10 if depth > 0 => {
                let c = self.operand(32);
                let then = self.inside(false, 3, depth - 1);
                let or = if self.r.below(3) == 0 { Vec::new() } else { self.inside(false, 3, depth - 1) };
                all.push(Step::If(c, then, or));
            }
            10..12 if depth > 0 => all.push(Step::Block(self.inside(false, 4, depth - 1))),
            12..14 if depth > 0 => self.counted(all, depth),
            14 if depth > 0 => self.shrinking(all, depth),
            15 if !self.frames.is_empty() => {
                let c = self.operand(32);
                all.push(Step::BranchIf(self.target(), c));
            }
            16 if !self.frames.is_empty() => {
                self.frames.push(false);
                let targets = (0..1 + self.r.below(4)).map(|_| self.target()).collect();
                self.frames.pop();
                let at = self.operand(32);
                // The code after it is not reached.
                all.push(Step::Block(vec![
                    Step::BranchIf(0, Local(self.local(32, false))),
                    Step::Table(at, targets),
                ]));
            }
            17..20 => self.memory(all),
            20 | 21 => self.descriptor(all, depth),
            22 => all.push(Step::GlobalGet(self.r.below(2) + 2 * self.r.below(2), 0)),
            23 => {
                let at = self.r.below(2);
                all.push(Step::GlobalSet(at, self.operand(GLOBALS[at].0)));
            }
            24 if self.r.below(4) == 0 => {
                let bulk = self.r.one(&[Bulk::Fill, Bulk::Copy, Bulk::Grow]);
                all.push(Step::Bulk(bulk, self.operand(32)));
            }
            25 => {
                let at = self.r.below(CALLEES.len() * 2);
                // Functions that do not return end the program, so they are rare.
                let at = if at >= CALLEES.len() { 3 } else { at };
                all.push(Step::Call(at, self.operand(32), self.local(32, true)));
            }
            26 => all.push(Step::Set(self.operand(width), self.local(width, true))),
            27 if self.r.below(6) == 0 => {
                let c = Local(self.local(32, false));
                let end = self.r.one(&[0, 1, 2]);
                let end = match end {
                    0 => Step::Return,
                    1 => Step::Unreachable,
                    _ => Step::Packet(self.operand(32)),
                };
                self.frames.push(false);
                all.push(Step::If(c, vec![end], Vec::new()));
                self.frames.pop();
            }
            // A value is compared, and one side knows more of it: facts about values that are used.
            28..31 if depth > 0 => {
                let of = BINARIES[Binary::Eq as usize + self.r.below(10)];
                let (a, b, c) = (self.operand(width), self.operand(width), self.local(32, true));
                all.push(Step::Binary(of, width, a, b, c));
                let (then, or) = (self.inside(false, 3, depth - 1), self.inside(false, 2, depth - 1));
                all.push(Step::If(Local(c), then, or));
            }
            // A small value, so that more is known.
            31 | 32 => {
                let to = self.local(width, true);
                let most = self.r.one(&[1, 7, 0xff, 0xf0, 0xffff, 0xfffe]);
                let a = self.operand(width);
                all.push(Step::Binary(Binary::And, width, a, Constant(most), to));
            }
            _ => {
                let of = self.r.one(BINARIES);
                let result = if of.is_comparison() { 32 } else { width };
                let (a, b) = (self.operand(width), self.operand(width));
                all.push(Step::Binary(of, width, a, b, self.local(result, true)));
            }
        }
        // The target of a `global.get` has the width of the global.
        if let Some(Step::GlobalGet(at, to)) = all.last_mut() {
            let (bits, at) = (GLOBALS[*at].0, *at);
            *to = self.local(bits, true);
            all.last_mut().into_iter().for_each(|s| {
                if let Step::GlobalGet(a, _) = s {
                    *a = at;
                }
            });
        }
    }

    /// Generates `while c < n { c += step; … }` in one of its forms.
    fn counted(&mut self, all: &mut Vec<Step>, depth: usize) {
        use Operand::{Constant, Local};
        let width = self.r.one(&[32, 32, 64]);
        let counter = self.local(width, true);
        let by = self.r.one(&[1, 1, 1, 2, 3, 7, mask(width), mask(width) - 1]);
        let from = self.r.one(&[0, 0, 1, 40, 100]);
        all.push(Step::Set(Constant(from), counter));
        let limit = match self.r.below(3) {
            0 => Constant(self.r.one(&[0, 1, 2, 10, 40, 64, 255])),
            _ => Local(self.local(width, false)),
        };
        let mut body = self.inside(true, 1 + self.r.0 as usize % 3, depth - 1);
        let of = self.r.one(&[
            Binary::LtU,
            Binary::LtU,
            Binary::Ne,
            Binary::LeU,
            Binary::GtU,
            Binary::GeU,
            Binary::LtS,
            Binary::GtS,
            Binary::Eq,
        ]);
        let flag = loop {
            let flag = self.local(32, true);
            if flag != counter {
                break flag;
            }
        };
        let add = Step::Binary(Binary::Add, width, Local(counter), Constant(by), counter);
        let test = Step::Binary(of, width, Local(counter), limit, flag);
        if self.r.below(2) == 0 {
            body.extend([add, test, Step::BranchIf(0, Local(flag))]);
        } else {
            // The test at the head, and perhaps a second back edge.
            let mut whole =
                vec![test, Step::Unary(0, Local(flag), flag), Step::BranchIf(1, Local(flag)), add];
            let at = self.r.below(body.len() + 1);
            let back = self.r.below(3) == 0;
            for (n, step) in body.into_iter().enumerate() {
                if back && n == at {
                    let c = self.operand(32);
                    whole.push(Step::BranchIf(0, c));
                }
                whole.push(step);
            }
            whole.push(Step::Branch(0));
            all.push(Step::Block(vec![Step::Loop(whole)]));
            return;
        }
        all.push(Step::Loop(body));
    }

    /// Generates a loop that iterates over the bits of a local, or halves it.
    fn shrinking(&mut self, all: &mut Vec<Step>, depth: usize) {
        use Operand::{Constant, Local};
        let width = self.r.one(&[32, 64]);
        let of = self.local(width, true);
        let other = self.local(width, true);
        let mut body = if self.r.below(3) == 0 { self.inside(true, 1, depth - 1) } else { Vec::new() };
        match self.r.below(4) {
            0 => body.push(Step::Binary(Binary::Shr, width, Local(of), Constant(self.r.one(&[1, 2, 0])), of)),
            1 => {
                body.push(Step::Binary(Binary::Div, width, Local(of), Constant(self.r.one(&[2, 10, 1])), of))
            }
            _ => {
                let by = self.r.one(&[1, 1, 1, 2]);
                body.push(Step::Binary(Binary::Sub, width, Local(of), Constant(by), other));
                body.push(Step::Binary(Binary::And, width, Local(of), Local(other), of));
            }
        }
        let flag = self.local(32, true);
        if self.r.below(2) == 0 && width == 32 {
            body.push(Step::BranchIf(0, Local(of)));
        } else {
            body.push(Step::Binary(Binary::Ne, width, Local(of), Constant(0), flag));
            body.push(Step::BranchIf(0, Local(flag)));
        }
        all.push(Step::Loop(body));
    }

    fn access(&mut self, width: u8) -> Access {
        let widths: &[u8] = if width == 32 { &[1, 2, 4, 4, 4] } else { &[1, 2, 4, 8, 8, 8] };
        let bytes = self.r.one(widths);
        let signed = bytes * 8 < width && self.r.below(2) == 0;
        Access { bits: width, bytes, signed, offset: self.r.one(&[0, 0, 0, 0, 4, 8, 16, u32::MAX]) }
    }

    /// Returns a place, more often one of two, so that stores and loads meet.
    fn place(&mut self) -> Operand {
        match self.r.below(6) {
            0 => Operand::Constant(self.r.one(&[4, 12, 16, 60_000])),
            1..4 => Operand::Constant(self.r.one(&[0, 8])),
            _ => Operand::Local(self.local(32, false)),
        }
    }

    fn memory(&mut self, all: &mut Vec<Step>) {
        let width = self.r.one(&[32, 64]);
        let (access, at) = (self.access(width), self.place());
        let load = Step::Load(access, at, self.local(width, true));
        match self.r.below(6) {
            0 => {}
            1..4 => all.push(Step::Store(access, at, self.operand(width))),
            // On one side of a condition, or another value on each.
            _ => {
                let c = self.operand(32);
                let or = if self.r.below(3) == 0 {
                    None
                } else {
                    Some(Step::Store(access, at, self.operand(width)))
                };
                all.push(Step::If(
                    c,
                    vec![Step::Store(access, at, self.operand(width))],
                    or.into_iter().collect(),
                ));
            }
        }
        if self.r.below(3) > 0 {
            all.push(load);
        }
    }

    /// Generates loads from the batch: its header, one of its descriptors, or a copy of one.
    fn descriptor(&mut self, all: &mut Vec<Step>, depth: usize) {
        use Operand::{Constant, Local};
        let word = Access { bits: 32, bytes: 4, signed: false, offset: 0 };
        let (index, count) = (self.local(32, true), self.local(32, true));
        all.push(Step::Load(Access { offset: 4, ..word }, Local(0), count));
        if self.r.below(3) == 0 {
            return;
        }
        let flag = self.local(32, true);
        all.push(Step::Binary(Binary::LtU, 32, Local(index), Local(count), flag));
        let mut body = Vec::new();
        body.push(Step::Load(word, Local(0), PLACE));
        let scale = if self.r.below(4) == 0 {
            Step::Binary(Binary::Mul, 32, Local(index), Constant(32), count)
        } else {
            Step::Binary(Binary::Shl, 32, Local(index), Constant(5), count)
        };
        body.extend([scale, Step::Binary(Binary::Add, 32, Local(PLACE), Local(count), PLACE)]);
        if self.r.below(3) == 0 {
            let (from, to) = (self.r.one(&[0, 8, 12, 16]), self.r.one(&[0, 64]));
            body.push(Step::Move(Constant(256), to, Local(PLACE), from));
            let at = self.r.one(&[8, 20, 24, 26]) + to;
            let offset = at.wrapping_sub(from).wrapping_add(256);
            let bytes = if self.r.below(2) == 0 { 4 } else { 2 };
            body.push(Step::Load(Access { offset, bytes, ..word }, Constant(0), self.local(32, true)));
        }
        for _ in 0..1 + self.r.below(3) {
            let (offset, bytes) =
                self.r.one(&[(8, 4), (20, 4), (20, 4), (24, 2), (26, 2), (0, 8), (16, 4), (28, 1)]);
            let width = if bytes == 8 { 64 } else { self.r.one(&[32, 32, 64]) };
            body.push(Step::Load(
                Access { bits: width, bytes, signed: false, offset },
                Local(PLACE),
                self.local(width, true),
            ));
        }
        if depth > 0 {
            self.frames.push(false);
            body.extend(self.steps(2, depth - 1));
            self.frames.pop();
        }
        all.push(Step::If(Local(flag), body, Vec::new()));
    }
}
