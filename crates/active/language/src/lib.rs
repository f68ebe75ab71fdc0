//! A small language for capsules of strangers, after PLAN: what is written in it ends, within a bound that is
//! known before it runs.
//!
//! # Programs
//!
//! A program is a list of functions, `fun name(argument: type, …) = expression`; `#` begins a comment. A
//! function may call functions above it. A copy for another node may call any, also itself: it runs there,
//! under the bound that it was given. There are no other loops than `fold`, which visits at most as many
//! elements as it states, and there is no recursion.
//!
//! | expression | value |
//! | --- | --- |
//! | `12`, `true`, `false`, `nowhere`, `all`, `skip` | numbers, truth values, the place that does not exist, 1000, nothing |
//! | `a + b`, `-`, `*`, `/`, `%`; `==`, `!=`, `<`, `<=`, `>`, `>=`; `and`, `or`, `not` | as in C, of 64 bits; a division by 0 ends the capsule |
//! | `let x = a in b`; `if a then b else c`; `a; b` | |
//! | `fold x in list at most 8 with sum = a do b end` | `b` of the last element, where `sum` is the value before |
//! | `[a, b]`, `ints()`, `places()`, `push(list, a)`, `length(list)` | lists of at most 32 elements; a longer one ends the capsule |
//! | `here()`, `origin()`, `from()`, `next(place)`, `neighbours()` | places: this node, the capsule's first, its last, on the way to another, all around |
//! | `now()`, `hops()` | milliseconds, hops that are left |
//! | `service("name", a)`, `find("name")` | a number of an installed module, or of the soft state; 0 without |
//! | `leave("name", a, seconds)`, `deliver(a, …)` | nothing; soft state, bytes for the application at this node |
//! | `OnRemote(f(a, …), place, parts)` | nothing; a copy calls `f` at a place, with thousandths of the bound that is left |
//! | `OnNeighbor(f(a, …), place, parts)` | nothing; the same at a neighbour |
//! | `place(a)`, `int(a)` | a number as a place, a place as a number |
//!
//! Types are `int`, `bool`, `place`, `ints` and `places`. Names of services and of soft state have at most
//! eight bytes.
//!
//! # Compiled form
//!
//! A module of WebAssembly of at most [`MAX_COMPILED`] bytes. It imports the calls that it uses from `flame`,
//! and nothing else, so that what was not granted is not linked. It exports its memory of one page, and each
//! function under its name, with the length of the arguments, which the node writes at address 0. Numbers
//! have eight bytes, little-endian; a list has the number of its elements, then these.
//!
//! [`Program::bounds`] has for each function the most instructions, as Wasmtime's fuel counts them, with
//! [`CALL_WEIGHT`] for each call of the node and the elements of what is copied; and the most bytes of
//! memory.
//!
//! # Promises
//!
//! | promise | test |
//! | --- | --- |
//! | compiled code does what the interpreter does, in the same order, or both end with an error | `compiled_and_interpreted_programs_agree` |
//! | no run takes more instructions or memory than the bound | the same, and `bounds_are_reached` |
//! | what compiles is valid, and has at most 1,024 bytes | the same, `the_examples_compile` |
//! | errors name line, column and a remedy | `errors_have_a_place_and_a_remedy` |
//! | any text is refused or compiled | `any_text_is_refused_or_compiled` |
//! | arguments that do not fit the function end it | `arguments_are_checked` |
#![forbid(unsafe_code)]

mod compile;
mod interpret;
mod lexer;
mod parser;
mod program;

pub use compile::{CALL_WEIGHT, MAX_COMPILED, PAGE};
pub use interpret::{Ended, MAX_STEPS};
pub use program::{Cost, Function, Program, ProgramError, Type};
