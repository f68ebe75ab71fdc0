//! The memory and table elements that a store may have, and when they become scarce.

use flame_abi::layout::MAX_MEMORY;
use flame_plan::Limits;
use flame_quota::Meters;
use wasmtime::ResourceLimiter;

/// The limits of one store, and its part of the memory that its credential allows.
pub(crate) struct Quota {
    /// The largest size of the memory in bytes: that of the limits, or of the memory's own declaration.
    most: usize,
    table_elements: usize,
    /// The meters of the credential, with the memory of this store in `held`.
    meters: Meters,
    held: u64,
    /// Whether growth was refused since the last note of pressure.
    was_refused: bool,
    /// Whether little was left at the last look.
    is_little: bool,
    /// The size of the memory at the last note, if little was left then and ever since.
    noted: Option<usize>,
}

/// The size of a page of memory, by which it grows.
const PAGE: u64 = 65_536;
/// The part of a limit below which the memory that is left is little.
const PART: u64 = 8;

impl Quota {
    pub(crate) fn new(limits: &Limits, meters: Meters) -> Self {
        Self {
            most: limits.memory.min(MAX_MEMORY) as usize,
            table_elements: limits.table_elements as usize,
            meters,
            held: 0,
            was_refused: false,
            is_little: false,
            noted: None,
        }
    }

    /// Returns the bytes by which a memory of `size` bytes may still grow, if the module is to be informed:
    /// growth was refused, or less than an eighth of a limit is left and that is new.
    ///
    /// The memory of other modules under the same credential is left out, so that the number shows nothing of
    /// them. Growth may therefore be refused below it.
    pub(crate) fn pressure(&mut self, size: usize) -> Option<u64> {
        self.settle(size);
        let own = (self.most as u64, self.most.saturating_sub(size) as u64);
        let limits = [own, self.meters.memory()];
        self.is_little = limits.iter().any(|(most, left)| left.saturating_mul(PART) < *most);
        self.noted = self.noted.filter(|_| self.is_little);
        let is_new = self.is_little && self.noted != Some(size);
        let free = limits.iter().map(|(_, left)| left / PAGE * PAGE).min();
        free.filter(|_| self.was_refused || is_new)
    }

    /// Records that the module was informed. What it requested in that call is known to it.
    pub(crate) fn note_pressure(&mut self, size: usize) {
        self.was_refused = false;
        self.noted = Some(size).filter(|_| self.is_little);
    }

    /// Gives back memory that was counted for a growth that then failed.
    fn settle(&mut self, size: usize) {
        let over = self.held.saturating_sub(size as u64);
        if over > 0 {
            self.held -= over;
            self.meters.disown(over);
        }
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        self.meters.disown(self.held);
    }
}

impl ResourceLimiter for Quota {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.settle(current);
        // The engine would refuse more than the declared maximum only after it was counted.
        self.most = self.most.min(maximum.unwrap_or(usize::MAX));
        let more = desired.saturating_sub(current) as u64;
        if desired > self.most || !self.meters.own(more) {
            self.was_refused = true;
            return Ok(false);
        }
        self.held += more;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.was_refused = true;
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        // The quota is shared by all tables, so each growth reduces it.
        match self.table_elements.checked_sub(desired.saturating_sub(current)) {
            Some(rest) => self.table_elements = rest,
            None => return Ok(false),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_quota::{Amounts, Meter, Quota as Amount, ThisRun};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn meters(pages: u64) -> Meters {
        let memory = pages * PAGE;
        let quota = Amount { per_second: Amounts::MAX, per_packet: Amounts::MAX, share: None, memory };
        Meters::of_grant(vec![Arc::new(Meter::new(quota, Box::new(ThisRun::new(quota))))])
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// The module requests pages, and the kernel has them or not.
        Grow(u64, bool),
        /// Another instance of the install has this many pages now.
        Other(u64),
        /// The install may have this many pages now, if that is no less than it has.
        Renew(u64),
        /// The module is informed if it is to be.
        Inform,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..12_u64, any::<bool>()).prop_map(|(pages, works)| Step::Grow(pages, works)),
            2 => (0..40_u64).prop_map(Step::Other),
            1 => (1..120_u64).prop_map(Step::Renew),
            6 => Just(Step::Inform),
        ]
    }

    /// A model in pages, which keeps the history since the module was informed last.
    #[derive(Debug)]
    struct Model {
        size: u64,
        most: u64,
        install: u64,
        other: u64,
        informed_at: Option<u64>,
        refused: bool,
        /// Whether little was left, at that time and at each look since.
        looks: Vec<bool>,
    }

    impl Model {
        fn left(&self) -> (u64, u64) {
            (self.most - self.size, self.install - self.size - self.other)
        }

        fn due(&mut self) -> Option<u64> {
            let (own, install) = self.left();
            let is_little = own * 8 < self.most || install * 8 < self.install;
            self.looks.push(is_little);
            let is_known = self.informed_at == Some(self.size) && self.looks.iter().all(|little| *little);
            (self.refused || is_little && !is_known).then(|| own.min(install) * PAGE)
        }
    }

    proptest! {
        #[test]
        fn the_module_is_informed_as_in_a_simple_model(
            declared in proptest::option::of(8..100_u64),
            limit in 8..100_u64,
            install in 8..100_u64,
            steps in proptest::collection::vec(step(), 0..200),
        ) {
            let all = meters(install);
            let limits = Limits { memory: (limit * PAGE) as u32, ..Limits::default() };
            let mut quota = Quota::new(&limits, all.clone());
            let maximum = declared.map(|pages| (pages * PAGE) as usize);
            let most = limit.min(declared.unwrap_or(limit));
            let bytes = |pages: u64| (pages * PAGE) as usize;
            prop_assert!(quota.memory_growing(0, bytes(1), maximum).unwrap());
            let mut model = Model {
                size: 1, most, install, other: 0, informed_at: None, refused: false, looks: Vec::new(),
            };
            for step in steps {
                match step {
                    // As the engine does, which does not ask about nothing.
                    Step::Grow(0, _) => {}
                    Step::Grow(pages, works) => {
                        let (own, install) = model.left();
                        let may = pages <= own.min(install);
                        let (now, then) = (bytes(model.size), bytes(model.size + pages));
                        prop_assert_eq!(quota.memory_growing(now, then, maximum).unwrap(), may);
                        if may && !works {
                            quota.memory_grow_failed(wasmtime::Error::msg("no memory")).unwrap();
                        }
                        model.refused |= !may || !works;
                        model.size += if may && works { pages } else { 0 };
                        // What was counted for nothing is given back with the next look or request.
                        quota.settle(bytes(model.size));
                    }
                    Step::Other(pages) => {
                        all.disown(model.other * PAGE);
                        model.other = 0;
                        if all.own(pages * PAGE) {
                            model.other = pages;
                        }
                    }
                    Step::Renew(pages) => {
                        let fits = pages >= model.size + model.other;
                        prop_assert_eq!(all.renew(&meters(pages)).is_ok(), fits);
                        model.install = if fits { pages } else { model.install };
                    }
                    Step::Inform => {
                        let due = quota.pressure(bytes(model.size));
                        prop_assert_eq!(due, model.due());
                        if due.is_some() {
                            quota.note_pressure(bytes(model.size));
                            (model.refused, model.informed_at) = (false, Some(model.size));
                            model.looks.drain(..model.looks.len() - 1);
                        }
                    }
                }
                prop_assert_eq!(all.memory().1, model.left().1 * PAGE);
            }
            drop(quota);
            prop_assert_eq!(all.memory().1, (model.install - model.other) * PAGE);
        }
    }

    #[test]
    fn growth_that_fails_is_not_counted_twice() {
        let all = meters(20);
        let mut quota = Quota::new(&Limits { memory: 64 << 20, ..Limits::default() }, all.clone());
        let bytes = |pages: u64| (pages * PAGE) as usize;
        assert!(quota.memory_growing(0, bytes(1), None).unwrap());
        for _ in 0..100 {
            assert!(quota.memory_growing(bytes(1), bytes(11), None).unwrap());
            quota.memory_grow_failed(wasmtime::Error::msg("no memory")).unwrap();
        }
        assert_eq!(quota.pressure(bytes(1)), Some(19 * PAGE));
        assert_eq!(all.memory(), (20 * PAGE, 19 * PAGE));
        // More than the memory declares is refused before it is counted.
        assert!(!quota.memory_growing(bytes(1), bytes(4), Some(bytes(3))).unwrap());
        assert_eq!(all.memory().1, 19 * PAGE);
    }
}
