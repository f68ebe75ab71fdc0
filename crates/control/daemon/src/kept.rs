//! The state of one module, and how its instances begin with it.

use crate::store::states::{StateTerms, StoredStates};
use flame_worker::Keep;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The state of a module that runs.
#[derive(Clone)]
pub(crate) struct Kept {
    pub keep: Keep,
    pub terms: StateTerms,
    /// The number of the changes that were written, or `None` if what is stored is not of this state.
    pub written: Option<u64>,
    /// Whether the instances have ended, so that what is stored under the name is of others.
    pub has_ended: Arc<AtomicBool>,
}

impl Kept {
    pub fn new(keep: Keep, terms: &StateTerms, written: Option<u64>) -> Self {
        Self { keep, terms: terms.clone(), written, has_ended: Arc::default() }
    }

    /// Records that the instances have ended: this state is no longer written.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }
}

/// The state that a module has before a change.
pub(crate) enum Before {
    Running(Kept),
    Stored(StoredStates),
}

/// The way in which a changed module begins.
pub(crate) struct Beginning {
    pub kept: Option<Kept>,
    /// Whether instances that run hand their state over.
    pub is_carried: bool,
    /// Whether all instances begin empty, so that what is stored is of no use.
    pub is_empty: bool,
    pub note: Option<String>,
}
