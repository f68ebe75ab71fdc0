//! The router of one thread of a team, from its making to its end.

use crate::runtime::router::{Environment, Outcome, Router};
use crate::runtime::threads::replace::Next;
use crate::runtime::threads::team::{Member, Team};
use flame_base::lock;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// Rounds in which packets that are on their way at the end are delivered.
const LAST_ROUNDS: usize = 64;

/// The state that the threads of a router share beside their team, which another configuration replaces.
#[derive(Default)]
pub struct Crew {
    /// The teams that threads may wait for.
    teams: Mutex<Vec<Arc<Team>>>,
    /// The configuration that all threads build.
    next: Mutex<Option<Arc<Next>>>,
}

impl Crew {
    /// Begins with a configuration.
    pub fn new(first: &Next) -> Self {
        Self { teams: Mutex::new(vec![first.team.clone()]), next: Mutex::default() }
    }

    /// Ends all waiting: a thread has ended before its time.
    pub fn break_up(&self) {
        lock(&self.teams).iter().for_each(|team| team.break_up());
    }

    fn prepare(&self, next: Option<Next>) {
        let next = next.map(Arc::new);
        lock(&self.teams).extend(next.iter().map(|next| next.team.clone()));
        *lock(&self.next) = next;
    }

    /// Forgets all teams but one.
    fn keep(&self, team: &Arc<Team>) {
        lock(&self.teams).retain(|other| Arc::ptr_eq(other, team));
        *lock(&self.next) = None;
    }
}

/// The router of one thread.
pub struct Part<'a> {
    crew: &'a Crew,
    env: Environment,
    member: Rc<Member>,
    router: Rc<Router>,
}

/// Waits for all threads. Meanwhile it answers calls.
type Meet<'a> = &'a dyn Fn(&dyn Fn()) -> Result<(), String>;

/// Makes the elements of a thread, and begins their work. Returns none if a thread could not.
fn build(
    next: &Next,
    env: &Environment,
    member: &Rc<Member>,
    meet: Meet<'_>,
) -> Result<Option<Router>, String> {
    let seed = env.seed.wrapping_add(member.me as u64);
    let (mut router, env) = (None, Environment { seed, member: Some(member.clone()), ..env.clone() });
    let mut env = Some(env);
    // In turn, so that names, numbers and messages do not depend on how fast threads are.
    for turn in 0..next.team.threads() {
        if turn == member.me
            && let Some(env) = env.take()
        {
            match Router::connected_part(next.graph.clone(), &next.text, env) {
                Ok(made) => router = Some(made),
                Err(e) => next.fail(e),
            }
        }
        meet(&|| ())?;
    }
    let router = router.filter(|_| !next.has_failed());
    // All have looked before one continues and adds other errors.
    meet(&|| ())?;
    let Some(router) = router else { return Ok(None) };
    router.initialize().unwrap_or_else(|e| next.fail(e));
    meet(&|| router.serve_calls())?;
    if next.has_failed() {
        return Ok(None);
    }
    router.start();
    Ok(Some(router))
}

impl<'a> Part<'a> {
    /// Makes and initializes the elements of a thread. Returns none if a thread could not.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread has ended before its time.
    pub fn new(crew: &'a Crew, first: &Next, env: Environment, me: usize) -> Result<Option<Self>, String> {
        let member = Rc::new(Member::join(&first.team, me));
        let router = build(first, &env, &member, &|serve| member.meet(serve))?;
        Ok(router.map(|router| Self { crew, env, member, router: Rc::new(router) }))
    }

    pub fn router(&self) -> &Rc<Router> {
        &self.router
    }

    fn meet(&self) -> Result<(), String> {
        self.member.meet(&|| self.router.serve_calls())
    }

    /// Runs until thread 0 stops all, and delivers the packets that are on their way then.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread has ended before its time.
    pub fn run(&mut self) -> Result<(), String> {
        // Thread 0 does not wait for what others do at their start.
        if self.member.me == 0 {
            self.member.team.begin();
        }
        self.member.await_run(&|| self.router.serve_calls())?;
        loop {
            let outcome = self.router.run();
            if self.member.me == 0 {
                match outcome {
                    Outcome::Replaced => self.member.team.replace(),
                    Outcome::Stopped => self.member.team.stop(),
                }
            }
            if !self.member.is_replaced(&|| self.router.serve_calls())? {
                break;
            }
            self.replace()?;
        }
        self.settle(&|| self.router.drop_mail(), &|| self.router.serve_calls())?;
        self.router.complete();
        self.meet()
    }

    /// Delivers the packets that are on their way between threads. `last` handles those that are still on
    /// their way after many rounds.
    fn settle(&self, last: &dyn Fn(), serve: &dyn Fn()) -> Result<(), String> {
        self.member.flush();
        self.member.meet(serve)?;
        for round in 0.. {
            match round < LAST_ROUNDS {
                true => drop(self.router.collect_mail()),
                false => last(),
            }
            self.member.flush();
            self.member.meet(serve)?;
            let is_underway = self.member.team.is_underway();
            self.member.meet(serve)?;
            if !is_underway {
                break;
            }
        }
        Ok(())
    }

    /// Builds the router that was asked for beside the one that runs, and lets it go on in its place. If it
    /// cannot be built, the one that runs stays.
    fn replace(&mut self) -> Result<(), String> {
        let (crew, old) = (self.crew, self.router.clone());
        // From here on, no thread is within a step.
        self.meet()?;
        if self.member.me == 0 {
            let wanted = self.member.team.take_wanted();
            let threads = self.member.team.threads();
            let next = wanted.and_then(|(graph, text)| {
                Next::new(graph, text, threads).inspect_err(|errors| old.message(errors)).ok()
            });
            crew.prepare(next);
        }
        self.meet()?;
        let Some(next) = lock(&crew.next).clone() else { return Ok(()) };
        let member = Rc::new(Member::join(&next.team, self.member.me));
        let Some(new) = build(&next, &self.env, &member, &|serve| self.member.meet(serve))? else {
            if self.member.me == 0 {
                old.message(&next.errors());
                crew.keep(&self.member.team);
            }
            return Ok(());
        };
        // Scripts of the new router may call each other already, and so may what is delivered last.
        let serve = || {
            old.serve_calls();
            new.serve_calls();
        };
        if member.me == 0 {
            next.warnings.iter().for_each(|text| new.message(text));
        }
        self.settle(&|| old.defer_mail(), &serve)?;
        new.give_away(&old, &next);
        self.member.meet(&serve)?;
        let ended = new.take_over(&old, &next);
        self.member.meet(&serve)?;
        new.see_rooms();
        old.cleanup();
        ended.iter().for_each(|(was, element)| element.cleanup(&old.cx(*was)));
        drop(ended);
        self.member.meet(&serve)?;
        if member.me == 0 {
            // What was delivered last may have asked for yet another one.
            self.member.team.take_wanted().into_iter().for_each(|(graph, text)| next.team.want(graph, text));
            crew.keep(&next.team);
        }
        (self.member, self.router) = (member, Rc::new(new));
        Ok(())
    }

    /// Ends the work of all elements.
    ///
    /// # Errors
    ///
    /// Returns an error if a thread has ended before its time.
    pub fn end(&self) -> Result<(), String> {
        self.meet()?;
        self.router.cleanup();
        Ok(())
    }
}
