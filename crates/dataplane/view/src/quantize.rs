//! Reduces the information in descriptors: fewer packets, coarser times, pseudonymous flows.

use flame_abi::Descriptor;
use flame_plan::{Expose, ViewSpec};
use flame_transform::{FlowHash, Key, Sampler};

/// The reduction of times and flow hashes, and the sampling of packets.
pub(crate) struct Quantizer {
    resolution_ns: u64,
    sample_ns: u64,
    sampler: Option<Sampler>,
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

/// The key for samples where there is no other: without a key, nothing is kept from anybody.
const NO_KEY: [u8; 32] = *b"flame: sampling without any key.";

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
        let of_sample = spec.sample_key.as_ref().map(|key| Key::new(key.0));
        let key = of_sample.or(own).or(run.cloned()).unwrap_or_else(|| Key::new(NO_KEY));
        Self {
            resolution_ns: spec.resolution_ns,
            sample_ns: if spec.sample_ns == 0 { spec.resolution_ns } else { spec.sample_ns },
            sampler: (spec.sample > 1).then(|| Sampler::new(&key, spec.sample)),
            count_only: spec.expose == Expose::Count,
            flows,
        }
    }

    /// Returns whether all packets are shown, with their times and flow hashes.
    pub(crate) fn is_none(&self) -> bool {
        self.resolution_ns <= 1
            && self.sampler.is_none()
            && !self.count_only
            && matches!(self.flows, Flows::Stay)
    }

    /// Returns whether anything of flow hashes stays.
    pub(crate) fn reads_hash(&self) -> bool {
        !self.count_only && !matches!(self.flows, Flows::Zero)
    }

    /// Returns whether no packet is left out.
    pub(crate) fn shows_all(&self) -> bool {
        self.sampler.is_none()
    }

    /// Returns whether the next packet, of this time, is in the sample.
    #[inline]
    pub(crate) fn shows(&mut self, ts_ns: u64) -> bool {
        match &mut self.sampler {
            None => true,
            Some(sampler) => sampler.takes(flame_plan::quantize(ts_ns, self.sample_ns)),
        }
    }

    /// Prepares sampling for the packets that follow.
    #[inline]
    pub(crate) fn look_ahead(&mut self, packets: &[Descriptor]) {
        if let Some(sampler) = &mut self.sampler {
            sampler.look_ahead(packets.iter().map(|d| flame_plan::quantize(d.ts_ns, self.sample_ns)));
        }
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
