//! `httparse`: header lines of what goes to and from port 80 and begins with a request.

use each::{Each, Look};
use httparse::{EMPTY_HEADER, Request};

struct Http;

impl Look for Http {
    fn new() -> Self {
        Self
    }

    fn look(&mut self, bytes: &[u8]) -> u64 {
        let mut headers = [EMPTY_HEADER; 32];
        let mut request = Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(_) => request.headers.iter().filter(|h| !h.name.is_empty()).count() as u64,
            Err(_) => 0,
        }
    }
}

flame_module::export!(Each<Http>);
