//! The options between the parentheses, with one line of the registry each.

use super::bits::{self, Bits};
use super::fault::{Wrong, wrong};
use super::header::{Header, Proto};
use super::text::Piece;
use super::words::is_known_elsewhere;
use super::{Check, Field, FlowState, Options, Side, Step, content, pcre, range, rate};

/// Parses `NAME[:VALUE]; …)`; `piece` begins after the parenthesis and ends at the end of the rule.
pub fn read(piece: Piece<'_>, header: &Header, unsupported: &mut Vec<String>) -> Result<Options, Wrong> {
    let mut options = Options::default();
    let mut rest = piece.skip_space();
    loop {
        if let Some(behind) = rest.strip(")") {
            let behind = behind.trim();
            if !behind.is_empty() {
                return wrong(behind.at, "nothing behind the closing parenthesis");
            }
            return Ok(options);
        }
        if rest.is_empty() {
            return wrong(rest.at, "an option or `)`");
        }
        let Some(end) = end(rest.text) else {
            return wrong(piece.end(), "`;` at the end of the option, then `)`");
        };
        let (name, value) = rest.to(end).word(&[':', ';', ')', '"']);
        let value = value.trim();
        let value = match value.strip(":") {
            Some(v) => v.trim(),
            None if value.is_empty() => value,
            None => return wrong(value.at, "`:` or `;`"),
        };
        options.option(name, value, header, unsupported)?;
        rest = rest.from(end + 1).skip_space();
    }
}

/// Returns the offset of the `;` that ends an option: not in quotes and not after a backslash.
fn end(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    text.bytes().position(|b| {
        let plain = !escaped;
        escaped = plain && b == b'\\';
        quoted ^= plain && b == b'"';
        plain && !quoted && b == b';'
    })
}

impl Options {
    fn option(
        &mut self,
        name: Piece<'_>,
        value: Piece<'_>,
        header: &Header,
        unsupported: &mut Vec<String>,
    ) -> Result<(), Wrong> {
        let id = |v: Piece<'_>| v.number(1, i64::from(u32::MAX)).map(|n| n as u32);
        match name.text {
            "msg" => once(&mut self.msg, name, unescape(value.quoted()?.text)),
            "sid" => once(&mut self.sid, name, id(value)?),
            "rev" => once(&mut self.rev, name, id(value)?),
            "gid" => once(&mut self.gid, name, id(value)?),
            "priority" => once(&mut self.priority, name, value.number(1, 255)? as u8),
            "classtype" if value.is_empty() => wrong(value.at, "the name of a class"),
            "classtype" => once(&mut self.class, name, value.text.to_owned()),
            "reference" if !value.text.contains(',') => {
                wrong(value.at, "a system, a comma and what it calls this")
            }
            "reference" => {
                self.references.push(value.text.to_owned());
                Ok(())
            }
            "metadata" => Ok(()),
            "content" => {
                self.steps.push(Step::Content(content::read(value)?));
                Ok(())
            }
            "nocase" | "rawbytes" | "offset" | "depth" | "distance" | "within" | "fast_pattern" => {
                match self.steps.last_mut() {
                    Some(Step::Content(c)) => c.modify(name, value).map(drop),
                    _ => wrong(name.at, format!("a content just before {}", name.text)),
                }
            }
            "pcre" => {
                match pcre::read(value)? {
                    Ok(p) => self.steps.push(Step::Pcre(p)),
                    Err(reason) => unsupported.push(reason),
                }
                Ok(())
            }
            "isdataat" => self.isdataat(value, unsupported),
            "flow" => self.flow(value, unsupported),
            "flags" => {
                need(header, Proto::Tcp, name)?;
                self.check(Check::Flags(bits::read(value, &bits::TCP)?))
            }
            "fragbits" => self.check(Check::FragmentBits(Bits { ..bits::read(value, &bits::FRAGMENT)? })),
            "sameip" if value.is_empty() => self.check(Check::SameAddress),
            "sameip" => wrong(value.at, "nothing behind sameip"),
            "threshold" | "detection_filter" => {
                match rate::read(value, name.text == "detection_filter")? {
                    Ok(r) => return once(&mut self.rate, name, r),
                    Err(reason) => unsupported.push(reason),
                }
                Ok(())
            }
            _ => self.number(name, value, header, unsupported),
        }
    }

    /// Parses an option that compares a field with a number.
    fn number(
        &mut self,
        name: Piece<'_>,
        value: Piece<'_>,
        header: &Header,
        unsupported: &mut Vec<String>,
    ) -> Result<(), Wrong> {
        let (field, limit, proto) = match name.text {
            "dsize" => (Field::PayloadLength, 65_535, None),
            "ttl" => (Field::Ttl, 255, None),
            "tos" => (Field::Tos, 255, None),
            "id" => (Field::Id, 65_535, None),
            "fragoffset" => (Field::FragmentOffset, 8191, None),
            "ip_proto" => (Field::Protocol, 255, None),
            "seq" => (Field::Sequence, u32::MAX, Some(Proto::Tcp)),
            "ack" => (Field::Acknowledgement, u32::MAX, Some(Proto::Tcp)),
            "window" => (Field::WindowSize, 65_535, Some(Proto::Tcp)),
            "itype" => (Field::IcmpType, 255, Some(Proto::Icmp)),
            "icode" => (Field::IcmpCode, 255, Some(Proto::Icmp)),
            "icmp_id" => (Field::IcmpId, 65_535, Some(Proto::Icmp)),
            "icmp_seq" => (Field::IcmpSequence, 65_535, Some(Proto::Icmp)),
            word if is_known_elsewhere(word) => {
                unsupported.push(format!("option {word}"));
                return Ok(());
            }
            _ => return wrong(name.at, "the name of an option"),
        };
        if let Some(proto) = proto {
            need(header, proto, name)?;
        }
        self.check(Check::Number(field, range::read(value, limit, field == Field::PayloadLength)?))
    }

    fn check(&mut self, check: Check) -> Result<(), Wrong> {
        self.checks.push(check);
        Ok(())
    }

    /// Parses `[!]N[,relative][,rawbytes]`.
    fn isdataat(&mut self, value: Piece<'_>, unsupported: &mut Vec<String>) -> Result<(), Wrong> {
        let (not, value) = value.strip("!").map_or((false, value), |v| (true, v));
        let mut parts = value.parts(',');
        let first = parts.next().unwrap_or(value);
        if first.text.starts_with(|c: char| c.is_ascii_alphabetic()) {
            unsupported.push("isdataat of a variable".to_owned());
            return Ok(());
        }
        let at = first.number(0, 65_535)? as u32;
        let mut relative = false;
        for part in parts {
            match part.text {
                "relative" => relative = true,
                "rawbytes" => {}
                _ => return wrong(part.at, "relative or rawbytes"),
            }
        }
        self.steps.push(Step::Data { at, relative, not });
        Ok(())
    }

    fn flow(&mut self, value: Piece<'_>, unsupported: &mut Vec<String>) -> Result<(), Wrong> {
        for part in value.parts(',') {
            match part.text {
                "to_server" | "from_client" => once(&mut self.flow.side, part, Side::ToServer)?,
                "to_client" | "from_server" => once(&mut self.flow.side, part, Side::ToClient)?,
                "established" => once(&mut self.flow.state, part, FlowState::Established)?,
                "not_established" => once(&mut self.flow.state, part, FlowState::NotEstablished)?,
                "stateless" => once(&mut self.flow.state, part, FlowState::Stateless)?,
                // No stream is reassembled, so every packet is separate anyway.
                "no_stream" | "no_frag" => {}
                "only_stream" | "only_frag" => unsupported.push(format!("flow {}", part.text)),
                _ => {
                    return wrong(part.at, "to_server, to_client, established, not_established or stateless");
                }
            }
        }
        Ok(())
    }
}

fn once<T>(place: &mut Option<T>, name: Piece<'_>, value: T) -> Result<(), Wrong> {
    if place.replace(value).is_some() {
        wrong(name.at, format!("one such option, not a second {}", name.text))
    } else {
        Ok(())
    }
}

fn need(header: &Header, proto: Proto, name: Piece<'_>) -> Result<(), Wrong> {
    if header.proto == proto {
        Ok(())
    } else {
        wrong(name.at, format!("{} only in a rule for {proto:?}", name.text).to_lowercase())
    }
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or('\\') } else { c });
    }
    out
}
