//! Reads rule files line by line.

use super::fault::{Wrong, wrong};
use super::options::{self, Context};
use super::start::{BEYOND, BEYOND_MEMORY, REMEDY};
use super::text::Piece;
use super::vars::Variables;
use super::{MAX_RULES, Rule, RuleSet, Source, Step, Unsupported, class, header, mark, policy};
use std::collections::BTreeMap;

/// The reason for a rule whose number another one has.
const SECOND: &str = "second of one sid";

/// The beginning of a line that names the file of the lines after it.
pub const FILE: &str = "#!file ";

/// The mark at the beginning of a file that some editors write.
const BOM: char = '\u{feff}';
/// The largest number of files whose names are kept.
const MOST_FILES: usize = 65_536;

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
        by_name: BTreeMap::new(),
        file: 0,
        has_rules: true,
        set: RuleSet {
            files: vec![String::new()],
            dialect: source.dialect,
            midstream: source.midstream,
            ..RuleSet::default()
        },
    };
    for (line, reason) in reader.vars.read(source.vars) {
        reader.name("vars");
        reader.refuse(line, 0, "variables", reason);
    }
    if !source.thresholds.is_empty() {
        reader.name("thresholds");
        reader.has_rules = false;
        reader.lines(source.thresholds);
    }
    (reader.file, reader.has_rules) = (0, true);
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

/// The largest number of bytes of a line.
const MOST_LINE: usize = 1 << 20;

#[inline(never)]
fn lines_in(text: &str) -> u32 {
    memchr::memchr_iter(b'\n', text.as_bytes()).count() as u32
}

/// Returns the number of lines that are neither empty nor comments.
#[inline(never)]
fn rules_in(bytes: &[u8]) -> u64 {
    const CHUNK: usize = 128;
    let is_rule = |byte: u8| u8::from(byte != b'#') & u8::from(byte != b'\n') & u8::from(byte != b'\r');
    let begins = |(before, first): (&u8, &u8)| u8::from(*before == b'\n') & is_rule(*first);
    let first = u64::from(bytes.first().map_or(0, |byte| is_rule(*byte)));
    let after = bytes.get(1..).unwrap_or_default();
    // A sum in a byte for each chunk, so that the compiler uses vectors.
    let chunks = bytes.chunks(CHUNK).zip(after.chunks(CHUNK));
    first
        + chunks
            .map(|(before, after)| u64::from(before.iter().zip(after).map(begins).sum::<u8>()))
            .sum::<u64>()
}

/// The number of comments that are read at once.
const COMMENTS: u32 = 1 << 12;

/// Returns the length of some of the comments and empty lines that a text begins with, and their number.
/// Names of files are none.
#[inline(never)]
fn comments(text: &str) -> (usize, u32) {
    let bytes = text.as_bytes();
    let (mut at, mut lines) = (0, 0);
    while let Some(first) = bytes.get(at).filter(|_| lines < COMMENTS) {
        let rest = &bytes[at..];
        if *first != b'\n' && (*first != b'#' || rest.starts_with(FILE.as_bytes())) {
            break;
        }
        at += memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        lines += 1;
    }
    (at, lines)
}

struct Reader {
    vars: Variables,
    classes: class::Classes,
    policies: policy::Policies,
    marks: mark::Numbers,
    /// The places of the rules so far in [`RuleSet::rules`], by gid and sid.
    seen: BTreeMap<(u32, u32), usize>,
    /// The numbers of the files by name.
    by_name: BTreeMap<String, u32>,
    /// The current file.
    file: u32,
    /// Whether it has rules, and not only lines about their alerts.
    has_rules: bool,
    set: RuleSet,
}

impl Reader {
    fn lines(&mut self, text: &str) {
        let mut number = 1;
        let mut rest = text.trim_start_matches(BOM);
        loop {
            if rest.is_empty() {
                return;
            }
            if !self.vars.start.has_time_to_skip(rest.len()) {
                return self.skip(rest, number);
            }
            let (comments, lines) = comments(rest);
            if lines > 0 {
                self.vars.start.comments(comments, lines);
                (rest, number) = (&rest[comments..], number + lines);
                continue;
            }
            let (line, after) = rest.split_at(line_end(rest));
            if line.len() > MOST_LINE {
                let reason = format!("a line of more than {MOST_LINE} bytes");
                let kind = "line too long".to_owned();
                let found = Unsupported { file: self.file, line: number, sid: 0, kind, reason };
                self.set.total += u64::from(self.has_rules);
                self.set.refuse(self.has_rules, found);
                self.vars.start.comments(4 * line.len(), 1);
                (rest, number) = (after, number + lines_in(line));
                continue;
            }
            if !self.vars.start.has_time_for(line.len(), rest.len()) {
                return self.skip(rest, number);
            }
            rest = after;
            if let Some(name) = line.strip_prefix(FILE) {
                self.vars.start.other(4 * line.len());
                self.name(name.trim());
                rest = rest.trim_start_matches(BOM);
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
                    // A description costs more than what is read, and only listed lines need one.
                    reason: if self.set.is_full() { String::new() } else { fault.describe(line) },
                };
                self.set.refuse(is_rule, found);
            }
            match self.set.rules.len() > rules {
                true => self.vars.start.rule(line.len()),
                false => self.vars.start.other(line.len()),
            }
            number += lines_in(line);
        }
    }

    #[inline(never)]
    fn name(&mut self, name: &str) {
        self.file = match self.by_name.get(name) {
            Some(file) => *file,
            None if self.set.files.len() < MOST_FILES => {
                self.set.files.push(name.to_owned());
                let file = (self.set.files.len() - 1) as u32;
                self.by_name.insert(name.to_owned(), file);
                file
            }
            None => self.file,
        };
    }

    /// Counts the rules that there is no time for, of which the first is listed.
    #[inline(never)]
    fn skip(&mut self, text: &str, number: u32) {
        let count = rules_in(text.as_bytes());
        if count == 0 {
            return;
        }
        self.set.total += count;
        self.set.unlisted += count - 1;
        self.set.kinds.insert(BEYOND.to_owned(), count);
        let (kind, reason) = (BEYOND.to_owned(), format!("{BEYOND}, as all rules after it: {REMEDY}"));
        self.set.refuse(false, Unsupported { file: self.file, line: number, sid: 0, kind, reason });
    }

    /// Notes that a line other than a rule has no effect.
    #[inline(never)]
    fn refuse(&mut self, line: u32, sid: u32, kind: &str, reason: String) {
        let found = Unsupported { file: self.file, line, sid, kind: kind.to_owned(), reason };
        self.set.refuse(false, found);
    }

    /// Reads a line. A fault states whether the line is a rule.
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
                let place = (self.file, number);
                match other(self.policies.define(word, rest.trim(), place, &mut self.vars).map(|d| {
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
            _ if !self.has_rules => {
                other(wrong(word.at, "threshold, event_filter, suppress, rate_filter or a comment"))
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
            start: &mut self.vars.start,
            header: &header,
            dialect: self.set.dialect,
            marks: &mut self.marks,
            unsupported: &mut reasons,
        };
        let mut o = options::read(inside, &mut context)?;
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
        let rev = o.rev.unwrap_or(1);
        let before = self.seen.get(&(gid, sid)).copied();
        if let Some(before) = before.map(|at| &self.set.rules[at]).filter(|before| before.rev >= rev) {
            let place = self.place(before.file, before.line);
            let expected = format!("sid {sid} has revision {} at {place}", before.rev);
            return Err(Wrong { at: line.at, expected, kind: Some(SECOND.to_owned()) });
        }
        if before.is_none() && self.set.rules.len() == MAX_RULES {
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
        let steps = o.parts.iter().map(|part| part.steps.len()).sum();
        if !self.vars.start.keep(line.text.len(), o.parts.len(), steps) {
            return Err(Wrong {
                at: line.at,
                expected: BEYOND_MEMORY.to_owned(),
                kind: Some(BEYOND_MEMORY.to_owned()),
            });
        }
        // Most parts have a single step, where a vector has room for four.
        o.parts.iter_mut().for_each(|part| part.steps.shrink_to_fit());
        self.set.total += 1;
        let rule = Rule {
            file: self.file,
            line: number,
            header,
            msg: o.msg.unwrap_or_default().into(),
            sid,
            gid,
            rev,
            class: o.class.unwrap_or_default().into(),
            // Until all files are read.
            priority: o.priority.unwrap_or(0),
            metadata: o.metadata.into(),
            target: o.target,
            checks: o.checks.into(),
            flow: o.flow,
            parts: o.parts.into(),
            marks: o.marks.into(),
            rate: o.rate,
            suppressed: Box::default(),
            silent: o.silent,
        };
        let Some(before) = before else {
            self.seen.insert((gid, sid), self.set.rules.len());
            self.set.rules.push(rule);
            return Ok(());
        };
        // The newer revision takes the place of the older one.
        let reason = format!("{SECOND}: {} has revision {rev}", self.place(self.file, number));
        let older = std::mem::replace(&mut self.set.rules[before], rule);
        let (file, line) = (older.file, older.line);
        self.set.refuse(true, Unsupported { file, line, sid, kind: SECOND.to_owned(), reason });
        Ok(())
    }

    /// Returns the place of a line for a line of the current file.
    #[cold]
    fn place(&self, file: u32, line: u32) -> String {
        match self.set.files.get(file as usize).filter(|name| file != self.file && !name.is_empty()) {
            Some(name) => format!("line {line} of {name}"),
            None => format!("line {line}"),
        }
    }

    fn finish(mut self) -> RuleSet {
        self.set.start = self.vars.start;
        for rule in &mut self.set.rules {
            let (rate, suppressed) = self.policies.of(rule.gid, rule.sid, rule.rate);
            (rule.rate, rule.suppressed) = (rate, suppressed.into());
            // Classes may be defined after their rules.
            let (class, priority) = match &*rule.class {
                "" => ("".into(), class::DEFAULT),
                name => self.classes.find(name),
            };
            rule.class = class;
            if rule.priority == 0 {
                rule.priority = priority;
            }
        }
        for ((file, line), reason) in self.policies.idle() {
            let kind = "line without effect".to_owned();
            let reason = format!("{kind}: {reason}");
            self.set.refuse(false, Unsupported { file, line, sid: 0, kind, reason });
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
