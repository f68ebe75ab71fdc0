//! Checks in Datalog: the permitted language, its cost, and the facts that are given to it.

mod limited;
mod steps;

use crate::facts;
use biscuit_auth::builder::{Binary, Check, Expression, Op, Rule, Term};
use biscuit_auth::builder_ext::AuthorizerExt;
use biscuit_auth::datalog::RunLimits;
use biscuit_auth::error::{FailedCheck, Logic, RunLimit, Token};
use biscuit_auth::{AuthorizerBuilder, Biscuit, BlockBuilder};
use limited::{MAX_WAIT, TOO_LONG};
use std::collections::{HashMap, HashSet};
use steps::Sizes;

/// The checks that failed, or the reason why they were not evaluated to the end.
///
/// `Display` is the text for everybody. It has no check of the node's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The checks of the credential's blocks, and other reasons.
    own: Vec<String>,
    /// The checks of the node's policy.
    of_policy: Vec<String>,
    /// The facts of the request.
    here: String,
}

impl Failed {
    /// Returns the failure of a check of the block, or of the policy, that no packets of `place` satisfy,
    /// because they may come from all interfaces.
    pub fn anywhere(block: Option<usize>, check: &str, place: &str) -> Self {
        let here = format!(
            "interface({place:?}), which may have packets of every interface: capture one interface, or state \
             check if interface({place:?})"
        );
        let (own, of_policy) = match block {
            Some(n) => (vec![format!("block {n}: {check}")], Vec::new()),
            None => (Vec::new(), vec![check.to_owned()]),
        };
        Self { own, of_policy, here }
    }

    fn because(reason: impl Into<String>) -> Self {
        Self { own: vec![reason.into()], of_policy: Vec::new(), here: String::new() }
    }

    /// Returns the text for the node's operator.
    pub fn operator(&self) -> String {
        self.text(self.of_policy.iter().map(|check| format!("policy: {check}")))
    }

    fn text(&self, of_policy: impl Iterator<Item = String>) -> String {
        let all: Vec<String> = self.own.iter().cloned().chain(of_policy).collect();
        let here = if self.here.is_empty() { String::new() } else { format!("; here: {}", self.here) };
        format!("{}{here}", all.join("; "))
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of_policy = (!self.of_policy.is_empty()).then(|| "one of this node's policy".to_owned());
        f.write_str(&self.text(of_policy.into_iter()))
    }
}

/// Maximum number of facts, and of rounds in which rules are applied.
const MAX_FACTS: u64 = 500;
const MAX_ITERATIONS: u64 = 50;
/// Maximum number of evaluation steps in total: the operations of an expression, for each combination of
/// facts that a rule or check considers.
const MAX_WORK: u64 = 100_000;
/// Maximum depth of nested brackets, which the library parses by recursion.
const MAX_DEPTH: usize = 16;
/// Maximum number of elements of a set, an array or a map.
const MAX_ELEMENTS: usize = 64;

/// Checks that text is safe for the parser, and for a terminal.
///
/// # Errors
///
/// Returns the reason: a control character, deeply nested brackets, or repeated signs.
pub fn readable(source: &str) -> Result<(), String> {
    if let Some(odd) = source.chars().find(|c| c.is_control() && *c != '\n') {
        return Err(format!("{odd:?}: texts with controls are not read"));
    }
    let mut depth = 0usize;
    for c in source.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(format!("brackets in more than {MAX_DEPTH} brackets are not read"));
        }
    }
    // Repeated signs are nested, too.
    if source.contains("!!!!") { Err("more than three ! in a row are not read".to_owned()) } else { Ok(()) }
}

/// Checks an upper bound on the cost of an evaluation before it starts, because the library checks time
/// limits between rules only. `blocks` are without the facts that the node gives.
///
/// # Errors
///
/// Returns the reason why the evaluation could take too long.
pub fn affordable(blocks: &[BlockBuilder]) -> Result<(), String> {
    let mut stated: HashMap<&str, u64> = HashMap::new();
    for block in blocks {
        for fact in &block.facts {
            *stated.entry(&fact.predicate.name).or_default() += 1;
            fact.predicate.terms.iter().try_for_each(small)?;
        }
    }
    for rule in blocks.iter().flat_map(|b| &b.rules) {
        stated.insert(&rule.head.name, MAX_FACTS);
    }
    let sizes = Sizes::of(blocks);
    let of_name = |name: &str| stated.get(name).copied().unwrap_or(0) + facts::most(name);
    let work = |rule: &Rule| {
        rule.expressions.iter().try_for_each(expression)?;
        let all = rule.body.iter().fold(1u64, |all, p| all.saturating_mul(of_name(&p.name).max(1)));
        Ok::<_, String>(all.saturating_mul(sizes.steps(rule)))
    };
    let rules = || blocks.iter().flat_map(|b| &b.rules);
    // Each rule is applied until it yields nothing new. Rules that depend on rules may use all permitted
    // rounds.
    let chained = rules().flat_map(|r| &r.body).any(|p| rules().any(|r| r.head.name == p.name));
    let rounds = if chained { MAX_ITERATIONS } else { 2 };
    let mut total = 0u64;
    for rule in rules() {
        total = total.saturating_add(work(rule)?.saturating_mul(rounds));
    }
    for query in blocks.iter().flat_map(|b| &b.checks).flat_map(|check: &Check| &check.queries) {
        total = total.saturating_add(work(query)?);
    }
    if total > MAX_WORK {
        return Err(format!(
            "its rules and checks would take {total} steps over all combinations of facts, more than {MAX_WORK}: state \
             fewer facts, or name fewer of them in one rule"
        ));
    }
    Ok(())
}

/// Removes the checks that depend on facts of these names, directly or by rules.
pub fn forget(programs: &mut [BlockBuilder], names: &[&str]) {
    let mut unknown: HashSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let depends =
        |unknown: &HashSet<String>, rule: &Rule| rule.body.iter().any(|p| unknown.contains(&p.name));
    loop {
        let heads: Vec<String> = programs
            .iter()
            .flat_map(|program| &program.rules)
            .filter(|rule| depends(&unknown, rule) && !unknown.contains(&rule.head.name))
            .map(|rule| rule.head.name.clone())
            .collect();
        if heads.is_empty() {
            break;
        }
        unknown.extend(heads);
    }
    for program in programs {
        program.checks.retain(|check| !check.queries.iter().any(|query| depends(&unknown, query)));
    }
}

fn small(term: &Term) -> Result<(), String> {
    let large = |n: usize| format!("a set, array or map of {n} elements, at most {MAX_ELEMENTS} are read");
    let (n, each): (usize, Vec<&Term>) = match term {
        Term::Set(set) => (set.len(), set.iter().collect()),
        Term::Array(array) => (array.len(), array.iter().collect()),
        Term::Map(map) => (map.len(), map.values().collect()),
        _ => return Ok(()),
    };
    if n > MAX_ELEMENTS { Err(large(n)) } else { each.into_iter().try_for_each(small) }
}

fn expression(e: &Expression) -> Result<(), String> {
    ops(&e.ops, 0)
}

fn ops(all: &[Op], depth: u32) -> Result<(), String> {
    all.iter().enumerate().try_for_each(|(at, op)| match op {
        // A number of repetitions multiplies the time that its compilation takes.
        Op::Binary(Binary::Regex) => match pattern(&all[..at]) {
            Some(text) if !text.contains('{') => Ok(()),
            Some(_) => Err("regular expressions with { are not read".to_owned()),
            None => Err("a regular expression that is not written as a text is not read".to_owned()),
        },
        Op::Value(term) => small(term),
        Op::Closure(..) if depth > 0 => Err("closures in closures are not read".to_owned()),
        Op::Closure(_, inner) => ops(inner, depth + 1),
        _ => Ok(()),
    })
}

/// Returns the text of the regular expression that follows these operations.
fn pattern(before: &[Op]) -> Option<&str> {
    match before.last() {
        Some(Op::Value(Term::Str(text))) => Some(text),
        _ => None,
    }
}

/// Evaluates the checks of all blocks and of the node over the facts that the node gives. `whose` names the
/// credential as its root made it: while an evaluation that takes too long continues, it has no further ones.
///
/// The library evaluates a token that is built here from the parsed blocks, whose cost is known. It never
/// evaluates the token that was sent, so nothing counts that was not examined.
///
/// # Errors
///
/// Returns the checks that failed, or the reason why the evaluation did not finish.
pub fn authorize(
    whose: &str,
    blocks: &[BlockBuilder],
    facts: &BlockBuilder,
    checks: &str,
) -> Result<(), Failed> {
    // Running modules are decided on each second, most of them without any checks.
    if checks.trim().is_empty() && blocks.iter().all(|b| b.rules.is_empty() && b.checks.is_empty()) {
        return Ok(());
    }
    let token = rebuilt(blocks).map_err(|e| Failed::because(e.to_string()))?;
    let (facts, checks) = (facts.clone(), checks.to_owned());
    let evaluated = limited::evaluate(whose, move || Ok(evaluate(&token, &facts, &checks)));
    evaluated.unwrap_or_else(|reason| Err(Failed::because(reason)))
}

/// Builds a token, signed with keys that exist during this call only. The relevant signatures were verified
/// before.
fn rebuilt(blocks: &[BlockBuilder]) -> Result<Biscuit, Token> {
    let key = biscuit_auth::KeyPair::new();
    let (first, others) =
        blocks.split_first().map_or((BlockBuilder::new(), &[][..]), |(f, o)| (f.clone(), o));
    let token = biscuit_auth::BiscuitBuilder::new().merge(first).build(&key)?;
    others.iter().try_fold(token, |token, block| token.append(block.clone()))
}

fn evaluate(token: &Biscuit, facts: &BlockBuilder, checks: &str) -> Result<(), Failed> {
    let limits = RunLimits { max_facts: MAX_FACTS, max_iterations: MAX_ITERATIONS, max_time: MAX_WAIT };
    let authorizer = AuthorizerBuilder::new()
        .merge_block(facts.clone())
        .code(checks)
        .map(AuthorizerBuilder::allow_all)
        .map(|builder| builder.set_limits(limits))
        .and_then(|builder| builder.build(token));
    let failed = match authorizer.and_then(|mut a| a.authorize()) {
        Ok(_) => return Ok(()),
        Err(failed) => failed,
    };
    Err(match failed {
        Token::FailedLogic(Logic::Unauthorized { checks, .. } | Logic::NoMatchingPolicy { checks }) => {
            let (mut own, mut of_policy) = (Vec::new(), Vec::new());
            for check in checks {
                match check {
                    FailedCheck::Block(c) => own.push(format!("block {}: {}", c.block_id, c.rule)),
                    FailedCheck::Authorizer(c) => of_policy.push(c.rule),
                }
            }
            let given: Vec<_> = facts.facts.iter().map(|f| f.to_string()).collect();
            Failed { own, of_policy, here: given.join(", ") }
        }
        Token::RunLimit(RunLimit::Timeout) => Failed::because(TOO_LONG),
        Token::RunLimit(_) => {
            Failed::because(format!("its Datalog makes more than {MAX_FACTS} facts, or does not end"))
        }
        other => Failed::because(other.to_string()),
    })
}
