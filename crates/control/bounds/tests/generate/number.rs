//! Numbers and conditions as Wasm text.

use super::body::Body;

/// The width of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    I32,
    I64,
}

impl Width {
    pub fn name(self) -> &'static str {
        match self {
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }

    pub fn bits(self) -> u32 {
        match self {
            Self::I32 => 32,
            Self::I64 => 64,
        }
    }

    /// Returns a constant, from its bits.
    pub fn constant(self, n: u64) -> String {
        match self {
            Self::I32 => format!("(i32.const {})", n as u32 as i32),
            Self::I64 => format!("(i64.const {})", n as i64),
        }
    }
}

pub use Width::{I32, I64};

/// Comparisons, each with its equivalent for swapped operands, and its opposite.
pub const COMPARES: [(&str, &str, &str); 10] = [
    ("lt_u", "gt_u", "ge_u"),
    ("ne", "ne", "eq"),
    ("lt_s", "gt_s", "ge_s"),
    ("le_u", "ge_u", "gt_u"),
    ("gt_u", "lt_u", "le_u"),
    ("ge_u", "le_u", "lt_u"),
    ("le_s", "ge_s", "gt_s"),
    ("gt_s", "lt_s", "le_s"),
    ("ge_s", "le_s", "lt_s"),
    ("eq", "eq", "ne"),
];

/// The comparisons that are useful for counting up to a border or down to it, and `ne`.
pub const UP: [usize; 5] = [0, 1, 2, 3, 6];
pub const DOWN: [usize; 5] = [1, 4, 7, 5, 8];

impl Body<'_> {
    /// Returns a number that is below some hundred for any arguments.
    pub fn small(&mut self, w: Width) -> String {
        let n = w.name();
        match self.choices.weighted(&[30, 25, 12, 8, 8, 6, 6, 5, 18]) {
            0 => w.constant(self.choices.below(48)),
            1 => {
                let mask = self.choices.pick(&[7, 15, 31, 63, 127]);
                let of = self.plain(w);
                format!("({n}.and {of} {})", w.constant(mask))
            }
            2 => format!("({n}.load8_u (i32.const {}))", self.choices.below(256)),
            3 => {
                let (a, b) = (self.plain(w), w.constant(self.choices.below(60)));
                self.kind("min");
                format!("(select {a} {b} ({n}.lt_u {a} {b}))")
            }
            4 => {
                let of = self.plain(w);
                format!("({n}.shr_u {of} {})", w.constant(u64::from(w.bits()) - 1 - self.choices.below(7)))
            }
            5 => {
                let of = self.plain(w);
                format!("({n}.rem_u {of} {})", w.constant(1 + self.choices.below(60)))
            }
            6 => {
                self.kind("mixed widths");
                match w {
                    I32 => format!("(i32.wrap_i64 {})", self.small(I64)),
                    I64 => format!("(i64.extend_i32_{} {})", self.choices.pick(&["u", "s"]), self.small(I32)),
                }
            }
            8 => self.small_at_a_glance(w),
            _ => {
                // The greater of two, and the sum.
                let (a, b) = (self.small(w), w.constant(self.choices.below(60)));
                match self.choices.chance(50) {
                    true => format!("(select {a} {b} ({n}.gt_u {a} {b}))"),
                    false => format!("({n}.add {a} {b})"),
                }
            }
        }
    }

    /// Returns a number that an almost correct rule takes for a small one.
    fn small_at_a_glance(&mut self, w: Width) -> String {
        let n = w.name();
        self.kind("small at a glance");
        match self.choices.below(3) {
            // Shifted, extended, and shifted back.
            0 if w == I64 => self.biased(),
            // The lesser of two, if another condition holds as well.
            0 | 1 => {
                let (a, b) = (w.constant(self.choices.below(60)), self.plain(w));
                let compare = self.choices.pick(&["lt_u", "le_u", "lt_s"]);
                let also = self.condition(1);
                let how = self.choices.pick(&["and", "and", "and", "or", "xor"]);
                format!("(select {a} {b} (i32.{how} ({n}.{compare} {a} {b}) {also}))")
            }
            // A choice that seems to be decided, because a part of it is known here.
            _ => {
                let (a, b) = (w.constant(self.choices.below(60)), self.plain(w));
                let (p, q, known) = (self.condition(0), self.condition(0), self.known_condition());
                let (or, and) =
                    self.choices.pick(&[("or", "and"), ("or", "and"), ("and", "or"), ("xor", "and")]);
                format!("(select {a} {b} (i32.{and} (i32.{or} {p} {q}) {known}))")
            }
        }
    }

    /// Returns a condition that is known to hold here, if there is one.
    fn known_condition(&mut self) -> String {
        match self.known.len() {
            0 => format!("(i32.ne {} (i32.const 0))", self.plain(I32)),
            n => self.known[self.choices.below(n as u64) as usize].clone(),
        }
    }

    /// Returns a constant or an expression that can be read twice.
    pub fn plain(&mut self, w: Width) -> String {
        match self.choices.weighted(&[40, 35, 15, 10]) {
            0 => format!("(local.get {})", self.parameter(w)),
            1 => format!("(local.get {})", self.any_local(w)),
            2 => w.constant(self.choices.border(w.bits())),
            _ => {
                let at = self.choices.below(256);
                let load = match w {
                    I32 => self.choices.pick(&["i32.load", "i32.load16_u", "i32.load8_s"]),
                    I64 => self.choices.pick(&["i64.load", "i64.load32_u", "i64.load16_s"]),
                };
                format!("({load} (i32.const {at}))")
            }
        }
    }

    /// Returns any number, of at most `depth` operations.
    pub fn number(&mut self, w: Width, depth: u32) -> String {
        if depth == 0 {
            return self.plain(w);
        }
        let n = w.name();
        match self.choices.weighted(&[22, 14, 10, 10, 9, 8, 7, 7, 6, 4, 3]) {
            0 => self.plain(w),
            1 => self.small(w),
            2 => {
                let a = self.number(w, depth - 1);
                let by = w.constant(self.choices.border(w.bits()));
                format!("({n}.{} {a} {by})", self.choices.pick(&["add", "sub", "and", "xor", "or"]))
            }
            3 => {
                self.kind("mixed widths");
                match w {
                    I32 => format!("(i32.wrap_i64 {})", self.number(I64, depth - 1)),
                    I64 => {
                        if self.choices.chance(30) {
                            return self.biased();
                        }
                        if self.choices.chance(40) {
                            self.kind("extended constant");
                            let by = self.choices.pick(&["u", "s"]);
                            return format!(
                                "(i64.extend_i32_{by} {})",
                                I32.constant(self.choices.border(32))
                            );
                        }
                        format!(
                            "(i64.extend_i32_{} {})",
                            self.choices.pick(&["u", "s"]),
                            self.number(I32, depth - 1)
                        )
                    }
                }
            }
            4 => {
                let (a, b) = (self.plain(w), self.plain(w));
                let compare = self.choices.pick(&COMPARES).0;
                self.kind("min");
                match self.choices.chance(70) {
                    true => format!("(select {a} {b} ({n}.{compare} {a} {b}))"),
                    // Looks like the lesser of two, and is not always.
                    false => {
                        self.kind("compound condition");
                        let also = self.condition(0);
                        let how = self.choices.pick(&["and", "or", "xor"]);
                        format!("(select {a} {b} (i32.{how} ({n}.{compare} {a} {b}) {also}))")
                    }
                }
            }
            5 => {
                let (a, b) = (self.number(w, depth - 1), self.number(w, depth - 1));
                self.kind("select");
                format!("(select {a} {b} {})", self.condition(1))
            }
            6 => {
                let a = self.number(w, depth - 1);
                let by = w.constant(self.choices.below(u64::from(w.bits()) + 3));
                format!("({n}.{} {a} {by})", self.choices.pick(&["shr_u", "shl", "shr_s", "rotl"]))
            }
            7 => {
                let (a, b) = (self.number(w, depth - 1), self.number(w, depth - 1));
                format!("({n}.{} {a} {b})", self.choices.pick(&["add", "sub", "mul", "and", "or"]))
            }
            8 => {
                let a = self.number(w, depth - 1);
                let extend = match w {
                    I32 => self.choices.pick(&["extend8_s", "extend16_s"]),
                    I64 => self.choices.pick(&["extend32_s", "extend8_s", "extend16_s"]),
                };
                format!("({n}.{extend} {a})")
            }
            9 => {
                let a = self.number(w, depth - 1);
                let how = self.choices.pick(&["rem_u", "div_u", "rem_s", "div_s"]);
                self.kind("division");
                match self.choices.chance(80) || !self.traps {
                    true => format!("({n}.{how} {a} {})", w.constant(self.choices.border(w.bits()).max(1))),
                    // It may trap.
                    false => format!("({n}.{how} {a} {})", self.plain(w)),
                }
            }
            _ => {
                let a = self.number(w, depth - 1);
                format!("({n}.{} {a})", self.choices.pick(&["clz", "ctz", "popcnt"]))
            }
        }
    }

    /// Returns a small number shifted by a constant, extended, and shifted back by the same constant, as if
    /// extending it changed nothing.
    fn biased(&mut self) -> String {
        self.kind("extended constant");
        let (n, by) = (self.small(I32), self.choices.border(32) as i32);
        let how = self.choices.pick(&["u", "s"]);
        format!(
            "(i64.sub (i64.extend_i32_{how} (i32.add {n} (i32.const {by}))) (i64.const {}))",
            if self.choices.chance(50) { i64::from(by) } else { i64::from(by as u32) }
        )
    }

    /// Returns a condition; any i32, where 0 is false.
    pub fn condition(&mut self, depth: u32) -> String {
        if self.choices.chance(10) {
            return self.known_condition();
        }
        let leaf = if depth == 0 { 0 } else { 6 };
        match self.choices.weighted(&[40, 8, 5, leaf, leaf, leaf, 8]) {
            0 => {
                let w = if self.choices.chance(25) { I64 } else { I32 };
                let (a, b) = (self.plain(w), self.plain(w));
                format!("({}.{} {a} {b})", w.name(), self.choices.pick(&COMPARES).0)
            }
            1 => {
                let w = if self.choices.chance(25) { I64 } else { I32 };
                format!("({}.eqz {})", w.name(), self.plain(w))
            }
            2 => self.plain(I32),
            3 => format!("(i32.eqz {})", self.condition(depth - 1)),
            4 => {
                self.kind("compound condition");
                let (a, b) = (self.condition(depth - 1), self.condition(depth - 1));
                format!("(i32.{} {a} {b})", self.choices.pick(&["and", "or", "xor"]))
            }
            5 => {
                self.kind("compound condition");
                let (a, b) = (self.condition(depth - 1), self.condition(depth - 1));
                format!("(select {a} {b} {})", self.condition(depth - 1))
            }
            _ => format!("(i32.and {} {})", self.plain(I32), I32.constant(1 << self.choices.below(4))),
        }
    }

    /// Returns a condition that holds only if `test` does, or an equivalent one; rarely one that seems so and
    /// is not. `opposite` holds if `test` does not.
    pub fn dressed(&mut self, test: String, opposite: &str) -> String {
        let dress = self.choices.weighted(&[56, 9, 6, 4, 6, 5, 4, 4, 6]);
        if dress > 2 {
            self.kind("compound condition");
        }
        match dress {
            0 => test,
            1 => format!("(i32.eqz {opposite})"),
            2 => format!("(i32.eqz (i32.eqz {test}))"),
            3 => format!("(i32.xor {opposite} (i32.const 1))"),
            4 => format!("(i32.and {test} {})", self.condition(1)),
            5 => format!("(i32.and (i32.and {test} {}) {})", self.condition(0), self.condition(0)),
            6 => format!("(select {test} (i32.const 0) {})", self.condition(0)),
            7 => format!("(select {} (i32.const 0) {test})", self.condition(0)),
            // It is not sound to conclude `test` from these.
            _ => match self.choices.below(4) {
                0 => format!("(i32.or {test} {})", self.condition(0)),
                1 => format!("(i32.xor {test} {})", self.condition(0)),
                2 => format!("(i32.and (i32.or {test} {}) {})", self.condition(0), self.condition(0)),
                _ => format!("(select {test} {} {})", self.condition(0), self.condition(0)),
            },
        }
    }
}
