//! Builds a router from a graph, in Click's order: classes, ports, push and pull, arguments, initialization.

use super::limits::PULL_PATH;
use super::names::Names;
use super::ports::{self, Mode, Modes};
use super::router::{Environment, Input, Node, Output, Router};
use super::threads::assign::assign;
use super::threads::elsewhere::Elsewhere;
use super::threads::team::{Facts, Member};
use crate::modules::Modules;
use crate::registry::{self, Class, Setup};
use flame_click::{Args, Graph, Scope};
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// The part of the configuration that is visible to elements while they are made.
pub struct Partial<'a> {
    pub graph: &'a Graph,
    pub warnings: RefCell<Vec<String>>,
    pub seed: u64,
    pub modules: Option<&'a dyn Modules>,
    /// Lines of elements of the graph that others name, once they were read: the words behind the name.
    pub named_lines: OnceCell<HashMap<String, Vec<String>>>,
}

impl<'a> Partial<'a> {
    pub fn new(graph: &'a Graph, seed: u64, modules: Option<&'a dyn Modules>) -> Self {
        Self { graph, warnings: RefCell::default(), seed, modules, named_lines: OnceCell::new() }
    }
}

impl Partial<'_> {
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.borrow_mut().push(format!("warning: {}", text.into()));
    }
}

/// Features that a configuration may require.
const FEATURES: &[&str] = &["compact_config", "userlevel", "int64"];

/// Errors that are listed. Further ones are counted.
const MOST_ERRORS: usize = 100;

/// The classes of the elements, the numbers of their ports, and the directions in which packets move.
struct Wiring {
    /// None where the class is unknown.
    classes: Vec<Option<&'static Class>>,
    counts: Vec<(usize, usize)>,
    modes: Modes,
}

struct Builder<'a> {
    graph: &'a Graph,
    errors: Vec<String>,
    omitted: usize,
}

impl Builder<'_> {
    fn error(&mut self, element: usize, text: String) {
        self.error_at(&self.graph.elements[element].landmark, text);
    }

    fn error_at(&mut self, landmark: &str, text: String) {
        match self.errors.len() < MOST_ERRORS {
            true => self.errors.push(format!("{landmark}: {text}")),
            false => self.omitted += 1,
        }
    }

    /// Returns all errors as one text.
    fn text(&self) -> String {
        match self.omitted {
            0 => self.errors.join("\n"),
            more => format!("{}\n(and {more} more errors)", self.errors.join("\n")),
        }
    }

    fn declaration(&self, element: usize) -> String {
        let e = &self.graph.elements[element];
        format!("{} :: {}", e.name, e.class)
    }

    /// Returns how many errors were found.
    fn found(&self) -> usize {
        self.errors.len() + self.omitted
    }

    /// Finds the classes, numbers of ports and directions of a graph, and all errors in them that do not
    /// follow from others.
    fn wire(&mut self) -> Wiring {
        let before = self.found();
        let classes = self.classes();
        let counts = self.counts(&classes);
        let mut modes = Modes { inputs: Vec::new(), outputs: Vec::new() };
        // Directions follow from the classes and ports of all elements.
        if self.found() == before {
            let classes: Vec<&'static Class> = classes.iter().copied().flatten().collect();
            modes = self.modes(&classes, &counts);
            if self.found() == before {
                self.reused(&counts, &modes);
            }
        }
        self.unused(&classes, &counts);
        Wiring { classes, counts, modes }
    }

    fn classes(&mut self) -> Vec<Option<&'static Class>> {
        for requirement in &self.graph.requirements {
            let text = requirement.text.as_str();
            if !FEATURES.contains(&text) && registry::find(text).is_none() {
                self.error_at(&requirement.landmark, format!("requirement '{text}' is not available"));
            }
        }
        let mut all = Vec::new();
        for (i, e) in self.graph.elements.iter().enumerate() {
            let class = registry::find(&e.class);
            if class.is_none() {
                self.error(i, format!("unknown element class '{}'", e.class));
            }
            all.push(class);
        }
        all
    }

    /// Returns the numbers of ports. A port beyond those that a class has is an error.
    fn counts(&mut self, classes: &[Option<&'static Class>]) -> Vec<(usize, usize)> {
        let mut used = vec![(0, 0); classes.len()];
        for c in &self.graph.connections {
            used[c.from.element].1 = used[c.from.element].1.max(c.from.port + 1);
            used[c.to.element].0 = used[c.to.element].0.max(c.to.port + 1);
        }
        let count = |(class, (i, o)): (&Option<&'static Class>, &(usize, usize))| {
            class.and_then(|class| ports::counts(class.ports, *i, *o).ok()).unwrap_or((*i, *o))
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

    /// Checks that push outputs and pull inputs are connected only once.
    fn reused(&mut self, counts: &[(usize, usize)], modes: &Modes) {
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
    }

    /// Checks that each port of the elements whose class is known is connected.
    fn unused(&mut self, classes: &[Option<&'static Class>], counts: &[(usize, usize)]) {
        let mut used: Vec<_> = counts.iter().map(|(i, o)| (vec![false; *i], vec![false; *o])).collect();
        for c in &self.graph.connections {
            // A port that an element lacks is an error already, and another one was meant.
            let mark = |ports: &mut Vec<bool>, port: usize| match ports.get_mut(port) {
                Some(used) => *used = true,
                None => ports.clear(),
            };
            mark(&mut used[c.from.element].1, c.from.port);
            mark(&mut used[c.to.element].0, c.to.port);
        }
        for (e, (inputs, outputs)) in used.iter().enumerate().filter(|(e, _)| classes[*e].is_some()) {
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
    ///
    /// # Errors
    ///
    /// Returns the errors, with their places, if a class or a port is unknown, an element refuses its
    /// arguments, or a path of pulls is a cycle or too long.
    pub fn check(graph: &Graph, modules: Option<Arc<dyn Modules>>) -> Result<Self, String> {
        let env = Environment::silent(modules);
        let router = Self::connect(graph.clone(), "", env)?;
        let errors = router.check_pull_paths();
        if errors.is_empty() { Ok(router) } else { Err(errors.join("\n")) }
    }

    /// Makes and connects all elements of a graph that is not run, with names that were collected before.
    pub(super) fn connected(graph: Graph, names: Names, env: Environment) -> Result<Self, String> {
        Self::connect_with(graph, "", env, (names, Vec::new()))
    }

    fn connect(graph: Graph, text: &str, env: Environment) -> Result<Self, String> {
        let names = Names::of(&graph);
        Self::connect_with(graph, text, env, names)
    }

    fn connect_with(
        graph: Graph,
        text: &str,
        env: Environment,
        (names, name_errors): (Names, Vec<(usize, String)>),
    ) -> Result<Self, String> {
        let mut b = Builder { graph: &graph, errors: Vec::new(), omitted: 0 };
        for (e, text) in name_errors {
            let context = format!("While configuring '{}':{}", b.declaration(e), indent(&text));
            b.error(e, context);
        }
        let Wiring { classes, counts, modes } = b.wire();
        let mut made: Vec<Box<dyn super::element::Element>> = Vec::new();
        let mut notes = Vec::new();
        let modules = env.modules.as_deref();
        if env.member.as_ref().is_none_or(|m| m.me == 0) {
            modules.iter().for_each(|modules| modules.configure());
        }
        let partial = Partial::new(&graph, env.seed, modules);
        for (i, e) in graph.elements.iter().enumerate() {
            let Some(class) = classes[i] else { continue };
            if let Some(member) = env.member.as_ref().filter(|m| !m.owns(i)) {
                made.push(Box::new(Elsewhere { team: member.team.clone(), element: i }));
                continue;
            }
            let context = format!("{}: While configuring '{} :: {}':", e.landmark, e.name, e.class);
            let result = make(class, &e.name, &e.config, counts[i], &names, &partial);
            let warnings = partial.warnings.take();
            if !warnings.is_empty() {
                notes.push(format!("{context}{}", indent(&warnings.join("\n"))));
            }
            match result {
                Ok(element) => made.push(element),
                Err(errors) => b.error(
                    i,
                    format!("While configuring '{}':{}", b.declaration(i), indent(&errors.join("\n"))),
                ),
            }
        }
        if !notes.is_empty() {
            let text = notes.join("\n") + "\n";
            let _ = env.stderr.borrow_mut().write_all(&flame_click::text::encode(&text));
        }
        if b.found() > 0 {
            return Err(b.text());
        }
        let classes = classes.into_iter().flatten();
        let mut nodes: Vec<Node> =
            graph.elements.iter().zip(classes).zip(made).map(|((e, c), m)| Node::new(e, c, m)).collect();
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
        router.has_loops = nodes.iter().any(|node| node.class.name == "Loop");
        (router.nodes, router.by_name) = (nodes, by_name);
        Ok(router)
    }

    /// Makes and connects all elements, and begins their work. `text` is the configuration as it was written,
    /// for the handler `config`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Router::check`], and those of the elements that cannot begin their work.
    pub fn new(graph: Graph, text: &str, env: Environment) -> Result<Self, String> {
        let router = Self::connect(graph, text, env)?;
        router.initialize()?;
        router.start();
        Ok(router)
    }

    /// Makes and connects the elements of one thread, and tells the others what they must know of them.
    pub(super) fn connected_part(graph: Graph, text: &str, env: Environment) -> Result<Self, String> {
        let router = Self::connect(graph, text, env)?;
        for (i, member) in router.own_elements() {
            let element = router.element(i);
            let room = element.room();
            member.publish_facts(i, Facts { handlers: element.handlers(), notifies_room: room.is_some() });
            room.into_iter().for_each(|room| member.publish_room(i, room));
        }
        Ok(router)
    }

    fn own_elements(&self) -> impl Iterator<Item = (usize, &Member)> {
        let all = self.member.iter().flat_map(|m| (0..self.nodes.len()).map(move |i| (i, &**m)));
        all.filter(|(i, m)| m.owns(*i))
    }

    /// Prepares all elements for their work.
    pub(super) fn initialize(&self) -> Result<(), String> {
        let mut errors = self.check_pull_paths();
        if errors.is_empty() {
            for i in 0..self.nodes.len() {
                if let Err(text) = self.element(i).initialize(&self.cx(i)) {
                    let landmark = &self.nodes[i].landmark;
                    let declaration = self.declaration(i);
                    errors.push(format!("{landmark}: While initializing '{declaration}':{}", indent(&text)));
                }
            }
        }
        match errors.is_empty() {
            true => {
                self.is_initialized.set(true);
                Ok(())
            }
            false => Err(errors.join("\n")),
        }
    }

    /// Begins the work of all elements.
    pub(super) fn start(&self) {
        for i in 0..self.nodes.len() {
            self.in_step(|| self.element(i).started(&self.cx(i)));
        }
    }

    /// Returns the threads that the elements of a graph have among `threads`, and warnings.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Router::check`] that can be found without making elements.
    pub(super) fn assign(graph: &Graph, threads: usize) -> Result<(Vec<usize>, Vec<String>), String> {
        let mut b = Builder { graph, errors: Vec::new(), omitted: 0 };
        let Wiring { classes, modes, .. } = b.wire();
        if b.found() > 0 {
            return Err(b.text());
        }
        let ties: Vec<_> = classes.iter().flatten().map(|class| class.ties()).collect();
        Ok(assign(graph, &ties, &modes, threads))
    }

    /// Returns the outputs that are pulled when this one is.
    fn outputs_behind(&self, (element, output): (usize, usize)) -> Vec<(usize, usize)> {
        let made = self.element(element);
        let inputs = self.nodes[element].inputs.iter().enumerate();
        let pulled = inputs.filter(|(port, input)| !input.is_push && made.pulls(output, *port));
        pulled.filter_map(|(_, input)| input.source).map(|source| self.pulled(source)).collect()
    }

    /// Returns the output itself, or output 0 if the element asks the same inputs for all of its outputs.
    fn pulled(&self, (element, output): (usize, usize)) -> (usize, usize) {
        let by_output = self.element(element).pulls_by_output();
        (element, if by_output { output } else { 0 })
    }

    /// Refuses pull paths that are cycles or too long: a pull is a call, and calls need stack. All that an
    /// element may ask counts, in whatever state it is.
    fn check_pull_paths(&self) -> Vec<String> {
        let error = |element: usize, text: String| vec![format!("{}: {text}", self.nodes[element].landmark)];
        // The elements on the longest path that ends at an output. None: at work.
        let mut length: HashMap<(usize, usize), Option<usize>> = HashMap::new();
        // No pull path leaves its thread.
        let own = self.nodes.iter().enumerate().filter(|(i, _)| !self.is_elsewhere(*i));
        for (i, node) in own {
            let by_output = self.element(i).pulls_by_output();
            let outputs = if by_output { node.outputs.len().max(1) } else { 1 };
            for start in (0..outputs).map(|output| (i, output)) {
                if length.contains_key(&start) {
                    continue;
                }
                length.insert(start, None);
                let mut stack = vec![(start, self.outputs_behind(start).into_iter(), 0)];
                while let Some((at, rest, longest)) = stack.last_mut() {
                    let Some(next) = rest.next() else {
                        let (at, here) = (*at, *longest + 1);
                        if here > PULL_PATH {
                            let text = format!(
                                "pull path of '{}' exceeds {PULL_PATH} elements",
                                self.declaration(at.0)
                            );
                            return error(at.0, text);
                        }
                        length.insert(at, Some(here));
                        stack.pop();
                        if let Some((_, _, longest)) = stack.last_mut() {
                            *longest = here.max(*longest);
                        }
                        continue;
                    };
                    match length.get(&next) {
                        Some(Some(known)) => *longest = (*known).max(*longest),
                        Some(None) => {
                            let name = self.declaration(at.0);
                            let text = format!("'{name}' pulls from itself without a queue between");
                            return error(at.0, text);
                        }
                        None => {
                            length.insert(next, None);
                            stack.push((next, self.outputs_behind(next).into_iter(), 0));
                        }
                    }
                }
            }
        }
        Vec::new()
    }
}
