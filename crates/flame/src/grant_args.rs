//! Options for the fields of a grant: `--expose headers --select 'port 53'`.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use flame_node::check_viewable;
use flame_trust::{Field, Layer, Origin, time};

/// Fields in the order of their registry, each as many times as it was given.
#[derive(Clone, Debug, Default)]
pub struct Fields(pub Vec<(Field, String)>);

impl Args for Fields {
    fn augment_args(command: Command) -> Command {
        let option = |field: &Field| {
            let help = match field {
                Field::Expires | Field::NotBefore => {
                    format!("{}; or from now on: +7d, +12h, +30m, +90s", field.help())
                }
                _ => field.help().to_owned(),
            };
            let arg = Arg::new(field.name()).long(field.name().replace('_', "-"));
            let arg = arg.value_name("VALUE").help(help).action(ArgAction::Append);
            arg.help_heading("Fields of the grant, each narrows")
        };
        Field::ALL.iter().fold(command, |command, field| command.arg(option(field)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Fields {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut fields = Self::default();
        fields.update_from_arg_matches(matches)?;
        Ok(fields)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let wrong =
            |text: String| clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{text}\n"));
        for field in Field::ALL {
            for value in matches.get_many::<String>(field.name()).into_iter().flatten() {
                let value = absolute(field, value).map_err(wrong)?;
                let layer = Layer::new(Origin::Command, field, value.clone()).map_err(wrong)?;
                check_viewable(&layer).map_err(|e| wrong(e.to_string()))?;
                self.0.push((field, value));
            }
        }
        Ok(())
    }
}

/// Converts a time relative to now to an absolute one.
fn absolute(field: Field, value: &str) -> Result<String, String> {
    let relative = value.strip_prefix('+').filter(|_| matches!(field, Field::Expires | Field::NotBefore));
    let Some(text) = relative else { return Ok(value.to_owned()) };
    let wrong = || format!("{} {value}: expected a number and d, h, m or s after the +", field.name());
    let (digits, unit) = text.split_at(text.len() - text.chars().last().map_or(0, char::len_utf8));
    let seconds = match unit {
        "d" => 86_400,
        "h" => 3600,
        "m" => 60,
        "s" => 1,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let later = number.checked_mul(seconds).and_then(|s| s.checked_add(time::now())).ok_or_else(wrong)?;
    Ok(time::show(later))
}
