//! The commands that clients of [`super::control_socket`] send, read from bytes.

use std::io::{BufRead, ErrorKind, Result};

/// Bytes of a line, and of the data of a command, at most.
const LINE: usize = 64 << 10;
pub const DATA: usize = 1 << 20;

/// An action on a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Read,
    Write,
    CheckRead,
    CheckWrite,
}

/// A command, complete with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Handle {
        verb: Verb,
        handler: Vec<u8>,
        data: Vec<u8>,
    },
    Quit,
    Help,
    /// A call of Click's kernel module.
    Llrpc,
    /// A word that is not in the protocol, in capitals.
    Unknown(String),
    /// The command lacks an argument, or has one too many.
    ArgumentCount,
    /// The length of the data is no number, or above [`DATA`].
    Length(String),
}

/// The commands of one client.
pub struct Commands<R> {
    pub input: R,
    /// Whether the last line ended with CR, so that an LF belongs to it.
    after_cr: bool,
}

impl<R: BufRead> Commands<R> {
    pub fn new(input: R) -> Self {
        Self { input, after_cr: false }
    }

    /// Reads a line without its end, which is CR, LF or both. None: the connection has ended.
    fn line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        loop {
            let available = self.input.fill_buf()?;
            let Some(first) = available.first() else {
                return Ok((!line.is_empty()).then_some(line));
            };
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                self.input.consume(1);
                continue;
            }
            let end = available.iter().position(|b| matches!(b, b'\r' | b'\n'));
            line.extend_from_slice(&available[..end.unwrap_or(available.len())]);
            let taken = end.map_or(available.len(), |end| end + 1);
            self.after_cr = end.is_some_and(|end| available[end] == b'\r');
            self.input.consume(taken);
            if line.len() > LINE {
                return Err(ErrorKind::InvalidData.into());
            }
            if end.is_some() {
                return Ok(Some(line));
            }
        }
    }

    fn data(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut data = vec![0; length];
        // The LF of a line that ended with CR is no data.
        if std::mem::take(&mut self.after_cr) && self.input.fill_buf()?.first() == Some(&b'\n') {
            self.input.consume(1);
        }
        self.input.read_exact(&mut data)?;
        Ok(data)
    }

    /// Reads lines up to the line `term`.
    fn until(&mut self, term: &[u8]) -> Result<Vec<u8>> {
        let mut data = Vec::new();
        while let Some(line) = self.line()? {
            if line.trim_ascii() == term {
                return Ok(data);
            }
            data.extend(line);
            data.push(b'\n');
            if data.len() > DATA {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        Err(ErrorKind::UnexpectedEof.into())
    }

    /// Reads the next command, or returns `None` at the end of the connection.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection fails, or ends within a command, and for a line or data beyond
    /// what a command may have.
    pub fn next(&mut self) -> Result<Option<Command>> {
        let (word, rest) = loop {
            let Some(line) = self.line()? else { return Ok(None) };
            let (word, rest) = split(&line);
            if !word.is_empty() {
                break (String::from_utf8_lossy(word).to_uppercase(), rest.to_vec());
            }
        };
        let (handler, argument) = split(&rest);
        let verb = match word.as_str() {
            "READ" | "GET" | "READDATA" | "READUNTIL" => Verb::Read,
            "WRITE" | "SET" | "WRITEDATA" | "SETDATA" | "WRITEUNTIL" => Verb::Write,
            "CHECKREAD" => Verb::CheckRead,
            "CHECKWRITE" => Verb::CheckWrite,
            "QUIT" | "CLOSE" => return Ok(Some(Command::Quit)),
            "HELP" => return Ok(Some(Command::Help)),
            "LLRPC" => {
                let length = String::from_utf8_lossy(split(argument).0).parse().unwrap_or(0_usize);
                self.data(length.min(DATA))?;
                return Ok(Some(Command::Llrpc));
            }
            _ => return Ok(Some(Command::Unknown(word))),
        };
        if handler.is_empty() || (word.starts_with("CHECK") && !argument.is_empty()) {
            return Ok(Some(Command::ArgumentCount));
        }
        let data = if word.ends_with("DATA") {
            let length = std::str::from_utf8(argument).ok().and_then(|n| n.parse().ok());
            let Some(length) = length.filter(|length| *length <= DATA) else {
                return Ok(Some(Command::Length(word)));
            };
            self.data(length)?
        } else if word.ends_with("UNTIL") {
            self.until(argument)?
        } else {
            argument.to_vec()
        };
        Ok(Some(Command::Handle { verb, handler: handler.to_vec(), data }))
    }
}

/// Splits off the first word.
fn split(line: &[u8]) -> (&[u8], &[u8]) {
    let line = line.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    (&line[..end], line[end..].trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{BufReader, Cursor};

    /// Returns all commands, and the kind of error at which they end.
    fn all(bytes: &[u8], most: usize) -> (Vec<Command>, Option<ErrorKind>) {
        let mut commands = Commands::new(BufReader::with_capacity(most, Cursor::new(bytes)));
        let mut read = Vec::new();
        loop {
            match commands.next() {
                Ok(Some(command)) => read.push(command),
                Ok(None) => return (read, None),
                Err(e) => return (read, Some(e.kind())),
            }
        }
    }

    fn handle(verb: Verb, handler: &str, data: &str) -> Command {
        Command::Handle { verb, handler: handler.into(), data: data.into() }
    }

    #[test]
    fn commands_have_their_data() {
        let text = "read a.b\r\n\r\nWRITE c 1  2 \nWRITEDATA d 5\r\nx\r\ny\nREADUNTIL e END\nl\r\nm\n END \r\
            LLRPC f 3\nabcCHECKREAD g\nCHECKWRITE h 1\nREADDATA i z\nfrob\nquit";
        let expected = vec![
            handle(Verb::Read, "a.b", ""),
            handle(Verb::Write, "c", "1  2"),
            handle(Verb::Write, "d", "x\r\ny\n"),
            handle(Verb::Read, "e", "l\nm\n"),
            Command::Llrpc,
            handle(Verb::CheckRead, "g", ""),
            Command::ArgumentCount,
            Command::Length("READDATA".into()),
            Command::Unknown("FROB".into()),
            Command::Quit,
        ];
        assert_eq!(all(text.as_bytes(), 8192), (expected, None));
        let long = [b"READ ".as_slice(), &[b'x'; LINE]].concat();
        assert_eq!(all(&long, 8192), (Vec::new(), Some(ErrorKind::InvalidData)));
        assert_eq!(all(b"WRITEDATA a 1048577\nx", 8192).0[0], Command::Length("WRITEDATA".into()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// The same bytes are the same commands, however the network divides them.
        #[test]
        fn divisions_change_nothing(
            parts in prop::collection::vec(
                prop_oneof![
                    prop::sample::select(vec![
                        "READ ", "readdata ", "WRITEUNTIL ", "CHECKREAD ", "LLRPC ", "SETDATA ", "help", "x.y ",
                        "3", "7 ", "END", "\r\n", "\n", "\r", " ", "\0", "1048577", "99999999999999999999",
                    ]).prop_map(|s| s.as_bytes().to_vec()),
                    prop::collection::vec(any::<u8>(), 0..4),
                ],
                0..40,
            ),
            most in 1_usize..9,
        ) {
            let bytes = parts.concat();
            prop_assert_eq!(all(&bytes, most), all(&bytes, 1 << 16));
        }
    }
}
