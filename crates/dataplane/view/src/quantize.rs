//! Reduces the information in descriptors: coarser times, pseudonymous flows.

use flame_abi::Descriptor;
use flame_plan::{Expose, ViewSpec};
use flame_transform::{FlowHash, Key};

/// The reduction of times and flow hashes.
pub(crate) struct Quantizer {
    resolution_ns: u64,
    count_only: bool,
    flows: Flows,
}

/// The treatment of flow hashes, which are those of the packet as it is shown.
enum Flows {
    /// They stay: nothing is hidden, or there is no key, and anyone who sees the headers could compute them.
    Stay,
    /// They are replaced by pseudonyms under a key.
    Names(FlowHash),
    /// They are zero: without a key, a hash of hidden headers would let guesses be tested.
    Zero,
}

impl Quantizer {
    /// Creates the reduction of a view. `run` is the key of the run, for views without a key.
    pub(crate) fn new(spec: &ViewSpec, run: Option<&Key>, hides_bytes: bool) -> Self {
        let own = spec.key.as_ref().map(|key| Key::new(key.0));
        let hides_flow = spec.expose <= Expose::None;
        let flows = match (&own, run) {
            (Some(key), _) if hides_bytes => Flows::Names(FlowHash::new(key)),
            (None, Some(key)) if hides_flow => Flows::Names(FlowHash::new(key)),
            (None, None) if hides_flow => Flows::Zero,
            _ => Flows::Stay,
        };
        Self { resolution_ns: spec.resolution_ns, count_only: spec.expose == Expose::Count, flows }
    }

    /// Returns whether times and flow hashes are shown as they are.
    pub(crate) fn is_none(&self) -> bool {
        self.resolution_ns <= 1 && !self.count_only && matches!(self.flows, Flows::Stay)
    }

    /// Returns whether anything of flow hashes stays.
    pub(crate) fn reads_hash(&self) -> bool {
        !self.count_only && !matches!(self.flows, Flows::Zero)
    }

    /// Reduces a descriptor, but for the pseudonym of its flow.
    #[inline]
    pub(crate) fn apply(&self, d: &mut Descriptor) {
        if self.count_only {
            *d = Descriptor { ts_ns: d.ts_ns, addr: d.addr, ..Descriptor::default() };
        }
        if matches!(self.flows, Flows::Zero) {
            d.hash = 0;
        }
        d.ts_ns = flame_plan::quantize(d.ts_ns, self.resolution_ns);
    }

    /// Returns whether [`Quantizer::apply`] does no more than to remove flow hashes that are not read, and
    /// those that are read stay.
    pub(crate) fn changes_hash_only(&self) -> bool {
        self.resolution_ns <= 1 && !self.count_only && !self.names_flows()
    }

    /// Returns whether flow hashes become pseudonyms.
    #[inline]
    pub(crate) fn names_flows(&self) -> bool {
        matches!(self.flows, Flows::Names(_)) && !self.count_only
    }

    /// Replaces flow hashes by pseudonyms, as the last step, for many packets at once.
    #[inline]
    pub(crate) fn name_flows(&self, shown: &mut [Descriptor]) {
        if let Flows::Names(names) = &self.flows
            && !self.count_only
        {
            names.apply(shown.iter_mut().filter(|d| d.is_ip()).map(|d| &mut d.hash));
        }
    }
}
