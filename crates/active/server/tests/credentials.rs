//! The credentials of a node as certificates: chains of Biscuit, whose holder signed the static key.

use flame_active_link::{Cause, Clock, Limit, Links, Received, Time};
use flame_active_server::{Judge, own};
use flame_capsule::Limits;
use flame_trust::{Credential, Field, Mint, Narrow, Policy, Secret};
use std::net::SocketAddr;

const CLOCK: Clock = Clock { wall: 1_800_000_000_000, steady: 0 };

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 4747))
}

struct World {
    root: Secret,
    policy: String,
}

impl World {
    fn new() -> Self {
        let root = Secret::generate();
        let policy = format!(
            "[node]\nname = \"n\"\nkey = \"node.key\"\n[roots]\noperator = \"{}\"\n\
             [roles.r]\nroots = [\"operator\"]\n\
             select = \"ip\"\nexpose = \"headers\"\ncalls = \"records\"\ncode = \"any\"\n",
            root.public()
        );
        Self { root, policy }
    }

    fn mint(&self, root: &Secret, holder: &Secret, expires: &str) -> Credential {
        let fields = vec![(Field::Expires, expires.to_owned()), (Field::Code, "any".to_owned())];
        let narrow = Narrow { fields, holder: Some(holder.public()), ..Narrow::default() };
        Credential::mint(root, &Mint { principal: "alice".to_owned(), role: "r".to_owned(), narrow }).unwrap()
    }

    /// Returns the links of a holder, perhaps with another key than it signed.
    fn end(&self, credential: &Credential, holder: &Secret, other: Option<[u8; 32]>) -> Links<Judge> {
        let mut own = own(credential, holder);
        own.key = other.unwrap_or(own.key);
        let entropy = Box::new(|bytes: &mut [u8]| getrandom::fill(bytes).unwrap());
        let policy = Policy::parse(self.policy.as_bytes()).unwrap();
        let judge = Judge::new(policy, "relay".to_owned(), Limits::default());
        Links::new(own, judge, Limit::default(), entropy, Time::begin(0, CLOCK)).unwrap()
    }

    /// Returns why a node with a credential gets no link, if it gets none.
    fn refused(
        &self,
        credential: &Credential,
        holder: &Secret,
        other: Option<[u8; 32]>,
        revoked: &str,
    ) -> Option<Cause> {
        let alice = Secret::generate();
        let good = self.mint(&self.root, &alice, "2030-01-01T00:00:00Z");
        let mut a = self.end(credential, holder, other);
        let mut b = self.end(&good, &alice, None);
        let policy = Policy::parse(self.policy.as_bytes()).unwrap();
        b.certificates().set(policy.with_revocations(revoked).unwrap());
        let mut next = a.connect(address(2), CLOCK).unwrap().unwrap();
        for _ in 0..2 {
            for (to, from) in [(&mut b, address(1)), (&mut a, address(2))] {
                match to.receive(from, &mut next, CLOCK) {
                    Ok(Received::Step(bytes) | Received::Begun(bytes)) => next = bytes,
                    Ok(_) => return None,
                    Err(cause) => return Some(cause),
                }
            }
        }
        panic!("the exchange has no end");
    }
}

#[test]
fn credentials_are_certificates() {
    let world = World::new();
    let alice = Secret::generate();
    let good = world.mint(&world.root, &alice, "2030-01-01T00:00:00Z");
    assert_eq!(world.refused(&good, &alice, None, ""), None);
    // Handed on, and narrowed by its holder.
    let bob = Secret::generate();
    let narrow =
        Narrow { principal: Some("bob".to_owned()), holder: Some(bob.public()), ..Narrow::default() };
    let handed_on = good.narrow(&narrow, Some(&alice)).unwrap();
    assert_eq!(world.refused(&handed_on, &bob, None, ""), None);
    assert_eq!(world.refused(&handed_on, &alice, None, ""), Some(Cause::NotHolder));
    // Stale, foreign, stolen, signed for another key, revoked.
    let stale = world.mint(&world.root, &alice, "2025-01-01T00:00:00Z");
    assert_eq!(world.refused(&stale, &alice, None, ""), Some(Cause::Expired));
    let foreign = world.mint(&Secret::generate(), &alice, "2030-01-01T00:00:00Z");
    assert_eq!(world.refused(&foreign, &alice, None, ""), Some(Cause::Untrusted));
    assert_eq!(world.refused(&good, &bob, None, ""), Some(Cause::NotHolder));
    assert_eq!(world.refused(&good, &alice, Some([7; 32]), ""), Some(Cause::NotHolder));
    // More services than travel with a capsule.
    let services = "a, b, c, d, e, f, g, h, i".to_owned();
    let wide = Narrow { fields: vec![(Field::Ask, services)], ..Narrow::default() };
    assert_eq!(world.refused(&good.narrow(&wide, None).unwrap(), &alice, None, ""), Some(Cause::Wide));
    let revoked = format!("key {}\n", alice.public());
    assert_eq!(world.refused(&good, &alice, None, &revoked), Some(Cause::Revoked));
}
