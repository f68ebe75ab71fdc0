//! Modules that decide about packets in line: the packets they hold, and the limit of packets they compose.

pub mod decider;
pub mod forwarding;
pub mod new_packet_limit;
pub mod packet_slots;
