//! Files that elements write.
//!
//! A file is emptied when the first bytes are written, not when it is opened: until then, an element that
//! this one replaces may still write to it. One that writes the same file in the same form continues where
//! that stopped.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufWriter, Result, Write};

enum State {
    Closed,
    /// Nothing was written yet.
    Opened(Option<File>),
    Writing(BufWriter<Box<dyn Write + Send>>),
}

pub struct Output {
    /// Its name; `-` is standard output.
    pub name: String,
    header: Vec<u8>,
    state: RefCell<State>,
}

impl Output {
    /// Returns an output whose file begins with a header.
    pub fn new(name: String, header: Vec<u8>) -> Self {
        Self { name, header, state: RefCell::new(State::Closed) }
    }

    pub fn open(&self) -> std::result::Result<(), String> {
        let file = match self.name.as_str() {
            "-" => None,
            name => {
                let file = File::options().create(true).write(true).truncate(false).open(name);
                Some(file.map_err(|e| format!("{name}: {e}"))?)
            }
        };
        *self.state.borrow_mut() = State::Opened(file);
        Ok(())
    }

    /// Does something with the file, which has its header. Nothing, if the file is closed.
    fn with(&self, act: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let mut state = self.state.borrow_mut();
        if let State::Opened(file) = &mut *state {
            let out: Box<dyn Write + Send> = match file.take() {
                Some(file) => {
                    // Pipes and devices have no length.
                    if file.metadata()?.is_file() {
                        file.set_len(0)?;
                    }
                    Box::new(file)
                }
                None => Box::new(std::io::stdout()),
            };
            let mut out = BufWriter::new(out);
            out.write_all(&self.header)?;
            *state = State::Writing(out);
        }
        match &mut *state {
            State::Writing(out) => act(out),
            _ => Ok(()),
        }
    }

    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        self.with(|out| out.write_all(bytes))
    }

    pub fn flush(&self) -> Result<()> {
        self.with(|out| out.flush())
    }

    /// Writes what is left and closes the file.
    pub fn close(&self) -> Result<()> {
        let result = self.flush();
        *self.state.borrow_mut() = State::Closed;
        result
    }

    /// Takes over the file of the output that this one replaces, or closes it.
    pub fn take_over(&self, old: &Self) -> Result<()> {
        if old.name == self.name && old.header == self.header {
            let state = old.state.replace(State::Closed);
            if !matches!(state, State::Closed) {
                *self.state.borrow_mut() = state;
            }
            return Ok(());
        }
        old.close()
    }
}
