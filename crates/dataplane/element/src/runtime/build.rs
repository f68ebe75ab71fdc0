//! Builds a router from a graph, in Click's order: classes, ports, push and pull, arguments, initialization.

use super::names::Names;
use super::ports::{self, Mode, Modes};
use super::router::{Environment, Input, Node, Output, Router};
use crate::registry::{self, Class, Setup};
use flame_click::{Args, Graph, Scope};
use std::cell::RefCell;
use std::collections::HashMap;

/// What elements see of the configuration while they are made.
pub struct Partial<'a> {
    pub graph: &'a Graph,
    pub warnings: RefCell<Vec<String>>,
    pub seed: u64,
}

impl Partial<'_> {
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.borrow_mut().push(format!("warning: {}", text.into()));
    }
}

/// Features that a configuration may require.
const FEATURES: &[&str] = &["compact_config", "userlevel", "int64"];

struct Builder<'a> {
    graph: &'a Graph,
    errors: Vec<String>,
}

impl Builder<'_> {
    fn error(&mut self, element: usize, text: String) {
        self.errors.push(format!("{}: {text}", self.graph.elements[element].landmark));
    }

    fn declaration(&self, element: usize) -> String {
        let e = &self.graph.elements[element];
        format!("{} :: {}", e.name, e.class)
    }

    fn classes(&mut self) -> Vec<&'static Class> {
        for requirement in &self.graph.requirements {
            if !FEATURES.contains(&requirement.as_str()) && registry::find(requirement).is_none() {
                self.errors.push(format!("config: requirement '{requirement}' is not available"));
            }
        }
        let mut all = Vec::new();
        for (i, e) in self.graph.elements.iter().enumerate() {
            match registry::find(&e.class) {
                Some(class) => all.push(class),
                None => self.error(i, format!("unknown element class '{}'", e.class)),
            }
        }
        all
    }

    /// Returns the numbers of ports. A port beyond those that a class has is an error.
    fn counts(&mut self, classes: &[&'static Class]) -> Vec<(usize, usize)> {
        let mut used = vec![(0, 0); classes.len()];
        for c in &self.graph.connections {
            used[c.from.element].1 = used[c.from.element].1.max(c.from.port + 1);
            used[c.to.element].0 = used[c.to.element].0.max(c.to.port + 1);
        }
        let count = |(class, (i, o)): (&&'static Class, &(usize, usize))| {
            ports::counts(class.ports, *i, *o).unwrap_or((*i, *o))
        };
        let counts: Vec<_> = classes.iter().zip(&used).map(count).collect();
        for c in &self.graph.connections {
            if c.from.port >= counts[c.from.element].1 {
                let text = format!("'{}' has no output {}", self.declaration(c.from.element), c.from.port);
                self.error(c.from.element, text);
            }
            if c.to.port >= counts[c.to.element].0 {
                let text = format!("'{}' has no input {}", self.declaration(c.to.element), c.to.port);
                self.error(c.to.element, text);
            }
        }
        counts
    }

    fn modes(&mut self, classes: &[&'static Class], counts: &[(usize, usize)]) -> Modes {
        let (inputs, outputs) =
            classes.iter().zip(counts).map(|(c, (i, o))| ports::modes(c.processing, *i, *o)).unzip();
        let mut modes = Modes { inputs, outputs };
        let mut errors = Vec::new();
        // An Idle's ports have nothing to do with each other.
        let joins = |e: usize| classes[e].name != "Idle";
        ports::resolve(self.graph, &mut modes, &joins, &mut |e, text| errors.push((e, text)));
        for (e, text) in errors {
            self.error(e, text);
        }
        modes
    }

    /// Checks that each port is connected, and push outputs and pull inputs only once.
    fn complete(&mut self, counts: &[(usize, usize)], modes: &Modes) {
        let mut used: Vec<_> = counts.iter().map(|(i, o)| (vec![false; *i], vec![false; *o])).collect();
        for c in &self.graph.connections {
            let (from, to) = (c.from, c.to);
            if used[from.element].1[from.port] && modes.outputs[from.element][from.port] != Mode::Pull {
                let text = format!(
                    "illegal reuse of '{}' push output {}",
                    self.declaration(from.element),
                    from.port
                );
                self.error(from.element, text);
            } else if used[to.element].0[to.port] && modes.inputs[to.element][to.port] == Mode::Pull {
                let text =
                    format!("illegal reuse of '{}' pull input {}", self.declaration(to.element), to.port);
                self.error(to.element, text);
            }
            used[from.element].1[from.port] = true;
            used[to.element].0[to.port] = true;
        }
        for (e, (inputs, outputs)) in used.iter().enumerate() {
            for (side, ports) in [("input", inputs), ("output", outputs)] {
                for (port, _) in ports.iter().enumerate().filter(|(_, u)| !**u) {
                    let text = format!("'{}' {side} {port} unused", self.declaration(e));
                    self.error(e, text);
                }
            }
        }
    }
}

/// Makes an element from its arguments. Returns its errors, or it and its warnings.
pub fn make(
    class: &'static Class,
    name: &str,
    config: &str,
    (inputs, outputs): (usize, usize),
    names: &Names,
    partial: &Partial<'_>,
) -> Result<Box<dyn super::element::Element>, Vec<String>> {
    let mut args = Args::new(config, class.keywords, Scope { names, element: name });
    let setup = Setup { name, class: class.name, config, inputs, outputs, router: partial };
    let made = (class.make)(&mut args, &setup);
    args.finish().map(|()| made)
}

fn indent(text: &str) -> String {
    text.lines().map(|l| format!("\n  {l}")).collect()
}

impl Router {
    /// Makes and connects all elements, but begins no work.
    pub fn check(graph: &Graph) -> Result<(), String> {
        use super::clock::Clock;
        use std::rc::Rc;
        let env = Environment {
            clock: Rc::new(Clock::simulated()),
            stdout: Rc::new(RefCell::new(std::io::sink())),
            stderr: Rc::new(RefCell::new(std::io::sink())),
            interrupt: Default::default(),
            parse: None,
            seed: 0,
        };
        let router = Self::connect(graph.clone(), "", env)?;
        let errors = router.check_pull_paths();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
    }

    fn connect(graph: Graph, text: &str, env: Environment) -> Result<Self, String> {
        let mut b = Builder { graph: &graph, errors: Vec::new() };
        let (names, name_errors) = Names::of(&graph);
        for (e, text) in name_errors {
            let context = format!("While configuring '{}':{}", b.declaration(e), indent(&text));
            b.error(e, context);
        }
        let classes = b.classes();
        let (mut counts, mut modes) = (Vec::new(), Modes { inputs: Vec::new(), outputs: Vec::new() });
        if b.errors.is_empty() {
            counts = b.counts(&classes);
        }
        if b.errors.is_empty() {
            modes = b.modes(&classes, &counts);
        }
        if b.errors.is_empty() {
            b.complete(&counts, &modes);
        }
        let mut made = Vec::new();
        let mut notes = Vec::new();
        if b.errors.is_empty() {
            let partial = Partial { graph: &graph, warnings: RefCell::default(), seed: env.seed };
            for (i, e) in graph.elements.iter().enumerate() {
                let context = format!("{}: While configuring '{} :: {}':", e.landmark, e.name, e.class);
                let result = make(classes[i], &e.name, &e.config, counts[i], &names, &partial);
                let warnings = partial.warnings.take();
                if !warnings.is_empty() {
                    notes.push(format!("{context}{}", indent(&warnings.join("\n"))));
                }
                match result {
                    Ok(element) => made.push(element),
                    Err(errors) => b.errors.push(format!("{context}{}", indent(&errors.join("\n")))),
                }
            }
        }
        if !notes.is_empty() {
            let text = notes.join("\n") + "\n";
            let _ = env.stderr.borrow_mut().write_all(&flame_click::text::encode(&text));
        }
        if !b.errors.is_empty() {
            return Err(b.errors.join("\n"));
        }
        let mut nodes: Vec<Node> =
            graph.elements.iter().zip(&classes).zip(made).map(|((e, c), m)| Node::new(e, c, m)).collect();
        for (i, node) in nodes.iter_mut().enumerate() {
            let is_push = |m: &Mode| *m != Mode::Pull;
            node.inputs =
                modes.inputs[i].iter().map(|m| Input { is_push: is_push(m), source: None }).collect();
            node.outputs =
                modes.outputs[i].iter().map(|m| Output { is_push: is_push(m), target: None }).collect();
        }
        for c in &graph.connections {
            nodes[c.from.element].outputs[c.from.port].target = Some((c.to.element, c.to.port));
            nodes[c.to.element].inputs[c.to.port].source = Some((c.from.element, c.from.port));
        }
        let by_name: HashMap<String, usize> =
            graph.elements.iter().enumerate().map(|(i, e)| (e.name.clone(), i)).collect();
        let mut router = Self::bare(env, graph, text, names);
        (router.nodes, router.by_name) = (nodes, by_name);
        Ok(router)
    }

    pub fn new(graph: Graph, text: &str, env: Environment) -> Result<Self, String> {
        let router = Self::connect(graph, text, env)?;
        let mut errors = router.check_pull_paths();
        if errors.is_empty() {
            for i in 0..router.nodes.len() {
                if let Err(text) = router.element(i).initialize(&router.cx(i)) {
                    let landmark = &router.nodes[i].landmark;
                    let declaration = router.declaration(i);
                    errors.push(format!("{landmark}: While initializing '{declaration}':{}", indent(&text)));
                }
            }
        }
        match errors.is_empty() {
            true => {
                router.is_initialized.set(true);
                for i in 0..router.nodes.len() {
                    router.element(i).started(&router.cx(i));
                }
                Ok(router)
            }
            false => Err(errors.join("\n")),
        }
    }

    /// Returns the elements that an element pulls from. The way around a Bypass ends at its input 0.
    fn pull_sources(&self, element: usize) -> Vec<usize> {
        let node = &self.nodes[element];
        let count = if node.class.name == "Bypass" { 1 } else { node.inputs.len() };
        node.inputs[..count.min(node.inputs.len())]
            .iter()
            .filter(|i| !i.is_push)
            .filter_map(|i| i.source)
            .map(|s| s.0)
            .collect()
    }

    /// Refuses pull paths that are cycles or too long: a pull is a call, and calls need stack.
    fn check_pull_paths(&self) -> Vec<String> {
        const LONGEST: u32 = 1000;
        // Each element pulls from those before it: the longest path ends there. 0: not visited, MAX: at work.
        let mut length = vec![0_u32; self.nodes.len()];
        for start in 0..self.nodes.len() {
            let mut stack = vec![(start, 0)];
            while let Some((at, port)) = stack.pop() {
                if port == 0 && length[at] != 0 {
                    continue;
                }
                length[at] = u32::MAX;
                let mut sources = self.pull_sources(at).into_iter().skip(port);
                match sources.next() {
                    Some(source) if length[source] == u32::MAX => {
                        let text =
                            format!("'{}' pulls from itself without a queue between", self.declaration(at));
                        return vec![format!("{}: {text}", self.nodes[at].landmark)];
                    }
                    Some(source) => {
                        stack.push((at, port + 1));
                        stack.push((source, 0));
                    }
                    None => {
                        // A queue or source begins a path of its own.
                        length[at] =
                            self.pull_sources(at).into_iter().map(|s| length[s]).max().unwrap_or(0) + 1;
                        if length[at] > LONGEST {
                            let text =
                                format!("pull path of '{}' exceeds {LONGEST} elements", self.declaration(at));
                            return vec![format!("{}: {text}", self.nodes[at].landmark)];
                        }
                    }
                }
            }
        }
        Vec::new()
    }
}
