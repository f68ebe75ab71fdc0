//! What is to be seen, without where.

/// One picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    pub title: String,
    /// Below the title, smaller.
    pub notes: Vec<String>,
    pub x: Axis,
    pub y: Axis,
    /// Drawn in this order; one with a name is in the legend.
    pub series: Vec<Series>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// With its unit.
    pub label: String,
    pub scale: Scale,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    Linear,
    /// Linear, from 0.
    FromZero,
    /// Whole numbers, each with a tick if there is room.
    Whole,
    /// Decades of a time; values are log10 of nanoseconds.
    LogTime,
    /// Powers of two of a size; values are log2 of bytes.
    LogBytes,
    /// Seconds since 1970, shown as UTC.
    Time,
    /// Row `n` from the top, of height 1, is the n-th word.
    Rows(Vec<String>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Empty: not in the legend.
    pub name: String,
    pub colour: usize,
    pub shape: Shape,
}

/// In the axes' values.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Line(Vec<(f64, f64)>),
    Points(Vec<(f64, f64)>),
    /// At x, from y to y.
    Whiskers(Vec<(f64, f64, f64)>),
    /// From (x, y) to (x, y).
    Boxes(Vec<[f64; 4]>),
}

impl Shape {
    /// The corners of all there is.
    fn corners(&self) -> Vec<(f64, f64)> {
        match self {
            Self::Line(points) | Self::Points(points) => points.clone(),
            Self::Whiskers(bars) => bars.iter().flat_map(|(x, a, b)| [(*x, *a), (*x, *b)]).collect(),
            Self::Boxes(boxes) => boxes.iter().flat_map(|[a, b, c, d]| [(*a, *b), (*c, *d)]).collect(),
        }
    }
}

impl Picture {
    /// Smallest and largest finite value on each axis, x first.
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
