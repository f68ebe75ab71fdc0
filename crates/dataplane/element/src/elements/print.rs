//! Print(LABEL, MAXLENGTH, CONTENTS, TIMESTAMP, PRINTANNO, HEADROOM, ACTIVE): prints packets on standard
//! error.
//! Expects: anything.
//! Gives: the same packets.
//! Handlers: active (rw).
//! Example: `Print(in, 64, CONTENTS ASCII)`

use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::Packet;
use std::cell::Cell;
use std::fmt::Write as _;

const SOURCE: &str = include_str!("print.rs");

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    None,
    Hex,
    Ascii,
}

impl Contents {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "NONE" | "none" | "false" | "no" | "0" => Some(Self::None),
            "HEX" | "hex" | "true" | "yes" | "1" => Some(Self::Hex),
            "ASCII" | "ascii" => Some(Self::Ascii),
            _ => None,
        }
    }

    /// Writes bytes in groups: of four for hex, of eight for ASCII.
    pub fn write(self, out: &mut String, bytes: &[u8]) {
        for (i, b) in bytes.iter().enumerate() {
            let _ = match self {
                Self::None => return,
                Self::Hex => write!(out, "{}{b:02x}", if i % 4 == 0 { " " } else { "" }),
                Self::Ascii => {
                    let c = if (32..127).contains(b) { char::from(*b) } else { '.' };
                    write!(out, "{}{c}", if i % 8 == 0 { " " } else { "" })
                }
            };
        }
    }
}

struct Print {
    label: String,
    max: usize,
    contents: Contents,
    timestamp: bool,
    annotations: bool,
    headroom: bool,
    is_active: Cell<bool>,
}

impl Element for Print {
    fn action(&self, cx: &Cx<'_>, p: Packet) -> Option<Packet> {
        if !self.is_active.get() {
            return Some(p);
        }
        let mut line = String::new();
        if !self.label.is_empty() {
            let _ = write!(line, "{}: ", self.label);
        }
        if self.timestamp {
            let _ = write!(line, "{}: ", p.anno.time);
        }
        let _ = write!(line, "{:4}", p.len());
        if self.headroom {
            let _ = write!(line, " (h{})", p.headroom());
        }
        if self.annotations {
            line.push_str(" |");
            Contents::Hex.write(&mut line, &p.anno.bytes);
        }
        let bytes = &p.data()[..p.len().min(self.max)];
        if self.contents != Contents::None && !bytes.is_empty() {
            line.push_str(if self.contents == Contents::Hex { " |" } else { " | " });
            self.contents.write(&mut line, bytes);
        }
        cx.message(&line);
        Some(p)
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        (name == "active").then(|| Ok(self.is_active.get().to_string()))
    }

    fn write(&self, _: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        (name == "active").then(|| {
            let active = flame_click::value::boolean(value);
            self.is_active.set(active.ok_or_else(|| format!("expected true or false, found '{value}'"))?);
            Ok(())
        })
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("active", "rw")]
    }
}

class!(
    PRINT,
    "Print",
    "1/1",
    "a/a",
    [
        "LABEL",
        "MAXLENGTH",
        "NBYTES",
        "LENGTH",
        "CONTENTS",
        "TIMESTAMP",
        "PRINTANNO",
        "HEADROOM",
        "ACTIVE",
        "CPU",
        "BCONTENTS"
    ],
    |args, _| {
        let label = args.opt("LABEL").unwrap_or_default();
        let max = args.opt("MAXLENGTH").unwrap_or(24_i64);
        let max = args.key("LENGTH").or_else(|| args.key("NBYTES")).unwrap_or(max);
        args.ignore::<bool>("CPU");
        let contents = args.key::<String>("CONTENTS").map_or(Some(Contents::Hex), |c| Contents::parse(&c));
        let contents = contents.unwrap_or_else(|| {
            args.error("CONTENTS: expected NONE, HEX or ASCII");
            Contents::None
        });
        Box::new(Print {
            label,
            max: usize::try_from(max).unwrap_or(usize::MAX),
            contents,
            timestamp: args.key("TIMESTAMP").unwrap_or(false),
            annotations: args.key("PRINTANNO").unwrap_or(false),
            headroom: args.key("HEADROOM").unwrap_or(false),
            is_active: Cell::new(args.key("ACTIVE").unwrap_or(true)),
        })
    }
);
