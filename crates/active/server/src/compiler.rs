//! The compiler of capsules: a confined child for each program, whose time the account pays, and a thread
//! that waits for it, so that the node need not.

use flame_active_node::Failure;
use flame_active_sandbox::{Compile, Compiled};
use flame_capsule::{Hash, Payer, hash_of};
use flame_compile::Compiler;
use flame_plan::Share;
use flame_quota::{Allowance, Amounts, Ledger, Quota, ThisRun};
use std::collections::{BTreeMap, VecDeque};
use std::io::{PipeReader, PipeWriter, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The processor time that each account may use for compilation.
const ALLOWANCE: Share = Share { slice_ns: 10_000_000_000, period_ns: 3_600_000_000_000 };

type Job = (Vec<u8>, Payer);
type Made = (Payer, Hash, Result<Compiled, Failure>);

/// The confined compiler. Accounts take turns, so that none waits for all programs of another.
pub struct Confined {
    jobs: SyncSender<Job>,
    made: Receiver<Made>,
    /// The programs of accounts that wait, the account whose turn is next first.
    waiting: VecDeque<(Payer, VecDeque<Vec<u8>>)>,
    is_busy: bool,
    /// What the thread writes to, until somebody waits for it.
    signal: Option<PipeReader>,
}

/// The time that accounts have used.
#[derive(Default)]
struct Ledgers(BTreeMap<Payer, Arc<ThisRun>>);

impl Ledgers {
    fn allowance(&mut self, account: Payer) -> Allowance {
        let ledger = self.0.entry(account).or_insert_with(|| {
            let none = Amounts::default();
            let share = Some(ALLOWANCE);
            Arc::new(ThisRun::new(Quota { per_second: none, per_packet: none, share, memory: 0 }))
        });
        Allowance::new(vec![(ALLOWANCE, Arc::clone(ledger) as Arc<dyn Ledger>)])
    }
}

/// Compiles what comes, until there are no more jobs.
fn work(compiler: &Compiler<'_>, jobs: &Receiver<Job>, made: &SyncSender<Made>, mut signal: PipeWriter) {
    let mut ledgers = Ledgers::default();
    let prepare = || {
        // Without it, the child of the next capsule is started when that comes.
        if let Err(error) = compiler.prepare_capsule() {
            tracing::debug!("no child is ready for a capsule: {error}");
        }
    };
    prepare();
    while let Ok((code, account)) = jobs.recv() {
        let compiled = compiler.of("active", "", ledgers.allowance(account)).capsule(&code);
        let compiled = compiled.map(|made| Compiled { code: made.code, bounds: made.bounds });
        let compiled = compiled.map_err(|error| {
            tracing::debug!("a capsule's code is refused: {error}");
            Failure::NotCompiled
        });
        if made.send((account, hash_of(&code), compiled)).is_err() {
            return;
        }
        // It has the code by now. A node that has ended does not wait.
        let _ = signal.write_all(&[1]);
        prepare();
    }
}

impl Confined {
    /// Begins a thread with a compiler.
    ///
    /// # Errors
    ///
    /// Returns an error if there can be no more threads.
    pub fn new(compiler: impl FnOnce() -> Compiler<'static> + Send + 'static) -> std::io::Result<Self> {
        let (jobs, taken) = sync_channel(1);
        let (sent, made) = sync_channel(1);
        let (signal, write) = std::io::pipe()?;
        let thread = std::thread::Builder::new().name("capsules".to_owned());
        thread.spawn(move || work(&compiler(), &taken, &sent, write))?;
        Ok(Self { jobs, made, waiting: VecDeque::new(), is_busy: false, signal: Some(signal) })
    }

    /// Gives the thread the program of the next account, if it has none.
    fn next(&mut self) {
        while !self.is_busy
            && let Some((account, mut programs)) = self.waiting.pop_front()
        {
            if let Some(code) = programs.pop_front() {
                self.is_busy = self.jobs.send((code, account)).is_ok();
                self.waiting.push_back((account, programs));
            }
        }
    }
}

impl Compile for Confined {
    fn compile(&mut self, code: &[u8], account: Payer) -> Option<Result<Compiled, Failure>> {
        match self.waiting.iter_mut().find(|(other, _)| *other == account) {
            Some((_, programs)) => programs.push_back(code.to_vec()),
            None => self.waiting.push_back((account, VecDeque::from([code.to_vec()]))),
        }
        self.next();
        None
    }

    fn made(&mut self) -> Option<Made> {
        let made = self.made.try_recv().ok()?;
        self.is_busy = false;
        self.next();
        Some(made)
    }

    fn signal(&mut self) -> Option<PipeReader> {
        self.signal.take()
    }
}
