use crate::console::{complain, say, say_json};
use crate::error::Error;
use crate::exit::Status;
use crate::settings::text_of;
use clap::{Args, Subcommand, ValueEnum};
use flame_ids::engine::{Engine, Limits};
use flame_ids::rule::{Dialect, FILE, Source, load, unlisted};
use std::path::PathBuf;

/// Work on rules of the module `ids`, without a capture
#[derive(Args)]
pub struct Ids {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(Check),
}

/// List the lines that `ids` cannot use, with file, line and reason, and how many rules run
///
/// Exit status: 0 success; 1 with --strict, if a line cannot be used; 2 wrong usage.
#[derive(Args)]
struct Check {
    /// Rule files, and folders of files *.rules
    #[arg(value_name = "RULES", required = true, num_args = 1..)]
    rules: Vec<PathBuf>,

    /// Variables: a suricata.yaml, or lines NAME = VALUE
    #[arg(long, value_name = "FILE")]
    vars: Option<PathBuf>,

    /// A threshold.config
    #[arg(long, value_name = "FILE")]
    thresholds: Option<PathBuf>,

    /// The engine whose rules these are, where they differ
    #[arg(long, default_value = "suricata")]
    dialect: DialectArg,

    /// Fail if a line cannot be used
    #[arg(long)]
    strict: bool,

    /// Print a line of JSON for each line that cannot be used
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum DialectArg {
    Suricata,
    Snort,
}

impl Ids {
    pub fn run(self) -> Result<Status, Error> {
        let Command::Check(check) = self.command;
        let text = |path: Option<PathBuf>| path.map_or(Ok(String::new()), |path| text_of(&[path]));
        let (rules, vars, thresholds) = (named(&check.rules)?, text(check.vars)?, text(check.thresholds)?);
        let dialect = match check.dialect {
            DialectArg::Suricata => Dialect::Suricata,
            DialectArg::Snort => Dialect::Snort,
        };
        let texts = Source { rules: &rules, vars: &vars, thresholds: &thresholds, ..Source::default() };
        let set = load(&Source { dialect, ..texts });
        // What the engine refuses, such as regular expressions that are too large, is found by building it.
        let engine = Engine::new(set, Limits { connections: 1, tracked: 1 });
        let set = &engine.set;
        for line in &set.unsupported {
            let file = set.files.get(line.file as usize).map_or("", String::as_str);
            if check.json {
                say_json!({
                    "file": file, "line": line.line, "sid": line.sid, "kind": line.kind, "reason": line.reason,
                });
                continue;
            }
            let sid = if line.sid == 0 { String::new() } else { format!("sid {}: ", line.sid) };
            say!("{}: {sid}{}", set.place(line), line.reason);
        }
        complain!("flame: ids: {}", engine.summary());
        if let Some(text) = unlisted(set.unlisted) {
            complain!("flame: ids: {text}");
        }
        let all = set.unsupported.is_empty();
        Ok(if check.strict && !all { Status::Failed } else { Status::Done })
    }
}

/// Returns the text of rule files, with a line that names each of them.
fn named(paths: &[PathBuf]) -> Result<String, Error> {
    let text = text_of(paths)?;
    // A single file without the extension of rules is read as it is.
    match paths {
        [file] if !text.starts_with(FILE) => {
            Ok(format!("{FILE}{}\n{text}", file.to_string_lossy().replace(char::is_control, " ")))
        }
        _ => Ok(text),
    }
}
