//! The functions of a Script: read handlers that compute, read files or send signals, and output to files.

use super::Script;
use crate::runtime::element::Cx;
use crate::runtime::handler::Access;
use crate::runtime::limits::LONGEST_VALUE;
use flame_click::text;
use flame_click::value::{boolean, integer};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::io::Write;

pub const FUNCTIONS: &[&str] = &[
    "add", "sub", "mul", "div", "idiv", "mod", "rem", "neg", "abs", "min", "max", "eq", "ne", "lt", "le",
    "gt", "ge", "not", "and", "or", "if", "in", "now", "random", "cat", "kill", "htons", "ntohs", "htonl",
    "ntohl", "get", "shift", "length", "unquote", "first", "last", "nth", "sprintf", "nand", "nor",
    "readable", "writable", "catq",
];

#[derive(Clone, Copy)]
enum Number {
    Whole(i128),
    Real(f64),
}

impl Number {
    fn parse(word: &str) -> Result<Self, String> {
        let word = text::unquote(word);
        let real = || word.trim().parse::<f64>().ok().filter(|v| v.is_finite()).map(Self::Real);
        integer(&word)
            .map(Self::Whole)
            .or_else(real)
            .ok_or_else(|| format!("expected a number, found '{word}'"))
    }

    fn real(self) -> f64 {
        match self {
            Self::Whole(v) => v as f64,
            Self::Real(v) => v,
        }
    }

    fn unparse(self) -> String {
        match self {
            Self::Whole(v) => v.to_string(),
            Self::Real(v) if v.fract() == 0.0 && v.abs() < 1e15 => format!("{v:.0}"),
            Self::Real(v) => ((v * 1e9).round() / 1e9).to_string(),
        }
    }
}

fn numbers(words: &[String]) -> Result<Vec<Number>, String> {
    match words.is_empty() {
        true => Err("expected numbers".into()),
        false => words.iter().map(|w| Number::parse(w)).collect(),
    }
}

type Whole = fn(i128, i128) -> Option<i128>;

/// Combines numbers from the left. Whole numbers stay whole while they fit.
fn fold(words: &[String], whole: Whole, real: fn(f64, f64) -> f64) -> Result<String, String> {
    let all = numbers(words)?;
    let result = all[1..].iter().fold(all[0], |a, b| match (a, *b) {
        (Number::Whole(a), Number::Whole(b)) => {
            whole(a, b).map_or_else(|| Number::Real(real(a as f64, b as f64)), Number::Whole)
        }
        (a, b) => Number::Real(real(a.real(), b.real())),
    });
    match result {
        Number::Real(v) if !v.is_finite() => Err("the result is not a number".into()),
        result => Ok(result.unparse()),
    }
}

fn compare(words: &[String], test: fn(std::cmp::Ordering) -> bool) -> Result<String, String> {
    let [a, b] = words else { return Err(format!("expected two values, found {}", words.len())) };
    let order = match (Number::parse(a), Number::parse(b)) {
        (Ok(Number::Whole(a)), Ok(Number::Whole(b))) => Some(a.cmp(&b)),
        (Ok(a), Ok(b)) => a.real().partial_cmp(&b.real()),
        _ => Some(text::unquote(a).cmp(&text::unquote(b))),
    };
    Ok(order.is_some_and(test).to_string())
}

fn truth(word: &str) -> Result<bool, String> {
    boolean(&text::unquote(word)).ok_or_else(|| format!("expected true or false, found '{word}'"))
}

fn truths(words: &[String]) -> Result<Vec<bool>, String> {
    words.iter().map(|w| truth(w)).collect()
}

/// The names of signals, from 1 on.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// Sends a signal, by number or name, to processes, until one cannot be sent.
fn kill(words: &[String]) -> Result<String, String> {
    let bad = |what: &str, found: &str| format!("kill: expected {what}, found '{found}'");
    let (name, processes) = match words {
        [name, processes @ ..] if !processes.is_empty() => (text::unquote(name), processes),
        _ => return Err(bad("a signal and the numbers of processes", &words.join(" "))),
    };
    let of_name = |name: &str| SIGNALS.iter().position(|known| *known == name).map(|at| at as i128 + 1);
    let number = integer(&name).or_else(|| of_name(name.strip_prefix("SIG").unwrap_or(&name)));
    let range = i128::try_from(SIGNALS.len()).map(|most| 0..=most).unwrap_or(0..=0);
    let Some(number) = number.filter(|number| range.contains(number)) else {
        return Err(bad("a signal, as TERM or 15", &name));
    };
    let signal = Signal::from_named_raw(number as i32);
    for word in processes {
        // 0 and negative numbers are groups of processes, and -1 is everything.
        let process = integer(&text::unquote(word)).and_then(|n| i32::try_from(n).ok()).filter(|n| *n > 0);
        let Some(process) = process.and_then(Pid::from_raw) else {
            return Err(bad("the number of a process, above 0", word));
        };
        let sent = match signal {
            Some(signal) => kill_process(process, signal),
            None => test_kill_process(process),
        };
        sent.map_err(|e| format!("kill: signal {number} to process {}: {e}", process.as_raw_nonzero()))?;
    }
    Ok(String::new())
}

/// Calls a function, if there is one of this name.
pub fn call(script: &Script, cx: &Cx<'_>, name: &str, argument: &str) -> Option<Result<String, String>> {
    if !FUNCTIONS.contains(&name) {
        return None;
    }
    let words = text::words(argument);
    let one = |f: fn(u32) -> u32| {
        let value =
            words.first().and_then(|w| integer(&text::unquote(w))).and_then(|v| u32::try_from(v).ok());
        value.map(|v| f(v).to_string()).ok_or_else(|| format!("expected a number, found '{argument}'"))
    };
    let swap16 = |v: u32| u32::from((v as u16).to_be());
    Some(match name {
        "add" => fold(&words, i128::checked_add, |a, b| a + b),
        "sub" => fold(&words, i128::checked_sub, |a, b| a - b),
        "mul" => fold(&words, i128::checked_mul, |a, b| a * b),
        "div" => fold(&words, |a, b| (b != 0 && a % b == 0).then(|| a / b), |a, b| a / b),
        "idiv" => fold(&words, i128::checked_div, |a, b| (a / b).trunc()),
        "mod" | "rem" => fold(&words, i128::checked_rem, |a, b| a % b),
        "min" => fold(&words, |a, b| Some(a.min(b)), f64::min),
        "max" => fold(&words, |a, b| Some(a.max(b)), f64::max),
        "neg" => fold(&[vec!["0".to_owned()], words].concat(), i128::checked_sub, |a, b| a - b),
        "abs" => numbers(&words).map(|n| match n[0] {
            Number::Whole(v) => v.abs().to_string(),
            Number::Real(v) => Number::Real(v.abs()).unparse(),
        }),
        "eq" => compare(&words, std::cmp::Ordering::is_eq),
        "ne" => compare(&words, std::cmp::Ordering::is_ne),
        "lt" => compare(&words, std::cmp::Ordering::is_lt),
        "le" => compare(&words, std::cmp::Ordering::is_le),
        "gt" => compare(&words, std::cmp::Ordering::is_gt),
        "ge" => compare(&words, std::cmp::Ordering::is_ge),
        "not" => truth(argument).map(|b| (!b).to_string()),
        "and" | "nand" => truths(&words).map(|b| (b.iter().all(|b| *b) != (name == "nand")).to_string()),
        "or" | "nor" => truths(&words).map(|b| (b.iter().any(|b| *b) != (name == "nor")).to_string()),
        "readable" | "writable" => {
            let has =
                |handler: &String| match cx.router.access(&cx.router.full(cx.me, &text::unquote(handler))) {
                    Access::Handler { reads, writes, .. } => {
                        if name == "readable" {
                            reads
                        } else {
                            writes
                        }
                    }
                    _ => false,
                };
            Ok((!words.is_empty() && words.iter().all(has)).to_string())
        }
        "if" => {
            let (condition, rest) = text::first_word(argument);
            truth(&condition).map(|c| {
                let (yes, no) = text::first_word(&rest);
                text::unquote(if c { &yes } else { &no })
            })
        }
        "in" => Ok(words.iter().skip(1).any(|w| Some(w) == words.first()).to_string()),
        "now" => Ok(cx.now().micros()),
        "random" => {
            let numbers: Option<Vec<i64>> =
                words.iter().map(|w| i64::try_from(integer(&text::unquote(w))?).ok()).collect();
            // One number is a bound, which is left out; of two, the second is the greatest.
            match numbers.as_deref() {
                Some([]) => Ok(cx.random(1 << 31).to_string()),
                Some([bound]) if *bound > 0 => Ok(cx.random(*bound as u64).to_string()),
                Some([low, high]) if low <= high && high.abs_diff(*low) < u64::MAX => {
                    Ok(low.wrapping_add_unsigned(cx.random(high.abs_diff(*low) + 1)).to_string())
                }
                _ => Err(format!(
                    "expected a bound above 0, or a lowest and a highest number, found '{argument}'"
                )),
            }
        }
        "cat" | "catq" => {
            let file_name = text::unquote(argument);
            let file = std::fs::File::open(&file_name).map_err(|e| e.to_string());
            let bytes = file.and_then(|f| flame_click::input::read(f, flame_click::input::MOST_BYTES));
            let text = bytes.map(|b| text::decode(&b)).map_err(|e| format!("{file_name}: {e}"));
            text.map(|text| if name == "catq" { text::quote(&text) } else { text })
        }
        "kill" => kill(&words),
        "htons" | "ntohs" => one(swap16),
        "htonl" | "ntohl" => one(u32::to_be),
        "get" => script.get(argument.trim()).ok_or_else(|| format!("no variable '{}'", argument.trim())),
        "shift" => {
            let variable = argument.trim();
            match script.get(variable) {
                Some(value) => {
                    cx.router.spend_bytes(value.len());
                    let (first, rest) = text::first_word(&value);
                    script.set(variable, rest);
                    Ok(first)
                }
                None => Err(format!("no variable '{variable}'")),
            }
        }
        "length" => Ok(argument.chars().count().to_string()),
        "unquote" => Ok(text::unquote(argument)),
        "first" => Ok(words.first().cloned().unwrap_or_default()),
        "last" => Ok(words.last().cloned().unwrap_or_default()),
        "nth" => {
            let at = words.first().and_then(|w| w.parse::<usize>().ok());
            at.map(|n| words.get(n + 1).cloned().unwrap_or_default()).ok_or("expected a number".into())
        }
        _ => sprintf(&words),
    })
}

/// Formats with `%s`, `%d`, `%u`, `%x`, `%o`, `%c` and `%%`, with flags, width and precision.
fn sprintf(words: &[String]) -> Result<String, String> {
    let format = text::unquote(words.first().ok_or("expected a format")?);
    let mut values = words[1..].iter().map(|w| text::unquote(w));
    let (mut out, mut chars) = (String::new(), format.chars().peekable());
    while let Some(c) = chars.next() {
        if out.len() > LONGEST_VALUE {
            return Err("the text exceeds 1 MiB".into());
        }
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut spec = String::new();
        while let Some(f) = chars.next_if(|c| matches!(c, '-' | '0'..='9' | '.' | '+' | ' ')) {
            spec.push(f);
        }
        let kind = chars.next().ok_or("the format ends in '%'")?;
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = values.next().ok_or("too few values for the format")?;
        let (width, precision) = spec.split_once('.').unwrap_or((&spec, ""));
        let is_left = width.starts_with('-');
        let width_text = width.trim_start_matches(['-', '+', ' ']);
        let is_zero = width_text.starts_with('0') && !is_left;
        let width = width_text.parse::<usize>().unwrap_or(0).min(1000);
        let number = || integer(&value).ok_or_else(|| format!("expected a number, found '{value}'"));
        let text = match kind {
            's' => value.chars().take(precision.parse().unwrap_or(usize::MAX)).collect(),
            'd' | 'i' | 'u' => number()?.to_string(),
            'x' => format!("{:x}", number()?),
            'X' => format!("{:X}", number()?),
            'o' => format!("{:o}", number()?),
            'c' => u8::try_from(number()?).map_or(String::new(), |b| char::from(b).to_string()),
            other => return Err(format!("unknown conversion '%{other}'")),
        };
        let missing = width.saturating_sub(text.chars().count());
        match (is_left, is_zero) {
            (true, _) => out.push_str(&(text + &" ".repeat(missing))),
            (_, true) => out.push_str(&("0".repeat(missing) + &text)),
            _ => out.push_str(&(" ".repeat(missing) + &text)),
        }
    }
    Ok(out)
}

/// Writes text to a file, or to standard output for `-`.
pub fn write_file(cx: &Cx<'_>, name: &str, text: &str, appends: bool) -> Result<(), String> {
    if name == "-" {
        cx.router.print(text);
        return Ok(());
    }
    let mut options = std::fs::OpenOptions::new();
    options.create(true).write(true).append(appends).truncate(!appends);
    let written = options.open(name).and_then(|mut f| f.write_all(&flame_click::text::encode(text)));
    written.map_err(|e| format!("{name}: {e}"))
}
