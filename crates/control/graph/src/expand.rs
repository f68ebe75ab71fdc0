//! Replaces compound elements by their contents. What remains are elements, tunnels and links.

use crate::Options;
use crate::ast::{Body, Class, ClassId, Kind, OUTPUT, Program};
use crate::budget::{Budget, ENTRY, Exceeded};
use crate::error::Errors;
use crate::variables::{self, Env, Refused};
use flame_click::{Element, Requirement, text};
use std::collections::HashSet;
use std::rc::Rc;

#[derive(Debug)]
pub enum Node {
    Element(Element),
    Tunnel(Tunnel),
}

/// One side of a compound element or of a group.
#[derive(Debug)]
pub struct Tunnel {
    /// The name of its owner in messages.
    pub owner: String,
    pub is_input: bool,
    pub landmark: String,
}

/// A node and a port.
pub type End = (usize, usize);

#[derive(Default, Debug)]
pub struct Flat {
    pub nodes: Vec<Node>,
    pub links: Vec<(End, End, String)>,
    pub requirements: Vec<Requirement>,
}

pub fn expand(program: &Program, options: &Options<'_>, budget: &mut Budget, errors: &mut Errors) -> Flat {
    let mut flat = Flat { requirements: program.requirements.clone(), ..Flat::default() };
    let mut env = Env::default();
    for (name, value) in &options.variables {
        env.values.insert(name.clone(), value.clone());
    }
    let given = options.variables.iter().map(|(n, _)| n.as_str()).collect();
    let mut expander = Expander { program, options, errors, flat: &mut flat, budget, stopped: false };
    expander.define(&mut env, &program.main, &given);
    // The program has no outside: no link of it names its own sides.
    expander.inside(&program.main, &Rc::new(env), "", 0, (usize::MAX, usize::MAX));
    flat
}

struct Expander<'a> {
    program: &'a Program,
    options: &'a Options<'a>,
    errors: &'a mut Errors,
    flat: &'a mut Flat,
    budget: &'a mut Budget,
    stopped: bool,
}

/// A compound element whose inside is still to come.
struct Waiting {
    body: Rc<Body>,
    env: Env,
    name: String,
    nodes: (usize, usize),
}

impl Expander<'_> {
    fn stop(&mut self, landmark: &str, text: String) {
        if !self.stopped {
            self.errors.add_limit(landmark, text);
        }
        self.stopped = true;
    }

    /// Stops if the budget is used up. Returns whether it is not.
    fn may(&mut self, drawn: Result<(), Exceeded>, landmark: &str) -> bool {
        if let Err(e) = drawn {
            self.stop(landmark, e.to_string());
        }
        !self.stopped
    }

    /// Replaces variables, or stops. `what` is what has them, in messages.
    fn replaced(&mut self, text: &str, env: &Env, what: &str, landmark: &str) -> Option<String> {
        let result = variables::expand(text, env, self.budget)
            .and_then(|t| self.budget.entry(t.len()).map(|()| t).map_err(Refused::Exceeded));
        match result {
            Ok(text) => Some(text),
            Err(Refused::Long) => {
                self.stop(landmark, format!("{what} longer than 1 MiB after variables are replaced"));
                None
            }
            Err(Refused::Exceeded(e)) => {
                self.stop(landmark, e.to_string());
                None
            }
        }
    }

    /// Adds the variables that a body defines, in order. Those in `given` keep their values.
    fn define(&mut self, env: &mut Env, body: &Body, given: &HashSet<&str>) {
        for define in body.defines.iter().filter(|d| !given.contains(d.variable.as_str())) {
            let landmark = define.place.to_string();
            let drawn = self.budget.bytes(define.variable.len());
            if !self.may(drawn, &landmark) {
                return;
            }
            let what = format!("value of '${}'", define.variable);
            let Some(value) = self.replaced(&define.value, env, &what, &landmark) else { return };
            env.values.insert(define.variable.clone(), value);
        }
    }

    fn push(&mut self, node: Node, landmark: &str) -> usize {
        let limit = self.options.limits.elements;
        if self.flat.nodes.len() >= 4 * limit {
            self.stop(
                landmark,
                format!("more elements than the limit of {limit} after compounds are replaced"),
            );
        }
        let texts = match &node {
            Node::Element(e) => e.name.len() + e.class.len() + e.landmark.len(),
            Node::Tunnel(t) => t.owner.len() + t.landmark.len(),
        };
        let drawn = self.budget.entry(texts);
        self.may(drawn, landmark);
        self.flat.nodes.push(node);
        self.flat.nodes.len() - 1
    }

    /// Adds the contents of a body, whose input and output are the nodes `sides`.
    fn inside(&mut self, body: &Rc<Body>, env: &Rc<Env>, prefix: &str, level: usize, sides: (usize, usize)) {
        if level > self.options.limits.depth {
            let text =
                format!("compounds nested deeper than the limit of {} levels", self.options.limits.depth);
            return self.stop(&body.place.to_string(), text);
        }
        let drawn = self.budget.steps(body.items.len() + body.links.len());
        if !self.may(drawn, &body.place.to_string()) {
            return;
        }
        let mut used = vec![(0, 0); body.items.len()];
        for link in &body.links {
            let (from, to) = (&link.from, &link.to);
            used[from.item].1 = used[from.item].1.max(from.port + 1);
            used[to.item].0 = used[to.item].0.max(to.port + 1);
        }
        let names: HashSet<&str> = body.items.iter().map(|i| i.name.as_str()).collect();
        // The nodes that links lead to and come from.
        let mut nodes = vec![sides; 2];
        (nodes[0], nodes[OUTPUT]) = ((sides.0, sides.0), (sides.1, sides.1));
        let (mut waiting, mut number) = (Vec::new(), 0);
        for (item, used) in body.items.iter().zip(used).skip(2) {
            if self.stopped {
                return;
            }
            let landmark = item.place.to_string();
            let Kind::Class(class) = item.kind else {
                let is_input = item.name == "(";
                let tunnel = Tunnel { owner: "group".into(), is_input, landmark: landmark.clone() };
                let node = self.push(Node::Tunnel(tunnel), &landmark);
                nodes.push((node, node));
                continue;
            };
            number += 1;
            let Some(config) = self.replaced(&item.config, env, "arguments", &landmark) else { return };
            let mut name = item.name.clone();
            if name.is_empty() {
                let class = match &self.program.classes[class] {
                    Class::Primitive(n) | Class::Compound { name: n, .. } if !n.is_empty() => n.as_str(),
                    _ => "compound",
                };
                name = format!("{class}@{number}");
                let mut more = number;
                while names.contains(name.as_str()) {
                    more += 1;
                    name = format!("{class}@{number}x{more}");
                }
            }
            let name = format!("{prefix}{name}");
            match self.resolve(class, &config, used, env, &name, &landmark) {
                Resolved::Primitive(class) => {
                    let element = Element { name, class, config, landmark: landmark.clone() };
                    let node = self.push(Node::Element(element), &landmark);
                    nodes.push((node, node));
                }
                Resolved::Compound(body, env) => {
                    let class = match &self.program.classes[class] {
                        Class::Compound { name, .. } if !name.is_empty() => name.as_str(),
                        _ => "{...}",
                    };
                    let owner = format!("{name} :: {class}");
                    let tunnel =
                        |is_input| Tunnel { owner: owner.clone(), is_input, landmark: landmark.clone() };
                    let input = self.push(Node::Tunnel(tunnel(true)), &landmark);
                    let output = self.push(Node::Tunnel(tunnel(false)), &landmark);
                    nodes.push((input, output));
                    waiting.push(Waiting { body, env, name, nodes: (input, output) });
                }
            }
        }
        for link in &body.links {
            let from = (nodes[link.from.item].1, link.from.port);
            let to = (nodes[link.to.item].0, link.to.port);
            let landmark = link.place.to_string();
            let drawn = self.budget.entry(landmark.len());
            if !self.may(drawn, &landmark) {
                return;
            }
            self.flat.links.push((from, to, landmark));
        }
        if self.flat.links.len() > self.options.limits.connections {
            let limit = self.options.limits.connections;
            self.stop(&body.place.to_string(), format!("more connections than the limit of {limit}"));
        }
        for w in waiting {
            if self.stopped {
                return;
            }
            self.inside(&w.body, &Rc::new(w.env), &format!("{}/", w.name), level + 1, w.nodes);
        }
    }

    /// Chooses the overload that fits arguments and ports.
    fn resolve(
        &mut self,
        class: ClassId,
        config: &str,
        used: (usize, usize),
        env: &Rc<Env>,
        name: &str,
        landmark: &str,
    ) -> Resolved {
        let args = text::split(config);
        let mut candidates = Vec::new();
        let (mut at, mut steps, mut others) = (Some(class), 0, 0);
        while let Some(id) = at {
            match &self.program.classes[id] {
                Class::Primitive(name) => return Resolved::Primitive(name.clone()),
                Class::Compound { bodies, then, .. } => {
                    let is_overloaded = bodies.len() > 1 || then.is_some() || steps > 0;
                    for body in bodies {
                        let fits = !is_overloaded || body.ports == used;
                        // Each argument is compared with each parameter.
                        let work =
                            if fits { TRY + config.len() + args.len() * body.formals.len() } else { 1 };
                        let drawn = self.budget.steps(work);
                        if !self.may(drawn, landmark) {
                            return Resolved::Primitive("Error".into());
                        }
                        if let Some(values) = fits.then(|| assign(body, &args)).flatten() {
                            let texts: usize = values.iter().map(|(n, v)| ENTRY + n.len() + v.len()).sum();
                            let drawn = self.budget.bytes(texts);
                            self.may(drawn, landmark);
                            let outer = Env::at(env, body.depth);
                            let mut inner = Env { outer: Some(outer), depth: body.depth, values };
                            self.define(&mut inner, body, &HashSet::new());
                            return Resolved::Compound(body.clone(), inner);
                        }
                        match candidates.len() < CANDIDATES {
                            true => candidates.push(signature(body)),
                            false => others += 1,
                        }
                    }
                    at = *then;
                }
            }
            steps += 1;
        }
        let more = if others > 0 { format!(" (and {others} more)") } else { String::new() };
        let text = format!(
            "no match for '{name}' with {} arguments, {} inputs and {} outputs; candidates are {}{more}",
            args.len(),
            used.0,
            used.1,
            candidates.join(" || ")
        );
        self.errors.add(landmark, text);
        Resolved::Primitive("Error".into())
    }
}

enum Resolved {
    Primitive(String),
    Compound(Rc<Body>, Env),
}

/// The steps of a comparison of arguments with parameters, besides those for each of them.
const TRY: usize = 32;
/// Candidates that a message names.
const CANDIDATES: usize = 8;

/// Returns the parameters and ports of a body, for a message.
fn signature(body: &Body) -> String {
    let formals = body.formals.iter().take(CANDIDATES).map(|f| match &f.keyword {
        Some(k) => format!("{k} ${}", f.variable),
        None => format!("${}", f.variable),
    });
    let more = if body.formals.len() > CANDIDATES { ", …" } else { "" };
    let (inputs, outputs) = body.ports;
    format!("({}{more}) [{inputs}/{outputs}]", formals.collect::<Vec<_>>().join(", "))
}

/// Gives arguments to formal parameters, if they fit.
fn assign(body: &Body, args: &[String]) -> Option<std::collections::HashMap<String, String>> {
    let keyword = |f: &crate::ast::Formal, word: &str| f.keyword.as_deref() == Some(word) && word != REST;
    let (mut positional, mut named) = (std::collections::VecDeque::new(), Vec::new());
    for arg in args {
        let (word, rest) = text::first_word(arg);
        match body.formals.iter().any(|f| keyword(f, &word)) {
            true => named.push((word, rest)),
            false => positional.push_back(arg.clone()),
        }
    }
    let mut values = std::collections::HashMap::new();
    let mut rest = None;
    for formal in &body.formals {
        let value = match formal.keyword.as_deref() {
            None => positional.pop_front()?,
            Some(REST) => {
                rest = Some(&formal.variable);
                continue;
            }
            Some(word) => {
                let at = named.iter().position(|(w, _)| w == word)?;
                named.remove(at).1
            }
        };
        values.insert(formal.variable.clone(), value);
    }
    match rest {
        Some(variable) => {
            let left: Vec<_> = positional.into_iter().collect();
            values.insert(variable.clone(), text::join(&left));
        }
        None if !positional.is_empty() => return None,
        None => {}
    }
    named.is_empty().then_some(values)
}

const REST: &str = "__REST__";
