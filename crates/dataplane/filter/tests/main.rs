//! The tests of filters, in one program.

mod captures;
mod engines;
mod expressions;
mod language;
mod meaning;
mod random;
mod sets;
mod truth;
mod tshark;
