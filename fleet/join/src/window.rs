//! The latest packets of monitors, as their records come.

use crate::{Flow, Seen};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most packets of a monitor, and the most flows: beyond, the oldest packets, and flows without packets,
/// are forgotten.
const MAX_PACKETS: usize = 1 << 20;
const MAX_FLOWS: usize = 1 << 20;

/// The packets of each monitor within a time before its latest one.
///
/// A packet names its flow by a number, which is the same at all monitors, so it is known from the record of
/// any of them.
#[derive(Clone, Debug, Default)]
pub struct Window {
    span: i64,
    flows: BTreeMap<u64, Arc<Flow>>,
    /// Time, flow and label of each packet.
    monitors: BTreeMap<String, BTreeSet<(i64, u64, u32)>>,
    forgotten: u64,
}

impl Window {
    /// Makes a window of `span` nanoseconds.
    pub fn new(span: i64) -> Self {
        Self { span, ..Self::default() }
    }

    /// Takes a flow. Its number is of its addresses and ports, so a later one is the same.
    pub fn flow(&mut self, number: u64, flow: Flow) {
        if self.flows.len() >= MAX_FLOWS && !self.flows.contains_key(&number) {
            let used: BTreeSet<u64> = self.monitors.values().flatten().map(|packet| packet.1).collect();
            self.flows.retain(|number, _| used.contains(number));
        }
        if self.flows.len() < MAX_FLOWS {
            self.flows.entry(number).or_insert_with(|| Arc::new(flow));
        }
    }

    /// Takes a packet of a monitor.
    pub fn packet(&mut self, monitor: &str, flow: u64, label: u32, at: i64) {
        if !self.monitors.contains_key(monitor) {
            self.monitors.insert(monitor.to_owned(), BTreeSet::new());
        }
        let Some(packets) = self.monitors.get_mut(monitor) else { return };
        packets.insert((at, flow, label));
        let since = packets.last().map_or(at, |latest| latest.0.saturating_sub(self.span));
        while packets.first().is_some_and(|oldest| oldest.0 < since) {
            packets.pop_first();
        }
        if packets.len() > MAX_PACKETS {
            packets.pop_first();
            self.forgotten += 1;
        }
    }

    /// Takes the news that records of a monitor are missing: its packets up to now are forgotten, or those
    /// that did not come would be taken for lost.
    pub fn gap(&mut self, monitor: &str) {
        self.monitors.remove(monitor);
    }

    /// Returns the packets of each monitor whose flows are known.
    pub fn seen(&self) -> Vec<(&str, Vec<Seen>)> {
        let of = |(at, flow, label): &(i64, u64, u32)| {
            Some(Seen { flow: self.flows.get(flow)?.clone(), label: *label, at: *at })
        };
        let monitors = self.monitors.iter();
        monitors.map(|(name, packets)| (name.as_str(), packets.iter().filter_map(of).collect())).collect()
    }

    /// Returns the packets that were forgotten within the window, since there were too many.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16) -> Flow {
        let side = |n: u8, port| (format!("10.0.0.{n}"), port);
        Flow { proto: 6, source: side(1, port), destination: side(2, 80) }
    }

    #[test]
    fn a_window_has_the_latest_packets_of_each_monitor() {
        let mut window = Window::new(100);
        // The flow is known from another monitor, and after the packet.
        window.packet("a", 7, 1, 1000);
        window.packet("a", 8, 2, 1001);
        window.flow(7, flow(7));
        window.packet("b", 7, 1, 5);
        let times = |window: &Window| -> Vec<(String, Vec<i64>)> {
            let all = window.seen();
            let of =
                |(name, seen): (&str, Vec<Seen>)| (name.to_owned(), seen.iter().map(|of| of.at).collect());
            all.into_iter().map(of).collect()
        };
        assert_eq!(times(&window), [("a".to_owned(), vec![1000]), ("b".to_owned(), vec![5])]);
        // By each clock of its own, and whatever comes late.
        window.packet("a", 7, 3, 1100);
        assert_eq!(times(&window)[0].1, [1000, 1100]);
        window.packet("a", 7, 4, 1101);
        window.packet("a", 7, 5, 1050);
        window.packet("a", 7, 6, 900);
        assert_eq!(times(&window)[0].1, [1050, 1100, 1101]);
        window.gap("a");
        assert_eq!(times(&window), [("b".to_owned(), vec![5])]);
    }

    #[test]
    fn a_window_is_bounded() {
        let mut window = Window::new(i64::MAX);
        for n in 0..=MAX_PACKETS {
            window.packet("a", 0, 0, i64::try_from(n).unwrap());
            window.flow(n as u64, flow(1));
        }
        assert_eq!((window.monitors["a"].len(), window.forgotten()), (MAX_PACKETS, 1));
        // Flows without packets made room.
        assert_eq!(window.flows.keys().copied().collect::<Vec<_>>(), [0, MAX_PACKETS as u64]);
    }
}
