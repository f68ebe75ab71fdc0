//! The facts that a node gives to checks, each with the one who vouches for it.
//!
//! | fact | vouched for by |
//! | --- | --- |
//! | `time($t)`, `node($name)` | the node |
//! | `interface($name)` | the kernel, which has one own name for each interface; `file`, `any` and `click` |
//! | `principal($name)` | the root that signed the credential; without a credential it is missing |
//! | `hash($h)` | the bytes of the module |
//! | `signer($key)` | a signature of the module that was verified |
//! | `claimed_name($name)` | unverified: the module's manifest states it |
//!
//! The subject of a check chooses what it claims. So a claim counts only where a check names its value:
//! `check if claimed_name("flow")`. A condition that excludes values would hold for every other name, and is
//! refused. The same holds for `interface` where packets may come from any of them.

use crate::key::PublicKey;
use crate::place::Place;
use biscuit_auth::BlockBuilder;
use biscuit_auth::builder::{Check, CheckKind, Fact, Predicate, Rule, Term};

/// The prefix of facts for a block's own checks.
pub const OWN: &str = "x_";
/// Maximum number of signers that the node names to checks.
const MAX_SIGNERS: usize = 8;

/// A fact that the node gives to checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    Time,
    Node,
    Principal,
    Interface,
    Hash,
    Signer,
    ClaimedName,
}

impl Given {
    const ALL: [Self; 7] = [
        Self::Time,
        Self::Node,
        Self::Principal,
        Self::Interface,
        Self::Hash,
        Self::Signer,
        Self::ClaimedName,
    ];
    /// The facts about a module. A session has none of them.
    pub const OF_MODULE: [&str; 4] =
        [Self::Interface.name(), Self::Hash.name(), Self::Signer.name(), Self::ClaimedName.name()];

    const fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Node => "node",
            Self::Principal => "principal",
            Self::Interface => "interface",
            Self::Hash => "hash",
            Self::Signer => "signer",
            Self::ClaimedName => "claimed_name",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fact| fact.name() == name)
    }

    fn fact(self, term: Term) -> Fact {
        Fact::new(self.name().to_owned(), vec![term])
    }

    fn text(self, value: &str) -> Fact {
        self.fact(Term::Str(value.to_owned()))
    }
}

/// Returns the maximum number of facts of this name that the node gives to checks.
pub fn most(name: &str) -> u64 {
    match Given::parse(name) {
        None => 0,
        Some(Given::Signer) => MAX_SIGNERS as u64,
        Some(_) => 1,
    }
}

/// Returns the facts before a module is named. `principal` is the one whom the credential's root names.
pub fn of_session(node: &str, now: u64, principal: Option<&str>) -> BlockBuilder {
    let mut facts = BlockBuilder::new();
    facts.facts.push(Given::Time.fact(Term::Date(now)));
    facts.facts.push(Given::Node.text(node));
    facts.facts.extend(principal.map(|name| Given::Principal.text(name)));
    facts
}

/// Adds the facts about a module: its place, the hash of its bytes, its verified signers, and its claim.
pub fn add_module(facts: &mut BlockBuilder, place: &Place, hash: &str, signers: &[PublicKey], claim: &str) {
    facts.facts.push(Given::Interface.text(place.name()));
    facts.facts.push(Given::Hash.text(hash));
    let signers = signers.iter().take(MAX_SIGNERS);
    facts.facts.extend(signers.map(|key| Given::Signer.text(&key.to_string())));
    facts.facts.push(Given::ClaimedName.text(claim));
}

/// Checks that the rules and checks of a program name facts that there are, and claims only as they may.
///
/// # Errors
///
/// Returns the statement, what is wrong with it, and what to state instead.
pub fn known(program: &BlockBuilder) -> Result<(), String> {
    let stated = || program.facts.iter().map(|fact| &fact.predicate);
    let heads = || stated().chain(program.rules.iter().map(|rule| &rule.head));
    if let Some(head) = heads().find(|head| Given::parse(&head.name).is_some()) {
        return Err(format!("{head}: the node alone states {}", head.name));
    }
    for predicate in rules(program).flat_map(|rule| &rule.body) {
        let name = predicate.name.as_str();
        if name == "module" {
            return Err(format!(
                "{predicate}: a module's name is its own claim: name its code by hash(\"sha256:…\") or \
                 signer(\"ed25519/…\"), or the claim as claimed_name(\"NAME\")"
            ));
        }
        let is_own = name.starts_with(OWN) || heads().any(|head| head.name == name);
        if !is_own && Given::parse(name).is_none() {
            let all = Given::ALL.map(Given::name).join(", ");
            return Err(format!("{predicate}: no such fact: expected {all}, or one that begins with {OWN}"));
        }
    }
    match excluding(program, Given::ClaimedName) {
        None => Ok(()),
        Some(statement) => Err(format!(
            "{statement}: a module could claim any other name: state the name, as check if \
             claimed_name(\"NAME\"), or exclude code by hash or signer"
        )),
    }
}

/// Returns the first statement of a program that does not hold at `place`, whatever the facts are, because it
/// is about one interface and packets may come from all of them.
pub fn unanswerable(program: &BlockBuilder, place: &Place) -> Option<String> {
    place.is_anywhere().then(|| excluding(program, Given::Interface))?
}

/// Returns the first statement that may hold because a fact has another value than an excluded one: all
/// but those of the form `check if FACT("value")`.
fn excluding(program: &BlockBuilder, fact: Given) -> Option<String> {
    let is_it = |predicate: &&Predicate| predicate.name == fact.name();
    let names = |rule: &Rule| rule.body.iter().any(|predicate| is_it(&predicate));
    let is_named = |rule: &Rule| rule.body.iter().filter(is_it).all(|p| matches!(&*p.terms, [Term::Str(_)]));
    let excludes = |check: &&Check| {
        let mut about = check.queries.iter().filter(|query| names(query));
        about.any(|query| check.kind != CheckKind::One || !is_named(query))
    };
    let rule = program.rules.iter().find(|rule| names(rule)).map(ToString::to_string);
    rule.or_else(|| program.checks.iter().find(excludes).map(ToString::to_string))
}

fn rules(program: &BlockBuilder) -> impl Iterator<Item = &Rule> {
    program.rules.iter().chain(program.checks.iter().flat_map(|check| &check.queries))
}
