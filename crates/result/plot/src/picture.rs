//! The content of a picture, without its layout.

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    pub title: String,
    /// Lines in smaller print below the title.
    pub notes: Vec<String>,
    pub x: Axis,
    pub y: Axis,
    /// The series in the order in which they are drawn. Those with a name are in the legend.
    pub series: Vec<Series>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The label, including the unit.
    pub label: String,
    pub scale: Scale,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    Linear,
    /// A linear scale from 0.
    FromZero,
    /// A linear scale of whole numbers, each with a tick if there is room.
    Whole,
    /// A logarithmic scale of times, in decades. Values are log10 of nanoseconds.
    LogTime,
    /// A logarithmic scale of sizes, in powers of two. Values are log2 of bytes.
    LogBytes,
    /// Times in seconds since 1970, shown as UTC.
    Time,
    /// Rows of height 1. Row `n` from the top is labelled with the n-th word.
    Rows(Vec<String>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name. If it is empty, the series is not in the legend.
    pub name: String,
    pub colour: usize,
    pub shape: Shape,
}

/// The form of a series, in the units of the axes.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Line(Vec<(f64, f64)>),
    Points(Vec<(f64, f64)>),
    /// Vertical bars, each at x from y to y.
    Whiskers(Vec<(f64, f64, f64)>),
    /// Boxes, each from (x, y) to (x, y).
    Boxes(Vec<[f64; 4]>),
}

impl Shape {
    /// Returns the corners of all elements.
    fn corners(&self) -> Vec<(f64, f64)> {
        match self {
            Self::Line(points) | Self::Points(points) => points.clone(),
            Self::Whiskers(bars) => bars.iter().flat_map(|(x, a, b)| [(*x, *a), (*x, *b)]).collect(),
            Self::Boxes(boxes) => boxes.iter().flat_map(|[a, b, c, d]| [(*a, *b), (*c, *d)]).collect(),
        }
    }
}

impl Picture {
    /// Returns the smallest and largest finite value on each axis, x first.
    pub(crate) fn extent(&self) -> [Option<(f64, f64)>; 2] {
        let mut extent = [None; 2];
        for (x, y) in self.series.iter().flat_map(|s| s.shape.corners()) {
            for (range, v) in extent.iter_mut().zip([x, y]) {
                if v.is_finite() {
                    let (low, high) = range.unwrap_or((v, v));
                    *range = Some((v.min(low), v.max(high)));
                }
            }
        }
        extent
    }
}
