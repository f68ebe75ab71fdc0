//! Which functions call which.

use super::module::Module;
use std::collections::{BTreeMap, BTreeSet};

/// Functions with those that they call before them; those on circles are left out, and named.
pub fn order(module: &Module<'_>, returning: &BTreeSet<u32>) -> (Vec<u32>, Vec<Vec<String>>) {
    let imported = module.imports.len() as u32;
    // A call through a table may reach whatever has an address and its type: one more function stands for each type.
    let tables = imported + module.functions.len() as u32;
    let last = tables + module.types.len() as u32;
    let callees = |f: u32| -> Vec<u32> {
        if let Some(kind) = f.checked_sub(tables) {
            return module
                .through_tables(kind)
                .iter()
                .copied()
                .filter(|a| *a >= imported && returning.contains(a))
                .collect();
        }
        let Some(own) = module.own(f) else { return Vec::new() };
        // What does not come back ends the call.
        let calls = own.calls.iter().copied().filter(|c| *c >= imported && returning.contains(c));
        calls.chain(own.tables.iter().map(|kind| tables + kind)).collect()
    };
    let (mut waiting, mut callers) = (BTreeMap::new(), BTreeMap::<u32, Vec<u32>>::new());
    for f in imported..last {
        let all: BTreeSet<u32> = callees(f).into_iter().collect();
        waiting.insert(f, all.len());
        for callee in all {
            callers.entry(callee).or_default().push(f);
        }
    }
    let mut ready: Vec<u32> = waiting.iter().filter(|(_, n)| **n == 0).map(|(f, _)| *f).collect();
    let mut order = Vec::new();
    while let Some(f) = ready.pop() {
        waiting.remove(&f);
        if f < tables {
            order.push(f);
        }
        for caller in callers.get(&f).into_iter().flatten() {
            if let Some(n) = waiting.get_mut(caller) {
                *n -= 1;
                if *n == 0 {
                    ready.push(*caller);
                }
            }
        }
    }
    // What is left is on a circle or calls one: follow calls until one comes again.
    let left: BTreeSet<u32> = waiting.keys().copied().collect();
    let mut cycles = Vec::new();
    let mut seen = BTreeSet::new();
    for start in &left {
        let (mut path, mut at) = (Vec::new(), *start);
        while seen.insert(at) {
            path.push(at);
            match callees(at).into_iter().find(|c| left.contains(c)) {
                Some(next) => at = next,
                None => break,
            }
        }
        if let Some(from) = path.iter().position(|f| *f == at) {
            let name =
                |f: &u32| if *f >= tables { "a call through a table".to_owned() } else { module.name(*f) };
            cycles.push(path[from..].iter().map(name).collect());
        }
    }
    // What merely calls a circle is walked after all, with the circle unknown.
    let on_circle = |f: u32| module_on_circle(f, &callees, &left);
    order.extend(left.iter().copied().filter(|f| *f < tables && !on_circle(*f)));
    (order, cycles)
}

/// Whether a function comes back to itself by calls.
fn module_on_circle(f: u32, callees: &impl Fn(u32) -> Vec<u32>, left: &BTreeSet<u32>) -> bool {
    let (mut seen, mut todo) = (BTreeSet::new(), callees(f));
    while let Some(next) = todo.pop() {
        if next == f {
            return true;
        }
        if left.contains(&next) && seen.insert(next) {
            todo.extend(callees(next));
        }
    }
    false
}

/// What functions may call, and what that may, they themselves with it; of `only` these.
pub fn reaches(module: &Module<'_>, from: &[u32], only: Option<&BTreeSet<u32>>) -> BTreeSet<u32> {
    let (mut seen, mut kinds, mut todo) = (BTreeSet::new(), BTreeSet::new(), from.to_vec());
    while let Some(f) = todo.pop() {
        if let Some(own) = module.own(f).filter(|_| only.is_none_or(|only| only.contains(&f)))
            && seen.insert(f)
        {
            todo.extend(&own.calls);
            for kind in own.tables.iter().filter(|kind| kinds.insert(**kind)) {
                todo.extend(module.through_tables(*kind));
            }
        }
    }
    seen
}

/// Names of the imports that these functions may call.
pub fn imports(module: &Module<'_>, functions: &BTreeSet<u32>) -> Vec<String> {
    let name = |f: u32| module.imports.get(f as usize).map(|(_, name)| name.clone());
    let mut called: BTreeSet<String> = BTreeSet::new();
    for own in functions.iter().filter_map(|f| module.own(*f)) {
        called.extend(own.calls.iter().filter_map(|c| name(*c)));
        for kind in &own.tables {
            called.extend(
                module
                    .through_tables(*kind)
                    .iter()
                    .take_while(|c| name(**c).is_some())
                    .filter_map(|c| name(*c)),
            );
        }
    }
    called.into_iter().collect()
}
