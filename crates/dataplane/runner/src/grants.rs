use flame_quota::{Amounts, Link, Meter, Meters, Quota, ThisRun};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// The grants of the modules in this process: modules whose credentials share a link share its time and
/// memory. The worker limits their records.
#[derive(Default)]
pub struct Grants(BTreeMap<u64, Weak<Meter>>);

impl Grants {
    /// Returns the meters of a module.
    pub fn meters(&mut self, links: &[Link]) -> Meters {
        self.0.retain(|_, meter| meter.strong_count() > 0);
        // With a counter of use, time is measured although only a renewal may limit it.
        let meters = Meters::of_grant(links.iter().map(|link| self.meter(link)).collect());
        meters.with(None, Some(Arc::default()))
    }

    fn meter(&mut self, link: &Link) -> Arc<Meter> {
        let known = self.0.get(&link.id).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let (share, memory) = (link.share, link.memory);
            let quota = Quota { per_second: Amounts::MAX, per_packet: Amounts::MAX, share, memory };
            let meter = Arc::new(Meter::new(quota, Box::new(ThisRun::new(quota))));
            self.0.insert(link.id, Arc::downgrade(&meter));
            meter
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_one_link_share_its_memory() {
        let mut grants = Grants::default();
        let link = |id, memory| Link { id, share: None, memory };
        let one = grants.meters(&[link(1, 100), link(2, 60)]);
        let two = grants.meters(&[link(1, 100), link(3, 60)]);
        assert!(one.own(60) && !one.own(1));
        assert!(!two.own(60) && two.own(40));
        one.disown(60);
        assert!(!one.own(61) && two.own(20) && one.own(40));
        // A link that nobody uses any more begins anew.
        drop((one, two));
        assert!(grants.meters(&[link(1, 100)]).own(100));
    }
}
