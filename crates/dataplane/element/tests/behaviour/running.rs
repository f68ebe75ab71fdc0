//! Runs configurations in simulated time.

use flame_element::{Account, Environment, Router, Stream};
use flame_graph::Graph;
use std::cell::RefCell;
use std::rc::Rc;

/// A router and what it has written.
pub struct Run {
    pub router: Router,
    pub err: Rc<RefCell<Vec<u8>>>,
}

pub fn environment(err: Stream) -> Environment {
    Environment { stdout: err.clone(), stderr: err, ..Environment::silent(None) }
}

pub fn graph(text: &str) -> Graph {
    (crate::common::LANGUAGE.read)(text.as_bytes(), "f", &[]).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// Returns the error of a configuration that cannot run.
pub fn refused(text: &str) -> String {
    Router::new(graph(text), text, environment(Rc::new(RefCell::new(std::io::sink()))))
        .err()
        .unwrap_or_else(|| panic!("{text} is accepted"))
}

/// Starts a configuration.
pub fn start(text: &str) -> Run {
    let err = Rc::new(RefCell::new(Vec::new()));
    let router = Router::new(graph(text), text, environment(err.clone()));
    Run { router: router.unwrap_or_else(|e| panic!("{text}\n{e}")), err }
}

/// Runs a configuration until it stops or nothing can happen any more.
pub fn run(text: &str) -> Run {
    let run = start(text);
    run.router.run();
    run
}

impl Run {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.err.borrow()).into_owned()
    }

    pub fn read(&self, handler: &str) -> String {
        self.router.read(None, handler, "").unwrap_or_else(|e| panic!("{handler}: {e}"))
    }

    pub fn account(&self, name: &str) -> Account {
        self.router.account(self.router.graph.find(name).unwrap_or_else(|| panic!("no {name}")))
    }

    /// Asserts that the packets of all elements add up.
    pub fn adds_up(&self) {
        for i in 0..self.router.nodes_count() {
            let account = self.router.account(i);
            assert!(account.adds_up(), "{}: {account:?}", self.router.declaration(i));
        }
    }
}
