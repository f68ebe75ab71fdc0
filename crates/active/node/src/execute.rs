//! What a node needs of others: a sandbox, services, and somebody that sends.

use crate::settings::Rights;
use flame_capsule::{Hash, Host, Key, Payer, Place};
use std::io::PipeReader;
use std::net::SocketAddr;

/// The sandbox.
pub trait Execute {
    /// Code that can be run.
    type Code;

    /// Compiles code for an account, and links the calls of the node that are granted; or begins to, and
    /// returns `None`: then [`Execute::made`] has it later.
    fn compile(&mut self, code: &[u8], account: Payer, rights: Rights)
    -> Option<Result<Self::Code, Failure>>;

    /// Returns code that was begun to be compiled, once it is, with its account and hash.
    fn made(&mut self) -> Option<(Payer, Hash, Result<Self::Code, Failure>)> {
        None
    }

    /// Calls a function with arguments, for at most `limit` instructions.
    fn run(
        &mut self,
        code: &mut Self::Code,
        function: u8,
        arguments: &[u8],
        limit: u64,
        host: &mut dyn Host,
    ) -> Ran;
}

/// The end of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// What was executed, also if it failed.
    pub instructions: u64,
    pub end: Result<(), Failure>,
}

/// Why an evaluation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    NotCompiled,
    NoFunction,
    Trapped,
    /// The instructions did not suffice.
    Limit,
}

/// What installed modules offer.
pub trait Services {
    /// Returns the answer of a service that is known now.
    fn service(&mut self, account: Payer, name: u64, argument: i64) -> Option<i64>;

    /// Returns whether modules answer a service when they are asked.
    fn is_served(&self, _name: u64) -> bool {
        false
    }

    /// Asks a service, and returns the number under which [`Services::answered`] has the reply later, or
    /// `None` if there is no such service.
    fn ask(&mut self, _account: Payer, _name: u64, _request: &[u8]) -> Option<u64> {
        None
    }

    /// Returns the reply to a question, once it is there, with its number: no bytes if no module replied.
    fn answered(&mut self) -> Option<(u64, Vec<u8>)> {
        None
    }

    /// Returns the pipe that can be read once a reply is there. Services with replies have one, and give it
    /// once.
    fn signal(&mut self) -> Option<PipeReader> {
        None
    }
}

/// What leaves a node. It borrows the bytes, so a node sends from one buffer.
pub trait Output {
    /// Sends a datagram, for the account that pays, or for the node itself.
    fn send(&mut self, to: SocketAddr, datagram: &[u8], account: Option<Payer>);

    /// Returns the nanoseconds of a steady clock, from which the times of capsules follow. Without a clock,
    /// they are 0.
    fn instant(&mut self) -> u64 {
        0
    }

    /// Hands bytes to the application that waits for capsules of this payer and key.
    fn deliver(&mut self, payer: Payer, key: Key, origin: Place, bytes: &[u8]);
}
