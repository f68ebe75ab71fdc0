//! The tables of a view: as texts, for terminals that are drawn repeatedly, and for others.

use super::rates::{ModuleRow, SessionRow, SourceRow, View};
use crate::client::table;
use crate::console::say;
use flame_record::escape;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table};

/// A table: its head and its rows.
struct Texts<const N: usize> {
    head: [&'static str; N],
    rows: Vec<[String; N]>,
}

/// Returns a number with at most three digits before its unit.
fn short(n: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.into_iter().find(|(size, _)| n >= *size) {
        Some((size, unit)) => format!("{:.1}{unit}", n / size),
        None if n < 10.0 && n > 0.0 => format!("{n:.1}"),
        None => format!("{n:.0}"),
    }
}

fn percent(part: f64) -> String {
    format!("{:.1}%", part * 100.0)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn sources(rows: &[SourceRow]) -> Texts<6> {
    let row = |s: &SourceRow| {
        [
            s.source.clone(),
            or_dash(s.packets_per_second.map(short)),
            or_dash(s.bits_per_second.map(short)),
            or_dash(s.kernel_drops_per_second.map(short)),
            or_dash(s.kernel_drops.map(|n| n.to_string())),
            s.state.clone(),
        ]
    };
    let head = ["SOURCE", "PACKETS/s", "BITS/s", "DROPS/s", "DROPS", "STATE"];
    Texts { head, rows: rows.iter().map(row).collect() }
}

fn sessions(rows: &[SessionRow]) -> Texts<8> {
    let row = |s: &SessionRow| {
        [
            s.session.clone(),
            s.modules.to_string(),
            short(s.packets_per_second),
            percent(s.cpu),
            percent(s.reserved),
            short(s.memory as f64),
            short(s.shed_per_second),
            s.faults.to_string(),
        ]
    };
    let head = ["SESSION", "MODULES", "PACKETS/s", "CPU", "RESERVED", "MEMORY", "SHED/s", "FAULTS"];
    Texts { head, rows: rows.iter().map(row).collect() }
}

fn modules(rows: &[ModuleRow]) -> Texts<12> {
    let row = |m: &ModuleRow| {
        let causes: Vec<String> =
            m.shed.iter().map(|(cause, n)| format!("{cause} {}", short(*n as f64))).collect();
        [
            m.module.clone(),
            m.session.clone(),
            m.source.clone(),
            m.state.clone(),
            short(m.packets_per_second),
            or_dash(m.packet_ns.map(short)),
            percent(m.cpu),
            or_dash(m.of_reserved.map(percent)),
            or_dash(m.blocks.map(|n| match m.reserved_blocks {
                0 => n.to_string(),
                reserved => format!("{n}/{reserved}"),
            })),
            or_dash(m.memory.map(|n| short(n as f64))),
            m.faults.to_string(),
            if causes.is_empty() { "-".to_owned() } else { causes.join(", ") },
        ]
    };
    let head = [
        "MODULE",
        "SESSION",
        "SOURCE",
        "STATE",
        "PACKETS/s",
        "ns/PACKET",
        "CPU",
        "OF RESERVED",
        "BLOCKS",
        "MEMORY",
        "FAULTS",
        "SHED",
    ];
    Texts { head, rows: rows.iter().map(row).collect() }
}

impl<const N: usize> Texts<N> {
    fn say(self) {
        let head = self.head.map(str::to_owned);
        table(&std::iter::once(head).chain(self.rows).collect::<Vec<_>>());
    }

    /// Returns the table for a terminal, and its height. Text from the node is escaped.
    fn widget(&self) -> (Table<'static>, u16) {
        let rows: Vec<[String; N]> =
            self.rows.iter().map(|row| row.each_ref().map(|cell| escape::line(cell).into_owned())).collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(self.head[column].len()) as u16
        };
        let widths: Vec<Constraint> = (0..N).map(|n| Constraint::Length(width(n))).collect();
        let height = rows.len() as u16 + 1;
        let head = Row::new(self.head).style(Style::new().add_modifier(Modifier::BOLD));
        (Table::new(rows.into_iter().map(Row::new), widths).header(head).column_spacing(2), height)
    }
}

/// Prints a view, for output that is no terminal.
pub fn print(view: &View) {
    sources(&view.sources).say();
    say!();
    sessions(&view.sessions).say();
    say!();
    modules(&view.modules).say();
}

/// Draws a view with a line above it and one below.
pub fn draw(frame: &mut Frame<'_>, view: &View, (title, help): (&str, &str)) {
    let (of_sources, sources_height) = sources(&view.sources).widget();
    let (of_sessions, sessions_height) = sessions(&view.sessions).widget();
    let (of_modules, _) = modules(&view.modules).widget();
    let heights = [
        Constraint::Length(1),
        Constraint::Length(sources_height + 1),
        Constraint::Length(sessions_height + 1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ];
    let [top, first, second, third, bottom] = Layout::vertical(heights).areas(frame.area());
    let title = escape::line(title).into_owned();
    frame.render_widget(Line::from(title).style(Style::new().add_modifier(Modifier::REVERSED)), top);
    frame.render_widget(of_sources, first);
    frame.render_widget(of_sessions, second);
    frame.render_widget(of_modules, third);
    frame.render_widget(Line::from(help.to_owned()), bottom);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.34, 7.0, 12.6, 999.0, 1000.0, 1_540_000.0, 2e9].map(short);
        assert_eq!(shown, ["0", "0.3", "7.0", "13", "999", "1.0k", "1.5M", "2.0G"]);
    }

    #[test]
    fn a_view_is_drawn_in_any_size_and_text_from_outside_steers_nothing() {
        let module = ModuleRow {
            module: "flow".to_owned(),
            session: "ali\u{1b}[2Jce\n".to_owned(),
            state: "running".to_owned(),
            packet_ns: Some(1234.0),
            of_reserved: Some(0.5),
            blocks: Some(2),
            reserved_blocks: 4,
            shed: [("overrun".to_owned(), 17)].into(),
            ..ModuleRow::default()
        };
        let session = SessionRow { session: "alice".to_owned(), ..SessionRow::default() };
        let view = View {
            sources: vec![SourceRow { source: "tap".to_owned(), ..SourceRow::default() }],
            sessions: vec![session],
            modules: vec![module; 50],
        };
        for (width, height) in [(1, 1), (10, 3), (80, 24), (200, 60)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &view, ("a node", "q ends"))).unwrap();
            let buffer = terminal.backend().buffer();
            let text: String = buffer.content().iter().map(|cell| cell.symbol()).collect();
            assert!(!text.contains(char::is_control), "{text:?}");
            if width == 200 {
                for part in
                    ["a node", "tap", "alice", "u{1b}[2Jce", "1.2k", "50.0%", "2/4", "overrun 17", "q ends"]
                {
                    assert!(text.contains(part), "{part}: {text}");
                }
            }
        }
    }
}
