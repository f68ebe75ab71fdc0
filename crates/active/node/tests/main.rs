//! Tests of nodes without a network. Those with one are of the crate `flame-active-simulation`.
