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
    /// Returns whether packets for one of its elements alone change nothing outside of that.
    pub fn is_pure(&self) -> bool {
        CLASSES.binary_search_by(|c| c.name.cmp(self.name)).is_ok_and(|at| PURE[at])
    }

    /// Returns the class of the cost of a packet that is pushed or pulled, E1 to E5 (docs/bounds.md): the
    /// quantity on which it depends in this element's code. That of modules is found by analysis.
    pub fn cost_class(&self) -> Option<&'static str> {
        CLASSES.binary_search_by(|c| c.name.cmp(self.name)).ok().and_then(|at| COSTS[at])
    }

    /// Returns how its elements depend on others, besides packets and handlers.
    pub fn ties(&self) -> Ties {
        CLASSES.binary_search_by(|c| c.name.cmp(self.name)).map_or(Ties::None, |at| TIES[at])
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
    (@pure pure $($mark:ident)*) => { true };
    (@pure $($mark:ident)*) => { false };
    (@ties pure $($mark:ident)*) => { classes!(@ties $($mark)*) };
    (@ties e2 $($mark:ident)*) => { classes!(@ties $($mark)*) };
    (@ties e3 $($mark:ident)*) => { classes!(@ties $($mark)*) };
    (@ties e4 $($mark:ident)*) => { classes!(@ties $($mark)*) };
    (@ties e5 $($mark:ident)*) => { classes!(@ties $($mark)*) };
    (@ties analysed) => { Ties::None };
    (@cost pure $($mark:ident)*) => { classes!(@cost $($mark)*) };
    (@cost e2 $($mark:ident)*) => { Some("E2") };
    (@cost e3 $($mark:ident)*) => { Some("E3") };
    (@cost e4 $($mark:ident)*) => { Some("E4") };
    (@cost e5 $($mark:ident)*) => { Some("E5") };
    (@cost analysed) => { None };
    (@cost $($mark:ident)*) => { Some("E1") };
    (@ties named) => { Ties::Named };
    (@ties capacity) => { Ties::Capacity };
    (@ties queues) => { Ties::Queues };
    (@ties device) => { Ties::Device };
    (@ties queue) => { Ties::Queue };
    (@ties) => { Ties::None };
    ($($class:path $(=> $($mark:ident)+)?,)*) => {
        /// All classes, sorted by name.
        pub static CLASSES: &[&Class] = &[$(&$class,)*];

        /// Whether each class is pure.
        static PURE: &[bool] = &[$(classes!(@pure $($($mark)+)?),)*];

        /// The quantity on which the cost of each class depends.
        static COSTS: &[Option<&str>] = &[$(classes!(@cost $($($mark)+)?),)*];

        /// The ties of each class.
        static TIES: &[Ties] = &[$(classes!(@ties $($($mark)+)?),)*];
    };
}

// A class is `pure` if a packet that is pushed to an element of it, in a graph of that element alone,
// changes nothing but that graph: no file, no socket, no terminal. Only such elements are measured by `flame
// click check`, which gives them packets. `e2` to `e5` are the class of its cost: it depends on the length
// of the packet, on that of its headers, on the length of the configuration (rules, routes), or on a value
// in it (the number of outputs, the capacity of a table). Without such a mark it is E1, the same for each
// packet. The other marks are the ties of the class.
classes![
    e::ipprint::ARP_PRINT => e2,
    e::arp::ARP_QUERIER => pure e5 named,
    e::arp::ARP_RESPONDER => pure e4,
    e::arp_table::ARP_TABLE,
    e::basic::ADDRESS_INFO,
    e::counter::AGGREGATE_COUNTER => pure e5,
    e::basic::ALIGN => pure e2,
    e::basic::ALIGNMENT_INFO,
    e::counter::AVERAGE_COUNTER => pure,
    e::unqueue::BANDWIDTH_RATED_SPLITTER => pure,
    e::unqueue::BANDWIDTH_RATED_UNQUEUE => pure,
    e::unqueue::BANDWIDTH_SHAPER => pure,
    e::switch::BYPASS => pure,
    e::ip::CHECK_ICMP_HEADER => pure e2,
    e::ip::CHECK_IP_HEADER => pure e3,
    e::ip::CHECK_IP_HEADER2 => pure e3,
    e::paint::CHECK_PAINT => pure,
    e::ip::CHECK_TCP_HEADER => pure e2,
    e::ip::CHECK_UDP_HEADER => pure e2,
    e::classify::CLASSIFIER => pure e4,
    e::control_socket::CONTROL_SOCKET,
    e::counter::COUNTER => pure,
    e::ip::DEC_IP_TTL => pure,
    e::unqueue::DELAY_SHAPER => pure,
    e::unqueue::DELAY_UNQUEUE => pure,
    e::lookup::DIRECT_IP_LOOKUP => pure e4,
    e::basic::DISCARD => pure,
    e::script::DRIVER_MANAGER,
    e::ether::DROP_BROADCASTS => pure,
    e::basic::ERROR,
    e::ether::ETHER_ENCAP => pure e2,
    e::ether::ETHER_MIRROR => pure,
    e::ether::ETHER_REWRITE => pure,
    e::ether::ETHER_VLAN_ENCAP => pure e2,
    e::ip::FIX_IP_SRC => pure e3,
    e::from_device::FROM_DEVICE => e2 device,
    e::dump::FROM_DUMP => e2,
    e::summary::FROM => e2,
    e::queue::FRONT_DROP_QUEUE => pure queue,
    e::queue::FULL_NOTE_QUEUE => pure queue,
    e::ip::GET_IP_ADDRESS => pure,
    e::switch::HASH_SWITCH => pure e5,
    e::ether::HOST_ETHER_FILTER => pure,
    e::switch::HUB => pure e5,
    e::icmp::ICMP_ERROR => pure e3,
    e::encap::ICMP_IP_ENCAP => pure e2,
    e::encap::ICMP_PING_ENCAP => pure e2,
    e::icmp::ICMP_PING_RESPONDER => pure e2,
    e::rewriter::ICMP_PING_REWRITER => pure e5 capacity,
    e::icmp_rewriter::ICMP_REWRITER => e2 named,
    e::rewriter::IP_ADDR_REWRITER => pure e5 capacity,
    e::filter::IP_CLASSIFIER => pure e4,
    e::encap::IP_ENCAP => pure e2,
    e::filter::IP_FILTER => pure e4,
    e::gateway::IP_FRAGMENTER => pure e2,
    e::gateway::IP_GW_OPTIONS => pure e3,
    e::ipprint::IP_PRINT => e2,
    e::reassembler::IP_REASSEMBLER => pure e2,
    e::rewriter::IP_REWRITER => pure e5 capacity,
    e::rewriter::PATTERNS,
    e::basic::IDLE => pure,
    e::source::INFINITE_SOURCE,
    e::switch::INPUT_SWITCH => pure,
    e::kernel_tun::KERNEL_TUN => e2,
    e::lookup::LINEAR_IP_LOOKUP => pure e4,
    e::unqueue::LINK_UNQUEUE => pure,
    e::lookup::LOOKUP_IP_ROUTE => pure e4,
    e::bound::LOOP => pure,
    e::ip::MARK_IP_CE => pure,
    e::ip::MARK_IP_HEADER => pure,
    e::basic::MESSAGE,
    e::queue::MIXED_QUEUE => pure queue,
    e::module::MODULE => analysed,
    e::queue::NOTIFIER_QUEUE => pure queue,
    e::basic::NULL => pure,
    e::strip::PAD => pure e2,
    e::paint::PAINT => pure,
    e::paint::PAINT_SWITCH => pure e5,
    e::paint::PAINT_TEE => pure e2,
    e::bound::POLL => pure,
    e::basic::PORT_INFO,
    e::print::PRINT => e2,
    e::sched::PRIO_SCHED => pure e5,
    e::chance::PROB_SPLITTER => pure,
    e::basic::PULL_NULL => pure,
    e::switch::PULL_SWITCH => pure,
    e::switch::PULL_TEE => pure e5,
    e::basic::PUSH_NULL => pure,
    e::queue::QUEUE => pure queue,
    e::queue::QUICK_NOTE_QUEUE => pure queue,
    e::chance::RED => pure e5 queues,
    e::lookup::RADIX_IP_LOOKUP => pure e4,
    e::chance::RANDOM_SAMPLE => pure,
    e::switch::RANDOM_SWITCH => pure,
    e::lookup::RANGE_IP_LOOKUP => pure e4,
    e::source::RATED_SOURCE,
    e::unqueue::RATED_SPLITTER => pure,
    e::unqueue::RATED_UNQUEUE => pure,
    e::strip::RESIZE => pure e2,
    e::sched::ROUND_ROBIN_SCHED => pure e5,
    e::switch::ROUND_ROBIN_SWITCH => pure,
    e::basic::SCHEDULE_INFO,
    e::script::SCRIPT,
    e::ip::SET_IP_ADDRESS => pure,
    e::ip::SET_IP_CHECKSUM => pure e3,
    e::ip::SET_IP_DSCP => pure,
    e::ip::SET_IP_ECN => pure,
    e::ip::SET_TCP_CHECKSUM => pure e2,
    e::chance::SET_TIMESTAMP => pure,
    e::chance::SET_TIMESTAMP_DELTA => pure,
    e::ip::SET_UDP_CHECKSUM => pure e2,
    e::ether::SET_VLAN_ANNO => pure,
    e::unqueue::SHAPER => pure,
    e::switch::SIMPLE_PULL_SWITCH => pure,
    e::queue::SIMPLE_QUEUE => pure queue,
    e::socket::SOCKET => e2,
    e::lookup::STATIC_IP_LOOKUP => pure e4,
    e::switch::STATIC_PULL_SWITCH => pure,
    e::switch::STATIC_SWITCH => pure,
    e::thread_sched::STATIC_THREAD_SCHED,
    e::strip::STORE_DATA => pure e4,
    e::ip::STORE_IP_ADDRESS => pure e3,
    e::sched::STRIDE_SCHED => pure e5,
    e::sched::STRIDE_SWITCH => pure e5,
    e::strip::STRIP => pure,
    e::ether::STRIP_ETHER_VLAN => pure,
    e::strip::STRIP_IP => pure,
    e::strip::STRIP_TCP => pure,
    e::strip::STRIP_TO_NETWORK => pure,
    e::switch::SWITCH_CLASS => pure,
    e::rewriter::TCP_REWRITER => pure e5 capacity,
    e::switch::TEE => pure e5,
    e::queue::THREAD_SAFE_QUEUE => pure queue,
    e::chance::TIME_FILTER,
    e::sched::TIME_SORTED_SCHED => pure e5,
    e::unqueue::TIMED_SINK => pure,
    e::source::TIMED_SOURCE,
    e::to_device::TO_DEVICE => e2 device,
    e::dump::TO_DUMP => e2,
    e::summary::TO => e2,
    e::strip::TRUNCATE => pure,
    e::encap::UDP_IP_ENCAP => pure e2,
    e::rewriter::UDP_REWRITER => pure e5 capacity,
    e::unqueue::UNQUEUE => pure,
    e::strip::UNSTRIP => pure e2,
    e::strip::UNSTRIP_IP => pure e2,
    e::ether::VLAN_DECAP => pure,
    e::ether::VLAN_ENCAP => pure e2,
];
