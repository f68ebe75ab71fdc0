//! The state of an interface that is in use.

use super::interface;
use super::socket::{self, Socket};
use crate::SourceError;

/// An interface that is in use, and whether it was found down.
pub struct State {
    interface: String,
    /// The number of the interface.
    index: i32,
    is_down: bool,
}

impl State {
    pub fn new(interface: &str, index: i32) -> Self {
        Self { interface: interface.to_owned(), index, is_down: false }
    }

    /// Looks at the state, of which `socket` is told, as [`Socket::is_still_up`] permits. Returns a message
    /// when the interface went down, or is up again.
    ///
    /// # Errors
    ///
    /// Returns an error if the interface was removed.
    pub fn look(&mut self, socket: &Socket) -> Result<Option<String>, SourceError> {
        let state = socket.wait(0).and_then(|()| match self.is_down {
            true => socket.is_still_up(),
            false => Ok(true),
        });
        match state {
            Ok(true) if self.is_down => {
                // The kernel has resumed the reception.
                self.is_down = false;
                Ok(Some(format!("interface {} is up again", self.interface)))
            }
            Ok(_) => Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::ENETDOWN) => {
                // A removal is reported in the same way.
                socket.is_still_up().map_err(|e| socket::lost(&self.interface, e))?;
                let was_down = std::mem::replace(&mut self.is_down, true);
                let text = format!("interface {} is down: waiting until it is up", self.interface);
                Ok((!was_down).then_some(text))
            }
            Err(e) => Err(socket::lost(&self.interface, e)),
        }
    }

    pub fn index(&self) -> i32 {
        self.index
    }

    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Returns whether the interface was found down. Then it should be looked at now and then.
    pub fn is_down(&self) -> bool {
        self.is_down
    }

    /// Returns whether the interface still has the name by which it was opened.
    pub fn has_its_name(&self) -> bool {
        interface::index(&self.interface).is_ok_and(|index| index == self.index)
    }
}
