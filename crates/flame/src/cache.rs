//! The cache of compiled code. A command works without it, too.

use crate::caller::Caller;
use crate::console::complain;
use crate::paths;
use flame_compile::Cache;
use flame_plan::CutOff;
use std::sync::Once;

/// Opens the cache of this user. If its folder cannot be used, warns once, unless `quiet`, and returns
/// `None`: modules are then compiled each time.
pub fn open(quiet: bool) -> Option<Cache> {
    static WARNED: Once = Once::new();
    match Cache::open(&paths::cache()) {
        Ok(cache) => Some(match Caller::here() {
            Caller::Through { uid } => cache.for_caller(&format!("user {uid}")),
            Caller::Operator | Caller::User => cache,
        }),
        Err(error) => {
            if !quiet {
                WARNED.call_once(|| complain!("flame: warning: running without a cache: {error}"));
            }
            None
        }
    }
}

/// Returns a function that records that a module was cut off: later runs meter it.
pub fn cut_offs(quiet: bool) -> impl Fn(&[u8; 32], CutOff) + Send + Sync + 'static {
    let cache = open(quiet);
    move |hash, cause| {
        if let Some(Err(e)) = cache.as_ref().map(|cache| cache.record_cut_off(hash, cause)) {
            complain!("flame: warning: that a module was cut off is not remembered: {e}");
        }
    }
}
