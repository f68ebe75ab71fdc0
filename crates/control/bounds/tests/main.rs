//! All tests of the finder of bounds, in one program.

mod analysis;
mod bounds;
mod causes;
mod check;
mod generate;
mod iterators;
mod large;
mod longest;
mod oracle;
mod refused;
mod report;
#[path = "../../meter/tests/common/run.rs"]
mod run;
mod shared;
mod smith;
mod unsound;
