//! IPClassifier(PATTERN…), IPFilter(ACTION PATTERN, …): classify IP packets in Click's filter language.
//! Actions are `allow` (output 0), `deny` or `drop`, or an output.
//! Expects: packets with marked IP headers.
//! Gives: packets on the output of the first pattern that matches; others are dropped.
//! Handlers: none.
//! Example: `IPFilter(allow tcp dst port 80 and not src net 10/8, deny all)`

use super::classify::distribute;
use super::filter_expression::Expression;
use super::filter_language::parse;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::Batch;
use flame_click::text;

const SOURCE: &str = include_str!("filter.rs");

struct Filter(Vec<(Option<usize>, Expression)>);

impl Element for Filter {
    fn push(&self, cx: &Cx<'_>, _: usize, batch: Batch) {
        distribute(cx, batch, |p| self.0.iter().find(|(_, e)| e.matches(p)).and_then(|(o, _)| *o));
    }
}

class!(IP_CLASSIFIER, "IPClassifier", "1/-", "h/h", [], |args, setup| {
    let scope = args.scope();
    let patterns = args.rest();
    if patterns.len() != setup.outputs {
        args.error(format!("need {} patterns, one for each output, found {}", setup.outputs, patterns.len()));
    }
    let mut all = Vec::new();
    for (i, pattern) in patterns.iter().enumerate() {
        match parse(pattern, &scope) {
            Ok(e) => all.push((Some(i), e)),
            Err(e) => args.error(format!("pattern {i}: {e}")),
        }
    }
    Box::new(Filter(all))
});

class!(IP_FILTER, "IPFilter", "1/-", "h/h", [], |args, setup| {
    let scope = args.scope();
    let mut all = Vec::new();
    for (i, rule) in args.rest().iter().enumerate() {
        let (action, pattern) = text::first_word(rule);
        let output = match action.as_str() {
            "allow" => Ok(Some(0)),
            "deny" | "drop" => Ok(None),
            number => number.parse().map(Some).map_err(|_| format!("expected an action, found '{number}'")),
        };
        let result = output.and_then(|o| match o {
            Some(o) if o >= setup.outputs => {
                Err(format!("expected an output below {}, found {o}", setup.outputs))
            }
            o => parse(&pattern, &scope).map(|e| (o, e)),
        });
        match result {
            Ok(rule) => all.push(rule),
            Err(e) => args.error(format!("rule {i}: {e}")),
        }
    }
    Box::new(Filter(all))
});
