//! Paint(COLOR): sets the paint annotation.
//! Expects: anything.
//! Gives: the packets, painted.
//! Handlers: color (rw).
//! Example: `c0 [2] -> Paint(1) -> ip`
//!
//! PaintTee(COLOR), CheckPaint(COLOR): PaintTee sends a copy of packets of this color to output 1; CheckPaint
//! sends the packets themselves to output 0 and others to output 1.
//! Expects: anything.
//! Gives: 0: packets; 1: copies (PaintTee), or packets of other colors, which are dropped without it.
//! Handlers: color.
//! Example: `PaintTee(1) -> out; p [1] -> ICMPError(1.0.0.1, redirect)`
//!
//! PaintSwitch: sends a packet to the output of its color; those of higher colors are dropped. Color 255 goes
//! to all outputs.
//! Expects: anything.
//! Gives: packets on all outputs.
//! Handlers: none.
//! Example: `ps :: PaintSwitch; ps [1] -> b`

use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{ANNO_PAINT, Batch, Packet};

const SOURCE: &str = include_str!("paint.rs");

/// Reads the color and where it is.
fn color(args: &mut flame_click::Args<'_>) -> (u8, usize) {
    let color = args.req("COLOR");
    let at: Option<u8> = args.opt("ANNO");
    (color, at.map_or(ANNO_PAINT, |a| usize::from(a).min(47)))
}

struct Paint(u8, usize);

impl Element for Paint {
    fn action(&self, _: &Cx<'_>, mut p: Packet) -> Option<Packet> {
        p.anno.bytes[self.1] = self.0;
        Some(p)
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "color").then(|| Ok(self.0.to_string()))
    }
    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        (name == "color").then(|| cx.router.set_argument(cx.me, "COLOR", 0, value))
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("color", "rw")]
    }
}

class!(PAINT, "Paint", "1/1", "a/a", ["COLOR", "ANNO"], |args, _| {
    let (color, at) = color(args);
    Box::new(Paint(color, at))
});

struct PaintTee(u8, usize);

impl Element for PaintTee {
    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        if p.anno.bytes[self.1] == self.0 && cx.outputs() > 1 {
            cx.made(1);
            cx.push_one(1, p.clone());
        }
        Some(p)
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "color").then(|| Ok(self.0.to_string()))
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("color", "r")]
    }
}

class!(PAINT_TEE, "PaintTee", "1/1-2", "a/ah", ["COLOR", "ANNO"], |args, _| {
    let (color, at) = color(args);
    Box::new(PaintTee(color, at))
});

struct CheckPaint(u8, usize);

impl Element for CheckPaint {
    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        if p.anno.bytes[self.1] == self.0 {
            return Some(p);
        }
        cx.push_or_drop(1, "other paint", p);
        None
    }
    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "color").then(|| Ok(self.0.to_string()))
    }
    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("color", "r")]
    }
}

class!(CHECK_PAINT, "CheckPaint", "1/1-2", "a/ah", ["COLOR", "ANNO"], |args, _| {
    let (color, at) = color(args);
    Box::new(CheckPaint(color, at))
});

struct PaintSwitch(usize);

impl Element for PaintSwitch {
    fn push(&self, cx: &Cx<'_>, _: usize, mut batch: Batch) {
        for p in batch.drain(..) {
            match usize::from(p.anno.bytes[self.0]) {
                255 => super::switch::tee(cx, p, None),
                color => cx.push_or_drop(color, "no such color", p),
            }
        }
    }
}

class!(PAINT_SWITCH, "PaintSwitch", "1/1-", "h/h", ["ANNO"], |args, _| {
    let at: Option<u8> = args.opt("ANNO");
    Box::new(PaintSwitch(at.map_or(ANNO_PAINT, |a| usize::from(a).min(47))))
});
