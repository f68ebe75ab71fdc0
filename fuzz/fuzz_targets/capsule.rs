//! A message between active nodes: refused with a field, or written again as the same bytes. The bound of a
//! capsule is then split, and nothing is created.
#![no_main]

use flame_capsule::{Bound, Message, Parts};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let message = match Message::read(data) {
        Ok(message) => message,
        Err(error) => {
            assert!(!error.field.is_empty() && error.at <= data.len().max(112), "{error}");
            return;
        }
    };
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    assert_eq!(bytes, data);
    let Message::Capsule(capsule) = message else { return };
    let mut bound = Bound::begin(capsule.limits);
    for argument in capsule.arguments {
        let before = bound.left();
        let length = usize::from(*argument);
        match bound.split(Parts::thousandths(i64::from(*argument) * 5), length) {
            Ok(child) => {
                let (left, given) = (bound.left(), child.left());
                assert_eq!(left.instructions + given.instructions, before.instructions);
                assert_eq!(left.bytes + given.bytes + u64::from(*argument), before.bytes);
                assert_eq!(left.copies + given.copies + 1, before.copies);
                assert_eq!(given.hops + 1, before.hops);
            }
            Err(_) => assert_eq!(bound.left(), before),
        }
    }
});
