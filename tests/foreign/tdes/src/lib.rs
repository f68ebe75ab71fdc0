//! `des`: triple DES of every whole block of a payload, each for itself.

use des::TdesEde3;
use des::cipher::{BlockCipherEncrypt, KeyInit};
use each::{Each, Look};

struct Tdes(TdesEde3);

impl Look for Tdes {
    fn new() -> Self {
        Self(TdesEde3::new(b"0123456789abcdefghijklmn".into()))
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        let blocks = bytes.as_chunks::<8>().0.iter();
        blocks
            .map(|b| {
                let mut block = (*b).into();
                self.0.encrypt_block(&mut block);
                u64::from(block[7] & 1)
            })
            .sum()
    }
}

flame_module::export!(Each<Tdes>);
