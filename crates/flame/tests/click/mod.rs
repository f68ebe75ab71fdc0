//! Tests of modules of graphs that measure, their processes and threads.

pub mod click_modules;
mod click_process;
mod click_rest;
pub mod click_threads;
