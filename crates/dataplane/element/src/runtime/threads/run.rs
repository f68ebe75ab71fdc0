//! Runs a router in several threads.

use crate::runtime::router::{Environment, Router};
use crate::runtime::threads::team::{Member, Team};
use flame_click::Graph;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

/// The stack of a thread, in bytes: that of a program's first thread.
const STACK: usize = 8 << 20;
/// Rounds in which packets that are on their way at the end are delivered.
const LAST_ROUNDS: usize = 64;

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
struct Guard<'a>(&'a Team);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.break_up();
        }
    }
}

type Errors = Mutex<Vec<String>>;

/// The router of one thread, between the meetings of all threads.
struct Part {
    member: Rc<Member>,
    router: Router,
}

impl Part {
    /// Makes and initializes the elements of a thread. Returns none if a thread could not.
    fn build(parts: &Parts<'_>, member: Rc<Member>, errors: &Errors) -> Result<Option<Self>, String> {
        let env = Environment { member: Some(member.clone()), ..(parts.environment)() };
        let seed = env.seed.wrapping_add(member.me as u64);
        let add = |e| errors.lock().unwrap_or_else(PoisonError::into_inner).push(e);
        let has_failed = || !errors.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        let (mut router, mut env) = (None, Some(Environment { seed, ..env }));
        // In turn, so that names, numbers and messages do not depend on how fast threads are.
        for turn in 0..parts.threads {
            if turn == member.me
                && let Some(env) = env.take()
            {
                match Router::connected_part(parts.graph.clone(), parts.text, env) {
                    Ok(made) => router = Some(made),
                    Err(e) => add(e),
                }
            }
            member.meet(&|| ())?;
        }
        let router = router.filter(|_| !has_failed());
        // All have looked before one goes on and adds other errors.
        member.meet(&|| ())?;
        let Some(router) = router else { return Ok(None) };
        let part = Self { member, router };
        part.router.initialize().unwrap_or_else(add);
        part.meet()?;
        if has_failed() {
            return Ok(None);
        }
        part.router.start();
        Ok(Some(part))
    }

    fn meet(&self) -> Result<(), String> {
        self.member.meet(&|| self.router.serve_calls())
    }

    /// Runs until thread 0 stops all, and delivers the packets that are on their way then.
    fn run(&self) -> Result<(), String> {
        // Thread 0 does not wait for what others do at their start.
        let team = &self.member.team;
        if self.member.me == 0 {
            team.begin();
        }
        self.member.await_run(&|| self.router.serve_calls())?;
        self.router.run();
        if self.member.me == 0 {
            team.stop();
        }
        self.member.flush();
        self.meet()?;
        for round in 0.. {
            match round < LAST_ROUNDS {
                true => drop(self.router.collect_mail()),
                false => self.router.drop_mail(),
            }
            self.member.flush();
            self.meet()?;
            let is_underway = self.member.team.is_underway();
            self.meet()?;
            if !is_underway {
                break;
            }
        }
        Ok(())
    }

    fn end(self) -> Result<(), String> {
        self.meet()?;
        self.router.cleanup();
        Ok(())
    }
}

/// Runs a configuration. Thread 0 is the present one: it calls `act` with its router, which represents all
/// elements, and with a function that runs all threads until they are stopped.
///
/// # Errors
///
/// Returns the errors of [`Router::new`] of all threads, or that of `act`.
pub fn run<T>(
    parts: &Parts<'_>,
    act: impl FnOnce(&Router, &dyn Fn() -> Result<(), String>) -> Result<T, String>,
) -> Result<T, String> {
    let (owners, warnings) = Router::assign(parts.graph, parts.threads)?;
    let team = Team::new(parts.threads, owners);
    let errors = Errors::default();
    std::thread::scope(|scope| {
        for me in 1..parts.threads {
            let (team, errors): (&Arc<Team>, _) = (&team, &errors);
            let work = move || {
                let _guard = Guard(team);
                let Ok(Some(part)) = Part::build(parts, Rc::new(Member::join(team, me)), errors) else {
                    return;
                };
                // An error is that another thread has ended, which says so.
                let _ = part.run().and_then(|()| part.end());
            };
            let name = format!("router {me}");
            let spawned = std::thread::Builder::new().name(name).stack_size(STACK).spawn_scoped(scope, work);
            if let Err(e) = spawned {
                team.break_up();
                return Err(format!("thread {me} of {}: {e}", parts.threads));
            }
        }
        let _guard = Guard(&team);
        let part = Part::build(parts, Rc::new(Member::join(&team, 0)), &errors)?;
        let Some(part) = part else {
            let errors = errors.lock().unwrap_or_else(PoisonError::into_inner);
            return Err(errors.join("\n"));
        };
        warnings.iter().for_each(|text| part.router.message(text));
        let has_run = Cell::new(false);
        let result = act(&part.router, &|| {
            has_run.set(true);
            part.run()
        });
        if !has_run.get() {
            team.stop();
            part.run()?;
        }
        part.end()?;
        result
    })
}
