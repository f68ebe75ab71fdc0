//! Handlers: how elements and users read and write the state of elements by name.

use super::build::{Partial, make};
use super::router::Router;
use flame_click::text;

/// Handlers that every element has.
const COMMON: &[&str] = &["class", "name", "config", "ports", "handlers", "account"];
/// Handlers of the router: (name, mode).
pub const GLOBAL: &[(&str, &str)] = &[
    ("stop", "w"),
    ("timewarp", "rw"),
    ("hotconfig", "w"),
    ("list", "r"),
    ("classes", "r"),
    ("config", "r"),
    ("flatconfig", "r"),
    ("requirements", "r"),
    ("version", "r"),
    ("handlers", "r"),
    ("former_accounts", "r"),
];

/// A handler that was found: of an element, or of the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub element: Option<usize>,
    pub handler: String,
}

/// Whether a handler can be read and written by a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    NoElement(String),
    NoHandler,
    Handler {
        reads: bool,
        writes: bool,
        /// Whether reading it changes something: it runs a script, or draws a random number.
        acts: bool,
    },
}

impl Router {
    /// Returns whether a user may read and write a handler. Those that only scripts may use are none.
    pub fn access(&self, name: &str) -> Access {
        let Ok(target) = self.target(None, name) else {
            return Access::NoElement(name.split('.').next().unwrap_or(name).to_owned());
        };
        let of = |mode: &str| {
            let has = |letter| mode.contains(letter);
            Access::Handler { reads: has('r'), writes: has('w'), acts: has('a') }
        };
        let handler = target.handler.as_str();
        let Some(me) = target.element else {
            return GLOBAL
                .iter()
                .find(|(n, _)| *n == handler)
                .map_or(Access::NoHandler, |(_, mode)| of(mode));
        };
        match self.element(me).handlers().iter().find(|(n, _)| *n == handler) {
            Some((_, mode)) if mode.contains('p') => Access::NoHandler,
            Some((_, mode)) => of(mode),
            None if COMMON.contains(&handler) => of(if handler == "config" { "rw" } else { "r" }),
            None => Access::NoHandler,
        }
    }

    /// Returns the name of a handler for the whole router, as an element sees it.
    pub fn full(&self, from: usize, name: &str) -> String {
        match self.target(Some(from), name) {
            Ok(Target { element: Some(element), handler }) => {
                format!("{}.{handler}", self.nodes[element].name)
            }
            _ => name.to_owned(),
        }
    }

    /// Finds `ELEMENT.HANDLER` or `HANDLER`, seen from an element.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no element of that name. The handler is not looked up.
    pub fn target(&self, from: Option<usize>, name: &str) -> Result<Target, String> {
        let scope = from.map_or("", |f| self.nodes[f].name.as_str());
        match name.split_once('.') {
            Some((element, handler)) if !element.is_empty() => {
                let found = self.lookup(scope, element);
                let element = found.ok_or_else(|| format!("no element named '{element}'"))?;
                Ok(Target { element: Some(element), handler: handler.to_owned() })
            }
            Some((_, handler)) => Ok(Target { element: None, handler: handler.to_owned() }),
            None => {
                let own = from.filter(|f| self.has(*f, name));
                Ok(Target { element: own, handler: name.to_owned() })
            }
        }
    }

    fn has(&self, element: usize, handler: &str) -> bool {
        let e = self.element(element);
        e.handlers().iter().any(|(n, _)| *n == handler)
            || e.read(&self.cx(element), "_has", handler).is_some_and(|r| r.is_ok())
    }

    fn missing(&self, target: &Target) -> String {
        match target.element {
            Some(e) => format!("no '{}' handler in '{}'", target.handler, self.declaration(e)),
            None => format!("no global '{}' handler", target.handler),
        }
    }

    /// Reads a handler.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such element or handler, if the handler fails, or if the scripts and
    /// handlers of one step do too much or call each other too deeply.
    pub fn read(&self, from: Option<usize>, name: &str, argument: &str) -> Result<String, String> {
        let _level = self.enter_handler(argument.len())?;
        let target = self.target(from, name)?;
        let Some(me) = target.element else {
            return self.read_global(&target.handler).ok_or_else(|| self.missing(&target));
        };
        match self.element(me).read(&self.cx(me), &target.handler, argument) {
            Some(result) => result,
            None => self.read_common(me, &target.handler).ok_or_else(|| self.missing(&target)),
        }
    }

    fn read_common(&self, me: usize, handler: &str) -> Option<String> {
        let node = &self.nodes[me];
        Some(match handler {
            "class" => node.class.name.to_owned(),
            "name" => node.name.clone(),
            "config" => node.config.borrow().clone(),
            "scheduled" => node.is_scheduled.get().to_string(),
            "home_thread" => self.member.as_ref().map_or(0, |m| m.me).to_string(),
            "ports" => self.describe_ports(me),
            "account" => self.account(me).lines(),
            "handlers" => {
                let e = self.element(me);
                let own =
                    e.handlers().iter().map(|(n, m)| format!("{n}\t{}\n", m.trim_end_matches(['a', 'p'])));
                let mut all: Vec<String> = own.collect();
                all.extend(
                    COMMON.iter().map(|n| format!("{n}\t{}\n", if *n == "config" { "rw" } else { "r" })),
                );
                all.concat()
            }
            _ => return None,
        })
    }

    fn describe_ports(&self, me: usize) -> String {
        let node = &self.nodes[me];
        let kind = |push: bool| if push { "push" } else { "pull" };
        let plural = |n: usize, what: &str| format!("{n} {what}{}\n", if n == 1 { "" } else { "s" });
        let mut from = vec![Vec::new(); node.inputs.len()];
        let mut to = vec![Vec::new(); node.outputs.len()];
        for c in &self.graph.connections {
            if c.to.element == me {
                from[c.to.port].push(format!("{} [{}]", self.nodes[c.from.element].name, c.from.port));
            }
            if c.from.element == me {
                to[c.from.port].push(format!("[{}] {}", c.to.port, self.nodes[c.to.element].name));
            }
        }
        let mut out = plural(node.inputs.len(), "input");
        for (input, from) in node.inputs.iter().zip(from) {
            out.push_str(&format!("{}\t-\t{}\n", kind(input.is_push), from.join(", ")));
        }
        out.push_str(&plural(node.outputs.len(), "output"));
        for (output, to) in node.outputs.iter().zip(to) {
            out.push_str(&format!("{}\t-\t{}\n", kind(output.is_push), to.join(", ")));
        }
        out
    }

    fn read_global(&self, handler: &str) -> Option<String> {
        Some(match handler {
            "list" => {
                let names: String = self.nodes.iter().map(|n| format!("{}\n", n.name)).collect();
                format!("{}\n{names}", self.nodes.len())
            }
            "classes" => crate::CLASSES.iter().map(|c| format!("{}\n", c.name)).collect(),
            "config" if self.graph.requirements.iter().any(|r| r.text == "compact_config") => {
                self.graph.unparse()
            }
            "config" => self.text.clone(),
            "flatconfig" => self.graph.unparse(),
            "requirements" => self.graph.requirements.iter().map(|r| format!("{}\n", r.text)).collect(),
            "former_accounts" => self.past.text(),
            "version" => env!("CARGO_PKG_VERSION").to_owned(),
            "handlers" => GLOBAL.iter().map(|(n, m)| format!("{n}\t{m}\n")).collect(),
            "timewarp" => match self.clock.is_simulated() {
                true => "simulation".to_owned(),
                false => self.clock.warp().to_string(),
            },
            _ => return None,
        })
    }

    /// Writes a handler.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such element or handler, if the handler refuses the value, or if the
    /// scripts and handlers of one step do too much or call each other too deeply.
    pub fn write(&self, from: Option<usize>, name: &str, value: &str) -> Result<(), String> {
        let _level = self.enter_handler(value.len())?;
        let target = self.target(from, name)?;
        let Some(me) = target.element else { return self.write_global(&target, value) };
        match self.call(me, |e| e.write(&self.cx(me), &target.handler, value)) {
            Some(result) => result,
            None if target.handler == "config" => self.reconfigure(me, value),
            None => Err(self.missing(&target)),
        }
    }

    fn write_global(&self, target: &Target, value: &str) -> Result<(), String> {
        match target.handler.as_str() {
            "stop" => {
                self.stop(value.trim().parse::<u32>().unwrap_or(1));
                Ok(())
            }
            "timewarp" if self.member.is_some() => {
                Err("'timewarp' is not available with several threads (start with -j 1)".to_owned())
            }
            "timewarp" => {
                let warp: f64 =
                    value.trim().parse().map_err(|_| format!("expected a number, found '{value}'"))?;
                if !(0.001..=1e6).contains(&warp) {
                    return Err(format!("expected a factor between 0.001 and 1000000, found {warp}"));
                }
                self.clock.set_warp(warp);
                Ok(())
            }
            "hotconfig" => {
                let parse = self.parse.as_ref().ok_or("this router cannot be replaced (see -R)")?;
                let graph = parse(value)?;
                match &self.member {
                    Some(member) => member.team.want(graph, value.to_owned()),
                    None => *self.hotconfig.borrow_mut() = Some((graph, value.to_owned())),
                }
                Ok(())
            }
            _ => Err(self.missing(target)),
        }
    }

    /// Gives an element other arguments. It keeps what it holds.
    ///
    /// # Errors
    ///
    /// Returns an error if the element refuses the arguments or cannot begin its work with them. The former
    /// element then stays.
    pub fn reconfigure(&self, me: usize, config: &str) -> Result<(), String> {
        let node = &self.nodes[me];
        let (seed, modules) = (self.random(u64::MAX), self.modules.as_deref());
        let partial = Partial::new(&self.graph, seed, modules);
        let counts = (node.inputs.len(), node.outputs.len());
        let made = make(node.class, &node.name, config, counts, &self.names, &partial);
        for warning in partial.warnings.take() {
            self.message(&format!("While reconfiguring '{}':\n  {warning}", self.declaration(me)));
        }
        let new: std::rc::Rc<dyn super::element::Element> = made.map_err(|errors| errors.join("\n"))?.into();
        let old = self.element(me);
        new.initialize(&self.cx(me))?;
        *node.element.borrow_mut() = new;
        *node.config.borrow_mut() = config.to_owned();
        self.hand_over(me, &*old, self, me);
        Ok(())
    }

    /// Sets one argument, which is positional argument `position` or a keyword argument.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Router::reconfigure`].
    pub fn set_argument(&self, me: usize, keyword: &str, position: usize, value: &str) -> Result<(), String> {
        let node = &self.nodes[me];
        let mut args = text::split(&node.config.borrow());
        let is_keyword = |arg: &str| node.class.keywords.contains(&text::first_word(arg).0.as_str());
        let own = args.iter().position(|a| text::first_word(a).0 == keyword);
        let own = own.or_else(|| {
            let mut positional = (0..args.len()).filter(|i| !is_keyword(&args[*i]));
            positional.nth(position)
        });
        match own {
            Some(at) if text::first_word(&args[at]).0 != keyword => args[at] = value.to_owned(),
            Some(at) => args[at] = format!("{keyword} {value}"),
            None => args.push(format!("{keyword} {value}")),
        }
        self.reconfigure(me, &text::join(&args))
    }
}
