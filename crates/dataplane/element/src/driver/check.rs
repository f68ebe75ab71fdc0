//! `flame click check`: the most that a packet may cost, and where polls belong.

use super::{Command, Division, Worst};
use crate::registry;
use crate::runtime::measure::{Cost, Measurer};
use crate::runtime::router::Router;
use flame_click::{Connection, Element, Graph, Port};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

/// The elements that are listed as not measured. Further ones are counted.
const MOST_UNKNOWN: usize = 100;

/// The costs of the elements of a graph in nanoseconds, as far as they are known.
struct Costs {
    all: Vec<Option<f64>>,
    /// The modules without a bound.
    unbounded: Vec<usize>,
    /// A line for each element that was not measured.
    unknown: Vec<String>,
}

impl Costs {
    fn known(&self) -> Vec<f64> {
        self.all.iter().map(|cost| cost.unwrap_or(0.0)).collect()
    }

    /// Returns what is missing in a sum of costs.
    fn without(&self) -> &'static str {
        match (self.unbounded.is_empty(), self.unknown.is_empty()) {
            (true, true) => "",
            (true, false) => ", without elements that are not measured",
            (false, true) => ", without modules that have no bound",
            (false, false) => ", without modules that have no bound and elements that are not measured",
        }
    }
}

impl Command<'_> {
    pub(super) fn check(&self) -> Result<u8, String> {
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
        let costs = self.costs(&router, &name)?;
        bound(&router.graph, &costs, &(self.language.bound)(&router.graph, &costs.known()), &mut out);
        classes(&router, &mut out);
        let divided =
            self.invocation.limit_ns.map(|limit| self.divide(&router, &costs, limit as f64, &mut out));
        let inserts_polls = self.invocation.inserts_polls;
        let (config, is_within) = match divided {
            Some(Divided::Not) => (None, false),
            Some(Divided::By(config)) => (Some(config), inserts_polls),
            Some(Divided::Within) => (Some(router.graph.unparse()), true),
            None => (None, true),
        };
        if inserts_polls {
            // The configuration is the output, and the report is about it.
            self.complain(out.trim_end());
            if let Some(config) = config {
                self.output(&config, self.invocation.output.as_deref().unwrap_or("-"))?;
            }
        } else {
            // At once: who reads the first line only gets the others as well.
            self.say(&out)?;
        }
        Ok(u8::from(!is_within || !costs.unbounded.is_empty()))
    }

    /// Returns the costs of all elements: of modules by their bounds, of others by measurement.
    fn costs(&self, router: &Router, name: &str) -> Result<Costs, String> {
        let graph = &router.graph;
        let mut costs = Costs { all: Vec::new(), unbounded: Vec::new(), unknown: Vec::new() };
        let mut measurer = Measurer::new(graph, self.interrupt.clone());
        for (i, element) in graph.elements.iter().enumerate() {
            let declaration = format!("{} :: {}", element.name, element.class);
            let cost = match router.element(i).cost_ns() {
                Some(Ok(ns)) => Some(ns),
                Some(Err(why)) => {
                    self.complain(&format!("{name}: {declaration} has no bound: {why}"));
                    costs.unbounded.push(i);
                    None
                }
                None => match measurer.cost(i) {
                    Cost::Measured(ns) => Some(ns),
                    Cost::None => Some(0.0),
                    Cost::Unknown(why) => {
                        costs.unknown.push(format!("{declaration}: {why}\n"));
                        None
                    }
                },
            };
            costs.all.push(cost);
            if self.interrupt.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
        }
        Ok(costs)
    }

    /// Writes whether the segments of work are within the limit, and where polls bring them there.
    fn divide(&self, router: &Router, costs: &Costs, limit: f64, out: &mut String) -> Divided {
        let graph = &router.graph;
        let waits: Vec<bool> = (0..graph.elements.len()).map(|i| waits(router, i)).collect();
        let known = costs.known();
        let longest = (self.language.segment)(graph, &known, &waits);
        let without = costs.without();
        if longest.0 <= limit {
            let _ = writeln!(
                out,
                "each segment of work costs at most {:.0} ns{without}, within the limit of {limit:.0} ns",
                longest.0
            );
            return Divided::Within;
        }
        let _ = writeln!(
            out,
            "a segment of work costs {:.0} ns{without}, above the limit of {limit:.0} ns:",
            longest.0
        );
        path(graph, costs, &longest, out);
        let is_push = |c: &Connection| {
            let outputs = router.nodes.get(c.from.element).map(|node| &node.outputs);
            outputs.and_then(|outputs| outputs.get(c.from.port)).is_some_and(|output| output.is_push)
        };
        let poll = poll_ns(self);
        let is_interrupted = || self.interrupt.load(Ordering::Relaxed);
        let division = Division {
            graph,
            costs: &known,
            waits: &waits,
            limit,
            poll,
            is_push: &is_push,
            is_interrupted: &is_interrupted,
        };
        match (self.language.insert_polls)(&division) {
            Ok((divided, places, most)) => {
                let _ = writeln!(out, "each costs at most {most:.0} ns with Poll ({poll:.0} ns) between:");
                for c in &places {
                    let name = |port: &Port| &graph.elements[port.element].name;
                    let _ = writeln!(
                        out,
                        "           {} [{}] -> [{}] {}",
                        name(&c.from),
                        c.from.port,
                        c.to.port,
                        name(&c.to)
                    );
                }
                Divided::By(divided.unparse())
            }
            Err(why) => {
                let _ = writeln!(out, "no Poll brings it within the limit: {why}");
                Divided::Not
            }
        }
    }
}

/// The result of a division into segments.
enum Divided {
    /// All are within the limit as they are.
    Within,
    /// This configuration brings them there.
    By(String),
    /// Nothing does.
    Not,
}

/// Returns whether packets wait in an element until another task takes them.
fn waits(router: &Router, element: usize) -> bool {
    let node = &router.nodes[element];
    let is_queue = !node.inputs.is_empty()
        && !node.outputs.is_empty()
        && node.inputs.iter().all(|input| input.is_push)
        && node.outputs.iter().all(|output| !output.is_push);
    is_queue || node.class.name == "Poll"
}

/// Returns the cost of `Poll`, by measurement.
fn poll_ns(command: &Command<'_>) -> f64 {
    let element = |name: &str, class: &str| Element {
        name: name.into(),
        class: class.into(),
        config: String::new(),
        landmark: String::new(),
    };
    let elements = vec![element("from", "Idle"), element("poll", "Poll"), element("to", "Discard")];
    let connect = |from, to| Connection {
        from: Port { element: from, port: 0 },
        to: Port { element: to, port: 0 },
        landmark: String::new(),
    };
    let graph = Graph { elements, connections: vec![connect(0, 1), connect(1, 2)], ..Graph::default() };
    match Measurer::new(&graph, command.interrupt.clone()).cost(1) {
        Cost::Measured(ns) => ns,
        Cost::None | Cost::Unknown(_) => 0.0,
    }
}

/// Writes the most that a packet may cost, with the path that attains it.
fn bound(graph: &Graph, costs: &Costs, worst: &Worst, out: &mut String) {
    let _ = writeln!(out, "a packet costs at most {:.0} ns on this machine{}:", worst.0, costs.without());
    path(graph, costs, worst, out);
    if !costs.unknown.is_empty() {
        *out += "not measured:\n";
        costs.unknown.iter().take(MOST_UNKNOWN).for_each(|line| *out += &format!("  {line}"));
        let more = costs.unknown.len().saturating_sub(MOST_UNKNOWN);
        if more > 0 {
            let _ = writeln!(out, "  and {more} more");
        }
    }
}

/// Writes the elements of a path with their costs.
fn path(graph: &Graph, costs: &Costs, (_, parts): &Worst, out: &mut String) {
    for (path, times) in parts {
        for (n, at) in path.iter().enumerate() {
            let element = &graph.elements[*at];
            let times =
                if n == 0 && *times > 1 { format!("  (all of this {times} times)") } else { String::new() };
            let absent = if costs.unbounded.contains(at) { "no bound" } else { "?" };
            let cost = costs.all[*at].map_or(absent.to_owned(), |ns| format!("{ns:.1}"));
            let _ = writeln!(out, "{cost:>9}  {} :: {}{times}", element.name, element.class);
        }
    }
}

/// Writes the class of the cost of each element: native ones by their class of elements, modules by name.
fn classes(router: &Router, out: &mut String) {
    let mut all: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for (i, element) in router.graph.elements.iter().enumerate() {
        let native = registry::find(&element.class).and_then(registry::Class::cost_class);
        let (class, name) = match native {
            Some(class) => (class, element.class.clone()),
            None => (router.element(i).cost_class().unwrap_or("E7"), format!("{} (Module)", element.name)),
        };
        all.entry(class).or_default().push(name);
    }
    *out += "classes of cost:\n";
    for (class, mut names) in all {
        names.sort();
        names.dedup();
        let _ = writeln!(out, "{class:>9}  {}", names.join(", "));
    }
}
