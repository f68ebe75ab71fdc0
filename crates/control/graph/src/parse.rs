//! The parser: statements, declarations and compounds. Connections are in `chain.rs`.

#[path = "chain.rs"]
mod chain;

use crate::Options;
use crate::ast::{Body, Class, ClassId, Define, Formal, Item, Kind, Program};
use crate::budget::{BODY, Budget, Exceeded};
use crate::error::Errors;
use crate::lex::{Lexer, Place, Token};
use flame_click::{Requirement, input, text};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

pub fn parse(
    source: &[u8],
    file: &str,
    options: &Options<'_>,
    budget: &mut Budget,
    errors: &mut Errors,
) -> Program {
    let place = Place { file: file.into(), line: 1 };
    let mut parser = Parser {
        lexer: Lexer::new(source, file),
        options,
        budget,
        unread: options.limits.bytes.saturating_sub(source.len()),
        errors,
        classes: Vec::new(),
        scope: HashMap::new(),
        hidden: Vec::new(),
        primitives: HashMap::new(),
        used: HashSet::new(),
        body: Body::new(0, place),
        names: HashMap::new(),
        requirements: Vec::new(),
        libraries: HashSet::new(),
        groups: Vec::new(),
        nesting: 0,
        stopped: false,
    };
    match source.len() > options.limits.bytes {
        true => {
            let text = format!(
                "configuration of {} bytes is longer than the limit of {}",
                source.len(),
                options.limits.bytes
            );
            parser.errors.add(format!("{file}:1"), text);
        }
        false => parser.statements(false),
    }
    let Parser { classes, body, requirements, .. } = parser;
    Program { classes, main: Rc::new(body), requirements }
}

struct Parser<'a, 'e> {
    lexer: Lexer<'a>,
    options: &'a Options<'a>,
    budget: &'e mut Budget,
    /// Bytes that libraries may still have.
    unread: usize,
    errors: &'e mut Errors,
    classes: Vec<Class>,
    /// The classes that can be named here.
    scope: HashMap<String, ClassId>,
    /// The earlier classes of names that were declared again, to be restored at the end of the block.
    hidden: Vec<(String, Option<ClassId>)>,
    /// The classes of the runtime.
    primitives: HashMap<String, ClassId>,
    /// Names that were used as those of classes.
    used: HashSet<String>,
    body: Body,
    /// The named items of the body.
    names: HashMap<String, usize>,
    requirements: Vec<Requirement>,
    libraries: HashSet<String>,
    /// The input and output of the groups around this place, in this body.
    groups: Vec<(usize, usize)>,
    nesting: usize,
    /// A limit was passed; the rest is not read.
    stopped: bool,
}

impl Parser<'_, '_> {
    fn error(&mut self, text: impl Into<String>) {
        let place = self.lexer.place().to_string();
        self.errors.add(place, text);
    }

    fn next(&mut self) -> Token {
        if self.stopped { Token::End } else { self.lexer.next() }
    }

    fn take(&mut self, wanted: &Token) -> bool {
        let is_it = !self.stopped && self.lexer.peek() == *wanted;
        if is_it {
            self.lexer.next();
        }
        is_it
    }

    fn stop(&mut self, text: String) {
        if !self.stopped {
            let place = self.lexer.place().to_string();
            self.errors.add_limit(place, text);
            self.stopped = true;
        }
    }

    /// Stops if the budget is used up. Everything that is stored draws on it before.
    fn draw(&mut self, drawn: impl FnOnce(&mut Budget) -> Result<(), Exceeded>) {
        if let Err(e) = drawn(self.budget) {
            self.stop(e.to_string());
        }
    }

    /// Enters something that nests. Returns whether it may.
    fn enter(&mut self) -> bool {
        self.nesting += 1;
        if self.nesting > self.options.limits.depth {
            self.stop(format!("nested deeper than the limit of {} levels", self.options.limits.depth));
        }
        !self.stopped
    }

    /// Reads statements up to the end of the file or of the block.
    fn statements(&mut self, nested: bool) {
        loop {
            let token = self.next();
            match &token {
                Token::End => {
                    if nested && !self.stopped {
                        self.error("syntax error: expected '}' before end of file");
                    }
                    return;
                }
                Token::Char(';') => {}
                Token::Char('}') | Token::Char(')') | Token::Bars if nested => {
                    self.lexer.unget(token);
                    return;
                }
                Token::Name(name) if name == "elementclass" => self.elementclass(),
                Token::Name(name)
                    if matches!(name.as_str(), "define" | "require" | "provide")
                        && self.lexer.peek() == Token::Char('(') =>
                {
                    self.next();
                    let config = self.lexer.config(self.errors);
                    match name.as_str() {
                        "define" => self.define(&config),
                        "require" => self.require(&config),
                        _ => {}
                    }
                }
                Token::Name(_) | Token::Char('[' | '{' | '(') => {
                    self.lexer.unget(token);
                    self.connection();
                }
                Token::Arrow | Token::DoubleArrow if nested => {
                    self.lexer.unget(token);
                    self.connection();
                }
                _ => self.error(format!("syntax error near '{}'", token.text())),
            }
        }
    }

    fn define(&mut self, config: &str) {
        for arg in text::split(config).iter().filter(|a| !a.is_empty()) {
            let (name, value) = text::first_word(arg);
            match name.strip_prefix('$').filter(|n| is_variable(n)) {
                Some(name) => {
                    self.draw(|b| b.entry(name.len() + value.len()));
                    let (variable, place) = (name.to_owned(), self.lexer.place());
                    self.body.defines.push(Define { variable, value, place });
                }
                None => self.error(format!("define: expected '$NAME VALUE', found '{arg}'")),
            }
        }
    }

    fn require(&mut self, config: &str) {
        for arg in text::split(config).iter().filter(|a| !a.is_empty()) {
            let (word, rest) = text::first_word(arg);
            match (word.as_str(), rest.is_empty()) {
                ("library", false) => self.library(&text::unquote(&rest)),
                _ => {
                    let landmark = self.lexer.place().to_string();
                    self.draw(|b| b.entry(arg.len() + landmark.len()));
                    self.requirements.push(Requirement { text: arg.clone(), landmark });
                }
            }
        }
    }

    fn library(&mut self, name: &str) {
        let Some(load) = self.options.library else {
            return self.error(format!("library '{name}' cannot be read here"));
        };
        let from = self.lexer.place().file.to_string();
        match load(name, &from) {
            Err(e) => self.error(format!("library '{name}': {e}")),
            Ok((file, reader)) => {
                if !self.libraries.insert(file.clone()) {
                    return;
                }
                let source = match input::read(reader, self.unread) {
                    Ok(source) => source,
                    Err(e) => return self.stop(format!("library '{name}': {e}")),
                };
                self.unread -= source.len();
                if !self.enter() {
                    return;
                }
                // Its text outlives this call only here.
                let rest = std::mem::replace(&mut self.lexer, Lexer::new(&[], &file));
                let mut inner = Parser {
                    lexer: Lexer::new(&source, &file),
                    options: self.options,
                    budget: self.budget,
                    unread: self.unread,
                    errors: self.errors,
                    classes: std::mem::take(&mut self.classes),
                    scope: std::mem::take(&mut self.scope),
                    hidden: std::mem::take(&mut self.hidden),
                    primitives: std::mem::take(&mut self.primitives),
                    used: std::mem::take(&mut self.used),
                    body: std::mem::replace(&mut self.body, Body::new(0, rest.place())),
                    names: std::mem::take(&mut self.names),
                    requirements: std::mem::take(&mut self.requirements),
                    libraries: std::mem::take(&mut self.libraries),
                    groups: Vec::new(),
                    nesting: self.nesting,
                    stopped: self.stopped,
                };
                inner.statements(false);
                let Parser { classes, scope, hidden, primitives, used, body, .. } = inner;
                let Parser { names, requirements, libraries, stopped, unread, .. } = inner;
                (self.classes, self.scope, self.hidden, self.primitives) =
                    (classes, scope, hidden, primitives);
                (self.used, self.body) = (used, body);
                (self.names, self.requirements, self.libraries) = (names, requirements, libraries);
                (self.stopped, self.unread) = (stopped, unread);
                self.lexer = rest;
                self.nesting -= 1;
            }
        }
    }

    /// Returns the class of this name. An undeclared class is the runtime's.
    fn class(&mut self, name: &str) -> ClassId {
        if !self.used.contains(name) {
            self.draw(|b| b.entry(3 * name.len()));
            self.used.insert(name.to_owned());
        }
        if let Some(&id) = self.scope.get(name) {
            return id;
        }
        let id = self.classes.len();
        let id = *self.primitives.entry(name.to_owned()).or_insert(id);
        if id == self.classes.len() {
            self.classes.push(Class::Primitive(name.to_owned()));
        }
        id
    }

    fn set_class(&mut self, name: String, id: ClassId) {
        self.draw(|b| b.entry(3 * name.len()));
        let old = self.scope.insert(name.clone(), id);
        self.hidden.push((name, old));
    }

    fn elementclass(&mut self) {
        let Token::Name(name) = self.next() else {
            return self.error("syntax error: expected the name of an element class");
        };
        match self.next() {
            Token::Char('{') => {
                let id = self.compound(&name, '}');
                self.set_class(name, id);
            }
            Token::Name(other) => {
                let id = self.class(&other);
                self.set_class(name, id);
            }
            token => self.error(format!("syntax error near '{}': expected '{{' or a class", token.text())),
        }
    }

    /// Reads the inside of a compound, whose opening brace is taken, to its closing one.
    fn compound(&mut self, name: &str, close: char) -> ClassId {
        let (mut bodies, mut then) = (Vec::new(), None);
        self.enter();
        while !self.stopped {
            if self.take(&Token::Dots) {
                then = self.scope.get(name).copied();
                if then.is_none() {
                    self.error(format!("cannot extend unknown element class '{name}'"));
                }
                if bodies.is_empty() || self.lexer.peek() != Token::Char(close) {
                    self.error("'...' should occur last, after one or more compounds");
                }
            } else {
                bodies.push(Rc::new(self.body()));
            }
            if !self.take(&Token::Bars) {
                break;
            }
        }
        if !self.take(&Token::Char(close)) && !self.stopped {
            let found = self.lexer.peek().text();
            if found != Token::End.text() {
                self.error(format!("syntax error near '{found}': expected '{close}'"));
            }
        }
        self.nesting -= 1;
        self.classes.push(Class::Compound { name: name.to_owned(), bodies, then });
        self.classes.len() - 1
    }

    fn body(&mut self) -> Body {
        self.draw(|b| b.bytes(BODY));
        let new = Body::new(self.body.depth + 1, self.lexer.place());
        let outer = std::mem::replace(&mut self.body, new);
        let names = HashMap::from([("input".to_owned(), 0), ("output".to_owned(), 1)]);
        let outer_names = std::mem::replace(&mut self.names, names);
        let outer_scope = self.hidden.len();
        let outer_groups = std::mem::take(&mut self.groups);
        self.formals();
        self.statements(true);
        while self.hidden.len() > outer_scope {
            let Some((name, old)) = self.hidden.pop() else { break };
            match old {
                Some(id) => self.scope.insert(name, id),
                None => self.scope.remove(&name),
            };
        }
        self.groups = outer_groups;
        self.names = outer_names;
        self.body.complete();
        std::mem::replace(&mut self.body, outer)
    }

    /// Reads `$a, KEYWORD $b |`, if it is there.
    fn formals(&mut self) {
        if self.take(&Token::Char('|')) {
            return;
        }
        loop {
            let first = self.next();
            let (keyword, variable) = match first {
                Token::Variable(variable) => (None, variable),
                Token::Name(word) => match self.next() {
                    Token::Variable(variable) => (Some(word), variable),
                    other => {
                        self.lexer.unget(other);
                        self.lexer.unget(Token::Name(word));
                        if !self.body.formals.is_empty() {
                            self.error("syntax error: expected a variable");
                        }
                        return;
                    }
                },
                other => {
                    if !self.body.formals.is_empty() {
                        self.error(format!("syntax error near '{}': expected a variable", other.text()));
                    }
                    return self.lexer.unget(other);
                }
            };
            if self.body.formals.iter().any(|f| f.variable == variable) {
                self.error(format!("repeated formal parameter '${variable}'"));
            }
            let texts = keyword.as_ref().map_or(0, String::len) + variable.len();
            // Each formal is compared with those before it.
            let count = self.body.formals.len();
            self.draw(|b| b.entry(texts).and_then(|()| b.steps(count)));
            if self.stopped {
                return;
            }
            self.body.formals.push(Formal { keyword, variable });
            match self.next() {
                Token::Char(',') => {}
                Token::Char('|') => return,
                other => {
                    self.error(format!("syntax error near '{}': expected ',' or '|'", other.text()));
                    return self.lexer.unget(other);
                }
            }
        }
    }

    /// Reads the class and arguments after `::`.
    fn declared_class(&mut self) -> Option<(ClassId, String, Place)> {
        let place = self.lexer.place();
        let class = match self.next() {
            Token::Name(name) => self.class(&name),
            Token::Char('{') => self.compound("", '}'),
            other => {
                self.error(format!("syntax error near '{}': expected an element class", other.text()));
                self.lexer.unget(other);
                return None;
            }
        };
        let config = match self.take(&Token::Char('(')) {
            true => self.lexer.config(self.errors),
            false => String::new(),
        };
        Some((class, config, place))
    }

    fn add(&mut self, item: Item) -> usize {
        if self.body.items.len() > self.options.limits.elements {
            self.stop(format!("more elements than the limit of {}", self.options.limits.elements));
        }
        // An item, and its entry in the table of names.
        self.draw(|b| b.entry(item.name.len()).and_then(|()| b.entry(item.name.len() + item.config.len())));
        self.body.items.push(item);
        self.body.items.len() - 1
    }

    fn declare(&mut self, name: &str, class: ClassId, config: &str, place: &Place) -> usize {
        if let Some(&old) = self.names.get(name) {
            self.errors.add(place.to_string(), format!("redeclaration of element '{name}'"));
            let old_place = self.body.items[old].place.to_string();
            if !matches!(self.body.items[old].kind, Kind::Tunnel) {
                self.errors.add(old_place, format!("element '{name}' previously declared here"));
            }
            return old;
        }
        if self.used.contains(name) || self.scope.contains_key(name) {
            self.errors.add(place.to_string(), format!("class '{name}' used as element name"));
        }
        let kind = Kind::Class(class);
        let item =
            self.add(Item { name: name.to_owned(), kind, config: config.to_owned(), place: place.clone() });
        self.names.insert(name.to_owned(), item);
        item
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
