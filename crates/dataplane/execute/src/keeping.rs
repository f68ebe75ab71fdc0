//! The state of one instance: what it begins with, and when it exports.

use crate::keep::{Begun, Held, Requested, State};
use flame_run::Call;

/// The part of an instance's state in a loop of calls.
#[derive(Default)]
pub(crate) struct Keeping {
    stage: Stage,
    /// Whether an export is to be made before the next other call.
    is_due: bool,
    /// Whether the last export was begun, or is not made.
    is_last: bool,
    /// The last tick.
    ticked: u64,
}

#[derive(Default)]
enum Stage {
    /// The module keeps no state, or the instance has lost its place.
    #[default]
    None,
    /// Another instance still holds the place.
    Waiting(Requested),
    /// The instance has to import the state first.
    Begin(Held, State),
    Held(Held),
}

/// The next step of an instance that is between two calls.
pub(crate) enum Next {
    /// Nothing may be called yet.
    Wait,
    Call(Call),
    /// Any other call.
    Free,
}

impl Keeping {
    /// Creates the part of an instance. If `in_steps`, it exports at ticks only: its end may lie within an
    /// interval of its view.
    pub(crate) fn new(requested: Option<Requested>, in_steps: bool) -> Self {
        Self { stage: requested.map_or(Stage::None, Stage::Waiting), is_last: in_steps, ..Self::default() }
    }

    /// Returns the next step. The call that it returns is made at once.
    pub(crate) fn next(&mut self) -> Next {
        self.poll();
        match std::mem::take(&mut self.stage) {
            Stage::Waiting(requested) => {
                self.stage = Stage::Waiting(requested);
                Next::Wait
            }
            Stage::Begin(held, state) => {
                self.stage = Stage::Held(held);
                Next::Call(Call::Import(state))
            }
            Stage::Held(held) => {
                self.stage = Stage::Held(held);
                if std::mem::take(&mut self.is_due) { Next::Call(Call::Export) } else { Next::Free }
            }
            Stage::None => Next::Free,
        }
    }

    /// Takes the place if it has become free.
    fn poll(&mut self) {
        let Stage::Waiting(requested) = &self.stage else { return };
        self.stage = match requested.take() {
            Ok(None) => return,
            Ok(Some((held, Some(state)))) => Stage::Begin(held, state),
            Ok(Some((mut held, None))) => {
                held.begin(Begun::Empty);
                Stage::Held(held)
            }
            Err(_) => Stage::None,
        };
    }

    /// Returns whether a step waits: for the place, or for an import or export to be called.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_) | Stage::Begin(..)) || self.is_due
    }

    /// Returns whether nothing may be called because another instance holds the place.
    pub(crate) fn must_wait(&mut self) -> bool {
        self.poll();
        matches!(self.stage, Stage::Waiting(_))
    }

    /// Records a tick, which an export follows if it is the first one of its interval.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        let before = std::mem::replace(&mut self.ticked, now_ns);
        if let Stage::Held(held) = &self.stage
            && held.every_ns() > 0
        {
            self.is_due = now_ns / held.every_ns() != before / held.every_ns();
        }
    }

    /// Requests the last export, once. Returns whether it is to be made.
    pub(crate) fn export_last(&mut self) -> bool {
        self.is_due = !std::mem::replace(&mut self.is_last, true) && matches!(self.stage, Stage::Held(_));
        self.is_due
    }

    /// Returns whether another instance waits for the state, so that this one does not end but goes on there.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(&self.stage, Stage::Held(held) if held.is_awaited())
    }

    pub(crate) fn store(&mut self, state: &[u8]) {
        if let Stage::Held(held) = &mut self.stage {
            held.store(state);
        }
    }

    /// Records that the module has taken or refused its state.
    pub(crate) fn imported(&mut self, refused: bool) {
        if let Stage::Held(held) = &mut self.stage {
            held.begin(if refused { Begun::Refused } else { Begun::Taken });
        }
    }

    /// Drops the state of an instance that ended in a fault. If the run is being stopped, the state that was
    /// exported last stays: the fault may be that of calls for which there was no time left.
    pub(crate) fn fault(&mut self, is_stopping: bool) {
        self.is_due = false;
        match &mut self.stage {
            Stage::Begin(held, _) | Stage::Held(held) if is_stopping => held.cut_off(),
            Stage::Begin(held, _) | Stage::Held(held) => held.fault(),
            Stage::None | Stage::Waiting(_) => {}
        }
    }

    /// Gives the place back. The state there stays.
    pub(crate) fn let_go(&mut self) {
        *self = Self { is_last: true, ..Self::default() };
    }
}
