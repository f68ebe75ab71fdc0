//! Gives up all privileges but the one to capture packets.

use caps::{CapSet, Capability, CapsHashSet};
use nix::unistd::{Gid, Uid, User, initgroups, setgid, setuid};
use std::ffi::CString;
use std::io;

/// Returns the user with this name or number.
///
/// # Errors
///
/// Returns an error if it does not exist.
pub fn user(name: &str) -> io::Result<User> {
    let found = match name.parse() {
        Ok(uid) => User::from_uid(Uid::from_raw(uid)),
        Err(_) => User::from_name(name),
    };
    let missing = || io::Error::other(format!("user {name:?} does not exist: useradd --system {name}"));
    found?.ok_or_else(missing)
}

/// Becomes `user`, with `CAP_NET_RAW` as the only capability, and `CAP_SYS_NICE` if the node schedules
/// processes. Called before other threads are started, which inherit it.
///
/// # Errors
///
/// Returns an error if a step fails; the process must end then.
pub fn drop_to(user: &User, schedules: bool) -> io::Result<()> {
    let other = |e: caps::errors::CapsError| io::Error::other(format!("capabilities: {e}"));
    let nice = schedules.then_some(Capability::CAP_SYS_NICE);
    let only: CapsHashSet = [Capability::CAP_NET_RAW].into_iter().chain(nice).collect();
    for other_cap in caps::read(None, CapSet::Bounding).map_err(other)?.difference(&only) {
        caps::drop(None, CapSet::Bounding, *other_cap).map_err(other)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    // Without this, the change of the user would clear the permitted set.
    caps::securebits::set_keepcaps(true).map_err(other)?;
    let name = CString::new(user.name.as_str()).map_err(io::Error::other)?;
    initgroups(&name, user.gid)?;
    setgid(user.gid)?;
    setuid(user.uid)?;
    caps::clear(None, CapSet::Ambient).map_err(other)?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new()).map_err(other)?;
    caps::set(None, CapSet::Effective, &only).map_err(other)?;
    caps::set(None, CapSet::Permitted, &only).map_err(other)?;
    caps::securebits::set_keepcaps(false).map_err(other)?;
    if Uid::effective().is_root() || Gid::effective().as_raw() == 0 && user.gid.as_raw() != 0 {
        return Err(io::Error::other("the process is still root"));
    }
    Ok(())
}
