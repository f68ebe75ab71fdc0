//! Calls of services and replies to them: frames of kind [`CALL`](flame_abi::output::CALL) and
//! [`REPLY`](flame_abi::output::REPLY).

use crate::error::Fault;
use flame_abi::output::{CALL_HEAD, MAX_REQUEST, REPLY_HEAD};

/// Splits the payload of a call: number of the use, token, and request.
pub(crate) fn call(payload: &[u8]) -> Option<(u16, u64, &[u8])> {
    let (head, request) = payload.split_first_chunk::<CALL_HEAD>()?;
    let [a, b, 0, 0, 0, 0, 0, 0, token @ ..] = *head else { return None };
    Some((u16::from_le_bytes([a, b]), u64::from_le_bytes(token), request))
}

/// Splits the payload of a reply: number of the call, and reply.
pub(crate) fn reply(payload: &[u8]) -> Option<(u64, &[u8])> {
    let (call, reply) = payload.split_first_chunk::<REPLY_HEAD>()?;
    Some((u64::from_le_bytes(*call), reply))
}

/// Checks the payload of a call by a module that uses this many services.
pub(crate) fn check_call(payload: &[u8], uses: usize) -> Result<(), Fault> {
    let Some((found, _, request)) = call(payload) else {
        return Err(Fault::CallHead { length: payload.len() });
    };
    if usize::from(found) >= uses {
        return Err(Fault::Use { found, uses });
    }
    fits(request)
}

/// Checks the payload of a reply by a module that offers this many services.
pub(crate) fn check_reply(payload: &[u8], services: usize) -> Result<(), Fault> {
    if services == 0 {
        return Err(Fault::Serve);
    }
    let Some((_, bytes)) = reply(payload) else { return Err(Fault::ReplyHead { length: payload.len() }) };
    fits(bytes)
}

fn fits(bytes: &[u8]) -> Result<(), Fault> {
    match bytes.len() <= MAX_REQUEST {
        true => Ok(()),
        false => Err(Fault::LongRequest { length: bytes.len() }),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Frame, Gate, Schema, frames};
    use flame_abi::manifest::Manifest;
    use flame_abi::output::{CALL, REPLY};
    use flame_plan::{Services, Terms};
    use flame_quota::Meters;

    fn manifest(tables: &str) -> Manifest {
        let text = format!("abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n{tables}");
        Manifest::parse(text.as_bytes()).unwrap()
    }

    fn frame(kind: u16, payload: &[u8]) -> Vec<u8> {
        [&(payload.len() as u32).to_le_bytes()[..], &kind.to_le_bytes(), &[0, 0], payload].concat()
    }

    fn call(head: [u8; 8], bytes: usize) -> Vec<u8> {
        frame(CALL, &[&head[..], &7_u64.to_le_bytes(), &vec![5; bytes]].concat())
    }

    #[test]
    fn calls_are_of_a_declared_use_and_of_a_length() {
        let both = "[[uses]]\nname = \"a\"\n[[uses]]\nname = \"b\"\n[[services]]\nname = \"c\"";
        let schema = Schema::new(&manifest(both));
        let reply = |bytes: usize| frame(REPLY, &[&9_u64.to_le_bytes()[..], &vec![5; bytes]].concat());
        let output = [call([1, 0, 0, 0, 0, 0, 0, 0], 2), call([0; 8], 4096), reply(0), reply(4096)].concat();
        let counts = schema.check(&output, true).unwrap();
        assert_eq!((counts.calls, counts.replies), (2, 2));
        let read: Vec<_> = frames(&output).take(3).collect();
        let expected = [
            Frame::Call { used: 1, token: 7, request: &[5; 2] },
            Frame::Call { used: 0, token: 7, request: &[5; 4096] },
            Frame::Reply { call: 9, reply: &[] },
        ];
        assert_eq!(read, expected);
        for (bad, said) in [
            (call([2, 0, 0, 0, 0, 0, 0, 0], 0), "service 2, the manifest lists 2 in [[uses]]"),
            (call([0, 0, 1, 0, 0, 0, 0, 0], 0), "number, 0, 0, token; found 16 that do not"),
            (call([0, 0, 0, 0, 0, 0, 0, 1], 0), "number, 0, 0, token"),
            (call([0; 8], 4097), "4097 bytes for a service or from it, at most 4096"),
            (frame(CALL, &[0; 15]), "found 15 that do not"),
            (reply(4097), "4097 bytes"),
            (frame(REPLY, &[0; 7]), "a reply begins with 8 bytes"),
        ] {
            let error = schema.check(&bad, true).unwrap_err().to_string();
            assert!(error.contains(said), "{said}\n{error}");
        }
        let none = Schema::new(&manifest(""));
        let error = |bad: &[u8]| none.check(bad, true).unwrap_err().to_string();
        assert!(error(&call([0; 8], 0)).contains("lists 0 in [[uses]]"));
        assert!(error(&reply(0)).contains("a reply, but the manifest offers nothing in [[services]]"));
    }

    #[test]
    fn without_the_right_nothing_is_let_out() {
        let lets = |services: Services| {
            let terms = Terms { services, ..Terms::default() };
            let mut gate = Gate::new(&manifest(""), &terms, &Meters::default());
            let call = gate.lets(&Frame::Call { used: 0, token: 0, request: &[] });
            (call, gate.lets(&Frame::Reply { call: 0, reply: &[] }))
        };
        assert_eq!(lets(Services::default()), (true, true));
        assert_eq!(lets(Services { call: false, serve: true }), (false, true));
        assert_eq!(lets(Services { call: true, serve: false }), (true, false));
    }
}
