//! `flame click` without the rest of FLAME, for the tests of this crate.

#[path = "../tests/common/mod.rs"]
mod common;

use flame_element::driver::{Invocation, run};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Invocation::parse(std::env::args_os().skip(1).map(OsStringExt::into_vec)) {
        Ok(invocation) => ExitCode::from(run(&invocation, common::LANGUAGE, Default::default())),
        Err(message) => {
            eprintln!("click: {message}");
            ExitCode::FAILURE
        }
    }
}
