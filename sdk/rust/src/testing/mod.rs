//! Runs a module natively: the same code without the sandbox, for unit tests and as the baseline of
//! benchmarks.

mod traffic;

pub use traffic::{PacketBuilder, Traffic};

use crate::{Batch, Forward, Init, Module, Out, Progress, Record, Reply, Request, SharedArea, Slow};
use flame_abi::output::{
    CALL, CALL_HEAD, CHANNEL, CHANNEL_HEAD, COPY, FRAME, HOLD, LOG, LOST, MADE, MESSAGE, RELEASE, REPLY,
    REPLY_HEAD, SEND, SEND_HEAD,
};
use flame_abi::{BatchHeader, Descriptor, InitHeader, role};
use std::collections::BTreeMap;

/// One row as the module wrote it: the number of its table and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowBytes {
    pub table: u16,
    pub bytes: Vec<u8>,
}

impl RowBytes {
    /// Returns the little-endian integer of `size` bytes at `offset`.
    ///
    /// # Panics
    ///
    /// Panics if the row is shorter.
    pub fn integer(&self, offset: usize, size: usize) -> u64 {
        self.bytes[offset..offset + size].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
    }
}

/// Parameters in the form in which the host passes them.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    values: BTreeMap<String, Vec<u8>>,
}

impl Parameters {
    /// Sets a parameter to its encoded value.
    pub fn with(mut self, name: &str, value: &[u8]) -> Self {
        self.values.insert(name.to_owned(), value.to_vec());
        self
    }

    /// Returns the manifest's defaults, for example `Parameters::of(Params::DEFAULTS)`. Parameters that are
    /// added later override them.
    pub fn of(defaults: &[(&str, &[u8])]) -> Self {
        defaults.iter().fold(Self::default(), |all, (name, value)| all.with(name, value))
    }

    /// Sets an integer, a boolean (0 or 1) or a duration in nanoseconds.
    pub fn integer(self, name: &str, value: i64) -> Self {
        self.with(name, &value.to_le_bytes())
    }

    pub fn number(self, name: &str, value: f64) -> Self {
        self.with(name, &value.to_le_bytes())
    }

    pub fn text(self, name: &str, value: &str) -> Self {
        self.with(name, value.as_bytes())
    }

    /// Returns the bytes that a fast instance without an interval gets at its start, for [`Init::new`].
    pub fn init(&self) -> Vec<u8> {
        self.bytes_for(role::FAST, 0)
    }

    fn bytes_for(&self, role: u32, interval_ns: u64) -> Vec<u8> {
        let tick_ns = if interval_ns == 0 { 1_000_000_000 } else { interval_ns };
        let header = InitHeader {
            abi: flame_abi::VERSION,
            role,
            workers: 1,
            tick_ns,
            interval_ns,
            ..Default::default()
        };
        [&header.to_bytes(), self.to_bytes().as_slice()].concat()
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, value) in &self.values {
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend([0; 2]);
            bytes.extend((value.len() as u32).to_le_bytes());
            bytes.extend(name.as_bytes());
            bytes.extend(value);
        }
        bytes
    }
}

/// A packet that a module sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentPacket {
    /// The index of the packet in its batch, or `None` for a new one.
    pub index: Option<usize>,
    pub port: u32,
    /// Its bytes, or none if it continues as it came.
    pub bytes: Vec<u8>,
}

/// A decision of a module about packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Sent(SentPacket),
    /// The packet of the batch is held in the slot.
    Held {
        index: usize,
        slot: u16,
    },
    /// The packet in the slot is sent, or a copy of it.
    Released {
        slot: u16,
        port: u32,
        is_copy: bool,
    },
}

/// Lets a module decide about packets that come to the input `port`, at most 256, and returns its decisions
/// in their order.
///
/// # Panics
/// Panics if there are more packets, or if the output is cut short.
pub fn decide<F: Forward>(module: &mut F, port: u32, traffic: &Traffic) -> Vec<Decision> {
    assert!(traffic.descriptors().len() <= flame_abi::MAX_BATCH, "one batch");
    let mut out = Out::default();
    let batch = Batch::new(traffic.descriptors(), traffic.memory(), 0, &BatchHeader::default());
    module.push(port, &batch, &mut out);
    let decision = |(kind, payload): (u16, &[u8])| {
        let number = |at: usize| u16::from_le_bytes([payload[at], payload[at + 1]]);
        Some(match kind {
            SEND => Decision::Sent(SentPacket {
                index: Some(number(0)).filter(|index| *index != MADE).map(usize::from),
                port: number(2).into(),
                bytes: payload[SEND_HEAD..].to_vec(),
            }),
            HOLD => Decision::Held { index: number(0).into(), slot: number(2) },
            RELEASE | COPY => {
                Decision::Released { slot: number(0), port: number(2).into(), is_copy: kind == COPY }
            }
            _ => return None,
        })
    };
    let output = output(&mut out);
    frames(&output).filter_map(decision).collect()
}

/// Lets a module decide as [`decide`] does, and returns the packets of the batch and the new ones that it
/// sends.
///
/// # Panics
/// Panics as [`decide`] does.
pub fn push<F: Forward>(module: &mut F, port: u32, traffic: &Traffic) -> Vec<SentPacket> {
    let sent = |decision| if let Decision::Sent(sent) = decision { Some(sent) } else { None };
    decide(module, port, traffic).into_iter().filter_map(sent).collect()
}

/// Writes bytes at `offset` of a shared area, as another module of the run would.
///
/// # Panics
/// Panics if the bytes do not lie in the area.
pub fn set_shared<A>(area: &SharedArea<A>, offset: usize, bytes: &[u8]) {
    let written = area.writable().set(offset, bytes);
    assert!(written, "{} bytes at {offset} of {}", bytes.len(), area.name());
}

/// Returns all output of a call.
pub(crate) fn output(out: &mut Out) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let (bytes, more) = out.hand();
        all.extend(bytes);
        if !more {
            return all;
        }
    }
}

/// Returns the frames of an output: kind and payload of each.
pub(crate) fn frames(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (head, after) = rest.split_at_checked(FRAME)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let (payload, next) = after.split_at(length);
        rest = next;
        Some((u16::from_le_bytes([head[4], head[5]]), payload))
    })
}

/// A fast and a slow instance together, as with one worker.
pub struct Native<F, S = crate::NoSlow> {
    pub fast: F,
    slow: Option<S>,
    out: Out,
    pub rows: Vec<RowBytes>,
    /// The number of rows for which the module had no room.
    pub lost: u64,
    /// The texts that the module logged.
    pub logs: Vec<String>,
    /// The frames that the module sent on channels: number of the channel, and bytes.
    pub sent: Vec<(u16, Vec<u8>)>,
    /// The calls of services that the module made: number of the use, token, and request.
    pub calls: Vec<(u16, u64, Vec<u8>)>,
    /// The replies of the module's services: number of the call, and reply.
    pub replies: Vec<(u64, Vec<u8>)>,
}

impl<F: Module> Native<F> {
    /// Creates a fast instance alone: its messages are lost. `interval_ns` is the value of `--interval`.
    pub fn new(parameters: &Parameters, interval_ns: u64) -> Self {
        Self::make(parameters, interval_ns, |_| None)
    }
}

impl<F: Module, S: Slow> Native<F, S> {
    /// Creates both instances. `interval_ns` is the value of `--interval`.
    pub fn with_slow(parameters: &Parameters, interval_ns: u64) -> Self {
        Self::make(parameters, interval_ns, |bytes| Some(S::new(&Init::new(bytes))))
    }

    fn make(parameters: &Parameters, interval_ns: u64, slow: impl FnOnce(&[u8]) -> Option<S>) -> Self {
        let bytes = |role| parameters.bytes_for(role, interval_ns);
        Self {
            fast: F::new(&Init::new(&bytes(role::FAST))),
            slow: slow(&bytes(role::SLOW)),
            out: Out::default(),
            rows: Vec::new(),
            lost: 0,
            logs: Vec::new(),
            sent: Vec::new(),
            calls: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// Returns the rows of one table, with named columns: `native.of::<Total>()[0].packets`.
    ///
    /// # Panics
    /// Panics if a row does not match the manifest.
    pub fn of<'a, R: Record<'a>>(&'a self) -> Vec<R> {
        let rows = self.rows.iter().filter(|row| row.table == R::TABLE);
        rows.map(|row| R::read(&row.bytes).expect("a row is as the manifest states")).collect()
    }

    /// Runs packets in batches of 256.
    pub fn run(&mut self, traffic: &Traffic) {
        self.packets(traffic.descriptors(), traffic.memory());
    }

    /// Runs packets of an event queue in batches of 256.
    pub fn run_queue(&mut self, queue: u16, traffic: &Traffic) {
        let header = BatchHeader { queue: queue.into(), ..BatchHeader::default() };
        self.batches(&header, traffic.descriptors(), traffic.memory());
    }

    /// Runs descriptors whose `addr` is an offset in `memory`, in batches of 256.
    pub fn packets(&mut self, descriptors: &[Descriptor], memory: &[u8]) {
        self.batches(&BatchHeader::default(), descriptors, memory);
    }

    fn batches(&mut self, header: &BatchHeader, descriptors: &[Descriptor], memory: &[u8]) {
        for some in descriptors.chunks(flame_abi::MAX_BATCH) {
            let batch = Batch::new(some, memory, 0, header);
            self.fast.batch(&batch, &mut self.out);
            self.drain(true);
        }
    }

    /// Calls the ticks of the fast instance and, after its messages, of the slow one.
    pub fn tick(&mut self, now_ns: u64) {
        while self.fast.tick(now_ns, &mut self.out) == Progress::More {
            self.drain(true);
        }
        self.drain(true);
        if let Some(mut slow) = self.slow.take() {
            while slow.tick(now_ns, &mut self.out) == Progress::More {
                self.drain(false);
            }
            self.drain(false);
            self.slow = Some(slow);
        }
    }

    /// Informs the fast instance that its memory may grow by `free` bytes only.
    pub fn pressure(&mut self, free: u64) {
        self.fast.pressure(free, &mut self.out);
        self.drain(true);
    }

    /// Calls a service of the module.
    pub fn serve(&mut self, request: &Request<'_>) {
        if let Some(mut slow) = self.slow.take() {
            slow.serve(request, &mut self.out);
            self.drain(false);
            self.slow = Some(slow);
        }
    }

    /// Gives the module the outcome of a call.
    pub fn done(&mut self, reply: &Reply<'_>) {
        if let Some(mut slow) = self.slow.take() {
            slow.done(reply, &mut self.out);
            self.drain(false);
            self.slow = Some(slow);
        }
    }

    /// Makes the last calls of the fast instance and, after its messages, of the slow one.
    pub fn end(&mut self, now_ns: u64) {
        while self.fast.end(now_ns, &mut self.out) == Progress::More {
            self.drain(true);
        }
        self.drain(true);
        if let Some(mut slow) = self.slow.take() {
            while slow.end(now_ns, &mut self.out) == Progress::More {
                self.drain(false);
            }
            self.drain(false);
        }
    }

    /// Returns the states of the fast and of the slow instance.
    pub fn export(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (mut fast, mut slow) = (Vec::new(), Vec::new());
        self.fast.export(&mut fast);
        if let Some(instance) = &mut self.slow {
            instance.export(&mut slow);
        }
        (fast, slow)
    }

    /// Gives states to the instances, right after their start. Returns whether all of them were taken. An
    /// empty state does not count.
    pub fn import(&mut self, fast: &[u8], slow: &[u8]) -> bool {
        let fast = fast.is_empty() || self.fast.import(fast);
        let slow = slow.is_empty() || self.slow.as_mut().is_some_and(|instance| instance.import(slow));
        fast && slow
    }

    fn drain(&mut self, messages: bool) {
        crate::log::flush(&mut self.out);
        let output = output(&mut self.out);
        for (kind, payload) in frames(&output) {
            match kind {
                MESSAGE if messages => {
                    if let Some(mut slow) = self.slow.take() {
                        slow.message(payload, &mut self.out);
                        self.drain(false);
                        self.slow = Some(slow);
                    }
                }
                MESSAGE => {}
                LOG => self.logs.push(String::from_utf8(payload.to_vec()).expect("a text is UTF-8")),
                CHANNEL => {
                    let channel = u16::from_le_bytes([payload[0], payload[1]]);
                    self.sent.push((channel, payload[CHANNEL_HEAD..].to_vec()));
                }
                CALL => {
                    let (head, request) = payload.split_at(CALL_HEAD);
                    let token = u64::from_le_bytes(head[8..].try_into().expect("a token has eight bytes"));
                    self.calls.push((u16::from_le_bytes([head[0], head[1]]), token, request.to_vec()));
                }
                REPLY => {
                    let (call, reply) = payload.split_at(REPLY_HEAD);
                    let call = u64::from_le_bytes(call.try_into().expect("a number has eight bytes"));
                    self.replies.push((call, reply.to_vec()));
                }
                LOST => self.lost += u64::from_le_bytes(payload.try_into().expect("LOST holds a u64")),
                table => self.rows.push(RowBytes { table, bytes: payload.to_vec() }),
            }
        }
    }
}
