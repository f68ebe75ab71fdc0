//! Amounts of something that the node has once: bytes of requests, connections. Each holder has at most its
//! share.

use flame_base::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

#[derive(Default)]
pub struct Shares(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    total: usize,
    each: HashMap<String, usize>,
}

/// A part that is taken while this value lives.
pub struct Part {
    shares: Arc<Shares>,
    who: String,
    amount: usize,
}

impl Shares {
    /// Takes `amount` for a holder that may have `each`, of `all` for all holders. Returns nothing if that
    /// would be exceeded.
    pub fn take(self: &Arc<Self>, who: &str, amount: usize, each: usize, all: usize) -> Option<Part> {
        let mut inner = lock(&self.0);
        let mine = inner.each.get(who).copied().unwrap_or(0).checked_add(amount)?;
        let total = inner.total.checked_add(amount)?;
        if mine > each || total > all {
            return None;
        }
        inner.total = total;
        inner.each.insert(who.to_owned(), mine);
        Some(Part { shares: self.clone(), who: who.to_owned(), amount })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut inner = lock(&self.shares.0);
        inner.total -= self.amount;
        if let Some(mine) = inner.each.get_mut(&self.who) {
            *mine -= self.amount;
            if *mine == 0 {
                inner.each.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_more_than_its_share_and_what_is_given_back_is_free() {
        let shares = Arc::new(Shares::default());
        let take = |who, amount| shares.take(who, amount, 60, 100);
        let first = take("alice", 40).unwrap();
        let second = take("alice", 20).unwrap();
        assert!(take("alice", 1).is_none(), "her share");
        let third = take("bob", 40).unwrap();
        assert!(take("carol", 1).is_none(), "all of it");
        drop(first);
        assert!(take("carol", 40).is_some());
        assert!(take("alice", 40).is_some());
        drop((second, third));
        assert!(take("alice", usize::MAX).is_none());
        let inner = shares.0.lock().unwrap();
        assert!(inner.total == 0 && inner.each.is_empty(), "nothing is kept of who has nothing");
    }
}
