use crate::console::say;
use crate::error::Error;
use crate::exit::Status;
use clap::{Args, CommandFactory};

/// Show the help of a command, or the manual of a source, transform, sink or chart
#[derive(Args)]
pub struct Help {
    /// A command such as `run`, or a name such as `zero`, `parquet`, `live` or `talkers`; without a name, all
    /// are listed
    #[arg(value_name = "NAME", num_args = 0..)]
    names: Vec<String>,
}

/// The manuals by kind. A manual is the first comment of a source file.
const KINDS: [(&str, &[&str]); 4] = [
    ("source", flame_source::MANUALS),
    ("transform", flame_transform::MANUALS),
    ("sink", flame_record::sink::MANUALS),
    ("chart", flame_plot::chart::MANUALS),
];

/// Returns the lines of the comment at the beginning of a source file.
fn lines(source: &'static str) -> impl Iterator<Item = &'static str> {
    source
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
}

/// Returns the name and the summary at the beginning of a manual.
fn head(source: &'static str) -> Option<(&'static str, &'static str)> {
    lines(source).next()?.split_once(": ")
}

impl Help {
    pub fn run(self) -> Result<Status, Error> {
        let mut command = crate::Cli::command();
        let Some(first) = self.names.first() else {
            say!("{}", command.render_long_help());
            for (kind, manuals) in KINDS {
                say!("{}s:", kind[..1].to_uppercase() + &kind[1..]);
                for (name, summary) in manuals.iter().filter_map(|source| head(source)) {
                    say!("  {name:10} {summary}");
                }
                say!();
            }
            return Ok(Status::Done);
        };
        let mut found = false;
        if command.find_subcommand(first).is_some() {
            command.build();
            let mut inner = &mut command;
            for name in &self.names {
                let missing = || format!("{}: no such command (see `flame help`)", self.names.join(" "));
                inner = inner.find_subcommand_mut(name).ok_or_else(missing)?;
            }
            say!("{}", inner.render_long_help());
            found = true;
        }
        for (kind, manuals) in KINDS {
            for source in manuals.iter().filter(|source| head(source).is_some_and(|(name, _)| name == first))
            {
                say!("{kind} {}", lines(source).collect::<Vec<_>>().join("\n"));
                found = true;
            }
        }
        match found {
            true => Ok(Status::Done),
            false => Err(format!(
                "{first}: no command, source, transform, sink or chart is called so; `flame help` lists them, \
                 and `flame inspect {first}` describes a module"
            )
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manual_has_a_name_a_summary_and_an_example() {
        for (kind, manuals) in KINDS {
            assert!(!manuals.is_empty());
            for source in manuals {
                let (name, summary) = head(source).unwrap_or_else(|| panic!("{kind}: {}", &source[..40]));
                assert!(!name.contains(' ') && summary.ends_with('.'), "{kind} {name}: {summary}");
                for part in ["Usage:", "Expects:", "Gives:", "Example:"] {
                    assert!(lines(source).any(|line| line.starts_with(part)), "{kind} {name} lacks {part}");
                }
            }
        }
    }
}
