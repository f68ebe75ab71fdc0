//! Services: calls of other modules, and calls by them.

use crate::out::Out;
use flame_abi::output::{CALL, CALL_HEAD, DONE_HEAD, MAX_REQUEST, REPLY, REPLY_HEAD, SERVE_HEAD};

pub use flame_abi::output::Outcome;

/// A call of a service that this module offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The number of the call, for [`Out::reply`]. It is valid until the reply, for one second at most.
    pub call: u64,
    /// The number of the service in `[[services]]` of `module.toml`.
    pub service: u16,
    /// The bytes that the caller chose, which may be any.
    pub bytes: &'a [u8],
}

/// The outcome of a call of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The token of the call.
    pub token: u64,
    pub outcome: Outcome,
    /// The number of calls that were not let out since the outcome before this one: they have none.
    pub lost: u32,
    /// The bytes of the reply, which may be any. Without one there are none.
    pub bytes: &'a [u8],
}

impl<'a> Request<'a> {
    /// Reads the data of `flame_serve`.
    #[doc(hidden)]
    pub fn read(data: &'a [u8]) -> Option<Self> {
        let (head, bytes) = data.split_first_chunk::<SERVE_HEAD>()?;
        let [call @ .., a, b, _, _, _, _, _, _] = *head;
        Some(Self { call: u64::from_le_bytes(call), service: u16::from_le_bytes([a, b]), bytes })
    }
}

impl<'a> Reply<'a> {
    /// Reads the data of `flame_done`.
    #[doc(hidden)]
    pub fn read(data: &'a [u8]) -> Option<Self> {
        let (head, bytes) = data.split_first_chunk::<DONE_HEAD>()?;
        let [token @ .., a, b, _, _, lost_0, lost_1, lost_2, lost_3] = *head;
        Some(Self {
            token: u64::from_le_bytes(token),
            outcome: Outcome::of(u16::from_le_bytes([a, b]))?,
            lost: u32::from_le_bytes([lost_0, lost_1, lost_2, lost_3]),
            bytes,
        })
    }
}

impl Out {
    /// Calls a service, by the number of its entry in `[[uses]]` of `module.toml`, which under a grant needs
    /// the right `call`, with at most 4,096 bytes. The outcome is a call of [`Slow::done`](crate::Slow::done)
    /// of the slow instance, with `token`. Returns false, and counts the call as lost, if it is longer or
    /// there is no memory for it; then there is no outcome.
    ///
    /// At most 256 calls of a module wait for their outcome. Further ones are not let out, and the next
    /// outcome has their number ([`Reply::lost`]).
    pub fn call(&mut self, service: u16, token: u64, bytes: &[u8]) -> bool {
        let mut head = [0; CALL_HEAD];
        head[..2].copy_from_slice(&service.to_le_bytes());
        head[8..].copy_from_slice(&token.to_le_bytes());
        self.put_service(CALL, &head, bytes)
    }

    /// Replies to a call of a service ([`Request::call`]), which under a grant needs the right `serve`, with
    /// at most 4,096 bytes: in the call in which it came, or in a later one of the slow instance. A second
    /// reply, or a late one, is dropped. Returns false, and counts the reply as lost, if it is
    /// longer or there is no memory for it.
    pub fn reply(&mut self, call: u64, bytes: &[u8]) -> bool {
        self.put_service(REPLY, &call.to_le_bytes() as &[u8; REPLY_HEAD], bytes)
    }

    fn put_service(&mut self, kind: u16, head: &[u8], bytes: &[u8]) -> bool {
        if bytes.len() > MAX_REQUEST {
            self.lose(kind);
            return false;
        }
        self.put_frame(kind, head, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{frames, output};

    #[test]
    fn calls_and_replies_are_written_as_the_host_reads_them() {
        let mut out = Out::default();
        assert!(out.call(3, 7, b"who") && out.reply(9, b"") && !out.call(0, 1, &[0; 4097]));
        assert!(!out.reply(1, &[0; 4097]) && out.reply(1, &[5; 4096]));
        let bytes = output(&mut out);
        let written: Vec<_> = frames(&bytes).collect();
        let call = [&[3, 0, 0, 0, 0, 0, 0, 0][..], &7_u64.to_le_bytes(), b"who"].concat();
        assert_eq!(written[..2], [(CALL, &call[..]), (REPLY, &9_u64.to_le_bytes()[..])]);
        assert_eq!((written[2].1.len(), written[3]), (4104, (0xfffe, &2_u64.to_le_bytes()[..])));
    }

    #[test]
    fn requests_and_outcomes_are_read_as_the_host_writes_them() {
        let request = [&9_u64.to_le_bytes()[..], &[2, 0, 0, 0, 0, 0, 0, 0], b"who"].concat();
        assert_eq!(Request::read(&request), Some(Request { call: 9, service: 2, bytes: b"who" }));
        let reply = [&7_u64.to_le_bytes()[..], &[3, 0, 0, 0, 1, 0, 0, 0], b"x"].concat();
        let expected = Reply { token: 7, outcome: Outcome::Late, lost: 1, bytes: b"x" };
        assert_eq!(Reply::read(&reply), Some(expected));
        assert_eq!((Request::read(&request[..15]), Reply::read(&[0xff; 16])), (None, None));
    }
}
