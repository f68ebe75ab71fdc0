//! Script(INSTRUCTION…, TYPE), DriverManager(INSTRUCTION…): run instructions: set, init, export, print,
//! printn, read, write, save, append, wait, wait_stop, pause, label, goto, loop, return, end, exit, stop,
//! error. TYPE is ACTIVE (at the start), PASSIVE (by its run handler), PACKET (for each packet) or DRIVER,
//! which DriverManager is: it waits for the run to stop, and ends the run when it ends.
//! Expects: packets, if it has inputs (TYPE PACKET).
//! Gives: the packet, by the output that `return` names; `exit` drops it.
//! Handlers: run (rw), step (w), goto (w), set (w), get, and functions such as add, eq, if, now, cat.
//! `random N` is below N, `random LOW HIGH` from LOW to HIGH. `kill SIGNAL PROCESS…` sends a signal, by
//! number or name, as `$(kill HUP 4711)`; `$$` is the number of this process.
//! Example: `Script(wait 1s, print c.count, stop)`

pub(super) mod functions;

use crate::registry::Setup;
use crate::runtime::element::{Cx, Element};
use crate::runtime::limits::LONGEST_VALUE;
use crate::runtime::packet::{Batch, Packet};
use flame_click::value::boolean;
use flame_click::{Args, Nanos, text};
use std::cell::{Cell, RefCell};

const SOURCE: &str = include_str!("script.rs");

/// Jumps in one run before it is given up.
const MAX_JUMPS: u32 = 1_000_000;
/// Variables of one script.
const MAX_VARIABLES: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Active,
    Passive,
    Packet,
    Driver,
}

struct Instruction {
    name: String,
    text: String,
}

/// The state of a run of a script.
#[derive(Clone, Default)]
struct Run {
    at: usize,
    args: Vec<String>,
    result: String,
    /// The number of stops that it still waits for.
    stops: i64,
    waits: bool,
    ended: bool,
    exited: bool,
}

pub struct Script {
    kind: Kind,
    program: Vec<Instruction>,
    pub(super) variables: RefCell<Vec<(String, String)>>,
    exported: RefCell<Vec<String>>,
    run: RefCell<Run>,
    /// Stops that no instruction has waited for yet.
    pending: Cell<i64>,
}

/// The handlers that others may use: of the functions, all but those that read files or send signals.
const HANDLERS: &[(&str, &str)] = &[
    ("run", "rwa"),
    ("step", "w"),
    ("goto", "w"),
    ("set", "w"),
    ("setq", "w"),
    ("get", "r"),
    ("add", "r"),
    ("sub", "r"),
    ("mul", "r"),
    ("div", "r"),
    ("idiv", "r"),
    ("mod", "r"),
    ("rem", "r"),
    ("neg", "r"),
    ("abs", "r"),
    ("min", "r"),
    ("max", "r"),
    ("eq", "r"),
    ("ne", "r"),
    ("lt", "r"),
    ("le", "r"),
    ("gt", "r"),
    ("ge", "r"),
    ("not", "r"),
    ("and", "r"),
    ("or", "r"),
    ("nand", "r"),
    ("nor", "r"),
    ("readable", "r"),
    ("writable", "r"),
    ("if", "r"),
    ("in", "r"),
    ("now", "r"),
    ("random", "ra"),
    ("htons", "r"),
    ("ntohs", "r"),
    ("htonl", "r"),
    ("ntohl", "r"),
    ("shift", "ra"),
    ("length", "r"),
    ("unquote", "r"),
    ("first", "r"),
    ("last", "r"),
    ("nth", "r"),
    ("sprintf", "r"),
];

const INSTRUCTIONS: &[&str] = &[
    "set",
    "setq",
    "init",
    "initq",
    "export",
    "exportq",
    "print",
    "printq",
    "printn",
    "printnq",
    "read",
    "readq",
    "write",
    "writeq",
    "save",
    "append",
    "wait",
    "wait_time",
    "wait_for",
    "wait_stop",
    "wait_step",
    "pause",
    "label",
    "goto",
    "loop",
    "return",
    "returnq",
    "end",
    "exit",
    "stop",
    "error",
    "errorq",
    "abort",
];

impl Script {
    fn position(&self, label: &str) -> Option<usize> {
        match label {
            "begin" | "loop" => Some(0),
            "end" => Some(self.program.len()),
            _ => self.program.iter().position(|i| i.name == "label" && i.text == label),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.variables.borrow().iter().find(|(n, _)| n == name).map(|(_, v)| v.clone())
    }

    pub(super) fn set(&self, name: &str, value: String) {
        let mut variables = self.variables.borrow_mut();
        let is_full = variables.len() >= MAX_VARIABLES;
        match variables.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = value,
            // Names can be computed; the list must not grow for ever.
            None if is_full => {}
            None => variables.push((name.to_owned(), value)),
        }
    }

    fn complain(cx: &Cx<'_>, error: &str) {
        let lines: String = error.lines().map(|l| format!("\n  {l}")).collect();
        cx.message(&format!("While executing '{}':{lines}", cx.declaration()));
    }

    /// Replaces `$name`, `$1`, `$#`, `$$` and `$(handler)`.
    pub(super) fn expand(&self, cx: &Cx<'_>, source: &str, args: &[String]) -> String {
        if !source.contains('$') || !cx.router.spend_bytes(source.len()) {
            return source.to_owned();
        }
        let s: Vec<char> = source.chars().collect();
        let (mut out, mut i, mut quote) = (String::new(), 0, None);
        while i < s.len() {
            if out.len() > LONGEST_VALUE {
                cx.router.give_up::<()>(&format!("{}: a text exceeds 1 MiB", cx.declaration()));
                return String::new();
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
                    if let Some((value, end)) = self.value(cx, &s, i + 1, args) {
                        if !cx.router.spend_bytes(value.len()) {
                            return String::new();
                        }
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
        out
    }

    /// Returns the value of the reference at `at`, and its end.
    fn value(&self, cx: &Cx<'_>, s: &[char], at: usize, args: &[String]) -> Option<(String, usize)> {
        match s.get(at)? {
            '(' => {
                let end = closing(s, at);
                // The scan is work even if nothing closes the parenthesis.
                if !cx.router.spend_bytes(end.unwrap_or(s.len()) - at) {
                    return None;
                }
                let end = end?;
                let _level = cx.router.enter_reference()?;
                let inside: String = s[at + 1..end].iter().collect();
                let inside = self.expand(cx, &inside, args);
                let (name, rest) = text::first_word(&inside);
                let value = cx.router.read(Some(cx.me), &text::unquote(&name), &rest);
                let value = value.unwrap_or_else(|e| {
                    Self::complain(cx, &e);
                    String::new()
                });
                Some((value, end + 1))
            }
            '#' => Some((args.len().to_string(), at + 1)),
            '*' => Some((args.join(" "), at + 1)),
            '$' => Some((std::process::id().to_string(), at + 1)),
            '{' => {
                let end = s[at..].iter().position(|c| *c == '}').map(|n| at + n);
                if !cx.router.spend_bytes(end.unwrap_or(s.len()) - at) {
                    return None;
                }
                cx.router.spend_bytes(self.variables.borrow().len());
                let end = end?;
                let name: String = s[at + 1..end].iter().collect();
                Some((self.named(&name, args)?, end + 1))
            }
            _ => {
                let length = s[at..].iter().take_while(|c| c.is_ascii_alphanumeric() || **c == '_').count();
                let name: String = s[at..at + length].iter().collect();
                cx.router.spend_bytes(self.variables.borrow().len());
                Some((self.named(&name, args)?, at + length))
            }
        }
    }

    fn named(&self, name: &str, args: &[String]) -> Option<String> {
        match name.parse::<usize>() {
            Ok(0) => Some(args.join(" ")),
            Ok(n) => Some(args.get(n - 1).cloned().unwrap_or_default()),
            Err(_) => self.get(name),
        }
    }

    /// Starts a run from the beginning.
    fn start(&self, cx: &Cx<'_>, argument: &str) -> Run {
        let run = Run { args: text::words(argument), ..Run::default() };
        self.go(cx, run)
    }

    /// Runs until the script waits or ends.
    fn go(&self, cx: &Cx<'_>, mut run: Run) -> Run {
        let mut jumps = 0;
        run.waits = false;
        while !run.waits && !run.ended {
            let Some(i) = self.program.get(run.at) else {
                run.ended = true;
                break;
            };
            if !cx.router.spend(1) {
                run.ended = true;
                break;
            }
            let from = run.at;
            run.at += 1;
            self.execute(cx, i, &mut run);
            if run.at <= from {
                jumps += 1;
                if jumps >= MAX_JUMPS {
                    cx.error("too many jumps, giving up");
                    run.ended = true;
                }
            }
        }
        run
    }

    fn execute(&self, cx: &Cx<'_>, i: &Instruction, run: &mut Run) {
        let is_quoted = i.name.ends_with('q');
        if i.name.starts_with("print") {
            if let Err(e) = self.print(cx, i, run) {
                Self::complain(cx, &e);
            }
            return;
        }
        let whole = self.expand(cx, &i.text, &run.args);
        match i.name.trim_end_matches('q') {
            "set" => {
                let (name, value) = text::first_word(&whole);
                cx.router.spend_bytes(self.variables.borrow().len());
                self.set(&name, if is_quoted { value } else { text::unquote(&value) });
            }
            // These were done at the start.
            "init" | "export" | "label" => {}
            "read" => {
                let (name, argument) = text::first_word(&whole);
                let argument = if is_quoted { text::unquote(&argument) } else { argument };
                match cx.router.read(Some(cx.me), &name, &argument) {
                    Ok(value) => {
                        let own = cx.router.target(Some(cx.me), &name).ok().and_then(|t| t.element);
                        let full = match own {
                            Some(_) if !name.contains('.') => format!("{}.{name}", cx.name()),
                            _ => name,
                        };
                        cx.message(&format!("{full}:\n{value}\n"));
                    }
                    Err(e) => Self::complain(cx, &e),
                }
            }
            "write" => {
                let (name, value) = text::first_word(&whole);
                let value = if is_quoted { text::unquote(&value) } else { value };
                if let Err(e) = cx.router.write(Some(cx.me), &name, &value) {
                    Self::complain(cx, &e);
                }
                // A write that stops the run stops this script, too.
                if name == "stop" && self.kind != Kind::Packet {
                    run.ended = true;
                }
            }
            "save" | "append" => {
                let words = text::words(&whole);
                let (call, file) = words.split_at(words.len().saturating_sub(1));
                let call = call.join(" ");
                let (name, argument) = text::first_word(&call);
                let result = cx.router.read(Some(cx.me), &name, &argument).and_then(|mut v| {
                    if !v.ends_with('\n') {
                        v.push('\n');
                    }
                    let file = text::unquote(file.first().map_or("-", String::as_str));
                    functions::write_file(cx, &file, &v, i.name == "append")
                });
                if let Err(e) = result {
                    Self::complain(cx, &e);
                }
            }
            "wait" | "wait_time" | "wait_for" if !(whole.is_empty() && self.kind == Kind::Driver) => {
                match Nanos::parse(text::unquote(&whole).trim()) {
                    Some(delay) if delay.0 >= 0 => {
                        cx.timer_after(0, delay);
                        run.waits = true;
                    }
                    _ => Self::complain(cx, &format!("wait: expected a time, found '{whole}'")),
                }
            }
            "wait" | "wait_stop" | "wait_step" | "pause" => {
                run.stops = whole.trim().parse().unwrap_or(1).max(1);
                let now = run.stops.min(self.pending.get());
                self.pending.set(self.pending.get() - now);
                run.stops -= now;
                run.waits = run.stops > 0;
            }
            "goto" => {
                cx.router.spend_bytes(self.program.len());
                let words = text::words(&whole);
                let condition = words.get(1).map_or(Some(true), |c| boolean(&text::unquote(c)));
                let label = words.first().map_or("", String::as_str);
                match (condition, self.position(label), label) {
                    (None, ..) => Self::complain(cx, &format!("goto: expected a condition, found '{whole}'")),
                    (Some(false), ..) => {}
                    (_, Some(at), _) => run.at = at,
                    (_, None, "exit" | "stop") => (run.ended, run.exited) = (true, true),
                    _ => Self::complain(cx, &format!("goto: no label '{label}'")),
                }
            }
            "loop" => run.at = 0,
            "return" => {
                run.result = if is_quoted { whole } else { text::unquote(&whole) };
                run.ended = true;
            }
            "end" => run.ended = true,
            "exit" | "abort" => (run.ended, run.exited) = (true, true),
            "stop" => {
                if self.kind != Kind::Driver {
                    cx.router.please_stop();
                }
                (run.ended, run.exited) = (true, true);
            }
            "error" => {
                Self::complain(cx, &text::unquote(&whole));
                (run.ended, run.exited) = (true, true);
            }
            _ => {}
        }
    }

    fn print(&self, cx: &Cx<'_>, i: &Instruction, run: &Run) -> Result<(), String> {
        let mut source = i.text.trim();
        let (mut file, mut appends) = ("-".to_owned(), false);
        if let Some(rest) = source.strip_prefix('>') {
            let rest = rest.strip_prefix('>').inspect(|_| appends = true).unwrap_or(rest);
            let (name, rest_at) = text::first_word(rest);
            file = text::unquote(&self.expand(cx, &name, &run.args));
            source = &source[source.len() - rest_at.len()..];
        }
        let expanded = self.expand(cx, source, &run.args);
        let mut value = match source.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '@' | '_'))
        {
            true => {
                let (name, argument) = text::first_word(&expanded);
                cx.router.read(Some(cx.me), &name, &argument)?
            }
            false => text::unquote(&expanded),
        };
        if !i.name.starts_with("printn") && !value.ends_with('\n') {
            value.push('\n');
        }
        functions::write_file(cx, &file, &value, appends)
    }

    /// Carries out `init` and `export`.
    fn prepare(&self, cx: &Cx<'_>) {
        for i in &self.program {
            let name = i.name.trim_end_matches('q');
            if matches!(name, "init" | "export") {
                let whole = self.expand(cx, &i.text, &[]);
                let (variable, value) = text::first_word(&whole);
                self.set(&variable, if i.name.ends_with('q') { value } else { text::unquote(&value) });
                if name == "export" {
                    self.exported.borrow_mut().push(variable);
                }
            }
        }
    }

    /// Continues with the run that waits. A driver that ends stops the run of the router.
    fn resume(&self, cx: &Cx<'_>) {
        let run = self.run.take();
        let run = self.go(cx, run);
        let ended = run.ended;
        *self.run.borrow_mut() = run;
        if ended && self.kind == Kind::Driver {
            cx.router.please_stop();
        }
    }

    fn stopped(&self, cx: &Cx<'_>, count: i64) -> Result<(), String> {
        if self.run.borrow().ended {
            return Err("the script has ended".into());
        }
        self.pending.set(self.pending.get() + count);
        let is_done = {
            let mut run = self.run.borrow_mut();
            let now = run.stops.min(self.pending.get());
            run.stops -= now;
            self.pending.set(self.pending.get() - now);
            now > 0 && run.stops == 0
        };
        if is_done {
            self.resume(cx);
        }
        match self.run.borrow().ended {
            true => Err("the script has ended".into()),
            false => Ok(()),
        }
    }

    fn packet(&self, cx: &Cx<'_>, p: Packet) -> Option<(usize, Packet)> {
        let run = self.start(cx, "");
        if run.exited {
            cx.drop("script", p);
            return None;
        }
        match run.result.trim().parse::<usize>() {
            Ok(port) => Some((port, p)),
            Err(_) if run.result.is_empty() => Some((0, p)),
            Err(_) => {
                cx.drop("script", p);
                None
            }
        }
    }
}

/// Returns the place of the parenthesis that closes the one at `at`.
fn closing(s: &[char], at: usize) -> Option<usize> {
    let (mut depth, mut quote, mut i) = (0, None, at);
    while i < s.len() {
        match (s[i], quote) {
            ('\\', Some('"')) => i += 1,
            (c, Some(q)) if c == q => quote = None,
            (_, Some(_)) => {}
            (c @ ('"' | '\''), None) => quote = Some(c),
            ('(', None) => depth += 1,
            (')', None) => {
                depth -= 1;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
        i += 1;
    }
    None
}

impl Element for Script {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        if self.kind == Kind::Driver {
            if cx.router.member.as_ref().is_some_and(|m| m.me != 0) {
                return Err("the script that manages the run is for thread 0: bind it to no other".into());
            }
            let mut drivers = cx.router.drivers.borrow_mut();
            if !drivers.contains(&cx.me) {
                drivers.push_back(cx.me);
            }
        }
        Ok(())
    }

    fn started(&self, cx: &Cx<'_>) {
        self.prepare(cx);
        if matches!(self.kind, Kind::Active | Kind::Driver) {
            self.resume(cx);
        }
    }

    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        self.resume(cx);
    }

    fn push(&self, cx: &Cx<'_>, _: usize, mut batch: Batch) {
        for p in batch.drain(..) {
            if let Some((port, p)) = self.packet(cx, p) {
                cx.push_or_drop(port, "no such output", p);
            }
        }
    }

    fn pull(&self, cx: &Cx<'_>, _: usize, _: usize, out: &mut Batch) {
        if let Some(p) = cx.pull_one(0)
            && let Some((port, p)) = self.packet(cx, p)
        {
            match port {
                0 => out.push(p),
                _ => cx.drop("no such output", p),
            }
        }
    }

    fn read(&self, cx: &Cx<'_>, name: &str, argument: &str) -> Option<Result<String, String>> {
        if name == "run" {
            let run = self.start(cx, argument);
            let result = run.result.clone();
            *self.run.borrow_mut() = run;
            return Some(Ok(result));
        }
        if name == "_has" {
            let known = functions::FUNCTIONS.contains(&argument) || argument == "run";
            let known = known || self.exported.borrow().iter().any(|n| n == argument);
            return Some(if known { Ok(String::new()) } else { Err(String::new()) });
        }
        if self.exported.borrow().iter().any(|n| n == name) {
            return self.get(name).map(Ok);
        }
        functions::call(self, cx, name, argument)
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        match name {
            "_stopped" => return Some(self.stopped(cx, value.parse().unwrap_or(1))),
            "run" => {
                let run = self.start(cx, value);
                *self.run.borrow_mut() = run;
            }
            "step" => {
                self.run.borrow_mut().stops = 0;
                self.resume(cx);
            }
            "goto" => match self.position(value.trim()) {
                Some(at) => {
                    *self.run.borrow_mut() = Run { at, ..Run::default() };
                    self.resume(cx);
                }
                None => return Some(Err(format!("no label '{}'", value.trim()))),
            },
            "set" | "setq" => {
                let (variable, value) = text::first_word(value);
                self.set(&variable, if name == "set" { text::unquote(&value) } else { value });
            }
            _ => return None,
        }
        Some(Ok(()))
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        HANDLERS
    }
}

fn script(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let is_driver = setup.class == "DriverManager";
    let kind = match args.key::<String>("TYPE").as_deref() {
        None if is_driver => Kind::Driver,
        None if setup.inputs > 0 => Kind::Packet,
        None | Some("ACTIVE") => Kind::Active,
        Some("DRIVER") => Kind::Driver,
        Some("PASSIVE") => Kind::Passive,
        Some("PACKET") => Kind::Packet,
        Some(other) => {
            args.error(format!("TYPE: expected ACTIVE, PASSIVE, PACKET or DRIVER, found '{other}'"));
            Kind::Active
        }
    };
    let mut program = Vec::new();
    for arg in args.rest().iter().filter(|a| !a.is_empty()) {
        let (name, text) = text::first_word(arg);
        match INSTRUCTIONS.contains(&name.as_str()) {
            true => program.push(Instruction { name, text }),
            false => args.error(format!("unknown instruction '{name}'")),
        }
    }
    Box::new(Script {
        kind,
        program,
        variables: RefCell::default(),
        exported: RefCell::default(),
        run: RefCell::default(),
        pending: Cell::new(0),
    })
}

class!(SCRIPT, "Script", "-/-", "a/a", ["TYPE"], script);
class!(DRIVER_MANAGER, "DriverManager", "0/0", "a/a", ["TYPE"], script);
