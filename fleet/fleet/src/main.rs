//! The program `flame-fleet`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    flame_fleet::run()
}
