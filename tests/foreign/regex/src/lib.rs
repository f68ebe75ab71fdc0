//! `regex-automata`'s dense DFA, built at the start: payloads with a line like `GET /x HTTP/1.1` or `Host:
//! x`.

use each::{Each, Look};
use regex_automata::Input;
use regex_automata::dfa::{Automaton, dense};
use regex_automata::util::syntax;

struct Regex(dense::DFA<Vec<u32>>);

impl Look for Regex {
    fn new() -> Self {
        let bytes = syntax::Config::new().unicode(false).utf8(false);
        Self(dense::Builder::new().syntax(bytes).build(each::PATTERN).expect("a small DFA"))
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        self.0.try_search_fwd(&Input::new(bytes)).is_ok_and(|m| m.is_some()).into()
    }
}

flame_module::export!(Each<Regex>);
