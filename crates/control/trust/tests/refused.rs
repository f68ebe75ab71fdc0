//! Tests of refusals and their messages. Each case changes one thing in a world in which everything is valid.

#[path = "cases/more.rs"]
mod more;

use crate::common::{HASH, MANIFEST, NOW, World, narrow};
use flame_trust::{
    Answer, Challenge, Credential, Field, GrantRequest, Mint, Narrow, Policy, PublicKey, Revoked, Secret,
};

/// A case: its name, a part of the expected error, and its run.
type Case = (&'static str, &'static str, fn() -> Result<(), String>);

fn text<E: std::fmt::Display>(e: E) -> String {
    e.to_string()
}

fn granted(world: &World, credential: &Credential) -> Result<(), String> {
    world.grant(credential).map(|_| ())
}

/// Requests a grant with a good credential whose text was changed.
fn tampered(change: impl FnOnce(String) -> String) -> Result<(), String> {
    let world = World::new();
    let good = world.mint(&[("select", "port 53")]);
    world.grant(&good).expect("all is well before");
    granted(&world, &Credential::parse(&change(good.text())).map_err(text)?)
}

/// Requests a grant with a credential that has these fields.
fn fields(fields: &[(&str, &str)]) -> Result<(), String> {
    let world = World::new();
    granted(&world, &world.try_mint(fields)?)
}

/// Requests a grant with a credential of this Datalog, created by another tool.
fn foreign(datalog: &str) -> Result<(), String> {
    let world = World::new();
    let key = biscuit(&world.root);
    let code = format!("principal(\"alice\"); format(2); role(\"researcher\"); code(\"any\"); {datalog}");
    let token = biscuit_auth::Biscuit::builder().code(code).map_err(text)?.build(&key).map_err(text)?;
    granted(&world, &Credential::parse(&token.to_base64().map_err(text)?).map_err(text)?)
}

/// Requests a grant with a good credential and an appended block of this Datalog, created by another tool.
fn appended(datalog: &str) -> Result<(), String> {
    let world = World::new();
    let token = biscuit_auth::UnverifiedBiscuit::from_base64(world.mint(&[]).text()).map_err(text)?;
    let block = biscuit_auth::BlockBuilder::new().code(datalog).map_err(text)?;
    let token = token.append(block).map_err(text)?;
    granted(&world, &Credential::parse(&token.to_base64().map_err(text)?).map_err(text)?)
}

/// Requests a grant with a check of `true` under `times` operations, which no text could hold.
fn expression(of: biscuit_auth::builder::Unary, times: usize) -> Result<(), String> {
    use biscuit_auth::builder::{CheckKind, Expression, Op, Predicate, Rule, Term};
    let mut ops = vec![Op::Value(Term::Bool(true))];
    ops.extend(std::iter::repeat_n(Op::Unary(of), times));
    let head = Predicate::new("query".to_owned(), Vec::<Term>::new());
    let rule = Rule::new(head, Vec::<Predicate>::new(), vec![Expression { ops }], vec![]);
    let check = biscuit_auth::builder::Check { queries: vec![rule], kind: CheckKind::One };
    let world = World::new();
    let block = biscuit_auth::BlockBuilder::new().check(check).map_err(text)?;
    let token = biscuit_auth::UnverifiedBiscuit::from_base64(world.mint(&[]).text()).map_err(text)?;
    granted(
        &world,
        &Credential::parse(&token.append(block).map_err(text)?.to_base64().map_err(text)?).map_err(text)?,
    )
}

fn biscuit(secret: &Secret) -> biscuit_auth::KeyPair {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    secret.write_new(&path).unwrap();
    biscuit_auth::KeyPair::from_private_key_pem(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Parses a policy with these lines at its end.
fn policy(more: &str) -> Result<(), String> {
    let world = World { node: more.to_owned(), ..World::new() };
    Policy::parse(world.policy_text().as_bytes()).map(|_| ()).map_err(text)
}

/// Parses a policy in which a text was replaced.
fn policy_with(old: &str, new: &str) -> Result<(), String> {
    let text_before = World::new().policy_text();
    assert!(text_before.contains(old));
    Policy::parse(text_before.replacen(old, new, 1).as_bytes()).map(|_| ()).map_err(text)
}

fn manifest(old: &str, new: &str) -> Result<(), String> {
    let world = World { manifest: MANIFEST.replacen(old, new, 1), ..World::new() };
    granted(&world, &world.mint(&[]))
}

/// Returns Alice's credential, bound to her key.
fn bound(world: &World) -> Credential {
    let mut narrow = narrow(&[("code", "any")]).unwrap();
    narrow.holder = Some(world.alice.public());
    let mint = Mint { principal: "alice".to_owned(), role: "researcher".to_owned(), narrow };
    Credential::mint(&world.root, &mint).unwrap()
}

fn minted(principal: &str, role: &str, by: fn(&World) -> &Secret) -> Result<(), String> {
    let world = World::new();
    let narrow = narrow(&[("code", "any")])?;
    let mint = Mint { principal: principal.to_owned(), role: role.to_owned(), narrow };
    granted(&world, &Credential::mint(by(&world), &mint).map_err(text)?)
}

/// Requests a grant with a changed answer to a challenge.
fn answered(change: fn(&World, &Credential, &Challenge) -> (Challenge, Answer)) -> Result<(), String> {
    let world = World::new();
    let credential = bound(&world);
    let (module, challenge) = (world.module_request()?, Challenge::new().unwrap());
    let (challenge, answer) = change(&world, &credential, &challenge);
    let request = GrantRequest {
        credential: Some(&credential),
        module: &module,
        place: &crate::common::eth0(),
        now: NOW,
        possession: Some((&challenge, &answer)),
    };
    world.policy()?.grant(&request).map(|_| ()).map_err(text)
}

fn revoked(line: fn(&World, &Credential) -> String) -> Result<(), String> {
    let world = World::new();
    let credential = world.mint(&[]).narrow(&narrow(&[("select", "tcp")])?, None).map_err(text)?;
    granted(&world, &credential).expect("all is well before");
    let mut policy = world.policy()?;
    policy.revoked = Revoked::parse(&line(&world, &credential)).map_err(|(n, l)| format!("line {n}: {l}"))?;
    let module = world.module_request()?;
    let request = GrantRequest {
        credential: Some(&credential),
        module: &module,
        place: &crate::common::eth0(),
        now: NOW,
        possession: None,
    };
    policy.grant(&request).map(|_| ()).map_err(text)
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    // Texts that are not credentials.
    ("empty", "credential: ", || tampered(|_| String::new())),
    ("not base64", "credential: ", || tampered(|_| "§§§".to_owned())),
    ("another thing in base64", "credential: ", || tampered(|_| "aGVsbG8=".to_owned())),
    ("cut short", "credential: ", || tampered(|t| t[..t.len() / 2].to_owned())),
    ("cut short by a block", "credential: ", || tampered(|t| t[..t.len() - 8].to_owned())),
    ("oversized", "at most 65536", || tampered(|t| t.repeat(200))),
    ("something behind it", "credential: ", || tampered(|t| t + "AAAA")),
    // Forgery.
    ("a changed letter in the middle", "", || tampered(|t| {
        let mut bytes = t.into_bytes();
        bytes[40] = if bytes[40] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).unwrap()
    })),
    ("signed by nobody's key", "not signed by any of this node's roots (guest, operator)", || minted("alice", "researcher", |w| &w.alice)),
    ("a cosigner is no root", "not signed by any of this node's roots", || minted("alice", "researcher", |w| &w.privacy)),
    ("blocks of two credentials", "", || {
        let world = World::new();
        let one = world.mint(&[]).narrow(&narrow(&[("select", "tcp")])?, None).map_err(text)?;
        let text = one.text();
        granted(&world, &Credential::parse(&text.replacen(&text[200..260], &world.mint(&[]).text()[200..260], 1)).map_err(|e| e.to_string())?)
    }),
    ("a role that the root may not give", "guest may not give the role \"researcher\"", || minted("alice", "researcher", |w| &w.other)),
    ("a role that is unknown", "which has reader, researcher", || minted("alice", "king", |w| &w.root)),
    ("a role with a missing second signature", "needs a second signature by privacy", || minted("alice", "reader", |w| &w.root)),
    ("a second signature by another key", "needs a second signature by privacy", || {
        let world = World::new();
        let mint = Mint { principal: "a".into(), role: "reader".into(), narrow: narrow(&[("code", "any")])? };
        let credential = Credential::mint(&world.root, &mint).map_err(text)?;
        granted(&world, &credential.cosign(&world.alice, "privacy", &Narrow::default()).map_err(text)?)
    }),
    ("a second signature for something else", "needs a second signature by privacy", || {
        let world = World::new();
        let mint = Mint { principal: "a".into(), role: "reader".into(), narrow: narrow(&[("code", "any")])? };
        let credential = Credential::mint(&world.root, &mint).map_err(text)?;
        granted(&world, &credential.cosign(&world.privacy, "safety", &Narrow::default()).map_err(text)?)
    }),
    ("approved by whoever", "needs a second signature by privacy", || {
        let world = World::new();
        let mint = Mint { principal: "a".into(), role: "reader".into(), narrow: narrow(&[("code", "any")])? };
        let token = biscuit_auth::UnverifiedBiscuit::from_base64(Credential::mint(&world.root, &mint).map_err(text)?.text()).map_err(text)?;
        let token = token.append(biscuit_auth::BlockBuilder::new().code("approved(\"privacy\")").map_err(text)?).map_err(text)?;
        granted(&world, &Credential::parse(&token.to_base64().map_err(text)?).map_err(text)?)
    }),
    // Time and place.
    ("expired", "expired: it is 2027-01-15T08:00:00Z, and credential, block 0 (the root's) is valid until 2027-01-15T08:00:00Z", || fields(&[("expires", "2027-01-15T08:00:00Z")])),
    ("expired by a narrower", "block 1 is valid until", || {
        let world = World::new();
        granted(&world, &world.mint(&[]).narrow(&narrow(&[("expires", "2026-01-01T00:00:00Z")])?, None).map_err(text)?)
    }),
    ("not yet valid", "too early", || fields(&[("not_before", "2027-01-15T08:00:01Z")])),
    ("extended by a narrower", "block 0 (the root's) is valid until", || {
        let world = World::new();
        let root = world.mint(&[("expires", "2026-01-01T00:00:00Z")]);
        granted(&world, &root.narrow(&narrow(&[("expires", "2099-01-01T00:00:00Z")])?, None).map_err(text)?)
    }),
    ("for another node", "not for this node: here it is \"tap1\"", || fields(&[("node", "tap2, tap3")])),
    ("for another interface", "not for this interface: here it is \"eth0\"", || fields(&[("interface", "file")])),
    ("for no interface that both name", "names none", || {
        let world = World::new();
        granted(&world, &world.mint(&[("interface", "eth0")]).narrow(&narrow(&[("interface", "eth1")])?, None).map_err(text)?)
    }),
    // Code.
    ("a module swapped under its hash", "not for this module (sha256:0707", || fields(&[("code", "sha256:0000000000000000000000000000000000000000000000000000000000000001")])),
    ("a module that is not signed", "not signed", || fields(&[("code", "ed25519/1055c750b1a1505937af1537c626ba3263995c33a64758aaafb1275b0312e284")])),
    ("a module signed by another", "signed by ed25519/", || {
        let mut world = World::new();
        world.signers = vec![world.alice.public()];
        granted(&world, &world.mint(&[("code", &world.bob.public().to_string())]))
    }),
    ("code that a narrower widens", "block 0 (the root's) names sha256:", || {
        let world = World::new();
        let root = world.mint(&[("code", &flame_trust::hash_text(&[1; 32]))]);
        granted(&world, &root.narrow(&narrow(&[("code", "any")])?, None).map_err(text)?)
    }),
    // Holders.
    ("nobody shows the holder's key", "show the key (--identity FILE)", || { let w = World::new(); let c = bound(&w); granted(&w, &c) }),
    ("another holder's key", "another key was shown", || { let w = World::new(); let c = bound(&w); w.grant_as(&c, Some(&w.bob)).map(|_| ()) }),
    ("an answer to another challenge", "made for something else", || answered(|w, c, _| (Challenge::new().unwrap(), Challenge::new().unwrap().answer(&w.alice, c, &HASH)))),
    ("an answer for another module", "made for something else", || answered(|w, c, ch| (ch.clone(), ch.answer(&w.alice, c, &[8; 32])))),
    ("an answer for another credential", "made for something else", || answered(|w, _, ch| (ch.clone(), ch.answer(&w.alice, &w.mint(&[]), &HASH)))),
    ("a forged answer", "made for something else", || answered(|w, _, ch| (ch.clone(), Answer { key: w.alice.public(), signature: [1; 64] }))),
    ("handed on by who is not its holder", "only its holder can hand it on", || {
        let world = World::new();
        let to = Narrow { holder: Some(world.bob.public()), ..Narrow::default() };
        bound(&world).narrow(&to, Some(&world.bob)).map(|_| ()).map_err(text)
    }),
    ("handed on with another tool", "it names a new holder, but the holder so far", || {
        let world = World::new();
        let token = biscuit_auth::UnverifiedBiscuit::from_base64(bound(&world).text()).map_err(text)?;
        let block = biscuit_auth::BlockBuilder::new().code(format!("holder(\"{}\")", world.bob.public())).map_err(text)?;
        let stolen = Credential::parse(&token.append(block).map_err(text)?.to_base64().map_err(text)?).map_err(text)?;
        world.grant_as(&stolen, Some(&world.bob)).map(|_| ())
    }),
    // Revocation.
    ("revoked by its last block", "revoked: block 1", || revoked(|_, c| format!("id {}", c.blocks().unwrap()[1].id))),
    ("revoked by what it was narrowed from", "revoked: block 0", || revoked(|_, c| format!("# all of alice's\nid {}  # now", c.blocks().unwrap()[0].id.to_uppercase()))),
    ("the root's key is revoked", "revoked: the key", || revoked(|w, _| format!("key {}", w.root.public()))),
    ("a list of revocations with a fault", "line 2: id xyz", || revoked(|_, _| "\nid xyz".to_owned())),
    ("a revoked key that is none", "line 1: key ed25519/12", || revoked(|_, _| "key ed25519/12".to_owned())),
    // Invalid narrowing.
    ("an unknown field", "no such field: expected select, expose", || foreign("expse(\"headers\")")),
    ("an unknown field behind", "credential, block 1: shout(\"loud\"): no such field", || appended("shout(\"loud\")")),
    ("a role from a narrower", "a role is given by the root alone", || appended("role(\"reader\")")),
    ("a field of another shape", "expected one text", || appended("memory(5)")),
    ("a field with two values", "expected one text", || appended("select(\"tcp\", \"udp\")")),
    ("a field by a rule", "rights are stated as facts", || appended("expose(\"all\") <- node($n)")),
    ("a value that is none", "expected count, none, headers, payload:N or all", || appended("expose(\"everything\")")),
    ("two principals in one block", "principal is stated twice", || foreign("principal(\"bob\")")),
    ("a name that is a path", "is no name", || minted("../root", "researcher", |w| &w.root)),
    ("the name of the operator's session", "is not the name of a principal", || minted("operator", "researcher", |w| &w.root)),
    ("the name of the node's own session", "is not the name of a principal", || minted("system", "researcher", |w| &w.root)),
    ("without code", "state the code that it is for", || {
        let world = World::new();
        let mint = Mint { principal: "a".into(), role: "researcher".into(), narrow: Narrow::default() };
        Credential::mint(&world.root, &mint).map(|_| ()).map_err(text)
    }),
    ("without a principal", "states no principal", || {
        let world = World::new();
        let token = biscuit_auth::Biscuit::builder().code("format(2); role(\"researcher\"); code(\"any\")").map_err(text)?.build(&biscuit(&world.root)).map_err(text)?;
        granted(&world, &Credential::parse(&token.to_base64().map_err(text)?).map_err(text)?)
    }),
    ("a text with a quote in it", "texts with quotes", || {
        let world = World::new();
        let fact = biscuit_auth::builder::fact("x_a", &[biscuit_auth::builder::string("q\", ")]);
        let block = biscuit_auth::BlockBuilder::new().fact(fact).map_err(text)?;
        let token = biscuit_auth::UnverifiedBiscuit::from_base64(world.mint(&[]).text()).map_err(text)?;
        granted(&world, &Credential::parse(&token.append(block).map_err(text)?.to_base64().map_err(text)?).map_err(text)?)
    }),
    ("too many blocks", "at most 16", || {
        let world = World::new();
        let mut token = biscuit_auth::UnverifiedBiscuit::from_base64(world.mint(&[]).text()).map_err(text)?;
        for _ in 0..16 {
            token = token.append(biscuit_auth::BlockBuilder::new()).map_err(text)?;
        }
        granted(&world, &Credential::parse(&token.to_base64().map_err(text)?).map_err(text)?)
    }),
    // Expensive Datalog.
    ("a check that fails", "a check fails: block 1: check if interface(\"eth1\")", || appended("check if interface(\"eth1\")")),
    ("a check on what the narrower says of itself", "a check fails: block 0", || {
        let world = World::new();
        let key = biscuit(&world.root);
        let code = "principal(\"a\"); format(2); role(\"researcher\"); code(\"any\"); check if x_trusted(true)";
        let token = biscuit_auth::Biscuit::builder().code(code).map_err(text)?.build(&key).map_err(text)?;
        let token = token.append(biscuit_auth::BlockBuilder::new().code("x_trusted(true)").map_err(text)?).map_err(text)?;
        granted(&world, &Credential::parse(&token.to_base64().map_err(text)?).map_err(text)?)
    }),
    ("a join of everything", "combinations of facts, more than", || {
        let facts: String = (0..50).map(|n| format!("x_n({n});")).collect();
        appended(&format!("{facts} check if x_n($a), x_n($b), x_n($c), x_n($d), x_n($e), $a + $b + $c + $d + $e == -1"))
    }),
    ("a rule that makes facts of facts", "combinations of facts, more than", || {
        let facts: String = (0..40).map(|n| format!("x_n({n});")).collect();
        appended(&format!("{facts} x_t($a, $b, $c) <- x_n($a), x_n($b), x_n($c)"))
    }),
    ("a rule that feeds on what it makes", "makes more than 500 facts", || {
        let facts: String = (0..30).map(|n| format!("x_n({n});")).collect();
        appended(&format!("{facts} x_p($a, $b) <- x_n($a), x_n($b)"))
    }),
    ("too many facts", "statements, at most 256", || appended(&(0..300).map(|n| format!("x_n({n});")).collect::<String>())),
    ("a large set", "elements, at most 64", || {
        let set: Vec<_> = (0..100).map(|n| n.to_string()).collect();
        appended(&format!("check if {{{}}}.contains(1)", set.join(",")))
    }),
    ("closures in closures", "closures in closures", || appended("check if [1,2].all($a -> [1,2].all($b -> $a + $b > 0))")),
    ("brackets in brackets in brackets", "brackets in more than 16 brackets", || expression(biscuit_auth::builder::Unary::Parens, 3000)),
    ("a row of signs", "! in a row are not read", || expression(biscuit_auth::builder::Unary::Negate, 3001)),
    ("a regular expression for each of many", "combinations of facts, more than", || appended("x_n(1); x_n(2); x_n(3); x_n(4); x_n(5); check if x_n($a), \"aaaa\".matches(\"(a+)+\")")),
    ("a long regular expression", "combinations of facts, more than", || appended(&format!("check if \"a\".matches(\"{}\")", "(a+b)".repeat(60)))),
    ("a regular expression with repetitions", "with { are not read", || appended("check if \"a\".matches(\"[^a]{8000}0\")")),
    ("a regular expression with repetitions in a closure", "with { are not read", || appended("check if [\"a\"].any($a -> $a.matches(\"(a{9}){9}\"))")),
    ("a regular expression from a fact", "not written as a text", || appended("x_p(\"a{8000}\"); check if x_p($a), \"a\".matches($a)")),
    ("a long text that is searched for each of many", "combinations of facts, more than", || {
        let facts: String = (0..30).map(|n| format!("x_n({n});")).collect();
        appended(&format!("{facts} check if x_n($a), x_n($b), \"{}b\".contains(\"a\") || $a == $b", "c".repeat(4000)))
    }),
    ("a long text of a fact that is searched for each of many", "combinations of facts, more than", || {
        let facts: String = (0..30).map(|n| format!("x_n({n});")).collect();
        let text = "c".repeat(4000);
        appended(&format!("{facts} x_t(\"{text}\"); check if x_n($a), x_n($b), x_t($t), $t.ends_with(\"b\") || $a == $b"))
    }),
    ("texts that grow", "combinations of facts, more than", || {
        let text = "c".repeat(2000);
        appended(&format!("x_t(\"{text}\"); check if x_t($t), ({}$t).length() > 1", "$t + ".repeat(400)))
    }),
    ("a large array for each of many", "combinations of facts, more than", || {
        let facts: String = (0..30).map(|n| format!("x_n({n});")).collect();
        let row = format!("[{}0]", "0,".repeat(60));
        let array = format!("[{}{row}]", format!("{row},").repeat(20));
        appended(&format!("{facts} check if x_n($a), x_n($b), {array}.contains($a) || $a == $b"))
    }),
    ("facts of many values", "combinations of facts, more than", || {
        let (values, names) = ((0..20).map(|n| n.to_string()), (0..20).map(|n| format!("$v{n}")));
        let (values, names): (Vec<_>, Vec<_>) = (values.collect(), names.collect());
        let wide: String = (0..4).map(|n| format!("x_a({n}, {}); ", values.join(", "))).collect();
        let many: String = (0..80).map(|n| format!("x_b({n}); ")).collect();
        foreign(&format!("{wide}{many}check if x_b($y), x_b($z), x_a($n, {})", names.join(", ")))
    }),
    ("an expression of thousands of steps", "combinations of facts, more than", || {
        let facts: String = (0..30).map(|n| format!("x_n({n});")).collect();
        appended(&format!("{facts} check if x_n($a), x_n($b), {}$a == $b", "1 + ".repeat(400)))
    }),
    ("a control in a check", "texts with", || {
        let world = World::new();
        let fact = biscuit_auth::builder::fact("x_a", &[biscuit_auth::builder::string("\u{1b}]0;hi\u{7}")]);
        let block = biscuit_auth::BlockBuilder::new().fact(fact).map_err(text)?;
        let token = biscuit_auth::UnverifiedBiscuit::from_base64(world.mint(&[]).text()).map_err(text)?;
        let credential = Credential::parse(&token.append(block).map_err(text)?.to_base64().map_err(text)?).map_err(text)?;
        // The cost is checked before signatures are verified, too.
        credential.blocks().map(|_| ()).map_err(text)
    }),
    // Fields of minted credentials.
    ("a value with a quote", "none of them a quote", || fields(&[("select", "port 53\"); expose(\"all")])),
    ("a long value", "at most 4096 characters", || fields(&[("select", &"x".repeat(5000))])),
    ("a memory of no unit", "memory = \"5 elephants\"", || fields(&[("memory", "5 elephants")])),
    ("a time of no zone", "is a date without a time", || fields(&[("expires", "2027-01-01")])),
    ("a slice that is longer than its period", "the slice must fit", || fields(&[("cpu", "2s/1s")])),
    ("a prefix of a port", "only ip has prefixes", || fields(&[("transform", "port=prefix")])),
    ("one in none", "sample = \"0\"", || fields(&[("sample", "0")])),
    ("a call that is none", "\"transmogrify\": expected records, messages, packets", || fields(&[("calls", "records,transmogrify")])),
    // Manifests.
    ("a manifest that uses what is not granted", "probe uses packets, which is not granted: policy, line 13", || manifest("[needs]", "packets = true\n[needs]")),
    ("a manifest that uses what the root left out", "block 0 (the root's) leaves it out of calls; its root could give it", || fields(&[("calls", "")])),
    ("a manifest with another exposure", "expected count, none", || manifest("headers", "x-rays")),
    ("a manifest with a filter that breaks out", "none of them a quote", || manifest("[needs]", "[needs]\nselect = 'a\"b'")),
    // Policies.
    ("a policy of another shape", "unknown field `colour`", || policy("[colour]\nred = 1")),
    ("a field that policies do not have", "policy, line 23: role x: speed: no such field", || policy("[roles.x]\nspeed = 1")),
    ("a role that leaves out what it exposes", "role x: state expose", || policy("[roles.x]\nselect = \"\"\ncalls = \"\"\ncode = \"any\"")),
    ("a role for a root that is none", "[roots] has no \"ghost\"", || policy("[roles.x]\nroots = [\"ghost\"]\nselect = \"\"\nexpose = \"all\"\ncalls = \"\"\ncode = \"any\"")),
    ("a cosigner that is none", "[cosigners] has no \"ghost\"", || policy_with("cosigned = [\"privacy\"]", "cosigned = [\"ghost\"]")),
    ("a role that never is", "not_before is not before expires", || policy_with("memory = \"64MiB\"", "not_before = \"2027-01-01T00:00:00Z\"\nexpires = \"2026-01-01T00:00:00Z\"")),
    ("two roots of one key", "has the same key", || {
        let key = Secret::generate().public();
        Policy::parse(format!("[node]\nname = \"n\"\nkey = \"k\"\n[roots]\na = \"{key}\"\nb = \"{key}\"").as_bytes()).map(|_| ()).map_err(text)
    }),
    ("a root that countersigns itself", "its second signature would add nothing", || {
        let key = Secret::generate().public();
        Policy::parse(format!("[node]\nname = \"n\"\nkey = \"k\"\n[roots]\na = \"{key}\"\n[cosigners]\nb = \"{key}\"").as_bytes()).map(|_| ()).map_err(text)
    }),
    ("a root that is no key", "policy, line 5: operator: \"secret\" is no public key", || Policy::parse(b"[node]\nname = \"n\"\nkey = \"k\"\n[roots]\noperator = \"secret\"").map(|_| ()).map_err(text)),
    ("Datalog that is none", "datalog: ", || policy("[checks]\ndatalog = 'check whether'")),
    ("Datalog of the node that costs", "combinations of facts", || policy("[checks]\ndatalog = 'check if signer($a), signer($b), signer($c), signer($d), signer($e), signer($f)'")),
    ("best effort with a signature", "best-effort: it is for those who have no credential", || policy("[best-effort]\nroots = [\"operator\"]\nselect = \"\"\nexpose = \"none\"\ncalls = \"\"\ncode = \"any\"")),
    ("a policy that is not text", "not UTF-8 at byte 1", || Policy::parse(b"a\xff").map(|_| ()).map_err(text)),
    ("a policy that is no table", "policy: ", || Policy::parse(b"[[[").map(|_| ()).map_err(text)),
    ("a policy of the node that refuses", "policy: check if interface(\"eth9\")", || {
        let world = World { node: "[checks]\ndatalog = 'check if interface(\"eth9\")'".to_owned(), ..World::new() };
        granted(&world, &world.mint(&[]))
    }),
    // Keys.
    ("a public key of another kind", "is no public key", || PublicKey::parse("secp256r1/02").map(|_| ()).map_err(text)),
    ("a key that is no point", "is no public key", || PublicKey::parse(&format!("ed25519/{}", "ff".repeat(31))).map(|_| ()).map_err(text)),
    ("a secret key that is text", "does not hold one", || Secret::from_pem("hello").map(|_| ())),
    ("a secret key that others may read", "chmod 600", || {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        Secret::generate().write_new(&path).map_err(text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        Secret::from_file(&path).map(|_| ()).map_err(text)
    }),
    ("a secret key over another", "File exists", || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        Secret::generate().write_new(&path).map_err(text)?;
        Secret::generate().write_new(&path).map_err(text)
    }),
];

#[test]
fn each_is_refused_with_its_reason() {
    let mut wrong = Vec::new();
    for (name, expected, case) in CASES.iter().chain(more::MORE) {
        match case() {
            Ok(()) => wrong.push(format!("{name}: was let through")),
            Err(found) if !found.contains(expected) => {
                wrong.push(format!("{name}: {found:?}, expected {expected:?}"))
            }
            Err(_) => {}
        }
    }
    let cases = CASES.len() + more::MORE.len();
    assert!(cases >= 150, "{cases} cases");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A refusal takes a moment at most, whatever the Datalog.
#[test]
fn nothing_hangs() {
    let start = std::time::Instant::now();
    let facts: String = (0..100).map(|n| format!("x_n({n});")).collect();
    assert!(
        appended(&format!("{facts} check if x_n($a), x_n($b), x_n($c), x_n($d), $a + $b + $c + $d == -1"))
            .is_err()
    );
    // The maximum depth of brackets.
    let deep = format!("check if {}true{}", "(".repeat(15), ")".repeat(15));
    assert_eq!(appended(&deep), Ok(()));
    // The largest accepted block.
    let most: String = (0..30).map(|n| format!("x_n({n});")).collect();
    let _ = appended(&format!("{most} check if x_n($a), x_n($b), x_n($c), $a + $b + $c == -1"));
    assert!(start.elapsed().as_secs() < 60);
}

#[test]
fn fields_have_one_name_each() {
    let names: std::collections::BTreeSet<_> = Field::ALL.iter().map(|f| f.name()).collect();
    assert_eq!(names.len(), Field::ALL.len());
    assert!(Field::ALL.iter().all(|f| Field::parse(f.name()) == Some(*f) && !f.help().is_empty()));
}

#[test]
fn checks_as_people_write_them_are_granted() {
    let hashes = |n| (0..n).map(|n| format!("\"sha256:{n:064x}\"")).collect::<Vec<_>>().join(", ");
    for check in [
        "time($t), node($n), interface($i), principal($p), hash($h), $t > 2020-01-01T00:00:00Z, $n != \"x\", \
         $i != \"x\", $p != \"x\""
            .to_owned(),
        "hash($h), principal($p), node($n), time($t), !{\"sha256:0\"}.contains($h), $t > 2020-01-01T00:00:00Z"
            .to_owned(),
        format!("hash($h), !{{{}}}.contains($h)", hashes(60)),
        format!("hash($h), ![{}].any($x -> $x == $h)", hashes(60)),
        "principal($p), $p.matches(\"^[a-z]+$\")".to_owned(),
        "claimed_name(\"flow\") or claimed_name(\"probe\")".to_owned(),
    ] {
        assert_eq!(foreign(&format!("check if {check}")), Ok(()), "{check}");
    }
}
