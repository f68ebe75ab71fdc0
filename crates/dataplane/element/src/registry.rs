//! The classes of elements. Each has one line in [`CLASSES`].

use crate::elements as e;
use crate::runtime::element::Element;
use flame_click::Args;

/// A class of elements.
pub struct Class {
    pub name: &'static str,
    /// How many inputs and outputs it may have: `1/1-2`, `-/1`, `1-/=`.
    pub ports: &'static str,
    /// Push (`h`), pull (`l`) or agnostic (`a`), for each port; the last letter stands for the rest.
    pub processing: &'static str,
    pub keywords: &'static [&'static str],
    pub make: fn(&mut Args<'_>, &Setup<'_>) -> Box<dyn Element>,
    /// The file it is in, whose head is its manual.
    pub source: &'static str,
}

/// What a class knows when it makes an element.
pub struct Setup<'a> {
    pub name: &'a str,
    pub class: &'static str,
    pub config: &'a str,
    pub inputs: usize,
    pub outputs: usize,
    pub router: &'a crate::runtime::build::Partial<'a>,
}

/// Returns the class of this name.
pub fn find(name: &str) -> Option<&'static Class> {
    // The list is sorted by name; a test checks it.
    CLASSES.binary_search_by(|c| c.name.cmp(name)).ok().map(|at| CLASSES[at])
}

impl Class {
    /// Returns the lines of the manual about this class.
    pub fn manual(&self) -> String {
        let head = self.source.lines().map_while(|l| l.strip_prefix("//!"));
        let text: Vec<&str> = head.map(|l| l.strip_prefix(' ').unwrap_or(l)).collect();
        let text = text.join("\n");
        let names = |paragraph: &str| {
            let first = paragraph.split(':').next().unwrap_or("");
            first.split(',').any(|n| n.trim().split('(').next() == Some(self.name))
        };
        text.split("\n\n").find(|p| names(p)).unwrap_or("").to_owned()
    }
}

macro_rules! classes {
    ($($class:path,)*) => { &[$(&$class,)*] };
}

/// All classes, sorted by name.
pub static CLASSES: &[&Class] = classes![
    e::ipprint::ARP_PRINT,
    e::arp::ARP_QUERIER,
    e::arp::ARP_RESPONDER,
    e::basic::ADDRESS_INFO,
    e::counter::AGGREGATE_COUNTER,
    e::basic::ALIGN,
    e::basic::ALIGNMENT_INFO,
    e::counter::AVERAGE_COUNTER,
    e::unqueue::BANDWIDTH_RATED_SPLITTER,
    e::unqueue::BANDWIDTH_RATED_UNQUEUE,
    e::unqueue::BANDWIDTH_SHAPER,
    e::switch::BYPASS,
    e::ip::CHECK_ICMP_HEADER,
    e::ip::CHECK_IP_HEADER,
    e::ip::CHECK_IP_HEADER2,
    e::paint::CHECK_PAINT,
    e::ip::CHECK_TCP_HEADER,
    e::ip::CHECK_UDP_HEADER,
    e::classify::CLASSIFIER,
    e::counter::COUNTER,
    e::ip::DEC_IP_TTL,
    e::unqueue::DELAY_SHAPER,
    e::unqueue::DELAY_UNQUEUE,
    e::lookup::DIRECT_IP_LOOKUP,
    e::basic::DISCARD,
    e::script::DRIVER_MANAGER,
    e::ether::DROP_BROADCASTS,
    e::basic::ERROR,
    e::ether::ETHER_ENCAP,
    e::ether::ETHER_MIRROR,
    e::ether::ETHER_REWRITE,
    e::ether::ETHER_VLAN_ENCAP,
    e::ip::FIX_IP_SRC,
    e::dump::FROM_DUMP,
    e::summary::FROM,
    e::queue::FRONT_DROP_QUEUE,
    e::queue::FULL_NOTE_QUEUE,
    e::ip::GET_IP_ADDRESS,
    e::switch::HASH_SWITCH,
    e::ether::HOST_ETHER_FILTER,
    e::switch::HUB,
    e::icmp::ICMP_ERROR,
    e::encap::ICMP_IP_ENCAP,
    e::encap::ICMP_PING_ENCAP,
    e::icmp::ICMP_PING_RESPONDER,
    e::rewriter::IP_ADDR_REWRITER,
    e::filter::IP_CLASSIFIER,
    e::encap::IP_ENCAP,
    e::filter::IP_FILTER,
    e::gateway::IP_FRAGMENTER,
    e::gateway::IP_GW_OPTIONS,
    e::ipprint::IP_PRINT,
    e::gateway::IP_REASSEMBLER,
    e::rewriter::IP_REWRITER,
    e::rewriter::PATTERNS,
    e::basic::IDLE,
    e::source::INFINITE_SOURCE,
    e::switch::INPUT_SWITCH,
    e::lookup::LINEAR_IP_LOOKUP,
    e::unqueue::LINK_UNQUEUE,
    e::lookup::LOOKUP_IP_ROUTE,
    e::bound::LOOP,
    e::ip::MARK_IP_CE,
    e::ip::MARK_IP_HEADER,
    e::basic::MESSAGE,
    e::queue::MIXED_QUEUE,
    e::queue::NOTIFIER_QUEUE,
    e::basic::NULL,
    e::strip::PAD,
    e::paint::PAINT,
    e::paint::PAINT_SWITCH,
    e::paint::PAINT_TEE,
    e::bound::POLL,
    e::basic::PORT_INFO,
    e::print::PRINT,
    e::sched::PRIO_SCHED,
    e::chance::PROB_SPLITTER,
    e::basic::PULL_NULL,
    e::switch::PULL_SWITCH,
    e::switch::PULL_TEE,
    e::basic::PUSH_NULL,
    e::queue::QUEUE,
    e::queue::QUICK_NOTE_QUEUE,
    e::chance::RED,
    e::lookup::RADIX_IP_LOOKUP,
    e::chance::RANDOM_SAMPLE,
    e::switch::RANDOM_SWITCH,
    e::lookup::RANGE_IP_LOOKUP,
    e::source::RATED_SOURCE,
    e::unqueue::RATED_SPLITTER,
    e::unqueue::RATED_UNQUEUE,
    e::strip::RESIZE,
    e::sched::ROUND_ROBIN_SCHED,
    e::switch::ROUND_ROBIN_SWITCH,
    e::basic::SCHEDULE_INFO,
    e::script::SCRIPT,
    e::ip::SET_IP_ADDRESS,
    e::ip::SET_IP_CHECKSUM,
    e::ip::SET_IP_DSCP,
    e::ip::SET_IP_ECN,
    e::ip::SET_TCP_CHECKSUM,
    e::chance::SET_TIMESTAMP,
    e::chance::SET_TIMESTAMP_DELTA,
    e::ip::SET_UDP_CHECKSUM,
    e::ether::SET_VLAN_ANNO,
    e::unqueue::SHAPER,
    e::switch::SIMPLE_PULL_SWITCH,
    e::queue::SIMPLE_QUEUE,
    e::lookup::STATIC_IP_LOOKUP,
    e::switch::STATIC_PULL_SWITCH,
    e::switch::STATIC_SWITCH,
    e::strip::STORE_DATA,
    e::ip::STORE_IP_ADDRESS,
    e::sched::STRIDE_SCHED,
    e::sched::STRIDE_SWITCH,
    e::strip::STRIP,
    e::ether::STRIP_ETHER_VLAN,
    e::strip::STRIP_IP,
    e::strip::STRIP_TCP,
    e::strip::STRIP_TO_NETWORK,
    e::switch::SWITCH_CLASS,
    e::rewriter::TCP_REWRITER,
    e::switch::TEE,
    e::queue::THREAD_SAFE_QUEUE,
    e::chance::TIME_FILTER,
    e::sched::TIME_SORTED_SCHED,
    e::unqueue::TIMED_SINK,
    e::source::TIMED_SOURCE,
    e::dump::TO_DUMP,
    e::summary::TO,
    e::strip::TRUNCATE,
    e::encap::UDP_IP_ENCAP,
    e::rewriter::UDP_REWRITER,
    e::unqueue::UNQUEUE,
    e::strip::UNSTRIP,
    e::strip::UNSTRIP_IP,
    e::ether::VLAN_DECAP,
    e::ether::VLAN_ENCAP,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_sorted_and_have_manuals() {
        assert!(CLASSES.windows(2).all(|w| w[0].name < w[1].name), "sort the list");
        for class in CLASSES {
            let manual = class.manual();
            for part in ["Expects:", "Gives:", "Handlers:", "Example:"] {
                assert!(manual.contains(part), "the manual of {} lacks {part}", class.name);
            }
            assert!(crate::runtime::ports::counts(class.ports, 1, 1).is_ok(), "{}", class.name);
        }
    }
}
