//! Standard output and error. Control characters that would command a terminal are escaped, but only there:
//! in files and pipes, bytes stay as they are.

use std::io::{IsTerminal, Write};

/// An output that escapes control characters if it is a terminal.
pub struct Terminal {
    out: Box<dyn Write>,
    escapes: bool,
}

impl Terminal {
    pub fn stdout() -> Self {
        Self { escapes: std::io::stdout().is_terminal(), out: Box::new(std::io::stdout()) }
    }

    pub fn stderr() -> Self {
        Self { escapes: std::io::stderr().is_terminal(), out: Box::new(std::io::stderr()) }
    }

    #[cfg(test)]
    fn escaping(out: Box<dyn Write>) -> Self {
        Self { out, escapes: true }
    }
}

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if !self.escapes {
            self.out.write_all(bytes)?;
            return Ok(bytes.len());
        }
        let mut escaped = Vec::with_capacity(bytes.len());
        for b in bytes {
            match b {
                b'\n' | b'\t' | 32..=126 | 128.. => escaped.push(*b),
                _ => escaped.extend_from_slice(format!("\\x{b:02x}").as_bytes()),
            }
        }
        self.out.write_all(&escaped)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_terminal_is_not_commanded() {
        let written = Rc::new(RefCell::new(Vec::new()));
        let mut t = Terminal::escaping(Box::new(Shared(written.clone())));
        t.write_all(b"a\x1b[2Jb\n").unwrap();
        assert_eq!(*written.borrow(), b"a\\x1b[2Jb\n");
    }
}
