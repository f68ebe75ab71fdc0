//! The names in a DNS message and in a TLS ClientHello: bounded, and the same however much follows or is cut
//! off.
#![no_main]

use flame_ids::engine::{Names, server_name};
use libfuzzer_sys::fuzz_target;

fn names(message: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut names = Names::default();
    names.message(message)?;
    Some(names.iter().map(<[u8]>::to_vec).collect())
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else { return };
    let cut = &data[..data.len().min(usize::from(*choice) * 4)];
    let whole = names(data);
    if let Some(found) = &whole {
        assert!(found.len() <= 16, "{} names", found.len());
        assert!(found.iter().all(|name| name.first() == Some(&b'.') && name.len() <= 256));
    }
    // What is read of a message does not depend on what follows it.
    if let Some(found) = names(cut) {
        assert_eq!(Some(found), whole);
    }
    if let Some(found) = server_name(cut) {
        assert_eq!(Some(found), server_name(data));
    }
});
