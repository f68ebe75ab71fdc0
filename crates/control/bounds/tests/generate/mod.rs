//! A generator of whole modules for the oracle of bounds and counters (`hold.rs`).
//!
//! It generates code that an analyser of integers is likely to get wrong: both widths and conversions between
//! them, numbers at every border where one wraps or changes its sign, conditions of several parts, several
//! back edges of one loop, work before traps, stack slots that two pointers reach, arguments that bound the
//! callee's loop, and batches of packets. Most loops end, and about half of the modules have a bound, so that
//! a bound that is too low is detected.

mod batch;
pub mod body;
pub mod choices;
pub mod hold;
mod loops;
mod number;
pub mod packets;

use body::{Body, Frame, LOCALS};
use choices::Choices;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A module, as text.
pub struct Program {
    /// The module's text, with the memory that it declares to the checker.
    pub text: String,
    /// The functions that the host calls.
    pub exports: Vec<Export>,
    /// The constructs in the module, among those that the oracle should reach.
    pub kinds: BTreeSet<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Export {
    /// `f(i32, i32, i64) -> i64`.
    Plain,
    Batch,
    Tick,
    Init,
}

impl Export {
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "f",
            Self::Batch => "flame_batch",
            Self::Tick => "flame_tick",
            Self::Init => "flame_init",
        }
    }
}

/// The module's declaration of its memory; [`Program::with_window`] changes it.
const MEMORY: &str = "(memory (export \"memory\") 1)";
/// The address where the stack begins, downwards.
pub const STACK: u64 = 4096;

impl Program {
    pub fn new(choices: &mut Choices) -> Self {
        let mut kinds = BTreeSet::new();
        let is_module = choices.chance(30);
        let traps = choices.chance(40);
        let functions = 1 + choices.below(4);
        let mut text = String::from("(module\n");
        if is_module {
            text.push_str("(import \"flame\" \"packet\" (func $packet (param i32)))\n");
        }
        writeln!(text, "{MEMORY}").unwrap();
        writeln!(text, "(type $t (func (param i32 i32 i64) (result i64)))").unwrap();
        writeln!(text, "(global $sp (export \"sp\") (mut i32) (i32.const {STACK}))").unwrap();
        let mut exports = vec![Export::Plain];
        if is_module {
            kinds.insert("module with the host's calls");
            exports = vec![Export::Batch];
            batch::write(&mut text, choices, &mut kinds, traps, functions);
            for (export, head) in
                [(Export::Tick, "(param $now i64)"), (Export::Init, "(param $at i32) (param $len i32)")]
            {
                if choices.chance(50) {
                    exports.push(export);
                    let arguments = match export {
                        Export::Tick => "(i32.wrap_i64 (local.get $now)) (i32.const 7) (local.get $now)",
                        _ => "(local.get $at) (local.get $len) (i64.const -1)",
                    };
                    writeln!(
                        text,
                        "(func (export \"{}\") {head} (result i64) (call $f0 {arguments}))",
                        export.name()
                    )
                    .unwrap();
                }
            }
        }
        for f in 0..functions {
            let statements = if f == 0 { 14 } else { 7 };
            // Rarely one calls itself, and one diverges.
            let from = if traps && choices.chance(4) { f } else { f + 1 };
            let mut body = Body::new(choices, &mut kinds, statements, traps, (from, functions));
            body.frame_of_function(|body| {
                for _ in 0..1 + body.choices.below(4) {
                    body.statement(2);
                }
            });
            if f > 0 && traps && body.choices.chance(12) {
                body.kind("diverges");
                let end = body.choices.pick(&["(unreachable)", "(loop $e (br $e))"]);
                body.line(end);
            }
            let export = if f == 0 && !is_module { "(export \"f\")" } else { "" };
            let head = format!(
                "(func $f{f} {export} (type $t) (param $a i32) (param $b i32) (param $q i64) (result i64)"
            );
            writeln!(text, "{head}\n{}{}{})", locals(), body.out, EPILOGUE).unwrap();
        }
        let named: Vec<String> = (0..functions).map(|f| format!("$f{f}")).collect();
        writeln!(text, "(table 5 funcref) (elem (i32.const 0) {}))", named.join(" ")).unwrap();
        Self { text, exports, kinds }
    }

    /// Returns the module with memory where the host's window would be: it reads data that the host writes
    /// there, and none of the generator's stores goes there. Nothing else differs.
    pub fn with_window(&self) -> String {
        let pages = packets::END / 65_536;
        self.text.replacen(MEMORY, &format!("(memory (export \"memory\") {pages})"), 1)
    }
}

/// Returns the locals of a function, and its frame on the stack.
fn locals() -> String {
    let mut out = String::from("(local $fp i32)");
    for n in 0..LOCALS {
        write!(out, " (local $i{n} i32) (local $l{n} i64)").unwrap();
    }
    out.push_str("\n(global.set $sp (local.tee $fp (i32.sub (global.get $sp) (i32.const 32))))\n");
    out
}

const EPILOGUE: &str = "(global.set $sp (i32.add (local.get $fp) (i32.const 32)))
(i64.xor (i64.extend_i32_u (i32.add (local.get $i0) (i32.mul (local.get $i1) (local.get $i2)))) (i64.add (local.get $l0) (local.get $q)))";

impl Body<'_> {
    /// Writes the block that contains a whole function.
    fn frame_of_function(&mut self, inner: impl FnOnce(&mut Self)) {
        self.line("(block $body");
        self.frames.push(("$body".to_owned(), Frame::Block));
        inner(self);
        self.frames.pop();
        self.line(")");
    }
}
