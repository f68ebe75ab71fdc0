//! Files that take no memory until their packets are due: neither buffers nor what a decoder needs, which is
//! up to 128 MiB for a file that zstd compressed. Of an archive of a thousand captures one after the other,
//! only one is read at a time.

use super::reader::Reader;
use super::spares::Spares;
use crate::{Damage, RawBlock, SourceError};
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

/// The place of a file in the order of packets: the time of its next packet, and its number among all files.
pub type Key = (u64, usize);

/// A file that is not due yet.
struct Later {
    name: String,
    file: Arc<File>,
    snaplen: u32,
    of_folder: bool,
    bytes: u64,
}

/// The files that are not due yet, by the times of their first packets.
#[derive(Default)]
pub struct Due {
    files: BTreeMap<Key, Later>,
    /// The sum of the lengths of the files.
    pub bytes: u64,
}

impl Due {
    /// Adds file `number`, or returns it if it cannot be read once more from its beginning. A file without a
    /// first packet is due at once: what is wrong with it is reported when it is read.
    pub fn add(&mut self, number: usize, mut reader: Reader, spares: &Spares) -> Option<Reader> {
        let Some(file) = reader.input.file().cloned() else { return Some(reader) };
        let mut block = RawBlock::default();
        let first = match reader.next(&mut block, &mut Vec::new()) {
            Ok(_) => block.packets.first().map_or(0, |packet| packet.ts_ns),
            Err(_) => 0,
        };
        drop(block);
        let (_, bytes) = reader.consumed();
        let Reader { file: name, snaplen, of_folder, input, .. } = reader;
        input.give_back(spares);
        let bytes = bytes.unwrap_or(0);
        self.bytes += bytes;
        let later = Later { name, file, snaplen, of_folder, bytes };
        self.files.insert((first, number), later);
        None
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the place of the first packet of all.
    pub fn first(&self) -> Option<Key> {
        self.files.first_key_value().map(|(key, _)| *key)
    }

    /// Opens the file of the first packet, and returns it with its number. One that cannot be read any more,
    /// because it was cut short or written again, is left out and reported in `damage`.
    ///
    /// # Errors
    ///
    /// Returns the error if it is not the file's.
    pub fn open(
        &mut self,
        spares: &Arc<Spares>,
        damage: &mut Vec<Damage>,
    ) -> Result<Option<(usize, Reader)>, SourceError> {
        while let Some(((_, number), later)) = self.files.pop_first() {
            let Later { name, file, snaplen, of_folder, bytes } = later;
            self.bytes -= bytes;
            match Reader::reopen(name.clone(), file, snaplen, spares) {
                Ok(reader) => return Ok(Some((number, reader.in_folder(of_folder)))),
                Err(error) => damage.push(super::skip(&name, error)?),
            }
        }
        Ok(None)
    }
}
