//! What views cost, against copying the bytes that were captured.

use crate::fixture::{Error, base, blocks};
use crate::row::{Row, Way, in_turn};
use flame_abi::Descriptor;
use flame_block::Pool;
use flame_plan::{Action, Expose, Field, ViewSpec};
use flame_view::{Key, View};
use std::cell::RefCell;
use std::path::Path;

const GROUP: &str = "views: against memcpy of all packets";

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
    let mut rows = Vec::new();
    for (i, (name, expose, transforms)) in specs.into_iter().enumerate() {
        let mut view = View::new(&ViewSpec { select: vec![], expose, transforms }, Some(&key))?;
        let mut ways: [Way<'_, Error>; 2] = [
            Box::new(|| {
                for block in &blocks {
                    copy(&block.descriptors, &block.block.data, pool.borrow_mut().slot(0).1);
                }
                Ok(())
            }),
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
        let (times, ratios) = in_turn(rounds * 3, &mut ways)?;
        let ns = |i: usize| times[i] * 1e9 / packets as f64;
        let detail = format!("{:.1} / {:.1} ns a packet", ns(1), ns(0));
        rows.push(Row::ratio(GROUP, name, ratios[1], detail));
    }
    Ok(rows)
}

/// Every packet's bytes to the place behind the one before.
fn copy(descriptors: &[Descriptor], from: &[u8], to: &mut [u8]) {
    let mut at = 0;
    for d in descriptors {
        let n = d.cap_len as usize;
        to[at..at + n].copy_from_slice(&from[d.addr as usize..d.addr as usize + n]);
        at += n;
    }
}
