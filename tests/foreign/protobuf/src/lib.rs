//! `quick-protobuf`'s reader: fields of payloads that are messages from end to end.

use each::{Each, Look};
use quick_protobuf::BytesReader;

struct Fields;

impl Look for Fields {
    fn new() -> Self {
        Self
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        let mut reader = BytesReader::from_bytes(bytes);
        let mut fields = 0;
        while !reader.is_eof() {
            let field = reader.next_tag(bytes).and_then(|tag| reader.read_unknown(bytes, tag));
            if field.is_err() {
                return 0;
            }
            fields += 1;
        }
        fields
    }
}

flame_module::export!(Each<Fields>);
