//! The options between the parentheses, with one line of the registry each.

use super::bits;
use super::fault::{Wrong, wrong};
use super::header::{Header, Proto};
use super::number::Names;
use super::start::Start;
use super::text::Piece;
use super::words;
use super::{
    Buffer, Check, Dialect, Field, FlowState, Options, Part, Side, Step, Target, bytes, content, mark, pcre,
    proto, range, rate,
};

/// The largest number of steps of one rule, and so the depth of the search for them.
const MAX_STEPS: usize = 128;

/// The most bytes of a text that alerts state, so that they fit a record.
pub const MOST_TEXT: usize = 8 << 10;

/// The context that the options of a rule refer to.
pub struct Context<'a> {
    pub start: &'a mut Start,
    pub header: &'a Header,
    pub dialect: Dialect,
    pub marks: &'a mut mark::Numbers,
    /// The reasons why the rule cannot be used.
    pub unsupported: &'a mut Vec<String>,
}

/// Parses `NAME[:VALUE]; …)`; `piece` begins after the parenthesis and ends at the end of the rule.
#[inline(never)]
pub fn read(piece: Piece<'_>, context: &mut Context<'_>) -> Result<Options, Wrong> {
    let mut options = Options::default();
    let mut names = Names::default();
    let mut rest = piece.skip_space();
    loop {
        if let Some(after) = rest.strip(")") {
            let after = after.trim();
            if !after.is_empty() {
                return wrong(after.at, "nothing after the closing parenthesis");
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
        context.start.option();
        options.check_text(name.text, value.text, context.unsupported);
        options.option(name, value, context, &mut names)?;
        rest = rest.from(end + 1).skip_space();
    }
}

/// Returns the offset of the `;` that ends an option: not in quotes and not after a backslash.
#[inline(never)]
fn end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut quoted, mut from) = (false, 0);
    loop {
        let at = from + memchr::memchr3(b'"', b'\\', b';', bytes.get(from..)?)?;
        match bytes[at] {
            b'\\' => from = at + 2,
            b';' if !quoted => return Some(at),
            found => {
                quoted ^= found == b'"';
                from = at + 1;
            }
        }
    }
}

impl Options {
    /// Notes why a rule with this value cannot be used as it was meant.
    #[inline(never)]
    fn check_text(&self, name: &str, value: &str, unsupported: &mut Vec<String>) {
        let length = match name {
            "metadata" => self.metadata.len() + value.len(),
            "msg" | "classtype" => value.len(),
            "reference" => 0,
            // A file that was not in UTF-8 has this character instead of its own bytes.
            _ if value.contains(char::REPLACEMENT_CHARACTER) => {
                return unsupported.push("bytes that are no UTF-8: a content states them as |e9|".to_owned());
            }
            _ => 0,
        };
        if length > MOST_TEXT {
            unsupported.push(format!("{name} of more than {MOST_TEXT} bytes"));
        }
    }

    #[inline(never)]
    fn option(
        &mut self,
        name: Piece<'_>,
        value: Piece<'_>,
        context: &mut Context<'_>,
        names: &mut Names,
    ) -> Result<(), Wrong> {
        let id = |v: Piece<'_>| v.number(1, i64::from(u32::MAX)).map(|n| n as u32);
        match name.text {
            "msg" => {
                let text = value.quoted()?.text;
                if text.contains('\\') {
                    context.start.escaped(text.len());
                }
                once(&mut self.msg, name, unescape(text))
            }
            "sid" => once(&mut self.sid, name, id(value)?),
            "rev" => once(&mut self.rev, name, id(value)?),
            "gid" => once(&mut self.gid, name, id(value)?),
            "priority" => once(&mut self.priority, name, value.number(1, 255)? as u8),
            "classtype" if value.is_empty() => wrong(value.at, "the name of a class"),
            "classtype" => once(&mut self.class, name, value.text.to_owned()),
            "reference" if !value.text.contains(',') => {
                wrong(value.at, "a system, a comma and what it calls this")
            }
            "metadata" => {
                let separator = if self.metadata.is_empty() { "" } else { "," };
                self.metadata += separator;
                self.metadata += value.text;
                Ok(())
            }
            "target" => {
                let target = match value.text {
                    "src_ip" => Target::Source,
                    "dest_ip" => Target::Destination,
                    _ => return wrong(value.at, "src_ip or dest_ip"),
                };
                once(&mut self.target, name, target)
            }
            "noalert" if value.is_empty() => {
                self.silent = true;
                Ok(())
            }
            // A hint where to begin, and links, change no result.
            "prefilter" | "reference" => Ok(()),
            "nocase" | "rawbytes" | "offset" | "depth" | "distance" | "within" | "startswith"
            | "endswith" | "fast_pattern" => {
                match self.parts.last_mut().and_then(|part| part.steps.last_mut()) {
                    Some(Step::Content(c)) => c.modify(name, value, names).map(drop),
                    _ => wrong(name.at, format!("a content just before {}", name.text)),
                }
            }
            "flow" => self.flow(value, context),
            "flowbits" => {
                context.start.content(value.text.len());
                context.start.escaped(value.text.len());
                match mark::flowbits(value, context.marks)? {
                    Some(mark) => self.marks.push(mark),
                    None => self.silent = true,
                }
                Ok(())
            }
            "xbits" => {
                context.start.content(value.text.len());
                context.start.escaped(value.text.len());
                match mark::xbits(value, context.marks)? {
                    Ok(Some(mark)) => self.marks.push(mark),
                    Ok(None) => self.silent = true,
                    Err(reason) => context.unsupported.push(reason),
                }
                Ok(())
            }
            "threshold" | "detection_filter" => match rate::read(value, name.text == "detection_filter")? {
                Ok(rate) => once(&mut self.rate, name, rate),
                Err(reason) => unused(context, reason),
            },
            "flags" | "tcp.flags" => {
                context.start.number();
                need(context.header, Proto::Tcp, name)?;
                self.check(Check::Flags(bits::read(value, &bits::TCP, context.dialect)?))
            }
            "fragbits" => {
                context.start.number();
                self.check(Check::FragmentBits(bits::read(value, &bits::FRAGMENT, context.dialect)?))
            }
            "sameip" if value.is_empty() => self.check(Check::SameAddress),
            "sameip" => wrong(value.at, "nothing after sameip"),
            "ip_proto" => self.ip_proto(value),
            _ => self.payload(name, value, context, names),
        }
    }

    /// Parses an option about the payload or a buffer.
    #[inline(never)]
    fn payload(
        &mut self,
        name: Piece<'_>,
        value: Piece<'_>,
        context: &mut Context<'_>,
        names: &mut Names,
    ) -> Result<(), Wrong> {
        match name.text {
            "pcre" => context.start.escaped(value.text.len()),
            "isdataat" | "bsize" => context.start.number(),
            name if name.starts_with("byte_") => context.start.content(value.text.len()),
            _ => {}
        }
        let step = match name.text {
            "content" => {
                context.start.content(value.text.len());
                Step::Content(content::read(value, names)?)
            }
            "pcre" => match pcre::read(value)? {
                Ok(pcre) => Step::Pcre(pcre),
                Err(reason) => return unused(context, reason),
            },
            "isdataat" => isdataat(value, names)?,
            "byte_test" => match bytes::test(value, names)? {
                Ok(test) => Step::Test(test),
                Err(reason) => return unused(context, reason),
            },
            "byte_jump" => match bytes::jump(value, names)? {
                Ok(jump) => Step::Jump(jump),
                Err(reason) => return unused(context, reason),
            },
            "byte_extract" => match bytes::extract(value, names)? {
                Ok(extract) => Step::Extract(extract),
                Err(reason) => return unused(context, reason),
            },
            "byte_math" => match bytes::math(value, names)? {
                Ok(math) => Step::Math(math),
                Err(reason) => return unused(context, reason),
            },
            "dns.query" | "dns_query" | "tls.sni" | "tls_sni" | "pkt_data" => {
                if !value.is_empty() {
                    return wrong(value.at, format!("nothing after {}", name.text));
                }
                let buffer = match name.text {
                    "pkt_data" => Buffer::Payload,
                    text if text.starts_with("dns") => Buffer::DnsQuery,
                    _ => Buffer::TlsSni,
                };
                self.parts.push(Part::new(buffer));
                return Ok(());
            }
            "dotprefix" | "bsize" => {
                let Some(part) = self.parts.last_mut().filter(|p| p.buffer != Buffer::Payload) else {
                    // The buffer may be one that is not supported.
                    return match context.unsupported.is_empty() {
                        true => wrong(name.at, format!("dns.query or tls.sni before {}", name.text)),
                        false => Ok(()),
                    };
                };
                match name.text {
                    "bsize" => part.sizes.push(range::read(value, u32::MAX, false, false)?),
                    _ if part.steps.is_empty() => part.dotprefix = true,
                    _ => return wrong(name.at, "dotprefix before the first content"),
                }
                return Ok(());
            }
            _ => return self.number(name, value, context),
        };
        if self.parts.iter().map(|p| p.steps.len()).sum::<usize>() == MAX_STEPS {
            return wrong(name.at, format!("at most {MAX_STEPS} contents and the like"));
        }
        if self.parts.is_empty() {
            self.parts.push(Part::new(Buffer::Payload));
        }
        if let Some(part) = self.parts.last_mut() {
            part.steps.push(step);
        }
        Ok(())
    }

    /// Parses an option that compares a field with a number.
    #[inline(never)]
    fn number(&mut self, name: Piece<'_>, value: Piece<'_>, context: &mut Context<'_>) -> Result<(), Wrong> {
        let (field, limit, proto) = match name.text {
            "dsize" => (Field::PayloadLength, 65_535, None),
            "ttl" => (Field::Ttl, 255, None),
            "tos" if context.dialect == Dialect::Snort => (Field::TosOrClass, 255, None),
            "tos" => (Field::Tos, 255, None),
            "id" => (Field::Id, 65_535, None),
            "fragoffset" => (Field::FragmentOffset, 8191, None),
            "seq" | "tcp.seq" => (Field::Sequence, u32::MAX, Some(Proto::Tcp)),
            "ack" | "tcp.ack" => (Field::Acknowledgement, u32::MAX, Some(Proto::Tcp)),
            "window" | "tcp.window" => (Field::WindowSize, 65_535, Some(Proto::Tcp)),
            "itype" => (Field::IcmpType, 255, Some(Proto::Icmp)),
            "icode" => (Field::IcmpCode, 255, Some(Proto::Icmp)),
            "icmp_id" => (Field::IcmpId, 65_535, Some(Proto::Icmp)),
            "icmp_seq" => (Field::IcmpSequence, 65_535, Some(Proto::Icmp)),
            word => match words::reason(word, context.start) {
                Some(reason) => return unused(context, reason),
                None => return wrong(name.at, "the name of an option"),
            },
        };
        if let Some(proto) = proto {
            need(context.header, proto, name)?;
        }
        context.start.number();
        // Suricata's ranges leave their ends out.
        let snort = context.dialect == Dialect::Snort;
        let ends = snort && field == Field::PayloadLength;
        let range = match field {
            Field::Tos => tos(value)?,
            _ => range::read(value, limit, ends, snort)?,
        };
        if field == Field::PayloadLength && range.not && !snort {
            // A length other than this, but no packet without payload.
            self.check(Check::Number(field, range::Range { min: 1, max: u32::MAX, not: false }))?;
        }
        self.check(Check::Number(field, range))
    }

    /// Parses `[!<>]PROTOCOL`, by name or number.
    #[inline(never)]
    fn ip_proto(&mut self, value: Piece<'_>) -> Result<(), Wrong> {
        let name = value.text.trim_start_matches(['!', '<', '>', ' ']);
        let range = match proto::number(name) {
            Some(n) if !value.text.starts_with(['<', '>']) => {
                range::Range { min: n.into(), max: n.into(), not: value.text.starts_with('!') }
            }
            _ => range::read(value, 255, false, true)?,
        };
        self.check(Check::Number(Field::Protocol, range))
    }

    fn check(&mut self, check: Check) -> Result<(), Wrong> {
        self.checks.push(check);
        Ok(())
    }

    #[inline(never)]
    fn flow(&mut self, value: Piece<'_>, context: &mut Context<'_>) -> Result<(), Wrong> {
        for part in value.parts(',') {
            match part.text {
                "to_server" | "from_client" => once(&mut self.flow.side, part, Side::ToServer)?,
                "to_client" | "from_server" => once(&mut self.flow.side, part, Side::ToClient)?,
                "established" => once(&mut self.flow.state, part, FlowState::Established)?,
                "not_established" => once(&mut self.flow.state, part, FlowState::NotEstablished)?,
                "stateless" => once(&mut self.flow.state, part, FlowState::Stateless)?,
                // No stream is reassembled, so every packet is separate anyway.
                "no_stream" | "no_frag" => {}
                "only_stream" | "only_frag" => {
                    context.unsupported.push(format!("flow {} (needs streams)", part.text));
                }
                _ => {
                    return wrong(part.at, "to_server, to_client, established, not_established or stateless");
                }
            }
        }
        Ok(())
    }
}

/// Parses `[!]N` or `[!]xHEX`.
#[inline(never)]
fn tos(value: Piece<'_>) -> Result<range::Range, Wrong> {
    let (not, number) = value.strip("!").map_or((false, value), |v| (true, v.trim()));
    let n = match number.strip("x").or_else(|| number.strip("X")) {
        Some(hex) => match u8::from_str_radix(hex.text, 16) {
            Ok(n) => n.into(),
            Err(_) => return wrong(hex.at, "a number of up to two hexadecimal digits"),
        },
        None => number.number(0, 255)? as u32,
    };
    Ok(range::Range { min: n, max: n, not })
}

/// Parses `[!]N[,relative][,rawbytes]`.
#[inline(never)]
fn isdataat(value: Piece<'_>, names: &Names) -> Result<Step, Wrong> {
    let (not, value) = value.strip("!").map_or((false, value), |v| (true, v.trim()));
    let mut parts = value.parts(',');
    let at = names.read(parts.next().unwrap_or(value), 0, 65_535)?;
    let mut relative = false;
    for part in parts {
        match part.text {
            "relative" => relative = true,
            "rawbytes" => {}
            _ => return wrong(part.at, "relative or rawbytes"),
        }
    }
    Ok(Step::Data { at, relative, not })
}

/// Notes why the rule cannot be used, and reads on.
#[inline(never)]
fn unused(context: &mut Context<'_>, reason: String) -> Result<(), Wrong> {
    context.unsupported.push(reason);
    Ok(())
}

fn once<T>(place: &mut Option<T>, name: Piece<'_>, value: T) -> Result<(), Wrong> {
    if place.replace(value).is_some() {
        wrong(name.at, format!("one such option, not a second {}", name.text))
    } else {
        Ok(())
    }
}

#[inline(never)]
fn need(header: &Header, proto: Proto, name: Piece<'_>) -> Result<(), Wrong> {
    if header.proto == proto {
        Ok(())
    } else {
        wrong(name.at, format!("{} only in a rule for {proto:?}", name.text).to_lowercase())
    }
}

#[inline(never)]
fn unescape(text: &str) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or('\\') } else { c });
    }
    out
}
