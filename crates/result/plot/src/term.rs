//! Pictures as text for a terminal, with or without colours.

use crate::axis::Ticks;
use crate::picture::{Picture, Scale, Shape};
use flame_record::human;
use std::fmt::Write;

const HEIGHT: usize = 18;
/// Marks of series for points and lines, by colour.
const MARKS: [char; 7] = ['●', '+', '×', '○', '*', '#', '~'];
/// The nearest of 256 colours to those of the canvas.
const COLOURS: [u8; 7] = [32, 166, 36, 175, 178, 74, 244];
const LOWER: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const LEFT: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// Returns the picture as text, at least 40 columns wide.
pub fn text(picture: &Picture, columns: usize, colours: bool) -> String {
    let columns = columns.clamp(40, 400);
    let [of_x, of_y] = picture.extent();
    let rows = match &picture.y.scale {
        // Each box in a row has a line, and there is one line between rows.
        Scale::Rows(words) => words.len().max(1) * (1 + picture.series.len()),
        _ => HEIGHT,
    };
    let y = Ticks::of(&picture.y, of_y, if rows == HEIGHT { 6 } else { 2 });
    let names = y.at.iter().map(|(_, t)| t.chars().count()).max().unwrap_or(0).min(columns / 3);
    let width = columns - names - 3;
    let x = Ticks::of(&picture.x, of_x, (width / 14).max(2));
    let mut grid = Grid { cells: vec![(' ', None); width * rows], width, rows };
    for series in &picture.series {
        grid.series(&series.shape, series.colour, &x, &y);
    }

    let mut out = format!("{}\n", cut(&picture.title, columns));
    for note in &picture.notes {
        let _ = writeln!(out, "{}", cut(note, columns));
    }
    for s in picture.series.iter().filter(|s| !s.name.is_empty()) {
        let mark =
            if matches!(s.shape, Shape::Boxes(_)) { fill(s.colour) } else { MARKS[s.colour % MARKS.len()] };
        let _ = writeln!(out, "  {} {}", paint(mark, Some(s.colour), colours), cut(&s.name, columns - 4));
    }
    if !y.label.is_empty() {
        let _ = writeln!(out, "{}", human::plain(&y.label));
    }
    let labels: Vec<_> = y.at.iter().map(|(v, t)| (grid.row(y.place(*v)), t)).collect();
    for row in 0..rows {
        let label = labels.iter().find(|(r, _)| *r == row).map_or("", |(_, t)| t.as_str());
        let label: String = human::plain(label).chars().take(names).collect();
        let cells: String = grid.line(row).iter().map(|(c, s)| paint(*c, *s, colours)).collect();
        let bar = if label.is_empty() { '│' } else { '┤' };
        let _ = writeln!(out, "{}", format!("{label:>names$} {bar}{cells}").trim_end());
    }
    axis(&mut out, &x, names, width);
    let _ = writeln!(out, "{:names$}  {:^width$}\n", "", human::plain(&x.label));
    out.lines().fold(String::new(), |all, line| all + line.trim_end() + "\n")
}

/// Returns the part of a text that fits.
fn cut(text: &str, columns: usize) -> String {
    let plain = human::plain(text);
    if plain.chars().count() <= columns {
        return plain;
    }
    plain.chars().take(columns - 1).chain(['…']).collect()
}

/// Draws the horizontal axis, and those texts of its ticks that do not touch.
fn axis(out: &mut String, x: &Ticks, names: usize, width: usize) {
    let mut line = vec!['─'; width];
    let mut texts = vec![' '; width + names + 2];
    let mut free = 0;
    for (value, text) in &x.at {
        let at = ((x.place(*value) * (width - 1) as f64).round() as usize).min(width - 1);
        line[at] = '┬';
        let len = text.chars().count();
        let start = (at + names + 2).saturating_sub(len / 2).min(texts.len().saturating_sub(len));
        if start >= free && start + len <= texts.len() {
            texts[start..start + len].iter_mut().zip(text.chars()).for_each(|(place, c)| *place = c);
            free = start + len + 2;
        }
    }
    let _ = writeln!(out, "{:names$} └{}", "", line.iter().collect::<String>());
    let _ = writeln!(out, "{}", texts.iter().collect::<String>().trim_end());
}

/// Returns a character for boxes, so that series differ without colours, too.
fn fill(colour: usize) -> char {
    ['█', '▒', '░', '▓'][colour % 4]
}

fn paint(c: char, colour: Option<usize>, colours: bool) -> String {
    match colour {
        Some(n) if colours && c != ' ' => format!("\x1b[38;5;{}m{c}\x1b[0m", COLOURS[n % COLOURS.len()]),
        _ => c.to_string(),
    }
}

struct Grid {
    cells: Vec<(char, Option<usize>)>,
    width: usize,
    rows: usize,
}

impl Grid {
    fn row(&self, place: f64) -> usize {
        (((1.0 - place) * self.rows as f64) as usize).min(self.rows - 1)
    }

    fn column(&self, place: f64) -> usize {
        ((place * self.width as f64) as usize).min(self.width - 1)
    }

    fn line(&self, row: usize) -> &[(char, Option<usize>)] {
        &self.cells[row * self.width..][..self.width]
    }

    fn set(&mut self, column: usize, row: usize, c: char, colour: usize) {
        self.cells[row * self.width + column] = (c, Some(colour));
    }

    fn series(&mut self, shape: &Shape, colour: usize, x: &Ticks, y: &Ticks) {
        let mark = MARKS[colour % MARKS.len()];
        let finite = |values: &[f64]| values.iter().all(|v| v.is_finite());
        match shape {
            Shape::Points(points) => {
                for (a, b) in points.iter().filter(|(a, b)| finite(&[*a, *b])) {
                    self.set(self.column(x.place(*a)), self.row(y.place(*b)), mark, colour);
                }
            }
            Shape::Line(points) => {
                for part in points.split(|(a, b)| !finite(&[*a, *b])) {
                    self.curve(part, x, y, mark, colour);
                }
            }
            Shape::Whiskers(bars) => {
                for (a, low, high) in bars.iter().filter(|(a, l, h)| finite(&[*a, *l, *h])) {
                    let column = self.column(x.place(*a));
                    for row in self.row(y.place(*high))..=self.row(y.place(*low)) {
                        if self.cells[row * self.width + column].0 == ' ' {
                            self.set(column, row, '│', colour);
                        }
                    }
                }
            }
            Shape::Boxes(boxes) => {
                for b in boxes.iter().filter(|b| finite(&b[..])) {
                    if y.high < y.low { self.across(b, colour, x, y) } else { self.upright(b, colour, x, y) }
                }
            }
        }
    }

    /// Draws a mark in each column that the line passes.
    fn curve(&mut self, points: &[(f64, f64)], x: &Ticks, y: &Ticks, mark: char, colour: usize) {
        if let [(a, b)] = points {
            self.set(self.column(x.place(*a)), self.row(y.place(*b)), mark, colour);
        }
        for pair in points.windows(2) {
            let [(ax, ay), (bx, by)] = [pair[0], pair[1]].map(|(a, b)| (x.place(a), y.place(b)));
            let (from, to) = (self.column(ax), self.column(bx));
            for column in from.min(to)..=from.max(to) {
                let along =
                    if from == to { 1.0 } else { (column as f64 - from as f64) / (to as f64 - from as f64) };
                self.set(column, self.row(ay + along * (by - ay)), mark, colour);
            }
        }
    }

    /// Draws a box that stands on the axis, in eighths of a row.
    fn upright(&mut self, [x0, y0, x1, y1]: &[f64; 4], colour: usize, x: &Ticks, y: &Ticks) {
        let (a, b) = (x.place(x0.min(*x1)), x.place(x0.max(*x1)));
        let first = self.column(a);
        // Adjacent boxes do not overlap, and each has at least one column.
        let last = ((b * self.width as f64).ceil() as usize).saturating_sub(1).clamp(first, self.width - 1);
        let eighths = |v: f64| (y.place(v) * (self.rows * 8) as f64).round() as usize;
        let (low, high) = (eighths(y0.min(*y1)), eighths(y0.max(*y1)));
        let high = if y0 != y1 { high.max(low + 1) } else { high };
        for column in first..=last {
            for row in low / 8..high.div_ceil(8).min(self.rows) {
                let filled = (high - row * 8).min(8);
                let c = if filled == 8 { fill(colour) } else { LOWER[filled - 1] };
                self.set(column, self.rows - 1 - row, c, colour);
            }
        }
    }

    /// Draws a box within a row, in eighths of a column.
    fn across(&mut self, [x0, y0, x1, y1]: &[f64; 4], colour: usize, x: &Ticks, y: &Ticks) {
        let row = self.row(y.place((y0 + y1) / 2.0));
        let eighths = |v: f64| (x.place(v) * (self.width * 8) as f64).round() as usize;
        let (low, high) = (eighths(x0.min(*x1)), eighths(x0.max(*x1)));
        for column in low / 8..high.div_ceil(8).min(self.width) {
            let filled = (high - column * 8).min(8);
            let c = if filled == 8 { fill(colour) } else { LEFT[filled - 1] };
            self.set(column, row, c, colour);
        }
    }
}
