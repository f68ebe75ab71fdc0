//! What a run keeps beyond its routers, which replace one another.

use super::account::Account;
use flame_base::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub struct Past {
    failed: AtomicBool,
    /// The accounts of elements that no element continues, by name.
    accounts: Mutex<BTreeMap<String, Account>>,
}

impl Past {
    /// Notes that the run has failed, although it continues.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Keeps the account of an element. Accounts of elements with one name are added up.
    pub fn keep(&self, name: &str, account: Account) {
        let mut accounts = lock(&self.accounts);
        let kept = accounts.entry(name.to_owned()).or_default();
        kept.taken += account.taken;
        kept.made += account.made;
        kept.given += account.given;
        kept.held += account.held;
        for (cause, count) in account.dropped {
            *kept.dropped.entry(cause).or_default() += count;
        }
    }

    /// Returns the accounts as text: a line `NAME KEY NUMBER` for each number.
    pub fn text(&self) -> String {
        let accounts = lock(&self.accounts);
        let lines = accounts.iter().flat_map(|(name, account)| {
            account.lines().lines().map(|line| format!("{name} {line}\n")).collect::<Vec<_>>()
        });
        lines.collect()
    }
}
