//! Files that elements write, record by record.
//!
//! A file is emptied when the first bytes are written, not when it is opened: until then, an element that
//! this one replaces may still write to it. One that writes the same file in the same form continues where
//! that stopped.
//!
//! A file that cannot be written, as on a full disk, is reported once and fails the run. Records that were
//! collected and not written are lost, and counted in the account of their element.

use crate::runtime::element::Cx;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{Error, Result, Write};

/// The causes in an account of packets that were written, and that could not be written.
pub const WRITTEN: &str = "written";
const NOT_WRITTEN: &str = "not written";

/// The bytes that are written at once.
const ROOM: usize = 8192;

enum State {
    Closed,
    /// Nothing was written yet.
    Opened(Option<File>),
    Writing(Box<dyn Write + Send>),
    /// A write has failed.
    Failed,
}

/// Records that could not be written.
#[derive(Debug)]
pub struct Lost {
    records: u64,
    /// The cause, when it is new.
    cause: Option<Error>,
}

pub struct Output {
    /// Its name; `-` is standard output.
    pub name: String,
    header: Vec<u8>,
    state: RefCell<State>,
    /// The records that were not written yet, and their number.
    collected: RefCell<Vec<u8>>,
    records: Cell<u64>,
}

impl Output {
    /// Returns an output whose file begins with a header.
    pub fn new(name: String, header: Vec<u8>) -> Self {
        let (state, collected) = (RefCell::new(State::Closed), RefCell::default());
        Self { name, header, state, collected, records: Cell::new(0) }
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

    /// Adds a record, which `fill` appends to the bytes so far. Nothing, if the file is closed.
    pub fn record(&self, fill: impl FnOnce(&mut Vec<u8>)) -> std::result::Result<(), Lost> {
        match *self.state.borrow() {
            State::Closed => return Ok(()),
            State::Failed => return Err(Lost { records: 1, cause: None }),
            State::Opened(_) | State::Writing(_) => {}
        }
        let mut collected = self.collected.borrow_mut();
        fill(&mut collected);
        self.records.set(self.records.get() + 1);
        if collected.len() < ROOM {
            return Ok(());
        }
        drop(collected);
        self.flush()
    }

    /// Writes what was collected.
    pub fn flush(&self) -> std::result::Result<(), Lost> {
        let mut state = self.state.borrow_mut();
        let result = self.write(&mut state);
        self.collected.borrow_mut().clear();
        let records = self.records.take();
        result.map_err(|cause| {
            *state = State::Failed;
            Lost { records, cause: Some(cause) }
        })
    }

    /// Writes the header, if it was not written yet, and what was collected.
    fn write(&self, state: &mut State) -> Result<()> {
        if let State::Opened(file) = state {
            let mut out: Box<dyn Write + Send> = match file.take() {
                Some(file) => {
                    // Pipes and devices have no length.
                    if file.metadata()?.is_file() {
                        file.set_len(0)?;
                    }
                    Box::new(file)
                }
                None => Box::new(std::io::stdout()),
            };
            out.write_all(&self.header)?;
            *state = State::Writing(out);
        }
        match state {
            State::Writing(out) => {
                out.write_all(&self.collected.borrow())?;
                out.flush()
            }
            _ => Ok(()),
        }
    }

    /// Writes what is left and closes the file.
    pub fn close(&self) -> std::result::Result<(), Lost> {
        let result = self.flush();
        *self.state.borrow_mut() = State::Closed;
        result
    }

    /// Takes over the file of the output that this one replaces, or closes it.
    pub fn take_over(&self, old: &Self) -> std::result::Result<(), Lost> {
        if old.name == self.name && old.header == self.header {
            let state = old.state.replace(State::Closed);
            if !matches!(state, State::Closed) {
                *self.state.borrow_mut() = state;
                self.collected.swap(&old.collected);
                self.records.swap(&old.records);
            }
            return Ok(());
        }
        old.close()
    }

    /// Reports records that were lost, which count as written until then.
    pub fn settle(&self, cx: &Cx<'_>, result: std::result::Result<(), Lost>) {
        let Err(lost) = result else { return };
        if let Some(cause) = lost.cause {
            cx.error(&format!("{}: {cause}", self.name));
            cx.router.past.fail();
        }
        cx.recount(WRITTEN, NOT_WRITTEN, lost.records);
    }
}
