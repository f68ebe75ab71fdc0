//! The arguments of the command, as those of userlevel Click.

use crate::runtime::threads::team::MOST_THREADS;
use flame_click::text;

pub const USAGE: &str = "\
Run a Click configuration of native elements and modules.

Usage: flame click [OPTION]... [FILE] [NAME=VALUE]...
       flame click flatten|check|draw [OPTION]... [FILE] [NAME=VALUE]...
       flame click help [ELEMENT|list]

  -f, --file FILE            read the configuration from FILE (standard input for -)
  -e, --expression TEXT      use TEXT as configuration
  -h, --handler NAME         at the end, print the read handler NAME (ELEMENT.HANDLER; * for all elements)
  -o, --output FILE          write the flat configuration to FILE
  -p, --port PORT            serve handlers at this TCP port, as ControlSocket(TCP, PORT); PORT+ for the next free
  -u, --unix-socket FILE     serve handlers at a Unix socket, as ControlSocket(UNIX, FILE)
  -q, --quit                 do not run the configuration
  -t, --time                 print how long it ran
  -R, --allow-reconfigure    allow writes to the handler 'hotconfig'
      --simtime              run in simulated time
      --seed N               seed of random elements (0)
      --policy FILE          the node's policy: Module elements have the rights of their credentials
      --metered              meter and preempt all modules, even those with a proven bound
      --isolate              run each module in a process of its own, without files and network
      --format FORMAT        format of the modules' records, as of flame run
      --records PATH         write the modules' records to this file or folder
  -j, --threads N            start N threads, to which StaticThreadSched binds elements (1)
      --limit TIME           check: the most that a packet may cost between two elements where it waits (2us)
      --insert-polls         check: print the configuration with the polls that bring it within the limit
  -w, --no-warnings          accepted without effect
      --help, --version

flatten prints a configuration without compound elements, draw a picture of it (SVG). check makes all
elements, names each cycle that no Loop bounds, and states the cost of a packet. Exit status: 0, or 1 if something failed.
";

/// The action that an invocation asks for. `Help` has the class of element, if one is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Run,
    Flatten,
    Draw,
    Check,
    Help(Option<String>),
    Version,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Input,
    File(String),
    Expression(Vec<u8>),
}

/// The parsed arguments of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    pub what: What,
    pub source: Source,
    pub variables: Vec<(String, String)>,
    pub handlers: Vec<String>,
    /// The arguments of a `ControlSocket` for each `-p` and `-u`.
    pub sockets: Vec<String>,
    pub output: Option<String>,
    pub quit: bool,
    pub time: bool,
    pub reconfigure: bool,
    pub simtime: bool,
    pub seed: u64,
    pub threads: usize,
    pub policy: Option<String>,
    pub metered: bool,
    pub isolate: bool,
    pub format: Option<String>,
    pub records: Option<String>,
    /// The most nanoseconds of a segment of work.
    pub limit_ns: Option<u64>,
    pub inserts_polls: bool,
}

/// (short, long, takes a value)
const OPTIONS: &[(char, &str, bool)] = &[
    ('f', "file", true),
    ('e', "expression", true),
    ('h', "handler", true),
    ('o', "output", true),
    ('q', "quit", false),
    ('t', "time", false),
    ('p', "port", true),
    ('u', "unix-socket", true),
    ('R', "allow-reconfigure", false),
    ('w', "no-warnings", false),
    ('j', "threads", true),
    ('v', "version", false),
    ('\0', "simtime", false),
    ('\0', "seed", true),
    ('\0', "policy", true),
    ('\0', "metered", false),
    ('\0', "isolate", false),
    ('\0', "format", true),
    ('\0', "records", true),
    ('\0', "limit", true),
    ('\0', "insert-polls", false),
    ('\0', "help", false),
];

impl Invocation {
    /// Reads arguments, each as bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is unknown, lacks its value or has a value that it does not take, if the
    /// seed, the number of threads or the limit is no number, if the configuration is given twice, or if an
    /// option of a check is given to another action.
    pub fn parse(args: impl IntoIterator<Item = Vec<u8>>) -> Result<Self, String> {
        let mut new = Self {
            what: What::Run,
            source: Source::Input,
            variables: Vec::new(),
            handlers: Vec::new(),
            sockets: Vec::new(),
            output: None,
            quit: false,
            time: false,
            reconfigure: false,
            simtime: false,
            seed: 0,
            threads: 1,
            policy: None,
            metered: false,
            isolate: false,
            format: None,
            records: None,
            limit_ns: None,
            inserts_polls: false,
        };
        let mut args = args.into_iter().peekable();
        let word = args.peek().map(|a| text::decode(a));
        match word.as_deref() {
            Some("flatten") => new.what = What::Flatten,
            Some("check") => new.what = What::Check,
            Some("draw") => new.what = What::Draw,
            Some("help") => {
                args.next();
                let name = args.next().map(|a| text::decode(&a));
                return Ok(Self { what: What::Help(name), ..new });
            }
            _ => {}
        }
        if new.what != What::Run {
            args.next();
        }
        while let Some(bytes) = args.next() {
            let arg = text::decode(&bytes);
            if let Some(long) = arg.strip_prefix("--") {
                let (name, value) =
                    long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v.to_owned())));
                let option = OPTIONS.iter().find(|o| o.1 == name);
                let option = option.ok_or_else(|| format!("unknown option '--{name}'"))?;
                let value = match (option.2, value) {
                    (true, None) => Some(next(&mut args, name)?),
                    (false, Some(_)) => return Err(format!("option '--{name}' takes no value")),
                    (_, value) => value,
                };
                new.set(option.1, value.unwrap_or_default())?;
            } else if arg.len() > 1 && arg.starts_with('-') {
                for (at, letter) in arg[1..].char_indices() {
                    let option = OPTIONS.iter().find(|o| o.0 == letter && letter != '\0');
                    let option = option.ok_or_else(|| format!("unknown option '-{letter}'"))?;
                    if option.2 {
                        let rest = &arg[1 + at + letter.len_utf8()..];
                        let value =
                            if rest.is_empty() { next(&mut args, option.1)? } else { rest.to_owned() };
                        new.set(option.1, value)?;
                        break;
                    }
                    new.set(option.1, String::new())?;
                }
            } else if let Some((name, value)) = arg.split_once('=').filter(|(n, _)| is_variable(n)) {
                new.variables.push((name.to_owned(), value.to_owned()));
            } else {
                new.set("file", arg)?;
            }
        }
        if new.what != What::Check && (new.limit_ns.is_some() || new.inserts_polls) {
            return Err("--limit and --insert-polls are for flame click check".into());
        }
        if new.inserts_polls && new.limit_ns.is_none() {
            return Err("--insert-polls needs the limit of a segment, as --limit 2us".into());
        }
        Ok(new)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "file" | "expression" if self.source != Source::Input => {
                return Err("configuration specified twice".into());
            }
            "file" => self.source = Source::File(value),
            "expression" => self.source = Source::Expression(text::encode(&value)),
            "handler" => self.handlers.push(value),
            "port" => self.sockets.push(format!("TCP, {}", text::quote(&value))),
            "unix-socket" => self.sockets.push(format!("UNIX, {}", text::quote(&value))),
            "output" => self.output = Some(value),
            "policy" => self.policy = Some(value),
            "format" => self.format = Some(value),
            "records" => self.records = Some(value),
            "quit" => self.quit = true,
            "time" => self.time = true,
            "allow-reconfigure" => self.reconfigure = true,
            "metered" => self.metered = true,
            "isolate" => self.isolate = true,
            "simtime" => self.simtime = true,
            "seed" => {
                self.seed =
                    value.parse().map_err(|_| format!("--seed: expected a number, found '{value}'"))?;
            }
            "threads" => {
                let count = value.parse().ok().filter(|n| (1..=MOST_THREADS).contains(n));
                self.threads = count.ok_or_else(|| {
                    format!("--threads: expected a number from 1 to {MOST_THREADS}, found '{value}'")
                })?;
            }
            "limit" => {
                let ns = flame_abi::manifest::duration_ns(&value).map_err(|e| format!("--limit {e}"))?;
                let limit = u64::try_from(ns).ok().filter(|ns| *ns > 0);
                self.limit_ns = Some(limit.ok_or_else(|| format!("--limit {value}: must be longer than 0"))?);
            }
            "insert-polls" => self.inserts_polls = true,
            "help" => self.what = What::Help(None),
            "version" => self.what = What::Version,
            _ => {}
        }
        Ok(())
    }
}

fn next(args: &mut dyn Iterator<Item = Vec<u8>>, name: &str) -> Result<String, String> {
    args.next().map(|a| text::decode(&a)).ok_or_else(|| format!("option '{name}' needs a value"))
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str) -> Result<Invocation, String> {
        Invocation::parse(args.split(' ').map(|a| a.as_bytes().to_vec()))
    }

    #[test]
    fn options_combine_as_in_click() {
        let i = parse("-qo- A.click -h c.count X=1 --simtime --seed=7").unwrap();
        assert!(i.quit && i.simtime && i.seed == 7);
        assert_eq!((i.output.as_deref(), &i.source), (Some("-"), &Source::File("A.click".into())));
        assert_eq!((i.handlers, i.variables), (vec!["c.count".into()], vec![("X".into(), "1".into())]));
        assert_eq!(parse("-j4 A.click").unwrap().threads, 4);
        let sockets = parse("-p 41900+ -u/tmp/a,b A.click").unwrap().sockets;
        assert_eq!(sockets, ["TCP, 41900+", "UNIX, \"/tmp/a,b\""]);
        assert_eq!(parse("check -e Idle").unwrap().what, What::Check);
        let i = parse("check --limit 2us --insert-polls A.click").unwrap();
        assert_eq!((i.limit_ns, i.inserts_polls), (Some(2000), true));
        for bad in [
            "check --insert-polls a",
            "--limit 2us a",
            "check --limit 0s a",
            "check --limit x a",
            "-z",
            "--nothing",
            "-f",
            "a b",
            "--quit=1",
            "--seed x",
            "-j0",
            "-j 65",
            "-j x",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
