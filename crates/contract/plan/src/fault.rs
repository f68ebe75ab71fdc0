use crate::{ModuleId, Reason};
use serde::{Deserialize, Serialize};

/// The end of an instance by a fault or an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultReport {
    pub id: ModuleId,
    pub module: String,
    /// The worker of the instance, or `None` for the slow instance.
    pub worker: Option<usize>,
    /// The index of the packet among those offered to this module on this worker.
    pub packet: Option<u64>,
    /// A description of the fault.
    pub text: String,
    /// The reason for the eviction, if the module was evicted.
    pub evicted: Option<Reason>,
    pub restarted: bool,
    /// Whether the process of the module ended, and all its instances with it.
    pub process: bool,
}

impl FaultReport {
    /// Returns the report of a fault that belongs to no worker and to no packet.
    pub fn new(id: ModuleId, module: String, text: String) -> Self {
        Self { id, module, worker: None, packet: None, text, evicted: None, restarted: false, process: false }
    }
}
