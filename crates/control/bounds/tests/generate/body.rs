//! Statements of one function.

use super::choices::Choices;
use super::number::{I32, I64, Width};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The number of locals besides the parameters, of each width.
pub const LOCALS: u64 = 6;

/// The type of an open frame, from outside to inside.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    Block,
    Loop,
}

pub struct Body<'c> {
    pub choices: &'c mut Choices,
    pub out: String,
    pub kinds: &'c mut BTreeSet<&'static str>,
    /// The names of open frames.
    pub frames: Vec<(String, Frame)>,
    /// The locals that count open loops.
    pub busy: Vec<String>,
    /// The conditions that were found to hold on the path to here, as they were written: locals may have
    /// changed since.
    pub known: Vec<String>,
    /// The number of statements that may still be written.
    pub left: u32,
    /// Whether it may trap on purpose. The half that does not reveals faults that are unrelated to traps.
    pub traps: bool,
    /// The range of functions that may be called.
    pub calls: (u64, u64),
    names: u32,
}

impl<'c> Body<'c> {
    pub fn new(
        choices: &'c mut Choices,
        kinds: &'c mut BTreeSet<&'static str>,
        left: u32,
        traps: bool,
        calls: (u64, u64),
    ) -> Self {
        Self {
            choices,
            out: String::new(),
            kinds,
            frames: Vec::new(),
            busy: Vec::new(),
            known: Vec::new(),
            left,
            traps,
            calls,
            names: 0,
        }
    }

    pub fn kind(&mut self, kind: &'static str) {
        self.kinds.insert(kind);
    }

    pub fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    pub fn name(&mut self) -> String {
        self.names += 1;
        format!("$n{}", self.names)
    }

    pub fn parameter(&mut self, w: Width) -> String {
        match w {
            I32 => self.choices.pick(&["$a", "$b"]).to_owned(),
            I64 => "$q".to_owned(),
        }
    }

    pub fn any_local(&mut self, w: Width) -> String {
        let letter = if w == I32 { 'i' } else { 'l' };
        format!("${letter}{}", self.choices.below(LOCALS))
    }

    /// Returns a local to write: rarely the counter of an enclosing loop.
    pub fn free_local(&mut self, w: Width) -> String {
        let mut local = self.any_local(w);
        for _ in 0..LOCALS {
            if !self.busy.contains(&local) || self.choices.chance(3) {
                break;
            }
            local = self.any_local(w);
        }
        local
    }

    pub fn width(&mut self) -> Width {
        if self.choices.chance(35) { I64 } else { I32 }
    }

    /// Writes the output of `inner` in a frame of this kind; passes `inner` its name.
    pub fn frame(&mut self, kind: Frame, inner: impl FnOnce(&mut Self, &str)) {
        let name = self.name();
        let head = if kind == Frame::Block { "block" } else { "loop" };
        writeln!(self.out, "({head} {name}").unwrap();
        self.frames.push((name.clone(), kind));
        inner(self, &name);
        self.frames.pop();
        self.line(")");
    }

    pub fn statements(&mut self, most: u64, depth: u32) {
        for _ in 0..self.choices.below(most + 1) {
            self.statement(depth);
        }
    }

    pub fn statement(&mut self, depth: u32) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        let deep = if depth == 0 { 0 } else { 1 };
        let weights = [
            18,
            26 * deep,
            6 * deep,
            9,
            6 * deep,
            8,
            4,
            if self.traps { 5 } else { 0 },
            3 * deep,
            4,
            3,
            2,
            2,
        ];
        match self.choices.weighted(&weights) {
            0 => {
                let w = self.width();
                let (local, n) = (self.free_local(w), self.number(w, 2));
                writeln!(self.out, "(local.set {local} {n})").unwrap();
            }
            1 => self.counted(depth - 1),
            2 => self.other_loop(depth - 1),
            3 => self.slot(),
            4 => {
                let test = self.condition(2);
                let name = self.name();
                writeln!(self.out, "(if {name} {test} (then").unwrap();
                self.frames.push((name, Frame::Block));
                let known = self.known.len();
                self.known.push(test);
                self.statements(3, depth - 1);
                self.known.truncate(known);
                self.line(") (else");
                self.statements(2, depth - 1);
                self.frames.pop();
                self.line("))");
            }
            5 => self.call(),
            6 => self.jump(),
            7 => self.trap(),
            8 => self.frame(Frame::Block, |body, _| body.statements(3, depth - 1)),
            9 => {
                let (at, w) = (self.choices.below(256), self.width());
                let n = self.number(w, 1);
                let store = match w {
                    I32 => self.choices.pick(&["i32.store8", "i32.store16", "i32.store"]),
                    I64 => self.choices.pick(&["i64.store8", "i64.store32", "i64.store"]),
                };
                writeln!(self.out, "({store} (i32.const {at}) {n})").unwrap();
            }
            10 => self.table(),
            11 => {
                let (value, n) = (self.plain(I32), self.small(I32));
                writeln!(self.out, "(memory.fill (i32.const 64) {value} {n})").unwrap();
            }
            _ => {
                let test = self.condition(1);
                let leave = if self.choices.chance(30) { "(return (local.get $q))" } else { "(br $body)" };
                writeln!(self.out, "(if {test} (then {leave}))").unwrap();
            }
        }
    }

    /// Accesses stack slots: the frame pointer is in `$fp`; other pointers may point to the same slots.
    fn slot(&mut self) {
        self.kind("stack slots");
        let at = 4 * self.choices.below(5);
        let pointer = match self.choices.chance(30) {
            true => format!("(i32.add (local.get $fp) (i32.and {} (i32.const 15)))", self.plain(I32)),
            false => "(local.get $fp)".to_owned(),
        };
        let w = self.width();
        if self.choices.chance(50) {
            let load = match w {
                I32 => self.choices.pick(&["i32.load", "i32.load8_u", "i32.load16_s"]),
                I64 => self.choices.pick(&["i64.load", "i64.load32_s", "i64.load32_u"]),
            };
            let local = self.free_local(w);
            writeln!(self.out, "(local.set {local} ({load} offset={at} {pointer}))").unwrap();
        } else {
            let store = match w {
                I32 => self.choices.pick(&["i32.store", "i32.store8"]),
                I64 => self.choices.pick(&["i64.store", "i64.store32"]),
            };
            let n = self.number(w, 1);
            writeln!(self.out, "({store} offset={at} {pointer} {n})").unwrap();
        }
    }

    fn call(&mut self) {
        let (from, to) = self.calls;
        if from >= to {
            return;
        }
        let arguments = format!("{} {} {}", self.number(I32, 1), self.small(I32), self.number(I64, 1));
        let function = from + self.choices.below(to - from);
        let local = self.free_local(I64);
        if self.choices.chance(20) {
            self.kind("call_indirect");
            // Places of functions that must not be called trap: they are empty.
            let place = match self.choices.chance(50) {
                true => format!("(i32.const {function})"),
                false => format!("(i32.or (i32.const {from}) (i32.and {} (i32.const 3)))", self.plain(I32)),
            };
            writeln!(self.out, "(local.set {local} (call_indirect (type $t) {arguments} {place}))").unwrap();
        } else {
            self.kind("call");
            writeln!(self.out, "(local.set {local} (call $f{function} {arguments}))").unwrap();
        }
    }

    /// Jumps to an enclosing frame that need not be left by counting; rarely to a loop's head.
    fn jump(&mut self) {
        let back = self.choices.chance(8);
        let wanted = if back { Frame::Loop } else { Frame::Block };
        let targets: Vec<String> =
            self.frames.iter().filter(|(_, kind)| *kind == wanted).map(|(name, _)| name.clone()).collect();
        if targets.is_empty() {
            return;
        }
        if back {
            self.kind("back edge without a step");
        }
        let target = &targets[self.choices.below(targets.len() as u64) as usize];
        let test = self.condition(1);
        match self.choices.chance(85) {
            true => {
                writeln!(self.out, "(br_if {target} {test})").unwrap();
                self.known.push(format!("(i32.eqz {test})"));
            }
            false => {
                self.kind("unconditional branch");
                writeln!(self.out, "(if {test} (then (br {target})))").unwrap();
            }
        }
    }

    /// Writes a trap under some condition; sometimes after work.
    fn trap(&mut self) {
        self.kind("trap");
        let test = self.condition(1);
        writeln!(self.out, "(if {test} (then").unwrap();
        if self.choices.chance(40) {
            self.kind("work before a trap");
            self.statements(2, 1);
        }
        match self.choices.below(4) {
            0 => self.line("(unreachable)"),
            1 => self.line("(drop (i32.div_u (i32.const 1) (i32.const 0)))"),
            2 => self.line("(drop (i32.load (i32.const 0x7fffff00)))"),
            _ => self.line("(i32.store8 (i32.const 0x7fffff00) (i32.const 1)) (unreachable)"),
        }
        self.line("))");
    }

    /// Writes a `br_table` over enclosing frames.
    fn table(&mut self) {
        let targets: Vec<String> =
            self.frames.iter().filter(|(_, k)| *k == Frame::Block).map(|(name, _)| name.clone()).collect();
        if targets.is_empty() {
            return;
        }
        self.kind("br_table");
        let some: Vec<String> = (0..1 + self.choices.below(4))
            .map(|_| targets[self.choices.below(targets.len() as u64) as usize].clone())
            .collect();
        let (test, index) = (self.condition(1), self.number(I32, 1));
        writeln!(self.out, "(if {test} (then (br_table {} {index})))", some.join(" ")).unwrap();
    }
}
