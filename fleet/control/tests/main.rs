//! The control of a fleet with a real server: the program NATS_SERVER, or nats-server of PATH. Without one,
//! tests are skipped with a message.

mod attacks;
mod permissions;
#[path = "../../nats/tests/program.rs"]
mod program;
mod world;
