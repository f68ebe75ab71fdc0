//! `flame_batch`: loops over descriptors, and over the fields of packets.

use super::body::{Body, Frame};
use super::choices::Choices;
use super::{EPILOGUE, locals};
use std::collections::BTreeSet;
use std::fmt::Write as _;

pub fn write(
    text: &mut String,
    choices: &mut Choices,
    kinds: &mut BTreeSet<&'static str>,
    traps: bool,
    functions: u64,
) {
    let mut body = Body::new(choices, kinds, 8, traps, (0, functions));
    let header = body.choices.pick(&["(local.get $batch)", "(i32.const 0x80000000)"]);
    writeln!(body.out, "(local.set $d (i32.load {header})) (local.set $count (i32.load offset=4 {header}))")
        .unwrap();
    body.frame_of_function(|body| {
        // Some omit the last packets, or those after some.
        if body.choices.chance(20) {
            body.kind("packet index from the count");
            let by = body.choices.below(4);
            writeln!(body.out, "(local.set $count (i32.sub (local.get $count) (i32.const {by})))").unwrap();
        }
        // Many modules process their packets in a loop, some only one packet.
        let shape = body.choices.weighted(&[35, 20, 15, 12, 10, 8]);
        match shape {
            5 => body.packet(shape),
            _ => body.frame(Frame::Block, |body, out| {
                if shape == 2 {
                    body.line("(local.set $n (local.get $count))");
                }
                body.line(
                    "(local.set $e (i32.add (local.get $d) (i32.shl (local.get $count) (i32.const 5))))",
                );
                body.frame(Frame::Loop, |body, head| {
                    if shape == 1 {
                        writeln!(body.out, "(br_if {out} (i32.ge_u (local.get $n) (local.get $count)))")
                            .unwrap();
                    }
                    if body.choices.chance(35) {
                        body.kind("packet marks");
                        let index = if shape == 2 {
                            "(i32.sub (local.get $count) (local.get $n))"
                        } else {
                            "(local.get $n)"
                        };
                        writeln!(body.out, "(call $packet {index})").unwrap();
                    }
                    body.packet(shape);
                    let next = "(local.tee $n (i32.add (local.get $n) (i32.const 1)))";
                    match shape {
                        0 => {
                            let compare = body.choices.pick(&["lt_u", "ne", "lt_u", "lt_s"]);
                            writeln!(body.out, "(br_if {head} (i32.{compare} {next} (local.get $count)))")
                                .unwrap();
                        }
                        1 => writeln!(body.out, "(drop {next}) (br {head})").unwrap(),
                        2 => writeln!(
                            body.out,
                            "(br_if {head} (local.tee $n (i32.sub (local.get $n) (i32.const 1))))"
                        )
                        .unwrap(),
                        _ => {
                            let compare = body.choices.pick(&["ne", "lt_u"]);
                            writeln!(
                                body.out,
                                "(drop {next}) (local.set $d (i32.add (local.get $d) (i32.const 32)))"
                            )
                            .unwrap();
                            writeln!(
                                body.out,
                                "(br_if {head} (i32.{compare} (local.get $d) (local.get $e)))"
                            )
                            .unwrap();
                        }
                    }
                });
            }),
        }
    });
    let names = ["$a", "$b", "$d", "$count", "$n", "$e", "$p", "$len", "$at", "$j"];
    let own: Vec<String> = names.iter().map(|n| format!("(local {n} i32)")).collect();
    writeln!(
        text,
        "(func (export \"flame_batch\") (param $batch i32) (result i64) (local $q i64) {}",
        own.join(" ")
    )
    .unwrap();
    // Values from packets must not look like output.
    writeln!(text, "{}{}{EPILOGUE} drop (i64.const 0))", locals(), body.out).unwrap();
}

impl Body<'_> {
    /// Writes the code for one packet: the address of its descriptor, its fields, and a loop over its bytes.
    fn packet(&mut self, shape: usize) {
        let walks = matches!(shape, 3 | 4);
        let index = match self.choices.weighted(&[60, 6, 12, 5, 7, 4, 6]) {
            0 if shape == 2 => "(i32.sub (local.get $n) (i32.const 1))".to_owned(),
            0 if walks => "(i32.const 0)".to_owned(),
            0 if shape == 5 => "(i32.const 0)".to_owned(),
            0 => "(local.get $n)".to_owned(),
            1 => "(i32.sub (i32.sub (local.get $count) (i32.const 1)) (local.get $n))".to_owned(),
            2 => {
                self.kind("packet index from the count");
                format!("(i32.sub (local.get $count) (i32.const {}))", self.choices.below(4))
            }
            3 => format!("(i32.add (local.get $n) (i32.const {}))", self.choices.below(3)),
            4 => format!("(i32.const {})", self.choices.pick(&[0, 1, 255, -1])),
            5 => format!("(i32.and (local.get $n) (i32.const {}))", self.choices.below(8)),
            _ => {
                self.kind("packet index from the count");
                format!("(i32.sub (local.get $n) (i32.const {}))", self.choices.below(3))
            }
        };
        let times = self.choices.pick(&["(i32.shl {} (i32.const 5))", "(i32.mul {} (i32.const 32))"]);
        writeln!(self.out, "(local.set $at (i32.add (local.get $d) {}))", times.replace("{}", &index))
            .unwrap();
        self.line("(local.set $p (i32.load offset=8 (local.get $at)))");
        self.line("(local.set $len (i32.load offset=20 (local.get $at)))");
        self.line("(local.set $a (i32.load8_u (local.get $p)))");
        let field = [
            "(i32.load16_u offset=24 (local.get $at))",
            "(i32.load16_u offset=26 (local.get $at))",
            "(i32.load8_u offset=28 (local.get $at))",
            "(i32.load16_u offset=1 (local.get $p))",
            "(local.get $len)",
        ];
        let field = self.choices.pick(&field);
        writeln!(self.out, "(local.set $b {field})").unwrap();
        self.line("(local.set $q (i64.load (local.get $at)))");
        if self.choices.chance(60) {
            self.bytes();
        }
        self.statements(2, 1);
    }

    /// Writes a loop over bytes of the packet.
    fn bytes(&mut self) {
        self.kind("loop over a packet");
        let end = match self.choices.weighted(&[55, 20, 10, 8, 7]) {
            0 => "(local.get $len)".to_owned(),
            1 => "(local.get $b)".to_owned(),
            2 => "(i32.sub (local.get $len) (local.get $b))".to_owned(),
            3 => format!("(i32.and (local.get $len) (i32.const {}))", self.choices.pick(&[-2, -4, -16, 63])),
            _ => format!("(i32.sub (local.get $len) (i32.const {}))", self.choices.below(20)),
        };
        let step = self.choices.pick(&[1, 1, 2, 4, 16]);
        let compare = self.choices.pick(&["lt_u", "lt_u", "ne", "lt_s", "le_u"]);
        let from = self.choices.pick(&["(i32.const 0)", "(i32.const 0)", "(local.get $b)", "(i32.const 4)"]);
        let top = self.choices.chance(50);
        writeln!(self.out, "(local.set $j {from}) (local.set $i5 {end})").unwrap();
        self.frame(Frame::Block, |body, out| {
            body.frame(Frame::Loop, |body, head| {
                let test = format!("(i32.{compare} (local.get $j) (local.get $i5))");
                if top {
                    writeln!(body.out, "(br_if {out} (i32.eqz {test}))").unwrap();
                }
                body.line("(local.set $i0 (i32.add (local.get $i0) (i32.load8_u (i32.add (local.get $p) (local.get $j)))))");
                if body.choices.chance(20) {
                    body.busy.push("$i5".to_owned());
                    body.statements(1, 0);
                    body.busy.pop();
                }
                writeln!(body.out, "(local.set $j (i32.add (local.get $j) (i32.const {step})))").unwrap();
                match top {
                    true => writeln!(body.out, "(br {head})").unwrap(),
                    false => writeln!(body.out, "(br_if {head} {test})").unwrap(),
                }
            });
        });
    }
}
