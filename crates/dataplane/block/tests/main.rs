//! All tests of pools and their readers, in one program.

mod common;
mod hostile;
mod model;
mod process;
mod wake;
