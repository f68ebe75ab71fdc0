//! A node that is lent to an instance for the time of one call, and machine code that is loaded.
#![allow(unsafe_code)]

use flame_capsule::Host;
use std::ptr::NonNull;
use wasmtime::{Engine, Module, Store};

/// The place in a store for the node of the call that runs.
///
/// A store's data outlives all borrows, so a pointer stands for the node. It is there only while [`lend`]
/// runs, which has the node borrowed for itself.
#[derive(Default)]
pub struct Lent(Option<NonNull<dyn Host>>);

// SAFETY: the pointer is there only during `lend`, which has the store borrowed as unique, and runs in one
// thread. A store that is moved between calls has none.
unsafe impl Send for Lent {}

impl Lent {
    /// Returns the node, while it is lent.
    pub fn host(&mut self) -> Option<&mut dyn Host> {
        // SAFETY: `lend` set the pointer from a unique borrow that lasts until it has taken it out again, and
        // the borrow that is returned here is the only one, since it borrows `self`.
        self.0.map(|mut host| unsafe { host.as_mut() })
    }
}

/// Takes the node out of the store when the call ends, also by a panic.
struct Returned<'a, T: AsMut<Lent> + 'static>(&'a mut Store<T>);

impl<T: AsMut<Lent> + 'static> Drop for Returned<'_, T> {
    fn drop(&mut self) {
        self.0.data_mut().as_mut().0 = None;
    }
}

/// Calls `run` with a store in which the node is lent.
pub fn lend<T: AsMut<Lent> + 'static, R>(
    store: &mut Store<T>,
    host: &mut dyn Host,
    run: impl FnOnce(&mut Store<T>) -> R,
) -> R {
    let host: NonNull<dyn Host + '_> = NonNull::from(host);
    // SAFETY: only the lifetime changes. `Returned` takes the pointer out before `host`'s borrow ends.
    let host = unsafe { std::mem::transmute::<NonNull<dyn Host + '_>, NonNull<dyn Host + 'static>>(host) };
    store.data_mut().as_mut().0 = Some(host);
    let returned = Returned(store);
    run(returned.0)
}

/// Loads machine code that this node compiled.
pub fn load(engine: &Engine, code: &[u8]) -> wasmtime::Result<Module> {
    // SAFETY: `Compiled::code` is by contract the output of this node's own compiler with this engine's
    // configuration. Wasmtime checks version and configuration on top.
    unsafe { Module::deserialize(engine, code) }
}
