//! The tables of a node. Each account has its own room in each, so no principal fills a table for others.

use crate::execute::Failure;
use flame_capsule::{Bound, Grant, Hash, Key, Limits, Payer, Place};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// The milliseconds for which a capsule waits for its code.
pub const HOLD: u64 = 5000;
/// The milliseconds after which code may be asked for again.
pub const ASK_AGAIN: u64 = 1000;
/// The hosts among which those that have left are looked for.
const MAX_HOSTS: usize = 1024;
/// The bytes of a value of soft state: key, name and value.
const SOFT_BYTES: u64 = 32;
/// The longest life of soft state in seconds.
pub const MAX_SECONDS: u64 = 3600;

/// A program of an account.
pub struct Cached<C> {
    pub bytes: Arc<[u8]>,
    /// It is compiled at its first evaluation: a node that only passes it on never does. Code that is refused
    /// is not compiled again.
    pub code: Option<Result<C, Failure>>,
    /// The compiler has it.
    pub is_begun: bool,
    used: u64,
}

/// The programs of all accounts.
pub struct Codes<C> {
    all: BTreeMap<(Payer, Hash), Cached<C>>,
    room: usize,
    uses: u64,
}

/// What a capsule waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Its code, which this node is asked for.
    Code(SocketAddr),
    Compiler,
    /// The reply to the question with this number.
    Reply(u64),
}

/// The reply of a module to a capsule's question.
pub struct Reply {
    pub name: u64,
    pub request: Vec<u8>,
    pub reply: Vec<u8>,
}

/// A capsule that waits.
pub struct Held {
    pub account: Payer,
    pub hash: Hash,
    pub waits: Waits,
    pub since: u64,
    pub bound: Bound,
    pub visitor: Visitor,
    pub arguments: Vec<u8>,
    /// Of a capsule that waits for a reply, the last is that one.
    pub replies: Vec<Reply>,
}

/// What a capsule is beside its code and bound.
#[derive(Clone, Copy, Debug)]
pub struct Visitor {
    pub function: u8,
    pub payer: Payer,
    pub origin: Place,
    pub place: Place,
    pub from: Place,
    pub key: Key,
    pub hash: Hash,
    pub grant: Grant,
}

/// What a sender may still have accepted in this second.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    left: Limits,
    at: u64,
    share: Limits,
}

/// The allowances of peers.
#[derive(Default)]
pub struct Allowances(BTreeMap<(Payer, Place), Allowance>);

/// What capsules under grants with a rate have had accepted in the present second, by account. All of them
/// count together, so dividing a credential into narrower ones gives no more.
#[derive(Default)]
pub struct Rates(BTreeMap<Payer, (u64, Limits)>);

/// The soft state.
pub struct Soft {
    all: BTreeMap<(Payer, Key, u64), (i64, u64)>,
    room: usize,
}

/// The account, the order in which the hash was sent, and the code.
type Debt = (Payer, u64, Arc<[u8]>);

/// Code that neighbours may ask for, in the order in which its hash was sent.
pub struct Owed {
    all: BTreeMap<(SocketAddr, Hash), Debt>,
    room: usize,
    order: u64,
}

/// The hosts to which bytes are delivered, by payer and key, with the order in which they came.
pub struct Hosts {
    all: BTreeMap<(Payer, Key), (u64, SocketAddr)>,
    room: usize,
    order: u64,
}

impl<C> Codes<C> {
    pub fn new(room: usize) -> Self {
        Self { all: BTreeMap::new(), room, uses: 0 }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn get(&mut self, account: Payer, hash: Hash) -> Option<&mut Cached<C>> {
        self.uses += 1;
        let cached = self.all.get_mut(&(account, hash))?;
        cached.used = self.uses;
        Some(cached)
    }

    /// Adds a program in place of the account's program that was not used for longest.
    pub fn add(&mut self, account: Payer, hash: Hash, bytes: &[u8]) {
        if self.get(account, hash).is_some() {
            return;
        }
        let own = || self.all.range((account, Hash([0; 32]))..=(account, Hash([255; 32])));
        let oldest = own().min_by_key(|(_, cached)| cached.used).map(|(key, _)| *key);
        if let Some(oldest) = oldest.filter(|_| own().count() >= self.room) {
            self.all.remove(&oldest);
        }
        let cached = Cached { bytes: bytes.into(), code: None, is_begun: false, used: self.uses };
        self.all.insert((account, hash), cached);
    }
}

impl Allowances {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes what a capsule may spend from the sender's share of this second, all of it or nothing. `hops` is
    /// no sum, and not taken.
    pub fn accept(&mut self, sender: (Payer, Place), share: Limits, wanted: Limits, now: u64) -> bool {
        if !self.0.contains_key(&sender) {
            // An allowance that is whole again is as good as none.
            self.0.retain(|_, allowance| allowance.refilled(now) != allowance.share);
        }
        let allowance = self.0.entry(sender).or_insert(Allowance { left: share, at: now, share });
        allowance.left = allowance.refilled(now).meet(share);
        allowance.share = share;
        allowance.at = allowance.at.max(now);
        let left = allowance.left;
        let rest =
            left.instructions.checked_sub(wanted.instructions).zip(left.bytes.checked_sub(wanted.bytes));
        let Some(((instructions, bytes), copies)) = rest.zip(left.copies.checked_sub(wanted.copies)) else {
            return false;
        };
        allowance.left = Limits { instructions, bytes, copies, ..left };
        true
    }
}

impl Rates {
    /// Takes what a capsule may spend from what its grant leaves of this second, all of it or nothing.
    pub fn accept(&mut self, account: Payer, grant: &Grant, wanted: Limits, now: u64) -> bool {
        if (grant.instructions, grant.bytes) == (u64::MAX, u64::MAX) {
            return true;
        }
        let second = now / 1000;
        let (of, spent) = self.0.entry(account).or_default();
        // A clock that was set back begins no other second.
        if *of < second {
            (*of, *spent) = (second, Limits::default());
        }
        let instructions = spent.instructions.saturating_add(wanted.instructions);
        let bytes = spent.bytes.saturating_add(wanted.bytes);
        let is_within = instructions <= grant.instructions && bytes <= grant.bytes;
        if is_within {
            *spent = Limits { instructions, bytes, ..Limits::default() };
        }
        is_within
    }
}

impl Allowance {
    fn refilled(&self, now: u64) -> Limits {
        let passed = now.saturating_sub(self.at).min(1000);
        let more = |left: u64, share: u64| {
            let gained = u64::try_from(u128::from(share) * u128::from(passed) / 1000).unwrap_or(share);
            left.saturating_add(gained).min(share)
        };
        let copies = more(self.left.copies.into(), self.share.copies.into());
        Limits {
            hops: self.share.hops,
            instructions: more(self.left.instructions, self.share.instructions),
            bytes: more(self.left.bytes, self.share.bytes),
            copies: u32::try_from(copies).unwrap_or(self.share.copies),
        }
    }
}

impl Soft {
    pub fn new(room: usize) -> Self {
        Self { all: BTreeMap::new(), room }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn find(&self, of: (Payer, Key, u64), now: u64) -> i64 {
        self.all.get(&of).filter(|(_, until)| *until > now).map_or(0, |(value, _)| *value)
    }

    /// Leaves a value under a grant, and returns whether there was room.
    pub fn leave(
        &mut self,
        of: (Payer, Key, u64),
        grant: &Grant,
        (value, seconds): (i64, u64),
        now: u64,
    ) -> bool {
        let room = self.room.min(usize::try_from(grant.state / SOFT_BYTES).unwrap_or(usize::MAX));
        let own = (of.0, Key([0; 16]), 0)..=(of.0, Key([255; 16]), u64::MAX);
        if !self.all.contains_key(&of) && self.all.range(own.clone()).count() >= room {
            self.all.retain(|key, (_, until)| key.0 != of.0 || *until > now);
            if self.all.range(own).count() >= room {
                return false;
            }
        }
        self.all.insert(of, (value, now.saturating_add(seconds.min(MAX_SECONDS) * 1000)));
        true
    }
}

impl Owed {
    pub fn new(room: usize) -> Self {
        Self { all: BTreeMap::new(), room, order: 0 }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Remembers that the hash was sent, in place of the account's oldest.
    pub fn add(&mut self, to: SocketAddr, hash: Hash, account: Payer, bytes: &Arc<[u8]>) {
        self.order += 1;
        if self.all.insert((to, hash), (account, self.order, bytes.clone())).is_some() {
            return;
        }
        if self.all.values().filter(|(payer, ..)| *payer == account).count() > self.room {
            let own = self.all.iter().filter(|(_, (payer, ..))| *payer == account);
            if let Some(oldest) = own.min_by_key(|(_, (_, order, _))| *order).map(|(key, _)| *key) {
                self.all.remove(&oldest);
            }
        }
    }

    /// Returns what is owed, once.
    pub fn take(&mut self, to: SocketAddr, hash: Hash) -> Option<(Payer, Arc<[u8]>)> {
        self.all.remove(&(to, hash)).map(|(account, _, bytes)| (account, bytes))
    }
}

impl Hosts {
    pub fn new(room: usize) -> Self {
        Self { all: BTreeMap::new(), room, order: 0 }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Remembers that a host sent a capsule, in place of the payer's oldest. Hosts that have left are
    /// forgotten.
    pub fn add(
        &mut self,
        payer: Payer,
        key: Key,
        address: SocketAddr,
        is_linked: impl Fn(SocketAddr) -> bool,
    ) {
        self.order += 1;
        if self.all.len() >= MAX_HOSTS {
            self.all.retain(|_, (_, address)| is_linked(*address));
        }
        if self.all.insert((payer, key), (self.order, address)).is_some() {
            return;
        }
        let own = || self.all.range((payer, Key([0; 16]))..=(payer, Key([255; 16])));
        let oldest = own().min_by_key(|(_, (order, _))| *order).map(|(key, _)| *key);
        if let Some(oldest) = oldest.filter(|_| own().count() > self.room) {
            self.all.remove(&oldest);
        }
    }

    pub fn get(&self, payer: Payer, key: Key) -> Option<SocketAddr> {
        self.all.get(&(payer, key)).map(|(_, address)| *address)
    }
}
