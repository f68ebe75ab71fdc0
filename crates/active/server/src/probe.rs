//! The capsules of `flame ping --active` and `flame trace --active`.

use crate::client::{Client, Question};
use crate::serve::ServeError;
use flame_active_link::Clock;
use flame_active_node::Times;
use flame_capsule::{Limits, Place};
use flame_capsule_language::{Program, ProgramError};
use std::time::{Duration, Instant};

/// A node on the way, as the account of the host has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visited {
    pub place: Place,
    /// The account's capsules there.
    pub capsules: u64,
    /// The time that they took in all; zeros without the right.
    pub times: Times,
}

/// The two programs, and the number of the last capsule.
pub struct Probe {
    echo: Program,
    times: Program,
    number: i64,
}

/// The bound of an echo: sixteen nodes there and back, each of which may ask for the code once. A node counts
/// the whole bound of a capsule against the share of its sender, so it is no more than that.
const ECHO: Limits = Limits { hops: 33, instructions: 10_000, bytes: 16 << 10, copies: 66 };
/// The bound of a trace, in which each node sends an answer.
const TRACE: Limits = Limits { hops: 33, instructions: 100_000, bytes: 128 << 10, copies: 400 };

impl Probe {
    /// Compiles the programs.
    ///
    /// # Errors
    ///
    /// Returns an error only if a program is wrong.
    pub fn new() -> Result<Self, ProgramError> {
        let echo = Program::read(include_str!("../../language/programs/echo.capsule"))?;
        let times = Program::read(include_str!("../../language/programs/times.capsule"))?;
        Ok(Self { echo, times, number: 0 })
    }

    /// Returns the time to a place and back, or `None` if nothing came back.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails.
    pub fn ping<K: FnMut() -> Clock>(
        &mut self,
        client: &mut Client<K>,
        target: Place,
        patience: Duration,
        with_code: bool,
    ) -> Result<Option<Duration>, ServeError> {
        self.number += 1;
        let arguments = [target.0.to_le_bytes(), self.number.to_le_bytes()].concat();
        let code = self.echo.code();
        let begun = Instant::now();
        client.send(&Question { code, function: 2, arguments: &arguments, limits: ECHO, with_code })?;
        while begun.elapsed() < patience {
            let delivered = client.receive(Some(code), patience.saturating_sub(begun.elapsed()))?;
            if delivered.is_some_and(|bytes| numbers(&bytes) == [self.number]) {
                return Ok(Some(begun.elapsed()));
            }
        }
        Ok(None)
    }

    /// Returns the nodes on the way to a place, as far as they answered, in the order of their answers.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket fails.
    pub fn trace<K: FnMut() -> Clock>(
        &mut self,
        client: &mut Client<K>,
        target: Place,
        patience: Duration,
    ) -> Result<Vec<Visited>, ServeError> {
        self.number += 1;
        let arguments = [target.0.to_le_bytes(), self.number.to_le_bytes()].concat();
        let code = self.times.code();
        let begun = Instant::now();
        let limits = TRACE;
        client.send(&Question { code, function: 1, arguments: &arguments, limits, with_code: false })?;
        let mut found: Vec<Visited> = Vec::new();
        while begun.elapsed() < patience && found.last().is_none_or(|last| last.place != target) {
            let delivered = client.receive(Some(code), patience.saturating_sub(begun.elapsed()))?;
            if let Some([place, number, _, capsules, times @ ..]) =
                delivered.as_deref().map(numbers).as_deref()
                && *number == self.number
                && let Some(times) = times.first_chunk()
            {
                let (place, capsules) = (Place(place.cast_unsigned()), capsules.cast_unsigned());
                found.push(Visited { place, capsules, times: Times(times.map(i64::cast_unsigned)) });
            }
        }
        Ok(found)
    }
}

fn numbers(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks_exact(8).map(|chunk| i64::from_le_bytes(chunk.try_into().unwrap_or_default())).collect()
}
