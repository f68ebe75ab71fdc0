#![allow(unsafe_code)] // Asks the kernel for names and numbers.

//! Interfaces by the kernel's own names.

use crate::SourceError;
use std::ffi::{CStr, CString};
use std::io;

/// The name that stands for all interfaces, as in tcpdump.
pub const ANY: &str = "any";

/// An interface of this machine, or all of them.
///
/// An interface can have further names, and names can move. The kernel knows it by its number, so the number
/// is looked up once: what is decided about the name, and what is then opened, are one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    name: String,
    /// The kernel's number, 0 for all.
    index: libc::c_int,
}

impl Interface {
    /// Finds an interface by one of its names. `any` stands for all.
    ///
    /// # Errors
    ///
    /// Returns an error that lists the interfaces if none has this name.
    pub fn find(name: &str) -> Result<Self, SourceError> {
        if name == ANY {
            return Ok(Self { name: name.to_owned(), index: 0 });
        }
        let index = index(name)?;
        let own = self::name(index).map_err(|error| none(name, error))?;
        let own: Vec<u8> = own.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
        Ok(Self { name: String::from_utf8_lossy(&own).into_owned(), index })
    }

    /// Returns the kernel's own name of the interface, or `any`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kernel's number of the interface, or 0 for all.
    pub fn index(&self) -> libc::c_int {
        self.index
    }

    /// Returns whether it stands for all interfaces.
    pub fn is_all(&self) -> bool {
        self.index == 0
    }
}

/// Returns the error of an interface that is not there.
fn none(interface: &str, error: io::Error) -> SourceError {
    let error = io::Error::new(error.kind(), format!("{error}; there are {}", interfaces().join(", ")));
    SourceError::Io { place: format!("interface {interface}"), error }
}

/// Returns the number of an interface by one of its names.
pub fn index(interface: &str) -> Result<libc::c_int, SourceError> {
    let name = CString::new(interface).map_err(|e| none(interface, e.into()))?;
    // SAFETY: a NUL-terminated name that lives through the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(none(interface, io::Error::last_os_error())),
        index => Ok(index as libc::c_int),
    }
}

/// Returns the present name of the interface with number `index`, or an error without one.
pub fn name(index: libc::c_int) -> io::Result<[libc::c_char; libc::IFNAMSIZ]> {
    let mut name = [0; libc::IFNAMSIZ];
    // SAFETY: the name has room for `IFNAMSIZ` bytes, the most that the call writes.
    match unsafe { libc::if_indextoname(index as u32, name.as_mut_ptr()) }.is_null() {
        true => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        false => Ok(name),
    }
}

/// Returns the names of this machine's interfaces.
pub fn interfaces() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the list is read up to its end mark and freed once.
    unsafe {
        let list = libc::if_nameindex();
        let mut entry = list;
        while !entry.is_null() && !(*entry).if_name.is_null() {
            names.push(CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
            entry = entry.add(1);
        }
        if !list.is_null() {
            libc::if_freenameindex(list);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_has_the_name_that_the_kernel_gives_it() {
        let lo = Interface::find("lo").unwrap();
        assert_eq!((lo.name(), lo.is_all()), ("lo", false));
        // The label of an address is no other interface.
        assert_eq!(Interface::find("lo:1").unwrap(), lo);
        let all = Interface::find(ANY).unwrap();
        assert_eq!((all.name(), all.is_all()), (ANY, true));
        for name in ["no-such", "", "LO", "l\0o", "a-name-of-more-than-fifteen-letters"] {
            let refused = Interface::find(name).unwrap_err().to_string();
            assert!(refused.contains("there are ") && refused.contains("lo"), "{refused}");
        }
    }
}
