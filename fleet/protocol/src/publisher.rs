//! The node's side of a subject: which batch to send, and which are archived.

use crate::message::Mark;
use flame_spool::{Kept, Place, Position, Stamp};
use std::collections::VecDeque;

/// The spool has other batches than the log or the archive behind this position: its memory was restored
/// together with its files. The spool gives up its own, counts them as lost, and begins an epoch
/// ([`flame_spool::Cut::forked`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forked {
    pub common: Position,
}

/// Publishes the batches of one spool on its subject.
///
/// | state | enters it | leaves it |
/// | --- | --- | --- |
/// | away | the connection is lost | [`Publisher::connected`] |
/// | asked | the last message and the mark of the subject are asked for | [`Publisher::answered`] |
/// | sending | up to a window of batches are not acknowledged | a batch is refused, or the connection lost |
/// | held | the log refused a batch | [`Publisher::retry`] |
///
/// After a refusal and after a connection, batches are sent again in order from the first that the log may
/// lack. The log's acknowledgement only moves the window. What the archive has is known by its marks alone.
#[derive(Clone, Debug)]
pub struct Publisher {
    window: usize,
    state: State,
    /// The highest position at which the spool and the archive are known to be equal. The log proves nothing:
    /// its last message may be a forked one of this spool.
    common: Option<Stamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Away,
    Asked,
    /// Sends the first kept batch from `next` on, or the first of all.
    Sending {
        next: Option<Position>,
        flight: VecDeque<Position>,
    },
    Held {
        next: Option<Position>,
    },
}

impl Publisher {
    /// Makes a publisher that has up to `window` batches on their way.
    pub fn new(window: usize) -> Self {
        Self { window: window.max(1), state: State::Away, common: None }
    }

    /// Begins with a connection: the last message of the subject and its mark are asked for next.
    pub fn connected(&mut self) {
        self.state = State::Asked;
    }

    /// Ends with the connection.
    pub fn disconnected(&mut self) {
        self.state = State::Away;
    }

    /// Returns whether the answers of [`Publisher::answered`] are waited for.
    pub fn is_asking(&self) -> bool {
        self.state == State::Asked
    }

    /// Returns whether the log refused a batch, so that [`Publisher::retry`] is due in a while.
    pub fn is_held(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    /// Continues behind the last message of the subject or behind the mark, whichever is later in the spool.
    /// A message of an epoch that the spool does not know is of no use: the archive drops repeated batches.
    /// Returns up to where the spool may be cut.
    ///
    /// # Errors
    ///
    /// Returns an error if the spool was forked. It must be asked again after the spool has begun an epoch.
    pub fn answered(
        &mut self,
        kept: &impl Kept,
        last: Option<Stamp>,
        mark: Option<&Mark>,
    ) -> Result<Option<Stamp>, Forked> {
        if self.state != State::Asked {
            return Ok(None);
        }
        let mark = mark.copied().unwrap_or_default();
        let mut next = None;
        // The archive's first: where the log is forked, they tell how far the spool is not.
        let cut = self.stated(kept, &mark)?;
        for stamp in [last, cut].into_iter().flatten() {
            let at = self.compare(kept, &stamp)?.map(Position::next);
            next = if order(kept, at) > order(kept, next) { at } else { next };
        }
        self.state = State::Sending { next, flight: VecDeque::new() };
        self.go_back(kept, mark.missing.map(|missing| missing.at));
        Ok(cut)
    }

    /// Returns the next batch to send, which is then on its way.
    pub fn next(&mut self, kept: &impl Kept) -> Option<Position> {
        let State::Sending { next, flight } = &mut self.state else { return None };
        let position = kept.first(*next).filter(|_| flight.len() < self.window)?;
        flight.push_back(position);
        *next = Some(position.next());
        Some(position)
    }

    /// Takes the log's acknowledgement of a batch.
    pub fn accepted(&mut self, position: Position) {
        if let State::Sending { flight, .. } = &mut self.state {
            flight.retain(|other| *other != position);
        }
    }

    /// Takes the log's refusal of a batch. It and all that were sent after it are sent again: the log may
    /// have taken some of those, and the archive takes none before this one.
    pub fn refused(&mut self, position: Position) {
        if let State::Sending { flight, .. } = &self.state
            && flight.contains(&position)
        {
            self.state = State::Held { next: Some(position) };
        }
    }

    /// Sends again after a refusal.
    pub fn retry(&mut self) {
        if let State::Held { next } = self.state {
            self.state = State::Sending { next, flight: VecDeque::new() };
        }
    }

    /// Takes a mark of the archive. Returns up to where the spool may be cut.
    ///
    /// # Errors
    ///
    /// Returns an error if the spool was forked.
    pub fn archived(&mut self, kept: &impl Kept, mark: &Mark) -> Result<Option<Stamp>, Forked> {
        let cut = self.stated(kept, mark)?;
        self.go_back(kept, mark.missing.map(|missing| missing.at));
        Ok(cut)
    }

    /// Compares the spool with the statements of a mark. Returns the last position that is archived.
    fn stated(&mut self, kept: &impl Kept, mark: &Mark) -> Result<Option<Stamp>, Forked> {
        for stamp in [mark.archived, mark.restored].into_iter().flatten() {
            let at = self.compare(kept, &stamp)?;
            if order(kept, at) > order(kept, self.common.map(|common| common.position)) {
                let with_hash =
                    |position| Stamp { position, hash: kept.hash(position).unwrap_or(stamp.hash) };
                self.common = at.map(with_hash);
            }
        }
        Ok(self.common)
    }

    /// Sends again from a position that the archive misses.
    fn go_back(&mut self, kept: &impl Kept, missing: Option<Position>) {
        let (State::Sending { next, flight }, Some(missing)) = (&mut self.state, missing) else { return };
        if order(kept, Some(missing)) < order(kept, *next) {
            *next = kept.order(missing).map(|_| missing);
            flight.clear();
        }
    }

    /// Returns the position in the spool that is known to be elsewhere by a statement of others.
    fn compare(&mut self, kept: &impl Kept, stamp: &Stamp) -> Result<Option<Position>, Forked> {
        let range = kept.ranges().iter().find(|range| range.epoch == stamp.position.epoch);
        match (kept.place(stamp), range) {
            (Place::Common, _) => Ok(Some(stamp.position)),
            (Place::Longer, Some(range)) => Ok(Some(Position { sequence: range.last, ..stamp.position })),
            (Place::Forked, Some(range)) => {
                let common = self.common.filter(|common| common.position.epoch == range.epoch);
                let sequence = common.map_or(0, |common| common.position.sequence).max(range.floor - 1);
                self.state = State::Asked;
                Err(Forked { common: Position { sequence, ..stamp.position } })
            }
            (Place::Foreign, _) | (_, None) => Ok(None),
        }
    }
}

/// Returns the order of a position in the spool. No position comes before all others.
fn order(kept: &impl Kept, position: Option<Position>) -> Option<(usize, u64)> {
    kept.order(position?)
}
