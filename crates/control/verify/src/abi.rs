//! The host's guarantees about the memory that it writes: one place, with the constants that the host
//! enforces.

use crate::linear::{COUNT, DESCRIPTORS, Fact, LENGTH, Linear};
use crate::state::State;
use crate::value::{MAX_LENGTH, Sum, Values, signed};
use flame_abi::{Descriptor, MAX_BATCH, layout};
use std::collections::HashMap;
use std::rc::Rc;

/// The first address after all packets.
const VIEW_END: u64 = layout::VIEW as u64 + layout::VIEW_BYTES as u64;
const _: () = assert!(VIEW_END + MAX_LENGTH < 1 << 32);

/// The loads of descriptors' fields so far: a field does not change during a call.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Whether the control area contains a batch: in calls of `flame_batch` and `flame_push`.
    pub batch: bool,
    loaded: HashMap<(Sum, u8), Rc<Sum>>,
}

/// Adds the symbols of every walk: length, count, address of the descriptors.
pub fn symbols(values: &mut Values) {
    let view = u64::from(layout::VIEW);
    debug_assert_eq!(values.symbols.len() as u32, LENGTH);
    values.symbols.add(0, MAX_LENGTH);
    values.symbols.add(1, MAX_BATCH as u64);
    values.symbols.add(view, VIEW_END);
}

/// Returns whether only the host writes an address.
pub fn is_hosts(host: &Host, place: &Sum) -> bool {
    host.batch
        && (place.as_constant().is_some_and(|n| n >= u64::from(layout::WINDOW))
            || place.coefficient(DESCRIPTORS) == 1)
}

/// Returns the value of a load from the batch header or from a descriptor of this batch.
///
/// Header: the descriptors' address and their number. Descriptor `i` with `0 ≤ i < COUNT`, which must follow
/// from the facts: `addr` ends before the view's end, `cap_len ≤ LENGTH`, `l3` and `l4` are at most `LENGTH`.
pub fn load(
    host: &mut Host,
    values: &mut Values,
    state: &mut State,
    place: &Sum,
    bytes: u8,
) -> Option<Rc<Sum>> {
    if !host.batch {
        return None;
    }
    if let Some(address) = place.as_constant() {
        let offset = address.checked_sub(u64::from(layout::WINDOW + layout::BATCH_OFFSET))?;
        return match (offset, bytes) {
            (0, 4) => Some(Rc::new(Sum::symbol(32, DESCRIPTORS))),
            (4, 4) => Some(Rc::new(Sum::symbol(32, COUNT))),
            _ => None,
        };
    }
    let field = is_descriptor(values, &state.facts, place)?;
    let (high, by_length) = match (field, bytes) {
        (8, 4) => (VIEW_END, false),
        (20, 4) => (MAX_LENGTH, true),
        (24 | 26, 2) => (65_535, true),
        _ => return None,
    };
    let value =
        host.loaded.entry((place.clone(), bytes)).or_insert_with(|| values.within(32, 0, high)).clone();
    if by_length && let [(symbol, 1)] = value.terms[..] {
        let fact = Linear::symbol(LENGTH).minus(&Linear::symbol(symbol))?;
        state.learn(Rc::new(fact));
    }
    Some(value)
}

/// Returns the offset within a descriptor of this batch, if the address certainly lies in one.
fn is_descriptor(values: &Values, facts: &[Fact], place: &Sum) -> Option<u64> {
    if place.coefficient(DESCRIPTORS) != 1 {
        return None;
    }
    let size = Descriptor::SIZE as u64;
    let field = place.constant % size;
    let rest = place.minus(&Sum::symbol(32, DESCRIPTORS))?.minus(&Sum::constant(32, field))?;
    // The distance is `32 × index` without wrapping: as integers, not modulo 2^32.
    let by = i128::from(size);
    let of = |n: u64| Some(signed(n, 32)).filter(|n| n % by == 0).map(|n| n / by);
    let terms = rest.terms.iter().map(|(s, n)| Some((*s, of(*n)?))).collect::<Option<Vec<_>>>()?;
    let index = Linear { constant: of(rest.constant)?, terms };
    let below = Linear { constant: -1, terms: vec![(COUNT, 1)] }.minus(&index)?;
    (values.symbols.proves(&index, facts) && values.symbols.proves(&below, facts)).then_some(field)
}
