//! The parser's result: bodies of elements and connections, with classes resolved by scope.

use crate::lex::Place;
use flame_click::Requirement;
use std::rc::Rc;

/// An index into [`Program::classes`].
pub type ClassId = usize;

#[derive(Debug)]
pub enum Class {
    /// A class of the runtime.
    Primitive(String),
    /// The bodies of an overloaded compound, and the class to try after them (`...`).
    Compound { name: String, bodies: Vec<Rc<Body>>, then: Option<ClassId> },
}

#[derive(Debug)]
pub enum Kind {
    Class(ClassId),
    /// One side of a compound or of a group: what arrives leaves on the same port.
    Tunnel,
}

#[derive(Debug)]
pub struct Item {
    /// Empty for an element without a name.
    pub name: String,
    pub kind: Kind,
    pub config: String,
    pub place: Place,
}

/// The end of a connection: an item and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct End {
    pub item: usize,
    pub port: usize,
}

#[derive(Debug)]
pub struct Link {
    pub from: End,
    pub to: End,
    pub place: Place,
}

#[derive(Debug)]
pub struct Formal {
    pub keyword: Option<String>,
    pub variable: String,
}

/// The inside of a compound. Items 0 and 1 are its input and output.
#[derive(Debug)]
pub struct Body {
    /// The number of bodies that enclose it.
    pub depth: usize,
    pub formals: Vec<Formal>,
    pub defines: Vec<Define>,
    pub items: Vec<Item>,
    pub links: Vec<Link>,
    pub place: Place,
    /// The numbers of inputs and outputs, known when the body is complete.
    pub ports: (usize, usize),
}

#[derive(Debug)]
pub struct Define {
    pub variable: String,
    pub value: String,
    pub place: Place,
}

impl Body {
    pub fn new(depth: usize, place: Place) -> Self {
        let tunnel = |name: &str| Item {
            name: name.into(),
            kind: Kind::Tunnel,
            config: String::new(),
            place: place.clone(),
        };
        Self {
            depth,
            formals: Vec::new(),
            defines: Vec::new(),
            items: vec![tunnel("input"), tunnel("output")],
            links: Vec::new(),
            place,
            ports: (0, 0),
        }
    }

    /// Counts the ports of both sides: one beyond the highest that is used inside.
    pub fn complete(&mut self) {
        let count = |ends: &mut dyn Iterator<Item = End>, item| {
            ends.filter(|e| e.item == item).map(|e| e.port + 1).max().unwrap_or(0)
        };
        let inputs = count(&mut self.links.iter().map(|l| l.from), INPUT);
        let outputs = count(&mut self.links.iter().map(|l| l.to), OUTPUT);
        self.ports = (inputs, outputs);
    }
}

pub const INPUT: usize = 0;
pub const OUTPUT: usize = 1;

#[derive(Debug)]
pub struct Program {
    pub classes: Vec<Class>,
    pub main: Rc<Body>,
    pub requirements: Vec<Requirement>,
}
