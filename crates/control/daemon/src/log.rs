//! The log of a module: changes and faults, and apart from them its texts, which cannot displace the others.

use flame_api::{LogKind, LogLine};
use flame_plan::FaultReport;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    lines: VecDeque<(u64, LogLine)>,
    texts: VecDeque<(u64, LogLine)>,
    /// The faults since the last install or update.
    faults: Vec<String>,
}

impl Inner {
    fn add(&mut self, kind: LogKind, text: &str) {
        self.count += 1;
        let count = self.count;
        let to = match kind {
            LogKind::Text => &mut self.texts,
            LogKind::Change | LogKind::Fault => &mut self.lines,
        };
        if to.len() == LINES {
            to.pop_front();
        }
        let text = text.chars().take(LONGEST).collect();
        to.push_back((count, LogLine { time: flame_trust::time::now(), kind, text }));
    }
}

impl Log {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn change(&self, text: &str) {
        self.inner().add(LogKind::Change, text);
    }

    pub fn text(&self, text: &str) {
        self.inner().add(LogKind::Text, text);
    }

    /// Records the end of an instance by a fault.
    pub fn fault(&self, report: &FaultReport) {
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
        inner.add(LogKind::Fault, &text);
        if inner.faults.len() < AUDITED {
            inner.faults.push(text);
        }
    }

    /// Returns the first faults since the last call of this function.
    pub fn take_faults(&self) -> Vec<String> {
        std::mem::take(&mut self.inner().faults)
    }

    /// Returns all lines, in order.
    pub fn lines(&self) -> Vec<LogLine> {
        let inner = self.inner();
        let mut all: Vec<_> = inner.lines.iter().chain(&inner.texts).cloned().collect();
        all.sort_by_key(|(count, _)| *count);
        all.into_iter().map(|(_, line)| line).collect()
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
            log.text(&format!("text {n}"));
            if n == 5 {
                log.fault(&fault);
                log.fault(&FaultReport { worker: None, packet: None, restarted: false, ..fault.clone() });
            }
        }
        log.text(&"x".repeat(2 * LONGEST));
        let lines = log.lines();
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
