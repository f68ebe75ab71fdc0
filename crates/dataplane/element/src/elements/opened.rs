//! The interface of an element for devices: opened at the start, opened again after it was removed, and
//! handed over by hot swapping.

use crate::runtime::element::Cx;
use flame_click::Nanos;
use flame_click::time::SECOND;
use flame_source::live::may_open;
use std::cell::{Cell, RefCell};

/// An interface, once it is open.
pub struct Opened<T> {
    open: RefCell<Option<T>>,
    /// The time of the next attempt, if the interface was removed or could not be opened.
    again_at: Cell<Option<Nanos>>,
}

impl<T> Default for Opened<T> {
    fn default() -> Self {
        Self { open: RefCell::new(None), again_at: Cell::new(None) }
    }
}

impl<T> Opened<T> {
    /// Opens the interface when the element is initialized. With hot swapping it is only checked: the element
    /// that is replaced hands its interface over before tasks run.
    pub fn initialize(
        &self,
        cx: &Cx<'_>,
        name: &str,
        open: impl FnOnce() -> Result<T, String>,
    ) -> Result<(), String> {
        if cx.router.parse.is_some() || cx.router.is_initialized.get() {
            return may_open(name).map(drop).map_err(|e| e.to_string());
        }
        self.set(open()?);
        Ok(())
    }

    /// Opens the interface if it is not open, and returns whether it is. While that fails, it is attempted
    /// each second, by timer 0 of the element, which must schedule its task; the first failure is reported.
    pub fn ensure(&self, cx: &Cx<'_>, open: impl FnOnce() -> Result<T, String>) -> bool {
        if self.is_open() {
            return true;
        }
        if let Some(at) = self.again_at.get().filter(|at| cx.now() < *at) {
            cx.timer_at(0, at);
            return false;
        }
        match open() {
            Ok(open) => self.set(open),
            Err(e) => {
                if self.again_at.get().is_none() {
                    cx.error(&e);
                }
                self.wait(cx);
            }
        }
        self.is_open()
    }

    /// Closes the interface after an error, which is reported, so that nothing dead is handed over.
    pub fn fail(&self, cx: &Cx<'_>, error: &str) {
        self.take();
        self.wait(cx);
        cx.error(error);
    }

    fn wait(&self, cx: &Cx<'_>) {
        let at = cx.now() + Nanos(SECOND);
        self.again_at.set(Some(at));
        cx.timer_at(0, at);
    }

    pub fn is_open(&self) -> bool {
        self.open.borrow().is_some()
    }

    /// Calls `f` with the interface, if it is open.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.open.borrow_mut().as_mut().map(f)
    }

    /// Takes the interface out, which is open no longer.
    pub fn take(&self) -> Option<T> {
        self.open.borrow_mut().take()
    }

    pub fn set(&self, open: T) {
        self.again_at.set(None);
        *self.open.borrow_mut() = Some(open);
    }
}
