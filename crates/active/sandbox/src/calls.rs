//! The calls of the node, linked by right.

use crate::CALL_WEIGHT;
use crate::program::Visit;
use flame_abi::capsule::IMPORTS;
use flame_active_node::Rights;
use flame_capsule::{Host, Parts, Place, Target};
use wasmtime::{Caller, Engine, Linker};

type Called<T> = wasmtime::Result<T>;

/// The end of a call that the node refuses.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    #[error("the instructions do not suffice")]
    Limit,
    #[error("an address outside of the memory")]
    Address,
    #[error("the node refused the call")]
    Refused,
}

/// Takes the cost of a call that moves `bytes` from what is left.
fn pay(caller: &mut Caller<'_, Visit>, bytes: usize) -> Called<()> {
    let fuel = caller.data().fuel.ok_or(Stopped::Limit)?;
    let cost = CALL_WEIGHT + (bytes as u64).div_ceil(8);
    let left = fuel.get(&mut *caller).i64().unwrap_or(0);
    let rest = left.checked_sub_unsigned(cost).unwrap_or(i64::MIN);
    fuel.set(&mut *caller, rest.into())?;
    if rest < 0 { Err(Stopped::Limit.into()) } else { Ok(()) }
}

/// Calls the node.
fn ask<T>(caller: &mut Caller<'_, Visit>, call: impl FnOnce(&mut dyn Host) -> T) -> Called<T> {
    pay(caller, 0)?;
    Ok(call(caller.data_mut().lent.host().ok_or(Stopped::Refused)?))
}

/// Calls the node with bytes of the capsule's memory.
fn with_bytes<T, E>(
    caller: &mut Caller<'_, Visit>,
    (at, length): (u32, u32),
    call: impl FnOnce(&mut dyn Host, &[u8]) -> Result<T, E>,
) -> Called<T> {
    pay(caller, length as usize)?;
    let memory = caller.data().memory.ok_or(Stopped::Address)?;
    let (memory, visit) = memory.data_and_store_mut(caller);
    let bytes = memory.get(at as usize..).and_then(|rest| rest.get(..length as usize));
    let host = visit.lent.host().ok_or(Stopped::Refused)?;
    call(host, bytes.ok_or(Stopped::Address)?).map_err(|_| Stopped::Refused.into())
}

fn neighbours(mut caller: Caller<'_, Visit>, at: u32) -> Called<u32> {
    let count = caller.data_mut().lent.host().ok_or(Stopped::Refused)?.neighbours().len();
    let bytes = 8 + 8 * count;
    pay(&mut caller, bytes)?;
    let memory = caller.data().memory.ok_or(Stopped::Address)?;
    let (memory, visit) = memory.data_and_store_mut(&mut caller);
    let list = memory.get_mut(at as usize..).and_then(|rest| rest.get_mut(..bytes));
    let list = list.ok_or(Stopped::Address)?;
    let host = visit.lent.host().ok_or(Stopped::Refused)?;
    let numbers = std::iter::once(count as u64).chain(host.neighbours().iter().map(|place| place.0));
    for (into, number) in list.chunks_exact_mut(8).zip(numbers) {
        into.copy_from_slice(&number.to_le_bytes());
    }
    Ok(u32::try_from(bytes).unwrap_or(0))
}

/// Asks a module's service with bytes of the capsule's memory, and writes as much of the reply as there is
/// room for. Returns the length of the whole reply.
fn question(
    mut caller: Caller<'_, Visit>,
    name: u64,
    at: u32,
    length: u32,
    into: u32,
    room: u32,
) -> Called<u32> {
    pay(&mut caller, (length as usize).saturating_add(room as usize))?;
    let memory = caller.data().memory.ok_or(Stopped::Address)?;
    let (memory, visit) = memory.data_and_store_mut(&mut caller);
    let request = memory.get(at as usize..).and_then(|rest| rest.get(..length as usize));
    let host = visit.lent.host().ok_or(Stopped::Refused)?;
    let reply = host.ask(name, request.ok_or(Stopped::Address)?).map_err(|_| Stopped::Refused)?;
    let place = memory.get_mut(into as usize..).and_then(|rest| rest.get_mut(..room as usize));
    let place = place.ok_or(Stopped::Address)?;
    place.iter_mut().zip(reply).for_each(|(into, byte)| *into = *byte);
    Ok(u32::try_from(reply.len()).unwrap_or(u32::MAX))
}

/// Returns a linker with the calls that are granted.
pub fn linker(engine: &Engine, rights: Rights) -> Called<Linker<Visit>> {
    let mut linker: Linker<Visit> = Linker::new(engine);
    let all = IMPORTS;
    linker.func_wrap(all, "here", |mut c: Caller<'_, Visit>| ask(&mut c, |h| h.here().0))?;
    linker.func_wrap(all, "origin", |mut c: Caller<'_, Visit>| ask(&mut c, |h| h.origin().0))?;
    linker.func_wrap(all, "from", |mut c: Caller<'_, Visit>| ask(&mut c, |h| h.from().0))?;
    linker.func_wrap(all, "now", |mut c: Caller<'_, Visit>| ask(&mut c, |h| h.now()))?;
    linker.func_wrap(all, "hops", |mut c: Caller<'_, Visit>| ask(&mut c, |h| u64::from(h.hops())))?;
    linker.func_wrap(all, "next", |mut c: Caller<'_, Visit>, place: u64| {
        ask(&mut c, |h| h.next(Place(place)).0)
    })?;
    linker.func_wrap(all, "find", |mut c: Caller<'_, Visit>, name: u64| ask(&mut c, |h| h.find(name)))?;
    linker.func_wrap(all, "neighbours", neighbours)?;
    if rights.send {
        let send = |mut c: Caller<'_, Visit>, remote: u32, function: u32, at, length, place, parts| {
            let place = Place(place);
            let to = if remote == 1 { Target::Remote(place) } else { Target::Neighbour(place) };
            // No program has this many functions, so the next node finds no such function, either.
            let function = u8::try_from(function).unwrap_or(u8::MAX);
            let parts = Parts::thousandths(parts);
            with_bytes(&mut c, (at, length), |h, bytes| h.send(function, bytes, to, parts))
        };
        linker.func_wrap(all, "send", send)?;
    }
    if rights.deliver {
        linker.func_wrap(all, "deliver", |mut c: Caller<'_, Visit>, at: u32, length: u32| {
            with_bytes(&mut c, (at, length), |h, bytes| h.deliver(bytes))
        })?;
    }
    if rights.leave {
        linker.func_wrap(all, "leave", |mut c: Caller<'_, Visit>, name: u64, value: i64, seconds: i64| {
            let seconds = u64::try_from(seconds).unwrap_or(0);
            ask(&mut c, |h| h.leave(name, value, seconds))?.map_err(|_| Stopped::Refused.into())
        })?;
    }
    if rights.service {
        linker.func_wrap(all, "service", |mut c: Caller<'_, Visit>, name: u64, argument: i64| {
            ask(&mut c, |h| h.service(name, argument))?.map_err(|_| Stopped::Refused.into())
        })?;
        linker.func_wrap(all, "ask", question)?;
    }
    Ok(linker)
}
