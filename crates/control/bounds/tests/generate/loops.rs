//! Loops: counted ones in every shape, most of them with an end, and others that end by computed values.

use super::body::{Body, Frame};
use super::number::{COMPARES, DOWN, I32, I64, UP, Width};
use std::fmt::Write as _;

/// The place where a counted loop exits or continues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// `do … while`.
    Bottom,
    /// Exit at the top, with an unconditional branch back.
    Top,
    /// Exit in the middle.
    Middle,
    /// `if (test) goto head`.
    If,
    /// Exit by a table.
    Table,
    /// Exit from an inner block.
    Inner,
}

impl Body<'_> {
    /// Writes a loop that counts.
    pub fn counted(&mut self, depth: u32) {
        let busy = self.busy.len();
        let w = self.width();
        let n = w.name();
        let i = self.free_local(w);
        let down = self.choices.chance(40);
        let size = match self.choices.weighted(&[50, 35, 7, 8]) {
            0 => 1,
            1 => self.choices.pick(&[2, 3, 4, 7, 8, 16, 32]),
            2 => self.choices.below(200),
            // Steps that wrap around once or twice.
            _ => self.choices.border(w.bits()),
        };
        let from = match (down, self.choices.weighted(&[55, 20, 15, 10])) {
            (false, 0) => w.constant(0),
            (true, 0) | (_, 1) => self.small(w),
            (_, 2) => w.constant(self.choices.border(w.bits())),
            _ => self.number(w, 1),
        };
        // Once or twice through all numbers, in few steps.
        let coarse = self.choices.chance(10);
        let (size, from) = match coarse {
            true => {
                self.kind("coarse steps");
                let size = 1 << (w.bits() - 4 - self.choices.below(8) as u32);
                (size, w.constant(self.choices.pick(&[0, 1, size, size.wrapping_neg()])))
            }
            false => (size, from),
        };
        let mut to = match (down, self.choices.weighted(&[55, 15, 20, 10])) {
            (true, 0) => w.constant(0),
            (false, 0) | (_, 1) => self.small(w),
            (_, 2) => w.constant(self.choices.border(w.bits())),
            _ => self.number(w, 1),
        };
        if coarse {
            let half = 1 << (w.bits() - 1);
            to = w.constant(self.choices.pick(&[
                half,
                half,
                0,
                half - 1,
                half + 1,
                size.wrapping_neg(),
                u64::MAX,
            ]));
        }
        // The end is usually computed before the loop begins.
        if self.choices.chance(60) {
            let end = self.free_local(w);
            if end != i {
                writeln!(self.out, "(local.set {end} {to})").unwrap();
                to = format!("(local.get {end})");
                self.busy.push(end);
            }
        } else if !self.busy.is_empty() && self.choices.chance(25) {
            // The end is the end of an enclosing loop.
            let letter = if w == I32 { "$i" } else { "$l" };
            if let Some(outer) = self.busy.iter().find(|b| b.starts_with(letter) && **b != i) {
                to = format!("(local.get {outer})");
                self.kinds.insert("end that depends on an outer loop");
            }
        }
        let compare = match self.choices.weighted(&[92, 8]) {
            0 => self.choices.pick(if down { &DOWN } else { &UP }),
            _ => self.choices.below(10) as usize,
        };
        writeln!(self.out, "(local.set {i} {from})").unwrap();
        self.busy.push(i.clone());
        let sum = match down != self.choices.chance(4) {
            true if self.choices.chance(50) => {
                format!("({n}.add (local.get {i}) {})", w.constant(size.wrapping_neg()))
            }
            true => format!("({n}.sub (local.get {i}) {})", w.constant(size)),
            false => format!("({n}.add (local.get {i}) {})", w.constant(size)),
        };
        let tee = self.choices.chance(35);
        let now = if tee { format!("(local.tee {i} {sum})") } else { format!("(local.get {i})") };
        let test = self.comparison(w, compare, &now, &to);
        let opposite = self.opposite(w, compare, &now, &to);
        let test = self.dressed(test, &opposite);
        let step = (!tee).then(|| format!("(local.set {i} {sum})"));
        let at_end = self.choices.chance(60);
        let shape = match self.choices.weighted(&[40, 18, 9, 10, 8, 8]) {
            0 => Shape::Bottom,
            1 => Shape::Top,
            2 => Shape::Middle,
            3 => Shape::If,
            4 => Shape::Table,
            _ => Shape::Inner,
        };
        let endless = self.choices.chance(2);
        let first = self.choices.chance(30);
        self.frame(Frame::Block, |body, out| {
            body.frame(Frame::Loop, |body, head| {
                let step = |body: &mut Self, here: bool| {
                    if let Some(step) = step.as_ref().filter(|_| here) {
                        body.line(step);
                    }
                };
                let inside = |body: &mut Self| {
                    body.statements(3, depth);
                    body.other_back_edge(w, &i, head, coarse);
                };
                if shape == Shape::Top {
                    writeln!(body.out, "(br_if {out} (i32.eqz {test}))").unwrap();
                }
                step(body, !at_end);
                if shape != Shape::Middle || first {
                    inside(body);
                }
                step(body, at_end && shape != Shape::Middle);
                match shape {
                    Shape::Top => writeln!(body.out, "(br {head})").unwrap(),
                    Shape::Bottom if endless => {
                        body.kinds.insert("unconditional branch");
                        writeln!(body.out, "{test} (br {head})").unwrap();
                    }
                    Shape::Bottom => writeln!(body.out, "(br_if {head} {test})").unwrap(),
                    Shape::Middle => {
                        writeln!(body.out, "(br_if {out} (i32.eqz {test}))").unwrap();
                        step(body, at_end);
                        if !first {
                            inside(body);
                        }
                        writeln!(body.out, "(br {head})").unwrap();
                    }
                    Shape::If => writeln!(body.out, "(if {test} (then (br {head})))").unwrap(),
                    Shape::Table => {
                        body.kinds.insert("br_table");
                        writeln!(body.out, "(br_table {head} {out} (i32.eqz {test}))").unwrap();
                    }
                    Shape::Inner => {
                        body.frame(Frame::Block, |body, inner| {
                            writeln!(body.out, "(br_if {inner} (i32.eqz {test})) (br {head})").unwrap();
                        });
                    }
                }
            });
            // An exit that only leads to a trap, or past it if the loop fell through.
            if body.traps && body.choices.chance(6) {
                body.kinds.insert("exit to a trap");
                body.line("(unreachable)");
            }
        });
        self.busy.truncate(busy);
    }

    /// Writes another back edge, with or without a separate step.
    fn other_back_edge(&mut self, w: Width, i: &str, head: &str, coarse: bool) {
        if !self.choices.chance(if coarse { 50 } else { 12 }) {
            return;
        }
        self.kind("several back edges");
        let n = w.name();
        let half = 1 << (w.bits() - 1);
        let to = match self.choices.weighted(&[40, 40, 20]) {
            0 if !coarse => self.small(w),
            0 | 1 => w.constant(self.choices.pick(&[0, half, half - 1, u64::MAX])),
            _ => w.constant(self.choices.border(w.bits())),
        };
        let by = match self.choices.weighted(&[40, 35, 25]) {
            0 => 0,
            1 if coarse => 1 << (w.bits() - 4 - self.choices.below(8) as u32),
            1 => self.choices.pick(&[1, u64::MAX, 2, u64::MAX - 1, 4]),
            _ => self.choices.border(w.bits()),
        };
        let mut compare = self.choices.pick(&COMPARES).0;
        let mut to = to;
        if coarse && self.choices.chance(60) {
            // One half of all numbers or the other, signed or unsigned.
            let (by_half, at) =
                self.choices.pick(&[("lt_s", 0), ("lt_u", half), ("ge_s", 0), ("ge_u", half)]);
            (compare, to) = (by_half, w.constant(at));
        }
        let next = format!("({n}.add (local.get {i}) {})", w.constant(by));
        match self.choices.below(if by == 0 { 1 } else { 3 }) {
            0 => writeln!(self.out, "(br_if {head} ({n}.{compare} (local.get {i}) {to}))"),
            1 => writeln!(
                self.out,
                "(if ({n}.{compare} (local.get {i}) {to}) (then (local.set {i} {next}) (br {head})))"
            ),
            _ => writeln!(self.out, "(br_if {head} ({n}.{compare} (local.tee {i} {next}) {to}))"),
        }
        .unwrap();
    }

    /// Compares `a` with `b`, of width `w`; sometimes with the operands swapped, or in the other width.
    fn comparison(&mut self, w: Width, compare: usize, a: &str, b: &str) -> String {
        let (name, swapped, _) = COMPARES[compare];
        match self.choices.weighted(&[68, 18, 14]) {
            0 => format!("({}.{name} {a} {b})", w.name()),
            1 => format!("({}.{swapped} {b} {a})", w.name()),
            _ => {
                self.kind("mixed widths");
                match w {
                    I32 => {
                        let (x, y) = (self.choices.pick(&["u", "s"]), self.choices.pick(&["u", "s"]));
                        format!("(i64.{name} (i64.extend_i32_{x} {a}) (i64.extend_i32_{y} {b}))")
                    }
                    I64 => format!("(i32.{name} (i32.wrap_i64 {a}) (i32.wrap_i64 {b}))"),
                }
            }
        }
    }

    fn opposite(&mut self, w: Width, compare: usize, a: &str, b: &str) -> String {
        format!("({}.{} {a} {b})", w.name(), COMPARES[compare].2)
    }

    /// Writes loops that do not count: halving, clearing bits, dividing, varying strides, remainders.
    pub fn other_loop(&mut self, depth: u32) {
        let busy = self.busy.len();
        let w = self.width();
        let n = w.name();
        let (x, y) = (self.free_local(w), self.free_local(w));
        let from = self.number(w, 1);
        writeln!(self.out, "(local.set {x} {from})").unwrap();
        self.busy.push(x.clone());
        let which = self.choices.weighted(&[30, 25, 15, 20, 10]);
        self.kind(["halving", "clearing", "dividing", "strides", "remainders"][which]);
        let at_top = self.choices.chance(40);
        let next = match which {
            0 => format!(
                "({n}.{} (local.get {x}) {})",
                self.choices.pick(&["shr_u", "shr_u", "shr_u", "shr_s"]),
                w.constant(self.choices.pick(&[1, 1, 1, 2, 3, 0, 8, 31, 32, 64]))
            ),
            1 => match self.choices.chance(70) {
                true => format!("({n}.and (local.get {x}) ({n}.sub (local.get {x}) {}))", w.constant(1)),
                // Clears the lowest bit.
                false => format!(
                    "({n}.xor (local.get {x}) ({n}.and (local.get {x}) ({n}.sub {} (local.get {x}))))",
                    w.constant(0)
                ),
            },
            2 => {
                format!("({n}.div_u (local.get {x}) {})", w.constant(self.choices.pick(&[2, 3, 10, 1, 255])))
            }
            3 => {
                let least = self.choices.below(4);
                let stride = format!(
                    "({n}.add ({n}.and {} {}) {})",
                    self.plain(w),
                    w.constant(self.choices.pick(&[7, 15, 63])),
                    w.constant(least)
                );
                writeln!(self.out, "(local.set {y} {stride})").unwrap();
                self.busy.push(y.clone());
                format!("({n}.{} (local.get {x}) (local.get {y}))", self.choices.pick(&["sub", "add"]))
            }
            _ => format!("({n}.rem_u {} (local.get {x}))", self.plain(w)),
        };
        let end = w.constant(if self.choices.chance(80) { 0 } else { self.choices.border(w.bits()) });
        let compare = match which {
            3 => self.choices.pick(&COMPARES).0,
            _ => self.choices.pick(&["ne", "ne", "gt_u", "gt_s"]),
        };
        let test = format!("({n}.{compare} (local.get {x}) {end})");
        let opposite = format!("(i32.eqz {test})");
        let test = self.dressed(test, &opposite);
        self.frame(Frame::Block, |body, out| {
            body.frame(Frame::Loop, |body, head| {
                if at_top {
                    writeln!(body.out, "(br_if {out} (i32.eqz {test}))").unwrap();
                }
                body.statements(2, depth);
                writeln!(body.out, "(local.set {x} {next})").unwrap();
                match at_top {
                    true => writeln!(body.out, "(br {head})").unwrap(),
                    false => writeln!(body.out, "(br_if {head} {test})").unwrap(),
                }
            });
        });
        self.busy.truncate(busy);
    }
}
