//! Runs a router in several threads.

use crate::runtime::router::{Environment, Router};
use crate::runtime::threads::part::{Crew, Part};
use crate::runtime::threads::replace::Next;
use flame_click::Graph;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The stack of a thread, in bytes: that of a program's first thread.
const STACK: usize = 8 << 20;

/// A configuration for several threads.
pub struct Parts<'a> {
    pub graph: &'a Graph,
    /// The configuration as it was written.
    pub text: &'a str,
    pub threads: usize,
    /// Creates the environment of a thread, in that thread. Its member is set here.
    pub environment: &'a (dyn Fn() -> Environment + Sync),
}

/// Tells the others that a thread has ended before its time.
struct Guard<'a>(&'a Crew);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.break_up();
        }
    }
}

/// Runs all threads until they are stopped. Returns the router that they had then.
pub type Run<'a> = &'a dyn Fn() -> Result<Rc<Router>, String>;

/// Runs a configuration. Thread 0 is the present one: it calls `act` with its router, which represents all
/// elements, and with a function that runs all threads until they are stopped. That one returns the router
/// of the end, since handlers may have replaced the first one.
///
/// # Errors
///
/// Returns the errors of [`Router::new`] of all threads, or that of `act`.
pub fn run<T>(
    parts: &Parts<'_>,
    act: impl FnOnce(Rc<Router>, Run<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let first = Next::new(parts.graph.clone(), parts.text.to_owned(), parts.threads)?;
    let crew = Crew::new(&first);
    std::thread::scope(|scope| {
        for me in 1..parts.threads {
            let (crew, first) = (&crew, &first);
            let work = move || {
                let _guard = Guard(crew);
                let Ok(Some(mut part)) = Part::new(crew, first, (parts.environment)(), me) else { return };
                // An error is that another thread has ended, which says so.
                let _ = part.run().and_then(|()| part.end());
            };
            let name = format!("router {me}");
            let spawned = std::thread::Builder::new().name(name).stack_size(STACK).spawn_scoped(scope, work);
            if let Err(e) = spawned {
                crew.break_up();
                return Err(format!("thread {me} of {}: {e}", parts.threads));
            }
        }
        let _guard = Guard(&crew);
        let part = Part::new(&crew, &first, (parts.environment)(), 0)?;
        let part = RefCell::new(part.ok_or_else(|| first.errors())?);
        let router = part.borrow().router().clone();
        first.warnings.iter().for_each(|text| router.message(text));
        let has_run = Cell::new(false);
        let result = act(router, &|| {
            has_run.set(true);
            part.borrow_mut().run()?;
            Ok(part.borrow().router().clone())
        });
        if !has_run.get() {
            first.team.stop();
            part.borrow_mut().run()?;
        }
        part.borrow().end()?;
        result
    })
}
