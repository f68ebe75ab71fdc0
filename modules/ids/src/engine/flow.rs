//! Connections: the end that began one, and whether it was answered, as far as packets show without
//! reassembly.
//!
//! In Suricata's dialect, the client of a connection sent its first packet ([`Facts::is_in_flow`] has the
//! packets that belong to one). A TCP connection is established after SYN, SYN-ACK and the client's ACK;
//! another SYN begins a new one, unless it repeats the first or the connection is established and neither FIN
//! nor RST was seen. Any other connection is established once both sides have sent, that packet included.
//!
//! In Snort's, a TCP connection begins with a SYN, whose sender is the client, or a lone SYN-ACK, whose
//! sender is the server. It is established after the SYN-ACK and ends with an RST. A UDP connection begins
//! with its first packet and is established once both sides have sent one. Nothing else has sides.
//!
//! A connection in Suricata's dialect ends after a time without packets, as its shipped configuration has it
//! ([`idle_ns`]).
//!
//! A change of state applies from the next packet on, unless stated otherwise.

use super::facts::{Facts, Group};
use super::table::{Table, host};
use crate::rule::{App, Dialect, Flow, FlowState, Side};
use flame_module::{Hashed, Ip, mix, tcp};
use std::num::NonZero;

/// Set if the client is the endpoint that sorts first.
const CLIENT_FIRST: u8 = 1;
const ANSWERED: u8 = 2;
const ESTABLISHED: u8 = 4;
/// A FIN or RST was seen.
const CLOSED: u8 = 8;
/// The connection began with a SYN.
const BY_SYN: u8 = 16;
/// A packet of the client, or of the server, was seen.
const FROM_CLIENT: u8 = 32;
const FROM_SERVER: u8 = 64;
/// A rule passed the connection.
const PASSED: u8 = 128;

#[derive(Clone, Copy, Default)]
struct State {
    /// The time of the latest packet.
    seen_ns: u64,
    bits: u8,
    app: Option<App>,
    /// The number of this connection.
    epoch: u32,
}

/// The state of a packet's connection before the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    pub side: Option<Side>,
    pub established: bool,
    /// Whether the packet is the first of its connection and direction.
    pub first: bool,
    /// Whether a rule passed the connection.
    pub passed: bool,
    /// The protocol above the connection, this packet included.
    pub app: Option<App>,
    /// The number of the connection, if there is one.
    pub epoch: Option<NonZero<u32>>,
}

impl Known {
    #[inline]
    pub fn fits(&self, asked: Flow) -> bool {
        let state = match asked.state {
            Some(FlowState::Established) => self.established,
            Some(FlowState::NotEstablished) => !self.established,
            Some(FlowState::Stateless) | None => true,
        };
        state && (asked.side.is_none() || asked.side == self.side)
    }
}

pub struct Flows {
    table: Table<State>,
    dialect: Dialect,
    /// Whether a TCP connection whose SYN was not seen has sides and may be established.
    midstream: bool,
    epoch: u32,
}

impl Flows {
    /// Creates a table for `most` connections.
    pub fn new(most: usize, dialect: Dialect, midstream: bool) -> Self {
        Self { table: Table::new(most), dialect, midstream, epoch: 0 }
    }

    /// Returns the number of connections that were evicted.
    pub fn evicted(&self) -> u64 {
        self.table.evicted
    }

    /// Notes a packet, in which the protocol `app` was recognised.
    pub fn see(&mut self, f: &Facts<'_>, app: Option<App>) -> Known {
        match self.dialect {
            // Rules about addresses look at each packet without a connection.
            Dialect::Suricata if !f.is_in_flow() => Known { first: true, app, ..Known::default() },
            Dialect::Suricata => self.as_suricata(f, app),
            Dialect::Snort => self.as_snort(f, app),
        }
    }

    /// Notes that a rule passed the packet's connection.
    pub fn pass(&mut self, f: &Facts<'_>) {
        if f.is_in_flow()
            && let Some(state) = self.table.get_mut(key(f).1)
        {
            state.bits |= PASSED;
        }
    }

    /// Begins a connection.
    fn begin(&mut self, key: Hashed, f: &Facts<'_>, bits: u8, app: Option<App>) -> Known {
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        let state = State { seen_ns: f.ts_ns, bits, app, epoch: self.epoch };
        self.table.insert(key, f.ts_ns, state);
        let side = if bits & FROM_CLIENT != 0 { Side::ToServer } else { Side::ToClient };
        let epoch = NonZero::new(self.epoch);
        Known { side: Some(side), established: false, first: true, passed: false, app, epoch }
    }

    fn as_suricata(&mut self, f: &Facts<'_>, app: Option<App>) -> Known {
        let is_tcp = f.proto == 6;
        let (syn, ack) = (f.tcp_flags & tcp::SYN != 0, f.tcp_flags & tcp::ACK != 0);
        let (first, key) = key(f);
        let client_first = if first { CLIENT_FIRST } else { 0 };
        let begins = match self.table.get(key) {
            None => true,
            Some(state) if f.ts_ns.saturating_sub(state.seen_ns) >= idle_ns(is_tcp, state.bits) => true,
            Some(State { bits, .. }) => {
                let again = bits & BY_SYN != 0 && bits & CLIENT_FIRST == client_first;
                is_tcp && syn && !ack && (bits & CLOSED != 0 || bits & ESTABLISHED == 0 && !again)
            }
        };
        if begins {
            let is_picked_up = self.midstream && is_tcp && f.tcp_flags & (tcp::RST | tcp::FIN) == 0;
            let bits = match (is_tcp && syn, ack) {
                (true, false) => client_first | BY_SYN | FROM_CLIENT,
                // The sender of a SYN-ACK is the server.
                (true, true) if is_picked_up => client_first ^ CLIENT_FIRST | BY_SYN | ANSWERED | FROM_SERVER,
                (false, _) if is_picked_up => client_first | ESTABLISHED | FROM_CLIENT,
                _ => client_first | FROM_CLIENT,
            };
            return self.begin(key, f, bits, app);
        }
        let Some(state) = self.table.get_mut(key) else { return Known::default() };
        state.seen_ns = f.ts_ns.max(state.seen_ns);
        let from_client = state.bits & CLIENT_FIRST == client_first;
        let (side, seen) =
            if from_client { (Side::ToServer, FROM_CLIENT) } else { (Side::ToClient, FROM_SERVER) };
        let is_first = state.bits & seen == 0;
        state.bits |= seen;
        state.app = state.app.or(app);
        let mut established = state.bits & ESTABLISHED != 0;
        if !is_tcp {
            established = state.bits & (FROM_CLIENT | FROM_SERVER) == FROM_CLIENT | FROM_SERVER;
        } else if f.tcp_flags & (tcp::RST | tcp::FIN) != 0 {
            state.bits |= CLOSED;
        } else if syn && ack && !from_client && state.bits & BY_SYN != 0 {
            state.bits |= ANSWERED;
        } else if ack && !syn && from_client && state.bits & ANSWERED != 0 {
            state.bits |= ESTABLISHED;
        }
        let epoch = NonZero::new(state.epoch);
        let passed = state.bits & PASSED != 0;
        Known { side: Some(side), established, first: is_first, passed, app: state.app, epoch }
    }

    fn as_snort(&mut self, f: &Facts<'_>, app: Option<App>) -> Known {
        let syn = f.tcp_flags & tcp::SYN != 0;
        let answer = f.tcp_flags & tcp::ACK != 0;
        let nothing = Known { app, ..Known::default() };
        if !matches!(f.group, Group::Tcp | Group::Udp) {
            return nothing;
        }
        let (first, key) = key(f);
        let known = self.table.get(key).is_some();
        let (sender, receiver) = if first { (CLIENT_FIRST, 0) } else { (0, CLIENT_FIRST) };
        match f.group {
            Group::Tcp if syn && !answer => return self.begin(key, f, sender | FROM_CLIENT, app),
            Group::Tcp if syn && !known => return self.begin(key, f, receiver | ANSWERED, app),
            Group::Udp if !known => return self.begin(key, f, sender | FROM_CLIENT, app),
            _ => {}
        }
        let Some(state) = self.table.get_mut(key) else { return nothing };
        let from_client = (state.bits & CLIENT_FIRST != 0) == first;
        let side = if from_client { Side::ToServer } else { Side::ToClient };
        let established = state.bits & ANSWERED != 0;
        state.app = state.app.or(app);
        if !from_client && (f.group == Group::Udp || syn && answer) {
            state.bits |= ANSWERED;
        }
        let known = Known {
            side: Some(side),
            established,
            first: false,
            passed: false,
            app: state.app,
            epoch: NonZero::new(state.epoch),
        };
        if f.group == Group::Tcp && f.tcp_flags & tcp::RST != 0 {
            self.table.remove(key);
        }
        known
    }
}

/// Returns the time without packets after which a connection in this state has ended.
fn idle_ns(is_tcp: bool, bits: u8) -> u64 {
    const BOTH: u8 = FROM_CLIENT | FROM_SERVER;
    let seconds = match is_tcp {
        true if bits & ESTABLISHED != 0 && bits & CLOSED == 0 => 600,
        true => 60,
        false if bits & BOTH == BOTH => 300,
        false => 30,
    };
    seconds * 1_000_000_000
}

/// Returns whether the sender sorts first, and a key that both directions of the connection share.
pub fn key(f: &Facts<'_>) -> (bool, Hashed) {
    let endpoint = |ip: &Ip, port: u16| host(ip) ^ u64::from(port).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (a, b) = (endpoint(&f.src, f.ports.0), endpoint(&f.dst, f.ports.1));
    let (low, high) = (a.min(b), a.max(b));
    // The sides of an endpoint that talks to itself cannot be distinguished.
    (a <= b, Hashed(mix(mix(low).wrapping_add(high) ^ u64::from(f.proto))))
}
