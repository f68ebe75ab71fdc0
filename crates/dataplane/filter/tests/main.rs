//! The tests of filters, in one program.

mod engines;
mod expressions;
mod interpreter;
mod tcpdump;
