use crate::console::say;
use crate::error::Error;
use crate::exit::Status;
use clap::Args;
use std::path::{Path, PathBuf};

/// Show the help of a command, or the manual of a source, transform, sink, chart or Click element
#[derive(Args)]
pub struct Help {
    /// A command such as `run`, or a name such as `zero`, `parquet`, `live`, `talkers` or `Queue`; without a
    /// name, all are listed, elements by `flame click help`
    #[arg(value_name = "NAME", num_args = 0..)]
    names: Vec<String>,

    /// Write manual pages of all commands into this folder, for `man -l FOLDER/flame-run.1` or a folder man1
    #[arg(long, value_name = "FOLDER", conflicts_with = "names")]
    man: Option<PathBuf>,
}

/// The manuals by kind. A manual is the first comment of a source file.
const KINDS: [(&str, &[&str]); 5] = [
    ("source", flame_source::MANUALS),
    ("node source", flame_source::NODE_MANUALS),
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

/// Returns whether a manual describes `name`: as its first word, or as a further name in a line `Names:`.
fn describes(source: &'static str, name: &str) -> bool {
    let further = lines(source).filter_map(|line| line.strip_prefix("Names:"));
    head(source).is_some_and(|(first, _)| first == name)
        || further.flat_map(|names| names.split(',')).any(|other| other.trim() == name)
}

impl Help {
    pub fn run(self) -> Result<Status, Error> {
        let mut command = crate::help_groups::command();
        if let Some(folder) = &self.man {
            return manual_pages(command, folder);
        }
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
            for source in manuals.iter().filter(|source| describes(source, first)) {
                say!("{kind} {}", lines(source).collect::<Vec<_>>().join("\n"));
                found = true;
            }
        }
        if let Some(class) = flame_element::find(first) {
            say!("element {}", class.manual());
            found = true;
        }
        match found {
            true => Ok(Status::Done),
            false => Err(format!(
                "{first}: no command, source, transform, sink, chart or element has this name: `flame help` and \
                 `flame click help` list them, and `flame inspect {first}` describes a module"
            )
            .into()),
        }
    }
}

/// A blank before the end of an option in bold.
const BLANK: &str = " \\fR]";

/// Writes the manual page of each command, and of each of its own commands.
fn manual_pages(command: clap::Command, folder: &Path) -> Result<Status, Error> {
    let fail = |e: std::io::Error| format!("{}: {e}", folder.display());
    std::fs::create_dir_all(folder).map_err(fail)?;
    clap_mangen::generate_to(command.disable_help_subcommand(true), folder).map_err(fail)?;
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("flame")) {
            continue;
        }
        // The generator writes an option without a long name as `[-G ]`.
        let page = std::fs::read_to_string(&path).map_err(fail)?;
        if page.contains(BLANK) {
            std::fs::write(&path, page.replace(BLANK, BLANK.trim_start())).map_err(fail)?;
        }
    }
    Ok(Status::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_abi::manifest::PlotKind;
    use flame_plan::Action;

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

    #[test]
    fn every_format_transform_and_plot_has_a_manual() {
        let has_manual = |kind: &str, name: &str| {
            let (_, manuals) = KINDS.into_iter().find(|(other, _)| *other == kind).unwrap();
            assert!(manuals.iter().any(|source| describes(source, name)), "the {kind} {name} has no manual");
        };
        for format in flame_record::Format::ALL {
            has_manual("sink", format.name());
        }
        for chart in &flame_plot::chart::ALL {
            has_manual("chart", chart.name);
        }
        // A new variant does not compile here, which calls for it in the list.
        for action in [Action::Keep, Action::Zero, Action::Truncate(8), Action::Hash, Action::Prefix] {
            match action {
                Action::Keep | Action::Zero | Action::Truncate(_) | Action::Hash | Action::Prefix => {
                    has_manual("transform", action.to_string().split(':').next().unwrap());
                }
            }
        }
        for kind in [PlotKind::Line, PlotKind::Points, PlotKind::Events, PlotKind::Histogram] {
            match kind {
                PlotKind::Line | PlotKind::Points | PlotKind::Events | PlotKind::Histogram => {
                    has_manual("chart", &format!("{kind:?}").to_lowercase());
                }
            }
        }
    }
}
