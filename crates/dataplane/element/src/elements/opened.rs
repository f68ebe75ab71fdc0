//! The interface of an element for devices: opened once, and handed over by hot swapping.

use crate::runtime::element::Cx;
use flame_source::live::may_open;
use std::cell::{Cell, RefCell};

/// An interface, once it is open.
pub struct Opened<T> {
    open: RefCell<Option<T>>,
    /// Whether the interface was removed, or could not be opened.
    has_failed: Cell<bool>,
}

impl<T> Default for Opened<T> {
    fn default() -> Self {
        Self { open: RefCell::new(None), has_failed: Cell::new(false) }
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

    /// Opens the interface if it is not open. Returns false if that failed, now or before.
    pub fn ensure(&self, cx: &Cx<'_>, open: impl FnOnce() -> Result<T, String>) -> bool {
        if !self.has_failed.get() && !self.is_open() {
            match open() {
                Ok(open) => self.set(open),
                Err(e) => self.fail(cx, &e),
            }
        }
        !self.has_failed.get()
    }

    /// Reports an error after which the interface is not used any longer.
    pub fn fail(&self, cx: &Cx<'_>, error: &str) {
        self.has_failed.set(true);
        cx.error(error);
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
        *self.open.borrow_mut() = Some(open);
    }
}
