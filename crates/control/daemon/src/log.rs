//! The log of a module: changes and faults, and apart from them its texts, which cannot displace the others.
//!
//! Lines that packets cause reach the holder of a grant at its ticks, with the times of these. The operator
//! has them as they come. Lines that were made under rights are for sessions that have these.

use crate::reach::{EARLIER, Reach};
use flame_api::{LogKind, LogLine};
use flame_base::lock;
use flame_plan::{Audience, FaultReport};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// The number of changes and faults of a module that are kept, and again of its texts.
const LINES: usize = 200;
/// The maximum number of characters of a line.
const LONGEST: usize = 4096;
/// The number of faults of one instance that the audit log receives at its end.
const AUDITED: usize = 16;

#[derive(Default)]
pub struct Log(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// The number of lines so far, which orders those of one second.
    count: u64,
    kept: Lines,
    /// The lines that packets caused since the last tick.
    waiting: Lines,
    /// The faults since the last install or update.
    faults: Vec<String>,
}

/// A line with its number, and the time that it has for the holder of a grant.
#[derive(Clone)]
struct Line {
    number: u64,
    line: LogLine,
    released: u64,
    /// The rights under which it was made, or `None` if it states nothing of packets.
    made: Option<Arc<Reach>>,
}

/// The last lines of each kind.
#[derive(Default)]
struct Lines {
    changes: VecDeque<Line>,
    texts: VecDeque<Line>,
}

impl Lines {
    fn push(&mut self, line: Line) {
        let to = match line.line.kind {
            LogKind::Text => &mut self.texts,
            LogKind::Change | LogKind::Fault => &mut self.changes,
        };
        if to.len() == LINES {
            to.pop_front();
        }
        to.push_back(line);
    }

    fn iter(&self) -> impl Iterator<Item = &Line> {
        self.changes.iter().chain(&self.texts)
    }
}

impl Inner {
    fn line(&mut self, kind: LogKind, text: &str, made: Option<&Arc<Reach>>) -> Line {
        self.count += 1;
        let (time, text) = (flame_trust::time::now(), text.chars().take(LONGEST).collect());
        Line { number: self.count, line: LogLine { time, kind, text }, released: time, made: made.cloned() }
    }

    fn wait(&mut self, kind: LogKind, text: &str, made: Option<&Arc<Reach>>) {
        let line = self.line(kind, text, made);
        self.waiting.push(line);
    }
}

impl Log {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.0)
    }

    /// Records a change that no packet caused.
    pub fn change(&self, text: &str) {
        self.change_of(text, None);
    }

    /// Records a change whose text states something of packets that a module had under these rights.
    pub fn change_of(&self, text: &str, made: Option<&Arc<Reach>>) {
        let mut inner = self.inner();
        let line = inner.line(LogKind::Change, text, made);
        inner.kept.push(line);
    }

    /// Records a change that packets caused.
    pub fn caused(&self, text: &str, made: Option<&Arc<Reach>>) {
        self.inner().wait(LogKind::Change, text, made);
    }

    /// Records a text of the module.
    pub fn text(&self, text: &str, made: Option<&Arc<Reach>>) {
        self.inner().wait(LogKind::Text, text, made);
    }

    /// Lets the holder of the grant have all lines so far, with the present time.
    pub fn release(&self) {
        let released = flame_trust::time::now();
        let mut inner = self.inner();
        let waiting = std::mem::take(&mut inner.waiting);
        waiting.iter().for_each(|line| inner.kept.push(Line { released, ..line.clone() }));
    }

    /// Records the end of an instance by a fault.
    pub fn fault(&self, report: &FaultReport, made: Option<&Arc<Reach>>) {
        let place = match (report.worker, report.packet) {
            _ if report.process => "process".to_owned(),
            (Some(worker), Some(packet)) => format!("worker {worker}, packet {packet}"),
            (Some(worker), None) => format!("worker {worker}"),
            (None, _) => "slow instance".to_owned(),
        };
        let after = match (report.restarted, report.worker) {
            _ if report.process => "it receives no more packets until another process is started",
            (true, _) => "a new, empty instance was started",
            (false, Some(_)) => "no instance was started: it receives no more packets on this worker",
            (false, None) => "no instance was started: its messages are lost",
        };
        let text = format!("fault ({place}): {}; {after}", report.text.trim_end());
        let mut inner = self.inner();
        inner.wait(LogKind::Fault, &text, made);
        if inner.faults.len() < AUDITED {
            inner.faults.push(text);
        }
    }

    /// Returns the first faults since the last call of this function.
    pub fn take_faults(&self) -> Vec<String> {
        std::mem::take(&mut self.inner().faults)
    }

    /// Returns all lines that `audience` has, in order. `covers` decides on the rights under which lines were
    /// made. Of many different ones, the oldest are taken for not covered.
    pub fn lines(&self, audience: Audience, covers: impl Fn(&Reach) -> bool) -> Vec<LogLine> {
        let mut all: Vec<Line> = {
            let inner = self.inner();
            let waiting = inner.waiting.iter().filter(|_| audience.is_operator());
            inner.kept.iter().chain(waiting).cloned().collect()
        };
        all.sort_by_key(|line| line.number);
        let mut decided: Vec<(Arc<Reach>, bool)> = Vec::new();
        let mut is_shown = |line: &Line| {
            let Some(made) = line.made.as_ref().filter(|_| !audience.is_operator()) else { return true };
            match decided.iter().find(|(of, _)| Arc::ptr_eq(of, made) || of.is_like(made)) {
                Some((_, is_covered)) => *is_covered,
                None => {
                    let is_covered = decided.len() <= EARLIER && covers(made);
                    decided.push((made.clone(), is_covered));
                    is_covered
                }
            }
        };
        // The latest ones are decided on first.
        let mut shown: Vec<_> = all.into_iter().rev().filter(|line| is_shown(line)).collect();
        shown.reverse();
        let of = |Line { line, released, .. }: Line| match audience {
            Audience::Operator => line,
            Audience::Holder => LogLine { time: released, ..line },
        };
        shown.into_iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_plan::ModuleId;

    #[test]
    fn texts_displace_no_fault_and_lines_are_in_order() {
        let log = Log::default();
        log.change("installed");
        let fault = FaultReport {
            id: ModuleId(1),
            module: "m#1".to_owned(),
            worker: Some(2),
            packet: Some(17),
            text: "batch: trap: unreachable".to_owned(),
            class: None,
            evicted: None,
            restarted: true,
            process: false,
        };
        for n in 0..3 * LINES {
            log.text(&format!("text {n}"), None);
            if n == 5 {
                log.fault(&fault, None);
                log.fault(
                    &FaultReport { worker: None, packet: None, restarted: false, ..fault.clone() },
                    None,
                );
            }
        }
        log.text(&"x".repeat(2 * LONGEST), None);
        let of = |audience| log.lines(audience, |_| false);
        assert_eq!(of(Audience::Holder).len(), 1, "no tick has come");
        log.release();
        let lines = of(Audience::Holder);
        assert_eq!(lines, of(Audience::Operator));
        assert_eq!(lines.len(), 3 + LINES);
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(
            texts[1],
            "fault (worker 2, packet 17): batch: trap: unreachable; a new, empty instance was started"
        );
        assert!(texts[2].starts_with("fault (slow instance)"), "{}", texts[2]);
        assert_eq!((texts[3], texts.last().unwrap().len()), ("text 401", LONGEST));
        assert_eq!((log.take_faults().len(), log.take_faults().len()), (2, 0));
    }
}
