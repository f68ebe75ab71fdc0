//! The tests of this crate.

mod codec;
mod crash;
mod life;

use flame_spool::{Batch, Epoch, Position, Reader, Writer};
use std::path::Path;

/// Opens a spool whose epochs are `first`, `first + 1` and so on.
fn open(path: &Path, bound: u64, first: u64) -> Writer {
    let mut next = first;
    let fresh = move || {
        next += 1;
        Epoch(next - 1)
    };
    Writer::open(path, bound, fresh).unwrap()
}

/// Appends a batch of `rows` rows and as many bytes, and syncs it.
fn append(writer: &mut Writer, rows: u64) -> Position {
    let body = vec![rows as u8; rows as usize];
    let position = writer.append(&Batch { rows, first: rows, last: rows + 1, body: &body }).unwrap();
    writer.sync().unwrap();
    position
}

/// Returns the number of rows of each batch that a reader finds, with its position.
fn found(reader: &Reader) -> Vec<(Position, u64)> {
    use flame_spool::Kept;
    let (mut all, mut at, mut bytes) = (Vec::new(), reader.first(None), Vec::new());
    while let Some(position) = at {
        let frame = reader.read(position, &mut bytes).unwrap().unwrap();
        assert_eq!(frame.body, vec![frame.header.rows as u8; frame.header.rows as usize]);
        assert_eq!(frame.header.position, position);
        all.push((position, frame.header.rows));
        at = reader.first(Some(position.next())).filter(|next| *next != position);
    }
    all
}

fn at(epoch: u64, sequence: u64) -> Position {
    Position { epoch: Epoch(epoch), sequence }
}
