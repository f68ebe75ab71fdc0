//! The fields of a grant. Each has one name and one form in policies, in credentials and on the command line.

use crate::hex::{hex, unhex};
use crate::key::PublicKey;
use crate::rights::{Call, CapsuleCall, Code, Rights};
use crate::time;
use flame_abi::manifest::duration_ns;
use flame_plan::{Action, Expose, Field as PacketField, Share, ShownFilter, TrustedFilter};
use std::collections::BTreeSet;

/// A field, which has a name and a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    Select,
    Expose,
    Transform,
    Resolution,
    Ticks,
    Sample,
    Calls,
    Memory,
    PacketBudget,
    RecordsPerSecond,
    BytesPerSecond,
    Transmit,
    Send,
    Call,
    Serve,
    Read,
    Write,
    Cpu,
    Compile,
    Buffer,
    Priority,
    Group,
    Code,
    NotBefore,
    Expires,
    Node,
    Interface,
    Capsule,
    CapsuleInstructions,
    CapsuleBytes,
    CapsuleCopies,
    SoftState,
    Ask,
}

/// Maximum length of a value, in characters.
pub const MAX_VALUE: usize = 4096;

impl Field {
    pub const ALL: [Self; 33] = [
        Self::Select,
        Self::Expose,
        Self::Transform,
        Self::Resolution,
        Self::Ticks,
        Self::Sample,
        Self::Calls,
        Self::Memory,
        Self::PacketBudget,
        Self::RecordsPerSecond,
        Self::BytesPerSecond,
        Self::Transmit,
        Self::Send,
        Self::Call,
        Self::Serve,
        Self::Read,
        Self::Write,
        Self::Cpu,
        Self::Compile,
        Self::Buffer,
        Self::Priority,
        Self::Group,
        Self::Code,
        Self::NotBefore,
        Self::Expires,
        Self::Node,
        Self::Interface,
        Self::Capsule,
        Self::CapsuleInstructions,
        Self::CapsuleBytes,
        Self::CapsuleCopies,
        Self::SoftState,
        Self::Ask,
    ];

    /// Returns the name that policies and credentials use.
    pub fn name(self) -> &'static str {
        self.texts().0
    }

    /// Returns the form of the field's values and their meaning.
    pub fn help(self) -> &'static str {
        self.texts().1
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Select => ("select", "a pcap filter that packets must pass; empty for every packet"),
            Self::Expose => ("expose", "count, none, headers, payload:N or all"),
            Self::Transform => (
                "transform",
                "FIELD=ACTION,…: FIELD mac, ip, port or one side; ACTION prefix, hash, truncate:BITS, zero",
            ),
            Self::Resolution => ("resolution", "time stamps are rounded down to it: 1us, 10ms, 1s"),
            Self::Ticks => {
                ("ticks", "at least this packet time is between two of its ticks: 10s; none: it has none")
            }
            Self::Sample => ("sample", "one packet in N is shown"),
            Self::Calls => (
                "calls",
                "records, messages, packets, log, forward, modify, transmit, hold, send, call, serve, share, state, \
                 random, separated by commas; empty for none",
            ),
            Self::Memory => ("memory", "of all instances together: 64MiB"),
            Self::PacketBudget => ("packet_budget", "units of work of one packet"),
            Self::RecordsPerSecond => ("records_per_second", "records out, in packet time"),
            Self::BytesPerSecond => ("bytes_per_second", "of records out, in packet time: 1MiB"),
            Self::Transmit => ("transmit", "bytes a second of packets written or sent, in packet time"),
            Self::Send => ("send", "a pcap filter that frames sent on channels must pass"),
            Self::Call => ("call", "names of services that it may call, separated by commas"),
            Self::Serve => ("serve", "names of services that it may offer, separated by commas"),
            Self::Read => ("read", "names of shared areas that it may read, separated by commas"),
            Self::Write => ("write", "names of shared areas that it may read and write, separated by commas"),
            Self::Cpu => ("cpu", "SLICE/PERIOD of processor time, all workers together: 10ms/100ms"),
            Self::Compile => {
                ("compile", "SLICE/PERIOD of processor time to examine, analyse and compile modules: 60s/1h")
            }
            Self::Buffer => ("buffer", "blocks that may wait for it"),
            Self::Priority => ("priority", "higher is shed later"),
            Self::Group => ("group", "packets that a record must stand for, at least"),
            Self::Code => ("code", "any, sha256:HASH, or a signer's key; several separated by commas"),
            Self::NotBefore => ("not_before", "a time: 2026-01-31T12:00:00Z"),
            Self::Expires => ("expires", "a time: 2026-01-31T12:00:00Z"),
            Self::Node => ("node", "names of nodes, separated by commas"),
            Self::Interface => ("interface", "interfaces, separated by commas; `file` for captures"),
            Self::Capsule => (
                "capsule",
                "calls of its capsules: send, deliver, leave, service, times, separated by commas; empty for none",
            ),
            Self::CapsuleInstructions => {
                ("capsule_instructions", "instructions of its capsules at a node, in a second")
            }
            Self::CapsuleBytes => {
                ("capsule_bytes", "bytes of datagrams of its capsules at a node, in a second: 1MiB")
            }
            Self::CapsuleCopies => ("capsule_copies", "copies of one of its capsules, in the whole network"),
            Self::SoftState => ("soft_state", "bytes of values that its capsules leave at a node: 4KiB"),
            Self::Ask => ("ask", "names of services that its capsules may ask for, separated by commas"),
        }
    }

    /// Returns the field of this name, if there is one.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.name() == name)
    }

    /// Returns the rights for a value that the policy or a root states. In contrast to [`Field::rights`],
    /// filters are evaluated on the true packet.
    pub(crate) fn trusted_rights(self, value: &str) -> Result<Rights, String> {
        if self != Self::Select {
            return self.rights(value);
        }
        self.plain(value)?;
        let filter = TrustedFilter::parse(value).map_err(|e| format!("{} = {value:?}: {e}", self.name()))?;
        Ok(Rights { select: filter.into_iter().collect(), ..Rights::all() })
    }

    /// Checks that a value has no characters that Datalog's printed form would have to escape, because it has
    /// no escapes.
    fn plain(self, value: &str) -> Result<(), String> {
        if value.len() > MAX_VALUE || value.chars().any(|c| c == '"' || c == '\\' || c.is_control()) {
            let most =
                format!("at most {MAX_VALUE} characters, none of them a quote, a backslash or a control");
            return Err(format!("{} takes {most}", self.name()));
        }
        Ok(())
    }

    /// Returns the rights that `value` narrows, and nothing else.
    ///
    /// # Errors
    ///
    /// Returns a description of the error in the value.
    pub fn rights(self, value: &str) -> Result<Rights, String> {
        self.plain(value)?;
        let mut r = Rights::all();
        let wrong = |what: String| format!("{} = {value:?}: {what}", self.name());
        let form = || wrong(format!("expected {}", self.help()));
        let number = || value.parse::<u64>().map_err(|_| form());
        let small = |least: u32| value.parse::<u32>().ok().filter(|n| *n >= least).ok_or_else(form);
        let list = || value.split(',').map(str::trim).filter(|part| !part.is_empty());
        let names = || {
            let names: BTreeSet<String> = list().map(str::to_owned).collect();
            if names.is_empty() { Err(form()) } else { Ok(Some(names)) }
        };
        let share = || {
            let (slice, period) = value.split_once('/').ok_or_else(form)?;
            let ns = |text: &str| duration_ns(text.trim()).map_err(wrong);
            let share = Share { slice_ns: ns(slice)? as u64, period_ns: ns(period)? as u64 };
            match share.period_ns == 0 || share.slice_ns > share.period_ns {
                true => Err(wrong("the slice must fit in the period".to_owned())),
                false => Ok(share),
            }
        };
        match self {
            Self::Select => r.select_shown.extend(ShownFilter::parse(value).map_err(wrong)?),
            Self::Expose => r.expose = value.parse::<Expose>().map_err(wrong)?,
            Self::Transform => {
                for part in list() {
                    let (field, action) = part.split_once('=').ok_or_else(form)?;
                    let action: Action = action.parse().map_err(wrong)?;
                    for field in PacketField::parse(field).map_err(wrong)? {
                        let is_ip = matches!(field, PacketField::IpSrc | PacketField::IpDst);
                        if action == Action::Prefix && !is_ip {
                            return Err(wrong(
                                "only ip has prefixes: hash, truncate:BITS or zero".to_owned(),
                            ));
                        }
                        let mine = r.transforms.entry(field).or_default();
                        *mine = mine.meet(action);
                    }
                }
                r.transforms.retain(|_, a| *a != Action::Keep);
            }
            Self::Resolution => {
                let ns = duration_ns(value).map_err(wrong)?;
                r.resolution_ns = u64::try_from(ns).ok().filter(|ns| *ns > 0).ok_or_else(form)?;
            }
            Self::Ticks if value == "none" => r.ticks_ns = u64::MAX,
            Self::Ticks => {
                let ns = duration_ns(value).map_err(wrong)?;
                r.ticks_ns = u64::try_from(ns).ok().filter(|ns| *ns > 0).ok_or_else(form)?;
            }
            Self::Sample => r.sample = small(1)?,
            Self::Calls => {
                let call = |name: &str| {
                    let known = Call::ALL.into_iter().find(|c| c.name() == name);
                    known.ok_or_else(|| wrong(format!("{name:?}: expected {}", self.help())))
                };
                r.calls = list().map(call).collect::<Result<_, _>>()?;
            }
            Self::Memory => r.memory = bytes(value).ok_or_else(form)?,
            Self::PacketBudget => r.packet_budget = number()?,
            Self::RecordsPerSecond => r.records_per_second = number()?,
            Self::BytesPerSecond => r.bytes_per_second = bytes(value).ok_or_else(form)?,
            Self::Transmit => r.transmit = bytes(value).ok_or_else(form)?,
            Self::Send => r.send.extend(ShownFilter::parse(value).map_err(wrong)?),
            Self::Call => r.call = names()?,
            Self::Serve => r.serve = names()?,
            Self::Read => r.read = names()?,
            Self::Write => r.write = names()?,
            Self::Cpu => r.cpu = Some(share()?),
            Self::Compile => r.compile = Some(share()?),
            Self::Buffer => r.buffer = small(1)?,
            Self::Priority => r.priority = small(0)?,
            Self::Group => r.group = number()?,
            Self::Code => {
                let code: BTreeSet<Code> =
                    list().map(|part| code(part).ok_or_else(form)).collect::<Result<_, _>>()?;
                if code.is_empty() {
                    return Err(form());
                }
                // A set that contains any code does not narrow.
                if !code.contains(&Code::Any) {
                    r.code.insert(code);
                }
            }
            Self::NotBefore => r.not_before = time::parse(value).map_err(wrong)?,
            Self::Expires => r.expires = time::parse(value).map_err(wrong)?,
            Self::Node => r.nodes = names()?,
            Self::Interface => r.interfaces = names()?,
            Self::Capsule => {
                let call = |name: &str| {
                    let known = CapsuleCall::ALL.into_iter().find(|call| call.name() == name);
                    known.ok_or_else(|| wrong(format!("{name:?}: expected {}", self.help())))
                };
                r.capsule = list().map(call).collect::<Result<_, _>>()?;
            }
            Self::CapsuleInstructions => r.capsule_instructions = number()?,
            Self::CapsuleBytes => r.capsule_bytes = bytes(value).ok_or_else(form)?,
            Self::CapsuleCopies => r.capsule_copies = small(0)?,
            Self::SoftState => r.soft_state = bytes(value).ok_or_else(form)?,
            Self::Ask => r.ask = names()?,
        }
        Ok(r)
    }

    /// Returns the field of `rights` as text for people, or `None` if it is not narrowed.
    pub fn show(self, rights: &Rights) -> Option<String> {
        let all = Rights::all();
        let number = |n: u64, most: u64| (n != most).then(|| n.to_string());
        let joined = |set: &Option<BTreeSet<String>>| {
            set.as_ref().map(|names| names.iter().cloned().collect::<Vec<_>>().join(", "))
        };
        match self {
            Self::Select => {
                let trusted = rights.select.iter().map(ToString::to_string);
                let staged = rights.stages.iter().map(ToString::to_string);
                let shown = rights.select_shown.iter().map(ToString::to_string);
                joined_filters(trusted.chain(staged).chain(shown))
            }
            Self::Send => joined_filters(rights.send.iter().map(ToString::to_string)),
            Self::Call => joined(&rights.call),
            Self::Serve => joined(&rights.serve),
            Self::Read => joined(&rights.read),
            Self::Write => joined(&rights.write),
            Self::Expose => (rights.expose != all.expose).then(|| rights.expose.to_string()),
            Self::Transform => {
                let each: Vec<_> =
                    rights.transforms.iter().map(|(f, a)| format!("{}={a}", f.name())).collect();
                (!each.is_empty()).then(|| each.join(","))
            }
            Self::Resolution => (rights.resolution_ns > 1).then(|| nanoseconds(rights.resolution_ns)),
            Self::Ticks => match rights.ticks_ns {
                1 => None,
                u64::MAX => Some("none".to_owned()),
                ns => Some(nanoseconds(ns)),
            },
            Self::Sample => (rights.sample > 1).then(|| rights.sample.to_string()),
            Self::Calls => (rights.calls != all.calls).then(|| {
                let names: Vec<_> = rights.calls.iter().map(|c| c.name()).collect();
                names.join(",")
            }),
            Self::Memory => number(rights.memory, all.memory).map(|_| size(rights.memory)),
            Self::PacketBudget => number(rights.packet_budget, all.packet_budget),
            Self::RecordsPerSecond => number(rights.records_per_second, all.records_per_second),
            Self::BytesPerSecond => {
                number(rights.bytes_per_second, all.bytes_per_second).map(|_| size(rights.bytes_per_second))
            }
            Self::Transmit => number(rights.transmit, all.transmit).map(|_| size(rights.transmit)),
            Self::Cpu => rights.cpu.map(|share| share.to_string()),
            Self::Compile => rights.compile.map(|share| share.to_string()),
            Self::Buffer => (rights.buffer != all.buffer).then(|| rights.buffer.to_string()),
            Self::Priority => (rights.priority != all.priority).then(|| rights.priority.to_string()),
            Self::Group => number(rights.group, 0),
            Self::Code => {
                let each =
                    |set: &BTreeSet<Code>| set.iter().map(Code::to_string).collect::<Vec<_>>().join(",");
                let sets: Vec<_> = rights.code.iter().map(each).collect();
                (!sets.is_empty()).then(|| sets.join(" and "))
            }
            Self::NotBefore => (rights.not_before > 0).then(|| time::show(rights.not_before)),
            Self::Expires => (rights.expires < u64::MAX).then(|| time::show(rights.expires)),
            Self::Node => joined(&rights.nodes),
            Self::Interface => joined(&rights.interfaces),
            Self::Capsule => (rights.capsule != all.capsule).then(|| {
                let names: Vec<_> = rights.capsule.iter().map(|call| call.name()).collect();
                names.join(",")
            }),
            Self::CapsuleInstructions => number(rights.capsule_instructions, all.capsule_instructions),
            Self::CapsuleBytes => {
                number(rights.capsule_bytes, all.capsule_bytes).map(|_| size(rights.capsule_bytes))
            }
            Self::CapsuleCopies => number(rights.capsule_copies.into(), all.capsule_copies.into()),
            Self::SoftState => number(rights.soft_state, all.soft_state).map(|_| size(rights.soft_state)),
            Self::Ask => joined(&rights.ask),
        }
    }
}

/// Returns the conjunction of filters, or `None` if there are none.
fn joined_filters(filters: impl Iterator<Item = String>) -> Option<String> {
    let mut each: Vec<String> = filters.collect();
    match each.len() {
        0 | 1 => each.pop(),
        _ => Some(each.iter().map(|filter| format!("({filter})")).collect::<Vec<_>>().join(" and ")),
    }
}

fn code(text: &str) -> Option<Code> {
    if text == "any" {
        return Some(Code::Any);
    }
    match text.strip_prefix("sha256:") {
        Some(digits) => Some(Code::Hash(unhex(digits)?.try_into().ok()?)),
        None => Some(Code::Signer(PublicKey::parse(text).ok()?)),
    }
}

/// Parses `4096`, `64KiB`, `1MiB` or `2GiB`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[digits..].trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn size(n: u64) -> String {
    match n {
        n if n > 0 && n.is_multiple_of(1 << 30) => format!("{}GiB", n >> 30),
        n if n > 0 && n.is_multiple_of(1 << 20) => format!("{}MiB", n >> 20),
        n if n > 0 && n.is_multiple_of(1 << 10) => format!("{}KiB", n >> 10),
        n => n.to_string(),
    }
}

fn nanoseconds(ns: u64) -> String {
    match ns {
        n if n > 0 && n.is_multiple_of(1_000_000_000) => format!("{}s", n / 1_000_000_000),
        n if n > 0 && n.is_multiple_of(1_000_000) => format!("{}ms", n / 1_000_000),
        n if n > 0 && n.is_multiple_of(1000) => format!("{}us", n / 1000),
        n => format!("{n}ns"),
    }
}

/// Returns a module's hash in the form of credentials.
pub fn hash_text(hash: &[u8; 32]) -> String {
    format!("sha256:{}", hex(hash))
}
