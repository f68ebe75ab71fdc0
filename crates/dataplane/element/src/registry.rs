//! The classes of elements. Each has one line in [`CLASSES`].

use crate::elements as e;
use crate::runtime::element::Element;
use crate::runtime::threads::assign::Ties;
use flame_click::Args;

/// A class of elements.
pub struct Class {
    pub name: &'static str,
    /// The permitted numbers of inputs and outputs: `1/1-2`, `-/1`, `1-/=`.
    pub ports: &'static str,
    /// Push (`h`), pull (`l`) or agnostic (`a`), for each port; the last letter stands for the rest.
    pub processing: &'static str,
    pub keywords: &'static [&'static str],
    pub make: fn(&mut Args<'_>, &Setup<'_>) -> Box<dyn Element>,
    /// The text of its source file, whose head is its manual.
    pub source: &'static str,
}

/// A mark of a class. Without one of `E2` to `E5` or `Analysed`, the cost of a packet is of class E1: the
/// same for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A packet that is pushed to an element, in a graph of that element alone, changes nothing but that
    /// graph: no file, no socket, no terminal. Only such elements are measured by `flame click check`, which
    /// gives them packets.
    Pure,
    /// The cost depends on the length of the packet.
    E2,
    /// The cost depends on the length of the packet's headers.
    E3,
    /// The cost depends on the length of the configuration (rules, routes).
    E4,
    /// The cost depends on a value in the configuration (the number of outputs, the capacity of a table).
    E5,
    /// The cost is found by analysis of a module.
    Analysed,
    Named,
    Capacity,
    Queues,
    Device,
    Queue,
}

/// The properties of an element that its class receives when it makes it.
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
    fn marks(&self) -> &'static [Mark] {
        CLASSES.binary_search_by(|c| c.name.cmp(self.name)).map_or(&[], |at| MARKS[at])
    }

    /// Returns whether packets for one of its elements alone change nothing outside of it.
    pub fn is_pure(&self) -> bool {
        self.marks().contains(&Mark::Pure)
    }

    /// Returns the class of the cost of a packet that is pushed or pulled, E1 to E5 (docs/bounds.md): the
    /// quantity on which it depends in this element's code. The cost of modules is found by analysis.
    pub fn cost_class(&self) -> Option<&'static str> {
        let of = |mark: &Mark| match mark {
            Mark::E2 => Some(Some("E2")),
            Mark::E3 => Some(Some("E3")),
            Mark::E4 => Some(Some("E4")),
            Mark::E5 => Some(Some("E5")),
            Mark::Analysed => Some(None),
            _ => None,
        };
        self.marks().iter().find_map(of).unwrap_or(Some("E1"))
    }

    /// Returns how its elements depend on others, besides packets and handlers.
    pub fn ties(&self) -> Ties {
        let of = |mark: &Mark| match mark {
            Mark::Named => Some(Ties::Named),
            Mark::Capacity => Some(Ties::Capacity),
            Mark::Queues => Some(Ties::Queues),
            Mark::Device => Some(Ties::Device),
            Mark::Queue => Some(Ties::Queue),
            _ => None,
        };
        self.marks().iter().find_map(of).unwrap_or(Ties::None)
    }

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
    ($($class:path $(=> $($mark:ident)+)?,)*) => {
        /// All classes, sorted by name.
        pub static CLASSES: &[&Class] = &[$(&$class,)*];

        /// The marks of each class.
        static MARKS: &[&[Mark]] = &[$(&[$($(Mark::$mark),+)?],)*];
    };
}

classes![
    e::ipprint::ARP_PRINT => E2,
    e::arp::ARP_QUERIER => Pure E5 Named,
    e::arp::ARP_RESPONDER => Pure E4,
    e::arp_table::ARP_TABLE,
    e::basic::ADDRESS_INFO,
    e::counter::AGGREGATE_COUNTER => Pure E5,
    e::basic::ALIGN => Pure E2,
    e::basic::ALIGNMENT_INFO,
    e::counter::AVERAGE_COUNTER => Pure,
    e::unqueue::BANDWIDTH_RATED_SPLITTER => Pure,
    e::unqueue::BANDWIDTH_RATED_UNQUEUE => Pure,
    e::unqueue::BANDWIDTH_SHAPER => Pure,
    e::switch::BYPASS => Pure,
    e::ip::CHECK_ICMP_HEADER => Pure E2,
    e::ip::CHECK_IP_HEADER => Pure E3,
    e::ip::CHECK_IP_HEADER2 => Pure E3,
    e::paint::CHECK_PAINT => Pure,
    e::ip::CHECK_TCP_HEADER => Pure E2,
    e::ip::CHECK_UDP_HEADER => Pure E2,
    e::classify::CLASSIFIER => Pure E4,
    e::control_socket::CONTROL_SOCKET,
    e::counter::COUNTER => Pure,
    e::ip::DEC_IP_TTL => Pure,
    e::unqueue::DELAY_SHAPER => Pure,
    e::unqueue::DELAY_UNQUEUE => Pure,
    e::lookup::DIRECT_IP_LOOKUP => Pure E4,
    e::basic::DISCARD => Pure,
    e::script::DRIVER_MANAGER,
    e::ether::DROP_BROADCASTS => Pure,
    e::basic::ERROR,
    e::ether::ETHER_ENCAP => Pure E2,
    e::ether::ETHER_MIRROR => Pure,
    e::ether::ETHER_REWRITE => Pure,
    e::ether::ETHER_VLAN_ENCAP => Pure E2,
    e::ip::FIX_IP_SRC => Pure E3,
    e::from_device::FROM_DEVICE => E2 Device,
    e::dump::FROM_DUMP => E2,
    e::summary::FROM => E2,
    e::queue::FRONT_DROP_QUEUE => Pure Queue,
    e::queue::FULL_NOTE_QUEUE => Pure Queue,
    e::ip::GET_IP_ADDRESS => Pure,
    e::switch::HASH_SWITCH => Pure E5,
    e::ether::HOST_ETHER_FILTER => Pure,
    e::switch::HUB => Pure E5,
    e::icmp::ICMP_ERROR => Pure E3,
    e::encap::ICMP_IP_ENCAP => Pure E2,
    e::encap::ICMP_PING_ENCAP => Pure E2,
    e::icmp::ICMP_PING_RESPONDER => Pure E2,
    e::rewriter::ICMP_PING_REWRITER => Pure E5 Capacity,
    e::icmp_rewriter::ICMP_REWRITER => E2 Named,
    e::rewriter::IP_ADDR_REWRITER => Pure E5 Capacity,
    e::filter::IP_CLASSIFIER => Pure E4,
    e::encap::IP_ENCAP => Pure E2,
    e::filter::IP_FILTER => Pure E4,
    e::gateway::IP_FRAGMENTER => Pure E2,
    e::gateway::IP_GW_OPTIONS => Pure E3,
    e::ipprint::IP_PRINT => E2,
    e::reassembler::IP_REASSEMBLER => Pure E2,
    e::rewriter::IP_REWRITER => Pure E5 Capacity,
    e::rewriter::PATTERNS,
    e::basic::IDLE => Pure,
    e::source::INFINITE_SOURCE,
    e::switch::INPUT_SWITCH => Pure,
    e::kernel_tun::KERNEL_TUN => E2,
    e::lookup::LINEAR_IP_LOOKUP => Pure E4,
    e::unqueue::LINK_UNQUEUE => Pure,
    e::lookup::LOOKUP_IP_ROUTE => Pure E4,
    e::bound::LOOP => Pure,
    e::ip::MARK_IP_CE => Pure,
    e::ip::MARK_IP_HEADER => Pure,
    e::basic::MESSAGE,
    e::queue::MIXED_QUEUE => Pure Queue,
    e::module::MODULE => Analysed,
    e::queue::NOTIFIER_QUEUE => Pure Queue,
    e::basic::NULL => Pure,
    e::strip::PAD => Pure E2,
    e::paint::PAINT => Pure,
    e::paint::PAINT_SWITCH => Pure E5,
    e::paint::PAINT_TEE => Pure E2,
    e::bound::POLL => Pure,
    e::basic::PORT_INFO,
    e::print::PRINT => E2,
    e::sched::PRIO_SCHED => Pure E5,
    e::chance::PROB_SPLITTER => Pure,
    e::basic::PULL_NULL => Pure,
    e::switch::PULL_SWITCH => Pure,
    e::switch::PULL_TEE => Pure E5,
    e::basic::PUSH_NULL => Pure,
    e::queue::QUEUE => Pure Queue,
    e::queue::QUICK_NOTE_QUEUE => Pure Queue,
    e::chance::RED => Pure E5 Queues,
    e::lookup::RADIX_IP_LOOKUP => Pure E4,
    e::chance::RANDOM_SAMPLE => Pure,
    e::switch::RANDOM_SWITCH => Pure,
    e::lookup::RANGE_IP_LOOKUP => Pure E4,
    e::source::RATED_SOURCE,
    e::unqueue::RATED_SPLITTER => Pure,
    e::unqueue::RATED_UNQUEUE => Pure,
    e::strip::RESIZE => Pure E2,
    e::sched::ROUND_ROBIN_SCHED => Pure E5,
    e::switch::ROUND_ROBIN_SWITCH => Pure,
    e::basic::SCHEDULE_INFO,
    e::script::SCRIPT,
    e::ip::SET_IP_ADDRESS => Pure,
    e::ip::SET_IP_CHECKSUM => Pure E3,
    e::ip::SET_IP_DSCP => Pure,
    e::ip::SET_IP_ECN => Pure,
    e::ip::SET_TCP_CHECKSUM => Pure E2,
    e::chance::SET_TIMESTAMP => Pure,
    e::chance::SET_TIMESTAMP_DELTA => Pure,
    e::ip::SET_UDP_CHECKSUM => Pure E2,
    e::ether::SET_VLAN_ANNO => Pure,
    e::unqueue::SHAPER => Pure,
    e::switch::SIMPLE_PULL_SWITCH => Pure,
    e::queue::SIMPLE_QUEUE => Pure Queue,
    e::socket::SOCKET => E2,
    e::lookup::STATIC_IP_LOOKUP => Pure E4,
    e::switch::STATIC_PULL_SWITCH => Pure,
    e::switch::STATIC_SWITCH => Pure,
    e::thread_sched::STATIC_THREAD_SCHED,
    e::strip::STORE_DATA => Pure E4,
    e::ip::STORE_IP_ADDRESS => Pure E3,
    e::sched::STRIDE_SCHED => Pure E5,
    e::sched::STRIDE_SWITCH => Pure E5,
    e::strip::STRIP => Pure,
    e::ether::STRIP_ETHER_VLAN => Pure,
    e::strip::STRIP_IP => Pure,
    e::strip::STRIP_TCP => Pure,
    e::strip::STRIP_TO_NETWORK => Pure,
    e::switch::SWITCH_CLASS => Pure,
    e::rewriter::TCP_REWRITER => Pure E5 Capacity,
    e::switch::TEE => Pure E5,
    e::queue::THREAD_SAFE_QUEUE => Pure Queue,
    e::chance::TIME_FILTER,
    e::sched::TIME_SORTED_SCHED => Pure E5,
    e::unqueue::TIMED_SINK => Pure,
    e::source::TIMED_SOURCE,
    e::to_device::TO_DEVICE => E2 Device,
    e::dump::TO_DUMP => E2,
    e::summary::TO => E2,
    e::strip::TRUNCATE => Pure,
    e::encap::UDP_IP_ENCAP => Pure E2,
    e::rewriter::UDP_REWRITER => Pure E5 Capacity,
    e::unqueue::UNQUEUE => Pure,
    e::strip::UNSTRIP => Pure E2,
    e::strip::UNSTRIP_IP => Pure E2,
    e::ether::VLAN_DECAP => Pure,
    e::ether::VLAN_ENCAP => Pure E2,
];
