//! Connections are accepted from holders of valid credentials, and an answer is valid on one connection.

use crate::common::{NOW, World};
use flame_trust::{
    Answer, Challenge, Credential, Grant, Identity, Narrow, Operation, SESSION, Secret, Verified,
};

fn identify(
    world: &World,
    credential: &Credential,
    challenge: &Challenge,
    answer: &Answer,
) -> Result<Identity, String> {
    world.policy()?.identify(credential, (challenge, answer), world.now).map_err(|e| e.operator())
}

#[test]
fn the_holder_is_identified_and_nobody_else() {
    let world = World::new();
    let holder = world.alice.public().to_string();
    let credential = world.mint_held(&[("expires", "2027-12-31T00:00:00Z")], &world.alice);
    let challenge = Challenge::on_channel(&[1; 32], b"one");
    let answer = challenge.answer(&world.alice, &credential, &SESSION);
    let identity = identify(&world, &credential, &challenge, &answer).unwrap();
    assert_eq!((identity.principal.as_str(), identity.root), ("alice", world.root.public()), "{holder}");
    // Another key, another connection, another nonce, an answer for a module.
    for (challenge, answer) in [
        (challenge.clone(), challenge.answer(&world.bob, &credential, &SESSION)),
        (Challenge::on_channel(&[1; 32], b"two"), answer.clone()),
        (Challenge::on_channel(&[2; 32], b"one"), answer.clone()),
        (challenge.clone(), challenge.answer(&world.alice, &credential, &[7; 32])),
    ] {
        let refused = identify(&world, &credential, &challenge, &answer).unwrap_err();
        assert!(refused.contains("only the holder"), "{refused}");
    }
}

#[test]
fn a_credential_that_is_not_valid_here_identifies_nobody() {
    let mut world = World::new();
    let challenge = Challenge::on_channel(&[1; 32], b"one");
    let mut refused = |credential: &Credential, now: u64| {
        world.now = now;
        let answer = challenge.answer(&world.alice, credential, &SESSION);
        identify(&world, credential, &challenge, &answer).unwrap_err()
    };
    let minting = World::new();
    let foreign = minting.mint_held(&[], &Secret::generate());
    assert!(refused(&foreign, NOW).contains("not signed by any of this node's roots"));
    let world = World::new();
    let bearer = world.mint(&[]);
    let refused = |credential: &Credential| {
        let answer = challenge.answer(&world.alice, credential, &SESSION);
        identify(&world, credential, &challenge, &answer).unwrap_err()
    };
    assert!(refused(&bearer).contains("holder"), "{}", refused(&bearer));
    for (field, value, said) in [
        ("expires", "2020-01-01T00:00:00Z", "expired"),
        ("not_before", "2035-01-01T00:00:00Z", "too early"),
        ("node", "elsewhere", "not for this node"),
    ] {
        let credential = world.mint_held(&[(field, value)], &world.alice);
        assert!(refused(&credential).contains(said), "{field}: {}", refused(&credential));
    }
}

/// Returns a session of `holder`, whose answer was verified.
fn session(world: &World, credential: &Credential, holder: &Secret) -> Result<Verified, String> {
    let challenge = Challenge::on_channel(&[1; 32], b"one");
    let answer = challenge.answer(holder, credential, &SESSION);
    world.policy()?.present(credential, (&challenge, &answer)).map_err(|e| e.to_string())
}

/// Decides whether a session may act on the module that was granted `granted`.
fn acts(world: &World, session: &Verified, granted: &Grant) -> Result<(), String> {
    let module = world.module_request()?;
    let on = Operation { module: &module, place: &world.place, rights: &granted.rights, now: world.now };
    world.policy()?.admit_operation(session, &on).map_err(|e| e.to_string())
}

fn handed_on(by: &Credential, to: Option<&str>, holder: Option<&Secret>, secret: &Secret) -> Credential {
    let holder = holder.map(Secret::public);
    let narrow = Narrow { principal: to.map(str::to_owned), holder, ..Narrow::default() };
    by.narrow(&narrow, Some(secret)).unwrap()
}

fn checked(by: &Credential, datalog: &str) -> Credential {
    by.narrow(&Narrow { datalog: datalog.to_owned(), ..Narrow::default() }, None).unwrap()
}

#[test]
fn checks_of_a_credential_hold_for_its_sessions() {
    let mut world = World::new();
    let minted = world.mint_held(&[], &world.alice);
    let granted = world.grant_as(&minted, Some(&world.alice)).unwrap();
    let until = checked(&minted, "check if time($t), $t < 2027-02-01T00:00:00Z");
    let of_flow = checked(&minted, "check if claimed_name(\"flow\")");
    let hash = |byte: &str| format!("hash(\"sha256:{}\")", byte.repeat(32));
    let by_rule = |hash: String| checked(&minted, &format!("x_ok(true) <- {hash}; check if x_ok(true)"));
    let (by_rule, by_other) = (by_rule(hash("07")), by_rule(hash("08")));
    let admitted = |world: &World, credential: &Credential| {
        let session = session(world, credential, &world.alice).unwrap();
        let admitted = world.policy().unwrap().admit_session(&session, world.now).map_err(|e| e.to_string());
        (admitted, acts(world, &session, &granted))
    };
    assert_eq!(admitted(&world, &until), (Ok(()), Ok(())));
    // A check that names a module is for the module of each operation.
    for credential in [&of_flow, &by_other] {
        let (of_session, of_operation) = admitted(&world, credential);
        assert_eq!(of_session, Ok(()));
        assert!(of_operation.unwrap_err().contains("a check fails"));
    }
    world.manifest = crate::common::MANIFEST.replace("probe", "flow");
    assert_eq!(admitted(&world, &of_flow).1, Ok(()));
    assert_eq!(admitted(&world, &by_rule).1, Ok(()));
    // After its time it neither begins a session nor continues one.
    world.now += 40 * 86_400;
    let (of_session, of_operation) = admitted(&world, &until);
    assert!(of_session.unwrap_err().contains("a check fails") && of_operation.is_err());
    let claim = world.policy().unwrap().claim(&until, world.now).unwrap_err();
    assert!(claim.to_string().contains("a check fails"), "{claim}");
    // So it is with the policy's own checks.
    world.now -= 40 * 86_400;
    world.node = "[checks]\ndatalog = 'check if time($t), $t > 2030-01-01T00:00:00Z'".to_owned();
    assert!(admitted(&world, &minted).0.unwrap_err().contains("a check fails"));
    world.node = "[checks]\ndatalog = 'check if interface(\"eth1\")'".to_owned();
    let (of_session, of_operation) = admitted(&world, &minted);
    assert!(of_session.is_ok() && of_operation.is_err());
}

#[test]
fn a_session_acts_on_modules_whose_rights_its_credential_covers() {
    let world = World::new();
    let wide = world.mint_held(&[], &world.alice);
    let granted = world.grant_as(&wide, Some(&world.alice)).unwrap();
    for (field, value) in [
        ("expose", "count"),
        ("select", "tcp"),
        ("transform", "ip=zero"),
        ("resolution", "1s"),
        ("sample", "10"),
        ("memory", "1MiB"),
        ("records_per_second", "1"),
        ("group", "5"),
    ] {
        let narrow = wide.narrow(&crate::common::narrow(&[(field, value)]).unwrap(), None).unwrap();
        let of_narrow = session(&world, &narrow, &world.alice).unwrap();
        let refused = acts(&world, &of_narrow, &granted).unwrap_err();
        assert!(
            refused.contains("rights that this session's credential does not give"),
            "{field}: {refused}"
        );
        // The module of the narrow credential is within both.
        let less = world.grant_as(&narrow, Some(&world.alice)).unwrap();
        assert_eq!(acts(&world, &of_narrow, &less), Ok(()), "{field}");
        let of_wide = session(&world, &wide, &world.alice).unwrap();
        assert_eq!(acts(&world, &of_wide, &less), Ok(()), "{field}");
    }
    // The place, the time and the code are decided for the operation, and need not be the same for both.
    let hash = "sha256:".to_owned() + &"07".repeat(32);
    for (field, value) in
        [("expires", "2027-12-31T00:00:00Z"), ("interface", "eth0,eth1"), ("node", "tap1"), ("code", &hash)]
    {
        let narrow = wide.narrow(&crate::common::narrow(&[(field, value)]).unwrap(), None).unwrap();
        let session = session(&world, &narrow, &world.alice).unwrap();
        assert_eq!(acts(&world, &session, &granted), Ok(()), "{field}");
    }
    for (field, value) in [("interface", "eth1"), ("code", &format!("sha256:{}", "08".repeat(32)))] {
        let narrow = wide.narrow(&crate::common::narrow(&[(field, value)]).unwrap(), None).unwrap();
        let session = session(&world, &narrow, &world.alice).unwrap();
        assert!(acts(&world, &session, &granted).unwrap_err().contains("not for this"), "{field}");
    }
}

#[test]
fn principals_with_other_holders_are_others() {
    let world = World::new();
    let (alice, bob, carol) = (&world.alice, &world.bob, Secret::generate());
    let name = |credential: &Credential, holder: &Secret| {
        session(&world, credential, holder).unwrap().identity.principal
    };
    let minted = world.mint_held(&[], alice);
    assert_eq!(name(&minted, alice), "alice");
    // A root may give its principal another key.
    assert_eq!(name(&world.mint_held(&[], &carol), &carol), "alice");
    // The holder of her credential without a name of its own is another principal.
    let unnamed = handed_on(&minted, None, Some(bob), alice);
    let of_bob = handed_on(&minted, Some("bob"), Some(bob), alice);
    let called_bob = handed_on(&minted, Some("bob"), None, alice);
    let onward = handed_on(&of_bob, None, Some(&carol), bob);
    let direct = handed_on(&minted, Some("bob"), Some(&carol), alice);
    let names = [
        name(&minted, alice),
        name(&unnamed, bob),
        name(&of_bob, bob),
        name(&called_bob, alice),
        name(&onward, &carol),
        name(&direct, &carol),
    ];
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
    assert!(names[1].starts_with("alice#") && names[2].starts_with("alice/bob#"), "{names:?}");
    // The same holders by two ways are the same.
    assert_eq!(name(&handed_on(&unnamed, Some("bob"), None, bob), bob), names[2]);
}
