//! Checks in Datalog: what they may use, how much work they may be, and what they are told.

use crate::credential::CredentialError;
use biscuit_auth::builder::{Check, Expression, Op, Rule, Term};
use biscuit_auth::builder_ext::AuthorizerExt;
use biscuit_auth::datalog::RunLimits;
use biscuit_auth::error::{FailedCheck, Logic, RunLimit, Token};
use biscuit_auth::{AuthorizerBuilder, Biscuit, BlockBuilder};
use std::collections::HashMap;
use std::time::Duration;

/// Facts that may be there, at most, and times that rules are applied.
const MAX_FACTS: u64 = 500;
const MAX_ITERATIONS: u64 = 50;
/// For a machine that is busy with other things: the bounds below end a search long before.
const MAX_TIME: Duration = Duration::from_millis(500);
/// Combinations of facts that all rules and checks together look at.
const MAX_WORK: u64 = 50_000;
/// Elements of a set, an array or a map.
const MAX_ELEMENTS: usize = 64;

/// Strings that would not be read back as they are: the library prints them without escapes.
pub fn plain_strings(token: &Biscuit) -> Result<(), CredentialError> {
    for block in 0..token.block_count() {
        let symbols = token.block_symbols(block).map_err(|e| CredentialError::Form(e.to_string()))?;
        let odd = |s: &String| s.chars().any(|c| c == '"' || c == '\\' || c.is_control());
        if let Some(text) = symbols.iter().find(|s| odd(s)) {
            let shown: String = text.escape_debug().take(80).collect();
            let reason = format!("{shown:?}: texts with quotes, backslashes or controls are not read");
            return Err(CredentialError::Block { block, reason });
        }
    }
    Ok(())
}

/// An upper bound on what evaluating costs, before it is tried: time limits are looked at between rules only.
pub fn affordable(blocks: &[BlockBuilder], given: usize) -> Result<(), String> {
    let mut facts: HashMap<&str, u64> = HashMap::new();
    for block in blocks {
        for fact in &block.facts {
            *facts.entry(&fact.predicate.name).or_default() += 1;
            fact.predicate.terms.iter().try_for_each(small)?;
        }
    }
    for rule in blocks.iter().flat_map(|b| &b.rules) {
        facts.insert(&rule.head.name, MAX_FACTS);
    }
    let of_name = |name: &str| facts.get(name).copied().unwrap_or(0) + given as u64;
    let work = |rule: &Rule| {
        rule.expressions.iter().try_for_each(expression)?;
        let all = rule.body.iter().fold(1u64, |all, p| all.saturating_mul(of_name(&p.name).max(1)));
        let turns = if rule.expressions.iter().any(has_closure) { MAX_ELEMENTS as u64 } else { 1 };
        Ok::<_, String>(all.saturating_mul(turns))
    };
    let mut total = 0u64;
    for block in blocks {
        for rule in &block.rules {
            total = total.saturating_add(work(rule)?);
        }
        for query in block.checks.iter().flat_map(|check: &Check| &check.queries) {
            total = total.saturating_add(work(query)?);
        }
    }
    if total > MAX_WORK {
        return Err(format!(
            "its rules and checks would look at {total} combinations of facts, more than {MAX_WORK}: state fewer facts, \
             or name fewer of them in one rule"
        ));
    }
    Ok(())
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
    all.iter().try_for_each(|op| match op {
        Op::Value(term) => small(term),
        Op::Closure(..) if depth > 0 => Err("closures in closures are not read".to_owned()),
        Op::Closure(_, inner) => ops(inner, depth + 1),
        _ => Ok(()),
    })
}

/// `&&` and `||` are closures too, without parameters.
fn has_closure(e: &Expression) -> bool {
    e.ops.iter().any(|op| matches!(op, Op::Closure(parameters, _) if !parameters.is_empty()))
}

/// Evaluates the checks of all blocks and of the node over what the node says.
pub fn authorize(token: &Biscuit, facts: &BlockBuilder, checks: &str) -> Result<(), String> {
    let limits = RunLimits { max_facts: MAX_FACTS, max_iterations: MAX_ITERATIONS, max_time: MAX_TIME };
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
            let each: Vec<_> = checks
                .iter()
                .map(|check| match check {
                    FailedCheck::Block(c) => format!("block {}: {}", c.block_id, c.rule),
                    FailedCheck::Authorizer(c) => format!("policy: {}", c.rule),
                })
                .collect();
            let given: Vec<_> = facts.facts.iter().map(|f| f.to_string()).collect();
            format!("{}; here: {}", each.join("; "), given.join(", "))
        }
        Token::RunLimit(RunLimit::Timeout) => "evaluating its Datalog takes too long".to_owned(),
        Token::RunLimit(_) => format!("its Datalog makes more than {MAX_FACTS} facts, or does not end"),
        other => other.to_string(),
    })
}
