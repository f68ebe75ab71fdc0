//! The commands, and the options of `flame run`, in groups, for help and manual pages.

use clap::{Command, CommandFactory};

/// The commands by purpose. A test compares them with the registry.
const COMMANDS: [(&str, &[&str]); 9] = [
    ("Run modules on packets", &["run", "modules", "inspect", "click"]),
    ("Work on records", &["join"]),
    ("Write modules", &["new", "build", "check", "profile", "calibrate"]),
    ("Rules of the module ids", &["ids"]),
    ("Grant rights", &["key", "grant", "policy", "explain", "audit"]),
    (
        "Manage modules on a node",
        &["node", "install", "list", "show", "records", "logs", "top", "update", "stop", "remove", "renew"],
    ),
    ("Many nodes and one archive", &["fleet", "query"]),
    ("Active packets", &["active", "ping", "trace", "capsule"]),
    ("Help and this machine", &["help", "completions", "doctor"]),
];

/// The options of `flame run` by purpose; those that are not here stand under Options.
const OPTIONS: [(&str, &[&str]); 9] = [
    (
        "Packets",
        &[
            "read",
            "interface",
            "capture",
            "count",
            "snaplen",
            "no_promiscuous",
            "hardware_timestamps",
            "decapsulate",
            "workers",
        ],
    ),
    ("View of the modules", &["select", "filter_file", "expose", "transform", "key"]),
    ("Rights", &["policy", "credential", "identity"]),
    (
        "Records and packets that are written",
        &[
            "format",
            "output",
            "tables",
            "columns",
            "width",
            "vertical",
            "guard_formulas",
            "interval",
            "write",
            "nano",
            "time",
        ],
    ),
    (
        "Times and sizes of files, and the end of the run",
        &["rotate", "keep", "seconds", "megabytes", "files", "duration"],
    ),
    ("Frames that modules send", &["send", "send_rate"]),
    ("Plots", &["plot", "compare"]),
    ("State and random numbers of modules", &["state", "seed"]),
    ("Limits of modules", &["restart", "memory", "packet_budget", "metered", "isolate", "batch"]),
];

/// Returns the command line with its groups.
pub fn command() -> Command {
    let mut command = crate::Cli::command().mut_subcommand("run", |run| {
        run.after_help(crate::questions::text()).mut_args(|arg| {
            let id = arg.get_id().as_str().to_owned();
            match OPTIONS.iter().find(|(_, ids)| ids.contains(&id.as_str())) {
                Some((heading, _)) if !arg.is_positional() => arg.help_heading(*heading),
                _ => arg,
            }
        })
    });
    let list = list(&command);
    command = command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}{{after-help}}"
    ));
    command
        .after_long_help(crate::environment::text())
        .after_help("`flame help COMMAND` describes a command, `flame help` also variables and capabilities.")
}

/// Returns the commands with their summaries, by group.
fn list(command: &Command) -> String {
    let mut text = String::new();
    for (heading, names) in COMMANDS {
        text += &format!("{heading}:\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            text += &format!("  {name:<12} {}\n", about.map(ToString::to_string).unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut listed: Vec<&str> = COMMANDS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = command();
        let mut known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
    }

    #[test]
    fn every_option_in_a_group_exists() {
        let command = command();
        let run = command.find_subcommand("run").unwrap();
        for id in OPTIONS.iter().flat_map(|(_, ids)| ids.iter()) {
            assert!(run.get_arguments().any(|arg| arg.get_id() == *id), "{id}");
        }
        let headings = |arg: &clap::Arg| arg.get_help_heading().is_some();
        assert!(run.get_arguments().filter(|arg| headings(arg)).count() > 25);
        command.clone().debug_assert();
    }

    #[test]
    fn summaries_fit_a_line() {
        let text = list(&command());
        let long: Vec<_> = text.lines().filter(|line| line.chars().count() > 110).collect();
        assert!(long.is_empty(), "{long:#?}");
    }
}
