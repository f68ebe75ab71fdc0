//! Routers of several threads.
//!
//! Each thread has a router of the whole graph, in which it makes its own elements; the others are
//! represented. A queue and what pulls from it are in one thread, and packets that another thread pushes to
//! the queue are posted to it. All else stays in a thread: elements need no locks, and packets that do not
//! cross a queue cost what they cost with one thread. Another configuration may replace the one that runs
//! ([`replace`]): elements go to the threads that have them there.

pub mod assign;
pub mod elsewhere;
pub mod part;
pub mod replace;
pub mod run;
pub mod serve;
pub mod team;
