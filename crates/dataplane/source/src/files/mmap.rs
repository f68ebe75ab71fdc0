#![allow(unsafe_code)] // Maps files.

use bytes::Bytes;
use std::fs::File;
use std::io;

/// The file's contents, mapped.
pub fn map(file: &File) -> io::Result<Bytes> {
    // SAFETY: the mapping is private and read-only. If another process cuts the file short while it
    // is read, touching the missing pages ends this process with SIGBUS; that is tcpdump's fate under
    // a broken disk too, and no memory unsafety. Capture files are appended to, not cut.
    let map = unsafe { memmap2::Mmap::map(file)? };
    map.advise(memmap2::Advice::Sequential)?;
    Ok(Bytes::from_owner(map))
}
