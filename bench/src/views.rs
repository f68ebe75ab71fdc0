//! The cost of views, compared to copying all captured bytes, and to copying the exposed ones.

use crate::fixture::{Error, base, blocks};
use crate::row::{Row, Way, laps, median, paired};
use flame_abi::Descriptor;
use flame_block::Pool;
use flame_plan::{Action, Expose, Field, ViewSpec};
use flame_view::{Key, View};
use std::cell::RefCell;
use std::path::Path;

const CAPTURED: &str = "views: against copying all captured bytes";
const EXPOSED: &str = "views: against copying the exposed bytes";

pub fn rows(trace: &Path, rounds: usize) -> Result<Vec<Row>, Error> {
    let blocks = blocks(trace, 64)?;
    let packets: usize = blocks.iter().map(|b| b.descriptors.len()).sum();
    let pool = RefCell::new(Pool::new(1)?);
    let key = Key::new([7; 32]);
    let prefix: std::collections::BTreeMap<Field, Action> =
        [(Field::IpSrc, Action::Prefix), (Field::IpDst, Action::Prefix)].into();
    let specs = [
        ("all, where it lies (select only)", Expose::All, Default::default()),
        ("descriptors only", Expose::None, Default::default()),
        ("headers", Expose::Headers, Default::default()),
        ("headers, addresses by prefix", Expose::Headers, prefix),
        ("headers and 64 bytes", Expose::Payload(64), Default::default()),
        ("all, copied", Expose::All, Default::default()),
    ];
    let (mut rows, mut of_exposed) = (Vec::new(), Vec::new());
    for (i, (name, expose, transforms)) in specs.into_iter().enumerate() {
        let mut view = View::new(&ViewSpec { expose, transforms, ..ViewSpec::default() }, Some(&key))?;
        let mut lengths = Vec::new();
        for block in &blocks {
            let mut pool = pool.borrow_mut();
            let (descriptors, data) = pool.slot(0);
            let (from, link) = (&block.block.data, |i: usize| block.block.packets[i].link);
            let written = view.copy(&block.descriptors, link, from, descriptors, data, base(0))?;
            let shown = &descriptors[..written.packets as usize];
            lengths.push(shown.iter().map(|d| d.cap_len).collect::<Vec<_>>());
        }
        let shown: u64 = lengths.iter().flatten().map(|n| u64::from(*n)).sum();
        let plain = |lengths: Option<&[Vec<u32>]>| {
            for (i, block) in blocks.iter().enumerate() {
                let mut pool = pool.borrow_mut();
                let (from, to) = (&block.block.data, pool.slot(0).1);
                match lengths {
                    Some(lengths) => copy(&block.descriptors, lengths[i].iter().copied(), from, to),
                    None => copy(&block.descriptors, block.descriptors.iter().map(|d| d.cap_len), from, to),
                }
            }
            Ok(())
        };
        let mut ways: [Way<'_, Error>; 3] = [
            Box::new(|| plain(None)),
            Box::new(|| plain(Some(&lengths))),
            Box::new(|| {
                for block in &blocks {
                    let mut pool = pool.borrow_mut();
                    let (descriptors, data) = pool.slot(0);
                    let (from, link) = (&block.block.data, |i: usize| block.block.packets[i].link);
                    if i == 0 {
                        view.select(&block.descriptors, link, from, descriptors, base(0))?;
                    } else {
                        view.copy(&block.descriptors, link, from, descriptors, data, base(0))?;
                    }
                }
                Ok(())
            }),
        ];
        let times = laps(rounds * 3, &mut ways)?;
        let ns = |i: usize| median(times[i].clone()) * 1e9 / packets as f64;
        let detail = |i: usize| format!("{:.1} / {:.1} ns a packet", ns(2), ns(i));
        rows.push(Row::ratio(CAPTURED, name, paired(&times[2], &times[0]), detail(0)));
        // If nothing is exposed, there is nothing to copy.
        if shown > 0 {
            of_exposed.push(Row::ratio(EXPOSED, name, paired(&times[2], &times[1]), detail(1)));
        }
    }
    rows.extend(of_exposed);
    Ok(rows)
}

/// Copies the first bytes of every packet, one after the other.
fn copy(descriptors: &[Descriptor], lengths: impl Iterator<Item = u32>, from: &[u8], to: &mut [u8]) {
    let mut at = 0;
    for (d, n) in descriptors.iter().zip(lengths) {
        let n = n as usize;
        to[at..at + n].copy_from_slice(&from[d.addr as usize..d.addr as usize + n]);
        at += n;
    }
}
