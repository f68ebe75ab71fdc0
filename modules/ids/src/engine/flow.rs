//! The initiator of a connection and whether it was answered: the part of `flow` that needs no reassembly.
//!
//! A TCP connection begins with a SYN, whose sender is the client. It is established after the server's
//! SYN-ACK, and ends with an RST. A connection whose SYN was not seen has no sides. A UDP connection begins
//! with its first packet, and is established once both sides have sent one. A change of state applies from
//! the next packet on.

use super::facts::{Facts, Group};
use super::table::{Mixed, Table, halves, mix};
use crate::rule::{Flow, FlowState, Side};
use flame_module::{Ip, tcp};

/// Set if the client is the endpoint that sorts first.
const CLIENT_FIRST: u8 = 1;
const ANSWERED: u8 = 2;

/// The state of a packet's connection before the packet.
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
    /// Creates a table for `most` connections.
    pub fn new(most: usize) -> Self {
        Self { table: Table::new(most) }
    }

    /// Returns the number of connections that were evicted.
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

/// Returns whether the sender sorts first, and a key that both directions of the connection share.
fn key(f: &Facts<'_>) -> (bool, Mixed) {
    let endpoint = |ip: &Ip, port: u16| {
        let [a, b] = halves(ip);
        mix(mix(a ^ u64::from(ip.family)) ^ b) ^ u64::from(port).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let (a, b) = (endpoint(&f.src, f.ports.0), endpoint(&f.dst, f.ports.1));
    let (low, high) = (a.min(b), a.max(b));
    // The sides of an endpoint that talks to itself cannot be distinguished.
    (a <= b, Mixed(mix(mix(low).wrapping_add(high) ^ u64::from(f.proto))))
}
