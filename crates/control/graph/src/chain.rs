//! Connections: `a [1], b -> [0] c => ( ... ) -> d`.

use super::Parser;
use crate::ast::{Class, End, Item, Kind, Link, OUTPUT};
use crate::budget::ENTRY;
use crate::lex::{Place, Token};

/// Ports in brackets. None were written: port 0, or as many as the other side has.
enum Ports {
    Absent,
    Expandable,
    List(Vec<usize>),
}

/// One element in a chain. A group has another item on each side.
struct Step {
    /// The item that connections lead to, and its ports.
    to: usize,
    inputs: Ports,
    /// The item that connections come from, and its ports.
    from: usize,
    outputs: Ports,
    /// The numbers of ports that are known: those of a group or of a compound without a name.
    known: Option<(usize, usize)>,
}

impl Parser<'_, '_> {
    /// Reads a chain, or a declaration.
    pub(super) fn connection(&mut self) {
        let mut before: Option<(Vec<Step>, bool, Place)> = None;
        let mut starts_with_arrow = matches!(self.lexer.peek(), Token::Arrow | Token::DoubleArrow);
        loop {
            let place = self.lexer.place();
            let steps = match starts_with_arrow {
                // `-> x` inside a compound begins at its input.
                true => vec![self.boundary(true)],
                false => self.steps(before.is_none()),
            };
            if self.stopped {
                return;
            }
            let was_arrow = std::mem::take(&mut starts_with_arrow);
            if steps.is_empty() {
                // `x ->` at the end of a compound ends at its output.
                if let Some((from, double, place)) = before.take() {
                    if self.body.depth == 0 && self.group_depth() == 0 {
                        let found = self.lexer.peek().text();
                        self.error(format!("syntax error near '{found}': expected an element"));
                    } else {
                        let to = vec![self.boundary(false)];
                        self.connect(&from, &to, double, &place);
                    }
                }
                return;
            }
            if let Some((from, double, place)) = before.take() {
                self.connect(&from, &steps, double, &place);
            } else if !was_arrow && steps.iter().any(|s| !matches!(s.inputs, Ports::Absent)) {
                // `[0] -> [1]` is handled as a boundary by `steps`.
                self.error("input port useless at start of chain");
            }
            match self.next() {
                Token::Arrow => before = Some((steps, false, place)),
                Token::DoubleArrow => before = Some((steps, true, place)),
                token => {
                    if steps.iter().any(|s| !matches!(s.outputs, Ports::Absent)) {
                        self.error("output port useless at end of chain");
                    }
                    match token {
                        Token::Char(';') => {}
                        Token::End
                        | Token::Name(_)
                        | Token::Char('}' | ')' | '[' | '{' | '(')
                        | Token::Bars => {
                            self.lexer.unget(token);
                        }
                        token => self.error(format!("syntax error near '{}'", token.text())),
                    }
                    return;
                }
            }
        }
    }

    fn group_depth(&self) -> usize {
        self.groups.len()
    }

    /// Returns the input or the output of the innermost group or compound.
    fn boundary(&mut self, is_input: bool) -> Step {
        let (input, output) = self.groups.last().copied().unwrap_or((0, OUTPUT));
        let item = if is_input { input } else { output };
        Step { to: item, inputs: Ports::Absent, from: item, outputs: Ports::Absent, known: None }
    }

    /// Reads elements with commas between them.
    fn steps(&mut self, is_first: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            self.draw(|b| b.entry(0));
            if self.stopped {
                return steps;
            }
            let inputs = self.ports();
            match self.step(inputs, is_first && steps.is_empty()) {
                Ok(step) => steps.push(step),
                Err(Ports::Absent) => break,
                Err(ports) => {
                    // Ports without an element: those of the surrounding compound.
                    let mut step = self.boundary(is_first);
                    if self.body.depth == 0 && self.groups.is_empty() {
                        let found = self.lexer.peek().text();
                        self.error(format!("syntax error near '{found}': expected an element"));
                    }
                    if is_first {
                        step.outputs = ports;
                    } else {
                        step.inputs = ports;
                    }
                    steps.push(step);
                }
            }
            if !self.take(&Token::Char(',')) {
                break;
            }
        }
        steps
    }

    /// Reads `[0, 1]`, if it is there.
    fn ports(&mut self) -> Ports {
        if !self.take(&Token::Char('[')) {
            return Ports::Absent;
        }
        let mut list = Vec::new();
        loop {
            match self.next() {
                Token::Char(']') if list.is_empty() => return Ports::Expandable,
                Token::Name(n) => match n.parse::<usize>() {
                    Ok(port) if port < 65_536 => {
                        if list.len() >= self.options.limits.connections {
                            self.too_many_connections();
                        } else {
                            list.push(port);
                        }
                    }
                    _ => self.error(format!("syntax error: expected a port number below 65536, found '{n}'")),
                },
                other => {
                    self.error(format!("syntax error near '{}': expected a port number", other.text()));
                    self.lexer.unget(other);
                    return Ports::List(list);
                }
            }
            match self.next() {
                Token::Char(',') => {}
                Token::Char(']') => return Ports::List(list),
                other => {
                    self.error(format!("syntax error near '{}': expected ']'", other.text()));
                    self.lexer.unget(other);
                    return Ports::List(list);
                }
            }
        }
    }

    /// Reads an element and its output ports. Gives the ports back if there is no element.
    fn step(&mut self, inputs: Ports, may_declare: bool) -> Result<Step, Ports> {
        let place = self.lexer.place();
        let mut known = None;
        let (to, from) = match self.next() {
            Token::Char('(') => {
                let group = self.group();
                known = Some(group.1);
                group.0
            }
            Token::Char('{') => {
                let class = self.compound("", '}');
                if let Some(Class::Compound { bodies, .. }) = self.classes.get(class)
                    && let [body] = &bodies[..]
                {
                    known = Some(body.ports);
                }
                let item = self.anonymous(class, place);
                (item, item)
            }
            Token::Name(name) if name == "elementclass" => {
                self.lexer.unget(Token::Name(name));
                return Err(inputs);
            }
            Token::Name(name) => {
                let item = self.named(name, may_declare);
                (item, item)
            }
            other => {
                self.lexer.unget(other);
                return Err(inputs);
            }
        };
        let outputs = self.ports();
        Ok(Step { to, inputs, from, outputs, known })
    }

    fn anonymous(&mut self, class: usize, place: Place) -> usize {
        let config = match self.take(&Token::Char('(')) {
            true => self.lexer.config(self.errors),
            false => String::new(),
        };
        self.add(Item { name: String::new(), kind: Kind::Class(class), config, place })
    }

    /// Reads what follows a name: a declaration, arguments, or nothing.
    fn named(&mut self, name: String, may_declare: bool) -> usize {
        let place = self.lexer.place();
        let mut all = vec![name];
        // `a, b, c :: Class` is a declaration; `a, b -> c` is not.
        let mut read = Vec::new();
        while may_declare && all.len() < 4096 {
            if !self.take(&Token::Char(',')) {
                break;
            }
            read.push(Token::Char(','));
            match self.next() {
                Token::Name(n) => {
                    read.push(Token::Name(n.clone()));
                    all.push(n);
                }
                other => {
                    self.lexer.unget(other);
                    break;
                }
            }
        }
        if all.len() * 2 == read.len() + 2 && self.take(&Token::Colons) {
            let Some((class, config, place)) = self.declared_class() else { return 0 };
            let items: Vec<_> = all.iter().map(|n| self.declare(n, class, &config, &place)).collect();
            if let [.., _, last] = items[..] {
                // Several names: the last one is connected, as in Click.
                return last;
            }
            return items[0];
        }
        for token in read.into_iter().rev() {
            self.lexer.unget(token);
        }
        let name = &all[0];
        if let Some(&item) = self.names.get(name) {
            if self.lexer.peek() != Token::Char('(') {
                return item;
            }
            if !self.scope.contains_key(name) {
                self.error(format!("'{name}' is an element: its arguments stand where it is declared"));
            }
        }
        let class = self.class(name);
        self.anonymous(class, place)
    }

    /// Reads a group, whose opening parenthesis is taken. Returns its items and numbers of ports.
    fn group(&mut self) -> ((usize, usize), (usize, usize)) {
        let place = self.lexer.place();
        let tunnel = |name: &str| Item {
            name: name.into(),
            kind: Kind::Tunnel,
            config: String::new(),
            place: place.clone(),
        };
        let (input, output) = (self.add(tunnel("(")), self.add(tunnel(")")));
        let first_link = self.body.links.len();
        if self.enter() {
            self.groups.push((input, output));
            let names = ["input", "output"].map(|n| (n, self.names.get(n).copied()));
            self.names.insert("input".into(), input);
            self.names.insert("output".into(), output);
            self.statements(true);
            for (name, old) in names {
                match old {
                    Some(old) => self.names.insert(name.into(), old),
                    None => self.names.remove(name),
                };
            }
            self.groups.pop();
        }
        if !self.take(&Token::Char(')')) && !self.stopped {
            let found = self.lexer.peek().text();
            self.error(format!("syntax error near '{found}': expected ')'"));
        }
        self.nesting -= 1;
        let ports = |item: usize, is_input: bool| {
            let ends = self.body.links[first_link..].iter().map(|l| if is_input { l.from } else { l.to });
            ends.filter(|e| e.item == item).map(|e| e.port + 1).max().unwrap_or(0)
        };
        ((input, output), (ports(input, true), ports(output, false)))
    }

    fn too_many_connections(&mut self) {
        self.stop(format!("more connections than the limit of {}", self.options.limits.connections));
    }

    /// Connects the elements on both sides of an arrow.
    fn connect(&mut self, left: &[Step], right: &[Step], double: bool, place: &Place) {
        let known = |s: &Step, is_left: bool| match s.known {
            Some((inputs, outputs)) if double => Some(if is_left { outputs } else { inputs }),
            _ => None,
        };
        let most = self.options.limits.connections;
        let side = |steps: &[Step], is_left: bool| {
            let mut ends = Vec::new();
            let mut open = Vec::new();
            // More ends than there may be connections are an error below.
            for s in steps {
                if ends.len() > most {
                    break;
                }
                let (item, ports) = if is_left { (s.from, &s.outputs) } else { (s.to, &s.inputs) };
                match ports {
                    Ports::List(list) => ends.extend(list.iter().map(|p| Some(End { item, port: *p }))),
                    Ports::Expandable => {
                        open.push((ends.len(), item, true));
                        ends.push(None);
                    }
                    Ports::Absent => match known(s, is_left) {
                        Some(n) if n != 1 => ends.extend((0..n).map(|port| Some(End { item, port }))),
                        _ => {
                            if double && steps.len() == 1 && s.known.is_none() {
                                open.push((ends.len(), item, false));
                            }
                            ends.push(Some(End { item, port: 0 }));
                        }
                    },
                }
            }
            (ends, open)
        };
        let ((mut from, from_open), (mut to, to_open)) = (side(left, true), side(right, false));
        let explicit = from_open.iter().chain(&to_open).filter(|o| o.2).count();
        if explicit > 1 {
            return self.mismatch(place, "at most one expandable port allowed per connection".into());
        }
        let fill = |ends: &mut Vec<Option<End>>, open: &[(usize, usize, bool)], other: usize| {
            let Some(&(at, item, is_explicit)) = open.first() else { return };
            let wanted = (other + 1).saturating_sub(ends.len());
            if is_explicit || wanted > 1 {
                ends.splice(at..=at, (0..wanted).map(|port| Some(End { item, port })));
            }
        };
        let (m, n) = (from.len(), to.len());
        if to_open.iter().any(|o| o.2) || n < m {
            fill(&mut to, &to_open, m);
        } else {
            fill(&mut from, &from_open, n);
        }
        let (from, to): (Vec<End>, Vec<End>) =
            (from.into_iter().flatten().collect(), to.into_iter().flatten().collect());
        if !double && from.len() > 1 && to.len() > 1 {
            return self.mismatch(place, "syntax error: many-to-many connections require '=>'".into());
        }
        if from.len() != to.len() && from.len() != 1 && to.len() != 1 {
            let text =
                format!("connection mismatch: {} outputs connected to {} inputs", from.len(), to.len());
            return self.mismatch(place, text);
        }
        if self.body.links.len() + from.len().max(to.len()) > most {
            return self.too_many_connections();
        }
        self.draw(|b| b.bytes(ENTRY * from.len().max(to.len())));
        if self.stopped {
            return;
        }
        for i in 0..from.len().max(to.len()) {
            let (Some(f), Some(t)) =
                (from.get(i.min(from.len().wrapping_sub(1))), to.get(i.min(to.len().wrapping_sub(1))))
            else {
                // A list of ports whose error was reported.
                return;
            };
            self.body.links.push(Link { from: *f, to: *t, place: place.clone() });
        }
    }

    fn mismatch(&mut self, place: &Place, text: String) {
        self.errors.add(place.to_string(), text);
    }
}
