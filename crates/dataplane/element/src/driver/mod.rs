//! The command `click`: reads a configuration, runs it, and prints the values of handlers.

mod options;
mod terminal;

pub use options::{Invocation, USAGE, What};
pub use terminal::Terminal;

use crate::modules::Modules;
use crate::runtime::measure::{Cost, Measurer};
use crate::runtime::router::{Parse, Stream};
use crate::runtime::threads::run::{Parts, Run, run as run_parts};
use crate::{Clock, Environment, Outcome, Router, find};
use flame_click::{Graph, input, text};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Reads a configuration.
pub type Reading = fn(&[u8], &str, &[(String, String)]) -> Result<Graph, String>;

/// Computes the most that a packet may cost.
pub type Bounding = fn(&Graph, &[f64]) -> (f64, Vec<(Vec<usize>, u32)>);

/// The language, which this crate does not know.
#[derive(Clone, Copy)]
pub struct Language {
    /// Reads a configuration: bytes, name, variables.
    pub read: Reading,
    /// Describes the cycles of a graph that no `Loop` bounds.
    pub cycles: fn(&Graph) -> Vec<String>,
    /// Returns the most that a packet may cost, from the costs of elements, and the parts of the path that
    /// attains it, with how often each is taken.
    pub bound: Bounding,
    /// Draws a graph as SVG.
    pub draw: fn(&Graph) -> Result<String, String>,
}

/// Runs the command. Returns its exit status.
pub fn run(
    invocation: &Invocation,
    language: Language,
    modules: Option<Arc<dyn Modules>>,
    interrupt: Arc<AtomicBool>,
) -> u8 {
    let (stdout, stderr) = streams();
    let command = Command { invocation, language, modules, interrupt, stdout, stderr };
    match command.run() {
        Ok(status) => status,
        Err(message) => {
            command.complain(&message);
            1
        }
    }
}

fn not_initialized(messages: String) -> String {
    format!("{messages}\nRouter could not be initialized!")
}

/// Returns standard output and standard error.
fn streams() -> (Stream, Stream) {
    (Rc::new(RefCell::new(Terminal::stdout())), Rc::new(RefCell::new(Terminal::stderr())))
}

/// Returns the parser of configurations for `hotconfig`, if that is allowed.
fn parse_of(invocation: &Invocation, language: Language) -> Option<Rc<Parse>> {
    let variables = invocation.variables.clone();
    let parse: Parse = Box::new(move |text| (language.read)(&text::encode(text), "hotconfig", &variables));
    invocation.reconfigure.then(|| Rc::new(parse))
}

/// Runs all threads, of which a router may be the first. Returns the last, when nothing of others is left.
fn last(first: Rc<Router>, run: Run<'_>) -> Result<Rc<Router>, String> {
    drop(first);
    run()
}

/// The elements that are listed as not measured. Further ones are counted.
const MOST_UNKNOWN: usize = 100;

struct Command<'a> {
    invocation: &'a Invocation,
    language: Language,
    modules: Option<Arc<dyn Modules>>,
    interrupt: Arc<AtomicBool>,
    stdout: Stream,
    stderr: Stream,
}

impl Command<'_> {
    fn complain(&self, message: &str) {
        // If standard error is closed, nobody reads the message.
        let _ = self.stderr.borrow_mut().write_all(&text::encode(&format!("{message}\n")));
    }

    fn say(&self, message: &str) -> Result<(), String> {
        let mut out = self.stdout.borrow_mut();
        out.write_all(&text::encode(message))
            .and_then(|()| out.flush())
            .map_err(|e| format!("standard output: {e}"))
    }

    fn run(&self) -> Result<u8, String> {
        match &self.invocation.what {
            options::What::Help(None) => self.say(USAGE).map(|()| 0),
            options::What::Help(Some(name)) => self.help(name),
            options::What::Version => self.say(&format!("{}\n", env!("CARGO_PKG_VERSION"))).map(|()| 0),
            options::What::Flatten => {
                let (bytes, name) = self.source()?;
                let graph = (self.language.read)(&bytes, &name, &self.invocation.variables)?;
                self.output(&graph.unparse(), self.invocation.output.as_deref().unwrap_or("-"))?;
                Ok(0)
            }
            options::What::Draw => {
                let (bytes, name) = self.source()?;
                let graph = (self.language.read)(&bytes, &name, &self.invocation.variables)?;
                let svg = (self.language.draw)(&graph)?;
                self.output(&svg, self.invocation.output.as_deref().unwrap_or("-"))?;
                Ok(0)
            }
            options::What::Check => self.check(),
            options::What::Run => self.run_router(),
        }
    }

    fn help(&self, name: &str) -> Result<u8, String> {
        match find(name) {
            Some(class) => {
                self.say(&format!("{}\n\nports {}, {}\n", class.manual(), class.ports, class.processing))
            }
            None if name == "list" => {
                self.say(&crate::CLASSES.iter().map(|c| format!("{}\n", c.name)).collect::<String>())
            }
            None => return Err(format!("no element class '{name}' (`help list` names them)")),
        }?;
        Ok(0)
    }

    /// Reads the text of the configuration. Returns it and its name.
    fn source(&self) -> Result<(Vec<u8>, String), String> {
        use options::Source;
        match &self.invocation.source {
            Source::Expression(text) => Ok((text.clone(), "config".into())),
            Source::File(name) if name != "-" => {
                let file = std::fs::File::open(name).map_err(|e| e.to_string());
                let bytes = file.and_then(|f| input::read(f, input::MOST_BYTES));
                bytes.map(|b| (b, name.clone())).map_err(|e| format!("{name}: {e}"))
            }
            _ => {
                let bytes = input::read(std::io::stdin(), input::MOST_BYTES);
                Ok((bytes.map_err(|e| format!("<stdin>: {e}"))?, "<stdin>".into()))
            }
        }
    }

    fn output(&self, text: &str, file: &str) -> Result<(), String> {
        match file {
            "-" => self.say(text),
            name => std::fs::write(name, text::encode(text)).map_err(|e| format!("{name}: {e}")),
        }
    }

    fn environment(&self) -> Environment {
        Environment {
            clock: Rc::new(if self.invocation.simtime { Clock::simulated() } else { Clock::real() }),
            stdout: self.stdout.clone(),
            stderr: self.stderr.clone(),
            interrupt: self.interrupt.clone(),
            parse: parse_of(self.invocation, self.language),
            seed: self.invocation.seed,
            modules: self.modules.clone(),
            member: None,
        }
    }

    fn check(&self) -> Result<u8, String> {
        let (bytes, name) = self.source()?;
        let graph = (self.language.read)(&bytes, &name, &self.invocation.variables)?;
        let cycles = (self.language.cycles)(&graph);
        // Nothing runs: elements are made and connected, but files are not opened.
        let router = Router::check(&graph, self.modules.clone())?;
        for cycle in &cycles {
            self.complain(&format!("{name}: cycle without Loop: {cycle}"));
        }
        if !cycles.is_empty() {
            return Ok(1);
        }
        let (elements, connections) = (graph.elements.len(), graph.connections.len());
        let mut out =
            format!("{name}: {elements} elements, {connections} connections, no cycle without Loop\n");
        let status = self.bound(&router, &name, &mut out);
        // At once: who reads the first line only gets the others as well.
        self.say(&out)?;
        status
    }

    /// Writes the most that a packet may cost, with the path that attains it.
    fn bound(&self, router: &Router, name: &str, out: &mut String) -> Result<u8, String> {
        let graph = &router.graph;
        let (mut costs, mut unknown) = (Vec::new(), Vec::new());
        let mut measurer = Measurer::new(graph, self.interrupt.clone());
        let mut unbounded = Vec::new();
        for (i, element) in graph.elements.iter().enumerate() {
            let declaration = format!("{} :: {}", element.name, element.class);
            costs.push(match router.element(i).cost_ns() {
                Some(Ok(ns)) => Some(ns),
                Some(Err(why)) => {
                    self.complain(&format!("{name}: {declaration} has no bound: {why}"));
                    unbounded.push(i);
                    None
                }
                None => match measurer.cost(i) {
                    Cost::Measured(ns) => Some(ns),
                    Cost::None => Some(0.0),
                    Cost::Unknown(why) => {
                        unknown.push(format!("{declaration}: {why}\n"));
                        None
                    }
                },
            });
            if self.interrupt.load(std::sync::atomic::Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
        }
        let known: Vec<f64> = costs.iter().map(|cost| cost.unwrap_or(0.0)).collect();
        let (most, parts) = (self.language.bound)(graph, &known);
        let without = match (unbounded.is_empty(), unknown.is_empty()) {
            (true, true) => "",
            (true, false) => ", without elements that are not measured",
            (false, true) => ", without modules that have no bound",
            (false, false) => ", without modules that have no bound and elements that are not measured",
        };
        *out += &format!("a packet costs at most {most:.0} ns on this machine{without}:\n");
        for (path, times) in parts {
            for (n, at) in path.iter().enumerate() {
                let element = &graph.elements[*at];
                let times = if n == 0 && times > 1 {
                    format!("  (all of this {times} times)")
                } else {
                    String::new()
                };
                let absent = if unbounded.contains(at) { "no bound" } else { "?" };
                let cost = costs[*at].map_or(absent.to_owned(), |ns| format!("{ns:.1}"));
                *out += &format!("{cost:>9}  {} :: {}{times}\n", element.name, element.class);
            }
        }
        if !unknown.is_empty() {
            *out += "not measured:\n";
            unknown.iter().take(MOST_UNKNOWN).for_each(|line| *out += &format!("  {line}"));
            let more = unknown.len().saturating_sub(MOST_UNKNOWN);
            if more > 0 {
                *out += &format!("  and {more} more\n");
            }
        }
        Ok(u8::from(!unbounded.is_empty()))
    }

    fn run_router(&self) -> Result<u8, String> {
        let (bytes, name) = self.source()?;
        let text = text::decode(&bytes);
        let graph = (self.language.read)(&bytes, &name, &self.invocation.variables)?;
        if self.invocation.threads > 1 && !self.invocation.simtime {
            return self.run_threads(&graph, &text);
        }
        let env = self.environment();
        let mut router = Router::new(graph, &text, env.clone()).map_err(not_initialized)?;
        self.begin(&router)?;
        let start = Instant::now();
        if !self.invocation.quit {
            while router.run() == Outcome::Replaced {
                let Some((graph, text)) = router.take_hotconfig() else { continue };
                match Router::new(graph, &text, env.clone()) {
                    Ok(new) => {
                        new.take_state(&router);
                        router.cleanup();
                        router = new;
                    }
                    Err(messages) => self.complain(&messages),
                }
            }
        }
        let status = self.report(&router, start)?;
        router.cleanup();
        self.finish()?;
        Ok(status)
    }

    /// Runs a configuration in several threads.
    fn run_threads(&self, graph: &Graph, text: &str) -> Result<u8, String> {
        let (seed, modules, interrupt) = (self.invocation.seed, self.modules.clone(), self.interrupt.clone());
        let (invocation, language) = (self.invocation, self.language);
        let parse = move || parse_of(invocation, language);
        let environment = move || {
            let (stdout, stderr) = streams();
            let (modules, interrupt) = (modules.clone(), interrupt.clone());
            let (clock, parse) = (Rc::new(Clock::real()), parse());
            Environment { clock, stdout, stderr, interrupt, seed, modules, parse, member: None }
        };
        let threads = self.invocation.threads;
        let parts = Parts { graph, text, threads, environment: &environment };
        let mut is_ready = false;
        let status = run_parts(&parts, |router, run| {
            is_ready = true;
            self.begin(&router)?;
            let start = Instant::now();
            let router = if self.invocation.quit { router } else { last(router, run)? };
            self.report(&router, start)
        });
        let status = status.map_err(|e| if is_ready { e } else { not_initialized(e) })?;
        self.finish()?;
        Ok(status)
    }

    /// Writes the configuration and opens the output of records.
    fn begin(&self, router: &Router) -> Result<(), String> {
        if let Some(file) = &self.invocation.output {
            self.output(&router.graph.unparse(), file)?;
        }
        self.modules.as_ref().map_or(Ok(()), |modules| modules.begin())
    }

    fn finish(&self) -> Result<(), String> {
        self.modules.as_ref().map_or(Ok(()), |modules| modules.finish())
    }

    /// Prints the time since `start` and the handlers. Returns the exit status.
    fn report(&self, router: &Router, start: Instant) -> Result<u8, String> {
        if self.invocation.time {
            let elapsed = start.elapsed();
            self.complain(&format!("{}.{:03}s real", elapsed.as_secs(), elapsed.subsec_millis()));
        }
        Ok(u8::from(!self.read_handlers(router)?))
    }

    /// Prints the handlers that were asked for. Returns whether all could be read.
    fn read_handlers(&self, router: &Router) -> Result<bool, String> {
        let mut names = Vec::new();
        for name in &self.invocation.handlers {
            match name.split_once('.') {
                Some(("*", handler)) => {
                    let all = router.nodes.iter().map(|n| format!("{}.{handler}", n.name));
                    names.extend(all.filter(|n| router.read(None, n, "").is_ok()));
                }
                _ => names.push(name.clone()),
            }
        }
        let is_many = names.len() > 1 || self.invocation.handlers.iter().any(|h| h.contains('*'));
        let mut is_fine = true;
        for name in names {
            match router.read(None, &name, "") {
                Ok(value) => {
                    let end = if value.ends_with('\n') || value.is_empty() { "" } else { "\n" };
                    match is_many {
                        true => self.say(&format!("{name}:\n{value}{end}\n"))?,
                        false => self.say(&format!("{value}{end}"))?,
                    }
                }
                Err(e) => {
                    self.complain(&e);
                    is_fine = false;
                }
            }
        }
        Ok(is_fine)
    }
}
