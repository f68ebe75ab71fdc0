//! `treebitmap`, which routers' tables are kept in: destinations that are in ours.

use each::{Each, Look, Packet};
use ip_network_table_deps_treebitmap::IpLookupTable;
use std::net::Ipv4Addr;

struct Trie(IpLookupTable<Ipv4Addr, u8>);

impl Look for Trie {
    fn new() -> Self {
        let mut table = IpLookupTable::new();
        for (address, bits) in each::NETWORKS {
            table.insert(address, bits, 0);
        }
        Self(table)
    }

    fn part<'a>(packet: &Packet<'a>) -> &'a [u8] {
        packet.l3()
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        let Some(to) = bytes.get(16..20) else { return 0 };
        self.0.longest_match(Ipv4Addr::new(to[0], to[1], to[2], to[3])).is_some().into()
    }
}

flame_module::export!(Each<Trie>);
