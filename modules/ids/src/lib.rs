//! Intrusion detection by rules in the language of Suricata and Snort, packet by packet.
//!
//! [`rule`] parses the rules, [`engine`] evaluates them. The README lists the supported options and the cost
//! of a packet.
#![forbid(unsafe_code)]

pub mod engine;
pub mod rule;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::{Datagram, Engine, Facts, Fragments, Group, Limits};
use flame_module::{Batch, Init, Module, Out, Progress};
use rule::{App, Dialect, Rule, RuleSet, Source, Target, Unsupported};

mod tables {
    flame_module::manifest!();
}

/// More bytes than the longest row of `unsupported`.
const ROW: usize = 8192;
/// The largest number of rows of `unsupported`, and of bytes in them: half the records, and a quarter of the
/// bytes, that an operator's own modules may emit in a second, which is all that a short capture has.
const MOST_LISTED: usize = 32_768;
const MOST_LISTED_BYTES: usize = 16 << 20;
/// The largest number of characters of a text in a row of `unsupported`.
const TEXT: usize = 1000;
/// The largest number of bytes of a payload that a row holds, as in Suricata.
const PAYLOAD: usize = 4096;

/// The defaults of all parameters, for tests.
#[cfg(not(target_family = "wasm"))]
pub const DEFAULTS: &[(&str, &[u8])] = tables::Params::DEFAULTS;

/// The rules that are shipped.
pub const SHIPPED: &str = include_str!("../rules/flame.rules");

pub struct Ids {
    engine: Engine,
    fragments: Fragments,
    worker: u32,
    /// Whether packets are numbered: with several workers, none sees all.
    numbered: bool,
    with_payload: bool,
    /// The number of packets so far.
    packets: u64,
    /// Whether the summary was written, or another worker writes it.
    is_summed_up: bool,
    /// The number of rows of `unsupported` that were written so far, and of all that are to be written.
    written: usize,
    listed: usize,
    /// Whether `state` and `costly` were written.
    is_stated: bool,
    /// The number of packets with a payload that is entirely hidden.
    without_payload: u64,
}

/// Reads the rules that parameters give, or those that are shipped.
pub fn load(source: &Source<'_>) -> RuleSet {
    let rules = if source.rules.is_empty() { SHIPPED } else { source.rules };
    rule::load(&Source { rules, ..*source })
}

/// Returns the dialect of this name.
pub fn dialect(name: &str) -> Option<Dialect> {
    match name {
        "suricata" => Some(Dialect::Suricata),
        "snort" => Some(Dialect::Snort),
        _ => None,
    }
}

impl Module for Ids {
    fn new(init: &Init) -> Self {
        let params = tables::Params::from(init);
        let Some(dialect) = dialect(params.dialect) else {
            panic!("parameter dialect: {:?}: expected suricata or snort, as dialect=snort", params.dialect);
        };
        let source = Source {
            rules: params.rules,
            vars: params.vars,
            thresholds: params.thresholds,
            dialect,
            midstream: params.midstream,
        };
        let limits =
            Limits { connections: params.max_connections as usize, tracked: params.max_tracked as usize };
        let engine = Engine::new(load(&source), limits);
        if params.strict
            && let Some(first) = engine.set.unsupported.first()
        {
            let place = engine.set.place(first);
            let (summary, reason) = (engine.summary(), &first.reason);
            panic!("parameter strict: {place}: {reason}; {summary}; correct the lines, or leave strict out");
        }
        // Only worker 0 reports unsupported rules.
        let is_first = init.worker == 0;
        let listed = if is_first { listed(&engine.set) } else { 0 };
        Self {
            engine,
            fragments: Fragments::default(),
            worker: init.worker,
            numbered: init.workers <= 1,
            with_payload: params.payload,
            packets: 0,
            is_summed_up: !is_first,
            written: 0,
            listed,
            is_stated: false,
            without_payload: 0,
        }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        self.sum_up(out);
        // A datagram is examined after the packet that completed it, by the same code.
        let (mut packets, mut completed) = (batch.packets(), None::<Box<Datagram>>);
        loop {
            let datagram = completed.take();
            let packet = match &datagram {
                Some(datagram) => datagram.packet(),
                None => match packets.next() {
                    Some(packet) => packet,
                    None => break,
                },
            };
            self.packets += u64::from(datagram.is_none());
            let dialect = self.engine.set.dialect;
            let Some(facts) = Facts::of(&packet, dialect) else { continue };
            self.without_payload += u64::from(facts.payload.is_empty() && facts.payload_len > 0);
            let shown = Shown {
                number: if self.numbered { self.packets } else { 0 },
                with_payload: self.with_payload,
            };
            self.engine.packet(&facts, shown.writer(&facts, out));
            if facts.is_part && datagram.is_none() {
                completed = self.fragments.see(&packet);
                if completed.is_some() {
                    self.engine.expect_datagram();
                }
            }
        }
    }

    fn tick(&mut self, _: u64, out: &mut Out) -> Progress {
        self.list(out)
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        // First, so that no list takes its place.
        if !std::mem::replace(&mut self.is_stated, true) {
            self.state(out);
        }
        self.list(out)
    }
}

/// Returns how many of the lines that are not in use are listed.
fn listed(set: &RuleSet) -> usize {
    let size = |u: &Unsupported| {
        let file = set.files.get(u.file as usize).map_or(0, String::len);
        // Column names are counted, too; a character has up to four bytes.
        64 + file.min(4 * TEXT) + u.reason.len().min(4 * TEXT)
    };
    let mut bytes = 0;
    let fits = set.unsupported.iter().take(MOST_LISTED).take_while(|u| {
        bytes += size(u);
        bytes <= MOST_LISTED_BYTES
    });
    fits.count()
}

impl Ids {
    /// Reports how many rules run, once.
    fn sum_up(&mut self, out: &mut Out) {
        if !std::mem::replace(&mut self.is_summed_up, true) {
            out.write(&tables::Notice { text: &self.engine.summary() });
            if let Some(text) = rule::unlisted(self.unlisted()) {
                out.write(&tables::Notice { text: &text });
            }
        }
    }

    /// Returns the number of lines that are not in use and not listed.
    fn unlisted(&self) -> u64 {
        let set = &self.engine.set;
        let here = if self.worker == 0 { set.unsupported.len() - self.listed } else { 0 };
        set.unlisted + here as u64
    }

    /// Reports the counters, and the rules that cost most.
    fn state(&self, out: &mut Out) {
        let (c, (connections, rates)) = (self.engine.counts, self.engine.evicted());
        let (running, set) = (self.engine.rules(), &self.engine.set);
        out.write(&tables::State {
            worker: self.worker,
            rules: running as u32,
            unsupported: (set.total - running as u64) as u32,
            unlisted: self.unlisted(),
            packets: c.packets,
            datagrams: c.datagrams,
            incomplete: self.fragments.incomplete(),
            alerts: c.alerts,
            held_back: c.held_back,
            passed: c.passed,
            given_up: c.given_up,
            without_payload: self.without_payload,
            evicted_connections: connections,
            evicted_rates: rates,
        });
        for (rule, packets) in self.engine.costly() {
            let Rule { gid, sid, msg, .. } = rule;
            let msg: String = msg.chars().take(TEXT).collect();
            out.write(&tables::Costly { worker: self.worker, gid: *gid, sid: *sid, msg: &msg, packets });
        }
    }

    /// Reports the summary and the unsupported rules, once.
    fn list(&mut self, out: &mut Out) -> Progress {
        self.sum_up(out);
        let set = &self.engine.set;
        while self.written < self.listed {
            let Some(u) = set.unsupported.get(self.written) else { break };
            if out.room() < ROW {
                return Progress::More;
            }
            let short = |text: &str| text.chars().take(TEXT).collect::<String>();
            let file = short(set.files.get(u.file as usize).map_or("", String::as_str));
            let reason = short(&u.reason);
            out.write(&tables::Unsupported { file: &file, line: u.line, sid: u.sid, reason: &reason });
            self.written += 1;
        }
        Progress::Done
    }
}

/// What rows of alerts show besides the facts of their packet.
#[derive(Clone, Copy)]
struct Shown {
    /// The number of the packet, or 0 if packets are not numbered.
    number: u64,
    with_payload: bool,
}

impl Shown {
    /// Returns a function that writes an alert on a packet.
    #[inline]
    fn writer(self, facts: &Facts<'_>, out: &mut Out) -> impl FnMut(&Rule, Option<App>) {
        let mut encoded = None;
        move |rule, app| {
            let payload = match self.with_payload {
                true => encoded.get_or_insert_with(|| {
                    STANDARD.encode(&facts.payload[..facts.payload.len().min(PAYLOAD)])
                }),
                false => "",
            };
            let icmp = |at: usize| match facts.group {
                Group::Icmp => facts.l4.get(at).copied().unwrap_or(0),
                _ => 0,
            };
            out.write(&tables::Alert {
                ts_ns: facts.ts_ns,
                gid: rule.gid,
                sid: rule.sid,
                rev: rule.rev,
                msg: &rule.msg,
                class: &rule.class,
                priority: rule.priority,
                proto: facts.proto,
                src: facts.src,
                sport: facts.ports.0,
                dst: facts.dst,
                dport: facts.ports.1,
                flow: facts.hash,
                wire_len: facts.wire_len,
                packet: self.number,
                icmp_type: icmp(0),
                icmp_code: icmp(1),
                app: app.map_or("", engine::name),
                metadata: &rule.metadata,
                target: match rule.target {
                    None => "",
                    Some(Target::Source) => "src",
                    Some(Target::Destination) => "dst",
                },
                payload,
            });
        }
    }
}

flame_module::export!(Ids);

#[cfg(test)]
mod tests;
