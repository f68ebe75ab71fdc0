//! What a descriptor tells, made less: fewer packets, coarser times, flows without their names.

use flame_abi::Descriptor;
use flame_plan::{Expose, ViewSpec};
use flame_transform::{FlowHash, Key};

/// Times, flow hashes and which packets are shown at all.
#[derive(Default)]
pub struct Coarse {
    resolution_ns: u64,
    /// A packet is shown if its hash is at most this.
    most: u32,
    count_only: bool,
    flow: Option<FlowHash>,
}

impl Coarse {
    pub fn new(spec: &ViewSpec, changes_flow: bool) -> Self {
        // A hash of true addresses would let guesses be tested where addresses are hidden.
        let hides_flow = spec.expose <= Expose::None && !changes_flow;
        let key = spec.key.as_ref().filter(|_| hides_flow);
        Self {
            resolution_ns: spec.resolution_ns,
            most: u32::MAX / spec.sample.max(1),
            count_only: spec.expose == Expose::Count,
            flow: key.map(|key| FlowHash::new(&Key::new(key.0))),
        }
    }

    /// Whether descriptors stay as they are, and all packets are shown.
    pub fn is_none(&self) -> bool {
        self.resolution_ns <= 1 && self.most == u32::MAX && !self.count_only && self.flow.is_none()
    }

    /// Sampling: by time, flow and length, so that it is the same for every view and every run.
    #[inline]
    pub fn shows(&self, d: &Descriptor) -> bool {
        if self.most == u32::MAX {
            return true;
        }
        let mut n = d.ts_ns ^ u64::from(d.hash).rotate_left(32) ^ u64::from(d.wire_len);
        // The finalizer of MurmurHash3.
        n = (n ^ n >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        n = (n ^ n >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        (n >> 32) as u32 <= self.most
    }

    #[inline]
    pub fn apply(&self, d: &mut Descriptor) {
        if self.count_only {
            *d = Descriptor { ts_ns: d.ts_ns, addr: d.addr, ..Descriptor::default() };
        } else if let Some(flow) = &self.flow {
            d.hash = flow.apply(d.hash);
        }
        d.ts_ns = flame_plan::coarse(d.ts_ns, self.resolution_ns);
    }
}
