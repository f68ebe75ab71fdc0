//! Rights as values, and their meet.

use crate::hex::hex;
use crate::key::PublicKey;
use flame_plan::least_common_multiple;
use flame_plan::{Action, Expose, Share, ShownFilter, Transforms, TrustedFilter};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// An action that a module can be granted besides reading packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// Emit rows in its tables.
    Records,
    /// Send messages from its fast instances to a slow one.
    Messages,
    /// Write packets to a capture file.
    Packets,
    /// Send texts to the operator.
    Log,
    /// Decide about packets: from which output of an element they go on, or that they do not.
    Forward,
    /// Change the bytes of packets that it forwards.
    Modify,
    /// Send packets of its own from outputs of an element.
    Transmit,
    /// Hold packets that it forwards, and send them later.
    Hold,
    /// Send frames on its channels.
    Send,
    /// Call services of other modules.
    Call,
    /// Offer services to other modules.
    Serve,
    /// Share memory with other modules.
    Share,
    /// Keep state beyond its instances.
    State,
    /// Get a seed of random numbers.
    Random,
}

impl Call {
    pub const ALL: [Self; 14] = [
        Self::Records,
        Self::Messages,
        Self::Packets,
        Self::Log,
        Self::Forward,
        Self::Modify,
        Self::Transmit,
        Self::Hold,
        Self::Send,
        Self::Call,
        Self::Serve,
        Self::Share,
        Self::State,
        Self::Random,
    ];

    /// Returns the name that policies and credentials use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::Messages => "messages",
            Self::Packets => "packets",
            Self::Log => "log",
            Self::Forward => "forward",
            Self::Modify => "modify",
            Self::Transmit => "transmit",
            Self::Hold => "hold",
            Self::Send => "send",
            Self::Call => "call",
            Self::Serve => "serve",
            Self::Share => "share",
            Self::State => "state",
            Self::Random => "random",
        }
    }
}

/// A call of a node that a capsule can be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CapsuleCall {
    /// Send copies of itself.
    Send,
    /// Deliver bytes to the host that began it.
    Deliver,
    /// Leave values for later capsules.
    Leave,
    /// Ask for services of installed modules.
    Service,
    /// Read how long its own capsules took.
    Times,
}

impl CapsuleCall {
    pub const ALL: [Self; 5] = [Self::Send, Self::Deliver, Self::Leave, Self::Service, Self::Times];

    /// Returns the name that policies, credentials and configurations use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Deliver => "deliver",
            Self::Leave => "leave",
            Self::Service => "service",
            Self::Times => "times",
        }
    }
}

/// A set of modules: any module, one file, or all files that a key signed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    Any,
    /// The SHA-256 of the `.wasm` file.
    Hash([u8; 32]),
    Signer(PublicKey),
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Hash(hash) => write!(f, "sha256:{}", hex(hash)),
            Self::Signer(key) => key.fmt(f),
        }
    }
}

/// The filter of a block, with the form of the packets on which it is evaluated: as its author saw them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Staged {
    pub filter: ShownFilter,
    pub expose: Expose,
    pub transforms: Transforms,
    pub resolution_ns: u64,
    /// The root and the principal under whose key the packets were transformed; empty if no transform has a
    /// key.
    pub author: String,
}

/// The form of packets that policy and root state, on which sampling decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sampled {
    pub expose: Expose,
    pub transforms: Transforms,
    pub resolution_ns: u64,
}

impl Sampled {
    pub(crate) fn new(rights: &Rights) -> Self {
        let Rights { expose, transforms, resolution_ns, .. } = rights;
        Self { expose: *expose, transforms: transforms.clone(), resolution_ns: *resolution_ns }
    }
}

impl fmt::Display for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.filter)?;
        if self.expose != Expose::All || !self.transforms.is_empty() {
            write!(f, " {{packets with expose={}", self.expose)?;
            self.transforms
                .iter()
                .try_for_each(|(field, action)| write!(f, ", {}={action}", field.name()))?;
            f.write_str("}")?;
        }
        Ok(())
    }
}

/// Everything that can be granted. [`Rights::all`] is the widest value. [`Rights::meet`] is the widest that
/// neither of two values exceeds, so that adding rights to a chain can only narrow it. Rights form a lattice:
/// the meet is independent of order, and repeating it changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Filters of the policy or a root, in pcap syntax. A packet must pass all.
    pub select: BTreeSet<TrustedFilter>,
    /// Filters of blocks after the root's, each on the packet as its author saw it. What a later block hides
    /// changes no filter before it.
    pub stages: BTreeSet<Staged>,
    /// Filters of others, evaluated on the packet as shown, since a filter on a hidden byte would reveal it.
    pub select_shown: BTreeSet<ShownFilter>,
    pub expose: Expose,
    /// The transforms of fields that are not kept.
    pub transforms: Transforms,
    /// The resolution in nanoseconds, never 0. The meet of two is their least common multiple, which reveals
    /// no more than either.
    pub resolution_ns: u64,
    /// The least packet time in nanoseconds between two ticks, never 0; `u64::MAX` permits none. The meet of
    /// two is their least common multiple, as ticks fall on multiples.
    pub ticks_ns: u64,
    /// The divisor of sampling, one packet in `sample`, never 0. A sample of one in 100 is a subset of a
    /// sample of one in 10.
    pub sample: u32,
    /// The forms of packets on which sampling decides: one for each credential, which its narrowing does not
    /// change.
    pub sampled: BTreeSet<Sampled>,
    pub calls: BTreeSet<Call>,
    /// Maximum memory of one instance, in bytes.
    pub memory: u64,
    /// Maximum work per packet, in units of work.
    pub packet_budget: u64,
    pub records_per_second: u64,
    pub bytes_per_second: u64,
    /// Maximum bytes of packets to write or send per second.
    pub transmit: u64,
    /// Filters of frames to send on channels, all of which a frame must pass.
    pub send: BTreeSet<ShownFilter>,
    /// The services that it may call, and those that it may offer; `None` permits all.
    pub call: Option<BTreeSet<String>>,
    pub serve: Option<BTreeSet<String>>,
    /// The shared areas that it may only read, and those that it may write; `None` permits all.
    pub read: Option<BTreeSet<String>>,
    pub write: Option<BTreeSet<String>>,
    /// The processor time of its modules.
    pub cpu: Option<Share>,
    /// The processor time in which its modules are examined, analysed and compiled.
    pub compile: Option<Share>,
    /// Maximum number of blocks that may wait for the module.
    pub buffer: u32,
    pub priority: u32,
    /// Minimum number of packets for which a record stands.
    pub group: u64,
    /// Sets of code, each of which must contain the module.
    pub code: BTreeSet<BTreeSet<Code>>,
    /// The time from which the rights are valid, in seconds since 1970.
    pub not_before: u64,
    pub expires: u64,
    /// The permitted nodes; `None` permits all.
    pub nodes: Option<BTreeSet<String>>,
    pub interfaces: Option<BTreeSet<String>>,
    /// The calls of its capsules.
    pub capsule: BTreeSet<CapsuleCall>,
    /// Maximum instructions and bytes on links of its capsules at a node, per second.
    pub capsule_instructions: u64,
    pub capsule_bytes: u64,
    /// Maximum copies of one capsule, with all that its copies send.
    pub capsule_copies: u32,
    /// Maximum bytes of values that its capsules leave at a node.
    pub soft_state: u64,
    /// The services that its capsules may ask for; `None` permits all.
    pub ask: Option<BTreeSet<String>>,
}

impl Rights {
    /// Returns the widest rights.
    pub fn all() -> Self {
        Self {
            select: BTreeSet::new(),
            stages: BTreeSet::new(),
            select_shown: BTreeSet::new(),
            expose: Expose::All,
            transforms: BTreeMap::new(),
            resolution_ns: 1,
            ticks_ns: 1,
            sample: 1,
            sampled: BTreeSet::new(),
            calls: Call::ALL.into(),
            memory: u64::MAX,
            packet_budget: u64::MAX,
            records_per_second: u64::MAX,
            bytes_per_second: u64::MAX,
            transmit: u64::MAX,
            send: BTreeSet::new(),
            call: None,
            serve: None,
            read: None,
            write: None,
            cpu: None,
            compile: None,
            buffer: u32::MAX,
            priority: u32::MAX,
            group: 0,
            code: BTreeSet::new(),
            not_before: 0,
            expires: u64::MAX,
            nodes: None,
            interfaces: None,
            capsule: CapsuleCall::ALL.into(),
            capsule_instructions: u64::MAX,
            capsule_bytes: u64::MAX,
            capsule_copies: u32::MAX,
            soft_state: u64::MAX,
            ask: None,
        }
    }

    /// Returns the rights that both grant.
    #[must_use]
    pub fn meet(mut self, other: Self) -> Self {
        self.select.extend(other.select);
        self.stages.extend(other.stages);
        self.select_shown.extend(other.select_shown);
        self.expose = self.expose.meet(other.expose);
        for (field, action) in other.transforms {
            let mine = self.transforms.entry(field).or_default();
            *mine = mine.meet(action);
        }
        self.transforms.retain(|_, action| *action != Action::Keep);
        self.resolution_ns = least_common_multiple(self.resolution_ns, other.resolution_ns);
        self.ticks_ns = least_common_multiple(self.ticks_ns, other.ticks_ns);
        self.sample = self.sample.max(other.sample);
        self.sampled.extend(other.sampled);
        self.calls.retain(|call| other.calls.contains(call));
        self.memory = self.memory.min(other.memory);
        self.packet_budget = self.packet_budget.min(other.packet_budget);
        self.records_per_second = self.records_per_second.min(other.records_per_second);
        self.bytes_per_second = self.bytes_per_second.min(other.bytes_per_second);
        self.transmit = self.transmit.min(other.transmit);
        self.send.extend(other.send);
        let least = |a: Share, b: Share| Share {
            slice_ns: a.slice_ns.min(b.slice_ns),
            period_ns: a.period_ns.max(b.period_ns),
        };
        self.cpu = either(self.cpu, other.cpu, least);
        self.compile = either(self.compile, other.compile, least);
        self.buffer = self.buffer.min(other.buffer);
        self.priority = self.priority.min(other.priority);
        self.group = self.group.max(other.group);
        self.code.extend(other.code);
        self.not_before = self.not_before.max(other.not_before);
        self.expires = self.expires.min(other.expires);
        let both = |a: BTreeSet<String>, b: BTreeSet<String>| a.intersection(&b).cloned().collect();
        self.call = either(self.call, other.call, both);
        self.serve = either(self.serve, other.serve, both);
        self.read = either(self.read, other.read, both);
        self.write = either(self.write, other.write, both);
        self.nodes = either(self.nodes, other.nodes, both);
        self.interfaces = either(self.interfaces, other.interfaces, both);
        self.capsule.retain(|call| other.capsule.contains(call));
        self.capsule_instructions = self.capsule_instructions.min(other.capsule_instructions);
        self.capsule_bytes = self.capsule_bytes.min(other.capsule_bytes);
        self.capsule_copies = self.capsule_copies.min(other.capsule_copies);
        self.soft_state = self.soft_state.min(other.soft_state);
        self.ask = either(self.ask, other.ask, both);
        self
    }

    /// Returns whether `self` grants nothing beyond `other`.
    pub fn within(&self, other: &Self) -> bool {
        // All packets contain every sample.
        let sampled = if other.sample > 1 { other.sampled.clone() } else { BTreeSet::new() };
        self.clone().meet(Self { sampled, ..other.clone() }) == *self
    }
}

fn either<T>(a: Option<T>, b: Option<T>, both: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(both(a, b)),
        (a, b) => a.or(b),
    }
}
