//! The form of packets on which a decision rests that another than the holder of the view took: the stages of
//! a chain, and sampling.

use crate::select::Select;
use crate::shape::Shape;
use crate::{ViewError, copy_exact};
use flame_abi::{Descriptor, LinkType};
use flame_filter::ShownPacket;
use flame_plan::{Expose, Seen, ShownFilter, Stage, ViewSpec};
use flame_transform::{Key, Rewriter, Sampler, Secrets};

/// A form of packets, with what is needed to make it.
pub(crate) struct Form {
    seen: Seen,
    shape: Shape,
}

impl Form {
    fn new(seen: &Seen, run: Option<&Key>) -> Result<Self, ViewError> {
        let own = seen.key.as_ref().map(|key| Key::new(key.0));
        let mut rewriter = Rewriter::hiding(&seen.transforms, own.as_ref().or(run))?;
        if seen.expose <= Expose::None {
            rewriter.even_sides();
        }
        if seen.resolution_ns > 1 {
            rewriter.hide(Secrets::TIME);
        }
        // No decision rests on numbers that one run of a capture gave to packets.
        rewriter.hide(Secrets::NUMBER);
        // The holder of the view chooses the length up to which it is shown, and so none on which this rests.
        Ok(Self { seen: seen.clone(), shape: Shape { rewriter, snaplen: 0, scratch: Vec::new() } })
    }

    #[inline]
    fn show<'a>(&'a mut self, link: LinkType, d: &Descriptor, bytes: &'a [u8]) -> (&'a [u8], Descriptor) {
        let mut seen = Descriptor::default();
        let bytes = self.shape.shown(self.seen.expose, link, d, bytes, &mut seen);
        (bytes, seen)
    }
}

/// The filters of a chain whose authors saw packets in one form.
struct Filters {
    form: Form,
    select: Select<ShownFilter>,
}

/// The filters of all through whose hands a grant went, each on the packet as its author saw it.
pub(crate) struct Stages(Vec<Filters>);

impl Stages {
    /// Creates stages. Filters on the same form of the packet share it.
    pub(crate) fn new(stages: &[Stage], run: Option<&Key>) -> Result<Self, ViewError> {
        let mut stages: Vec<&Stage> = stages.iter().collect();
        stages.sort_by(|a, b| a.seen.cmp(&b.seen));
        let filters = stages.chunk_by(|a, b| a.seen == b.seen).map(|same| {
            let filters: Vec<ShownFilter> = same.iter().map(|stage| stage.filter.clone()).collect();
            let form = Form::new(&same[0].seen, run)?;
            let select = Select::new(&filters)?;
            select.check_lengths(form.seen.expose)?;
            Ok(Filters { form, select })
        });
        Ok(Self(filters.collect::<Result<_, ViewError>>()?))
    }

    /// Returns whether no packet is left out.
    #[inline]
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a packet passes all filters.
    #[inline(always)] // Most views have none, which must not cost a call.
    pub(crate) fn passes(&mut self, link: LinkType, d: &Descriptor, bytes: &[u8]) -> Result<bool, ViewError> {
        if self.is_all() { Ok(true) } else { self.filtered(link, d, bytes) }
    }

    fn filtered(&mut self, link: LinkType, d: &Descriptor, bytes: &[u8]) -> Result<bool, ViewError> {
        for Filters { form, select } in &mut self.0 {
            let expose = form.seen.expose;
            let (bytes, seen) = form.show(link, d, bytes);
            let wire_len = if expose == Expose::Count { 0 } else { seen.wire_len };
            if !select.passes(link, ShownPacket { bytes, wire_len })? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The key for samples where there is no other: without a key, nothing is kept from anybody.
const NO_KEY: [u8; 32] = *b"flame: sampling without any key.";

/// The choice of a sample: by a keyed function of each packet as it is seen by all whose views are narrowed
/// from one, so that all of them sample the same packets, on any worker and from any start.
///
/// The bytes from the IP header on decide, not those of the link, which differ with the way of capturing.
pub(crate) struct Sampling {
    form: Form,
    sampler: Sampler,
}

impl Sampling {
    /// Creates the sampling of a view, if it has one.
    pub(crate) fn new(spec: &ViewSpec, run: Option<&Key>) -> Result<Option<Self>, ViewError> {
        if spec.sample <= 1 {
            return Ok(None);
        }
        let keys = [&spec.sample_key, &spec.key].map(|key| key.as_ref().map(|key| Key::new(key.0)));
        let key = keys.into_iter().flatten().next().or(run.cloned()).unwrap_or_else(|| Key::new(NO_KEY));
        let form = Form::new(&spec.sample_seen.clone().unwrap_or_else(|| spec.seen()), run)?;
        Ok(Some(Self { form, sampler: Sampler::new(&key, spec.sample) }))
    }

    /// Returns whether anything of packets decides but their times.
    pub(crate) fn reads_packets(&self) -> bool {
        self.form.seen.expose != Expose::Count
    }

    /// Returns whether flow hashes decide: where no header is shown, they tell packets apart.
    pub(crate) fn reads_hash(&self) -> bool {
        self.form.seen.expose == Expose::None
    }

    /// Returns whether a packet is in the sample.
    pub(crate) fn takes(&mut self, link: LinkType, d: &Descriptor, bytes: &[u8]) -> bool {
        let time = flame_plan::quantize(d.ts_ns, self.form.seen.resolution_ns);
        let expose = self.form.seen.expose;
        if expose == Expose::Count {
            return self.sampler.takes([time, 0, 0], &[]);
        }
        let (bytes, seen) = self.form.show(link, d, bytes);
        let start = if seen.is_ip() { usize::from(seen.l3) } else { 0 };
        let bytes = bytes.get(start..).unwrap_or_default();
        let mut kind = u64::from(seen.proto) | u64::from(seen.tcp_flags) << 8;
        if expose == Expose::None {
            kind |= u64::from(seen.hash) << 32;
        }
        // A copy of fixed size is faster than one of any.
        let mut first = [0; Sampler::BYTES];
        let first = &mut first[..bytes.len().min(Sampler::BYTES)];
        copy_exact(first, &bytes[..first.len()]);
        let length = u64::from(seen.wire_len).wrapping_sub(start as u64);
        self.sampler.takes([time, length, kind], first)
    }
}
