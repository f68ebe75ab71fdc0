//! `prefix-trie`, five bits a step: destinations that are in our table.

use each::{Each, Look, Packet};
use prefix_trie::PrefixMap;

struct Trie(PrefixMap<(u32, u8), u8>);

impl Look for Trie {
    fn new() -> Self {
        Self(each::NETWORKS.map(|(address, bits)| ((address.to_bits(), bits as u8), 0)).into_iter().collect())
    }

    fn part<'a>(packet: &Packet<'a>) -> &'a [u8] {
        packet.l3()
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        let Some(to) = bytes.get(16..20) else { return 0 };
        let to = u32::from_be_bytes([to[0], to[1], to[2], to[3]]);
        self.0.get_lpm(&(to, 32)).is_some().into()
    }
}

flame_module::export!(Each<Trie>);
