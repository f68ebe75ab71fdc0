//! The sandbox of capsules: WebAssembly on Wasmtime, as modules run, without a compiler.
//!
//! A [`Compile`] turns code into machine code, in a confined process. A [`Program`] is an instance of it that
//! serves all capsules with this code and account. Before each of them it is *wiped*: its memory and globals
//! have the values that they had at first, and capsules cannot change anything else of it.
//!
//! # Costs
//!
//! A function with a proven bound runs without counters, and costs its bound. If the capsule's instructions
//! do not cover that, it does not run. Other functions count, and are ended where the instructions do not
//! suffice. A call of the node costs [`CALL_WEIGHT`] more, and each eight bytes that it moves 1. So the cost
//! of a run is at most the limit, and at least the instructions that it executed.
//!
//! # Rights
//!
//! A call of the node is linked if it is granted, and is absent otherwise: code that imports it is not
//! instantiated.
//!
//! # Promises
//!
//! | promise | test |
//! | --- | --- |
//! | compiled programs do what the interpreter does, and cost what is stated | `programs_agree_with_the_interpreter` |
//! | no run costs more than its limit, with a bound and without | `no_run_exceeds_its_limit` |
//! | nothing of a capsule is left for the next | `an_instance_is_wiped` |
//! | a call that is not granted is not linked | `rights_are_links` |
//! | other code than capsules is refused, with place and remedy | `other_code_is_refused` |
//! | addresses that a capsule passes are checked | `addresses_are_checked` |

mod calls;
mod lent;
mod program;

pub use program::{Compile, Compiled, Program, Sandbox};

use flame_abi::capsule::CALL_WEIGHT;
