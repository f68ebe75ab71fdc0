//! Programs as WebAssembly. An empty loop stands before and after each step, as a probe of the checker's
//! knowledge.

use super::{Access, Bulk, CALLEES, GLOBALS, LOCALS, Operand, Step, UNARIES, bits, text};
use std::fmt::Write;

fn operand(of: Operand, width: u8) -> String {
    match of {
        Operand::Local(n) => format!("(local.get {n})"),
        Operand::Constant(n) if width == 32 => format!("(i32.const {})", n as i32),
        Operand::Constant(n) => format!("(i64.const {})", n as i64),
    }
}

fn suffix(of: Access, loads: bool) -> String {
    let narrow = of.bytes * 8 < of.bits;
    let sign = match (narrow && loads, of.signed) {
        (false, _) => "",
        (true, true) => "_s",
        (true, false) => "_u",
    };
    if narrow { format!("{}{sign}", of.bytes * 8) } else { String::new() }
}

/// Writes steps with a probe before the first and after each.
fn steps(out: &mut String, all: &[Step]) {
    out.push_str("(loop)");
    for one in all {
        step(out, one);
        out.push_str("(loop)\n");
    }
}

fn step(out: &mut String, of: &Step) {
    let _ = match of {
        Step::Binary(of, w, a, b, to) => {
            write!(out, "(local.set {to} (i{w}.{} {} {}))", text(*of), operand(*a, *w), operand(*b, *w))
        }
        Step::Unary(at, a, to) => {
            write!(out, "(local.set {to} ({} {}))", UNARIES[*at].0, operand(*a, UNARIES[*at].1))
        }
        Step::Select(w, a, b, c, to) => {
            write!(
                out,
                "(local.set {to} (select {} {} {}))",
                operand(*a, *w),
                operand(*b, *w),
                operand(*c, 32)
            )
        }
        Step::Set(a, to) => write!(out, "(local.set {to} {})", operand(*a, bits(*to))),
        Step::If(c, then, or) => {
            let _ = write!(out, "(if {} (then ", operand(*c, 32));
            steps(out, then);
            out.push_str(")(else ");
            steps(out, or);
            write!(out, "))")
        }
        Step::Choose(w, c, a, b, to) => write!(
            out,
            "(local.set {to} (if (result i{w}) {} (then {}) (else {})))",
            operand(*c, 32),
            operand(*a, *w),
            operand(*b, *w)
        ),
        Step::Block(body) => {
            out.push_str("(block ");
            steps(out, body);
            write!(out, ")")
        }
        Step::Loop(body) => {
            out.push_str("(loop ");
            steps(out, body);
            write!(out, ")")
        }
        Step::Branch(depth) => write!(out, "(br {depth})"),
        Step::BranchIf(depth, c) => write!(out, "(br_if {depth} {})", operand(*c, 32)),
        Step::Table(at, targets) => {
            let targets: Vec<String> = targets.iter().map(u32::to_string).collect();
            write!(out, "(br_table {} {})", targets.join(" "), operand(*at, 32))
        }
        Step::Load(of, at, to) => {
            let (w, offset) = (of.bits, of.offset);
            write!(
                out,
                "(local.set {to} (i{w}.load{} offset={offset} {}))",
                suffix(*of, true),
                operand(*at, 32)
            )
        }
        Step::Store(of, at, value) => {
            let (w, offset) = (of.bits, of.offset);
            let (at, value) = (operand(*at, 32), operand(*value, w));
            write!(out, "(i{w}.store{} offset={offset} {at} {value})", suffix(*of, false))
        }
        Step::Move(to, a, from, b) => {
            write!(
                out,
                "(v128.store offset={a} {} (v128.load offset={b} {}))",
                operand(*to, 32),
                operand(*from, 32)
            )
        }
        Step::GlobalGet(at, to) => write!(out, "(local.set {to} (global.get {at}))"),
        Step::GlobalSet(at, a) => write!(out, "(global.set {at} {})", operand(*a, GLOBALS[*at].0)),
        Step::Bulk(Bulk::Fill, n) => {
            write!(out, "(memory.fill (i32.const 0) (i32.const 0) {})", operand(*n, 32))
        }
        Step::Bulk(Bulk::Copy, n) => {
            write!(out, "(memory.copy (i32.const 0) (i32.const 64) {})", operand(*n, 32))
        }
        Step::Bulk(Bulk::Grow, n) => write!(out, "(drop (memory.grow {}))", operand(*n, 32)),
        Step::Packet(n) => write!(out, "(call $packet {})", operand(*n, 32)),
        Step::Call(at, a, to) => write!(out, "(local.set {to} (call $f{at} {}))", operand(*a, 32)),
        Step::Return => write!(out, "(return)"),
        Step::Unreachable => write!(out, "(unreachable)"),
    };
}

/// Returns a module: function 0 is `packet`, then come the callees, then the program.
pub fn wasm(program: &[Step]) -> Vec<u8> {
    let mut out =
        String::from("(module (import \"flame\" \"packet\" (func $packet (param i32))) (memory 1)\n");
    for (width, mutable, n) in GLOBALS {
        let kind = if mutable { format!("(mut i{width})") } else { format!("i{width}") };
        let _ = writeln!(out, "(global {kind} {})", operand(Operand::Constant(n), width));
    }
    for (n, callee) in CALLEES.iter().enumerate() {
        let _ = writeln!(out, "(func $f{n} (param i32) (result i32) {})", callee.text);
    }
    let kinds: Vec<String> = (0..LOCALS).map(|n| format!("i{}", bits(n))).collect();
    let _ = writeln!(out, "(func (export \"f\") (param {})", kinds.join(" "));
    steps(&mut out, program);
    out.push_str("))");
    wat::parse_str(&out).unwrap_or_else(|error| panic!("{error}\n{out}"))
}
