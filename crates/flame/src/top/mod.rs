//! The live view of a node: what it polls (`rates`), and how it is shown (`screen`).

pub mod rates;
pub mod screen;

pub use rates::{Rates, Sort, View};
