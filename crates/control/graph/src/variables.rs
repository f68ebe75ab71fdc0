//! Replaces variables in arguments.

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

/// Returns the value that the reference at the beginning of `s` (behind `$`) stands for, and its length.
fn reference(s: &[char], env: &Env) -> Option<(String, usize)> {
    if s.first() != Some(&'{') {
        let length = s.iter().take_while(|c| is_name(**c)).count();
        let name: String = s[..length].iter().collect();
        return env.get(&name).map(|v| (v.to_owned(), length));
    }
    let end = s.iter().position(|c| *c == '}')?;
    let inside: String = s[1..end].iter().collect();
    let name_end = inside.find(|c| !is_name(c)).unwrap_or(inside.len());
    let (name, rest) = inside.split_at(name_end);
    let value = env.get(name);
    if let Some(default) = rest.strip_prefix('-') {
        return Some((value.unwrap_or(default).to_owned(), end + 1));
    }
    let value = value?;
    let Some(index) = rest.strip_prefix('[').and_then(|r| r.strip_suffix(']')) else {
        return rest.is_empty().then(|| (value.to_owned(), end + 1));
    };
    let index = match index.strip_prefix('$') {
        Some(name) => env.get(name)?.trim().parse::<usize>(),
        None => index.trim().parse(),
    };
    let word = text::words(value).into_iter().nth(index.ok()?);
    Some((word.unwrap_or_default(), end + 1))
}

/// Replaces the variables that are known. None if the result is longer than `limit`.
pub fn expand(config: &str, env: &Env, limit: usize) -> Option<String> {
    if !config.contains('$') {
        return (config.len() <= limit).then(|| config.to_owned());
    }
    let s: Vec<char> = config.chars().collect();
    let (mut out, mut i, mut quote) = (String::with_capacity(config.len()), 0, None);
    while i < s.len() {
        if out.len() > limit {
            return None;
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
                if let Some((value, length)) = reference(&s[i + 1..], env) {
                    match quote {
                        None => out.push_str(&value),
                        _ => text::push_escaped(&mut out, &text::unquote(&value)),
                    }
                    i += 1 + length;
                    continue;
                }
            }
            _ => {}
        }
        out.push(s[i]);
        i += 1;
    }
    (out.len() <= limit).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(expand(given, &env, 1000).unwrap(), wanted, "{given}");
        }
        assert_eq!(expand("$a$a$a", &env, 8), None);
    }
}
