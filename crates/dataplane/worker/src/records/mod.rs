//! From the output of modules to sinks, channels and services: ordering by ticks, quotas, loss and reports.

pub mod backpressure;
pub mod calls;
pub mod channels;
pub mod charge;
pub mod collect;
pub mod collector_nap;
pub mod event;
pub mod faults;
pub mod granted;
pub mod loss;
pub mod module_output;
pub mod onset;
pub mod outlet;
pub mod outputs;
pub mod placed;
pub mod queues;
pub mod released;
pub mod report;
pub mod services;
pub mod tick_order;
pub mod undue;
