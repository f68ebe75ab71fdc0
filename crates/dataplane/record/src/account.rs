//! The account of each module at the end of a run: `offered = processed + filtered + sampled + shed`.

use crate::escape;
use crate::grid::{Form, Head, render};
use crate::human::grouped;
use flame_plan::{Account, Audience, QueueAccount, Shed, ShownTotals, Unsent};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Writes one object in one line: the packets that the source delivered, or that were shown to a holder, the
/// packets that the kernel had dropped before (null where no kernel was asked), and the account of each
/// module by its name in the plan.
///
/// ```text
/// {"kernel_drops":0,"modules":{"flow":{"offered":9,…}},"packets":9}
/// ```
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn json(mut out: impl Write, totals: &ShownTotals) -> io::Result<()> {
    let modules: Map<String, Value> =
        totals.accounts().iter().map(|(name, a)| (name.clone(), object(a))).collect();
    let (packets, kernel_drops) = (totals.packets(), totals.kernel_drops());
    let all = json!({ "packets": packets, "kernel_drops": kernel_drops, "modules": modules });
    writeln!(out, "{}", escape::json(&all.to_string()))
}

/// Returns an account as JSON. `cut` counts packets whose payload was not shown because it contains a packet;
/// they are among the others. Counts are packets, except `records`, `records_lost`, `messages_lost`,
/// `logged`, `logs_dropped`, `sent` and `unsent`, which are frames of channels, `calls`, `calls_lost`,
/// `replies` and `replies_lost`, which are of services, and `faults`. `queues` is there for a module with
/// event queues.
pub fn object(account: &Account) -> Value {
    let shed: Map<String, Value> =
        Shed::ALL.into_iter().map(|cause| (cause.name().to_owned(), account.shed_by(cause).into())).collect();
    let unsent: Map<String, Value> = Unsent::ALL
        .into_iter()
        .map(|cause| (cause.name().to_owned(), account.unsent_by(cause).into()))
        .collect();
    let mut object = json!({
        "offered": account.offered,
        "processed": account.processed,
        "filtered": account.filtered,
        "sampled": account.sampled,
        "shed": shed,
        "cut": account.cut,
        "records": account.records,
        "records_lost": account.records_lost,
        "messages_lost": account.messages_lost,
        "withheld": account.withheld,
        "written": account.written,
        "logged": account.logged,
        "logs_dropped": account.logs_dropped,
        "sent": account.sent,
        "unsent": unsent,
        "calls": account.calls,
        "calls_lost": account.calls_lost,
        "replies": account.replies,
        "replies_lost": account.replies_lost,
        "faults": account.faults,
        "adds_up": account.adds_up(),
    });
    if !account.queues.is_empty() {
        let queue = |queue: &QueueAccount| {
            let QueueAccount { name, packets, processed, overrun } = queue;
            json!({ "name": name, "packets": packets, "processed": processed, "overrun": overrun })
        };
        object["queues"] = account.queues.iter().map(queue).collect();
    }
    object
}

/// Writes the accounts as a table for people that fits a width, if one is given. Causes under which no packet
/// was shed have no column.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn table(mut out: impl Write, totals: &ShownTotals, width: Option<u16>) -> io::Result<()> {
    let packets = grouped(totals.packets());
    let drops = |up_to| {
        let drops =
            totals.kernel_drops().map(|drops| format!(", {up_to}{} dropped by the kernel", grouped(drops)));
        drops.unwrap_or_default()
    };
    let accounts = totals.accounts();
    match totals.audience() {
        Audience::Operator => writeln!(out, "{packets} packets read{}", drops(""))?,
        Audience::Holder => writeln!(out, "{packets} packets shown{}", drops("up to "))?,
    }
    if accounts.is_empty() {
        return Ok(());
    }
    let causes: Vec<Shed> =
        Shed::ALL.into_iter().filter(|c| accounts.iter().any(|(_, a)| a.shed_by(*c) > 0)).collect();
    let sum = |of: fn(&Account) -> u64| accounts.iter().any(|(_, a)| of(a) > 0);
    let heads = |name: &str, is_right| Head {
        name: name.into(),
        unit: String::new(),
        is_right,
        wraps: false,
        rank: 0,
    };
    type Of = Box<dyn Fn(&Account) -> u64>;
    let mut columns: Vec<(String, Of)> = vec![
        ("offered".into(), Box::new(|a| a.offered)),
        ("= processed".into(), Box::new(|a| a.processed)),
        ("+ filtered".into(), Box::new(|a| a.filtered)),
    ];
    if sum(|a| a.sampled) {
        columns.push(("+ sampled".into(), Box::new(|a| a.sampled)));
    }
    if causes.is_empty() {
        columns.push(("+ shed".into(), Box::new(|_| 0)));
    }
    for cause in causes {
        columns.push((format!("+ shed: {}", cause.name()), Box::new(move |a| a.shed_by(cause))));
    }
    columns.push(("records".into(), Box::new(|a| a.records)));
    type Field = fn(&Account) -> u64;
    if sum(|a| a.sent) {
        columns.push(("sent".into(), Box::new(|a| a.sent)));
    }
    for cause in Unsent::ALL.into_iter().filter(|c| accounts.iter().any(|(_, a)| a.unsent_by(*c) > 0)) {
        columns.push((format!("not sent: {}", cause.name()), Box::new(move |a| a.unsent_by(cause))));
    }
    let others: [(&str, Field); 9] = [
        ("calls", |a| a.calls),
        ("calls lost", |a| a.calls_lost),
        ("replies", |a| a.replies),
        ("replies lost", |a| a.replies_lost),
        ("records lost", |a| a.records_lost),
        ("messages lost", |a| a.messages_lost),
        ("withheld", |a| a.withheld),
        ("logs dropped", |a| a.logs_dropped),
        ("faults", |a| a.faults),
    ];
    for (name, of) in others.into_iter().filter(|(_, of)| sum(*of)) {
        columns.push((name.into(), Box::new(of)));
    }
    let mut all = vec![heads("module", false)];
    all.extend(columns.iter().map(|(name, _)| heads(name, true)));
    let row = |(module, account): &(String, Account)| {
        let numbers = columns.iter().map(|(_, of)| grouped(of(account)));
        std::iter::once(escape::line(module).into_owned()).chain(numbers).collect::<Vec<_>>()
    };
    let rows: Vec<_> = accounts.iter().map(row).collect();
    write!(out, "{}", render(&all, &rows, (width, Form::Auto), None).0)?;
    for (module, account) in accounts {
        for QueueAccount { name, packets, processed, overrun } in &account.queues {
            let [packets, processed, overrun] = [packets, processed, overrun].map(|n| grouped(*n));
            let (module, name) = (escape::line(module), escape::line(name));
            writeln!(
                out,
                "{module}, queue {name}: {packets} packets, {processed} processed, {overrun} lost as overrun"
            )?;
        }
    }
    for (module, account) in accounts.iter().filter(|(_, a)| a.cut > 0) {
        let (cut, module) = (grouped(account.cut), escape::line(module));
        writeln!(
            out,
            "{module}: payload of {cut} packets was not shown: it contains a packet that no transform would \
             change"
        )?;
    }
    for (module, _) in accounts.iter().filter(|(_, a)| !a.adds_up()) {
        writeln!(out, "{module}: the account does not add up (a bug: please report it)")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flame_plan::RunTotals;

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

    fn text(accounts: &[(&str, Account)]) -> String {
        let accounts: Vec<_> = accounts.iter().map(|(n, a)| (n.to_string(), a.clone())).collect();
        let mut out = Vec::new();
        let totals = RunTotals { packets: 12_345, kernel_drops: Some(0), accounts };
        table(&mut out, &totals.shown_to(Audience::Operator), None).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_names_every_cause() {
        let mut line = Vec::new();
        let accounts = vec![("flow".to_owned(), account())];
        let totals = RunTotals { packets: 12_345, kernel_drops: Some(2), accounts };
        json(&mut line, &totals.shown_to(Audience::Operator)).unwrap();
        let value: Value = serde_json::from_slice(&line).unwrap();
        let expected = json!({"packets": 12345, "kernel_drops": 2, "modules": {"flow": {
            "offered": 12345, "processed": 12000, "filtered": 300, "sampled": 0,
            "shed": {"trap": 40, "budget": 0, "bound": 0, "output": 0, "stopped": 5, "overrun": 0, "share": 0, "evicted": 0, "overload": 0},
            "cut": 0, "records": 7, "records_lost": 0, "messages_lost": 0, "withheld": 0, "written": 0, "logged": 0, "logs_dropped": 0,
            "sent": 0, "unsent": {"link": 0, "filter": 0, "rate": 0, "queue": 0, "interface": 0},
            "calls": 0, "calls_lost": 0, "replies": 0, "replies_lost": 0, "faults": 1, "adds_up": true,
        }}});
        assert_eq!(value, expected);
    }

    #[test]
    fn the_table_shows_what_moved() {
        let plain = text(&[("count", simple(1, 1))]);
        assert!(plain.contains("+ shed ") && !plain.contains("trap") && !plain.contains("faults"), "{plain}");
        let both = text(&[("count", Account::default()), ("flow", account())]);
        for part in ["12,345", "+ shed: trap", "+ shed: stopped", "faults"] {
            assert!(both.contains(part), "{part}\n{both}");
        }
        assert!(!both.contains("budget") && !both.contains("records lost"), "{both}");
    }

    #[test]
    fn payload_that_was_not_shown_has_a_line() {
        let mut cut = simple(1200, 1200);
        assert!(!text(&[("flow", cut.clone())]).contains("payload"));
        cut.cut = 1100;
        let table = text(&[("flow", cut)]);
        assert!(table.contains("\nflow: payload of 1,100 packets was not shown: it contains"), "{table}");
    }

    #[test]
    fn packets_that_sampling_left_out_have_a_column() {
        let mut sampled = simple(10, 4);
        sampled.sampled = 6;
        let table = text(&[("flow", sampled.clone())]);
        assert!(table.contains("+ sampled") && !table.contains("does not add up"), "{table}");
        let totals =
            RunTotals { packets: 10, kernel_drops: Some(3), accounts: vec![("flow".to_owned(), sampled)] };
        let mut hidden = Vec::new();
        super::table(&mut hidden, &totals.shown_to(Audience::Holder), None).unwrap();
        let hidden = String::from_utf8(hidden).unwrap();
        assert!(hidden.starts_with("4 packets shown, up to 4 dropped by the kernel\n"), "{hidden}");
        assert!(!hidden.contains("sampled") && !hidden.contains("10"), "{hidden}");
    }

    #[test]
    fn a_sum_that_is_wrong_is_said() {
        let wrong = simple(2, 1);
        assert!(text(&[("flow", wrong)]).contains("flow: the account does not add up"));
    }
}
