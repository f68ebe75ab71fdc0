//! Pictures as SVG and PNG.
//!
//! The layout is computed here, with [`WIDTH`] by [`HEIGHT`] units per picture; plotters draws lines, boxes
//! and text. PNG is drawn at [`SCALE`] times the size and then averaged, for smooth edges.

use crate::axis::Ticks;
use crate::picture::{Picture, Scale, Series, Shape};
use crate::{MOST_PICTURES as MOST, PlotError};
use flame_record::human;
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontDesc, FontFamily, FontStyle, RGBColor, ShapeStyle, TextStyle, register_font,
};
use std::sync::Once;

const WIDTH: u32 = 920;
const HEIGHT: u32 = 500;
/// Pixels of a PNG per unit of the layout, and drawn pixels per pixel of the PNG.
const DENSITY: u32 = 2;
const SCALE: u32 = 2;

/// Colours that colour-blind people can distinguish (Okabe and Ito), the two most different first.
pub const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];
const INK: RGBColor = RGBColor(40, 40, 40);
const PALE: RGBColor = RGBColor(110, 110, 110);
const GRID: RGBColor = RGBColor(225, 225, 225);
const PAPER: RGBColor = RGBColor(255, 255, 255);

static FONT: &[u8] = include_bytes!("../font/DejaVuSans-Latin.ttf");

fn font() {
    static ONCE: Once = Once::new();
    // The font is part of this crate, and a test reads it.
    ONCE.call_once(|| drop(register_font("sans-serif", FontStyle::Normal, FONT)));
}

pub fn svg(pictures: &[Picture]) -> Result<String, PlotError> {
    let pictures = &pictures[..pictures.len().min(MOST)];
    let mut text = String::new();
    let size = (WIDTH, HEIGHT * pictures.len().max(1) as u32);
    draw(SVGBackend::with_string(&mut text, size), Joints::Backend, pictures, 1.0)?;
    Ok(text)
}

pub fn png(pictures: &[Picture]) -> Result<Vec<u8>, PlotError> {
    let pictures = &pictures[..pictures.len().min(MOST)];
    let (width, height) = (WIDTH * DENSITY, HEIGHT * DENSITY * pictures.len().max(1) as u32);
    let mut small = Vec::with_capacity((width * height * 3) as usize);
    // Pictures are drawn one by one, because the drawn pixels take much memory.
    let each: Vec<_> = if pictures.is_empty() { vec![pictures] } else { pictures.chunks(1).collect() };
    for one in each {
        let size = (width * SCALE, HEIGHT * DENSITY * SCALE);
        let mut pixels = vec![0; (size.0 * size.1 * 3) as usize];
        let backend = BitMapBackend::with_buffer(&mut pixels, size);
        draw(backend, Joints::Round, one, f64::from(DENSITY * SCALE))?;
        average(&pixels, size.0 as usize, &mut small);
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut w| w.write_image_data(&small));
    written.map_err(|e| PlotError::Backend(e.to_string()))?;
    Ok(file)
}

/// Averages squares of [`SCALE`] by [`SCALE`] pixels.
fn average(pixels: &[u8], width: usize, into: &mut Vec<u8>) {
    let (scale, row) = (SCALE as usize, width * 3);
    for rows in pixels.chunks_exact(row * scale) {
        for x in (0..width).step_by(scale) {
            for channel in 0..3 {
                let squares = (0..scale * scale)
                    .map(|i| u32::from(rows[i / scale * row + (x + i % scale) * 3 + channel]));
                into.push((squares.sum::<u32>() / (SCALE * SCALE)) as u8);
            }
        }
    }
}

fn draw<B: DrawingBackend>(
    backend: B,
    joints: Joints,
    pictures: &[Picture],
    scale: f64,
) -> Result<(), PlotError> {
    font();
    let mut canvas = Canvas { backend, joints, scale, top: 0.0 };
    let height = HEIGHT * pictures.len().max(1) as u32;
    canvas.fill(0.0, 0.0, WIDTH.into(), height.into(), PAPER, 1.0)?;
    for picture in pictures {
        canvas.picture(picture)?;
        canvas.top += f64::from(HEIGHT);
    }
    canvas.backend.present().map_err(failed)
}

fn failed(e: impl std::fmt::Display) -> PlotError {
    PlotError::Backend(e.to_string())
}

/// The way in which the parts of a line are joined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joints {
    Backend,
    /// Circles. The mitres of the backend for bitmaps leave the picture at acute angles.
    Round,
}

/// A backend in the units of the layout, relative to the top of the current picture.
struct Canvas<B> {
    backend: B,
    joints: Joints,
    scale: f64,
    top: f64,
}

/// The point of a text that is placed.
#[derive(Clone, Copy)]
enum Held {
    Left,
    Middle,
    Right,
}

type Done = Result<(), PlotError>;

impl<B: DrawingBackend> Canvas<B> {
    fn at(&self, x: f64, y: f64) -> (i32, i32) {
        ((x * self.scale).round() as i32, ((y + self.top) * self.scale).round() as i32)
    }

    fn fill(&mut self, x0: f64, y0: f64, x1: f64, y1: f64, colour: RGBColor, opacity: f64) -> Done {
        let (a, b) = (self.at(x0.min(x1), y0.min(y1)), self.at(x0.max(x1), y0.max(y1)));
        // Every box is at least one pixel wide and high.
        let b = (b.0.max(a.0 + 1), b.1.max(a.1 + 1));
        self.backend.draw_rect(a, b, &colour.mix(opacity), true).map_err(failed)
    }

    fn line(&mut self, points: &[(f64, f64)], colour: RGBColor, width: f64) -> Done {
        let style = ShapeStyle {
            color: colour.to_rgba(),
            filled: false,
            stroke_width: (width * self.scale).round() as u32,
        };
        let path: Vec<_> = points.iter().map(|(x, y)| self.at(*x, *y)).collect();
        if self.joints == Joints::Backend || path.len() < 3 {
            return self.backend.draw_path(path, &style).map_err(failed);
        }
        for part in path.windows(2) {
            self.backend.draw_path(part.to_vec(), &style).map_err(failed)?;
        }
        let radius = style.stroke_width / 2;
        let mut joints = path[1..path.len() - 1].iter();
        joints.try_for_each(|joint| {
            self.backend.draw_circle(*joint, radius, &style.color, true).map_err(failed)
        })
    }

    fn dot(&mut self, x: f64, y: f64, colour: RGBColor) -> Done {
        let radius = (3.5 * self.scale).round() as u32;
        self.backend.draw_circle(self.at(x, y), radius, &colour, true).map_err(failed)
    }

    fn style(&self, size: f64) -> FontDesc<'static> {
        FontDesc::new(FontFamily::SansSerif, size * self.scale, FontStyle::Normal)
    }

    /// Draws a text whose vertical middle is at `y`.
    fn text(&mut self, text: &str, x: f64, y: f64, held: Held, size: f64, colour: RGBColor) -> Done {
        let h = match held {
            Held::Left => HPos::Left,
            Held::Middle => HPos::Center,
            Held::Right => HPos::Right,
        };
        let font = self.style(size);
        let style = TextStyle { font, color: colour.to_backend_color(), pos: Pos::new(h, VPos::Center) };
        self.backend.draw_text(&human::plain(text), &style, self.at(x, y)).map_err(failed)
    }

    fn width(&self, text: &str, size: f64) -> f64 {
        let ((left, _), (right, _)) = self.style(size).layout_box(&human::plain(text)).unwrap_or_default();
        f64::from(right - left) / self.scale
    }

    /// Returns `text`, cut to the width `room`.
    fn fit(&self, text: &str, room: f64, size: f64) -> String {
        if self.width(text, size) <= room {
            return text.to_owned();
        }
        let mut kept: Vec<char> = text.chars().collect();
        loop {
            kept.truncate(kept.len() - (kept.len() / 16).max(1).min(kept.len()));
            let short: String = kept.iter().chain(&['…']).collect();
            if kept.is_empty() || self.width(&short, size) <= room {
                return short;
            }
        }
    }

    fn picture(&mut self, picture: &Picture) -> Done {
        let all = f64::from(WIDTH) - 40.0;
        let mut y = 24.0;
        self.text(&self.fit(&picture.title, all, 19.0), 20.0, y, Held::Left, 19.0, INK)?;
        for note in &picture.notes {
            y += 19.0;
            self.text(&self.fit(note, all, 13.0), 20.0, y, Held::Left, 13.0, PALE)?;
        }
        y = self.legend(&picture.series, y + 23.0)?;

        let [of_x, of_y] = picture.extent();
        let (x, v) = (Ticks::of(&picture.x, of_x, 8), Ticks::of(&picture.y, of_y, 6));
        let names = v.at.iter().map(|(_, t)| self.width(t, 13.0)).fold(0.0, f64::max).min(320.0);
        let frame = Frame {
            left: 20.0 + names + 10.0,
            right: f64::from(WIDTH) - 30.0,
            // The label of the vertical axis is above it.
            top: y + if v.label.is_empty() { 4.0 } else { 26.0 },
            bottom: f64::from(HEIGHT) - 58.0,
        };
        if !v.label.is_empty() {
            self.text(&v.label, 20.0, y + 8.0, Held::Left, 13.0, PALE)?;
        }
        self.grid(picture, &frame, &x, &v, names)?;
        for series in &picture.series {
            self.series(series, &frame, &x, &v)?;
        }
        Ok(())
    }

    /// Draws the names of series in rows from `y`, and returns the position for the next element.
    fn legend(&mut self, series: &[Series], mut y: f64) -> Result<f64, PlotError> {
        let named: Vec<_> = series.iter().filter(|s| !s.name.is_empty()).collect();
        if named.is_empty() {
            return Ok(y - 8.0);
        }
        let mut x = 20.0;
        for s in named {
            let name = self.fit(&s.name, 420.0, 13.0);
            let width = 24.0 + self.width(&name, 13.0) + 22.0;
            if x > 20.0 && x + width > f64::from(WIDTH) - 20.0 {
                x = 20.0;
                y += 20.0;
            }
            let colour = COLOURS[s.colour % COLOURS.len()];
            match s.shape {
                Shape::Line(_) => self.line(&[(x, y), (x + 16.0, y)], colour, 2.0)?,
                Shape::Points(_) | Shape::Whiskers(_) => self.dot(x + 8.0, y, colour)?,
                Shape::Boxes(_) => self.fill(x + 2.0, y - 5.0, x + 14.0, y + 5.0, colour, 1.0)?,
            }
            self.text(&name, x + 22.0, y, Held::Left, 13.0, INK)?;
            x += width;
        }
        Ok(y + 18.0)
    }

    fn grid(&mut self, picture: &Picture, frame: &Frame, x: &Ticks, y: &Ticks, names: f64) -> Done {
        let rows = matches!(picture.y.scale, Scale::Rows(_));
        for (value, text) in &y.at {
            let at = frame.y(y, *value);
            if !rows {
                self.line(&[(frame.left, at), (frame.right, at)], GRID, 1.0)?;
            }
            self.text(&self.fit(text, names + 1.0, 13.0), frame.left - 8.0, at, Held::Right, 13.0, INK)?;
        }
        // Texts that would touch the one before are omitted.
        let mut free = f64::NEG_INFINITY;
        for (value, text) in &x.at {
            let at = frame.x(x, *value);
            self.line(&[(at, frame.top), (at, frame.bottom)], GRID, 1.0)?;
            let half = self.width(text, 13.0) / 2.0;
            let middle = at.min(f64::from(WIDTH) - half - 4.0);
            if middle - half > free {
                self.text(text, middle, frame.bottom + 16.0, Held::Middle, 13.0, INK)?;
                free = middle + half + 10.0;
            }
        }
        let corner = [(frame.left, frame.top), (frame.left, frame.bottom), (frame.right, frame.bottom)];
        self.line(&corner, PALE, 1.0)?;
        let middle = (frame.left + frame.right) / 2.0;
        self.text(&x.label, middle, frame.bottom + 40.0, Held::Middle, 13.0, PALE)
    }

    fn series(&mut self, series: &Series, frame: &Frame, x: &Ticks, y: &Ticks) -> Done {
        let colour = COLOURS[series.colour % COLOURS.len()];
        match &series.shape {
            Shape::Line(points) => {
                // A value that is not finite interrupts the line.
                for part in points.split(|(a, b)| !a.is_finite() || !b.is_finite()) {
                    let path = thinned(part.iter().map(|(a, b)| (frame.x(x, *a), frame.y(y, *b))));
                    match path.as_slice() {
                        [] => {}
                        [(a, b)] => self.dot(*a, *b, colour)?,
                        path => self.line(path, colour, 2.0)?,
                    }
                }
            }
            Shape::Points(points) => {
                for (a, b) in points.iter().filter(|(a, b)| a.is_finite() && b.is_finite()) {
                    self.dot(frame.x(x, *a), frame.y(y, *b), colour)?;
                }
            }
            Shape::Whiskers(bars) => {
                for (a, low, high) in
                    bars.iter().filter(|(a, l, h)| a.is_finite() && l.is_finite() && h.is_finite())
                {
                    let (at, low, high) = (frame.x(x, *a), frame.y(y, *low), frame.y(y, *high));
                    self.line(&[(at, low), (at, high)], colour, 1.0)?;
                    for end in [low, high] {
                        self.line(&[(at - 4.0, end), (at + 4.0, end)], colour, 1.0)?;
                    }
                }
            }
            Shape::Boxes(boxes) => {
                for [a, b, c, d] in boxes.iter().filter(|b| b.iter().all(|v| v.is_finite())) {
                    if a != c && b != d {
                        let (x0, y0, x1, y1) =
                            (frame.x(x, *a), frame.y(y, *b), frame.x(x, *c), frame.y(y, *d));
                        self.fill(x0, y0, x1, y1, colour, 0.9)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The positions of the axes.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Frame {
    fn x(&self, ticks: &Ticks, value: f64) -> f64 {
        self.left + ticks.place(value) * (self.right - self.left)
    }

    fn y(&self, ticks: &Ticks, value: f64) -> f64 {
        self.bottom - ticks.place(value) * (self.bottom - self.top)
    }
}

/// Keeps only the first, lowest, highest and last of the points in one column of pixels. A line of a million
/// points looks the same.
fn thinned(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    // First, lowest, highest and last.
    let mut column: Option<[(f64, f64); 4]> = None;
    let different = |of: [(f64, f64); 4]| {
        let mut of = of.to_vec();
        of.dedup();
        of
    };
    for point in points {
        match &mut column {
            Some([first, low, high, last]) if (first.0 * 2.0).floor() == (point.0 * 2.0).floor() => {
                if point.1 < low.1 {
                    *low = point;
                }
                if point.1 > high.1 {
                    *high = point;
                }
                *last = point;
            }
            _ => kept.extend(column.replace([point; 4]).into_iter().flat_map(different)),
        }
    }
    kept.extend(column.into_iter().flat_map(different));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_what_is_written() {
        font();
        let font = FontDesc::new(FontFamily::SansSerif, 20.0, FontStyle::Normal);
        let width = |t: &str| font.layout_box(t).unwrap().1.0;
        // All missing characters have the width of the replacement mark.
        let missing = width("\u{4e2d}");
        for c in "abcXYZ059µ±×÷²³…–−→←éß%()[]{}/&<>'\"".chars() {
            let wide = width(&c.to_string().repeat(10));
            assert!(wide > 0 && wide != missing * 10, "{c}");
        }
    }

    #[test]
    fn thinned_lines_keep_their_extremes() {
        let points =
            (0..100_000).map(|i| (f64::from(i) / 1000.0, if i == 777 { 50.0 } else { f64::from(i % 7) }));
        let thin = thinned(points);
        assert!(thin.len() < 1000 && thin.iter().any(|p| p.1 == 50.0));
        // Whatever the order in which the extremes come.
        let one = [5.0, 9.0, 1.0, 4.0, 2.0, 8.0, 0.0, 3.0].map(|y| (0.1, y));
        assert_eq!(thinned(one.into_iter()).iter().map(|p| p.1).collect::<Vec<_>>(), [5.0, 0.0, 9.0, 3.0]);
    }

    /// Returns the first and the last row of pixels that have the colour of a series.
    fn rows(shape: Shape) -> (usize, usize) {
        let axis = |scale| crate::picture::Axis { label: String::new(), scale };
        let series = Series { name: String::new(), colour: 0, shape };
        let (x, y) = (axis(Scale::Linear), axis(Scale::FromZero));
        let file =
            png(&[Picture { title: String::new(), notes: Vec::new(), x, y, series: vec![series] }]).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let width = reader.next_frame(&mut pixels).unwrap().width as usize;
        let near = |p: &[u8]| p[0] < 60 && p[1].abs_diff(114) < 30 && p[2].abs_diff(178) < 30;
        let has = |row: &[u8]| row.chunks(3).any(near);
        let all: Vec<_> = pixels.chunks(width * 3).map(has).collect();
        (all.iter().position(|has| *has).unwrap(), all.iter().rposition(|has| *has).unwrap())
    }

    /// More peaks than pixels: strokes stay between the lowest and the highest value.
    #[test]
    fn strokes_of_acute_angles_stay_in_the_picture() {
        let peaks = |n: u32| (0..n).map(|i| (f64::from(i), f64::from(i % 2))).collect();
        let (top, bottom) = rows(Shape::Line(vec![(0.0, 0.0), (1999.0, 1.0)]));
        for n in [200, 2000, 20_000] {
            let (first, last) = rows(Shape::Line(peaks(n)));
            assert!(first + 3 >= top && last <= bottom + 3, "{n}: {first}..{last}, not {top}..{bottom}");
        }
    }
}
