//! Rules as the engine keeps them, and the index in which each is.

use super::fast;
use super::gate::Gate;
use super::regex::Caches;
use super::steps::Steps;
use super::work::{ALERT, ALERT_BYTES, CANDIDATE, CONDITION, RATE};
use crate::rule::address::Addresses;
use crate::rule::start::{BEYOND, Start};
use crate::rule::{Buffer, Dialect, Part, Rule};

pub struct Ready {
    pub rule: Rule,
    /// The steps of each part of the rule.
    pub parts: Box<[Steps]>,
    /// Whether the header matches any address and port.
    pub anywhere: bool,
    /// Whether the rule matches once for each connection and direction.
    pub once: bool,
    /// Whether the rule takes all further packets of a connection from the other rules.
    pub passes_connection: bool,
    /// The work of a look at the rule, and of an alert.
    pub look: u32,
    pub alert: u32,
}

impl Ready {
    fn new(rule: Rule, parts: Box<[Steps]>, dialect: Dialect) -> Self {
        let h = &rule.header;
        let anywhere = h.src.is_all()
            && h.dst.is_all()
            && h.sport.is_all()
            && h.dport.is_all()
            && h.family.is_none()
            && h.number.is_none();
        let in_suricata = dialect == Dialect::Suricata;
        let once = in_suricata && rule.is_header_only() && h.src.is_plain && h.dst.is_plain;
        let passes_connection = in_suricata && rule.passes_connection();
        let sizes: usize = rule.parts.iter().map(|p| p.sizes.len()).sum();
        let names: usize = rule.marks.iter().map(|m| 1 + m.names.len()).sum();
        let bytes = rule.msg.len() + rule.class.len() + rule.metadata.len();
        let of = |count: usize, each: u32| u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(each);
        let conditions = rule.checks.len() + sizes + names;
        let rate = if rule.rate.is_some() { RATE } else { 0 };
        let look = (CANDIDATE + rate).saturating_add(of(conditions, CONDITION));
        let alert = ALERT.saturating_add(of(bytes / 16, ALERT_BYTES));
        Self { anywhere, once, passes_connection, rule, parts, look, alert }
    }
}

/// A rule in use, how it is found, and its gate.
pub struct Prepared {
    pub ready: Ready,
    pub found: Found,
    pub gate: Gate,
}

impl Prepared {
    /// Prepares a rule, or returns it with the reason why it cannot be used.
    pub fn new(
        rule: Rule,
        dialect: Dialect,
        caches: &mut Caches,
        start: &mut Start,
    ) -> Result<Self, (Box<Rule>, String)> {
        let parts: Result<_, _> = rule.parts.iter().map(|p| Steps::new(&p.steps, caches, start)).collect();
        let parts = match parts {
            Ok(parts) => parts,
            Err(reason) => return Err((rule.into(), reason)),
        };
        let ranges = |set: &Addresses| (set.v4.parts().len() + set.v6.parts().len()) as u64;
        let h = &rule.header;
        if !start.counting(ranges(&h.src) + ranges(&h.dst) + h.dport.parts().len() as u64) {
            return Err((rule.into(), BEYOND.to_owned()));
        }
        let gate = Gate::new(&rule, dialect);
        let found = Found::new(&rule, &gate);
        if let Found::Plain(by) = found
            && !start.prefixes(by.prefixes(&rule))
        {
            return Err((rule.into(), BEYOND.to_owned()));
        }
        Ok(Self { ready: Ready::new(rule, parts, dialect), found, gate })
    }
}

/// The side by which a rule without contents is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Source,
    Destination,
    Port,
}

/// Returns the side on which a rule restricts addresses most, if to less than a 256th of all.
fn selective(rule: &Rule) -> By {
    let width = |set: &Addresses| {
        let v4: u64 = set.v4.parts().iter().map(|(a, b)| u64::from(b - a) + 1).sum();
        // In units of 2^96, of which IPv6 has 2^32.
        let v6: u64 = set.v6.parts().iter().map(|(a, b)| ((b - a) >> 96) as u64).sum();
        v4.max(v6)
    };
    let (src, dst) = (width(&rule.header.src), width(&rule.header.dst));
    match src.min(dst) {
        least if least >= 1 << 24 => By::Port,
        least if least == src => By::Source,
        _ => By::Destination,
    }
}

impl By {
    /// Returns the number of prefixes in the indexes by which a rule is found. One of IPv6 addresses counts
    /// as four.
    fn prefixes(self, rule: &Rule) -> u64 {
        let h = &rule.header;
        let addresses = |set: &Addresses| set.v4.prefixes() + 4 * set.v6.prefixes();
        let both = u64::from(h.both);
        match self {
            Self::Source => addresses(&h.src) + both * addresses(&h.src),
            Self::Destination => addresses(&h.dst) + both * addresses(&h.dst),
            // A rule may be in the index of each transport.
            Self::Port => 4 * h.dport.prefixes(),
        }
    }
}

/// The way to find the packets to which a rule may apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Payload(Vec<u8>),
    Buffer(Buffer, Option<Vec<u8>>),
    Plain(By),
}

impl Found {
    fn new(rule: &Rule, gate: &Gate) -> Self {
        let of = |part: &Part| {
            let pattern = fast::pattern(part.steps.iter(), None);
            (part.buffer != Buffer::Payload).then_some((part.buffer, pattern))
        };
        // A buffer is in few packets, so it is the better choice.
        let buffers: Vec<_> = rule.parts.iter().filter_map(of).collect();
        if let Some((buffer, pattern)) =
            buffers.iter().find(|(_, pattern)| pattern.is_some()).or(buffers.first())
        {
            return Self::Buffer(*buffer, pattern.clone());
        }
        match fast::pattern(rule.payload_steps(), Some(gate)) {
            Some(pattern) => Self::Payload(pattern),
            None => Self::Plain(selective(rule)),
        }
    }
}
