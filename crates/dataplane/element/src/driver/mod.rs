//! The command `click`: reads a configuration, runs it, and prints the values of handlers.

mod check;
mod options;
mod terminal;

pub use options::{Invocation, USAGE, What};
pub use terminal::Terminal;

use crate::modules::Modules;
use crate::runtime::past::Past;
use crate::runtime::router::{Parse, Stream};
use crate::runtime::threads::run::{Parts, Run, run as run_parts};
use crate::{Account, Clock, Environment, Outcome, Router, find};
use flame_click::{Connection, Element, Graph, input, text};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Reads a configuration.
pub type Reading = fn(&[u8], &str, &[(String, String)]) -> Result<Graph, String>;

/// The most that a packet may cost, and the parts of the path that attains it: elements, and how often each
/// part is taken.
pub type Worst = (f64, Vec<(Vec<usize>, u32)>);

/// The question where polls belong: a graph, the costs of its elements, those where packets wait, the most
/// that a segment may cost, the cost of `Poll`, and whether packets are pushed along a connection.
pub struct Division<'a> {
    pub graph: &'a Graph,
    pub costs: &'a [f64],
    pub waits: &'a [bool],
    pub limit: f64,
    pub poll: f64,
    pub is_push: &'a dyn Fn(&Connection) -> bool,
    /// Ends the search, which takes a while for large graphs.
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// A graph with polls, the connections that have one now, and its most costly segment.
pub type Divided = (Graph, Vec<Connection>, f64);

/// The language, which this crate does not know.
#[derive(Clone, Copy)]
pub struct Language {
    /// Reads a configuration: bytes, name, variables.
    pub read: Reading,
    /// Describes the cycles of a graph that no `Loop` bounds.
    pub cycles: fn(&Graph) -> Vec<String>,
    /// Returns the most that a packet may cost, from the costs of elements.
    pub bound: fn(&Graph, &[f64]) -> Worst,
    /// Returns the most that a packet may cost between two elements where it waits.
    pub segment: fn(&Graph, &[f64], &[bool]) -> Worst,
    /// Inserts polls until each segment is within a limit, or states why none do.
    pub insert_polls: fn(&Division<'_>) -> Result<Divided, String>,
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
    let past = Arc::default();
    let command = Command { invocation, language, modules, interrupt, stdout, stderr, past };
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
    let (variables, sockets) = (invocation.variables.clone(), invocation.sockets.clone());
    let parse: Parse = Box::new(move |text| {
        let graph = (language.read)(&text::encode(text), "hotconfig", &variables)?;
        Ok(with_sockets(graph, &sockets))
    });
    invocation.reconfigure.then(|| Rc::new(parse))
}

/// Returns the graph with a `ControlSocket` for each of these arguments, named as in Click.
fn with_sockets(mut graph: Graph, sockets: &[String]) -> Graph {
    let names = (1..).map(|n| match n {
        1 => "click_driver@@ControlSocket".to_owned(),
        n => format!("click_driver@@ControlSocket@{n}"),
    });
    let (class, landmark) = ("ControlSocket".to_owned(), "command line".to_owned());
    let element = |(name, config): (String, &String)| Element {
        name,
        class: class.clone(),
        config: config.clone(),
        landmark: landmark.clone(),
    };
    graph.elements.extend(names.zip(sockets).map(element));
    graph
}

/// Runs all threads, of which a router may be the first. Returns the last, when nothing of others is left.
fn last(first: Rc<Router>, run: Run<'_>) -> Result<Rc<Router>, String> {
    drop(first);
    run()
}

/// Elements that are named at the end because of packets that were left or lost.
const MOST_LEFT: usize = 20;

/// Returns a line for each element in which packets were left, and for each that lost packets although
/// neither they nor its arguments are the cause.
fn left(router: &Router) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut named, mut more) = (0, 0);
    for (i, node) in router.nodes.iter().enumerate() {
        // Another thread may have the element.
        let Ok(account) = router.read(None, &format!("{}.account", node.name), "") else { continue };
        let left = Account::left(&account, !node.inputs.is_empty());
        if left.is_empty() {
            continue;
        }
        named += 1;
        match named <= MOST_LEFT {
            true => lines.extend(left.iter().map(|text| format!("{}: {text}", router.declaration(i)))),
            false => more += 1,
        }
    }
    if more > 0 {
        lines.push(format!("(and packets in {more} more elements: `-h '*.account'`)"));
    }
    lines
}

struct Command<'a> {
    invocation: &'a Invocation,
    language: Language,
    modules: Option<Arc<dyn Modules>>,
    interrupt: Arc<AtomicBool>,
    stdout: Stream,
    stderr: Stream,
    past: Arc<Past>,
}

impl Command<'_> {
    fn complain(&self, message: &str) {
        // If standard error is closed, the message is lost.
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
                let cost = class.cost_class().unwrap_or("by analysis");
                let (ports, processing) = (class.ports, class.processing);
                self.say(&format!("{}\n\nports {ports}, {processing}, cost {cost}\n", class.manual()))
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
            past: self.past.clone(),
            member: None,
        }
    }

    fn run_router(&self) -> Result<u8, String> {
        let (bytes, name) = self.source()?;
        let text = text::decode(&bytes);
        let graph = (self.language.read)(&bytes, &name, &self.invocation.variables)?;
        let graph = with_sockets(graph, &self.invocation.sockets);
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
        Ok(status.max(u8::from(self.past.has_failed())))
    }

    /// Runs a configuration in several threads.
    fn run_threads(&self, graph: &Graph, text: &str) -> Result<u8, String> {
        let (seed, modules, interrupt) = (self.invocation.seed, self.modules.clone(), self.interrupt.clone());
        let (invocation, language, past) = (self.invocation, self.language, self.past.clone());
        let parse = move || parse_of(invocation, language);
        let environment = move || {
            let (stdout, stderr) = streams();
            let (modules, interrupt) = (modules.clone(), interrupt.clone());
            let (clock, parse, past) = (Rc::new(Clock::real()), parse(), past.clone());
            Environment { clock, stdout, stderr, interrupt, seed, modules, parse, past, member: None }
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
        Ok(status.max(u8::from(self.past.has_failed())))
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

    /// Prints the time since `start`, the handlers, and packets that were left. Returns the exit status.
    fn report(&self, router: &Router, start: Instant) -> Result<u8, String> {
        if self.invocation.time {
            let elapsed = start.elapsed();
            self.complain(&format!("{}.{:03}s real", elapsed.as_secs(), elapsed.subsec_millis()));
        }
        let is_fine = self.read_handlers(router)?;
        for line in left(router) {
            self.complain(&line);
        }
        Ok(u8::from(!is_fine))
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
