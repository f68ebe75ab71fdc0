//! Answers of a node in columns.

use super::AnswerArgs;
use crate::console::{say, say_json};
use flame_api::Module;

/// Prints modules, one in a line.
pub fn print_modules(modules: &[Module], answer: AnswerArgs) {
    if answer.is_json() {
        for module in modules {
            say_json!(module);
        }
        return;
    }
    let head = ["MODULE", "PRINCIPAL", "SOURCE", "STATE", "PLACE", "PACKETS", "SHED", "RECORDS", "REVISION"];
    let mut rows = vec![head.map(str::to_owned)];
    for m in modules {
        rows.push([
            m.name.clone(),
            m.principal.clone().unwrap_or_else(|| "operator".to_owned()),
            m.source.clone(),
            m.state.name().to_owned(),
            m.place.clone().unwrap_or_else(|| "-".to_owned()),
            m.account.offered.to_string(),
            m.account.shed.values().sum::<u64>().to_string(),
            m.account.records.to_string(),
            m.revision.to_string(),
        ]);
    }
    table(&rows);
    for m in modules {
        if let Some(reason) = m.reason.as_ref().filter(|_| m.state != flame_api::State::Running) {
            say!("{}: {reason}", m.name);
        }
    }
}

/// Prints rows in columns.
pub fn table<const N: usize>(rows: &[[String; N]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in rows {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        say!("{}", cells.join("  ").trim_end());
    }
}
