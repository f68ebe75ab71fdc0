//! Facts that checks use are those that somebody vouches for, and denials have two texts.

use crate::common::{World, eth0, narrow};
use flame_trust::{
    Challenge, Credential, Denied, GrantRequest, MachineOption, Mint, Narrow, Place, Policy, SESSION,
};

/// Returns the places of packets, with their names.
fn places() -> [(Place, &'static str); 4] {
    [
        (eth0(), "eth0"),
        (Place::captures(), "file"),
        (Place::all_interfaces(), "any"),
        (Place::graph(), "click"),
    ]
}

/// Decides on a module of a credential that has this check, at a place. The same check of the policy must be
/// decided alike.
fn decided(check: &str, place: &Place) -> Result<(), String> {
    let world = World { place: place.clone(), ..World::new() };
    let narrow = Narrow { datalog: check.to_owned(), ..narrow(&[("code", "any")])? };
    let mint = Mint { principal: "alice".into(), role: "researcher".into(), narrow };
    let credential = Credential::mint(&world.root, &mint).map_err(|e| e.to_string())?;
    let by_credential = world.grant(&credential).map(drop);
    let node = format!("[checks]\ndatalog = '{check}'");
    let by_policy = World { place: place.clone(), node, ..world };
    let credential = by_policy.mint(&[]);
    assert_eq!(by_policy.grant(&credential).is_ok(), by_credential.is_ok(), "{check} at {place:?}");
    by_credential
}

#[test]
fn a_check_about_one_interface_does_not_hold_for_all() {
    // The check, and the places where it holds.
    for (check, holds) in [
        ("check if interface(\"eth0\")", &["eth0"][..]),
        ("check if interface(\"file\")", &["file"]),
        ("check if interface(\"any\")", &["any"]),
        ("check if interface(\"click\")", &["click"]),
        ("check if interface(\"eth0\") or interface(\"any\")", &["eth0", "any"]),
        ("check if interface($i), $i != \"va\"", &["eth0", "file"]),
        ("check if interface($i), $i != \"eth0\"", &["file"]),
        ("check if interface($i), !$i.starts_with(\"v\")", &["eth0", "file"]),
        ("check if interface($i), [\"eth0\", \"any\"].contains($i)", &["eth0"]),
        ("check all interface($i), $i != \"va\"", &["eth0", "file"]),
        ("reject if interface(\"eth0\")", &["file"]),
        ("reject if interface(\"va\")", &["eth0", "file"]),
        ("reject if interface(\"any\")", &["eth0", "file"]),
        ("x_ok(true) <- interface($i), $i != \"va\"; check if x_ok(true)", &["eth0", "file"]),
        ("x_bad(true) <- interface(\"va\"); reject if x_bad(true)", &["eth0", "file"]),
        // A check about nothing of this holds everywhere.
        ("check if node(\"tap1\")", &["eth0", "file", "any", "click"]),
    ] {
        for (place, name) in places() {
            let found = decided(check, &place);
            assert_eq!(found.is_ok(), holds.contains(&name), "{check} at {name}: {found:?}");
        }
    }
    let refused = decided("check if interface($i), $i != \"va\"", &Place::all_interfaces()).unwrap_err();
    assert!(refused.contains("may have packets of every interface: capture one"), "{refused}");
}

#[test]
fn the_field_interface_names_one_place() {
    for (value, holds) in [("eth0", "eth0"), ("file", "file"), ("any", "any"), ("click", "click"), ("va", "")]
    {
        for (place, name) in places() {
            let world = World { place, ..World::new() };
            let found = world.grant(&world.mint(&[("interface", value)]));
            assert_eq!(found.is_ok(), name == holds, "{value} at {name}: {found:?}");
        }
    }
    for name in ["file", "any", "click"] {
        assert!(Place::interface(name).unwrap_err().contains("rename it"), "{name}");
    }
}

/// The subject of a check chooses what it claims, so no check may rest on what it does not claim.
#[test]
fn a_claim_is_named_as_one_and_excludes_nothing() {
    assert_eq!(decided("check if claimed_name(\"probe\")", &eth0()), Ok(()));
    assert!(decided("check if claimed_name(\"flow\")", &eth0()).unwrap_err().contains("a check fails"));
    let refused = |check: &str| {
        let policy = World { node: format!("[checks]\ndatalog = '{check}'"), ..World::new() };
        let of_policy = policy.policy().err().unwrap_or_else(|| panic!("{check}"));
        let own = Narrow { datalog: check.to_owned(), ..Narrow::default() };
        let of_block = policy.mint(&[]).narrow(&own, None).err().unwrap_or_else(|| panic!("{check}"));
        // The credential of another program is refused when it is read.
        let token = biscuit_auth::UnverifiedBiscuit::from_base64(policy.mint(&[]).text()).unwrap();
        let block = biscuit_auth::BlockBuilder::new().code(check).unwrap();
        let read = Credential::parse(&token.append(block).unwrap().to_base64().unwrap()).unwrap();
        let read = read.blocks().err().unwrap_or_else(|| panic!("{check}"));
        [of_policy, of_block.to_string(), read.to_string()]
    };
    for check in [
        "check if claimed_name($n), $n != \"flow\"",
        "check if claimed_name($n), [\"flow\"].contains($n)",
        "check if claimed_name($n)",
        "check if node(\"x\") or claimed_name($n), $n != \"flow\"",
        "reject if claimed_name(\"flow\")",
        "check all claimed_name($n), $n != \"flow\"",
        "x_ok(true) <- claimed_name($n), $n != \"flow\"; check if x_ok(true)",
        "x_bad(true) <- claimed_name(\"flow\"); reject if x_bad(true)",
    ] {
        for text in refused(check) {
            assert!(text.contains("a module could claim any other name"), "{check}: {text}");
        }
    }
    for text in refused("check if module(\"flow\")") {
        assert!(text.contains("module(\"flow\"): a module's name is its own claim"), "{text}");
        assert!(text.contains("hash(\"sha256:…\") or signer(\"ed25519/…\")"), "{text}");
    }
    // A fact that is misspelled would reject nothing.
    for text in refused("reject if interfce(\"va\")") {
        assert!(text.contains("no such fact: expected time, node, principal, interface"), "{text}");
    }
    let policy = World { node: "[checks]\ndatalog = 'interface(\"va\")'".to_owned(), ..World::new() };
    assert!(policy.policy().err().unwrap().contains("the node alone states interface"));
}

/// The name by which a credential is handed on is a claim of the one who hands it on.
#[test]
fn the_principal_is_the_one_whom_the_root_names() {
    let world = World::new();
    let to = |name: &str| {
        let narrow = Narrow { principal: Some(name.to_owned()), ..Narrow::default() };
        world.mint(&[]).narrow(&narrow, None).unwrap()
    };
    let check = |check: &str| World { node: format!("[checks]\ndatalog = '{check}'"), ..World::new() };
    let with_root = |check: World| World { root: copy(&world.root), ..check };
    let excludes = with_root(check("check if principal($p), $p != \"alice\""));
    let includes = with_root(check("check if principal(\"alice\")"));
    for credential in [world.mint(&[]), to("bob"), to("carol")] {
        assert!(includes.grant(&credential).is_ok());
        assert!(excludes.grant(&credential).unwrap_err().contains("a check fails"));
    }
    // Without a credential no principal is verified.
    let module = includes.module_request().unwrap();
    let place = eth0();
    let request =
        GrantRequest { credential: None, module: &module, place: &place, now: world.now, possession: None };
    assert!(includes.policy().unwrap().grant(&request).is_err());
}

/// A session is decided before a module is named, by the same principal.
#[test]
fn a_session_has_the_principal_as_well() {
    for (check, is_identified) in
        [("check if principal(\"alice\")", true), ("check if principal($p), $p != \"alice\"", false)]
    {
        let world = World { node: format!("[checks]\ndatalog = '{check}'"), ..World::new() };
        let held = Narrow { holder: Some(world.alice.public()), ..narrow(&[("code", "any")]).unwrap() };
        let mint = Mint { principal: "alice".into(), role: "researcher".into(), narrow: held };
        let credential = Credential::mint(&world.root, &mint).unwrap();
        let challenge = Challenge::new().unwrap();
        let answer = challenge.answer(&world.alice, &credential, &SESSION);
        let found = world.policy().unwrap().identify(&credential, (&challenge, &answer), world.now);
        assert_eq!(found.is_ok(), is_identified, "{check}");
    }
}

/// Only keys that have signed the code are named, and a limited number of them.
#[test]
fn signers_are_named_up_to_a_number() {
    let keys: Vec<_> = (0..9).map(|_| flame_trust::Secret::generate().public()).collect();
    for (signers, key, is_granted) in [
        (&keys[..1], &keys[0], true),
        (&keys[..8], &keys[7], true),
        (&keys[..], &keys[8], false),
        (&keys[1..], &keys[0], false),
        (&[], &keys[0], false),
    ] {
        let node = format!("[checks]\ndatalog = 'check if signer(\"{key}\")'");
        let world = World { node, signers: signers.to_vec(), ..World::new() };
        assert_eq!(world.grant(&world.mint(&[])).is_ok(), is_granted, "{} signers", signers.len());
    }
}

fn copy(secret: &flame_trust::Secret) -> flame_trust::Secret {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    secret.write_new(&path).unwrap();
    flame_trust::Secret::from_file(&path).unwrap()
}

/// Words that only the policy of [`World`] states.
const SECRETS: [&str; 6] = ["operator", "guest", "privacy", "reader", "carol", "eth9"];

#[test]
fn a_denial_repeats_nothing_of_the_policy_to_others() {
    let node = "[roles.carol]\nroots = [\"guest\"]\nselect = \"\"\nexpose = \"none\"\ncalls = \"\"\ncode = \"any\"\n\
                [checks]\ndatalog = 'check if interface(\"eth9\") or principal(\"carol\")'";
    let world = World { node: node.to_owned(), ..World::new() };
    let denied = |credential: &Credential, holder: &flame_trust::Secret| -> [Denied; 2] {
        let (policy, module, place) = (world.policy().unwrap(), world.module_request().unwrap(), eth0());
        let challenge = Challenge::new().unwrap();
        let answer = challenge.answer(holder, credential, &module.hash);
        let possession = Some((&challenge, &answer));
        let request = GrantRequest {
            credential: Some(credential),
            module: &module,
            place: &place,
            now: world.now,
            possession,
        };
        let of_session = challenge.answer(holder, credential, &SESSION);
        let session = policy.identify(credential, (&challenge, &of_session), world.now);
        // What depends on the interface is decided for each module.
        let granted = policy.grant(&request).unwrap_err();
        [session.err().unwrap_or_else(|| policy.grant(&request).unwrap_err()), granted]
    };
    let minted = |role: &str, root: &flame_trust::Secret| {
        let narrow = Narrow { holder: Some(world.alice.public()), ..narrow(&[("code", "any")]).unwrap() };
        Credential::mint(root, &Mint { principal: "alice".into(), role: role.into(), narrow }).unwrap()
    };
    let (foreign, key) = (flame_trust::Secret::generate(), &world.alice);
    // The credential, the words that its holder may learn, and those that the operator does.
    for (credential, own, full) in [
        (minted("researcher", &foreign), &[][..], &["guest", "operator"][..]),
        (minted("unknown", &world.root), &[], &["carol, reader, researcher"]),
        (minted("researcher", &world.other), &[], &["guest may not give", "the policy names operator"]),
        (minted("reader", &world.root), &["reader", "privacy"], &["privacy", "ed25519/"]),
        (minted("researcher", &world.root), &[], &["policy: check if", "eth9", "carol"]),
    ] {
        for denied in denied(&credential, key) {
            let (public, operator) = (denied.to_string(), denied.operator());
            for word in SECRETS.iter().filter(|word| !own.contains(word)) {
                // The remedy of one sentence is "ask this node's operator".
                let public = public.replace("this node's operator", "");
                assert!(!public.contains(word), "{word}: {public}");
            }
            assert!(full.iter().all(|word| operator.contains(word)), "{operator}");
            assert!(!public.contains(&world.privacy.public().to_string()), "{public}");
        }
        // Without the key, the policy's requirements stay unknown, whatever the credential is.
        for denied in denied(&credential, &world.bob) {
            let public = denied.to_string().replace("this node's operator", "");
            assert!(SECRETS.iter().all(|word| !public.contains(word)), "{public}");
        }
    }
}

#[test]
fn a_credential_of_another_format_is_refused_by_its_number() {
    let world = World::new();
    let key = biscuit_auth::KeyPair::new();
    for (stated, expected) in [
        ("", "credential, block 0: format 1; this program reads 2: mint it again"),
        ("format(1);", "format 1; this program reads 2: mint it again"),
        ("format(3);", "format 3; this program reads 2: mint it again"),
        ("format(2); format(1);", "format: expected one number, once"),
        ("format(\"2\");", "format: expected one number, once"),
    ] {
        // The number comes before all that it changes.
        let code =
            format!("{stated} principal(\"a\"); role(\"r\"); code(\"any\"); check if module(\"flow\")");
        let token = biscuit_auth::Biscuit::builder().code(code).unwrap().build(&key).unwrap();
        let read = Credential::parse(&token.to_base64().unwrap()).unwrap();
        let refused = read.blocks().unwrap_err().to_string();
        assert!(refused.contains(expected), "{stated}: {refused}");
    }
    assert!(world.mint(&[]).blocks().unwrap()[0].source.contains("format(2)"));
}

#[test]
fn options_that_act_on_the_machine_are_permitted_by_name() {
    let with = |options: &str| {
        let text = World::new().policy_text().replacen("[roots]", &format!("{options}\n[roots]"), 1);
        Policy::parse(text.as_bytes()).map_err(|e| e.to_string())
    };
    let refused = with("").unwrap().permits(MachineOption::Xdp, "--capture xdp").unwrap_err();
    assert_eq!(
        refused,
        "--capture xdp takes packets away from this machine's own stack, and the policy does not let it: options = \
         [\"xdp\"] in [node] does"
    );
    let some = with("options = [\"xdp\", \"send\"]").unwrap();
    assert_eq!(some.permits(MachineOption::Xdp, "--capture xdp"), Ok(()));
    assert_eq!(some.permits(MachineOption::Send, "--send"), Ok(()));
    assert!(some.permits(MachineOption::Promiscuous, "-i").is_err());
    let unknown = with("options = [\"dpdk\"]").err().unwrap();
    assert!(
        unknown.contains("line 4: options: \"dpdk\": no such option: expected xdp, promiscuous"),
        "{unknown}"
    );
}
