//! Tests of grants: their contents, and that no chain of narrowing ever widens anything.

use crate::common::{HASH, World, narrow};
use flame_plan::{Action, Expose, Field as PacketField, ViewSpec};
use flame_trust::{Call, Challenge, Credential, Field, Mint, Narrow, Origin, PayerRequest, Rights, Secret};
use proptest::prelude::*;

#[test]
fn a_grant_is_the_meet_of_policy_chain_and_manifest() {
    let world = World::new();
    let root = world.mint(&[("select", "udp"), ("transform", "ip=prefix"), ("expose", "all")]);
    let chain =
        root.narrow(&narrow(&[("select", "port 53"), ("transform", "ip.src=zero")]).unwrap(), None).unwrap();
    let grant = world.grant(&chain).unwrap();
    let r = &grant.rights;
    // The manifest requests headers, the policy gives 64 bytes, the root everything.
    assert_eq!(r.expose, Expose::Headers);
    let filters: Vec<_> = r.select.iter().map(|f| f.as_str()).collect();
    assert_eq!(filters, ["ip or ip6", "udp"]);
    let shown = |view: ViewSpec| view.stages.iter().map(|s| s.filter.to_string()).collect::<Vec<_>>();
    assert_eq!(r.transforms[&PacketField::IpSrc], Action::Zero);
    assert_eq!(r.transforms[&PacketField::IpDst], Action::Prefix);
    assert_eq!((r.memory, r.calls.len()), (64 << 20, 1));
    assert!(r.calls.contains(&Call::Records));
    // The origins that decided each field.
    let of = |field| grant.explain().into_iter().find(|(f, _, _)| *f == field).unwrap();
    assert_eq!(of(Field::Transform).2, [Origin::Block(0), Origin::Block(1)]);
    assert!(matches!(of(Field::Memory).2[..], [Origin::Policy { line: 15 }]), "{:?}", of(Field::Memory));
    assert_eq!(of(Field::Expose).2.last(), Some(&Origin::Manifest));
    // A narrower's filter is evaluated on the packet as it saw it, those of policy and root on the true
    // packet.
    assert_eq!(shown(grant.view()), ["port 53"]);
    let again = chain.narrow(&narrow(&[("select", "udp")]).unwrap(), None).unwrap();
    // A narrower may repeat the root's filter. The root's stays trusted, and the repeated one is evaluated on
    // the packet as the narrower saw it.
    let again = world.grant(&again).unwrap().view();
    assert_eq!((again.select.len(), shown(again)), (2, vec!["port 53".to_owned(), "udp".to_owned()]));
    // The view has these rights, under a key of this principal alone.
    let view = grant.view();
    assert_eq!((view.select.len(), view.expose), (2, Expose::Headers));
    // A new principal has another key for pseudonyms, but the same sample.
    let of_root = world.grant(&root).unwrap().view();
    assert_eq!((&view.sample_key, &view.sample_seen), (&of_root.sample_key, &of_root.sample_seen));
    assert_eq!(view.key, world.grant(&root).unwrap().view().key);
    let handed = Narrow { principal: Some("bob".to_owned()), ..Narrow::default() };
    let handed = world.grant(&chain.narrow(&handed, None).unwrap()).unwrap();
    assert_eq!(handed.principal, "alice/bob");
    assert_ne!(view.key, handed.view().key, "the pseudonyms of two principals cannot be joined");
}

/// The payer of work on a module is known before the module is read, by nothing but its hash.
#[test]
fn work_is_paid_by_a_holder_that_proved_to_be_one() {
    let world = World::new();
    let policy = world.policy().unwrap();
    let payer = |credential: Option<&Credential>, holder: Option<&Secret>| {
        let challenge = Challenge::new().unwrap();
        let answer = holder.zip(credential).map(|(key, of)| challenge.answer(key, of, &HASH));
        let possession = answer.as_ref().map(|answer| (&challenge, answer));
        let (hash, place, now) = (&HASH, &world.place, world.now);
        policy.payer(&PayerRequest { credential, hash, place, now, possession }).map_err(|e| e.to_string())
    };
    let compile = |payer: &flame_trust::Payer| {
        payer.links.iter().map(|link| link.compilation().unwrap().to_string()).collect::<Vec<_>>()
    };
    let anyone = payer(None, None).unwrap();
    assert_eq!((anyone.principal.as_str(), compile(&anyone)), (" anyone", vec!["10s/1h".to_owned()]));
    let root = world.mint_held(&[], &world.alice);
    let alice = payer(Some(&root), Some(&world.alice)).unwrap();
    assert_eq!(compile(&alice), ["60s/1h"]);
    for other in [None, Some(&world.bob)] {
        let refused = payer(Some(&root), other).unwrap_err();
        assert!(refused.contains("only the holder of"), "{refused}");
    }
    // One to whom it is handed on is another principal of the same tenant, and pays with alice.
    let handed = Narrow {
        principal: Some("bob".to_owned()),
        holder: Some(world.bob.public()),
        ..narrow(&[("compile", "5s/2h")]).unwrap()
    };
    let handed = root.narrow(&handed, Some(&world.alice)).unwrap();
    let bob = payer(Some(&handed), Some(&world.bob)).unwrap();
    assert_eq!(
        (compile(&bob), &bob.links[0]),
        (vec!["60s/1h".to_owned(), "5s/2h".to_owned()], &alice.links[0])
    );
    assert!(bob.principal.starts_with(&format!("{}/bob#", alice.principal)), "{bob:?}");
    assert_eq!((&bob.tenant, &alice.tenant), (&alice.principal, &alice.principal));
    // What is not valid here and now pays for nothing.
    let expired = world.mint(&[("expires", "2001-01-01T00:00:00Z")]);
    let elsewhere = world.mint(&[("interface", "eth9")]);
    for (credential, said) in [(expired, "expired"), (elsewhere, "not for this interface")] {
        let refused = payer(Some(&credential), None).unwrap_err();
        assert!(refused.contains(said), "{refused}");
    }
}

/// Frames are sent by a right of their own, which alone is not enough: policy or root state what may be sent,
/// and each block narrows it.
#[test]
fn frames_are_sent_with_the_right_and_a_filter() {
    let channel = "[[channels]]\nname = \"a\"\nfilter = \"ip\"\nrate = \"1 Mbit/s\"\n";
    let manifest = format!("{}{channel}", crate::common::MANIFEST);
    let without = World { manifest: manifest.clone(), ..World::new() };
    let refused = |world: &World, credential: &Credential| world.grant(credential).unwrap_err();
    let denied = refused(&without, &without.mint(&[("send", "icmp")]));
    assert!(denied.contains("probe uses send, which is not granted: policy"), "{denied}");
    let world = World { manifest, calls: "records, send", ..World::new() };
    let denied = refused(&world, &world.mint(&[("calls", "records"), ("send", "icmp")]));
    assert!(denied.contains("credential, block 0 (the root's) leaves it out"), "{denied}");
    let send = |filter| narrow(&[("send", filter)]).unwrap();
    // A filter of a holder's own would let everything out.
    let own = world.mint(&[]).narrow(&send("len > 0"), None).unwrap();
    for credential in [world.mint(&[]), own] {
        let denied = refused(&world, &credential);
        assert!(denied.contains("no filter states what it may send: the policy or"), "{denied}");
    }
    let root = world.mint(&[("send", "icmp"), ("transmit", "4KiB")]);
    let filters = |credential: &Credential| {
        let terms = world.grant(credential).unwrap().terms();
        assert!(terms.sending.is_allowed && terms.release.transmit == 4096);
        terms.sending.filters.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(filters(&root), ["icmp"]);
    let narrowed = root.narrow(&send("src host 192.0.2.2"), None).unwrap();
    assert_eq!(filters(&narrowed), ["icmp", "src host 192.0.2.2"]);
    // A module without channels needs neither.
    assert!(!World::new().grant(&World::new().mint(&[])).is_ok_and(|g| g.terms().sending.is_allowed));
}

/// Services are called and offered by rights of their own, and policy or root state their names.
#[test]
fn services_are_called_and_offered_with_a_right_and_a_name() {
    for (table, call) in [("uses", "call"), ("services", "serve")] {
        let services = format!("[[{table}]]\nname = \"names\"\n[[{table}]]\nname = \"labels\"\n");
        let manifest = format!("{}{services}", crate::common::MANIFEST);
        let without = World { manifest: manifest.clone(), ..World::new() };
        let denied = without.grant(&without.mint(&[(call, "names,labels")])).unwrap_err();
        assert!(denied.contains(&format!("probe uses {call}, which is not granted: policy")), "{denied}");
        let world = World { manifest, calls: "records, call, serve", ..World::new() };
        let own = world.mint(&[]).narrow(&narrow(&[(call, "names,labels")]).unwrap(), None).unwrap();
        for credential in [world.mint(&[]), own] {
            let denied = world.grant(&credential).unwrap_err();
            let said = format!("uses {call}, and nothing states the names of the services");
            assert!(denied.contains(&said), "{denied}");
        }
        let root = world.mint(&[(call, "labels, names, others")]);
        let services = world.grant(&root).unwrap().terms().services;
        assert!(services.call && services.serve);
        for (credential, block) in [
            (world.mint(&[(call, "labels")]), "block 0 (the root's)"),
            (root.narrow(&narrow(&[(call, "labels")]).unwrap(), None).unwrap(), "block 1"),
        ] {
            let denied = world.grant(&credential).unwrap_err();
            let said = format!("may not {call} the service \"names\": credential, {block} names labels");
            assert!(denied.contains(&said), "{denied}");
        }
    }
    // A module without services needs neither, and has neither.
    let world = World::new();
    let terms = world.grant(&world.mint(&[])).unwrap().terms();
    assert!(!terms.services.call && !terms.services.serve);
}

/// Kept state and random numbers are rights of their own.
#[test]
fn state_and_random_numbers_are_granted() {
    let state = format!("{}[state]\nversion = 1\nmax = 64\n", crate::common::MANIFEST);
    let random = crate::common::MANIFEST.replace("[needs]\n", "[needs]\nrandom = true\n");
    for (manifest, right) in [(state, "state"), (random, "random")] {
        let without = World { manifest: manifest.clone(), ..World::new() };
        let denied = without.grant(&without.mint(&[])).unwrap_err();
        assert!(denied.contains(&format!("probe uses {right}, which is not granted: policy")), "{denied}");
        let world = World { manifest, calls: "records, state, random", ..World::new() };
        world.grant(&world.mint(&[])).unwrap();
        let narrowed = world.mint(&[]).narrow(&narrow(&[("calls", "records")]).unwrap(), None).unwrap();
        let denied = world.grant(&narrowed).unwrap_err();
        assert!(denied.contains(&format!("probe uses {right}, which is not granted")), "{denied}");
    }
}

/// Memory is shared by a right of its own, and policy or root state the names of areas to read and to write.
#[test]
fn memory_is_shared_with_a_right_and_a_name() {
    for (access, other) in [("read", "write"), ("write", "read")] {
        let area = |name: &str| format!("[[shared]]\nname = \"{name}\"\nbytes = 1\naccess = \"{access}\"\n");
        let manifest = format!("{}{}{}", crate::common::MANIFEST, area("routes"), area("hosts"));
        let without = World { manifest: manifest.clone(), ..World::new() };
        let denied = without.grant(&without.mint(&[(access, "routes,hosts")])).unwrap_err();
        assert!(denied.contains("probe uses share, which is not granted: policy"), "{denied}");
        let world = World { manifest, calls: "records, share", ..World::new() };
        let own = world.mint(&[]).narrow(&narrow(&[(access, "routes,hosts")]).unwrap(), None).unwrap();
        // A name to write gives no right to read alone, and the other way round.
        for credential in [world.mint(&[]), own, world.mint(&[(other, "routes,hosts")])] {
            let denied = world.grant(&credential).unwrap_err();
            let said = format!(
                "nothing states the names of the shared areas: the policy or the credential's \
                root has to, as {access} = \"routes\""
            );
            assert!(denied.contains(&said), "{denied}");
        }
        let root = world.mint(&[(access, "routes, hosts, others")]);
        world.grant(&root).unwrap();
        for (credential, block) in [
            (world.mint(&[(access, "hosts")]), "block 0 (the root's)"),
            (root.narrow(&narrow(&[(access, "hosts")]).unwrap(), None).unwrap(), "block 1"),
        ] {
            let denied = world.grant(&credential).unwrap_err();
            let said =
                format!("may not {access} the shared area \"routes\": credential, {block} names hosts");
            assert!(denied.contains(&said), "{denied}");
        }
        // What a block names is stated as the block has it, and not as all blocks together do.
        let none = world.mint(&[(access, "routes")]).narrow(&narrow(&[(access, "hosts")]).unwrap(), None);
        let denied = world.grant(&none.unwrap()).unwrap_err();
        let said = [
            "\"routes\": credential, block 1 names hosts",
            "\"hosts\": credential, block 0 (the root's) names routes",
        ];
        assert!(said.iter().any(|said| denied.contains(said)), "{denied}");
    }
}

/// Each filter is bounded by itself, and the filters of a whole chain are bounded together.
#[test]
fn filters_of_a_chain_are_few() {
    let world = World::new();
    let ranges = |from: usize, n: usize| {
        (0..n).map(|i| format!("portrange {}-65000", from + i)).collect::<Vec<_>>().join(" or ")
    };
    let texts: Vec<_> = (0..4).map(|n| ranges(100 * n, 40)).collect();
    let with =
        |n: usize| narrow(&texts[..n].iter().map(|t| ("select", t.as_str())).collect::<Vec<_>>()).unwrap();
    let root = world.mint(&[]);
    assert!(world.grant(&root.narrow(&with(3), None).unwrap()).is_ok());
    let many = world.grant(&root.narrow(&with(4), None).unwrap()).unwrap_err();
    assert!(many.contains("4 filters with 160 addresses and numbers"), "{many}");
    let chain = with(3).fields.into_iter().fold(root.clone(), |chain, field| {
        let one = Narrow { fields: vec![field], ..Narrow::default() };
        chain.narrow(&one, None).unwrap()
    });
    let more = narrow(&[("select", ranges(7, 9).as_str())]);
    assert!(world.grant(&chain).is_ok());
    assert!(
        world.grant(&chain.narrow(&more.unwrap(), None).unwrap()).unwrap_err().contains("too many filters")
    );
}

#[test]
fn a_credential_is_used_by_who_holds_it_and_handed_on_by_who_held_it() {
    let world = World::new();
    let mut fields = narrow(&[("code", "any")]).unwrap();
    fields.holder = Some(world.alice.public());
    let mint = Mint { principal: "alice".to_owned(), role: "researcher".to_owned(), narrow: fields };
    let alices = Credential::mint(&world.root, &mint).unwrap();
    assert!(world.grant_as(&alices, Some(&world.alice)).is_ok());
    let to = |holder: &Secret| Narrow {
        holder: Some(holder.public()),
        principal: Some("next".to_owned()),
        ..Narrow::default()
    };
    let bobs = alices.narrow(&to(&world.bob), Some(&world.alice)).unwrap();
    assert!(world.grant_as(&bobs, Some(&world.bob)).is_ok());
    let carol = Secret::generate();
    let carols = bobs.narrow(&to(&carol), Some(&world.bob)).unwrap();
    assert_eq!(world.grant_as(&carols, Some(&carol)).unwrap().principal, "alice/next/next");
    for not_carol in [&world.alice, &world.bob, &world.root] {
        assert!(world.grant_as(&carols, Some(not_carol)).unwrap_err().contains("another key was shown"));
    }
}

#[test]
fn a_second_signature_can_be_required_and_can_narrow() {
    let world = World::new();
    let fields = narrow(&[("code", "any")]).unwrap();
    let mint = Mint { principal: "alice".to_owned(), role: "reader".to_owned(), narrow: fields };
    let credential = Credential::mint(&world.root, &mint).unwrap();
    assert!(world.grant(&credential).unwrap_err().contains("needs a second signature by privacy"));
    let signed =
        credential.cosign(&world.privacy, "privacy", &narrow(&[("expose", "none")]).unwrap()).unwrap();
    assert_eq!(world.grant(&signed).unwrap().rights.expose, Expose::None);
    let narrower = signed.narrow(&narrow(&[("select", "tcp")]).unwrap(), None).unwrap();
    assert!(world.grant(&narrower).is_ok(), "narrowing keeps it");
}

#[test]
fn code_may_be_named_by_hash_or_signer() {
    let mut world = World::new();
    let hash = flame_trust::hash_text(&crate::common::HASH);
    assert!(world.grant(&world.mint(&[("code", &hash)])).is_ok());
    let by_signer = world.mint(&[("code", &world.bob.public().to_string())]);
    assert!(world.grant(&by_signer).unwrap_err().contains("not signed"));
    world.signers = vec![world.alice.public(), world.bob.public()];
    assert!(world.grant(&by_signer).is_ok());
}

#[test]
fn datalog_checks_see_what_the_node_says() {
    let world = World::new();
    let checked = |datalog: &str| {
        let narrow = Narrow { datalog: datalog.to_owned(), ..narrow(&[("code", "any")]).unwrap() };
        let mint = Mint { principal: "alice".to_owned(), role: "researcher".to_owned(), narrow };
        world.grant(&Credential::mint(&world.root, &mint).unwrap())
    };
    let good = "check if interface(\"eth0\"), node(\"tap1\"), claimed_name(\"probe\"), principal(\"alice\"); check if time($t), $t > 2026-01-01T00:00:00Z";
    assert!(checked(good).is_ok());
    let refused = checked("check if interface(\"eth1\")").unwrap_err();
    assert!(
        refused.contains("block 0: check if interface(\"eth1\"); here: ")
            && refused.contains("interface(\"eth0\")"),
        "{refused}"
    );
    // A rule and a fact of the block itself.
    assert!(checked("x_day(1); x_ok($n) <- x_day($n); check if x_ok(1)").is_ok());
}

#[test]
fn without_a_credential_there_are_packet_counts() {
    let world = World::new();
    let module = world.module_request().unwrap();
    let request = flame_trust::GrantRequest {
        credential: None,
        module: &module,
        place: &crate::common::eth0(),
        now: crate::common::NOW,
        possession: None,
    };
    let grant = world.policy().unwrap().grant(&request).unwrap();
    assert_eq!((grant.rights.expose, grant.rights.resolution_ns), (Expose::Count, 1_000_000_000));
    assert!(!grant.rights.calls.contains(&Call::Packets));
    assert!(!grant.rights.calls.contains(&Call::Log));
}

/// Texts leave the sandbox, so policy and credential must both let them out, and the operator's own modules
/// may log.
#[test]
fn a_grant_lets_texts_out_only_if_it_says_so() {
    let mut world = World::new();
    let logs = |world: &World, fields: &[(&str, &str)]| {
        world.grant(&world.mint(fields)).unwrap().terms().release.logs
    };
    assert_eq!(flame_plan::Terms::default().release.logs, flame_plan::LOGS_PER_SECOND);
    assert_eq!(logs(&world, &[]), 0, "the policy leaves it out");
    world.calls = "records, log";
    assert_eq!(logs(&world, &[]), flame_plan::LOGS_PER_SECOND);
    assert_eq!(logs(&world, &[("calls", "records")]), 0, "the credential leaves it out");
}

/// Returns a field with a valid value.
fn stated() -> impl Strategy<Value = (Field, String)> {
    let small = 1u64..50;
    let text = |s: &'static str| Just(s.to_owned());
    let action = prop_oneof![
        text("prefix"),
        text("hash"),
        text("zero"),
        (1u8..33).prop_map(|n| format!("truncate:{n}"))
    ];
    let place = prop_oneof![text("a"), text("b"), text("a,b"), text("c")];
    prop_oneof![
        prop_oneof![text("tcp"), text("port 53"), text("")].prop_map(|v| (Field::Select, v)),
        prop_oneof![text("count"), text("none"), text("headers"), text("payload:9"), text("all")]
            .prop_map(|v| (Field::Expose, v)),
        (prop_oneof![text("ip"), text("ip.src"), text("ip.dst")], action)
            .prop_map(|(f, a)| (Field::Transform, format!("{f}={a}"))),
        small.clone().prop_map(|n| (Field::Resolution, format!("{n}us"))),
        prop_oneof![text("none"), small.clone().prop_map(|n| format!("{n}s"))]
            .prop_map(|v| (Field::Ticks, v)),
        small.clone().prop_map(|n| (Field::Sample, n.to_string())),
        prop_oneof![
            text("records"),
            text("records,messages"),
            text("packets"),
            text("log,records"),
            text("send,records"),
            text("call,serve"),
            text("share"),
            text("state,random"),
            text("")
        ]
        .prop_map(|v| (Field::Calls, v)),
        prop_oneof![text("icmp"), text("udp dst port 53"), text("")].prop_map(|v| (Field::Send, v)),
        place.clone().prop_map(|v| (Field::Call, v)),
        place.clone().prop_map(|v| (Field::Serve, v)),
        place.clone().prop_map(|v| (Field::Read, v)),
        place.clone().prop_map(|v| (Field::Write, v)),
        small.clone().prop_map(|n| (Field::Memory, format!("{n}MiB"))),
        small.clone().prop_map(|n| (Field::PacketBudget, n.to_string())),
        small.clone().prop_map(|n| (Field::RecordsPerSecond, n.to_string())),
        (1u64..9, 9u64..20).prop_map(|(s, p)| (Field::Cpu, format!("{s}ms/{p}ms"))),
        (1u64..9, 9u64..20).prop_map(|(s, p)| (Field::Compile, format!("{s}s/{p}h"))),
        small.clone().prop_map(|n| (Field::Priority, n.to_string())),
        small.clone().prop_map(|n| (Field::Group, n.to_string())),
        (0u8..4).prop_map(|n| (
            Field::Code,
            if n == 0 { "any".into() } else { flame_trust::hash_text(&[n; 32]) }
        )),
        (20u64..30).prop_map(|n| (Field::Expires, format!("20{n}-01-01T00:00:00Z"))),
        place.clone().prop_map(|v| (Field::Node, v)),
        place.clone().prop_map(|v| (Field::Interface, v)),
        prop_oneof![text("send,deliver"), text("service"), text("")].prop_map(|v| (Field::Capsule, v)),
        small.clone().prop_map(|n| (Field::CapsuleInstructions, n.to_string())),
        small.clone().prop_map(|n| (Field::CapsuleBytes, format!("{n}KiB"))),
        small.clone().prop_map(|n| (Field::CapsuleCopies, n.to_string())),
        small.prop_map(|n| (Field::SoftState, n.to_string())),
        place.prop_map(|v| (Field::Ask, v)),
    ]
}

fn rights() -> impl Strategy<Value = Rights> {
    let all = prop::collection::vec(stated(), 0..8);
    all.prop_map(|all| all.iter().fold(Rights::all(), |r, (f, v)| r.meet(f.rights(v).unwrap())))
}

proptest! {
    #[test]
    fn the_meet_is_a_meet(a in rights(), b in rights(), c in rights()) {
        let meet = |a: &Rights, b: &Rights| a.clone().meet(b.clone());
        prop_assert_eq!(meet(&a, &a), a.clone());
        prop_assert_eq!(meet(&a, &b), meet(&b, &a));
        prop_assert_eq!(meet(&meet(&a, &b), &c), meet(&a, &meet(&b, &c)));
        prop_assert_eq!(meet(&a, &Rights::all()), a.clone());
        prop_assert!(meet(&a, &b).within(&a) && meet(&a, &b).within(&b));
        // The meet is monotone: narrower rights never yield more.
        if a.within(&b) {
            prop_assert!(meet(&a, &c).within(&meet(&b, &c)));
        }
    }

    /// The shown text of a field parses to the same rights, so that a grant can be written down and read
    /// back.
    #[test]
    fn a_field_shows_what_it_states((field, value) in stated()) {
        let rights = field.rights(&value).unwrap();
        if let Some(shown) = field.show(&rights) {
            prop_assert_eq!(field.rights(&shown).unwrap(), rights);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Chains of signed credentials.
    #[test]
    fn no_chain_widens(blocks in prop::collection::vec(prop::collection::vec(stated(), 0..4), 1..4)) {
        let world = World::new();
        let unplaced = |fields: &Vec<(Field, String)>| {
            // Fields that refuse a module are excluded, since they do not narrow by degrees.
            let keep = |f: &Field| !matches!(f, Field::Node | Field::Interface | Field::Expires | Field::Code | Field::Calls);
            Narrow { fields: fields.iter().filter(|(f, _)| keep(f)).cloned().collect(), ..Narrow::default() }
        };
        let mut credential = world.mint(&[]);
        let mut before = world.grant(&credential).unwrap().rights;
        for fields in &blocks {
            credential = credential.narrow(&unplaced(fields), None).unwrap();
            let after = world.grant(&credential).unwrap().rights;
            prop_assert!(after.within(&before));
            before = after;
        }
    }
}
