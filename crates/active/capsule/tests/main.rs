//! Tests of capsules.

mod bounds;
mod messages;
