//! The credentials of a node as certificates: chains of Biscuit, whose holder signed the static key.

use crate::{address, clock};
use flame_active_link::{
    Cause, Certificates, Identity, Limit, Links, Own, Peer, Presented, Received, Role, Time, Wrong,
    public_key,
};
use flame_capsule::{Limits, Payer, Place, hash_of};
use flame_trust::{
    Answer, Challenge, Credential, Denied, Field, Mint, Narrow, Policy, PublicKey, SESSION, Secret,
};

/// A node's policy.
struct Judge(Policy);

/// Returns the statement that a holder signs: this static key is mine, for links.
fn statement(key: &[u8; 32]) -> Challenge {
    Challenge::on_channel(key, b"flame active link 1")
}

impl Certificates for Judge {
    fn verify(&self, presented: &Presented<'_>, now: u64) -> Result<Peer, Wrong> {
        let text = std::str::from_utf8(presented.chain).map_err(|_| Wrong::Untrusted)?;
        let credential = Credential::parse(text).map_err(|_| Wrong::Untrusted)?;
        let (signature, key) = presented.proof.split_first_chunk().ok_or(Wrong::NotHolder)?;
        let key = std::str::from_utf8(key).map_err(|_| Wrong::NotHolder)?;
        let key = PublicKey::parse(key).map_err(|_| Wrong::NotHolder)?;
        let answer = Answer { key, signature: *signature };
        let identified = self.0.identify(&credential, (&statement(presented.key), &answer), now / 1000);
        let identity = identified.map_err(|denied| match denied {
            Denied::Expired { .. } | Denied::Early { .. } => Wrong::Expired,
            Denied::Revoked { .. } => Wrong::Revoked,
            Denied::Possession { .. } | Denied::HandedOn { .. } => Wrong::NotHolder,
            _ => Wrong::Untrusted,
        })?;
        let digest = hash_of(format!("{}\0{}", identity.root, identity.principal).as_bytes());
        let payer = Payer(digest.0[..16].try_into().unwrap());
        let (place, role, share) = (Place(1), Role::Host, Limits::default());
        let until = identity.expires.saturating_mul(1000);
        Ok(Peer { payer, place, role, until, share, chain: presented.digest() })
    }
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

    fn end(&self, number: u8, credential: &Credential, holder: &Secret, key_of: u8) -> Links<Judge> {
        let answer = statement(&public_key(&[key_of; 32])).answer(holder, credential, &SESSION);
        let proof = [&answer.signature[..], answer.key.to_string().as_bytes()].concat();
        let identity = Identity { chain: credential.text().into_bytes(), proof, attestation: Vec::new() };
        let own = Own { key: [number; 32], identity };
        let mut rng = fastrand::Rng::with_seed(number.into());
        let entropy = Box::new(move |bytes: &mut [u8]| rng.fill(bytes));
        let judge = Judge(Policy::parse(self.policy.as_bytes()).unwrap());
        Links::new(own, judge, Limit::default(), entropy, Time::begin(0, clock(0))).unwrap()
    }

    /// Returns why a node with a credential gets no link, if it gets none.
    fn refused(&self, credential: &Credential, holder: &Secret, key_of: u8, revoked: &str) -> Option<Cause> {
        let alice = Secret::generate();
        let good = self.mint(&self.root, &alice, "2030-01-01T00:00:00Z");
        let mut a = self.end(1, credential, holder, key_of);
        let mut b = self.end(2, &good, &alice, 2);
        let judge = b.certificates();
        judge.0 = judge.0.with_revocations(revoked).unwrap();
        let mut next = a.connect(address(2), clock(0)).unwrap().unwrap();
        for _ in 0..2 {
            for (to, from) in [(&mut b, address(1)), (&mut a, address(2))] {
                match to.receive(from, &mut next, clock(0)) {
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
    assert_eq!(world.refused(&good, &alice, 1, ""), None);
    // Handed on, and narrowed by its holder.
    let bob = Secret::generate();
    let narrow =
        Narrow { principal: Some("bob".to_owned()), holder: Some(bob.public()), ..Narrow::default() };
    let handed_on = good.narrow(&narrow, Some(&alice)).unwrap();
    assert_eq!(world.refused(&handed_on, &bob, 1, ""), None);
    assert_eq!(world.refused(&handed_on, &alice, 1, ""), Some(Cause::NotHolder));
    // Stale, foreign, stolen, signed for another key, revoked.
    let stale = world.mint(&world.root, &alice, "2025-01-01T00:00:00Z");
    assert_eq!(world.refused(&stale, &alice, 1, ""), Some(Cause::Expired));
    let foreign = world.mint(&Secret::generate(), &alice, "2030-01-01T00:00:00Z");
    assert_eq!(world.refused(&foreign, &alice, 1, ""), Some(Cause::Untrusted));
    assert_eq!(world.refused(&good, &bob, 1, ""), Some(Cause::NotHolder));
    assert_eq!(world.refused(&good, &alice, 7, ""), Some(Cause::NotHolder));
    let revoked = format!("key {}\n", alice.public());
    assert_eq!(world.refused(&good, &alice, 1, &revoked), Some(Cause::Revoked));
}
