//! An examination of a credential as it was sent, before anything of it is printed, parsed or evaluated.
//!
//! The library prints blocks without escapes, and omits scopes (`trusting`). Therefore the names and texts
//! are read here as values, and those that could be printed as something else are refused.

use crate::field::MAX_VALUE;
use biscuit_auth::UnverifiedBiscuit;
use biscuit_auth::format::schema::{self, Biscuit, Expression, Op, Predicate, Rule, Term, map_key, op, term};
use prost::Message;

/// Maximum number of facts, rules and checks of a block, in total.
pub const MAX_STATEMENTS: usize = 256;
/// Maximum number of values, names and operations of a block. Each of them could print the longest text.
const MAX_PARTS: usize = 8192;
/// Maximum length of the printed texts of a block, in characters.
const MAX_PRINTED: usize = 256 << 10;
/// The index of the first symbol of a credential's own. Symbols below it are defined by the library.
const FIRST_OWN: u64 = 1024;

/// Examines all blocks.
///
/// # Errors
///
/// Returns the index of the first refused block, and the reason.
pub fn look_through(token: &UnverifiedBiscuit) -> Result<(), (usize, String)> {
    let form = |e: String| (0, e);
    let bytes = token.to_vec().map_err(|e| form(e.to_string()))?;
    let token = Biscuit::decode(&*bytes).map_err(|e| form(e.to_string()))?;
    let mut shared: Vec<String> = Vec::new();
    for (n, signed) in std::iter::once(&token.authority).chain(&token.blocks).enumerate() {
        let block = schema::Block::decode(&*signed.block).map_err(|e| (n, e.to_string()))?;
        block.symbols.iter().try_for_each(|s| plain_text(s)).map_err(|e| (n, e))?;
        // A block with an external signature has its own symbol table.
        let own = signed.external_signature.is_some();
        if !own {
            shared.extend(block.symbols.iter().cloned());
        }
        let symbols: &[String] = if own { &block.symbols } else { &shared };
        Looked { symbols, parts: 0, printed: 0 }.block(&block).map_err(|e| (n, e))?;
    }
    Ok(())
}

/// Checks that a text is printable ASCII without characters that the library would have to escape.
fn plain_text(text: &str) -> Result<(), String> {
    let plain = |c: char| matches!(c, ' '..='~') && c != '"' && c != '\\';
    if text.len() > MAX_VALUE || !text.chars().all(plain) {
        let shown: String = text.chars().take(80).flat_map(char::escape_default).collect();
        return Err(format!(
            "{shown:?}: texts with quotes, backslashes, controls or letters beyond ASCII are not read, nor those of \
             more than {MAX_VALUE} characters"
        ));
    }
    Ok(())
}

struct Looked<'a> {
    symbols: &'a [String],
    parts: usize,
    printed: usize,
}

impl Looked<'_> {
    fn block(&mut self, block: &schema::Block) -> Result<(), String> {
        let statements = block.facts.len() + block.rules.len() + block.checks.len();
        if statements > MAX_STATEMENTS {
            return Err(format!("{statements} statements, at most {MAX_STATEMENTS} are read"));
        }
        if block.context.is_some() {
            return Err("a context is not read: state facts of your own".to_owned());
        }
        self.scope(&block.scope)?;
        block.facts.iter().try_for_each(|fact| self.predicate(&fact.predicate))?;
        block.rules.iter().try_for_each(|rule| {
            self.predicate(&rule.head)?;
            self.rule(rule)
        })?;
        block.checks.iter().flat_map(|check| &check.queries).try_for_each(|query| self.rule(query))
    }

    fn scope(&self, scope: &[schema::Scope]) -> Result<(), String> {
        if scope.is_empty() {
            Ok(())
        } else {
            Err("`trusting` is not read: checks see the root's block and their own".to_owned())
        }
    }

    fn part(&mut self, printed: usize) -> Result<(), String> {
        self.parts += 1;
        self.printed += printed + 4;
        if self.parts > MAX_PARTS || self.printed > MAX_PRINTED {
            return Err(format!(
                "more than {MAX_PARTS} values, or {MAX_PRINTED} characters of them, are not read"
            ));
        }
        Ok(())
    }

    /// Checks the name of a predicate, a variable or a function.
    fn name(&mut self, index: u64) -> Result<(), String> {
        let Some(own) = index.checked_sub(FIRST_OWN) else { return self.part(16) };
        let name = usize::try_from(own).ok().and_then(|n| self.symbols.get(n)).map_or("", String::as_str);
        let mut letters = name.chars();
        let plain = letters.next().is_some_and(|c| c.is_ascii_alphabetic())
            && letters.all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !plain {
            let shown: String = name.chars().take(80).collect();
            return Err(format!("{shown:?} is no name: names are letters, digits and _"));
        }
        self.part(name.len())
    }

    fn text(&mut self, index: u64) -> Result<(), String> {
        let own = index.checked_sub(FIRST_OWN).and_then(|n| usize::try_from(n).ok());
        match own.map(|n| self.symbols.get(n)) {
            None => self.part(16),
            Some(Some(text)) => self.part(text.len()),
            Some(None) => Err(format!("symbol {index} is not in the block")),
        }
    }

    fn predicate(&mut self, predicate: &Predicate) -> Result<(), String> {
        self.name(predicate.name)?;
        predicate.terms.iter().try_for_each(|t| self.term(t))
    }

    fn rule(&mut self, rule: &Rule) -> Result<(), String> {
        self.scope(&rule.scope)?;
        rule.body.iter().try_for_each(|p| self.predicate(p))?;
        rule.expressions.iter().try_for_each(|Expression { ops }| self.ops(ops))
    }

    fn ops(&mut self, ops: &[Op]) -> Result<(), String> {
        ops.iter().try_for_each(|operation| match &operation.content {
            None => Err("an operation of no kind".to_owned()),
            Some(op::Content::Value(value)) => self.term(value),
            Some(op::Content::Unary(unary)) => self.call(unary.ffi_name),
            Some(op::Content::Binary(binary)) => self.call(binary.ffi_name),
            Some(op::Content::Closure(closure)) => {
                closure.params.iter().try_for_each(|p| self.name(u64::from(*p)))?;
                self.ops(&closure.ops)
            }
        })
    }

    fn call(&mut self, function: Option<u64>) -> Result<(), String> {
        match function {
            None => self.part(8),
            Some(_) => Err("functions of the host are not read".to_owned()),
        }
    }

    fn term(&mut self, term: &Term) -> Result<(), String> {
        match &term.content {
            None => Err("a value of no kind".to_owned()),
            Some(term::Content::Variable(name)) => self.name(u64::from(*name)),
            Some(term::Content::String(text)) => self.text(*text),
            Some(term::Content::Bytes(bytes)) => self.part(2 * bytes.len()),
            Some(term::Content::Set(set)) => self.all(&set.set),
            Some(term::Content::Array(array)) => self.all(&array.array),
            Some(term::Content::Map(map)) => map.entries.iter().try_for_each(|entry| {
                match &entry.key.content {
                    Some(map_key::Content::String(text)) => self.text(*text)?,
                    _ => self.part(20)?,
                }
                self.term(&entry.value)
            }),
            Some(_) => self.part(32),
        }
    }

    fn all(&mut self, terms: &[Term]) -> Result<(), String> {
        self.part(2)?;
        terms.iter().try_for_each(|t| self.term(t))
    }
}
