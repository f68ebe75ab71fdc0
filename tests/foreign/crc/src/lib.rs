//! `crc`, a table of 256: payloads whose CRC-32 is odd.

use crc::{CRC_32_ISO_HDLC, Crc};
use each::{Each, Look};

static CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

struct Odd;

impl Look for Odd {
    fn new() -> Self {
        Self
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        u64::from(CRC.checksum(bytes) & 1)
    }
}

flame_module::export!(Each<Odd>);
