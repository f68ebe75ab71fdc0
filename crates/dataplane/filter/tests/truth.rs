//! Compares the number of matching packets with display filters of tshark, over public captures.
//!
//! `data/tshark.py` stored tshark's counts in `data/tshark.tsv`. Needs the shared captures (`FLAME_TRACES`);
//! reports and passes without them.

use super::captures;
use super::language::{Expression, Layers};
use flame_abi::LinkType;
use flame_filter::Filter;

const COUNTS: &str = include_str!("data/tshark.tsv");
const FILTERS: &str = include_str!("data/filters.tsv");

#[test]
fn as_many_packets_as_tshark() {
    let Some(folder) = captures::traces() else {
        eprintln!("skipped: no captures, set FLAME_TRACES");
        return;
    };
    let mut rows = COUNTS.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let texts = rows.next().unwrap().split_off(1);
    let stated: Vec<&str> = FILTERS.lines().skip(1).map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(texts, stated, "make tshark.tsv again");
    let mut filters = Vec::new();
    for text in texts {
        let filter = Filter::compile(text, LinkType::ETHERNET).unwrap();
        filters.push((text, filter, Expression::read(text, Layers::ETHERNET).unwrap()));
    }
    let (mut files, mut matched, mut wrong) = (0, 0, Vec::new());
    for row in rows {
        let Ok(bytes) = std::fs::read(folder.join(row[0])) else { continue };
        let capture = captures::classic(&bytes).expect(row[0]);
        files += 1;
        for ((text, filter, expression), count) in filters.iter().zip(&row[1..]) {
            let is_ours = |p: &&super::language::Packet| filter.matches(&p.bytes, p.wire_len);
            let ours = capture.packets.iter().filter(is_ours).count();
            let meant = capture.packets.iter().filter(|p| expression.matches(p)).count();
            assert_eq!(ours, meant, "{text} over {}", row[0]);
            matched += ours;
            if ours.to_string() != *count {
                wrong.push(format!("{}: {text}: {ours}, tshark {count}", row[0]));
            }
        }
    }
    println!("{files} files, {matched} packets matched");
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), files * filters.len());
    assert!(files > 50 && matched > 1000, "the comparison is idle");
}
