//! ClientHello and ServerHello (RFC 8446, section 4.1; RFC 5246, section 7.4.1), after the four bytes of the
//! handshake header.

use flame_module::FixedText;

/// The largest number of cipher suites, extensions and signature algorithms that are kept. What a client
/// offers beyond that is counted, but not part of the fingerprint.
pub const MOST: usize = 512;
/// The longest text of a server's name and of a list of protocols.
pub const TEXT: usize = 1024;

/// The numbers of extensions (IANA, TLS ExtensionType Values).
pub mod extension {
    pub const SERVER_NAME: u16 = 0;
    pub const SIGNATURES: u16 = 13;
    pub const ALPN: u16 = 16;
    pub const VERSIONS: u16 = 43;
}

/// The random value of a ServerHello that asks for another ClientHello (RFC 8446, section 4.1.3).
const RETRY: [u8; 8] = [0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11];

/// Numbers of 16 bits in their order.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    numbers: [u16; MOST],
    /// All of them, also those beyond `MOST`.
    pub count: usize,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { numbers: [0; MOST], count: 0 }
    }
}

impl Numbers {
    pub fn push(&mut self, number: u16) {
        if let Some(place) = self.numbers.get_mut(self.count) {
            *place = number;
        }
        self.count += 1;
    }

    pub fn kept(&self) -> &[u16] {
        &self.numbers[..self.count.min(MOST)]
    }

    pub fn kept_mut(&mut self) -> &mut [u16] {
        &mut self.numbers[..self.count.min(MOST)]
    }
}

/// What a client offers. GREASE (RFC 8701) is left out of all lists.
#[derive(Default)]
pub struct ClientHello<'a> {
    pub legacy_version: u16,
    pub ciphers: Numbers,
    pub extensions: Numbers,
    pub signatures: Numbers,
    pub server_name: &'a [u8],
    /// The first protocol, and all of them with commas between.
    pub first_alpn: &'a [u8],
    pub alpn: FixedText<TEXT>,
    /// The highest of the supported versions, or 0 without the extension; drafts have high numbers.
    pub supported: u16,
    /// Whether TLS 1.3 is among them.
    pub has_13: bool,
}

/// What a server chooses.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ServerHello<'a> {
    pub version: u16,
    pub cipher: u16,
    pub alpn: &'a [u8],
    pub is_retry: bool,
}

/// Returns whether a number is one of those that clients send for servers to ignore (RFC 8701).
pub fn is_grease(number: u16) -> bool {
    number & 0x0f0f == 0x0a0a && number >> 8 == number & 0xff
}

/// Bytes of which values are taken one after the other.
#[derive(Clone, Copy)]
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u16(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Takes a value after its length of one or two bytes.
    fn vector8(&mut self) -> Option<Self> {
        let len = self.u8()?;
        self.take(len.into()).map(Self)
    }

    fn vector16(&mut self) -> Option<Self> {
        let len = self.u16()?;
        self.take(len.into()).map(Self)
    }

    /// Returns all numbers of 16 bits but GREASE.
    fn numbers(mut self) -> Numbers {
        let mut all = Numbers::default();
        while let Some(number) = self.u16() {
            if !is_grease(number) {
                all.push(number);
            }
        }
        all
    }
}

impl<'a> ClientHello<'a> {
    /// Returns the values, or `None` if a length leads beyond the end of the message.
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let mut at = Cursor(body);
        let mut hello = Self { legacy_version: at.u16()?, ..Self::default() };
        at.take(32)?;
        at.vector8()?;
        hello.ciphers = at.vector16()?.numbers();
        at.vector8()?;
        // SSL 3.0 has no extensions.
        let mut extensions = if at.0.is_empty() { at } else { at.vector16()? };
        while !extensions.0.is_empty() {
            let kind = extensions.u16()?;
            let content = extensions.vector16()?;
            if is_grease(kind) {
                continue;
            }
            hello.extensions.push(kind);
            // Of an extension that is repeated, which is forbidden, the first one counts.
            match kind {
                extension::SERVER_NAME if hello.server_name.is_empty() => {
                    hello.server_name = server_name(content).unwrap_or_default();
                }
                extension::SIGNATURES if hello.signatures.count == 0 => {
                    hello.signatures = { content }.vector16().map(Cursor::numbers).unwrap_or_default();
                }
                extension::ALPN if hello.alpn.is_empty() => hello.protocols(content),
                extension::VERSIONS if hello.supported == 0 => hello.versions(content),
                _ => {}
            }
        }
        Some(hello)
    }

    fn versions(&mut self, mut content: Cursor<'a>) {
        let Some(mut list) = content.vector8() else { return };
        while let Some(version) = list.u16() {
            if !is_grease(version) {
                self.supported = self.supported.max(version);
                self.has_13 |= version == 0x0304;
            }
        }
    }

    fn protocols(&mut self, mut content: Cursor<'a>) {
        let Some(mut list) = content.vector16() else { return };
        let mut is_first = true;
        while let Some(protocol) = list.vector8() {
            if is_first {
                self.first_alpn = protocol.0;
            } else {
                self.alpn.push(",");
            }
            is_first = false;
            self.alpn.push_bytes(protocol.0);
        }
    }

    /// Returns the highest version that is no draft, if there is one.
    pub fn best(&self) -> u16 {
        if self.has_13 { 0x0304 } else { self.version() }
    }

    /// Returns the highest number of a version that the client supports.
    pub fn version(&self) -> u16 {
        if self.supported == 0 { self.legacy_version } else { self.supported }
    }
}

/// Returns the name of the first entry of type host_name (RFC 6066, section 3).
fn server_name(mut content: Cursor<'_>) -> Option<&[u8]> {
    let mut list = content.vector16()?;
    while let Some(kind) = list.u8() {
        let name = list.vector16()?;
        if kind == 0 {
            return Some(name.0);
        }
    }
    None
}

impl<'a> ServerHello<'a> {
    /// Returns the values, or `None` if a length leads beyond the end of the message.
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let mut at = Cursor(body);
        let mut hello = Self { version: at.u16()?, ..Self::default() };
        hello.is_retry = at.take(32)?.starts_with(&RETRY);
        // TLS 1.3 up to draft 21 has neither session nor compression.
        let is_draft = hello.version >> 8 == 0x7f;
        if !is_draft {
            at.vector8()?;
        }
        hello.cipher = at.u16()?;
        if !is_draft {
            at.u8()?;
        }
        let mut extensions = if at.0.is_empty() { at } else { at.vector16()? };
        while !extensions.0.is_empty() {
            let kind = extensions.u16()?;
            let mut content = extensions.vector16()?;
            match kind {
                extension::ALPN => {
                    let protocol = content.vector16().and_then(|mut list| list.vector8());
                    hello.alpn = protocol.map_or(&[], |p| p.0);
                }
                extension::VERSIONS => hello.version = content.u16().unwrap_or(hello.version),
                _ => {}
            }
        }
        Some(hello)
    }
}

/// Returns the name of a version, as "1.3", or its number.
pub fn version_name(version: u16, text: &mut FixedText<16>) {
    match version {
        0x0304 => text.push("1.3"),
        0x0303 => text.push("1.2"),
        0x0302 => text.push("1.1"),
        0x0301 => text.push("1.0"),
        0x0300 => text.push("SSL 3.0"),
        _ => {
            text.push("0x");
            text.push_hex(version.into(), 4);
        }
    }
}
