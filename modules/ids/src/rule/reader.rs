//! Reads rule files line by line.

use super::fault::{Wrong, wrong};
use super::options::{self, Context};
use super::text::Piece;
use super::vars::Variables;
use super::{MAX_RULES, Rule, RuleSet, Source, Step, Unsupported, class, header, mark, policy};
use std::collections::BTreeMap;

/// The beginning of a line that names the file of the lines after it.
pub const FILE: &str = "#!file ";

/// The work that a start has time for, in units of the budget, as far as it can be told from lengths. The
/// rest of `limits.call_budget` is for tables and for counting the lines after that.
const MOST_WORK: u64 = 8_500_000_000;
/// Why later rules are not in use.
const BEYOND: &str = "beyond what the start has time for";

/// Returns about how much work it takes to read a line and to use it if it is a rule.
fn work_of(line: &str, is_used: bool) -> u64 {
    let bytes = line.len() as u64;
    if !is_used {
        return 30_000 + 300 * bytes;
    }
    40_000 + 400 * bytes + 600_000 * line.matches("pcre:").count() as u64
}

/// Parses rules of one file, without variables and thresholds.
pub fn parse(rules: &str) -> RuleSet {
    load(&Source { rules, ..Source::default() })
}

/// Parses a rule set.
pub fn load(source: &Source<'_>) -> RuleSet {
    let mut reader = Reader {
        vars: Variables::default(),
        classes: class::Classes::default(),
        policies: policy::Policies::default(),
        marks: mark::Numbers::default(),
        seen: BTreeMap::new(),
        file: 0,
        work: 0,
        set: RuleSet { files: vec![String::new()], dialect: source.dialect, ..RuleSet::default() },
    };
    for (line, reason) in reader.vars.read(source.vars) {
        reader.name("vars");
        reader.refuse(line, 0, "variables", reason);
    }
    if !source.thresholds.is_empty() {
        reader.name("thresholds");
        reader.lines(source.thresholds);
    }
    reader.file = 0;
    reader.lines(source.rules);
    reader.finish()
}

/// Returns the offset after the newline that ends this line: the first without a backslash before it.
/// Comments cannot be continued.
#[inline(never)]
fn line_end(text: &str) -> usize {
    let comment = text.trim_start_matches([' ', '\t']).starts_with('#');
    let mut from = 0;
    while let Some(i) = text[from..].find('\n') {
        let newline = from + i;
        from = newline + 1;
        if comment || !text[..newline].trim_end_matches('\r').ends_with('\\') {
            return from;
        }
    }
    text.len()
}

struct Reader {
    vars: Variables,
    classes: class::Classes,
    policies: policy::Policies,
    marks: mark::Numbers,
    /// The files and lines of the rules so far, by gid and sid.
    seen: BTreeMap<(u32, u32), (u32, u32)>,
    /// The current file.
    file: u32,
    /// The work so far.
    work: u64,
    set: RuleSet,
}

impl Reader {
    fn lines(&mut self, text: &str) {
        let mut number = 1;
        let mut rest = text;
        while !rest.is_empty() {
            // To count the rest takes work, too.
            if self.work + 40 * rest.len() as u64 > MOST_WORK {
                return self.skip(rest, number);
            }
            let (line, after) = rest.split_at(line_end(rest));
            rest = after;
            if let Some(name) = line.strip_prefix(FILE) {
                self.name(name.trim());
                number = 1;
                continue;
            }
            let rules = self.set.rules.len();
            if let Err((is_rule, fault)) = self.line(Piece::new(line, 0), number) {
                self.set.total += u64::from(is_rule);
                let kind = fault.kind.as_deref().unwrap_or("malformed");
                let found = Unsupported {
                    file: self.file,
                    line: number,
                    sid: sid_of(line),
                    kind: kind.to_owned(),
                    reason: fault.describe(line),
                };
                self.set.refuse(is_rule, found);
            }
            if !line.starts_with('#') {
                self.work += work_of(line, self.set.rules.len() > rules);
            }
            number += line.bytes().filter(|b| *b == b'\n').count() as u32;
        }
    }

    #[inline(never)]
    fn name(&mut self, name: &str) {
        self.file = match self.set.files.iter().rposition(|f| f == name) {
            Some(i) => i as u32,
            None => {
                self.set.files.push(name.to_owned());
                (self.set.files.len() - 1) as u32
            }
        };
    }

    /// Counts the rules that there is no time for, of which the first is listed. A loop of its own, because
    /// an iteration pays for all instructions in it.
    #[inline(never)]
    fn skip(&mut self, text: &str, number: u32) {
        let (mut count, mut begins) = (0u64, true);
        for byte in text.bytes() {
            count += u64::from(begins & !matches!(byte, b'#' | b'\n' | b'\r'));
            begins = byte == b'\n';
        }
        if count == 0 {
            return;
        }
        self.set.total += count;
        self.set.unlisted += count - 1;
        self.set.kinds.insert(BEYOND.to_owned(), count);
        let (kind, reason) = (BEYOND.to_owned(), format!("{BEYOND}, as all rules after it"));
        self.set.refuse(false, Unsupported { file: self.file, line: number, sid: 0, kind, reason });
    }

    /// Notes that a line other than a rule has no effect.
    #[inline(never)]
    fn refuse(&mut self, line: u32, sid: u32, kind: &str, reason: String) {
        let found = Unsupported { file: self.file, line, sid, kind: kind.to_owned(), reason };
        self.set.refuse(false, found);
    }

    /// Reads a line. A fault tells whether the line is a rule.
    #[inline(never)]
    fn line(&mut self, line: Piece<'_>, number: u32) -> Result<(), (bool, Wrong)> {
        let line = line.trim();
        if line.is_empty() || line.text.starts_with('#') {
            return Ok(());
        }
        let (word, rest) = line.word(&[':', '(']);
        let other = |result: Result<(), Wrong>| result.map_err(|wrong| (false, wrong));
        match word.text {
            "var" | "ipvar" | "portvar" => other(self.vars.define(word.text, rest)),
            "config" if rest.trim().text.starts_with("classification") => {
                let value = rest.trim().from("classification".len()).trim();
                other(match value.strip(":") {
                    Some(value) => self.classes.define(value.trim()),
                    None => wrong(value.at, "`:`"),
                })
            }
            // Names of systems that rules refer to.
            "config" if rest.trim().text.starts_with("reference") => Ok(()),
            kind if policy::is_line(kind) => {
                match other(self.policies.define(word, rest.trim(), &mut self.vars).map(|d| {
                    if let Err(reason) = d {
                        self.refuse(number, 0, &reason.clone(), reason);
                    }
                })) {
                    Ok(()) => Ok(()),
                    Err(fault) => Err(fault),
                }
            }
            "include"
            | "config"
            | "preprocessor"
            | "output"
            | "dynamicpreprocessor"
            | "dynamicengine"
            | "ruletype" => {
                let reason = format!("line of kind {}", word.text);
                self.refuse(number, 0, &reason.clone(), reason);
                Ok(())
            }
            action if header::is_action(action) => self.rule(line, number).map_err(|wrong| (true, wrong)),
            _ => {
                let expected = "a rule (alert …), var, ipvar, portvar, config classification or a comment";
                Err((true, Wrong { at: word.at, expected: expected.to_owned(), kind: None }))
            }
        }
    }

    #[inline(never)]
    fn rule(&mut self, line: Piece<'_>, number: u32) -> Result<(), Wrong> {
        let mut reasons = Vec::new();
        let (header, rest) = header::read(line, &mut self.vars, &mut reasons)?;
        let Some(inside) = rest.strip("(") else { return wrong(rest.at, "`(`") };
        let mut context = Context {
            header: &header,
            dialect: self.set.dialect,
            marks: &mut self.marks,
            unsupported: &mut reasons,
        };
        let o = options::read(inside, &mut context)?;
        let Some(sid) = o.sid else { return wrong(line.end() - 1, "an option sid before this parenthesis") };
        let gid = o.gid.unwrap_or(1);
        if let Some(reason) = reasons.first() {
            let found = Unsupported {
                file: self.file,
                line: number,
                sid,
                kind: reason.split(": ").next().unwrap_or(reason).to_owned(),
                reason: reasons.join("; "),
            };
            self.set.total += 1;
            self.set.refuse(true, found);
            return Ok(());
        }
        if let Some((file, first)) = self.seen.get(&(gid, sid)) {
            let name = self.set.files.get(*file as usize).map_or("", String::as_str);
            let of = if name.is_empty() || *file == self.file { "" } else { name };
            let place = if of.is_empty() { format!("line {first}") } else { format!("line {first} of {of}") };
            let expected = format!("sid {sid} is that of {place}");
            return Err(Wrong { at: line.at, expected, kind: Some("second of one sid".to_owned()) });
        }
        if self.set.rules.len() == MAX_RULES {
            let expected = format!("more than {MAX_RULES} rules");
            return Err(Wrong { at: line.at, kind: Some(expected.clone()), expected });
        }
        for part in &o.parts {
            let mut fast = part.steps.iter().filter_map(|s| match s {
                Step::Content(c) if c.fast.is_some() => Some(c.at),
                _ => None,
            });
            if let (Some(_), Some(at)) = (fast.next(), fast.next()) {
                return wrong(at, "fast_pattern at one content of a rule only");
            }
        }
        let (class, priority) = match &o.class {
            Some(name) => self.classes.find(name),
            None => ("".into(), class::DEFAULT),
        };
        self.seen.insert((gid, sid), (self.file, number));
        self.set.total += 1;
        self.set.rules.push(Rule {
            file: self.file,
            line: number,
            header,
            msg: o.msg.unwrap_or_default().into(),
            sid,
            gid,
            rev: o.rev.unwrap_or(1),
            class,
            priority: o.priority.unwrap_or(priority),
            metadata: o.metadata.into(),
            target: o.target,
            checks: o.checks.into(),
            flow: o.flow,
            parts: o.parts.into(),
            marks: o.marks.into(),
            rate: o.rate,
            suppressed: Box::default(),
            silent: o.silent,
        });
        Ok(())
    }

    fn finish(mut self) -> RuleSet {
        for rule in &mut self.set.rules {
            let (rate, suppressed) = self.policies.of(rule.gid, rule.sid, rule.rate);
            (rule.rate, rule.suppressed) = (rate, suppressed.into());
        }
        self.set
    }
}

/// Returns the number after `sid:` in a line that could not be read, or 0.
#[inline(never)]
fn sid_of(line: &str) -> u32 {
    let Some(at) = line.rfind("sid:") else { return 0 };
    let digits = line[at + 4..].trim_start();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}
