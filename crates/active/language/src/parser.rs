//! The parser, which checks types as it reads.

use crate::ProgramError;
use crate::lexer::{Placed, Token, words};
use crate::program::{Call, Expression as E, Fold, Function, Operator, Send, Type};
use flame_capsule::{MAX_ARGUMENTS, MAX_LIST, name};

const MAX_FUNCTIONS: usize = 32;
const MAX_PARAMETERS: usize = 8;
const MAX_VARIABLES: usize = 256;
/// The deepest nesting of expressions.
const MAX_DEPTH: usize = 48;
/// The most elements that a fold may state.
const MAX_FOLD: i64 = MAX_LIST as i64;
const KEYWORDS: [&str; 22] = [
    "fun",
    "let",
    "in",
    "if",
    "then",
    "else",
    "fold",
    "at",
    "most",
    "with",
    "do",
    "end",
    "and",
    "or",
    "not",
    "true",
    "false",
    "nowhere",
    "all",
    "skip",
    "OnRemote",
    "OnNeighbor",
];

type Typed = (E, Type);

struct Signature<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, Type)>,
}

struct Parser<'a> {
    words: Vec<Placed<'a>>,
    at: usize,
    depth: usize,
    signatures: Vec<Signature<'a>>,
    /// The functions that are read.
    done: Vec<Function>,
    /// The variables in sight: name, type and number.
    scope: Vec<(&'a str, Type, usize)>,
    variables: usize,
}

/// Returns the functions of a text.
pub fn parse(text: &str) -> Result<Vec<Function>, ProgramError> {
    let mut parser = Parser {
        words: words(text)?,
        at: 0,
        depth: 0,
        signatures: Vec::new(),
        done: Vec::new(),
        scope: Vec::new(),
        variables: 0,
    };
    parser.find_signatures()?;
    while parser.peek() != &Token::End {
        parser.function()?;
    }
    if parser.done.is_empty() {
        return parser.error("found no function, expected one", "begin with `fun name() = …`");
    }
    Ok(parser.done)
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &Token<'a> {
        &self.words[self.at].token
    }

    fn take(&mut self) -> Token<'a> {
        let token = self.words[self.at].token.clone();
        self.at = (self.at + 1).min(self.words.len() - 1);
        token
    }

    fn error<T>(&self, text: impl Into<String>, remedy: impl Into<String>) -> Result<T, ProgramError> {
        let Placed { line, column, .. } = self.words[self.at];
        Err(ProgramError { line, column, text: text.into(), remedy: remedy.into() })
    }

    fn found(&self) -> String {
        match self.peek() {
            Token::Word(word) | Token::Text(word) => format!("`{word}`"),
            Token::Number(number) => format!("`{number}`"),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::End => "the end".to_owned(),
        }
    }

    fn is(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if *found == word)
            || matches!(self.peek(), Token::Sign(found) if *found == word)
    }

    fn skip(&mut self, word: &str) -> bool {
        let is_it = self.is(word);
        if is_it {
            self.take();
        }
        is_it
    }

    fn expect(&mut self, word: &str) -> Result<(), ProgramError> {
        if self.skip(word) {
            return Ok(());
        }
        self.error(format!("found {}, expected `{word}`", self.found()), format!("add `{word}`"))
    }

    fn new_name(&mut self) -> Result<&'a str, ProgramError> {
        match *self.peek() {
            Token::Word(word) if !KEYWORDS.contains(&word) => {
                self.take();
                Ok(word)
            }
            _ => self.error(
                format!("found {}, expected a name", self.found()),
                "take a name of letters, digits and _ that has no other meaning",
            ),
        }
    }

    /// Reads the heads of all functions: a copy may call any.
    fn find_signatures(&mut self) -> Result<(), ProgramError> {
        while self.peek() != &Token::End {
            if !self.skip("fun") {
                self.take();
                continue;
            }
            let at = self.at;
            let name = self.new_name()?;
            if self.signatures.iter().any(|other| other.name == name) || name == "memory" {
                self.at = at;
                return self.error(format!("found a second `{name}`, expected a new name"), "rename it");
            }
            let parameters = self.parameters()?;
            self.signatures.push(Signature { name, parameters });
            if self.signatures.len() > MAX_FUNCTIONS {
                let text = format!("found more than {MAX_FUNCTIONS} functions, expected fewer");
                return self.error(text, "divide the program");
            }
        }
        self.at = 0;
        Ok(())
    }

    fn parameters(&mut self) -> Result<Vec<(&'a str, Type)>, ProgramError> {
        self.expect("(")?;
        let mut all: Vec<(&str, Type)> = Vec::new();
        while !self.is(")") {
            if !all.is_empty() {
                self.expect(",")?;
            }
            let name = self.new_name()?;
            self.expect(":")?;
            let types = [Type::Int, Type::Bool, Type::Place, Type::Ints, Type::Places];
            let found = types.into_iter().find(|of| self.is(of.name()));
            let Some(of) = found else {
                let text = format!("found {}, expected int, bool, place, ints or places", self.found());
                return self.error(text, "state the type");
            };
            self.take();
            if all.iter().any(|(other, _)| *other == name) {
                return self.error(format!("found a second `{name}`, expected a new name"), "rename it");
            }
            all.push((name, of));
        }
        let length: usize = all.iter().map(|(_, of)| most_bytes(*of)).sum();
        if all.len() > MAX_PARAMETERS || length > MAX_ARGUMENTS {
            let text = format!("found {} parameters of up to {length} bytes", all.len());
            let text = format!("{text}, expected at most {MAX_PARAMETERS} of {MAX_ARGUMENTS} bytes");
            return self.error(text, "take fewer, and at most three lists");
        }
        self.expect(")")?;
        Ok(all)
    }

    fn function(&mut self) -> Result<(), ProgramError> {
        self.expect("fun")?;
        let name = self.new_name()?.to_owned();
        let parameters = self.parameters()?;
        self.expect("=")?;
        self.scope.clear();
        self.variables = 0;
        for (name, of) in &parameters {
            self.bind(name, *of)?;
        }
        let (body, result) = self.sequence()?;
        if !self.is("fun") && self.peek() != &Token::End {
            let text = format!("found {}, expected the end of `{name}`", self.found());
            return self.error(text, "add an operator or `;`, or begin the next function with `fun`");
        }
        let parameters = parameters.into_iter().map(|(_, of)| of).collect();
        let variables = self.variables;
        self.done.push(Function { name, parameters, body, result, variables, is_called: false });
        Ok(())
    }

    fn bind(&mut self, name: &'a str, of: Type) -> Result<usize, ProgramError> {
        if self.variables >= MAX_VARIABLES {
            let text = format!("found more than {MAX_VARIABLES} variables, expected fewer");
            return self.error(text, "divide the function");
        }
        self.scope.push((name, of, self.variables));
        self.variables += 1;
        Ok(self.variables - 1)
    }

    /// Reads an expression of a type.
    fn of(
        &mut self,
        of: Type,
        read: fn(&mut Self) -> Result<Typed, ProgramError>,
    ) -> Result<E, ProgramError> {
        let at = self.at;
        let (expression, found) = read(self)?;
        self.must_be(at, found, of)?;
        Ok(expression)
    }

    fn must_be(&mut self, at: usize, found: Type, expected: Type) -> Result<(), ProgramError> {
        if found == expected {
            return Ok(());
        }
        self.at = at;
        let remedy = match (found, expected) {
            (Type::Int, Type::Place) => "write place(…)",
            (Type::Place, Type::Int) => "write int(…)",
            (Type::Int, Type::Bool) => "compare it, as in `… != 0`",
            (_, Type::Unit) => "take a call with an effect, or skip",
            _ => "take a value of that type",
        };
        self.error(format!("found {}, expected {}", found.name(), expected.name()), remedy)
    }

    /// Guards the depth of nested calls of the parser.
    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ProgramError>,
    ) -> Result<T, ProgramError> {
        if self.depth >= MAX_DEPTH {
            let text = format!("found more than {MAX_DEPTH} nested expressions, expected fewer");
            return self.error(text, "name parts with let, or divide the function");
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn sequence(&mut self) -> Result<Typed, ProgramError> {
        let at = self.at;
        let first = self.item()?;
        if !self.skip(";") {
            return Ok(first);
        }
        self.must_be(at, first.1, Type::Unit)?;
        let (second, of) = self.deeper(Self::sequence)?;
        Ok((E::Then(Box::new(first.0), Box::new(second)), of))
    }

    fn item(&mut self) -> Result<Typed, ProgramError> {
        self.deeper(|parser| {
            if parser.skip("let") {
                let name = parser.new_name()?;
                parser.expect("=")?;
                let (value, of) = parser.item()?;
                parser.expect("in")?;
                let variable = parser.bind(name, of)?;
                let (body, of) = parser.sequence()?;
                parser.scope.pop();
                return Ok((E::Let(variable, Box::new(value), Box::new(body)), of));
            }
            if parser.skip("if") {
                let condition = parser.of(Type::Bool, Self::item)?;
                parser.expect("then")?;
                let (yes, of) = parser.item()?;
                parser.expect("else")?;
                let no = parser.of_last(of)?;
                return Ok((E::If(Box::new(condition), Box::new(yes), Box::new(no)), of));
            }
            if parser.skip("fold") { parser.fold() } else { parser.either() }
        })
    }

    /// Reads the last part of an `if`, which has the type of the first.
    fn of_last(&mut self, of: Type) -> Result<E, ProgramError> {
        let at = self.at;
        let (no, found) = self.item()?;
        self.must_be(at, found, of)?;
        Ok(no)
    }

    fn fold(&mut self) -> Result<Typed, ProgramError> {
        let item = self.new_name()?;
        self.expect("in")?;
        let at = self.at;
        let (list, of) = self.either()?;
        let Some(element) = of.element() else {
            self.at = at;
            return self.error(format!("found {}, expected ints or places", of.name()), "take a list");
        };
        self.expect("at")?;
        self.expect("most")?;
        let most = match *self.peek() {
            Token::Number(most @ 1..=MAX_FOLD) => u32::try_from(most).unwrap_or(1),
            _ => {
                let text = format!("found {}, expected a number from 1 to {MAX_FOLD}", self.found());
                return self.error(text, "state how many elements are visited at most");
            }
        };
        self.take();
        self.expect("with")?;
        let value = self.new_name()?;
        self.expect("=")?;
        let (first, of) = self.either()?;
        self.expect("do")?;
        let item = self.bind(item, element)?;
        let value = self.bind(value, of)?;
        let body = self.of(of, Self::sequence)?;
        self.scope.truncate(self.scope.len() - 2);
        self.expect("end")?;
        Ok((E::Fold(Box::new(Fold { list, most, item, value, first, body })), of))
    }

    fn either(&mut self) -> Result<Typed, ProgramError> {
        self.logic("or", Self::both, |a, b| E::If(a, Box::new(E::Constant(1)), b))
    }

    fn both(&mut self) -> Result<Typed, ProgramError> {
        self.logic("and", Self::comparison, |a, b| E::If(a, b, Box::new(E::Constant(0))))
    }

    fn logic(
        &mut self,
        word: &str,
        part: fn(&mut Self) -> Result<Typed, ProgramError>,
        make: fn(Box<E>, Box<E>) -> E,
    ) -> Result<Typed, ProgramError> {
        let at = self.at;
        let (mut left, of) = part(self)?;
        let mut chained = 0;
        while self.is(word) {
            self.must_be(at, of, Type::Bool)?;
            self.take();
            let right = self.of(Type::Bool, part)?;
            left = make(Box::new(left), Box::new(right));
            chained = self.chained(chained)?;
        }
        Ok((left, of))
    }

    /// Counts the operators of one level: they nest as parentheses do.
    fn chained(&self, count: usize) -> Result<usize, ProgramError> {
        if count < MAX_DEPTH {
            return Ok(count + 1);
        }
        let text = format!("found more than {MAX_DEPTH} operators in a row, expected fewer");
        self.error(text, "name parts with let")
    }

    fn comparison(&mut self) -> Result<Typed, ProgramError> {
        let at = self.at;
        let (left, of) = self.sum()?;
        let operator = match self.peek() {
            Token::Sign("==") => Operator::Equal,
            Token::Sign("!=") => Operator::Differ,
            Token::Sign("<") => Operator::Less,
            Token::Sign("<=") => Operator::LessOrEqual,
            Token::Sign(">") => Operator::Greater,
            Token::Sign(">=") => Operator::GreaterOrEqual,
            _ => return Ok((left, of)),
        };
        let is_equality = matches!(operator, Operator::Equal | Operator::Differ);
        if !(of == Type::Int || is_equality && matches!(of, Type::Place | Type::Bool)) {
            self.at = at;
            return self
                .error(format!("found {}, expected int", of.name()), "compare numbers, or places by ==");
        }
        self.take();
        let right_at = self.at;
        let (right, found) = self.sum()?;
        self.must_be(right_at, found, of)?;
        Ok((E::Binary(operator, Box::new(left), Box::new(right)), Type::Bool))
    }

    fn sum(&mut self) -> Result<Typed, ProgramError> {
        self.chain(&[("+", Operator::Add), ("-", Operator::Subtract)], Self::product)
    }

    fn product(&mut self) -> Result<Typed, ProgramError> {
        let signs = [("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)];
        self.chain(&signs, Self::unary)
    }

    fn chain(
        &mut self,
        signs: &[(&str, Operator)],
        part: fn(&mut Self) -> Result<Typed, ProgramError>,
    ) -> Result<Typed, ProgramError> {
        let at = self.at;
        let (mut left, of) = part(self)?;
        let mut chained = 0;
        while let Some((sign, operator)) = signs.iter().find(|(sign, _)| self.is(sign)) {
            self.must_be(at, of, Type::Int)?;
            self.expect(sign)?;
            let right = self.of(Type::Int, part)?;
            left = E::Binary(*operator, Box::new(left), Box::new(right));
            chained = self.chained(chained)?;
        }
        Ok((left, of))
    }

    fn unary(&mut self) -> Result<Typed, ProgramError> {
        self.deeper(|parser| {
            if parser.skip("-") {
                let value = parser.of(Type::Int, Self::unary)?;
                let zero = Box::new(E::Constant(0));
                return Ok((E::Binary(Operator::Subtract, zero, Box::new(value)), Type::Int));
            }
            if parser.skip("not") {
                let value = parser.of(Type::Bool, Self::unary)?;
                let zero = Box::new(E::Constant(0));
                return Ok((E::Binary(Operator::Equal, Box::new(value), zero), Type::Bool));
            }
            parser.primary()
        })
    }

    fn primary(&mut self) -> Result<Typed, ProgramError> {
        let at = self.at;
        match self.take() {
            Token::Number(number) => Ok((E::Constant(number), Type::Int)),
            Token::Sign("(") => {
                let inner = self.sequence()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Sign("[") => self.list(),
            Token::Word("true") => Ok((E::Constant(1), Type::Bool)),
            Token::Word("false") => Ok((E::Constant(0), Type::Bool)),
            Token::Word("nowhere") => Ok((E::Constant(0), Type::Place)),
            Token::Word("all") => Ok((E::Constant(1000), Type::Int)),
            Token::Word("skip") => Ok((E::Constant(0), Type::Unit)),
            Token::Word("OnRemote") => self.send(true),
            Token::Word("OnNeighbor") => self.send(false),
            Token::Word(word) if !KEYWORDS.contains(&word) => {
                if self.is("(") {
                    return self.call(at, word);
                }
                let variable = self.scope.iter().rev().find(|(name, ..)| *name == word);
                if let Some((_, of, number)) = variable {
                    return Ok((E::Variable(*number), *of));
                }
                self.at = at;
                self.error(
                    format!("found `{word}`, expected a variable in sight"),
                    "bind it with let, or correct it",
                )
            }
            _ => {
                self.at = at;
                self.error(format!("found {}, expected a value", self.found()), "add one, or remove this")
            }
        }
    }

    fn list(&mut self) -> Result<Typed, ProgramError> {
        let (first, of) = self.item()?;
        let list = match of {
            Type::Int => Type::Ints,
            Type::Place => Type::Places,
            _ => {
                return self
                    .error(format!("found {}, expected int or place", of.name()), "lists have only these");
            }
        };
        let mut all = vec![first];
        while self.skip(",") {
            all.push(self.of(of, Self::item)?);
        }
        self.expect("]")?;
        if all.len() > MAX_LIST {
            return self
                .error(format!("found {} elements, expected at most {MAX_LIST}", all.len()), "take fewer");
        }
        Ok((E::List(all), list))
    }

    fn text(&mut self) -> Result<E, ProgramError> {
        if let Token::Text(text) = *self.peek()
            && let Some(number) = name(text)
            && number != 0
        {
            self.take();
            return Ok(E::Constant(number.cast_signed()));
        }
        self.error(
            format!("found {}, expected a name of one to eight bytes in quotes", self.found()),
            "write it as in \"queue\"",
        )
    }

    /// Reads the arguments of a function of this program.
    fn arguments(&mut self, function: usize) -> Result<Vec<(Type, E)>, ProgramError> {
        self.expect("(")?;
        let types: Vec<Type> = self.signatures[function].parameters.iter().map(|(_, of)| *of).collect();
        let mut all = Vec::new();
        for of in types {
            if !all.is_empty() {
                self.expect(",")?;
            }
            all.push((of, self.of(of, Self::item)?));
        }
        self.expect(")")?;
        Ok(all)
    }

    fn send(&mut self, is_remote: bool) -> Result<Typed, ProgramError> {
        self.expect("(")?;
        let at = self.at;
        let name = self.new_name()?;
        let Some(function) = self.signatures.iter().position(|signature| signature.name == name) else {
            self.at = at;
            return self.error(format!("found `{name}`, expected a function of this program"), "define it");
        };
        let arguments = self.arguments(function)?;
        self.expect(",")?;
        let place = self.of(Type::Place, Self::item)?;
        self.expect(",")?;
        let parts = self.of(Type::Int, Self::item)?;
        self.expect(")")?;
        Ok((E::Send(Box::new(Send { is_remote, function, arguments, place, parts })), Type::Unit))
    }

    fn call(&mut self, at: usize, word: &'a str) -> Result<Typed, ProgramError> {
        if let Some(function) = self.signatures.iter().position(|signature| signature.name == word) {
            let Some(result) = self.done.get(function).map(|function| function.result) else {
                self.at = at;
                let text = format!("found a call of `{word}`, expected a function above this one");
                return self
                    .error(text, "move it up; a function calls itself only by OnRemote or OnNeighbor");
            };
            let arguments = self.arguments(function)?.into_iter().map(|(_, value)| value).collect();
            self.done[function].is_called = true;
            return Ok((E::Function(function, arguments), result));
        }
        self.expect("(")?;
        let call = |call, arguments| E::Call(call, arguments);
        let typed = match word {
            "here" => (call(Call::Here, vec![]), Type::Place),
            "origin" => (call(Call::Origin, vec![]), Type::Place),
            "from" => (call(Call::From, vec![]), Type::Place),
            "now" => (call(Call::Now, vec![]), Type::Int),
            "hops" => (call(Call::Hops, vec![]), Type::Int),
            "neighbours" => (call(Call::Neighbours, vec![]), Type::Places),
            "ints" => (E::List(vec![]), Type::Ints),
            "places" => (E::List(vec![]), Type::Places),
            "next" => (call(Call::Next, vec![self.of(Type::Place, Self::item)?]), Type::Place),
            "place" => (self.of(Type::Int, Self::item)?, Type::Place),
            "int" => (self.of(Type::Place, Self::item)?, Type::Int),
            "find" => (call(Call::Find, vec![self.text()?]), Type::Int),
            "service" => {
                let name = self.text()?;
                self.expect(",")?;
                (call(Call::Service, vec![name, self.of(Type::Int, Self::item)?]), Type::Int)
            }
            "leave" => {
                let name = self.text()?;
                self.expect(",")?;
                let value = self.of(Type::Int, Self::item)?;
                self.expect(",")?;
                (call(Call::Leave, vec![name, value, self.of(Type::Int, Self::item)?]), Type::Unit)
            }
            "length" | "push" => {
                let at = self.at;
                let (list, of) = self.item()?;
                let Some(element) = of.element() else {
                    self.at = at;
                    return self
                        .error(format!("found {}, expected ints or places", of.name()), "take a list");
                };
                if word == "length" {
                    (E::Length(Box::new(list)), Type::Int)
                } else {
                    self.expect(",")?;
                    let value = self.of(element, Self::item)?;
                    (E::Push(Box::new(list), Box::new(value)), of)
                }
            }
            "deliver" => {
                let mut all = Vec::new();
                while all.is_empty() || self.skip(",") {
                    let at = self.at;
                    let (value, of) = self.item()?;
                    if of == Type::Unit {
                        self.at = at;
                        return self
                            .error("found nothing, expected a value", "deliver numbers, places or lists");
                    }
                    all.push((of, value));
                }
                if all.iter().map(|(of, _)| most_bytes(*of)).sum::<usize>() > MAX_ARGUMENTS {
                    let text = format!("found more than {MAX_ARGUMENTS} bytes, expected fewer");
                    return self.error(text, "deliver at most three lists");
                }
                (E::Deliver(all), Type::Unit)
            }
            _ => {
                self.at = at;
                return self
                    .error(format!("found a call of `{word}`, expected a function"), "define it above");
            }
        };
        self.expect(")")?;
        Ok(typed)
    }
}

/// Returns the most bytes of a value among arguments.
pub fn most_bytes(of: Type) -> usize {
    if of.is_list() { 8 + 8 * MAX_LIST } else { 8 }
}
