use crate::{ALWAYS, Others, check, checked, explain, random_name, read_at_most};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// A folder to which only this user has access, held by its descriptor.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens a folder. If it does not exist, creates it and its missing parents with access for this user
    /// only.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be created or opened, is a symbolic link, or belongs to
    /// another user, or if others have access to it.
    pub fn private(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | ALWAYS;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| match e {
            // For a link to a folder, Linux returns this error because of `O_DIRECTORY`.
            rustix::io::Errno::NOTDIR => explain(rustix::io::Errno::LOOP),
            e => explain(e),
        })?;
        check(&rustix::fs::fstat(&fd)?, FileType::Directory, Others::Nothing)?;
        Ok(Self(fd))
    }

    /// Reads a private file of at most `most` bytes. Returns `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is longer, is a symbolic link, belongs to another user, is accessible
    /// to others, or cannot be read.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        match rustix::fs::openat(&self.0, name, OFlags::RDONLY | ALWAYS, Mode::empty()) {
            Ok(fd) => read_at_most(checked(fd, Others::Nothing)?, most).map(Some),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(e) => Err(explain(e)),
        }
    }

    /// Returns the names of its files that are text.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let name = entry?.file_name().to_str().map(str::to_owned);
            names.extend(name.ok().filter(|name| name != "." && name != ".."));
        }
        Ok(names)
    }

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not exist, or if it cannot be removed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Waits for the exclusive lock of the folder, which is held until the result is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be opened again, or if the kernel refuses the lock.
    pub fn lock(&self) -> io::Result<OwnedFd> {
        // A new descriptor, because a lock belongs to the open file: threads that share one would share the
        // lock.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | ALWAYS;
        let fd = rustix::fs::openat(&self.0, ".", flags, Mode::empty())?;
        rustix::fs::flock(&fd, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(fd)
    }

    /// Writes a whole file under `name`, replacing an existing one.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written or renamed. An existing file is then unchanged.
    pub fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.stage(bytes)?;
        rustix::fs::renameat(&self.0, &new, &self.0, name).map_err(|e| self.discard(&new, e))
    }

    /// Writes a whole file under `name` as [`Folder::put`] does, and waits until file and name are on the
    /// disk.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, synced or renamed. If only the folder cannot be
    /// synced, the file already has its new contents.
    pub fn put_synced(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.stage(bytes)?;
        let sync = || {
            let fd = rustix::fs::openat(&self.0, &new, OFlags::RDONLY | ALWAYS, Mode::empty())?;
            rustix::fs::fsync(fd)?;
            rustix::fs::renameat(&self.0, &new, &self.0, name)?;
            rustix::fs::fsync(&self.0)
        };
        sync().map_err(|e| self.discard(&new, e))
    }

    /// Writes a whole file under `name` unless one exists, and returns whether it was written.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written or linked.
    pub fn put_new(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        let new = self.stage(bytes)?;
        let linked =
            rustix::fs::linkat(&self.0, &new, &self.0, name, AtFlags::empty()).map_err(io::Error::from);
        rustix::fs::unlinkat(&self.0, &new, AtFlags::empty())?;
        match linked {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn stage(&self, bytes: &[u8]) -> io::Result<String> {
        let name = random_name("new-", "")?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | ALWAYS;
        let fd = rustix::fs::openat(&self.0, &name, flags, Mode::RUSR | Mode::WUSR)?;
        let written = File::from(fd).write_all(bytes);
        match written {
            Ok(()) => Ok(name),
            Err(e) => {
                // The first error is the one to report.
                let _ = rustix::fs::unlinkat(&self.0, &name, AtFlags::empty());
                Err(e)
            }
        }
    }

    fn discard(&self, name: &str, error: rustix::io::Errno) -> io::Error {
        // The first error is the one to report.
        let _ = rustix::fs::unlinkat(&self.0, name, AtFlags::empty());
        error.into()
    }
}
