//! All tests of views, in one program.

mod canary;
mod captures;
mod changes;
mod checksums;
mod common;
mod cut;
mod hash;
mod interference;
mod longest;
mod maker;
mod monotony;
mod ordinary;
mod pair;
mod quantize;
mod select;
