//! Runs a module natively: the same code without the sandbox, for unit tests and as the baseline of
//! benchmarks.

mod traffic;

pub use traffic::{PacketBuilder, Traffic};

use crate::{Batch, Init, Module, Out, Progress, Record, Slow};
use flame_abi::output::{FRAME, LOG, LOST, MESSAGE};
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
    pub fn with(mut self, name: &str, value: &[u8]) -> Self {
        self.values.insert(name.to_owned(), value.to_vec());
        self
    }

    /// Returns the manifest's defaults, for example `Parameters::of(Params::DEFAULTS)`. Parameters that are
    /// added later override them.
    pub fn of(defaults: &[(&str, &[u8])]) -> Self {
        defaults.iter().fold(Self::default(), |all, (name, value)| all.with(name, value))
    }

    pub fn integer(self, name: &str, value: i64) -> Self {
        self.with(name, &value.to_le_bytes())
    }

    pub fn number(self, name: &str, value: f64) -> Self {
        self.with(name, &value.to_le_bytes())
    }

    pub fn text(self, name: &str, value: &str) -> Self {
        self.with(name, value.as_bytes())
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
}

impl<F: Module> Native<F> {
    pub fn new(parameters: &Parameters, interval_ns: u64) -> Self {
        Self::make(parameters, interval_ns, |_| None)
    }
}

impl<F: Module, S: Slow> Native<F, S> {
    pub fn with_slow(parameters: &Parameters, interval_ns: u64) -> Self {
        Self::make(parameters, interval_ns, |bytes| Some(S::new(&Init::new(bytes))))
    }

    fn make(parameters: &Parameters, interval_ns: u64, slow: impl FnOnce(&[u8]) -> Option<S>) -> Self {
        let tick_ns = if interval_ns == 0 { 1_000_000_000 } else { interval_ns };
        let header =
            |role| InitHeader { abi: flame_abi::VERSION, role, worker: 0, workers: 1, tick_ns, interval_ns };
        let bytes = |role| [&header(role).to_bytes(), parameters.to_bytes().as_slice()].concat();
        Self {
            fast: F::new(&Init::new(&bytes(role::FAST))),
            slow: slow(&bytes(role::SLOW)),
            out: Out::default(),
            rows: Vec::new(),
            lost: 0,
            logs: Vec::new(),
        }
    }

    /// Returns the rows of one table, with named columns: `native.of::<Total>()[0].packets`.
    ///
    /// # Panics
    /// Panics if a row does not match the manifest.
    pub fn of<'a, R: Record<'a>>(&'a self) -> Vec<R> {
        let rows = self.rows.iter().filter(|row| row.table == R::TABLE);
        rows.map(|row| R::read(&row.bytes).expect("a row is as the manifest says")).collect()
    }

    /// Runs packets in batches of 256.
    pub fn run(&mut self, traffic: &Traffic) {
        self.packets(traffic.descriptors(), traffic.memory());
    }

    /// Runs descriptors whose `addr` is an offset in `memory`, in batches of 256.
    pub fn packets(&mut self, descriptors: &[Descriptor], memory: &[u8]) {
        for some in descriptors.chunks(flame_abi::MAX_BATCH) {
            let batch = Batch::new(some, memory, 0, &BatchHeader::default());
            self.fast.batch(&batch, &mut self.out);
            self.drain(true);
        }
    }

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

    fn drain(&mut self, messages: bool) {
        let mut output = Vec::new();
        crate::log::flush(&mut self.out);
        loop {
            let (bytes, more) = self.out.hand();
            output.extend(bytes);
            if !more {
                break;
            }
        }
        let mut rest = output.as_slice();
        while rest.len() >= FRAME {
            let len = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            let kind = u16::from_le_bytes([rest[4], rest[5]]);
            let payload = &rest[FRAME..FRAME + len];
            rest = &rest[FRAME + len..];
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
                LOST => self.lost += u64::from_le_bytes(payload.try_into().expect("LOST holds a u64")),
                table => self.rows.push(RowBytes { table, bytes: payload.to_vec() }),
            }
        }
    }
}
