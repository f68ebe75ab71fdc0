//! The outcome of a run: what was lost, damaged or faulty, in lines on standard error and as an exit status.

use crate::console::complain;
use crate::exit::Status;
use flame_record::human::grouped;
use flame_source::DamageKind;
use flame_worker::{NotDue, Report, ShownReport};
use std::collections::BTreeMap;

/// Returns the exit status of a run whose source did not fail.
pub fn status(report: &Report) -> Status {
    if !report.faults.is_empty() {
        Status::Faulted
    } else if !report.lost.is_empty() {
        Status::Lost
    } else if report.damage.iter().any(|damage| damage.kind.is_fault()) {
        Status::Damaged
    } else {
        Status::Done
    }
}

/// Prints files that could not be read in full, faults of modules and losses. `-q` does not hide them.
pub fn print(report: &ShownReport) {
    for (kind, text) in &report.damage {
        let word = if *kind == DamageKind::Remark { "note" } else { "warning" };
        complain!("flame: {word}: {text}");
    }
    let unread: Vec<_> = report.damage.iter().filter(|(kind, _)| *kind != DamageKind::Remark).collect();
    if unread.len() > 1 {
        complain!("flame: warning: {}", summary(&unread));
    }
    for f in &report.faults {
        let packet = f.packet.map_or(String::new(), |p| format!(", packet {p}"));
        let place = match f.worker {
            Some(worker) => format!(" (worker {worker}{packet})"),
            // All its instances have ended.
            None if f.process => String::new(),
            None => format!(" (slow path{packet})"),
        };
        let then = if f.restarted { "started anew" } else { "stopped" };
        complain!("flame: module {} {then}{place}: {}", f.module, f.text);
    }
    for lost in &report.lost {
        let place = match &lost.table {
            Some(table) => format!("{}.{table}", lost.module),
            None => format!("module {}", lost.module),
        };
        let (number, noun) = (grouped(lost.rows), lost.reason.noun());
        complain!("flame: {place}: {number} {noun} lost: {}", lost.reason.explain());
    }
}

/// Prints the modules of which something is not due, because the run ended within an interval.
pub fn print_undue(report: &ShownReport) {
    for NotDue { module, since_ns } in &report.undue {
        match since_ns {
            None => complain!(
                "flame: note: {module}: nothing is due yet: its view shows whole intervals only, and none has \
                 begun and ended in this run"
            ),
            Some(since_ns) => complain!(
                "flame: note: {module}: nothing is due of the interval since {}, in which the run has ended",
                flame_trust::time::show(since_ns / 1_000_000_000)
            ),
        }
    }
}

/// Returns the numbers of files by kind.
fn summary(damage: &[&(DamageKind, String)]) -> String {
    let mut kinds: BTreeMap<DamageKind, usize> = BTreeMap::new();
    damage.iter().for_each(|(kind, _)| *kinds.entry(*kind).or_default() += 1);
    let empty: usize =
        [DamageKind::Empty, DamageKind::NoPackets].iter().filter_map(|k| kinds.remove(k)).sum();
    let mut parts: Vec<_> = kinds.iter().map(|(kind, n)| format!("{n} {}", kind.name())).collect();
    if empty > 0 {
        parts.push(format!("{empty} empty"));
    }
    format!("{} files were not read in full: {}", damage.len(), parts.join(", "))
}
