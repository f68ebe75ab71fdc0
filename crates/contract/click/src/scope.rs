//! The names that arguments may use for addresses and ports.

use crate::addr::{Ip, Mac, Prefix};

/// Knows the names that `AddressInfo` and `PortInfo` declare.
pub trait Resolver {
    /// Returns the address that `name` stands for in the scope of an element. A network has none.
    fn ip(&self, element: &str, name: &str) -> Option<Ip>;
    /// Returns the prefix that `name` stands for. An address by itself stands for a prefix of 32 bits.
    fn prefix(&self, element: &str, name: &str) -> Option<Prefix>;
    fn mac(&self, element: &str, name: &str) -> Option<Mac>;
    fn port(&self, element: &str, name: &str) -> Option<u16>;
}

/// Knows no names.
pub struct NoNames;

impl Resolver for NoNames {
    fn ip(&self, _: &str, _: &str) -> Option<Ip> {
        None
    }
    fn prefix(&self, _: &str, _: &str) -> Option<Prefix> {
        None
    }
    fn mac(&self, _: &str, _: &str) -> Option<Mac> {
        None
    }
    fn port(&self, _: &str, _: &str) -> Option<u16> {
        None
    }
}

/// The scope in which the names of an argument are resolved: the scope of one element.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    pub names: &'a dyn Resolver,
    pub element: &'a str,
}

impl Scope<'_> {
    /// Returns a scope without any names.
    pub fn none() -> Scope<'static> {
        Scope { names: &NoNames, element: "" }
    }

    /// Returns the address that a name stands for.
    pub fn ip(&self, name: &str) -> Option<Ip> {
        self.names.ip(self.element, name)
    }

    /// Returns the prefix that a name stands for.
    pub fn prefix(&self, name: &str) -> Option<Prefix> {
        self.names.prefix(self.element, name)
    }

    /// Returns the Ethernet address that a name stands for.
    pub fn mac(&self, name: &str) -> Option<Mac> {
        self.names.mac(self.element, name)
    }

    /// Returns the port that a name stands for.
    pub fn port(&self, name: &str) -> Option<u16> {
        self.names.port(self.element, name)
    }
}
