//! A program of a capsule, then after a 0 the arguments of its functions: refused with a place and a remedy,
//! or compiled within its size, and each function ends.
#![no_main]

use flame_capsule::{Host, Parts, Place, Refused, Target};
use flame_capsule_language::{MAX_COMPILED, PAGE, Program};
use libfuzzer_sys::fuzz_target;

/// A node with three neighbours.
struct Node;

impl Host for Node {
    fn here(&self) -> Place {
        Place(1)
    }

    fn origin(&self) -> Place {
        Place(2)
    }

    fn from(&self) -> Place {
        Place(3)
    }

    fn now(&self) -> u64 {
        u64::MAX
    }

    fn hops(&self) -> u8 {
        u8::MAX
    }

    fn next(&self, place: Place) -> Place {
        place
    }

    fn neighbours(&self) -> &[Place] {
        &[Place(2), Place(3), Place(u64::MAX)]
    }

    fn send(&mut self, _: u8, arguments: &[u8], _: Target, _: Parts) -> Result<(), Refused> {
        assert!(arguments.len() <= 1024);
        Ok(())
    }

    fn deliver(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        assert!(bytes.len() <= 1024);
        Ok(())
    }

    fn leave(&mut self, _: u64, _: i64, _: u64) -> Result<(), Refused> {
        Ok(())
    }

    fn find(&self, name: u64) -> i64 {
        name.cast_signed()
    }

    fn service(&mut self, _: u64, argument: i64) -> Result<i64, Refused> {
        Ok(argument)
    }
    fn ask(&mut self, _: u64, _: &[u8]) -> Result<&[u8], Refused> {
        Ok(&[])
    }
}

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let Ok(text) = std::str::from_utf8(&data[..end]) else { return };
    let program = match Program::read(text) {
        Ok(program) => program,
        Err(error) => {
            assert!(error.line > 0 && error.column > 0 && !error.remedy.is_empty(), "{error}");
            return;
        }
    };
    assert!(program.code().len() <= MAX_COMPILED);
    let arguments = data.get(end + 1..).unwrap_or_default();
    let arguments = &arguments[..arguments.len().min(1024)];
    for (function, bound) in program.bounds().iter().enumerate() {
        assert!(bound.memory < PAGE);
        if let Ok(steps) = program.interpret(function, arguments, &mut Node) {
            // Each step is an instruction at least, but for those that join two others.
            assert!(steps <= bound.instructions.saturating_mul(2), "{steps} of {bound:?}");
        }
    }
});
