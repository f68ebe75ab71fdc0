//! Tests of the language of capsules.

mod differential;
mod machine;
mod programs;

use flame_capsule::{Host, Parts, Place, Refused, Target};

/// What a program did.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Effect {
    Send(u8, Vec<u8>, Target, Parts),
    Deliver(Vec<u8>),
    Leave(u64, i64, u64),
    Service(u64, i64),
}

/// A node that notes its calls.
#[derive(Default)]
struct Notes {
    effects: Vec<Effect>,
    neighbours: Vec<Place>,
}

impl Host for Notes {
    fn here(&self) -> Place {
        Place(5)
    }

    fn origin(&self) -> Place {
        Place(6)
    }

    fn from(&self) -> Place {
        Place(7)
    }

    fn now(&self) -> u64 {
        1000
    }

    fn hops(&self) -> u8 {
        9
    }

    fn next(&self, place: Place) -> Place {
        Place(place.0 / 2)
    }

    fn neighbours(&self) -> &[Place] {
        &self.neighbours
    }

    fn send(&mut self, function: u8, arguments: &[u8], to: Target, parts: Parts) -> Result<(), Refused> {
        self.effects.push(Effect::Send(function, arguments.to_vec(), to, parts));
        if self.effects.len() > 40 { Err(Refused::TooMany("copies", 40)) } else { Ok(()) }
    }

    fn deliver(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        self.effects.push(Effect::Deliver(bytes.to_vec()));
        Ok(())
    }

    fn leave(&mut self, name: u64, value: i64, seconds: u64) -> Result<(), Refused> {
        self.effects.push(Effect::Leave(name, value, seconds));
        Ok(())
    }

    fn find(&self, name: u64) -> i64 {
        (name % 7).cast_signed()
    }

    fn service(&mut self, name: u64, argument: i64) -> Result<i64, Refused> {
        self.effects.push(Effect::Service(name, argument));
        Ok(argument.wrapping_mul(3))
    }

    fn ask(&mut self, _: u64, _: &[u8]) -> Result<&[u8], Refused> {
        Ok(&[])
    }
}

/// Returns numbers as arguments.
fn numbers(all: &[i64]) -> Vec<u8> {
    all.iter().flat_map(|number| number.to_le_bytes()).collect()
}
