//! The head of a request or of an answer (RFC 9112, sections 2 to 5): its first line, and the fields up to an
//! empty line.

/// The longest head that is put together, in bytes.
pub const LONGEST: usize = 8192;
/// The largest number of lines of a head that are read.
const LINES: usize = 256;

/// The methods at which a request is known (IANA, HTTP Method Registry; SSDP; Microsoft's RPC over HTTP).
const METHODS: [&[u8]; 43] = [
    b"GET",
    b"POST",
    b"HEAD",
    b"PUT",
    b"DELETE",
    b"OPTIONS",
    b"CONNECT",
    b"TRACE",
    b"PATCH",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"SEARCH",
    b"REPORT",
    b"MERGE",
    b"NOTIFY",
    b"SUBSCRIBE",
    b"UNSUBSCRIBE",
    b"M-SEARCH",
    b"POLL",
    b"BCOPY",
    b"BMOVE",
    b"BDELETE",
    b"BPROPFIND",
    b"BPROPPATCH",
    b"LABEL",
    b"VERSION-CONTROL",
    b"CHECKOUT",
    b"UNCHECKOUT",
    b"CHECKIN",
    b"UPDATE",
    b"MKACTIVITY",
    b"BASELINE-CONTROL",
    b"MKWORKSPACE",
    b"PURGE",
    b"ICY",
    b"RPC_IN_DATA",
    b"RPC_OUT_DATA",
    b"BITS_POST",
];
/// The longest of them.
const METHOD: usize = 16;

/// The kind of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Answer,
}

/// Returns the kind of head with which these bytes begin, if they are the first ones of one.
#[inline]
pub fn kind(bytes: &[u8]) -> Option<Kind> {
    let first = *bytes.first()?;
    if !first.is_ascii_uppercase() {
        return None;
    }
    if bytes.starts_with(b"HTTP/") {
        return Some(Kind::Answer);
    }
    let len = bytes.iter().take(METHOD + 1).position(|b| *b == b' ')?;
    METHODS.contains(&&bytes[..len]).then_some(Kind::Request)
}

/// Returns whether these bytes begin a head of a kind, or are the first few of one.
pub fn begins(bytes: &[u8], kind: Kind) -> bool {
    let agrees = |known: &[u8]| known.iter().zip(bytes).all(|(known, byte)| known == byte);
    let is_one = match kind {
        Kind::Answer => agrees(b"HTTP/"),
        Kind::Request => METHODS.iter().any(|m| agrees(m) && bytes.get(m.len()).is_none_or(|b| *b == b' ')),
    };
    !bytes.is_empty() && is_one
}

/// Returns the kind of head of which these bytes are the first few, if they are fewer than [`kind`] needs.
/// What may begin both kinds counts as a request.
#[inline]
pub fn beginning(bytes: &[u8]) -> Option<Kind> {
    if bytes.len() > METHOD || !bytes.first()?.is_ascii_uppercase() {
        return None;
    }
    [Kind::Request, Kind::Answer].into_iter().find(|kind| begins(bytes, *kind))
}

/// The values of a head. Fields that it does not have are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head<'a> {
    pub method: &'a [u8],
    pub target: &'a [u8],
    pub version: &'a [u8],
    pub status: u16,
    pub host: &'a [u8],
    pub agent: &'a [u8],
    /// The value of Content-Length.
    pub length: Option<u64>,
    pub is_chunked: bool,
    /// The length of the head in bytes.
    pub end: usize,
}

/// What the first bytes of a stream hold.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    Head(Head<'a>),
    /// The beginning of one, with the values so far if its first line is whole.
    Part(Option<Head<'a>>),
    Malformed,
}

/// Returns the line at `at`, without its end, and the offset after it.
fn line(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(at..)?;
    let len = rest.iter().position(|b| *b == b'\n')?;
    let line = &rest[..len];
    Some((line.strip_suffix(b"\r").unwrap_or(line), at + len + 1))
}

impl<'a> Head<'a> {
    /// Reads the head with which a stream begins.
    pub fn read(stream: &'a [u8], kind: Kind) -> Found<'a> {
        let mut head = Self::default();
        let Some((first, mut at)) = line(stream, 0) else { return Found::Part(None) };
        let is_well_formed = match kind {
            Kind::Request => head.request_line(first),
            Kind::Answer => head.status_line(first),
        };
        if is_well_formed.is_none() {
            return Found::Malformed;
        }
        for _ in 0..LINES {
            let Some((field, next)) = line(stream, at) else { return Found::Part(Some(head)) };
            at = next;
            if field.is_empty() {
                head.end = at;
                return Found::Head(head);
            }
            head.field(field);
        }
        Found::Malformed
    }

    fn request_line(&mut self, line: &'a [u8]) -> Option<()> {
        let method = line.iter().position(|b| *b == b' ')?;
        let version = line.iter().rposition(|b| *b == b' ')?;
        self.method = &line[..method];
        self.version = line[version..].strip_prefix(b" HTTP/")?;
        self.target = line.get(method + 1..version)?.trim_ascii();
        Some(())
    }

    fn status_line(&mut self, line: &'a [u8]) -> Option<()> {
        let rest = line.strip_prefix(b"HTTP/")?;
        let space = rest.iter().position(|b| *b == b' ')?;
        self.version = &rest[..space];
        let mut digits = 0;
        for byte in rest[space..].trim_ascii_start().iter().take_while(|b| b.is_ascii_digit()).take(3) {
            self.status = self.status * 10 + u16::from(byte - b'0');
            digits += 1;
        }
        (digits == 3).then_some(())
    }

    fn field(&mut self, field: &'a [u8]) {
        let Some(colon) = field.iter().position(|b| *b == b':') else { return };
        let (name, value) = (&field[..colon], field[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"host") {
            self.host = value;
        } else if name.eq_ignore_ascii_case(b"user-agent") {
            self.agent = value;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let is_number = !value.is_empty() && value.len() < 19 && value.iter().all(u8::is_ascii_digit);
            self.length = is_number.then(|| value.iter().fold(0, |n, b| n * 10 + u64::from(b - b'0')));
        }
    }
}
