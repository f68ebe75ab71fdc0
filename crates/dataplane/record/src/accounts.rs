//! The account of each module at the end of a run: `offered = processed + filtered + shed`.

use crate::people::{GRID, grouped};
use comfy_table::{Cell, CellAlignment, Table};
use flame_plan::{Account, Shed};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountForm {
    /// One table of all modules.
    Table,
    /// One object a line: `{"module":"flow","account":{…}}`, apart from records by its keys.
    Json,
}

/// Writes the accounts of the modules, named as in the plan.
pub fn write_accounts<'a>(
    mut out: impl Write,
    form: AccountForm,
    accounts: impl IntoIterator<Item = (&'a str, &'a Account)>,
) -> io::Result<()> {
    match form {
        AccountForm::Json => accounts.into_iter().try_for_each(|(module, account)| {
            writeln!(out, "{}", json!({ "module": module, "account": account_json(account) }))
        }),
        AccountForm::Table => write_table(out, &accounts.into_iter().collect::<Vec<_>>()),
    }
}

/// Counts are packets, but for `records`, `records_lost` and `faults`.
pub fn account_json(account: &Account) -> Value {
    let shed: Map<String, Value> =
        Shed::ALL.into_iter().map(|cause| (cause.name().to_owned(), account.shed_by(cause).into())).collect();
    json!({
        "offered": account.offered,
        "processed": account.processed,
        "filtered": account.filtered,
        "shed": shed,
        "records": account.records,
        "records_lost": account.records_lost,
        "faults": account.faults,
        "adds_up": account.adds_up(),
    })
}

/// Causes that shed nothing anywhere have no column.
fn write_table(mut out: impl Write, accounts: &[(&str, &Account)]) -> io::Result<()> {
    let causes: Vec<Shed> =
        Shed::ALL.into_iter().filter(|c| accounts.iter().any(|(_, a)| a.shed_by(*c) > 0)).collect();
    let sum = |of: fn(&Account) -> u64| accounts.iter().any(|(_, a)| of(a) > 0);
    let (lost, faults) = (sum(|a| a.records_lost), sum(|a| a.faults));

    let mut header = vec!["module".to_owned(), "offered".into(), "= processed".into(), "+ filtered".into()];
    match causes.is_empty() {
        true => header.push("+ shed".into()),
        false => header.extend(causes.iter().map(|c| format!("+ shed: {}", c.name()))),
    }
    header.push("records".into());
    header.extend(lost.then(|| "records lost".into()));
    header.extend(faults.then(|| "faults".into()));

    let number = |n: u64| Cell::new(grouped(n)).set_alignment(CellAlignment::Right);
    let mut table = Table::new();
    table.load_style(GRID);
    table.set_header(header.iter().enumerate().map(|(i, h)| {
        Cell::new(h).set_alignment(if i == 0 { CellAlignment::Left } else { CellAlignment::Right })
    }));
    for (module, a) in accounts {
        let mut row = vec![Cell::new(module), number(a.offered), number(a.processed), number(a.filtered)];
        match causes.is_empty() {
            true => row.push(number(0)),
            false => row.extend(causes.iter().map(|c| number(a.shed_by(*c)))),
        }
        row.push(number(a.records));
        row.extend(lost.then(|| number(a.records_lost)));
        row.extend(faults.then(|| number(a.faults)));
        table.add_row(row);
    }
    writeln!(out, "{}", table.trim_fmt())?;
    for (module, _) in accounts.iter().filter(|(_, a)| !a.adds_up()) {
        writeln!(out, "{module}: the account does not add up (a bug: please report it)")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simple(offered: u64, processed: u64) -> Account {
        let mut a = Account::default();
        (a.offered, a.processed) = (offered, processed);
        a
    }

    fn account() -> Account {
        let mut a = simple(12_345, 12_000);
        a.filtered = 300;
        a.shed(Shed::Trap, 40);
        a.shed(Shed::Stopped, 5);
        (a.records, a.faults) = (7, 1);
        a
    }

    fn text(form: AccountForm, accounts: &[(&str, &Account)]) -> String {
        let mut out = Vec::new();
        write_accounts(&mut out, form, accounts.iter().copied()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_names_every_cause() {
        let line = text(AccountForm::Json, &[("flow", &account())]);
        let value: Value = serde_json::from_str(&line).unwrap();
        let expected = json!({"module": "flow", "account": {
            "offered": 12345, "processed": 12000, "filtered": 300,
            "shed": {"trap": 40, "budget": 0, "output": 0, "stopped": 5, "behind": 0},
            "records": 7, "records_lost": 0, "faults": 1, "adds_up": true,
        }});
        assert_eq!(value, expected);
    }

    #[test]
    fn the_table_shows_what_moved() {
        let plain = text(AccountForm::Table, &[("count", &simple(1, 1))]);
        assert!(plain.contains("+ shed ") && !plain.contains("trap") && !plain.contains("faults"), "{plain}");
        let both = text(AccountForm::Table, &[("count", &Account::default()), ("flow", &account())]);
        for part in ["12,345", "+ shed: trap", "+ shed: stopped", "faults"] {
            assert!(both.contains(part), "{part}\n{both}");
        }
        assert!(!both.contains("budget") && !both.contains("records lost"), "{both}");
    }

    #[test]
    fn a_sum_that_is_wrong_is_said() {
        let wrong = simple(2, 1);
        assert!(text(AccountForm::Table, &[("flow", &wrong)]).contains("flow: the account does not add up"));
    }
}
