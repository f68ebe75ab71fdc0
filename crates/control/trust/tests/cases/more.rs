//! Attacks hidden in Datalog, false facts about the node, and unsafe files.

use super::*;
use biscuit_auth::BlockBuilder;
use biscuit_auth::builder::{Check, CheckKind, Fact, Predicate, Rule, Scope, Term};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Appends a block to a good credential. The parser would not accept its names.
fn built(block: BlockBuilder) -> Result<(), String> {
    let world = World::new();
    let token = biscuit_auth::UnverifiedBiscuit::from_base64(world.mint(&[]).text()).map_err(text)?;
    let token = token.append(block).map_err(text)?;
    granted(&world, &Credential::parse(&token.to_base64().map_err(text)?).map_err(text)?)
}

fn predicate(name: &str, terms: Vec<Term>) -> Predicate {
    Predicate::new(name.to_owned(), terms)
}

fn with_fact(name: &str, terms: Vec<Term>) -> Result<(), String> {
    let mut block = BlockBuilder::new();
    block.facts.push(Fact::new(name.to_owned(), terms));
    built(block)
}

fn with_rule(head: &str, body: &str, variable: &str) -> Result<(), String> {
    let of = |name: &str| predicate(name, vec![Term::Variable(variable.to_owned())]);
    let mut block = BlockBuilder::new();
    block.rules.push(Rule::new(of(head), vec![of(body)], vec![], vec![]));
    built(block)
}

fn with_check(name: &str) -> Result<(), String> {
    let head = predicate("query", vec![]);
    let rule = Rule::new(head, vec![predicate(name, vec![Term::Integer(1)])], vec![], vec![]);
    let mut block = BlockBuilder::new();
    block.checks.push(Check { queries: vec![rule], kind: CheckKind::Reject });
    built(block)
}

/// Evaluates a check of the node over the statements of a root.
fn under(check: &str, root: &str) -> Result<(), String> {
    let node = format!("[checks]\ndatalog = '{check}'");
    let world = World { node, ..World::new() };
    let code = format!("principal(\"alice\"); format(2); role(\"researcher\"); code(\"any\"); {root}");
    let token = biscuit_auth::Biscuit::builder()
        .code(code)
        .map_err(text)?
        .build(&biscuit(&world.root))
        .map_err(text)?;
    granted(&world, &Credential::parse(&token.to_base64().map_err(text)?).map_err(text)?)
}

/// Opens a policy in a folder, with its key and its list of revocations, after a change.
fn opened(change: fn(&Path)) -> Result<(), String> {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::new());
    let file = |name: &str| folder.path().join(name);
    Secret::generate().write_new(&file("node.key")).map_err(text)?;
    let policy = world.policy_text().replacen("[roots]", "revocations = \"revoked\"\n[roots]", 1);
    std::fs::write(file("policy.toml"), policy).unwrap();
    std::fs::write(file("revoked"), "").unwrap();
    Policy::open(&file("policy.toml")).map_err(text).expect("all is well before");
    change(folder.path());
    Policy::open(&file("policy.toml")).map(|_| ()).map_err(text)
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn instead(folder: &Path, name: &str, make: impl FnOnce(&Path, &Path)) {
    let (file, aside) = (folder.join(name), folder.join("aside"));
    std::fs::rename(&file, &aside).unwrap();
    make(&file, &aside);
}

fn of_signer(revoke: bool) -> Result<(), String> {
    let mut world = World::new();
    world.signers = vec![world.bob.public()];
    let credential = world.mint(&[("code", &world.bob.public().to_string())]);
    granted(&world, &credential).expect("all is well before");
    let mut policy = world.policy()?;
    if revoke {
        policy.revoked = Revoked::parse(&format!("key {}", world.bob.public())).unwrap();
    }
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

fn variable(name: &str) -> Vec<Term> {
    vec![Term::Variable(name.to_owned())]
}

#[rustfmt::skip]
pub const MORE: &[Case] = &[
    // Names that print as something else.
    ("a predicate that begins a comment", "\"x_a(1); /*\" is no name", || with_fact("x_a(1); /*", vec![Term::Integer(1)])),
    ("a predicate that ends a comment", "is no name", || with_fact("*/ x_a", vec![])),
    ("a rule whose head hides it", "is no name", || with_rule("x_a(1); /*", "x_b", "a")),
    ("a rule whose body hides predicates", "is no name", || with_rule("x_a", "x_b(1), x_c(2), x_d", "a")),
    ("a variable that is an expression", "is no name", || with_rule("x_a", "x_b", "a), x_b($b")),
    ("a check that hides what it asks", "is no name", || with_check("x_a(1) or x_b")),
    ("a name with a line end", "texts with quotes, backslashes, controls", || with_fact("x_a(1);\nx_b", vec![])),
    ("a name that is empty", "\"\" is no name", || with_fact("", vec![])),
    ("a name that begins with a digit", "is no name", || with_fact("1x", vec![])),
    ("a name with a dash", "is no name", || with_fact("x_-", vec![])),
    ("a name in another alphabet", "letters beyond ASCII", || with_fact("x_\u{430}", vec![])),
    ("a name as long as a value may be", "at most 4096", || foreign(&format!("x_{}(1)", "a".repeat(5000))).map_err(|e| e.replace("more than", "at most"))),
    ("a text that reorders the line", "letters beyond ASCII", || with_fact("x_a", vec![Term::Str("a\u{202e}b".into())])),
    ("a text that is an escape", "controls", || with_fact("x_a", vec![Term::Str("\u{9b}31m".into())])),
    ("a text with a null", "controls", || with_fact("x_a", vec![Term::Str("a\0b".into())])),
    ("a set with a hidden text", "texts with quotes", || with_fact("x_a", vec![Term::Set([Term::Str("\"".into())].into())])),
    ("a fact with a variable", "", || with_fact("x_a", variable("a"))),
    // Scopes wider than the root and the block itself.
    ("a block that trusts those before it", "`trusting` is not read", || built(BlockBuilder::new().scope(Scope::Previous))),
    ("a block that trusts a key", "`trusting` is not read", || built(BlockBuilder::new().scope(Scope::PublicKey(biscuit(&World::new().alice).public())))),
    ("a rule that trusts those before it", "`trusting` is not read", || appended("x_a(1) <- x_b(1) trusting previous")),
    ("a check that trusts a key", "`trusting` is not read", || appended("check if x_b(1) trusting ed25519/1055c750b1a1505937af1537c626ba3263995c33a64758aaafb1275b0312e284")),
    ("a block with a context", "a context is not read", || built(BlockBuilder::new().context("for \u{1b}[2J".into()))),
    ("a function of the host", "functions of the host are not read", || appended("check if 1.extern::f()")),
    // Size and cost.
    ("a text of 4097 letters", "more than 4096 characters", || appended(&format!("x_a(\"{}\")", "a".repeat(4097)))),
    ("values by the thousand", "more than 8192 values", || appended(&(0..200).map(|n| format!("x_a({n}, {});", vec!["1"; 50].join(","))).collect::<String>())),
    ("one text in many places", "characters of them, are not read", || {
        let long = "a".repeat(4000);
        appended(&(0..150).map(|n| format!("x_a({n}, \"{long}\", \"{long}\");")).collect::<String>())
    }),
    ("a rule that is cheap once", "combinations of facts, more than", || {
        let facts: String = (0..60).map(|n| format!("x_n({n}); ")).collect();
        appended(&format!("{facts} x_m(1) <- x_n(1); x_m($a) <- x_n($a), x_m($b)"))
    }),
    ("two rules that feed each other", "combinations of facts, more than", || appended("x_a($n) <- x_b($n), x_b($m), time($t); x_b($n) <- x_a($n), x_a($m), time($t)")),
    ("sixty rules that each cost", "combinations of facts, more than", || {
        let facts: String = (0..30).map(|n| format!("x_n({n}); ")).collect();
        let rules: String = (0..60).map(|n| format!("x_r{n}($a) <- x_n($a), x_n($b);")).collect();
        appended(&format!("{facts} {rules}"))
    }),
    // Facts of the node, stated by others.
    ("the root's interfaces as the node's", "a check fails: policy: check if interface($i)", || under("check if interface($i), $i.starts_with(\"lab0\")", "interface(\"lab0,eth0\")")),
    ("the root's interfaces word by word", "a check fails: policy: check if interface(\"lab0,eth0\")", || under("check if interface(\"lab0,eth0\")", "interface(\"lab0,eth0\")")),
    ("the root's nodes as the node's", "a check fails: policy: check if node(\"tap1,tap2\")", || under("check if node(\"tap1,tap2\")", "node(\"tap1,tap2\")")),
    ("the root's principal is the node's word", "a check fails: policy: check if principal(\"bob\")", || under("check if principal(\"bob\")", "")),
    ("a time of the root's", "expected one text", || foreign("time(2000-01-01T00:00:00Z)")),
    ("a module of the root's", "no such field", || foreign("module(\"flow\")")),
    ("a hash of the root's", "no such field", || foreign("hash(\"sha256:00\")")),
    ("a signer of the root's", "no such field", || foreign("signer(\"ed25519/00\")")),
    ("a time of a narrower's", "expected one text", || appended("time(2000-01-01T00:00:00Z)")),
    ("an interface by a rule", "rules of your own begin with x_", || appended("interface(\"eth1\") <- node($n)")),
    ("a narrower's fact for the node's check", "a check fails: policy: check if x_ok(true)", || {
        let world = World { node: "[checks]\ndatalog = 'check if x_ok(true)'".to_owned(), ..World::new() };
        let narrow = Narrow { datalog: "x_ok(true)".into(), ..Narrow::default() };
        granted(&world, &world.mint(&[]).narrow(&narrow, None).map_err(text)?)
    }),
    ("a rejection of the root's", "a check fails: block 0: reject if", || foreign("reject if interface(\"eth0\")")),
    ("a check of all that fails for one", "a check fails: block 1: check all", || appended("check all interface($i), $i == \"eth1\"")),
    ("a check on a narrower's own field", "expose(\"none\"): no such fact: expected time", || appended("expose(\"none\"); check if expose(\"none\")")),
    // Invalid values.
    ("a payload of no length", "expected count, none", || fields(&[("expose", "payload:x")])),
    ("a resolution of nothing", "resolution = \"0s\"", || fields(&[("resolution", "0s")])),
    ("a resolution of no unit", "resolution = ", || fields(&[("resolution", "1 lightyear")])),
    ("a memory beyond numbers", "memory = \"99999999999GiB\"", || fields(&[("memory", "99999999999GiB")])),
    ("a budget below nothing", "packet_budget = \"-1\"", || fields(&[("packet_budget", "-1")])),
    ("a rate in words", "records_per_second = \"many\"", || fields(&[("records_per_second", "many")])),
    ("a rate in another unit", "bytes_per_second = \"1MB\"", || fields(&[("bytes_per_second", "1MB")])),
    ("a transmission of nothing said", "transmit = \"x\"", || fields(&[("transmit", "x")])),
    ("a slice of no period", "cpu = \"10ms\"", || fields(&[("cpu", "10ms")])),
    ("a slice of a period of nothing", "the slice must fit", || fields(&[("cpu", "0s/0s")])),
    ("a buffer of nothing", "buffer = \"0\"", || fields(&[("buffer", "0")])),
    ("a priority in words", "priority = \"high\"", || fields(&[("priority", "high")])),
    ("a group below nothing", "group = \"-5\"", || fields(&[("group", "-5")])),
    ("code by another hash", "code = \"md5:00\"", || fields(&[("code", "md5:00")])),
    ("code by a short hash", "code = \"sha256:00\"", || fields(&[("code", "sha256:00")])),
    ("a node of no name", "node = \"\"", || fields(&[("node", "")])),
    ("interfaces of no name", "interface = \",\"", || fields(&[("interface", ",")])),
    ("a beginning in words", "is no time", || fields(&[("not_before", "soon")])),
    ("an action that is none", "transform = \"ip=scramble\"", || fields(&[("transform", "ip=scramble")])),
    ("a transform of no action", "transform = \"ip\"", || fields(&[("transform", "ip")])),
    ("a sample as a fraction", "sample = \"1/10\"", || fields(&[("sample", "1/10")])),
    ("a filter of two lines", "none of them a quote", || fields(&[("select", "tcp\nor udp")])),
    ("a filter with a backslash", "none of them a quote", || fields(&[("select", "tcp \\ udp")])),
    // Revocation.
    ("the holder's key is revoked", "revoked: the key", || {
        let world = World::new();
        let mut policy = world.policy()?;
        policy.revoked = Revoked::parse(&format!("key {}", world.alice.public())).unwrap();
        let (credential, module) = (bound(&world), world.module_request()?);
        let request = GrantRequest { credential: Some(&credential), module: &module, place: &crate::common::eth0(), now: NOW, possession: None };
        policy.grant(&request).map(|_| ()).map_err(text)
    }),
    ("the signer of the code is revoked", "not for this module", || of_signer(true)),
    ("a list with another word", "line 1: ban mallory", || revoked(|_, _| "ban mallory".to_owned())),
    ("a list with an id of nothing", "line 1: id ", || revoked(|_, _| "id  # nobody".to_owned())),
    ("a list that is gone", "the policy names this file, and it is not there", || opened(|f| std::fs::remove_file(f.join("revoked")).unwrap())),
    ("a list that others may write", "others may change it", || opened(|f| mode(&f.join("revoked"), 0o666))),
    ("a list that is a link", "symbolic link", || opened(|f| instead(f, "revoked", |file, aside| symlink(aside, file).unwrap()))),
    ("a list that is a folder", "no regular file", || opened(|f| instead(f, "revoked", |file, _| std::fs::create_dir(file).unwrap()))),
    // Keys.
    ("a key that is a link", "symbolic link", || opened(|f| instead(f, "node.key", |file, aside| symlink(aside, file).unwrap()))),
    ("a key that is gone", "No such file", || opened(|f| std::fs::remove_file(f.join("node.key")).unwrap())),
    ("a key that the group may read", "others may read or change it", || opened(|f| mode(&f.join("node.key"), 0o640))),
    ("a key that is a folder", "no regular file", || opened(|f| instead(f, "node.key", |file, _| std::fs::create_dir(file).unwrap()))),
    ("a key cut short", "does not hold one", || opened(|f| {
        let pem = std::fs::read_to_string(f.join("node.key")).unwrap();
        std::fs::write(f.join("node.key"), &pem[..40]).unwrap();
    })),
    ("a key where a link waits", "File exists", || {
        let folder = tempfile::tempdir().unwrap();
        symlink("/nowhere", folder.path().join("k")).unwrap();
        Secret::generate().write_new(&folder.path().join("k")).map_err(text)
    }),
    // Policies.
    ("a role that is a path", "is no name", || policy("[roles.\"../x\"]\nselect = \"\"\nexpose = \"all\"\ncalls = \"\"\ncode = \"any\"")),
    ("a node of two words", "policy, line 2: \"tap 1\" is no name", || policy_with("tap1", "tap 1")),
    ("a node with an unknown key", "unknown field `colour`", || policy_with("[roots]", "colour = 1\n[roots]")),
    ("two cosigners of one key", "has the same key", || {
        let key = Secret::generate().public();
        Policy::parse(format!("[node]\nname = \"n\"\nkey = \"k\"\n[cosigners]\na = \"{key}\"\nb = \"{key}\"").as_bytes()).map(|_| ()).map_err(text)
    }),
    ("a policy of two megabytes", "at most 1048576 are read", || Policy::parse(&vec![b'#'; 2 << 20]).map(|_| ()).map_err(text)),
    ("an exposure that is a number", "expected text, found 1.5", || policy_with("expose = \"payload:64\"", "expose = 1.5")),
    ("a node's Datalog that allows", "datalog: ", || policy("[checks]\ndatalog = 'allow if true'")),
    ("a node's Datalog of a closure in a closure", "closures in closures", || policy("[checks]\ndatalog = 'check if [1].all($a -> [1].all($b -> true))'")),
    // Tampering.
    ("two blocks exchanged", "credential, block 1: ", || {
        let world = World::new();
        let chain = world.mint(&[]).narrow(&narrow(&[("select", "tcp")])?, None).map_err(text)?;
        let chain = chain.narrow(&narrow(&[("select", "udp")])?, None).map_err(text)?;
        let text_of = |n: usize| chain.blocks().unwrap()[n].source.clone();
        assert_ne!(text_of(1), text_of(2));
        let token = biscuit_auth::UnverifiedBiscuit::from_base64(chain.text()).map_err(text)?;
        use biscuit_auth::format::schema;
        use prost::Message;
        let mut raw = schema::Biscuit::decode(&*token.to_vec().map_err(text)?).map_err(text)?;
        raw.blocks.swap(0, 1);
        let token = biscuit_auth::UnverifiedBiscuit::from(raw.encode_to_vec()).map_err(text)?;
        granted(&world, &Credential::parse(&token.to_base64().map_err(text)?).map_err(text)?)
    }),
    ("the last block taken away", "", || {
        let world = World::new();
        let chain = world.mint(&[]).narrow(&narrow(&[("select", "tcp")])?, None).map_err(text)?;
        let token = biscuit_auth::UnverifiedBiscuit::from_base64(chain.text()).map_err(text)?;
        use biscuit_auth::format::schema;
        use prost::Message;
        let mut raw = schema::Biscuit::decode(&*token.to_vec().map_err(text)?).map_err(text)?;
        raw.blocks.pop();
        let token = biscuit_auth::UnverifiedBiscuit::from(raw.encode_to_vec()).map_err(text)?;
        granted(&world, &Credential::parse(&token.to_base64().map_err(text)?).map_err(text)?)
    }),
];
