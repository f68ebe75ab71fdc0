//! Random programs and texts: the compiled form against the interpreter.

use crate::numbers;
use crate::programs::both;
use fastrand::Rng;
use flame_capsule::Place;
use flame_capsule_language::{Program, Type};

/// Makes programs that are well typed, from random numbers.
struct Maker {
    rng: Rng,
    scope: Vec<(String, &'static str)>,
    names: usize,
    /// The functions so far, with the types of their parameters.
    functions: Vec<Vec<&'static str>>,
}

const TYPES: [&str; 5] = ["int", "bool", "place", "ints", "places"];

impl Maker {
    fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    fn variable(&mut self, of: &str) -> Option<String> {
        let all: Vec<&String> = self.scope.iter().filter(|(_, t)| *t == of).map(|(name, _)| name).collect();
        if all.is_empty() { None } else { Some(all[self.rng.usize(..all.len())].clone()) }
    }

    fn leaf(&mut self, of: &'static str) -> String {
        if self.rng.u8(..3) > 0
            && let Some(name) = self.variable(of)
        {
            return name;
        }
        let number = |rng: &mut Rng| match rng.u8(..6) {
            0 => "9223372036854775807".to_owned(),
            1 => "(0 - 9223372036854775807 - 1)".to_owned(),
            _ => rng.u32(..20).to_string(),
        };
        match of {
            "int" => match self.rng.u8(..4) {
                0 => "hops()".to_owned(),
                1 => "find(\"a\")".to_owned(),
                _ => number(&mut self.rng),
            },
            "bool" => ["true", "false"][self.rng.usize(..2)].to_owned(),
            "place" => ["here()", "origin()", "from()", "nowhere"][self.rng.usize(..4)].to_owned(),
            "ints" => ["ints()", "[1, 2, 3]"][self.rng.usize(..2)].to_owned(),
            "places" => ["places()", "neighbours()", "[here()]"][self.rng.usize(..3)].to_owned(),
            _ => "skip".to_owned(),
        }
    }

    fn value(&mut self, of: &'static str, depth: usize) -> String {
        if depth == 0 || self.rng.u8(..5) == 0 {
            return self.leaf(of);
        }
        let d = depth - 1;
        match self.rng.u8(..12) {
            0 => {
                let (name, kind) = (self.name(), TYPES[self.rng.usize(..5)]);
                let value = self.value(kind, d);
                self.scope.push((name.clone(), kind));
                let body = self.value(of, d);
                self.scope.pop();
                return format!("(let {name} = {value} in {body})");
            }
            1 => {
                let (c, a, b) = (self.value("bool", d), self.value(of, d), self.value(of, d));
                return format!("(if {c} then {a} else {b})");
            }
            2 | 3 => {
                let list = ["ints", "places"][self.rng.usize(..2)];
                let (x, acc, most) = (self.name(), self.name(), self.rng.u32(1..6));
                let (values, first) = (self.value(list, d), self.value(of, d));
                self.scope.push((x.clone(), if list == "ints" { "int" } else { "place" }));
                self.scope.push((acc.clone(), of));
                let body = self.value(of, d);
                self.scope.truncate(self.scope.len() - 2);
                return format!("(fold {x} in {values} at most {most} with {acc} = {first} do {body} end)");
            }
            4 => {
                let (effect, value) = (self.value("unit", d), self.value(of, d));
                return format!("({effect}; {value})");
            }
            _ => {}
        }
        match of {
            "int" => match self.rng.u8(..5) {
                0 => format!("service(\"s\", {})", self.value("int", d)),
                1 => format!("length({})", self.value("ints", d)),
                2 => format!("int({})", self.value("place", d)),
                _ => {
                    let sign = ["+", "-", "*", "/", "%"][self.rng.usize(..5)];
                    format!("({} {sign} {})", self.value("int", d), self.value("int", d))
                }
            },
            "bool" => match self.rng.u8(..4) {
                0 => format!("not {}", self.leaf("bool")),
                1 => {
                    let word = ["and", "or"][self.rng.usize(..2)];
                    format!("({} {word} {})", self.value("bool", d), self.value("bool", d))
                }
                2 => format!("({} == {})", self.value("place", d), self.value("place", d)),
                _ => {
                    let sign = ["==", "!=", "<", "<=", ">", ">="][self.rng.usize(..6)];
                    format!("({} {sign} {})", self.value("int", d), self.value("int", d))
                }
            },
            "place" => match self.rng.u8(..2) {
                0 => format!("next({})", self.value("place", d)),
                _ => format!("place({})", self.value("int", d)),
            },
            "ints" => format!("push({}, {})", self.value("ints", d), self.value("int", d)),
            "places" => format!("push({}, {})", self.value("places", d), self.value("place", d)),
            _ => match self.rng.u8(..3) {
                0 => {
                    let kind = TYPES[self.rng.usize(..5)];
                    format!("deliver({}, {})", self.value("int", d), self.value(kind, d))
                }
                1 => format!("leave(\"b\", {}, {})", self.value("int", d), self.value("int", d)),
                _ => {
                    let function = self.rng.usize(..self.functions.len());
                    let types = self.functions[function].clone();
                    let arguments: Vec<String> = types.into_iter().map(|of| self.value(of, d)).collect();
                    let kind = ["OnRemote", "OnNeighbor"][self.rng.usize(..2)];
                    let (place, parts) = (self.value("place", d), self.value("int", d));
                    format!("{kind}(f{function}({}), {place}, {parts})", arguments.join(", "))
                }
            },
        }
    }

    fn program(&mut self) -> String {
        let count = self.rng.usize(1..3);
        self.functions = (0..count)
            .map(|_| (0..self.rng.usize(..4)).map(|_| TYPES[self.rng.usize(..5)]).collect())
            .collect();
        for types in &mut self.functions {
            while types.iter().filter(|of| of.ends_with('s')).count() > 3 {
                types.pop();
            }
        }
        let mut text = String::new();
        for function in 0..count {
            self.scope.clear();
            let types = self.functions[function].clone();
            let named: Vec<String> = types.iter().enumerate().map(|(n, of)| format!("p{n}: {of}")).collect();
            self.scope.extend(types.iter().enumerate().map(|(n, of)| (format!("p{n}"), *of)));
            let (depth, effects) = (self.rng.usize(1..4), self.rng.usize(1..3));
            let body: Vec<String> = (0..effects).map(|_| self.value("unit", depth)).collect();
            // A function above may be called.
            let call = (0..function).find(|above| self.functions[*above].is_empty());
            let call = call.map(|above| format!("; f{above}()")).unwrap_or_default();
            text += &format!("fun f{function}({}) = {}{call}\n", named.join(", "), body.join("; "));
        }
        text
    }
}

fn arguments(rng: &mut Rng, types: &[Type]) -> Vec<u8> {
    let mut all = Vec::new();
    for of in types {
        if of.is_list() {
            let kinds = if rng.u8(..8) == 0 { 6 } else { 5 };
            let count = [0, 1, 3, 31, 32, 33][rng.usize(..kinds)];
            all.push(count);
            all.extend((0..count).map(|_| rng.i64(..50)));
        } else {
            all.push(if *of == Type::Bool { rng.i64(..2) } else { rng.i64(-5..40) });
        }
    }
    let mut bytes = numbers(&all);
    if rng.u8(..20) == 0 {
        bytes.truncate(rng.usize(..=bytes.len()));
    }
    bytes.truncate(1024);
    bytes
}

#[test]
fn compiled_and_interpreted_programs_agree() {
    let (mut ended, mut failed, mut refused) = (0, 0, 0);
    for seed in 0..6000 {
        let (scope, functions) = (Vec::new(), Vec::new());
        let mut maker = Maker { rng: Rng::with_seed(seed), scope, names: 0, functions };
        let text = maker.program();
        let program = match Program::read(&text) {
            Ok(program) => program,
            Err(e) => {
                let is_size = ["bytes compiled", "bytes of lists", "nested", "variables"];
                assert!(is_size.iter().any(|word| e.to_string().contains(word)), "seed {seed}: {e}\n{text}");
                refused += 1;
                continue;
            }
        };
        let mut rng = Rng::with_seed(seed);
        for function in 0..program.functions().len() {
            for _ in 0..4 {
                let bytes = arguments(&mut rng, program.functions()[function].parameters());
                let neighbours: Vec<Place> = (0..rng.u64(..40)).map(Place).collect();
                let result = std::panic::catch_unwind(|| both(&program, function, &bytes, &neighbours));
                match result.unwrap_or_else(|_| panic!("seed {seed}, function {function}:\n{text}")) {
                    Ok(_) => ended += 1,
                    Err(()) => failed += 1,
                }
            }
        }
    }
    assert!(
        ended > 5000 && failed > 500 && refused < 3000,
        "{ended} ended, {failed} failed, {refused} refused"
    );
}

#[test]
fn any_text_is_refused_or_compiled() {
    let words = [
        "fun",
        "f",
        "g",
        "(",
        ")",
        "=",
        "let",
        "in",
        "if",
        "then",
        "else",
        "fold",
        "at",
        "most",
        "3",
        "with",
        "do",
        "end",
        "+",
        "-",
        "==",
        "and",
        "not",
        "true",
        "skip",
        ";",
        ",",
        "OnRemote",
        "all",
        "here()",
        "ints()",
        "push(",
        "length(",
        "x",
        ":",
        "int",
        "ints",
        "\"a\"",
        "[",
        "]",
        "\n",
        "é",
        "deliver(",
        "fun f() =",
        "9223372036854775808",
    ];
    let mut compiled = 0;
    for seed in 0..20_000 {
        let mut rng = Rng::with_seed(seed);
        let mut text = if rng.bool() { "fun f() = ".to_owned() } else { String::new() };
        for _ in 0..rng.usize(..12) {
            text.push_str(words[rng.usize(..words.len())]);
            text.push(' ');
        }
        match Program::read(&text) {
            Ok(_) => compiled += 1,
            Err(e) => assert!(e.line >= 1 && e.column >= 1 && !e.remedy.is_empty(), "{text}: {e}"),
        }
    }
    assert!(compiled > 100, "{compiled}");
}
