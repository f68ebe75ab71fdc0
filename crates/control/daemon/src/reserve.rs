//! The ledger of reservations: what can be reserved, what is, and whether more can be admitted. Pure
//! arithmetic; what is admitted here is enforced elsewhere (meters, buffers) and stored elsewhere.

use flame_api::Reservation;
use std::collections::BTreeMap;

/// One kind of resource.
struct Resource {
    name: &'static str,
    of: fn(&Reservation) -> u64,
    set: fn(&mut Reservation, u64),
    show: fn(u64) -> String,
}

const RESOURCES: [Resource; 4] = [
    Resource {
        name: "processor",
        of: |r| r.cpu_ppm,
        set: |r, n| r.cpu_ppm = n,
        show: |ppm| format!("{}.{:02} %", ppm / 10_000, ppm % 10_000 / 100),
    },
    Resource { name: "memory", of: |r| r.memory, set: |r, n| r.memory = n, show: bytes },
    Resource { name: "buffer", of: |r| r.blocks, set: |r, n| r.blocks = n, show: |n| format!("{n} blocks") },
    Resource {
        name: "records",
        of: |r| r.record_bytes,
        set: |r, n| r.record_bytes = n,
        show: |n| format!("{}/s", bytes(n)),
    },
];

/// Returns a number of bytes in the largest unit that is exact to a hundredth.
fn bytes(n: u64) -> String {
    let unit = [("GiB", 30), ("MiB", 20), ("KiB", 10)].into_iter().find(|(_, shift)| n >> shift > 0);
    match unit {
        Some((unit, shift)) => {
            let hundredths = (u128::from(n) * 100) >> shift;
            match hundredths % 100 {
                0 => format!("{} {unit}", hundredths / 100),
                part => format!("{}.{part:02} {unit}", hundredths / 100),
            }
        }
        None => format!("{n} bytes"),
    }
}

/// Applies an operation to each resource.
fn each(a: &Reservation, b: &Reservation, of: impl Fn(u64, u64) -> u64) -> Reservation {
    let mut result = Reservation::default();
    for resource in &RESOURCES {
        (resource.set)(&mut result, of((resource.of)(a), (resource.of)(b)));
    }
    result
}

/// Returns what `taken` leaves of `all`.
pub fn less(all: &Reservation, taken: &Reservation) -> Reservation {
    each(all, taken, u64::saturating_sub)
}

/// The reservations of a node, by holder.
#[derive(Clone, Debug)]
pub struct Ledger<K> {
    capacity: Reservation,
    /// The part that one principal can have.
    per_principal: Reservation,
    taken: BTreeMap<K, Reservation>,
}

/// The arithmetic of a decision, a line for each resource.
pub type Arithmetic = Vec<String>;

impl<K: Ord + Clone> Ledger<K> {
    pub fn new(capacity: Reservation, per_principal: Reservation) -> Self {
        Self { capacity, per_principal, taken: BTreeMap::new() }
    }

    /// Returns the part of the capacity that one principal can have.
    pub fn per_principal(&self) -> Reservation {
        each(&self.capacity, &self.per_principal, u64::min)
    }

    pub fn capacity(&self) -> Reservation {
        self.capacity
    }

    /// Changes the capacity. What was admitted stays; if that is more now, nothing is admitted until it fits.
    pub fn set_capacity(&mut self, capacity: Reservation, per_principal: Reservation) {
        (self.capacity, self.per_principal) = (capacity, per_principal);
    }

    fn sum_of(&self, which: impl Fn(&K) -> bool) -> Reservation {
        let chosen = self.taken.iter().filter(|(key, _)| which(key));
        chosen.fold(Reservation::default(), |sum, (_, taken)| each(&sum, taken, u64::saturating_add))
    }

    /// Returns the sum of the reservations of the holders that `which` chooses.
    pub fn reserved_by(&self, which: impl Fn(&K) -> bool) -> Reservation {
        self.sum_of(which)
    }

    pub fn reserved(&self) -> Reservation {
        self.sum_of(|_| true)
    }

    pub fn free(&self) -> Reservation {
        less(&self.capacity, &self.reserved())
    }

    /// Returns the reservation of a holder.
    pub fn get(&self, key: &K) -> Reservation {
        self.taken.get(key).copied().unwrap_or_default()
    }

    /// Reserves `want` for a holder, in place of what it has, and returns the arithmetic.
    ///
    /// # Errors
    ///
    /// Returns the arithmetic of the resources that do not suffice. Nothing is changed then.
    pub fn admit(&mut self, key: &K, want: &Reservation) -> Result<Arithmetic, Arithmetic> {
        let others = self.sum_of(|other| other != key);
        let (mut fits, mut exceeds) = (Vec::new(), Vec::new());
        for Resource { name, of, show, .. } in &RESOURCES {
            let (want, others, most) = (of(want), of(&others), of(&self.capacity));
            if want == 0 {
                continue;
            }
            let all = others.checked_add(want);
            let is_within = all.is_some_and(|all| all <= most);
            let sum = all.map_or_else(|| "more than can be counted".to_owned(), show);
            let sign = if is_within { "of" } else { ">" };
            let line = format!("{name}: {} + {} = {sum} {sign} {}", show(others), show(want), show(most));
            if is_within { &mut fits } else { &mut exceeds }.push(line);
        }
        if !exceeds.is_empty() {
            return Err(exceeds);
        }
        self.set(key, *want);
        Ok(fits)
    }

    /// Reserves `want` for a holder of the principal whose holders `is_own` chooses. The arithmetic has the
    /// sums of this principal alone: those of others are not its concern.
    ///
    /// # Errors
    ///
    /// Returns the arithmetic of the resources that do not suffice. Nothing is changed then.
    pub fn admit_own(
        &mut self,
        key: &K,
        want: &Reservation,
        is_own: impl Fn(&K) -> bool,
    ) -> Result<Arithmetic, Arithmetic> {
        let own: BTreeMap<K, Reservation> = self
            .taken
            .iter()
            .filter(|(key, _)| is_own(key))
            .map(|(key, taken)| (key.clone(), *taken))
            .collect();
        let none = Reservation::default();
        let mut alone = Self { capacity: self.per_principal(), per_principal: none, taken: own };
        let lines = alone.admit(key, want)?;
        match self.admit(key, want) {
            Ok(_) => Ok(lines),
            Err(exceeded) => {
                let of = |line: &String| line.split(':').next().unwrap_or_default().to_owned();
                Err(exceeded
                    .iter()
                    .map(|line| format!("{}: the node has less than that left", of(line)))
                    .collect())
            }
        }
    }

    /// Gives up the reservation of a holder and returns it.
    pub fn release(&mut self, key: &K) -> Reservation {
        self.taken.remove(key).unwrap_or_default()
    }

    /// Gives a holder back what it had before a change that failed. It was admitted then.
    pub fn restore(&mut self, key: &K, before: Reservation) {
        self.set(key, before);
    }

    fn set(&mut self, key: &K, reservation: Reservation) {
        match reservation.is_none() {
            true => drop(self.taken.remove(key)),
            false => drop(self.taken.insert(key.clone(), reservation)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn amount() -> impl Strategy<Value = u64> {
        prop_oneof![0..30u64, Just(0), Just(u64::MAX), Just(u64::MAX - 7), any::<u64>()]
    }

    fn reservation() -> impl Strategy<Value = Reservation> {
        let four = (amount(), amount(), amount(), amount());
        four.prop_map(|(cpu_ppm, memory, blocks, record_bytes)| Reservation {
            cpu_ppm,
            memory,
            blocks,
            record_bytes,
        })
    }

    fn within(a: &Reservation, b: &Reservation) -> bool {
        RESOURCES.iter().all(|r| (r.of)(a) <= (r.of)(b))
    }

    /// Returns the sums without overflow.
    fn exact(ledger: &Ledger<u8>) -> [u128; 4] {
        RESOURCES.each_ref().map(|r| ledger.taken.values().map(|taken| u128::from((r.of)(taken))).sum())
    }

    proptest! {
        #[test]
        fn what_is_admitted_never_exceeds_the_capacity(
            capacity in reservation(),
            steps in proptest::collection::vec((any::<bool>(), 0..6u8, reservation()), 0..60),
        ) {
            let mut ledger = Ledger::new(capacity, capacity);
            for (admits, key, want) in steps {
                let before = ledger.clone();
                if admits {
                    let decided = ledger.admit(&key, &want);
                    let asked = RESOURCES.iter().filter(|r| (r.of)(&want) > 0).count();
                    match decided {
                        Ok(lines) => {
                            prop_assert_eq!(ledger.get(&key), want);
                            prop_assert_eq!(lines.len(), asked, "a line for each resource");
                        }
                        Err(lines) => {
                            prop_assert!(!lines.is_empty() && lines.len() <= asked);
                            prop_assert_eq!(&ledger.taken, &before.taken, "nothing changed");
                            // It would indeed not fit.
                            let mut without = before.clone();
                            without.release(&key);
                            prop_assert!(!within(&want, &without.free()));
                        }
                    }
                } else {
                    let (taken, sum) = (ledger.get(&key), exact(&ledger));
                    prop_assert_eq!(ledger.release(&key), taken);
                    let parts = RESOURCES.each_ref().map(|r| u128::from((r.of)(&taken)));
                    let after = exact(&ledger);
                    prop_assert!((0..4).all(|n| after[n] + parts[n] == sum[n]), "exactly what was taken");
                    // The released amounts can be admitted again.
                    let mut again = ledger.clone();
                    prop_assert!(again.admit(&key, &taken).is_ok() && again.taken == before.taken);
                }
                let most = RESOURCES.each_ref().map(|r| u128::from((r.of)(&capacity)));
                let sum = exact(&ledger);
                prop_assert!((0..4).all(|n| sum[n] <= most[n]), "{:?} of {:?}", sum, most);
                prop_assert_eq!(
                    RESOURCES.each_ref().map(|r| u128::from((r.of)(&ledger.free()))),
                    [0, 1, 2, 3].map(|n| most[n] - sum[n])
                );
            }
        }
    }

    #[test]
    fn decisions_show_their_arithmetic() {
        let capacity =
            Reservation { cpu_ppm: 1_600_000, memory: 1 << 30, blocks: 64, record_bytes: 16 << 20 };
        let mut ledger = Ledger::new(capacity, capacity);
        let want = Reservation { cpu_ppm: 1_000_000, memory: 100 << 20, ..Reservation::default() };
        let lines = ledger.admit(&"alice", &want).unwrap();
        assert_eq!(
            lines,
            [
                "processor: 0.00 % + 100.00 % = 100.00 % of 160.00 %",
                "memory: 0 bytes + 100 MiB = 100 MiB of 1 GiB"
            ]
        );
        let want = Reservation { cpu_ppm: 605_000, memory: 1, record_bytes: 1536, ..Reservation::default() };
        assert_eq!(
            ledger.admit(&"bob", &want).unwrap_err(),
            ["processor: 100.00 % + 60.50 % = 160.50 % > 160.00 %"]
        );
        // A holder's own reservation makes room for the one in its place.
        assert!(ledger.admit(&"alice", &Reservation { cpu_ppm: 1_600_000, ..want }).is_ok());
        ledger.set_capacity(Reservation { cpu_ppm: 5, ..capacity }, capacity);
        assert_eq!((ledger.free().cpu_ppm, ledger.get(&"alice").cpu_ppm), (0, 1_600_000));
        let refused = ledger.admit(&"bob", &Reservation { blocks: u64::MAX, ..want }).unwrap_err();
        assert_eq!(refused[1], format!("buffer: 0 blocks + {0} blocks = {0} blocks > 64 blocks", u64::MAX));
    }

    #[test]
    fn principals_have_a_limit_and_learn_nothing_of_others() {
        let capacity = Reservation { cpu_ppm: 1_000_000, memory: 1 << 30, blocks: 64, record_bytes: 0 };
        let each = Reservation { cpu_ppm: 600_000, memory: 1 << 20, ..capacity };
        let mut ledger = Ledger::new(capacity, each);
        let own = |name: &'static str| move |key: &(&str, u8)| key.0 == name;
        let cpu = |cpu_ppm| Reservation { cpu_ppm, ..Reservation::default() };
        let lines = ledger.admit_own(&("alice", 1), &cpu(400_000), own("alice")).unwrap();
        assert_eq!(lines, ["processor: 0.00 % + 40.00 % = 40.00 % of 60.00 %"]);
        let refused = ledger.admit_own(&("alice", 2), &cpu(300_000), own("alice")).unwrap_err();
        assert_eq!(refused, ["processor: 40.00 % + 30.00 % = 70.00 % > 60.00 %"]);
        let lines = ledger.admit_own(&("bob", 1), &cpu(600_000), own("bob")).unwrap();
        assert_eq!(lines, ["processor: 0.00 % + 60.00 % = 60.00 % of 60.00 %"]);
        let refused = ledger.admit_own(&("alice", 2), &cpu(1), own("alice")).unwrap_err();
        assert_eq!(refused, ["processor: the node has less than that left"]);
        assert_eq!(ledger.get(&("alice", 2)), Reservation::default());
        // A change of its own module counts once.
        assert!(ledger.admit_own(&("bob", 1), &cpu(500_000), own("bob")).is_ok());
        assert_eq!(ledger.free().cpu_ppm, 100_000);
    }
}
