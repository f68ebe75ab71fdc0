//! Frames, heads and cuts as bytes.

use crate::at;
use flame_spool::{
    Batch, Bytes, Cut, Epoch, Frame, FrameError, HEADER, Hash, Head, MAX_BODY, MAX_ENDS, Range, Totals,
};

fn frame(body: &[u8]) -> Vec<u8> {
    let before = Totals { rows: 5, bytes: 50, until: 7 };
    let batch = Batch { rows: 3, first: 8, last: 9, body };
    let mut bytes = Vec::new();
    Frame::new(at(1, 2), before, Hash([9; 16]), &batch).unwrap().write(&mut bytes);
    bytes
}

#[test]
fn a_frame_reads_as_it_was_written() {
    let bytes = frame(b"body");
    assert_eq!(bytes.len(), HEADER + 4);
    let more = [&bytes[..], b"rest"].concat();
    let mut from = Bytes::new(&more, 0);
    let read = Frame::read(&mut from).unwrap();
    assert_eq!((read.body, read.header.rows, from.rest()), (&b"body"[..], 3, &b"rest"[..]));
    assert_eq!(read.header.after(), Totals { rows: 8, bytes: 54, until: 9 });
}

/// Each changed bit and each missing byte is noticed, and the error states a place.
#[test]
fn damage_has_a_place() {
    let bytes = frame(b"a body");
    for at in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[at / 8] ^= 1 << (at % 8);
        let error = Frame::read(&mut Bytes::new(&changed, 1000)).unwrap_err().to_string();
        assert!(error.starts_with("at byte 1") && error.contains("expected"), "bit {at}: {error}");
    }
    for length in 0..bytes.len() {
        let error = Frame::read(&mut Bytes::new(&bytes[..length], 0)).unwrap_err();
        assert!(matches!(error, FrameError::Short { .. }), "{length}: {error}");
    }
}

#[test]
fn a_batch_at_fault_makes_no_frame() {
    let make = |batch: &Batch<'_>, rows| {
        let before = Totals { rows, ..Totals::default() };
        Frame::new(at(1, 1), before, Hash::default(), batch).map(|_| ()).unwrap_err()
    };
    let large = vec![0; MAX_BODY + 1];
    assert!(make(&Batch { rows: 1, first: 1, last: 1, body: &large }, 0).contains("983,040"));
    assert_eq!(MAX_BODY, 983_040);
    assert!(make(&Batch { rows: 1, first: 2, last: 1, body: b"" }, 0).contains("before"));
    assert!(make(&Batch { rows: 1, first: 1, last: 1, body: b"" }, u64::MAX).contains("64 bits"));
}

/// Of more ends than a head can name, the rows of the oldest are counted with the next.
#[test]
fn a_head_reads_as_it_was_written_and_loses_no_row() {
    let totals = |rows| Totals { rows, bytes: 2 * rows, until: rows };
    let end = |n: u64| Range { epoch: Epoch(n), floor: n + 1, last: n, totals: totals(n) };
    let head = |ends: Vec<Range>| Head { first: at(7, 4), before: totals(3), previous: Hash([1; 16]), ends };
    let few = head((1..4).map(end).collect());
    assert_eq!(Head::read(&mut Bytes::new(&few.to_bytes(), 0)).unwrap(), few);
    let many = head((1..=MAX_ENDS as u64 + 2).map(end).collect());
    let read = Head::read(&mut Bytes::new(&many.to_bytes(), 0)).unwrap();
    let rows = |head: &Head| head.ends.iter().map(|end| end.totals.rows).sum::<u64>();
    assert_eq!((read.ends.len(), read.ends[0].epoch, rows(&read)), (MAX_ENDS, Epoch(3), rows(&many)));
    for at in 0..few.to_bytes().len() * 8 {
        let mut changed = few.to_bytes();
        changed[at / 8] ^= 1 << (at % 8);
        assert!(Head::read(&mut Bytes::new(&changed, 0)).is_err(), "bit {at}");
    }
}

#[test]
fn a_damaged_cut_is_refused() {
    for length in [0, 3, 4, 63, 65] {
        let error = Cut::read(&vec![b'F'; length]).unwrap_err().to_string();
        assert!(error.contains("at byte") && error.contains("expected"), "{error}");
    }
}
