//! TLS records (RFC 8446), as far as a packet begins with one.

/// Returns the type of the handshake message that a payload begins with: 1 is a ClientHello, 2 a ServerHello.
pub fn hello(payload: &[u8]) -> Option<u8> {
    match payload.first_chunk::<6>()? {
        [22, 3, minor, _, _, kind @ (1 | 2)] if *minor <= 4 => Some(*kind),
        _ => None,
    }
}

/// Returns the server name of a ClientHello that a payload begins with.
pub fn server_name(payload: &[u8]) -> Option<&[u8]> {
    if hello(payload)? != 1 {
        return None;
    }
    let mut record = Reader(payload.get(3..)?);
    let length = record.number::<2>()?;
    // A record that goes on in another packet is read as far as it is here.
    let record = &record.0[..length.min(record.0.len())];
    let mut hello = Reader(record);
    hello.skip(1)?;
    let length = hello.number::<3>()?;
    let mut hello = Reader(&hello.0[..length.min(hello.0.len())]);
    // Version and random; session, cipher suites, compression methods.
    hello.skip(34)?;
    hello.vector::<1>()?;
    hello.vector::<2>()?;
    hello.vector::<1>()?;
    let length = hello.number::<2>()?;
    let mut extensions = Reader(&hello.0[..length.min(hello.0.len())]);
    while let Some(kind) = extensions.number::<2>() {
        let data = extensions.vector::<2>()?;
        if kind == 0 {
            let mut list = Reader(data);
            let mut names = Reader(list.vector::<2>()?);
            while let Some(kind) = names.number::<1>() {
                let name = names.vector::<2>()?;
                if kind == 0 {
                    return Some(name);
                }
            }
            return None;
        }
    }
    None
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn skip(&mut self, n: usize) -> Option<()> {
        self.0 = self.0.get(n..)?;
        Some(())
    }

    fn number<const N: usize>(&mut self) -> Option<usize> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(bytes.iter().fold(0, |n, b| n << 8 | usize::from(*b)))
    }

    /// Returns bytes after their length, which has `N` bytes.
    fn vector<const N: usize>(&mut self) -> Option<&'a [u8]> {
        let length = self.number::<N>()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}
