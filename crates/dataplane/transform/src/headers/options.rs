//! Options of TCP, IPv4 and IPv6, by allow-list: options that are known not to hold hidden data stay, all
//! others become padding of the same length.

use super::Packet;
use crate::contains::Part;
use flame_plan::Field;

/// Returns whether an option of TCP stays, by its kind and length. `clock` tells whether timestamps do.
fn tcp_stays(kind: u8, length: usize, clock: bool) -> bool {
    match kind {
        // Maximum segment size, window scale, selective acknowledgements permitted, timestamps.
        2 => length == 4,
        3 => length == 3,
        4 => length == 2,
        8 => length == 10 && clock,
        // Selective acknowledgements: one to four blocks.
        5 => matches!(length, 10 | 18 | 26 | 34),
        _ => false,
    }
}

/// Returns whether options of TCP are timestamps alone, the most common case.
#[inline]
pub(super) fn is_clock(options: &[u8]) -> bool {
    options.len() == 12 && options[..4] == [1, 1, 8, 10]
}

/// Returns whether all options of TCP stay as they are, timestamps if `clock` states so.
#[inline]
pub(super) fn tcp_stay(mut options: &[u8], clock: bool) -> bool {
    if options.is_empty() || (is_clock(options) && clock) {
        return true;
    }
    loop {
        let length = match *options {
            [] => return true,
            [1, ..] => 1,
            [0, ref rest @ ..] => return rest.iter().all(|b| *b == 0),
            [kind, length, ..] if tcp_stays(kind, length.into(), clock) => length.into(),
            _ => return false,
        };
        let Some(rest) = options.get(length..) else { return false };
        options = rest;
    }
}

pub(super) const NOP: u8 = 1;
const ROUTER_ALERT: u8 = 148;

/// Options of IPv4 that hold addresses or labels, and no times: routes, security, stream numbers.
const WITHOUT_CLOCK: [u8; 7] = [7, 130, 131, 133, 134, 136, 137];

const PAD1: u8 = 0;
const PADN: u8 = 1;
const HOME_ADDRESS: u8 = 0xc9;

/// Returns whether an option of IPv6 stays: tunnel encapsulation limit, router alert, jumbo payload.
fn ipv6_stays(kind: u8, length: usize) -> bool {
    matches!((kind, length), (4, 1) | (5, 2) | (0xc2, 4))
}

impl Packet<'_> {
    pub(super) fn tcp_options(&mut self, mut at: usize, end: usize) {
        let clock = !self.rewriter.loses(Part::TcpClock);
        while at < end {
            match (self.byte(at), usize::from(self.byte(at + 1))) {
                (NOP, _) => at += 1,
                (0, _) => {
                    self.blank(at + 1, end);
                    return;
                }
                (kind, n) if n >= 2 && at + n <= end => {
                    if !tcp_stays(kind, n, clock) {
                        self.pad(at, at + n);
                    }
                    at += n;
                }
                _ => {
                    self.pad(at, end);
                    return;
                }
            }
        }
    }

    /// Changes the IPv4 options of packets with changed addresses or hidden times.
    pub(super) fn options4(&mut self, mut at: usize, end: usize) {
        while at < end {
            match (self.byte(at), usize::from(self.byte(at + 1))) {
                (NOP, _) => at += 1,
                (0, _) => {
                    self.blank(at + 1, end);
                    return;
                }
                (kind, n) if n >= 2 && at + n <= end => {
                    // Routes, timestamps, security labels, stream numbers, and unknown options.
                    let stays = match kind {
                        ROUTER_ALERT => n == 4,
                        _ => WITHOUT_CLOCK.contains(&kind) && !self.rewriter.changes_ip(),
                    };
                    if !stays {
                        self.pad(at, at + n);
                    }
                    at += n;
                }
                _ => {
                    self.pad(at, end);
                    return;
                }
            }
        }
    }

    /// Changes hop-by-hop and destination options of packets with changed addresses or hidden times. A home
    /// address (RFC
    /// 6275) replaces the source in pseudo-headers; its true sum and its change are returned.
    pub(super) fn options6(&mut self, mut at: usize, end: usize) -> Option<(i64, i64)> {
        let mut home = None;
        while at < end {
            let (kind, n) = (self.byte(at), usize::from(self.byte(at + 1)));
            if kind == PAD1 {
                at += 1;
                continue;
            }
            if at + 2 + n > end {
                self.blank(at, end);
                break;
            }
            if kind == HOME_ADDRESS && n == 16 {
                let sum = self.sum(at + 2, at + 18);
                home = Some((sum, self.ip6(at + 2, Field::IpSrc, Field::MacSrc)));
            } else if !ipv6_stays(kind, n) {
                if kind != PADN {
                    self.put(at, &[PADN]);
                }
                self.blank(at + 2, at + 2 + n);
            }
            at += 2 + n;
        }
        home
    }

    /// Fills bytes with options of IPv4 or TCP that have no meaning.
    fn pad(&mut self, from: usize, to: usize) {
        self.fill::<NOP>(from, to);
    }
}
