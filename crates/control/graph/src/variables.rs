//! Replaces variables in arguments.

use crate::budget::{Budget, Exceeded};
use flame_click::text;
use std::collections::HashMap;
use std::rc::Rc;

/// The variables of a body, and those around it.
#[derive(Default)]
pub struct Env {
    pub outer: Option<Rc<Env>>,
    pub depth: usize,
    pub values: HashMap<String, String>,
}

impl Env {
    fn get(&self, name: &str) -> Option<&str> {
        let mut env = self;
        loop {
            if let Some(value) = env.values.get(name) {
                return Some(value);
            }
            env = env.outer.as_deref()?;
        }
    }

    /// Returns the environment in which a body of this depth was declared.
    pub fn at(env: &Rc<Env>, depth: usize) -> Rc<Env> {
        let mut env = env.clone();
        while env.depth >= depth {
            match &env.outer {
                Some(outer) => env = outer.clone(),
                None => break,
            }
        }
        env
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The bytes that one argument list, or the value of one variable, may have.
pub const LONGEST: usize = 1 << 20;

/// The reason why variables were not replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The result is longer than [`LONGEST`].
    Long,
    Exceeded(Exceeded),
}

impl From<Exceeded> for Refused {
    fn from(e: Exceeded) -> Self {
        Self::Exceeded(e)
    }
}

/// A text with references to variables.
struct Text<'a> {
    s: Vec<char>,
    env: &'a Env,
    /// The last closing brace: references after it are not closed, so no scan for their ends is made.
    last_brace: usize,
}

impl Text<'_> {
    /// Returns the end of the characters from `at` that are `wanted`. Each is a step.
    fn scan(&self, at: usize, budget: &mut Budget, wanted: fn(char) -> bool) -> Result<usize, Exceeded> {
        let rest = self.s.get(at..).unwrap_or(&[]);
        let length = rest.iter().take_while(|c| wanted(**c)).count();
        budget.steps(length + 1)?;
        Ok(at + length)
    }

    fn text(&self, from: usize, to: usize) -> String {
        self.s[from..to].iter().collect()
    }

    /// Returns the value that the reference at `at` (after `$`) stands for, and its end.
    fn reference(&self, at: usize, budget: &mut Budget) -> Result<Option<(String, usize)>, Exceeded> {
        if self.s.get(at) != Some(&'{') {
            let end = self.scan(at, budget, is_name)?;
            return Ok(self.value(at, end, budget)?.map(|v| (v, end)));
        }
        let (start, end) = (at + 1, self.scan(at + 1, budget, is_name)?);
        match self.s.get(end) {
            Some('}') => Ok(self.value(start, end, budget)?.map(|v| (v, end + 1))),
            Some('-') if end < self.last_brace => {
                let close = self.scan(end, budget, |c| c != '}')?;
                let value = self.value(start, end, budget)?;
                Ok(Some((value.unwrap_or_else(|| self.text(end + 1, close)), close + 1)))
            }
            Some('[') => {
                let dollar = usize::from(self.s.get(end + 1) == Some(&'$'));
                let inside = end + 1 + dollar;
                let close = self.scan(inside, budget, |c| is_name(c) || c == ' ')?;
                if self.s.get(close..close + 2) != Some(&[']', '}']) {
                    return Ok(None);
                }
                let index = match dollar {
                    1 => self.value(inside, close, budget)?,
                    _ => Some(self.text(inside, close)),
                };
                let index = index.and_then(|i| i.trim().parse::<usize>().ok());
                let (Some(index), Some(list)) = (index, self.value(start, end, budget)?) else {
                    return Ok(None);
                };
                let word = text::words(&list).into_iter().nth(index);
                Ok(Some((word.unwrap_or_default(), close + 2)))
            }
            _ => Ok(None),
        }
    }

    /// Returns the value of the variable whose name is between two places.
    fn value(&self, from: usize, to: usize, budget: &mut Budget) -> Result<Option<String>, Exceeded> {
        let value = self.env.get(&self.text(from, to));
        // The value is copied and perhaps unquoted, even if nothing of it is left then.
        budget.steps(value.map_or(0, str::len))?;
        Ok(value.map(str::to_owned))
    }
}

/// Replaces the variables that are known.
pub fn expand(config: &str, env: &Env, budget: &mut Budget) -> Result<String, Refused> {
    budget.steps(config.len())?;
    if !config.contains('$') {
        return if config.len() <= LONGEST { Ok(config.to_owned()) } else { Err(Refused::Long) };
    }
    let s: Vec<char> = config.chars().collect();
    let last_brace = s.iter().rposition(|c| *c == '}').unwrap_or(0);
    let text = Text { s, env, last_brace };
    let s = &text.s;
    let (mut out, mut i, mut quote) = (String::with_capacity(config.len()), 0, None);
    while i < s.len() {
        if out.len() > LONGEST {
            return Err(Refused::Long);
        }
        match (s[i], quote) {
            ('\\', Some('"')) => {
                out.extend(&s[i..(i + 2).min(s.len())]);
                i += 2;
                continue;
            }
            (c, Some(q)) if c == q => quote = None,
            (c @ ('"' | '\''), None) => quote = Some(c),
            ('$', None | Some('"')) => {
                if let Some((value, end)) = text.reference(i + 1, budget)? {
                    match quote {
                        None => out.push_str(&value),
                        _ => text::push_escaped(&mut out, &text::unquote(&value)),
                    }
                    i = end;
                    continue;
                }
            }
            _ => {}
        }
        out.push(s[i]);
        i += 1;
    }
    if out.len() <= LONGEST { Ok(out) } else { Err(Refused::Long) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        Budget::new(&crate::Limits::default())
    }

    fn env(values: &[(&str, &str)]) -> Env {
        let values = values.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Env { values, ..Env::default() }
    }

    #[test]
    fn variables_are_replaced_outside_single_quotes() {
        let env = env(&[("a", "1 2"), ("q", "\"x \\\" y\""), ("n", "1")]);
        for (given, wanted) in [
            ("$a, ${a}, '$a', \"$a\"", "1 2, 1 2, '$a', \"1 2\""),
            ("${a[1]} ${a[$n]} ${a[7]}.", "2 2 ."),
            ("\"$q\" $q", "\"x \\\" y\" \"x \\\" y\""),
            ("$b ${b} ${b-7} $(add $a) \"\\$a\" $1", "$b ${b} 7 $(add 1 2) \"\\$a\" $1"),
            ("${a", "${a"),
        ] {
            assert_eq!(expand(given, &env, &mut budget()).unwrap(), wanted, "{given}");
        }
    }

    #[test]
    fn long_results_and_long_work_are_refused() {
        let long = env(&[("a", &"x".repeat(LONGEST / 2)), ("q", &"'".repeat(LONGEST / 2))]);
        assert_eq!(expand("$a$a", &long, &mut budget()).unwrap().len(), LONGEST);
        assert_eq!(expand("$a$a.", &long, &mut budget()), Err(Refused::Long));
        // References that give nothing are work all the same: a value is unquoted to nothing, or a word of it
        // is chosen.
        for reference in ["$q", "${a[1]}"] {
            let text = format!("\"{}\"", reference.repeat(100_000));
            assert!(matches!(expand(&text, &long, &mut budget()), Err(Refused::Exceeded(_))), "{reference}");
        }
    }

    #[test]
    fn references_without_an_end_are_scanned_once() {
        let env = env(&[("a", "1")]);
        for piece in ["${", "${a-", "${a[", "${a[1", "$", "${-", "${aa"] {
            for end in ["", "}"] {
                let text = piece.repeat(100_000) + end;
                let mut budget = budget();
                expand(&text, &env, &mut budget).unwrap();
                let steps = crate::Limits::default().steps - budget.steps_left();
                assert!(steps <= 4 * text.len(), "{piece}{end}: {steps} steps for {} bytes", text.len());
            }
        }
    }
}
