//! All tests of the checker, in one program.

mod attacks;
mod certificates;
mod costs;
mod differential;
mod entries;
mod frames;
mod known;
mod loops;
mod modules;
mod polynomials;
mod programs;
mod prove;
mod prover;
mod rules;
mod seen;
mod ticks;
