//! events: draws the rows of a table over time, stacked by a word.
//!
//! Usage:    a plot in module.toml with kind = "events"; --plot FILE.svg, FILE.png, term or NAME
//! Expects:  a table with a column x of times and, with a group, a column of words.
//! Gives:    60 stacked bars over the time of the rows; if there are more than seven words,
//!           all but the six most frequent ones share a colour.
//! Example:  flame run ids -r FILE --expose all --plot alerts.svg
//! Related:  line, histogram, docs/manifest.md

use super::count;
use super::declared::Declared;
use crate::Run;
use crate::picture::{Axis, Picture, Scale, Series, Shape};
use std::collections::BTreeMap;

/// Maximum number of kinds with their own colours.
const KINDS: usize = 6;
const BINS: usize = 60;

pub(super) fn draw(declared: &Declared, runs: &[Run]) -> Option<Picture> {
    let plot = &declared.plot;
    let frame = &runs.first()?.frames[0];
    let all = frame.numbers(&plot.x);
    let times: Vec<f64> = all.iter().copied().filter(|time| time.is_finite()).collect();
    let (first, last) = times.iter().fold((f64::INFINITY, 0.0f64), |(a, b), t| (a.min(*t), b.max(*t)));
    if !first.is_finite() {
        return None;
    }
    let (first, last) = (first / 1e9, last / 1e9);
    // If all events have the same time, the box is one second wide.
    let width = ((last - first) / BINS as f64).max(1.0 / BINS as f64);
    let what = plot.unit.clone().unwrap_or_else(|| plot.table.clone());
    let mut kinds: BTreeMap<&str, [f64; BINS]> = BTreeMap::new();
    let mut add = |time: &f64, kind| {
        let bin = ((time / 1e9 - first) / width) as usize;
        kinds.entry(kind).or_insert([0.0; BINS])[bin.min(BINS - 1)] += 1.0;
    };
    match &plot.group {
        Some(group) => {
            let rows = all.iter().zip(frame.words(group)).filter(|(time, _)| time.is_finite());
            rows.for_each(|(time, kind)| add(time, kind))
        }
        None => times.iter().for_each(|time| add(time, what.as_str())),
    }
    let sum = |bins: &[f64; BINS]| bins.iter().sum::<f64>();
    let mut kinds: Vec<_> = kinds.into_iter().map(|(name, bins)| (name.to_owned(), bins)).collect();
    kinds.sort_by(|a, b| sum(&b.1).total_cmp(&sum(&a.1)).then(a.0.cmp(&b.0)));
    if kinds.len() > KINDS + 1 {
        let rest = kinds.split_off(KINDS);
        let mut others = [0.0; BINS];
        rest.iter().for_each(|(_, bins)| others.iter_mut().zip(bins).for_each(|(sum, n)| *sum += n));
        kinds.push((format!("{} others", rest.len()), others));
    }
    // Boxes are stacked.
    let mut below = [0.0; BINS];
    let series = kinds.iter().enumerate().map(|(colour, (name, bins))| {
        let boxes = bins.iter().zip(&mut below).enumerate().map(|(i, (n, below))| {
            let (from, base) = (first + width * i as f64, *below);
            *below += n;
            [from + width * 0.05, base, from + width * 0.95, base + n]
        });
        Series { name: format!("{name}: {}", count(sum(bins))), colour, shape: Shape::Boxes(boxes.collect()) }
    });
    let series = series.collect();
    let each = flame_record::human::duration((width * 1e9) as i64);
    let mut notes = vec![format!("{} in all, each bar {each}", count(all.len() as f64))];
    notes.extend(super::without_place(all.len() - times.len()));
    Some(Picture {
        title: declared.title(),
        notes,
        x: Axis { label: plot.x_label.clone().unwrap_or_else(|| "time".into()), scale: Scale::Time },
        y: Axis { label: what, scale: Scale::FromZero },
        series,
    })
}
