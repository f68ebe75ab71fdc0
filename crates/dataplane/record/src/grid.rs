//! Tables for people that fit a width: side by side if all columns fit, with wrapped texts if these alone are
//! too wide, then without details, the widest first. What is still too wide has one line for each value, or
//! where there are many rows fewer columns. No word, and so no address, is ever broken.

use crate::human::GRID;
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table as Grid, Width};
use std::fmt::Write;

/// The arrangement of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// Side by side if the columns fit the width, otherwise one line for each value.
    #[default]
    Auto,
    /// Side by side; columns that do not fit are left out from the right, all but [`LEAST`].
    Rows,
    /// One line for each value.
    Vertical,
}

/// The number of columns without which rows say too little.
const LEAST: usize = 3;

/// A column's header and its form.
#[derive(Clone)]
pub(crate) struct Head {
    pub(crate) name: String,
    /// The unit, which stands below the name, or after the value in the vertical form.
    pub(crate) unit: String,
    pub(crate) is_right: bool,
    /// Whether its values may be wrapped between words.
    pub(crate) wraps: bool,
    /// The order in which columns are left out: the highest rank first, and of one rank the widest column;
    /// columns of rank 0 only from the right, where there are many rows.
    pub(crate) rank: u8,
}

/// The rank of a detail.
pub(crate) const DETAIL: u8 = 9;

/// The number of characters around a value: one on each side.
const PADDING: u16 = 2;
/// The number of characters between two columns.
const BETWEEN: u16 = 1;
/// The number of characters between name and value in the vertical form.
const GAP: usize = 2;

/// The arrangement of a table's rows, which further rows of the same table keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arranged {
    /// The least width of each column, or `None` if it is left out.
    Grid(Vec<Option<u16>>),
    Vertical,
}

/// Returns the table's text and its arrangement. `before` is the arrangement of rows that stand above: then
/// no header is written.
pub(crate) fn render(
    heads: &[Head],
    rows: &[Vec<String>],
    (width, form): (Option<u16>, Form),
    before: Option<&Arranged>,
) -> (String, Arranged) {
    if form == Form::Vertical || before == Some(&Arranged::Vertical) {
        return (vertical(heads, rows), Arranged::Vertical);
    }
    let mut shown: Vec<bool> = match before {
        Some(Arranged::Grid(before)) => before.iter().map(Option::is_some).collect(),
        _ => vec![true; heads.len()],
    };
    loop {
        let heads_of: Vec<Head> = of_shown(heads, &shown);
        let rows_of: Vec<Vec<String>> = rows.iter().map(|row| of_shown(row, &shown)).collect();
        let grid = filled(&heads_of, &rows_of, before.is_none());
        let mut widths = grid.column_max_content_widths();
        if let Some(Arranged::Grid(before)) = before {
            widths.iter_mut().zip(before.iter().flatten()).for_each(|(new, old)| *new = (*new).max(*old));
        }
        if let Some(least) = fit(&heads_of, &rows_of, &widths, width) {
            let text = side_by_side(grid, &least);
            let mut least = least.into_iter();
            let arranged = shown.iter().map(|shown| if *shown { least.next() } else { None }).collect();
            return (text, Arranged::Grid(arranged));
        }
        let numbers = (0..heads.len()).filter(|number| shown[*number]);
        let details = numbers.zip(&widths).filter(|(number, _)| heads[*number].rank > 0);
        match details.max_by_key(|(number, width)| (heads[*number].rank, **width)) {
            Some((widest, _)) if before.is_none() => shown[widest] = false,
            None if before.is_none() && form == Form::Rows && widths.len() > LEAST => {
                shown.iter_mut().rev().find(|shown| **shown).into_iter().for_each(|last| *last = false);
            }
            _ => return (vertical(heads, rows), Arranged::Vertical),
        }
    }
}

fn of_shown<T: Clone>(of: &[T], shown: &[bool]) -> Vec<T> {
    of.iter().zip(shown).filter(|(_, shown)| **shown).map(|(one, _)| one.clone()).collect()
}

fn filled(heads: &[Head], rows: &[Vec<String>], with_header: bool) -> Grid {
    let align = |head: &Head| if head.is_right { CellAlignment::Right } else { CellAlignment::Left };
    let mut grid = Grid::new();
    grid.load_style(GRID);
    if with_header {
        let text =
            |h: &Head| if h.unit.is_empty() { h.name.clone() } else { format!("{}\n{}", h.name, h.unit) };
        grid.set_header(heads.iter().map(|h| Cell::new(text(h)).set_alignment(align(h))));
    }
    for row in rows {
        grid.add_row(row.iter().zip(heads).map(|(cell, h)| Cell::new(cell).set_alignment(align(h))));
    }
    grid
}

/// Returns the width of each column, or `None` if they do not fit even with wrapped texts.
fn fit(heads: &[Head], rows: &[Vec<String>], natural: &[u16], width: Option<u16>) -> Option<Vec<u16>> {
    let Some(width) = width.map(usize::from) else { return Some(natural.to_vec()) };
    if total(natural) <= width {
        return Some(natural.to_vec());
    }
    let words = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).chain([&heads[at].name, &heads[at].unit]);
        cells.flat_map(|cell| cell.split(' ')).map(measure).max().unwrap_or(1).max(1)
    };
    let mut widths = natural.to_vec();
    for (at, _) in heads.iter().enumerate().filter(|(_, head)| head.wraps) {
        widths[at] = words(at).min(natural[at]);
    }
    let mut spare = width.checked_sub(total(&widths))?;
    // What is left is given to the texts from the left, the first ones first.
    for (now, most) in widths.iter_mut().zip(natural) {
        let more = usize::from(*most - *now).min(spare);
        *now += more as u16;
        spare -= more;
    }
    Some(widths)
}

/// Returns the width of a table whose columns have these widths.
fn total(widths: &[u16]) -> usize {
    let columns = widths.iter().map(|w| usize::from(*w) + usize::from(PADDING + BETWEEN)).sum::<usize>();
    columns.saturating_sub(usize::from(BETWEEN))
}

/// Returns the width of a text on a terminal.
fn measure(text: &str) -> u16 {
    let mut grid = Grid::new();
    grid.add_row([text]);
    grid.column_max_content_widths().first().copied().unwrap_or(0)
}

fn side_by_side(mut grid: Grid, widths: &[u16]) -> String {
    grid.set_content_arrangement(ContentArrangement::Dynamic);
    grid.set_width(u16::try_from(total(widths)).unwrap_or(u16::MAX));
    let fixed = |w: &u16| ColumnConstraint::Absolute(Width::Fixed(w.saturating_add(PADDING)));
    grid.set_constraints(widths.iter().map(fixed));
    let lines = grid.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

fn vertical(heads: &[Head], rows: &[Vec<String>]) -> String {
    let names = heads.iter().map(|head| measure(&head.name)).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        text.push_str(&"─".repeat(usize::from(names)));
        text.push('\n');
        for (head, cell) in heads.iter().zip(row) {
            let gap = usize::from(names - measure(&head.name)) + GAP;
            let unit = if head.unit.is_empty() { String::new() } else { format!(" {}", head.unit) };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}{:gap$}{}", head.name, "", format!("{cell}{unit}").trim_end());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads() -> Vec<Head> {
        let head = |name: &str, unit: &str, is_right, wraps| Head {
            name: name.into(),
            unit: unit.into(),
            is_right,
            wraps,
            rank: 0,
        };
        vec![
            head("src", "", false, false),
            head("bytes", "octets", true, false),
            head("note", "", false, true),
        ]
    }

    fn rows() -> Vec<Vec<String>> {
        let row = |a: &str, b: &str, c: &str| vec![a.to_owned(), b.to_owned(), c.to_owned()];
        vec![
            row("2001:db8:1111:2222:3333:4444:5555:6666", "1,234", "one two three four five six"),
            row("192.0.2.1", "7", "see 2001:db8:1111:2222:3333:4444:5555:7777"),
        ]
    }

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap()
    }

    #[test]
    fn every_width_holds_the_table_or_its_values_in_lines() {
        for width in 1..150 {
            let (text, arranged) = render(&heads(), &rows(), (Some(width), Form::Auto), None);
            // No word is broken.
            for word in rows().concat().iter().flat_map(|cell| cell.split(' ')) {
                assert!(text.contains(word), "{width}: {word}\n{text}");
            }
            match arranged {
                Arranged::Grid(_) => assert!(widest(&text) <= usize::from(width), "{width}\n{text}"),
                Arranged::Vertical => assert!(width < 90, "{width}\n{text}"),
            }
        }
        let (text, _) = render(&heads(), &rows(), (None, Form::Auto), None);
        assert_eq!(text.lines().count(), 2 + 1 + 2, "{text}");
    }

    #[test]
    fn details_are_left_out_the_widest_first() {
        let mut heads = heads();
        heads[1].rank = DETAIL;
        heads[2].rank = DETAIL;
        let shown = |width| match render(&heads, &rows(), (Some(width), Form::Auto), None) {
            (text, Arranged::Grid(widths)) => {
                assert!(widest(&text) <= usize::from(width), "{width}\n{text}");
                Some(widths.iter().map(Option::is_some).collect::<Vec<_>>())
            }
            (_, Arranged::Vertical) => None,
        };
        assert_eq!(shown(90), Some(vec![true, true, true]));
        assert_eq!(shown(89), Some(vec![true, true, false]));
        assert_eq!(shown(48), Some(vec![true, false, false]));
        assert_eq!(shown(39), None);
        // Further rows keep the columns.
        let (_, above) = render(&heads, &rows(), (Some(60), Form::Auto), None);
        let (text, below) = render(&heads, &rows()[1..], (Some(60), Form::Auto), Some(&above));
        assert_eq!((text.trim(), &below), ("192.0.2.1                                     7", &above));
    }

    #[test]
    fn many_rows_stay_rows_without_the_last_columns() {
        let mut heads = heads();
        heads.extend(heads.clone());
        let rows: Vec<_> = rows().into_iter().map(|row| [row.clone(), row].concat()).collect();
        let shown = |width| match render(&heads, &rows, (Some(width), Form::Rows), None) {
            (_, Arranged::Grid(widths)) => Some(widths.iter().flatten().count()),
            (_, Arranged::Vertical) => None,
        };
        assert_eq!((shown(200), shown(140), shown(100), shown(80)), (Some(6), Some(5), Some(3), None));
    }

    #[test]
    fn the_vertical_form_has_a_line_for_each_value() {
        let (text, _) = render(&heads(), &rows()[1..], (None, Form::Vertical), None);
        let expected = "─────\nsrc    192.0.2.1\nbytes  7 octets\n\
                        note   see 2001:db8:1111:2222:3333:4444:5555:7777\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn further_rows_have_no_header_and_the_same_columns() {
        let (above, arranged) = render(&heads(), &rows()[..1], (None, Form::Auto), None);
        let (below, _) = render(&heads(), &rows()[1..], (None, Form::Auto), Some(&arranged));
        assert!(above.contains("bytes") && !below.contains("bytes") && !below.contains('─'), "{below}");
        let column = |text: &str, word: &str| {
            let line = text.lines().find(|line| line.contains(word)).unwrap();
            line[..line.find(word).unwrap()].chars().count()
        };
        assert_eq!(column(&above, "one two"), column(&below, "see"), "{above}{below}");
    }
}
