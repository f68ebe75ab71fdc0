//! Who began a connection, and whether it was answered: all of `flow` that needs no reassembly.
//!
//! TCP: a SYN begins one, its sender is the client; it is established behind the server's SYN-ACK, and gone
//! with a RST. A connection whose SYN was not seen has no sides. UDP: the first packet begins one, and it is
//! established once both sides were heard. What a packet changes counts from the next one on.

use super::facts::{Facts, Group};
use super::table::{Mixed, Table, halves, mix};
use crate::rule::{Flow, FlowState, Side};
use flame_module::{Ip, tcp};

/// The client is the endpoint that sorts first.
const CLIENT_FIRST: u8 = 1;
const ANSWERED: u8 = 2;

/// What is known of a packet's connection when it comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    pub side: Option<Side>,
    pub established: bool,
}

impl Known {
    #[inline]
    pub fn fits(self, asked: Flow) -> bool {
        let state = match asked.state {
            Some(FlowState::Established) => self.established,
            Some(FlowState::NotEstablished) => !self.established,
            Some(FlowState::Stateless) | None => true,
        };
        state && (asked.side.is_none() || asked.side == self.side)
    }
}

pub struct Flows {
    table: Table<u8>,
}

impl Flows {
    /// Room for `most` connections.
    pub fn new(most: usize) -> Self {
        Self { table: Table::new(most) }
    }

    /// Connections given up for others.
    pub fn evicted(&self) -> u64 {
        self.table.evicted
    }

    pub fn see(&mut self, f: &Facts<'_>) -> Known {
        let syn = f.tcp_flags & tcp::SYN != 0;
        let answer = f.tcp_flags & tcp::ACK != 0;
        if !matches!(f.group, Group::Tcp | Group::Udp) {
            return Known::default();
        }
        let (first, key) = key(f);
        let begins = match f.group {
            Group::Tcp => syn && !answer,
            _ => self.table.get(key).is_none(),
        };
        if begins {
            self.table.insert(key, f.ts_ns, if first { CLIENT_FIRST } else { 0 });
            return Known { side: Some(Side::ToServer), established: false };
        }
        let Some(state) = self.table.get_mut(key) else { return Known::default() };
        let from_client = (*state & CLIENT_FIRST != 0) == first;
        let side = if from_client { Side::ToServer } else { Side::ToClient };
        let known = Known { side: Some(side), established: *state & ANSWERED != 0 };
        if !from_client && (f.group == Group::Udp || syn && answer) {
            *state |= ANSWERED;
        }
        if f.group == Group::Tcp && f.tcp_flags & tcp::RST != 0 {
            self.table.remove(key);
        }
        known
    }
}

/// Whether the sender sorts first, and a name for the connection that both directions share.
fn key(f: &Facts<'_>) -> (bool, Mixed) {
    let endpoint = |ip: &Ip, port: u16| {
        let [a, b] = halves(ip);
        mix(mix(a ^ u64::from(ip.family)) ^ b) ^ u64::from(port).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let (a, b) = (endpoint(&f.src, f.ports.0), endpoint(&f.dst, f.ports.1));
    let (low, high) = (a.min(b), a.max(b));
    // An endpoint that talks to itself has no sides to tell apart.
    (a <= b, Mixed(mix(mix(low).wrapping_add(high) ^ u64::from(f.proto))))
}
