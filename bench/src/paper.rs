//! `make paper`: one report in which each figure and table of the papers stands beside ours, as Markdown and
//! as HTML without outside resources.

use crate::experiments::finding::{Finding, From, ITEMS, Item, PAPERS, Verdict};
use crate::experiments::{Outcome, Setting};
use crate::fixture::Error;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// A row of the report.
struct Row {
    item: &'static Item,
    finding: Finding,
    /// The command that repeats it, and the load of the machine as it began.
    how: String,
}

/// Returns the rows of an item: the findings of its experiment, or the reason why there are none.
fn rows_of(item: &'static Item, outcomes: &[Outcome]) -> Vec<Row> {
    let nothing = |cause: &str, how: String| {
        let finding = Finding::missing(item.id, item.title, "", cause.to_owned());
        vec![Row { item, finding, how }]
    };
    let name = match item.from {
        From::Nothing(cause) => return nothing(cause, String::new()),
        From::Experiment(name) => name,
    };
    let how = format!("make experiments ONLY={name}");
    let Some(outcome) = outcomes.iter().find(|outcome| outcome.name == name) else {
        return nothing("its experiment was not run", how);
    };
    let how = format!("{how} ({:.0} s, load {})", outcome.seconds, outcome.load);
    match &outcome.findings {
        Err(reason) => nothing(reason, how),
        Ok(all) => {
            let of = all.iter().filter(|finding| finding.item == item.id).cloned();
            let rows: Vec<_> = of.map(|finding| Row { item, finding, how: how.clone() }).collect();
            if rows.is_empty() { nothing("its experiment found nothing about it", how) } else { rows }
        }
    }
}

fn first_line(of: &mut Command) -> String {
    let out = of.output().map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    out.lines().next().unwrap_or("unknown").to_owned()
}

/// Returns the conditions of the measurements.
fn conditions(setting: &Setting<'_>) -> Vec<(&'static str, String)> {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, m)| m));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    vec![
        ("date", first_line(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))),
        ("program", first_line(Command::new(setting.flame).arg("--version"))),
        ("processor", format!("{}, {cores} cores", model.unwrap_or("unknown"))),
        ("kernel", first_line(Command::new("uname").arg("-r"))),
        ("mode", if setting.quick { "quick: times mean nothing".to_owned() } else { "whole".to_owned() }),
    ]
}

/// Writes `paper.md` and `paper.html`.
pub fn write(setting: &Setting<'_>, outcomes: &[Outcome]) -> Result<(), Error> {
    let rows: Vec<Row> = ITEMS.iter().flat_map(|item| rows_of(item, outcomes)).collect();
    // A finding without an item would be lost.
    let known = |finding: &Finding| ITEMS.iter().any(|item| item.id == finding.item);
    if let Some(lost) =
        outcomes.iter().flat_map(|o| o.findings.iter().flatten()).find(|finding| !known(finding))
    {
        return Err(format!("{}: no such figure or table", lost.item).into());
    }
    let conditions = conditions(setting);
    std::fs::write(setting.folder.join("paper.md"), markdown(&rows, &conditions)?)?;
    std::fs::write(setting.folder.join("paper.html"), html(&rows, &conditions, &pictures(setting.folder)?)?)?;
    let counts = summary(&rows).map(|(name, count)| format!("{count} {name}")).join(", ");
    println!("{counts}: {}", setting.folder.join("paper.html").display());
    Ok(())
}

/// Returns the number of rows with each verdict.
fn summary(rows: &[Row]) -> [(&'static str, usize); 5] {
    let count = |is: fn(&Verdict) -> bool| rows.iter().filter(|row| is(&row.finding.verdict)).count();
    [
        ("reproduced", count(|v| *v == Verdict::Reproduced)),
        ("better", count(|v| *v == Verdict::Better)),
        ("worse", count(|v| *v == Verdict::Worse)),
        ("differ", count(|v| matches!(v, Verdict::Differs(_)))),
        ("missing", count(|v| matches!(v, Verdict::Missing(_)))),
    ]
}

const HEADS: [&str; 6] = ["figure", "what", "theirs", "ours", "verdict", "repeat with"];

fn cells(row: &Row) -> [String; 6] {
    let finding = &row.finding;
    let number = row.item.id.split_once(' ').map_or(row.item.id, |(_, number)| number);
    let texts = [number, &finding.what, &finding.theirs, &finding.ours].map(str::to_owned);
    let [number, what, theirs, ours] = texts;
    [number, what, theirs, ours, finding.verdict.to_string(), row.how.clone()]
}

fn markdown(rows: &[Row], conditions: &[(&str, String)]) -> Result<String, std::fmt::Error> {
    let mut out = "# The papers beside FLAME\n\n".to_owned();
    conditions.iter().try_for_each(|(name, value)| writeln!(out, "- {name}: {value}"))?;
    summary(rows).iter().try_for_each(|(name, count)| writeln!(out, "- {name}: {count}"))?;
    for (first, title) in PAPERS {
        write!(out, "\n## {title}\n\n| {} |\n|{}\n", HEADS.join(" | "), " --- |".repeat(HEADS.len()))?;
        for row in rows.iter().filter(|row| row.item.id.starts_with(first)) {
            writeln!(
                out,
                "| {} |",
                cells(row).map(|cell| cell.replace('|', "\\|").replace('\n', " ")).join(" | ")
            )?;
        }
    }
    Ok(out)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns the plots of a folder by name.
fn pictures(folder: &Path) -> Result<Vec<(String, String)>, Error> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "svg") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            all.push((name, std::fs::read_to_string(&path)?));
        }
    }
    all.sort();
    Ok(all)
}

const STYLE: &str = "body{font:15px/1.4 sans-serif;max-width:75em;margin:2em auto;padding:0 1em}\
    table{border-collapse:collapse;width:100%;margin-bottom:2em}\
    td,th{border-bottom:1px solid #ccc;text-align:left;vertical-align:top;padding:.3em .6em}\
    .better,.reproduced{color:#060}.worse{color:#a00}.missing,.differs{color:#666}\
    svg{max-width:100%;height:auto}";

fn html(
    rows: &[Row],
    conditions: &[(&str, String)],
    pictures: &[(String, String)],
) -> Result<String, std::fmt::Error> {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>The papers beside FLAME</title>\
         <style>{STYLE}</style><h1>The papers beside FLAME</h1>\n<table>"
    );
    for (name, value) in conditions {
        writeln!(out, "<tr><th>{name}<td>{}", escape(value))?;
    }
    for (name, count) in summary(rows) {
        writeln!(out, "<tr><th>{name}<td>{count}")?;
    }
    out.push_str("</table>\n");
    for (first, title) in PAPERS {
        writeln!(
            out,
            "<h2>{}</h2>\n<table><tr>{}",
            escape(title),
            HEADS.map(|h| format!("<th>{h}")).concat()
        )?;
        for row in rows.iter().filter(|row| row.item.id.starts_with(first)) {
            let class = match row.finding.verdict {
                Verdict::Reproduced => "reproduced",
                Verdict::Better => "better",
                Verdict::Worse => "worse",
                Verdict::Differs(_) => "differs",
                Verdict::Missing(_) => "missing",
            };
            writeln!(
                out,
                "<tr class=\"{class}\">{}",
                cells(row).map(|cell| format!("<td>{}", escape(&cell))).concat()
            )?;
        }
        out.push_str("</table>\n");
    }
    out.push_str("<h2>Plots</h2>\n");
    for (name, svg) in pictures {
        // Without the declaration of a file of its own.
        let svg = svg.find("<svg").map_or("", |at| &svg[at..]);
        writeln!(out, "<h3 id=\"{name}\">{name}</h3>\n{svg}")?;
    }
    Ok(out + "</html>\n")
}
