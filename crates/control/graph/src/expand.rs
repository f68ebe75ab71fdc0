//! Replaces compound elements by their contents. What remains are elements, tunnels and links.

use crate::Options;
use crate::ast::{Body, Class, ClassId, Kind, OUTPUT, Program};
use crate::error::Errors;
use crate::variables::{self, Env};
use flame_click::{Element, text};
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
    /// What a message calls its owner.
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
    pub requirements: Vec<String>,
}

pub fn expand(program: &Program, options: &Options<'_>, errors: &mut Errors) -> Flat {
    let mut flat = Flat { requirements: program.requirements.clone(), ..Flat::default() };
    let mut env = Env::default();
    for (name, value) in &options.variables {
        env.values.insert(name.clone(), value.clone());
    }
    let given = options.variables.iter().map(|(n, _)| n.as_str()).collect();
    let expanded = 0;
    let mut expander = Expander { program, options, errors, flat: &mut flat, expanded, stopped: false };
    define(&mut env, &program.main, &given, options.limits.expanded);
    // The program has no outside: no link of it names its own sides.
    expander.inside(&program.main, &Rc::new(env), "", 0, (usize::MAX, usize::MAX));
    flat
}

/// Adds the variables that a body defines, in order. Those in `given` keep their values.
fn define(env: &mut Env, body: &Body, given: &HashSet<&str>, limit: usize) {
    for (name, value) in body.defines.iter().filter(|(n, _)| !given.contains(n.as_str())) {
        let value = variables::expand(value, env, limit.min(1 << 20)).unwrap_or_default();
        env.values.insert(name.clone(), value);
    }
}

struct Expander<'a> {
    program: &'a Program,
    options: &'a Options<'a>,
    errors: &'a mut Errors,
    flat: &'a mut Flat,
    expanded: usize,
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
            self.errors.add(landmark, text);
        }
        self.stopped = true;
    }

    fn push(&mut self, node: Node, landmark: &str) -> usize {
        let limit = self.options.limits.elements;
        if self.flat.nodes.len() >= 4 * limit {
            self.stop(
                landmark,
                format!("more elements than the limit of {limit} after compounds are replaced"),
            );
        }
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
        let mut used = vec![(0, 0); body.items.len()];
        for link in &body.links {
            let (from, to) = (&link.from, &link.to);
            used[from.item].1 = used[from.item].1.max(from.port + 1);
            used[to.item].0 = used[to.item].0.max(to.port + 1);
        }
        let names: HashSet<&str> = body.items.iter().map(|i| i.name.as_str()).collect();
        // The node that links lead to, and the one that they come from.
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
            let Some(config) = variables::expand(&item.config, env, 1 << 20) else {
                return self
                    .stop(&landmark, "arguments longer than 1 MiB after variables are replaced".into());
            };
            self.expanded += config.len();
            if self.expanded > self.options.limits.expanded {
                let text = format!("all arguments exceed {} bytes", self.options.limits.expanded);
                return self.stop(&landmark, text);
            }
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
            self.flat.links.push((from, to, link.place.to_string()));
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
        let (mut at, mut steps) = (Some(class), 0);
        while let Some(id) = at {
            match &self.program.classes[id] {
                Class::Primitive(name) => return Resolved::Primitive(name.clone()),
                Class::Compound { bodies, then, .. } => {
                    let is_overloaded = bodies.len() > 1 || then.is_some() || steps > 0;
                    for body in bodies {
                        let ports = (body.ports(0), body.ports(1));
                        if (!is_overloaded || ports == used)
                            && let Some(values) = assign(body, &args)
                        {
                            let outer = Env::at(env, body.depth);
                            let mut inner = Env { outer: Some(outer), depth: body.depth, values };
                            define(&mut inner, body, &HashSet::new(), self.options.limits.expanded);
                            return Resolved::Compound(body.clone(), inner);
                        }
                        candidates.push(signature(body));
                    }
                    at = *then;
                }
            }
            steps += 1;
        }
        let text = format!(
            "no match for '{name}' with {} arguments, {} inputs and {} outputs; candidates are {}",
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

fn signature(body: &Body) -> String {
    let formals = body.formals.iter().map(|f| match &f.keyword {
        Some(k) => format!("{k} ${}", f.variable),
        None => format!("${}", f.variable),
    });
    format!("({}) [{}/{}]", formals.collect::<Vec<_>>().join(", "), body.ports(0), body.ports(1))
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
