//! Messages for people who look for a fault: on standard error, by `-v` and `FLAME_LOG`. Those beyond info
//! are the operator's: they state what others have in caches, and may state what a grant hides.
//!
//! | | |
//! | --- | --- |
//! | error | what ends a command; also printed without this |
//! | warn | what may be wrong although the command continues |
//! | info (`-v`) | the steps of a command: files, modules, policies, sources |
//! | debug (`-vv`) | details of a step: caches, views, bounds |
//! | trace (`-vvv`) | everything, also of libraries |

use crate::error::Error;
use flame_plan::Audience;
use flame_record::escape;
use std::io::Write;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// The variable that names levels.
const VARIABLE: &str = "FLAME_LOG";

/// Starts printing messages of the levels that `-v` (`verbose` times) and the variable ask for, for
/// `audience`.
///
/// # Errors
///
/// Returns an error if the variable holds no levels.
pub fn start(verbose: u8, audience: Audience) -> Result<(), Error> {
    let stated = std::env::var(VARIABLE).unwrap_or_default();
    let Some(levels) = levels(verbose, &stated, audience) else { return Ok(()) };
    let filter = EnvFilter::try_new(&levels).map_err(|e| {
        format!("{VARIABLE}={stated}: {e}: expected error, warn, info, debug, trace, or TARGET=LEVEL,...")
    })?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Escaped)
        .with_ansi(false)
        .without_time()
        .finish();
    tracing::subscriber::set_global_default(subscriber)?;
    Ok(())
}

/// Returns the levels, or `None` if nothing is to be printed. The variable precedes `-v`.
fn levels(verbose: u8, stated: &str, audience: Audience) -> Option<String> {
    match (stated.trim(), verbose) {
        ("", 0) => None,
        _ if !audience.is_operator() => Some("off,flame=info".to_owned()),
        ("", 1) => Some("off,flame=info".to_owned()),
        ("", 2) => Some("warn,flame=debug".to_owned()),
        ("", _) => Some("trace".to_owned()),
        (stated, _) => Some(stated.to_owned()),
    }
}

/// A writer to standard error that lets no control characters pass.
struct Escaped;

impl<'a> MakeWriter<'a> for Escaped {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl Write for Escaped {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        // If standard error is closed, the message is lost.
        let _ = std::io::stderr().lock().write_all(escape::lines(&text).as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_precedes_the_option() {
        let levels = |verbose, stated| super::levels(verbose, stated, Audience::Operator);
        assert_eq!(levels(0, ""), None);
        assert_eq!(levels(1, " ").as_deref(), Some("off,flame=info"));
        assert_eq!(levels(3, "").as_deref(), Some("trace"));
        assert_eq!(levels(3, "warn").as_deref(), Some("warn"));
    }

    #[test]
    fn a_holder_has_the_steps_of_a_command_alone() {
        assert_eq!(levels(0, "", Audience::Holder), None);
        for (verbose, stated) in [(1, ""), (3, ""), (0, "trace"), (0, "flame_compile=debug")] {
            let levels = levels(verbose, stated, Audience::Holder);
            assert_eq!(levels.as_deref(), Some("off,flame=info"), "{verbose} {stated}");
        }
    }
}
