//! Writes packets with anonymised addresses to a capture file.
//!
//! This is the code of the views' transforms, inside the sandbox: where nothing of changed addresses is kept,
//! the output is byte for byte the same as that of `flame run --transform` under the same key.
#![forbid(unsafe_code)]

use flame_module::{Batch, Init, Module, Out, Progress};
use flame_transform::{Kept, Key, Rewriter};

mod tables {
    flame_module::manifest!();
}

pub struct Anonymize {
    /// The rewriter of addresses, or `None` if every field is kept.
    rewriter: Option<Rewriter>,
    worker: u32,
    packets: u64,
    bytes: u64,
    /// Bytes that were not parsed and might contain addresses.
    withheld: u64,
}

impl Module for Anonymize {
    fn new(init: &Init) -> Self {
        let params = tables::Params::from(init);
        let key = match params.key {
            "" => None,
            text => Some(Key::parse(text.as_bytes()).unwrap_or_else(|found| {
                panic!("parameter key: {found}; expected 64 hexadecimal digits, or @FILE that holds them")
            })),
        };
        let transforms = flame_transform::parse(params.transform);
        let transforms = transforms.unwrap_or_else(|e| panic!("parameter transform: {e}"));
        let rewriter = Rewriter::new(&transforms, key.as_ref()).unwrap_or_else(|e| {
            panic!("parameter transform: {e} (here: --set anonymize.key=@FILE)");
        });
        let kept = Kept { groups: params.groups, special: params.special };
        let rewriter = rewriter.map(|rewriter| rewriter.keeping(kept));
        Self { rewriter, worker: init.worker, packets: 0, bytes: 0, withheld: 0 }
    }

    fn batch(&mut self, batch: &Batch, out: &mut Out) {
        let link = batch.link();
        for packet in batch.packets() {
            let (bytes, mut understood) = (packet.bytes(), packet.bytes().len());
            let rewriter = &mut self.rewriter;
            let written = out.packet_changed(packet.ts_ns, packet.wire_len, link, bytes, |bytes| {
                if let Some(rewriter) = rewriter {
                    understood = rewriter.rewrite(link, bytes);
                }
                understood
            });
            if written {
                self.packets += 1;
                self.bytes += understood as u64;
                self.withheld += (bytes.len() - understood) as u64;
            }
        }
    }

    fn end(&mut self, _: u64, out: &mut Out) -> Progress {
        let &mut Self { worker, packets, bytes, withheld, .. } = self;
        out.write(&tables::Anonymized { worker, packets, bytes, withheld });
        Progress::Done
    }
}

flame_module::export!(Anonymize);

#[cfg(test)]
mod tests {
    use super::*;
    use flame_module::Descriptor;
    use flame_module::testing::{Native, Parameters};

    const KEY: &[u8] = b"0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20";

    /// Returns an Ethernet frame with an ICMP error that quotes a packet, then two bytes of padding.
    fn frame() -> Vec<u8> {
        let quoted =
            [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 9, 192, 0, 2, 7, 0, 53, 0, 53, 0, 8, 0, 0];
        let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0];
        f.extend([192, 0, 2, 7, 10, 0, 0, 9, 3, 3, 0, 0, 0, 0, 0, 0]);
        f.extend(quoted);
        f.extend([10, 9]);
        f
    }

    fn written(transform: &str) -> Vec<u8> {
        written_as(transform, false, false)
    }

    fn written_as(transform: &str, groups: bool, special: bool) -> Vec<u8> {
        let parameters = Parameters::default().with("transform", transform.as_bytes()).with("key", KEY);
        let parameters = parameters.integer("groups", groups.into()).integer("special", special.into());
        let mut native = Native::<Anonymize>::new(&parameters, 0);
        let bytes = frame();
        let d = Descriptor { ts_ns: 7, cap_len: bytes.len() as u32, wire_len: 80, ..Descriptor::default() };
        native.fast.batch_of(&[d], &bytes)
    }

    impl Anonymize {
        fn batch_of(&mut self, descriptors: &[Descriptor], memory: &[u8]) -> Vec<u8> {
            let header = flame_abi::BatchHeader { link: 1, ..Default::default() };
            let mut out = Out::default();
            self.batch(&Batch::new(descriptors, memory, 0, &header), &mut out);
            out.hand().0.to_vec()
        }
    }

    #[test]
    fn quoted_addresses_change_with_those_that_quote() {
        let out = written("ip=prefix");
        let packet = &out[8 + 16..];
        // Padding is not parsed, so it is withheld.
        assert_eq!(packet.len(), frame().len() - 2);
        assert_ne!(packet[26..34], frame()[26..34]);
        assert_eq!(packet[26..30], packet[58..62], "192.0.2.7, outside and quoted");
        assert_eq!(packet[30..34], packet[54..58], "10.0.0.9, outside and quoted");
        assert_eq!(&out[8..24], [7, 0, 0, 0, 0, 0, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0]);
    }

    /// 192.0.2.7 is an address of documentation; the frame goes to one host.
    #[test]
    fn special_ranges_and_groups_are_kept_on_request() {
        let out = written_as("ip=prefix,mac=hash", true, true);
        let packet = &out[8 + 16..];
        assert_eq!(packet[26..30], [192, 0, 2, 7]);
        assert_ne!(packet[30..34], [10, 0, 0, 9]);
        assert_eq!(packet[30..34], packet[54..58], "10.0.0.9, outside and quoted");
        assert_ne!(packet[..12], frame()[..12]);
        assert_eq!((packet[0] & 1, packet[6] & 1), (0, 0));
    }

    #[test]
    fn nothing_to_change_changes_nothing() {
        assert_eq!(written("")[24..], frame());
    }

    #[test]
    #[should_panic(expected = "needs a key")]
    fn a_key_is_needed() {
        let parameters = Parameters::default().with("transform", b"ip=prefix").with("key", b"");
        let parameters = parameters.integer("groups", 1).integer("special", 0);
        Native::<Anonymize>::new(&parameters, 0);
    }
}
